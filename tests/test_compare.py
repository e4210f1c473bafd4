import json
import math
from pathlib import Path

import pytest
import synthetic
from comparing import (
    EXACT,
    PACKED,
    built,
    error_of,
    failed,
    file_of,
    in_run,
    plan,
    rewrite,
    told,
    verdicts,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.compare import Request, compare, roll_ups
from collector.compare_report import as_json
from collector.compare_words import notes_of, rest_of, sections_of
from collector.history.load import load_history
from dashboard.regressions import commit_tables

ROOT = Path(__file__).parent.parent


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
    entry = "- {device: nvidia-h200, op: sinkhorn, commit: %s, reason: wanted, by: Ada, when: %s}"
    (tmp_path / "acknowledged.yml").write_text(entry % (plan().shas()[1][:12], "2026-03-01"))
    assert told(tmp_path).exit_code == 0
    result = told(tmp_path, file_of(tmp_path, 1, effects={PACKED: 1.05}), plan().shas()[0])
    assert result.exit_code == 0
    (section,) = sections_of(result.devices[0])
    assert section.verdict == "regressed (accepted)"
    assert section.why.endswith("Accepted: wanted (Ada, 2026-03-01)")


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
