import json
import random
import statistics
from pathlib import Path

import pytest
import synthetic

from collector import record as r
from collector.history.digest import read_digests
from collector.history.load import load_history, make_history

HISTORY = Path(__file__).parent / "history"
SMALL = {"ops": ("sinkhorn",), "sweep": 2, "failures": False, "samples": 9}


@pytest.fixture
def data(tmp_path):
    synthetic.build(tmp_path, commits=2, replicates=2, **SMALL)
    return tmp_path


def files_of(data):
    return sorted(data.rglob("*.jsonl"))


def rewritten(path, change):
    lines = path.read_text().splitlines()
    path.write_text("\n".join(change(lines)) + "\n")


def edited(line, **values):
    return json.dumps(json.loads(line) | values)


def index_of(lines, kind):
    return next(i for i, line in enumerate(lines) if f'"kind":"{kind}"' in line)


def only_problem(data):
    (problem,) = load_history(data).problems
    return problem


def test_no_data_is_an_empty_history(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        history = load_history(folder)
        assert (history.records, history.series, history.problems) == (0, {}, ())


def test_every_line_is_counted_and_every_case_has_a_point(data):
    history = load_history(data)
    lines = sum(len(path.read_text().splitlines()) for path in files_of(data))
    assert (history.records, history.problems) == (lines, ())
    cases = {
        (m["case"]["implementation"], str(m["case"]["workload"]), m["case"]["timer"],
         m["case"]["cache"])
        for path in files_of(data) for m in map(json.loads, path.read_text().splitlines())
        if m["kind"] == "measurement"
    }  # fmt: skip
    assert len(history.series) == len(cases)
    assert all(len(points) == 2 for points in history.series.values())


def test_shuffled_files_give_the_same_history(data, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    paths = files_of(data)
    random.Random(1).shuffle(paths)
    for number, path in enumerate(paths):
        target = other / "runs" / f"{number}" / path.name
        target.parent.mkdir(parents=True)
        target.write_bytes(path.read_bytes())
    a, b = load_history(data), load_history(other)
    assert (a.commits, list(a.series), list(a.runs)) == (b.commits, list(b.series), list(b.runs))
    times = [[p.medians_ns for p in points] for points in a.series.values()]
    assert times == [[p.medians_ns for p in points] for points in b.series.values()]


def test_lines_of_a_run_in_another_order_give_the_same_times(data):
    before = load_history(data)
    rng = random.Random(3)
    for path in files_of(data):
        rewritten(
            path, lambda lines: [lines[0], *rng.sample(lines[1:-1], len(lines) - 2), lines[-1]]
        )
    after = load_history(data)
    for key, points in before.series.items():
        assert [p.medians_ns for p in after.series[key]] == [p.medians_ns for p in points]


def test_sizes_written_in_another_order_are_the_same_series(data):
    before = load_history(data)

    def turned(lines):
        for line in lines:
            value = json.loads(line)
            if value["kind"] == "measurement":
                sizes = value["case"]["workload"]["sizes"]
                value["case"]["workload"]["sizes"] = dict(reversed(sizes.items()))
            yield json.dumps(value)

    rewritten(files_of(data)[1], turned)
    assert list(load_history(data).series) == list(before.series)


def test_replicates_merge_by_geometric_mean_and_pooled_samples(data):
    history = load_history(data)
    points = next(iter(history.series.values()))
    file, line = points[0].location.split(":")
    lines = [r.parse(text) for text in (data / file).read_text().splitlines()]
    case = lines[int(line) - 1].case
    same = [one.latency for one in lines if one.kind == "measurement" and one.case == case]
    pooled = sorted(s / one.calls for one in same for s in r.decode_samples(one.encoded))
    assert points[0].median_ns == pytest.approx(
        statistics.geometric_mean(one.median_ns for one in same)
    )
    cuts = statistics.quantiles(pooled, n=4, method="inclusive")
    assert (points[0].q25_ns, points[0].q75_ns) == pytest.approx((cuts[0], cuts[2]))
    assert (points[0].min_ns, points[0].samples) == (pytest.approx(pooled[0]), len(pooled))


def test_damaged_samples_leave_the_summary(data):
    def damaged(lines):
        for line in lines:
            value = json.loads(line)
            if value.get("latency"):
                value["latency"]["encoded"] = "AAAA"
            yield json.dumps(value)

    for path in files_of(data):
        rewritten(path, damaged)
    history = load_history(data)
    assert all(p.median_ns and p.q99_ns for points in history.series.values() for p in points)


def test_details_are_filled_from_the_first_line_of_the_workload(data):
    text = files_of(data)[0].read_text()
    assert text.count('"cost"') < text.count('"measurement"') / 2
    points = [p for row in load_history(data).series.values() for p in row]
    assert all(point.cost and point.correctness and point.peak_memory_bytes for point in points)
    sizes = {
        key.size("batch"): row[0].cost.minimal_bytes
        for key, row in load_history(data).series.items()
    }
    assert sizes == {1: 128, 4: 512}


@pytest.mark.parametrize("statuses, expected", [
    (("passed", "oom"), "passed"),
    (("passed", "incorrect"), "incorrect"),
    (("timeout", "oom"), "oom"),
    (("incorrect", "error"), "incorrect"),
])  # fmt: skip
def test_one_wrong_replicate_outweighs_the_right_ones(data, statuses, expected):
    def failing(lines):
        for line in lines:
            value = json.loads(line)
            if value["kind"] == "measurement":
                status = statuses[value["replicate"]]
                if status != "passed":
                    value = {k: v for k, v in value.items() if k != "latency"}
                    value |= {"status": status, "reason": "planted"}
            yield json.dumps(value)

    for path in files_of(data):
        rewritten(path, failing)
    points = [p for row in load_history(data).series.values() for p in row]
    assert {p.status for p in points} == {expected}
    assert all((p.median_ns is not None) == (expected == "passed") for p in points)
    assert all("planted" in p.reason for p in points)
    assert all(("partly-failed" in p.flags) == (expected == "passed") for p in points)


@pytest.mark.parametrize("fault, field, words", [
    (lambda m: m | {"extra": 1}, "extra", "unknown key"),
    (lambda m: m | {"latency": m["latency"] | {"median_ns": 0}}, "latency.median_ns", "greater"),
    (lambda m: m | {"latency": m["latency"] | {"q25_ns": "1 us"}}, "latency.q25_ns", "number"),
    (lambda m: m | {"latency": m["latency"] | {"q99_ns": 1e-3}}, "latency", "out of order"),
    (lambda m: m | {"status": "fine"}, "status", "passed"),
    (lambda m: m | {"status": "oom"}, "", "exactly when"),
    (lambda m: {k: v for k, v in m.items() if k != "case"}, "case", "required"),
    (lambda m: m | {"kind": "note"}, "kind", "none of"),
    (lambda m: [m], "", "not a record"),
])  # fmt: skip
def test_bad_line_is_named_and_the_rest_stays(data, fault, field, words):
    path, before = files_of(data)[0], load_history(data)
    at = index_of(path.read_text().splitlines(), "measurement")

    def change(lines):
        return [*lines[:at], json.dumps(fault(json.loads(lines[at]))), *lines[at + 1 :]]

    rewritten(path, change)
    problem = only_problem(data)
    assert (problem.file, problem.line) == (path.relative_to(data).as_posix(), at + 1)
    assert problem.field == field
    assert words in problem.message
    assert load_history(data).records == before.records - 1


def test_nan_is_refused_with_its_place(data):
    path = files_of(data)[0]
    at = index_of(path.read_text().splitlines(), "measurement")

    def change(lines):
        value = json.loads(lines[at])
        value["latency"]["q99_ns"] = float("nan")
        return [*lines[:at], json.dumps(value), *lines[at + 1 :]]

    rewritten(path, change)
    problem = only_problem(data)
    assert (problem.line, "NaN" in problem.message) == (at + 1, True)


def test_torn_last_line_costs_only_itself(data):
    path, before = files_of(data)[0], load_history(data)
    path.write_bytes(path.read_bytes()[:-20])
    problem = only_problem(data)
    assert "cut off" in problem.message
    history = load_history(data)
    assert history.records == before.records - 1
    assert [run.end is None for run in history.runs.values()].count(True) == 1


@pytest.mark.parametrize("content, words", [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
    (b'{"schema_version": 99, "kind": "run"}\n', "newer"),
    (b'{"benchmarks": [{"name": "a", "value": 1}]}\n', "run line"),
    (b"", "empty"),
    (b"\n\n", "empty"),
    (b"\xff\xfe\x00\n", "UTF-8"),
    (b"name,value\na,1\n", "JSON"),
    (b"[1, 2]\n", "not a record"),
    (b"null", ""),
])  # fmt: skip
def test_foreign_file_is_one_problem_and_the_rest_stays(data, content, words):
    before = load_history(data)
    (data / "runs" / "foreign.jsonl").write_bytes(content)
    problem = only_problem(data)
    assert (problem.file, problem.line) == ("runs/foreign.jsonl", 1)
    assert words in problem.message
    assert load_history(data).records == before.records


def test_file_without_its_run_line_is_left_out(data):
    path, before = files_of(data)[0], load_history(data)
    rewritten(path, lambda lines: lines[1:])
    assert only_problem(data).field == "kind"
    assert len(load_history(data).runs) == len(before.runs) - 1


def test_second_file_of_one_run_counts_once(data):
    path, before = files_of(data)[0], load_history(data)
    copy = path.with_name("zz-copy.jsonl")
    copy.write_bytes(path.read_bytes())
    problem = only_problem(data)
    assert (problem.file, problem.field) == (copy.relative_to(data).as_posix(), "run_id")
    assert path.name in problem.message
    after = load_history(data)
    assert (after.records, after.series) == (before.records, before.series)


def test_case_measured_twice_in_one_replicate_counts_once(data):
    path, before = files_of(data)[0], load_history(data)
    at = index_of(path.read_text().splitlines(), "measurement")
    rewritten(path, lambda lines: [*lines[:-1], lines[at], lines[-1]])
    assert "already measured" in only_problem(data).message
    assert load_history(data).series == before.series


def test_file_of_nothing_but_faults_does_not_flood_the_site(data):
    path = files_of(data)[0]
    rewritten(path, lambda lines: [lines[0]] + ["{}"] * 500)
    problems = load_history(data).problems
    assert len(problems) == 21
    assert "480 more" in problems[-1].message


def test_unreadable_file_is_a_problem(data):
    (data / "runs" / "folder.jsonl").mkdir()
    assert "cannot be read" in only_problem(data).message


@pytest.mark.parametrize("moved, words", [
    (lambda lines: [*lines, lines[0]], "second run line"),
    (lambda lines: [*lines, lines[1]], "behind the end"),
])  # fmt: skip
def test_line_in_the_wrong_place_is_left_out(data, moved, words):
    path, before = files_of(data)[0], load_history(data)
    rewritten(path, moved)
    assert words in only_problem(data).message
    assert load_history(data).records == before.records


def test_run_tells_where_it_came_from(data):
    run = next(iter(load_history(data).runs.values()))
    assert (data / run.file).exists()
    assert run.command[:3] == ("python", "-m", "collector")
    assert (run.replicates, run.ops, run.end.outcome) == (2, ("sinkhorn",), "complete")


def test_frozen_record_of_version_1_is_read(tmp_path):
    target = tmp_path / "runs" / "device" / "a.jsonl"
    target.parent.mkdir(parents=True)
    target.write_bytes((HISTORY / "record.v1.jsonl").read_bytes())
    history = load_history(tmp_path)
    assert history.problems == ()
    assert history.records == len(target.read_text().splitlines())


def test_recorded_history_with_bad_lines_keeps_the_good_ones():
    history = load_history(HISTORY / "mixed")
    told = {(Path(p.file).name.split("-")[0], p.line): p.message for p in history.problems}
    assert set(told) == {("torn", 21), ("nan", 3), ("future", 1), ("pointer", 1), ("foreign", 1)}
    assert len(history.runs) == 3
    assert all(point.median_ns for row in history.series.values() for point in row)


def test_run_without_a_commit_is_kept_behind_all_commits(data):
    def nameless(lines):
        run = json.loads(lines[0])
        run["source"] |= {"commit": None, "subject": None}
        return [json.dumps(run), *lines[1:]]

    rewritten(files_of(data)[0], nameless)
    history = load_history(data)
    assert len(history.commits) == 1
    assert all(points[-1].commit is None for points in history.series.values())


def test_history_of_files_needs_no_git(data):
    assert make_history(read_digests(data), ()).series == load_history(data).series
