import json
import re
from dataclasses import replace

import pytest
import synthetic

from collector import compare_command, device
from collector.compare import Request, compare
from collector.compare_report import as_json, markdown
from collector.compare_sides import CompareError
from collector.compare_words import conclusion, sections_of
from collector.confirm import Here, confirm
from collector.plan import plan as planned
from collector.record import Device, Source
from kernels.registry import load_ops

PACKED, GLOBAL = (1, "sinkhorn", "triton-packed"), (1, "sinkhorn", "triton-global")
SLOWER = {"effects": {PACKED: 1.05, GLOBAL: 1.05}}


def plan(**changes):
    small = {"ops": ("sinkhorn",), "sweep": 1, "caches": ("cold",), "failures": False,
             "samples": 5, "noise": 5e-4, "commits": 2, "replicates": 6}  # fmt: skip
    return synthetic.Plan(**(small | changes))


SHA = plan().shas()[1]
H200 = Device.model_validate(synthetic.device(synthetic.H200, synthetic.FIRST_UUID))


def here(commit=SHA, dirty=False, found=H200):
    return Here(Source(commit=commit, dirty=dirty, parents=[]), lambda: found)


def fresh(data, cases, change=lambda line: line, **changes):
    """Write a later run of the second commit that holds the named cases alone."""
    run, *rest = synthetic.run_records(plan(seed=9, commits=plan().shas(), **changes),
                                       synthetic.H200, 1)  # fmt: skip
    kept = [line for line in rest if line.kind != "measurement" or line.case in cases]
    started = run.model_copy(update={"run_id": "f" * 16, "started_at": "2026-02-01T00:00:00Z"})
    return synthetic.write(data, [started, *map(change, kept)])


def looked(data, *, where=None, request=None, change=lambda line: line, again=None, **first):
    """Compare, then confirm against a fresh run with the effects `again`."""
    synthetic.build(data, plan(**(first or SLOWER)))
    request = request or Request(SHA, data=data, repo=data)
    asked = []

    def measure(options, cases):
        asked.append((options, cases))
        return fresh(data, cases, change, effects=again or {}, replicates=options.replicates)

    return confirm(compare(request), request, where or here(), measure, compare), asked


def reasons_of(result):
    """Return why, row by row."""
    sections = sections_of(result.devices[0])
    return [f"{section.why} {line.why}" for section in sections for line in section.lines]


def test_what_is_slower_twice_is_confirmed_and_fails(tmp_path):
    result, _ = looked(tmp_path, again=SLOWER["effects"])
    assert result.exit_code == 2
    assert conclusion(result) == "Worse: 4 slower of 10 compared series; 4 confirmed."
    section = sections_of(result.devices[0])[0]
    assert section.verdict == "regressed (confirmed)"
    reasons = reasons_of(result)
    assert len(reasons) == 4
    for why in reasons:
        assert float(re.search(r"Confirmed: \+(.*) % with 6 fresh replicates", why)[1]) == (
            pytest.approx(5, abs=0.5)
        )


def test_what_was_noise_is_told_as_not_seen_again_and_is_fine(tmp_path):
    result, _ = looked(tmp_path)
    assert result.exit_code == 0 and not result.devices[0].failing
    assert {s.verdict for s in sections_of(result.devices[0])} == {"regressed (not seen again)"}
    assert conclusion(result).startswith("No regression in any of 10 compared series; 4 not seen")
    assert "not seen again" in markdown(result)


def test_each_suspect_is_confirmed_by_itself(tmp_path):
    result, _ = looked(tmp_path, again={PACKED: 1.05})
    assert {row.key.implementation for row in result.devices[0].failing} == {"triton-packed"}
    rows = json.loads(as_json(result))["devices"][0]["rows"]
    told = {row["implementation"]: row for row in rows if row["confirmation"]}
    assert told["triton-packed"]["fails"] and not told["triton-global"]["fails"]
    packed, other = (told[f"triton-{n}"]["confirmation"] for n in ("packed", "global"))
    assert packed["outcome"] == "confirmed" and other["outcome"] == "not seen again"
    assert packed["statistics"]["change_percent"] == pytest.approx(5, abs=0.5)
    assert "ffffffff" in packed["after_record"]


def test_the_suspects_and_nothing_else_are_asked_for(tmp_path):
    result, asked = looked(tmp_path)
    ((options, cases),) = asked
    suspects = {row.key for row in result.devices[0].rows if row.verdict == "regressed"}
    assert len(cases) == len(suspects) == 4
    assert {(c.implementation, c.timer) for c in cases} == {
        (key.implementation, key.timer) for key in suspects
    }
    assert (options.replicates, options.purpose, options.output) == (6, "measure", tmp_path)


@pytest.mark.parametrize(("before", "asked_for"), [(2, 5), (7, 7)])
def test_as_many_replicates_as_the_candidate_has_and_at_least_five(tmp_path, before, asked_for):
    _, asked = looked(tmp_path, replicates=before, effects={PACKED: 1.3}, noise=1e-4)
    assert [options.replicates for options, _ in asked] == [asked_for]


def test_the_options_select_every_recorded_suspect(tmp_path):
    """The real catalogue: what a comparison names is what a plan of this tree holds."""
    result = compare(Request("d24c16d", "9258b91"))
    keys = [row.key for row in result.devices[0].judged if row.key.op == "rms_norm"]
    from collector.confirm import case_of, options_for

    rows = tuple(row for row in result.devices[0].judged if row.key in keys)
    options = options_for(rows, Request("d24c16d"))
    jobs = planned(load_ops(), options, "cuda")
    held = {job.case(series).model_dump_json() for job in jobs for series in job.series}
    assert {case_of(key).model_dump_json() for key in keys} <= held


def test_nothing_is_measured_where_nothing_is_slower(tmp_path):
    result, asked = looked(tmp_path, effects={}, where=here(commit=None))
    assert result.exit_code == 0 and asked == []


def test_a_wrong_result_of_the_second_look_is_told_as_one(tmp_path):
    def wrong(line):
        if line.kind != "measurement" or line.case.implementation != "triton-packed":
            return line
        return line.model_copy(update={"status": "incorrect", "latency": None, "reason": "planted"})

    result, _ = looked(tmp_path, change=wrong)
    assert result.exit_code == 4
    assert any(re.search("Confirmed: incorrect: .*planted", why) for why in reasons_of(result))


def test_what_could_not_be_measured_again_still_fails(tmp_path):
    def absent(line):
        if line.kind != "measurement":
            return line
        changes = {"status": "unavailable", "latency": None, "reason": "no package"}
        return line.model_copy(update=changes)

    result, _ = looked(tmp_path, change=absent)
    assert result.exit_code == 2
    assert "4 not measured again" in conclusion(result)


def test_the_second_look_is_a_run_of_its_own(tmp_path):
    looked(tmp_path)
    assert len(list((tmp_path / "runs").rglob("*.jsonl"))) == 3


@pytest.mark.parametrize(("where", "word"), [
    (here(commit="b" * 40), "checked out here is bbbbbbbb: `git checkout"),
    (here(commit=None, dirty=None), "checked out here is no commit that git knows"),
    (here(dirty=True), "files here differ from their commit"),
    (here(dirty=None), "git cannot tell whether files here differ"),
    (here(found=H200.model_copy(update={"slug": "nvidia-h100"})), "this machine has nvidia-h100"),
    (here(found=H200.model_copy(update={"multiprocessors": 66})), "multiprocessors 132 to 66"),
])  # fmt: skip
def test_another_place_is_refused_before_anything_is_measured(tmp_path, where, word):
    with pytest.raises(CompareError) as caught:
        looked(tmp_path, where=where)
    assert caught.value.code == 1 and word in str(caught.value)
    assert len(list((tmp_path / "runs").rglob("*.jsonl"))) == 2


def test_a_candidate_that_differed_from_its_commit_is_refused(tmp_path):
    synthetic.build(tmp_path, plan())
    run, *rest = synthetic.run_records(
        plan(dirty=frozenset({1}), **SLOWER), synthetic.H200, 1
    )  # fmt: skip
    path = synthetic.write(
        tmp_path / "one", [run.model_copy(update={"run_id": "d" * 16}), *rest]
    )  # fmt: skip
    request = Request(str(path), data=tmp_path, repo=tmp_path)
    with pytest.raises(CompareError, match="measured files of no commit"):
        confirm(compare(request), request, here(), lambda *_: path, compare)


def test_the_command_says_why_it_cannot_confirm(cli, tmp_path, monkeypatch):
    synthetic.build(tmp_path, plan(**SLOWER))
    source = Source(commit=SHA, dirty=False, parents=[])
    monkeypatch.setattr(compare_command, "probe_source", lambda commit: source)
    monkeypatch.setattr(compare_command, "probe", lambda: {"device": device.cpu_device()})
    done = cli("compare", SHA[:8], "--data", tmp_path, "--confirm")
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith("--confirm: the suspects were measured on nvidia-h200")


def test_request_of_a_run_file_is_confirmed_too(tmp_path):
    first, second = synthetic.build(tmp_path, plan(**SLOWER))
    request = replace(Request(str(second), str(first)), data=tmp_path, repo=tmp_path)
    result, asked = looked(tmp_path, request=request, again=SLOWER["effects"])
    assert result.exit_code == 2 and len(asked) == 1
