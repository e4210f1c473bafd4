import io
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from collector.compare import Request, compare, roll_ups
from collector.compare_report import as_json, markdown, show
from collector.compare_sides import CompareError
from collector.compare_words import notes_of, rest_of, sections_of
from collector.history.load import load_history
from dashboard.regressions import commit_tables

ROOT = Path(__file__).parent.parent
PACKED = (1, "sinkhorn", "triton-packed")
# One size of one op, graph and call: ten series.
SMALL = {"ops": ("sinkhorn",), "sweep": 1, "caches": ("cold",), "failures": False, "samples": 5,
         "noise": 5e-4}  # fmt: skip
EXACT = {"replicates": 2, "noise": 0.0, "samples": 3}


def plan(**changes):
    return synthetic.Plan(**(SMALL | {"commits": 2, "replicates": 6} | changes))


def told(data, candidate=None, baseline="previous", **changes):
    """Compare the second commit with the first, or what is named."""
    request = Request(str(candidate or plan().shas()[1]), str(baseline), data, data)
    return compare(replace(request, **changes))


def built(data, **changes):
    synthetic.build(data, plan(**changes))
    return told(data)


def file_of(folder, index, name="one", card=synthetic.H200, **changes):
    """Write a run of its own outside the data; `name` makes it another run of the same commit."""
    run, *rest = synthetic.run_records(plan(**changes), card, index)
    run_id = name.encode().hex().ljust(16, "0")
    return synthetic.write(folder / name, [run.model_copy(update={"run_id": run_id}), *rest])


def rewrite(path, change):
    values = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(value) + "\n" for value in values if value is not None))
    return path


def failed(status, implementation="triton-packed"):
    """Turn every time of an implementation into a failure."""

    def change(value):
        if value.get("case", {}).get("implementation") != implementation:
            return value
        kept = {name: part for name, part in value.items() if name != "latency"}
        return kept | {"status": status, "reason": "as planted"}

    return change


def in_run(part, **values):
    return lambda line: line | {part: line[part] | values} if line["kind"] == "run" else line


def verdicts(result):
    return {row.verdict for one in result.devices for row in one.rows}


def error_of(*arguments, **options):
    with pytest.raises(CompareError) as caught:
        told(*arguments, **options)
    return caught.value.code, str(caught.value)


def test_slower_kernel_fails_and_is_told_first(tmp_path):
    result = built(tmp_path, effects={PACKED: 1.05})
    first, *others = sections_of(result.devices[0], whole=True)
    assert result.exit_code == 2
    assert (first.verdict, first.name) == ("regressed", "sinkhorn triton-packed")
    assert len(first.lines) == 2
    assert first.why == "The source of the kernel changed."
    assert {section.verdict for section in others} == {"unchanged"}
    assert sum(len(section.lines) for section in others) == 8


def test_figures_are_those_that_were_planted(tmp_path):
    result = built(tmp_path, effects={PACKED: 1.05}, **EXACT)
    rows = json.loads(as_json(result))["devices"][0]["rows"]
    moved = [row for row in rows if row["implementation"] == "triton-packed"]
    for row in moved:
        assert row["statistics"]["change_percent"] == pytest.approx(5, abs=0.3)
        assert row["after_ns"] / row["before_ns"] == pytest.approx(1.05, abs=0.003)
    family = next(one for one in roll_ups(result.devices[0].rows)
                  if one.implementation == "triton-packed" and one.timer == "graph")  # fmt: skip
    assert (family.count, family.verdicts) == (1, {"regressed": 1})
    assert family.log_ratio == pytest.approx(math.log(1.05), abs=0.002)


@pytest.mark.parametrize("changes", [
    {"effects": {PACKED: 1.05}},
    {"effects": {PACKED: 1.05}, "uuids": {0: "aaaaaaaaaaaa", 1: "bbbbbbbbbbbb"}, "spread": 0.03},
    {"versions": {1: {"triton": "3.9.0"}}},
    {"shift": {1: 1.02}, "replicates": 2, "effects": {PACKED: 0.9}},
])  # fmt: skip
def test_a_commit_gets_the_verdicts_that_the_site_shows(tmp_path, changes):
    result = built(tmp_path, **changes)
    (table,) = commit_tables(load_history(tmp_path))
    assert result.devices[0].rows == table.rows


def test_faster_kernel_is_fine(tmp_path):
    result = built(tmp_path, effects={PACKED: 0.9})
    assert (result.exit_code, verdicts(result)) == (0, {"improved", "unchanged"})


@settings(max_examples=6)
@given(st.integers(0, 10**6))
def test_two_runs_of_one_commit_do_not_differ(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("same")
    shas = plan().shas()
    one, other = (
        file_of(folder, 1, name, seed=seed + i, commits=shas) for i, name in enumerate("ab")
    )
    result = told(folder, one, other)
    assert result.exit_code == 0
    assert verdicts(result) <= {"unchanged", "inconclusive"}


def test_slower_machine_is_no_regression(tmp_path):
    result = built(tmp_path, shift={1: 1.03})
    assert (result.exit_code, verdicts(result)) == (0, {"unchanged"})
    assert any(note.startswith("machine: ") and "+3.0 %" in note
               for note in notes_of(result.devices[0]))  # fmt: skip


def test_one_replicate_a_side_fails_only_over_a_limit(tmp_path):
    synthetic.build(tmp_path, plan(effects={PACKED: 1.3}, replicates=1))
    assert told(tmp_path).exit_code == 0
    assert told(tmp_path, limit=0.5).exit_code == 0
    result = told(tmp_path, limit=0.1)
    assert result.exit_code == 2 and verdicts(result) == {"inconclusive"}
    assert {row.key.implementation for row in result.devices[0].failing} == {"triton-packed"}
    assert "one replicate a side" in sections_of(result.devices[0])[0].why


def test_regression_below_the_limit_is_told_and_does_not_fail(tmp_path):
    synthetic.build(tmp_path, plan(effects={PACKED: 1.05}))
    result = told(tmp_path, limit=0.1)
    assert result.exit_code == 0 and "regressed" in verdicts(result)
    assert told(tmp_path, limit=0.03).exit_code == 2


def test_noise_is_never_over_a_limit(tmp_path):
    synthetic.build(tmp_path, plan(noise=0.2, replicates=3))
    result = told(tmp_path, limit=0.1)
    assert max(row.judgement.comparison.change for row in result.devices[0].rows) > 0.1
    assert result.exit_code == 0


@pytest.mark.parametrize(("field", "word"), [
    ("method_id", "another method"), ("workload_hash", "another workload")
])  # fmt: skip
def test_another_method_or_workload_is_not_compared(tmp_path, field, word):
    synthetic.build(tmp_path, plan())
    one = rewrite(file_of(tmp_path, 1), lambda line: line | (
        {field: "f" * 12} if line["kind"] == "measurement" else {}))  # fmt: skip
    result = told(tmp_path, one)
    assert (result.exit_code, verdicts(result)) == (3, {"incomparable"})
    assert all(row.reason == word for row in result.devices[0].rows)


def test_another_dtype_is_another_series(tmp_path):
    synthetic.build(tmp_path, plan())

    def change(line):
        if "case" in line:
            line["case"]["workload"]["dtype"] = "bfloat16"
        return line

    result = told(tmp_path, rewrite(file_of(tmp_path, 1), change))
    assert (result.exit_code, verdicts(result)) == (3, {"new", "missing"})


def test_another_model_of_the_device_is_not_compared(tmp_path):
    synthetic.build(tmp_path, plan(effects={PACKED: 1.5}))
    one = rewrite(file_of(tmp_path, 1), in_run("device", multiprocessors=66, mig=True))
    result = told(tmp_path, one)
    assert (result.exit_code, verdicts(result)) == (3, {"incomparable"})
    assert "multiprocessors 132 to 66, mig False to True" in notes_of(result.devices[0])[-2]


def test_runs_of_two_devices_have_nothing_to_compare(tmp_path):
    one, other = file_of(tmp_path, 1, "a", synthetic.H100), file_of(tmp_path, 0, "b")
    code, message = error_of(tmp_path, one, other)
    assert code == 3 and "was not measured on nvidia-h100" in message


def test_devices_are_families_of_their_own(tmp_path):
    cards = (synthetic.H100, synthetic.H200)
    synthetic.build(tmp_path, plan(cards=cards, effects={PACKED: 1.05}))
    assert [one.table.device for one in told(tmp_path).devices] == ["nvidia-h100", "nvidia-h200"]
    (one,) = told(tmp_path, device="nvidia-h100").devices
    assert one.table.device == "nvidia-h100"
    assert error_of(tmp_path, device="nvidia-h300")[0] == 64


def test_ops_that_the_candidate_did_not_measure_are_named(tmp_path):
    both = ("rms_norm", "sinkhorn")
    synthetic.build(tmp_path, plan(ops=both))
    result = told(tmp_path, file_of(tmp_path, 1), plan().shas()[0])
    assert result.devices[0].left_out == ("rms_norm",)
    assert {row.key.op for row in result.devices[0].rows} == {"sinkhorn"}


def test_nothing_in_common_is_not_comparable(tmp_path):
    one, other = file_of(tmp_path, 1, "a"), file_of(tmp_path, 0, "b", ops=("rms_norm",))
    result = told(tmp_path, one, other)
    assert (result.exit_code, verdicts(result)) == (3, {"new"})


def test_new_and_missing_series_are_listed(tmp_path):
    synthetic.build(tmp_path, plan())

    def change(line):
        case = line.get("case", {})
        if case.get("implementation") == "torch":
            return None
        if case.get("implementation") == "triton-packed":
            case["implementation"] = "triton-next"
        return line

    result = told(tmp_path, rewrite(file_of(tmp_path, 1), change))
    rest = dict(rest_of(result.devices[0]))
    assert rest["4 missing: in the baseline and not here"] == [
        "sinkhorn torch: 2 series", "sinkhorn triton-packed: 2 series"
    ]  # fmt: skip
    assert rest["2 new: not in the baseline"] == ["sinkhorn triton-next: 2 series"]
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("status", "code"), [("incorrect", 4), ("error", 2), ("oom", 2), ("timeout", 2)]
)
def test_failure_of_what_had_a_time_is_broken(tmp_path, status, code):
    synthetic.build(tmp_path, plan())
    result = told(tmp_path, rewrite(file_of(tmp_path, 1), failed(status)))
    assert (result.exit_code, verdicts(result)) == (code, {"broken", "unchanged"})
    assert sections_of(result.devices[0])[0].why.endswith(f"{status}: as planted")


@pytest.mark.parametrize("status", ["skipped", "unavailable"])
def test_what_was_not_tried_is_missing_and_not_broken(tmp_path, status):
    synthetic.build(tmp_path, plan())
    result = told(tmp_path, rewrite(file_of(tmp_path, 1), failed(status)))
    assert (result.exit_code, verdicts(result)) == (0, {"missing", "unchanged"})


def test_wrong_result_counts_whatever_the_toolchain(tmp_path):
    synthetic.build(tmp_path, plan())
    one = file_of(tmp_path, 1, versions={1: {"triton": "3.9.0"}})
    result = told(tmp_path, rewrite(one, failed("incorrect")))
    assert (result.exit_code, verdicts(result)) == (4, {"broken", "incomparable"})
    assert "triton 3.6.0 to 3.9.0" in sections_of(result.devices[0])[0].why


def test_wrong_result_of_one_run_outweighs_another_run_of_its_commit(tmp_path):
    synthetic.build(tmp_path, plan())
    rewrite(file_of(tmp_path / "runs", 1), failed("incorrect"))
    assert told(tmp_path).exit_code == 4


def test_wrong_and_slow_is_wrong(tmp_path):
    synthetic.build(tmp_path, plan())
    one = file_of(tmp_path, 1, effects={(1, "sinkhorn", "triton-global"): 1.1})
    result = told(tmp_path, rewrite(one, failed("incorrect")))
    assert result.exit_code == 4 and {"broken", "regressed"} <= verdicts(result)


def test_accepted_change_does_not_fail(tmp_path):
    synthetic.build(tmp_path, plan(effects={PACKED: 1.05}))
    entry = "- {device: nvidia-h200, op: sinkhorn, commit: '%s', reason: exact division}\n"
    (tmp_path / "acknowledged.yml").write_text(entry % plan().shas()[1][:12])
    assert told(tmp_path).exit_code == 0
    result = told(tmp_path, file_of(tmp_path, 1, effects={PACKED: 1.05}), plan().shas()[0])
    assert result.exit_code == 0
    (section,) = sections_of(result.devices[0])
    assert section.verdict == "regressed (accepted)"
    assert section.why.endswith("Accepted: exact division")


def test_run_that_is_in_the_data_counts_once(tmp_path):
    first, second = synthetic.build(tmp_path, plan())
    result = told(tmp_path, second, first)
    rows = result.devices[0].rows
    assert result.problems == ()
    counted = {(r.judgement.comparison.n_before, r.judgement.comparison.n_after) for r in rows}
    assert counted == {(6, 6)}
    assert told(tmp_path, second).devices[0].before.commit == plan().shas()[0]


def test_run_is_told_apart_from_other_runs_of_its_commit(tmp_path):
    synthetic.build(tmp_path, plan())
    one = file_of(tmp_path / "runs", 1, effects={PACKED: 1.05})
    assert "regressed" in verdicts(told(tmp_path, one, plan().shas()[1]))
    assert told(tmp_path, one).devices[0].table.before.sha == plan().shas()[0]


def test_working_tree_is_held_against_its_own_commit(tmp_path):
    synthetic.build(tmp_path, plan())
    one = file_of(tmp_path, 1, dirty=frozenset({1}), effects={PACKED: 1.05})
    result = told(tmp_path, one)
    assert result.devices[0].table.before.sha == plan().shas()[1]
    assert result.exit_code == 2


def test_run_without_a_commit_is_held_against_the_newest(tmp_path):
    synthetic.build(tmp_path, plan())
    one = rewrite(file_of(tmp_path, 0), in_run("source", commit=None))
    assert told(tmp_path, one).devices[0].table.before.sha == plan().shas()[1]


def test_named_baseline_is_not_filled_up_from_older_commits(tmp_path):
    shas = plan(commits=3).shas()
    paths = synthetic.build(tmp_path, plan(commits=3))
    rewrite(paths[1], lambda line: line if line.get("case", {}).get("timer") != "call" else None)
    timers = {
        name: {row.key.timer for row in told(tmp_path, shas[2], name).devices[0].judged}
        for name in ("previous", shas[1])
    }
    assert timers == {"previous": {"graph", "call"}, shas[1]: {"graph"}}


def test_first_commit_has_nothing_before_it(tmp_path):
    synthetic.build(tmp_path, plan())
    code, message = error_of(tmp_path, plan().shas()[0])
    assert code == 3 and "name a baseline" in message


def test_two_names_of_the_same_runs_are_refused(tmp_path):
    paths = synthetic.build(tmp_path, plan())
    sha = plan().shas()[1]
    assert error_of(tmp_path, sha, sha[:9])[0] == 1
    assert error_of(tmp_path, paths[0], paths[0])[0] == 1


@pytest.fixture
def repository(tmp_path):
    """Three commits, a tag on the second, data of all three in an order that time does not have."""

    def git(*words):
        made = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")}  # fmt: skip
        command = ["git", "-c", "commit.gpgsign=false", "-C", str(tmp_path), *words]
        done = subprocess.run(command, env=os.environ | made, capture_output=True, check=True)
        return done.stdout.decode().strip()

    git("init", "-q", "-b", "main")
    shas = []
    for number in range(3):
        git("commit", "-q", "--allow-empty", "-m", f"Change {number}")
        shas.append(git("rev-parse", "HEAD"))
    git("tag", "-a", "v1.0", "-m", "Release", shas[1])
    synthetic.build(tmp_path, plan(commits=list(reversed(shas)), replicates=2))
    return tmp_path, shas, git


def test_previous_is_the_first_parent_and_not_the_run_before(repository):
    data, shas, _ = repository
    assert told(data, shas[2]).devices[0].table.before.sha == shas[1]


@pytest.mark.parametrize("name", ["v1.0", "release", "main~1", "HEAD^"])
def test_a_side_is_anything_that_git_can_name(repository, name):
    data, shas, git = repository
    git("branch", "release", shas[1])
    assert told(data, "main", name).devices[0].table.before.sha == shas[1]


def test_commit_without_data_is_not_comparable_and_names_what_is(repository):
    data, shas, git = repository
    git("commit", "-q", "--allow-empty", "-m", "Not measured")
    code, message = error_of(data, shas[2], "main")
    assert code == 3 and "has no run" in message
    assert ", ".join(sha[:8] for sha in shas) in message


def test_beginning_of_a_hash_is_enough_without_git(tmp_path):
    synthetic.build(tmp_path, plan(commits=["abcd1" + "0" * 35, "abcd2" + "0" * 35]))
    assert told(tmp_path, "abcd2", "abcd1").exit_code == 0
    code, message = error_of(tmp_path, "abcd")
    assert code == 1 and "2 measured commits begin so" in message
    assert error_of(tmp_path, "abc")[0] == 1


NAMES = (
    "nosuch",
    "",
    "-1",
    "--help",
    "runs/nosuch.jsonl",
    "a" * 5000,
    "nul\0",
    "../",
    "HEAD^{tree}",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_typo_never_looks_like_a_regression(tmp_path, name):
    synthetic.build(tmp_path, plan(replicates=1, sweep=1))
    sha = plan().shas()[1]
    request = Request(sha, name, tmp_path, ROOT)
    for one in (request, replace(request, candidate=name, baseline=sha)):
        with pytest.raises(CompareError) as caught:
            compare(one)
        assert caught.value.code == 1


@pytest.mark.parametrize(("content", "word"), [
    (b"", "the file is empty"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    (b'{"kind":"run","schema_version":99}\n', "update this program"),
    (b"\xff\xfe\n", "not UTF-8"),
    (b'{"cases":[]}\n', "run line must be"),
])  # fmt: skip
def test_file_that_is_no_run_is_an_error_with_its_place(tmp_path, content, word):
    synthetic.build(tmp_path, plan(replicates=1, sweep=1))
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(content)
    code, message = error_of(tmp_path, bad)
    assert code == 1 and message.startswith(f"{bad}:1:") and word in message


def test_run_without_measurements_is_an_error(tmp_path):
    synthetic.build(tmp_path, plan(replicates=1, sweep=1))
    one = rewrite(file_of(tmp_path, 1), lambda line: line if "case" not in line else None)
    code, message = error_of(tmp_path, one)
    assert code == 1 and "holds no measurement" in message


def test_torn_file_is_compared_as_far_as_it_goes(tmp_path):
    synthetic.build(tmp_path, plan())
    one = file_of(tmp_path, 1, effects={PACKED: 1.05})
    one.write_bytes(one.read_bytes()[:-200])
    result = told(tmp_path, one)
    assert result.exit_code == 2
    assert any("not complete" in note for note in notes_of(result.devices[0]))
    assert [problem.file for problem in result.problems] == [str(one)]


def test_what_differs_around_the_kernels_is_said_first(tmp_path):
    result = built(tmp_path, versions={1: {"liger-kernel": "0.8.5"}})
    assert "environment: liger-kernel none -> 0.8.5" in notes_of(result.devices[0])
    one = printed(result).splitlines()
    assert one[3].strip().startswith("environment: ")


def test_another_card_is_told_with_what_it_alone_may_move(tmp_path):
    cards = {0: "aaaaaaaaaaaa", 1: "bbbbbbbbbbbb"}
    result = built(tmp_path, uuids=cards, spread=0.03)
    assert result.exit_code == 0
    assert any(
        note.startswith("another card: sinkhorn graph") for note in notes_of(result.devices[0])
    )


def printed(result, **options):
    stream = io.StringIO()
    show(result, Console(file=stream, width=160, force_terminal=True, highlight=False), **options)
    return stream.getvalue()


HOSTILE = (
    "[red]x[/red] \x1b]0;owned\x07\x1b[2J <img src=x onerror=alert(1)> | `a` *b* @all #1 \u202e"
)


@pytest.fixture
def hostile(tmp_path):
    result = built(tmp_path, effects={PACKED: 1.2}, subjects={0: HOSTILE, 1: HOSTILE})

    def change(line):
        if line.get("case", {}).get("implementation") == "triton-packed":
            line["case"]["implementation"] = HOSTILE
        return line

    for path in sorted(tmp_path.rglob("*.jsonl")):
        rewrite(path, change)
    result = told(tmp_path)
    assert result.exit_code == 2
    return result


def test_hostile_names_move_no_cursor_and_mean_no_markup(hostile):
    text = printed(hostile, whole=True)
    assert "[red]x[/red]" in text and "\x1b]0" not in text and "\x1b[2J" not in text
    assert "\x07" not in text and "\u202e" not in text


def test_hostile_names_stay_text_in_markdown(hostile):
    text = markdown(hostile)
    assert "&lt;img" not in text and "<img" not in text and "&#60;img" in text
    assert "[red]" not in text and "@all" not in text and "\x1b" not in text
    assert "<summary>regressed: sinkhorn &#91;red&#93;x" in text
    rows = [line for line in text.splitlines() if line.startswith(("| graph", "| call"))]
    assert len(rows) == 2 and all(line.count("|") == 6 for line in rows)


def test_json_holds_every_row_and_no_nan(hostile):
    value = json.loads(as_json(hostile), parse_constant=pytest.fail)
    rows = value["devices"][0]["rows"]
    assert value["exit_code"] == 2 and len(rows) == 10
    assert sum(row["fails"] for row in rows) == 2
    assert HOSTILE in {row["implementation"] for row in rows}


def test_recorded_h200_runs_show_a_faster_rms_norm_and_no_regression():
    result = compare(Request("d24c16d", "9258b91", ROOT / "data", ROOT))
    (one,) = result.devices
    faster = [row.key for row in one.rows if row.verdict == "improved"]
    assert ("rms_norm", "triton") in {(key.op, key.implementation) for key in faster}
    assert all(key.implementation.startswith("triton") for key in faster)
    assert not {"regressed", "broken"} & verdicts(result) and result.exit_code == 0


def test_recorded_h200_runs_the_other_way_round_show_a_slower_rms_norm():
    result = compare(Request("9258b91", "d24c16d", ROOT / "data", ROOT))
    slower = {row.key.implementation for row in result.devices[0].failing}
    assert slower == {"triton"} and result.exit_code == 2


WITHOUT_TORCH = """
import runpy, sys

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Blocked())
sys.argv[1:] = {!r}
runpy.run_module("collector", run_name="__main__")
"""


def command(*arguments):
    code = WITHOUT_TORCH.format(["compare", *map(str, arguments)])
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_command_ends_with_the_verdict_and_writes_what_was_asked(tmp_path):
    data = tmp_path / "data"
    synthetic.build(data, plan(effects={PACKED: 1.2}))
    files = ("--json", tmp_path / "c.json", "--markdown", tmp_path / "c.md")
    done = command(plan().shas()[1][:8], "--data", data, *files)
    assert done.returncode == 2 and not done.stderr
    assert done.stdout.splitlines()[-1] == "Worse: 2 slower of 10 compared series."
    assert json.loads((tmp_path / "c.json").read_text())["exit_code"] == 2
    assert (tmp_path / "c.md").read_text().startswith("**Worse: 2 slower")


def test_command_takes_a_baseline_file_and_a_limit(tmp_path):
    before, after = synthetic.build(tmp_path / "elsewhere", plan(effects={PACKED: 1.2}))
    limit = ("--max-regression-percent", "10")
    done = command(after, "--baseline", before, *limit, "--data", tmp_path / "none")
    assert done.returncode == 2 and not done.stderr


@pytest.mark.parametrize(("arguments", "code"), [
    ([], 64), (["a", "--jsn", "x"], 64), (["a", "b", "--baseline", "c"], 64),
    (["a", "--max-regression-percent", "inf"], 64),
    (["d24c16d", "--op", "sinkhron"], 64), (["d24c16d", ""], 1),
    (["d24c16d", "--json", "/nowhere/c.json"], 1), (["85eb50d"], 3),
])  # fmt: skip
def test_every_other_end_has_its_own_code_and_a_message(cli, arguments, code):
    done = cli("compare", *arguments)
    assert done.returncode == code and done.stderr and not done.stdout
    assert "Traceback" not in done.stderr
