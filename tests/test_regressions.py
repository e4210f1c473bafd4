import json
from dataclasses import replace

import pytest
import synthetic

from collector.history.causes import environment_difference
from collector.history.load import load_history
from collector.history.sides import Index
from dashboard.regressions import (
    commit_tables,
    left_out_runs,
    series_levels,
    since_first,
)

PACKED = (1, "sinkhorn", "triton-packed")
# Two sizes of one op keep a history of ten runs under a second.
SMALL = {"ops": ("sinkhorn",), "sweep": 2, "failures": False, "samples": 9, "noise": 5e-4}


def tables(tmp_path, **changes):
    synthetic.build(tmp_path, synthetic.Plan(**(SMALL | {"replicates": 4} | changes)))
    return commit_tables(load_history(tmp_path))


def rewrite(tmp_path, run, change):
    """Pass every value of the run-th file of a device through `change`; None drops the line."""
    path = sorted(tmp_path.rglob("*.jsonl"))[run]
    values = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(value) + "\n" for value in values if value is not None))


def in_part(part, **values):
    return lambda value: value | {part: value[part] | values} if part in value else value


def in_code(**values):
    def change(value):
        kernels = value.get("codegen")
        return value | {"codegen": [k | values for k in kernels]} if kernels else value

    return change


def case(value):
    return value.get("case", {"implementation": None, "timer": None})


def of(table, implementation):
    return [row for row in table.rows if row.key.implementation == implementation]


def verdicts(rows):
    return {row.verdict for row in rows}


def kinds(rows):
    return {cause.kind for row in rows for cause in row.causes}


def test_slower_kernel_is_a_regression_of_that_kernel_alone(tmp_path):
    (table,) = tables(tmp_path, commits=2, effects={PACKED: 1.05})
    assert verdicts(of(table, "triton-packed")) == {"regressed"}
    assert verdicts(row for row in table.rows if row.key.implementation != "triton-packed") == {
        "unchanged"
    }
    for row in of(table, "triton-packed"):
        comparison = row.judgement.comparison
        assert comparison.low < 0.0488 < comparison.high  # log 1.05
        assert 0.005 <= comparison.smallest_seen < 0.03
    assert kinds(table.rows) == {"source"}


def test_faster_kernel_is_an_improvement(tmp_path):
    (table,) = tables(tmp_path, commits=2, effects={PACKED: 0.9})
    assert table.counts == {"improved": 8, "unchanged": 32}


def test_tables_go_from_each_commit_to_the_next_newest_first(tmp_path):
    found = tables(
        tmp_path, commits=3, effects={PACKED: 1.05}, cards=(synthetic.H200, synthetic.H100)
    )
    steps = [(table.device, table.before.order, table.after.order) for table in found]
    assert steps == [("nvidia-h100", 1, 2), ("nvidia-h200", 1, 2),
                     ("nvidia-h100", 0, 1), ("nvidia-h200", 0, 1)]  # fmt: skip
    assert [verdicts(of(table, "triton-packed")) for table in found] == [
        {"unchanged"}, {"unchanged"}, {"regressed"}, {"regressed"}
    ]  # fmt: skip


def test_series_of_one_device_are_one_family(tmp_path):
    (table,) = tables(tmp_path, commits=2, noise=0.01)
    judged = [row.judgement for row in table.rows]
    assert sum(one.verdict in ("regressed", "improved") for one in judged) == 0
    assert all(one.q_value >= one.comparison.p_value for one in judged)


def test_slower_machine_is_no_regression(tmp_path):
    (table,) = tables(tmp_path, commits=2, shift={1: 1.03})
    assert verdicts(table.rows) == {"unchanged"}
    moved = [drift.log_ratio for drift in table.drifts.values()]
    assert moved == pytest.approx([0.0296] * len(moved), abs=2e-3)  # log 1.03


def test_slower_memory_excuses_only_what_memory_limits(tmp_path):
    tables(tmp_path, commits=2, ops=("rms_norm",), sweep=8, timers=("graph",), caches=("cold",))

    def slower_copy(value):
        if value.get("name") == "copy" or case(value)["implementation"] == "triton":
            times = value["latency"]
            times |= {name: ns * 1.03 for name, ns in times.items() if name.endswith("_ns")}
        return value

    rewrite(tmp_path, 1, slower_copy)
    (table,) = commit_tables(load_history(tmp_path))
    rows = {(row.key.implementation, row.key.size("rows")): row.verdict for row in table.rows}
    assert rows["triton", 16384] == "unchanged"  # close to the memory roof
    assert rows["triton", 1] == "same-code"  # close to the floor, which did not move
    assert rows["torch", 16384] == "unchanged"  # 2.4 times above the memory roof


def test_slower_kernel_on_a_slower_machine_is_told_apart(tmp_path):
    (table,) = tables(tmp_path, commits=2, shift={1: 1.03}, effects={PACKED: 1.05})
    rows = of(table, "triton-packed")
    assert verdicts(rows) == {"regressed"}
    assert all(r.judgement.comparison.change == pytest.approx(0.05, abs=0.01) for r in rows)
    assert kinds(rows) == {"source", "machine"}


def test_same_machine_code_and_another_time_is_not_called_a_regression(tmp_path):
    tables(tmp_path, commits=2, effects={PACKED: 1.06})
    for run in (0, 1):
        rewrite(tmp_path, run, in_code(sass_hash="0" * 12))
    (table,) = commit_tables(load_history(tmp_path))
    graph = [row for row in of(table, "triton-packed") if row.key.timer == "graph"]
    assert verdicts(graph) == {"same-code"}
    assert kinds(graph) == {"not-kernel"}


def test_same_source_and_other_machine_code_is_the_toolchain(tmp_path):
    tables(tmp_path, commits=2, effects={PACKED: 1.06})
    for run in (0, 1):
        rewrite(tmp_path, run, in_code(source_hash="5" * 12))
    rewrite(tmp_path, 1, in_part("versions", cuda="13.1"))
    (table,) = commit_tables(load_history(tmp_path))
    texts = {cause.text for row in of(table, "triton-packed") for cause in row.causes}
    assert texts == {"The same source became other machine code (cuda 13.0 to 13.1)."}
    assert [(d.name, d.before, d.after) for d in table.differences] == [("cuda", "13.0", "13.1")]


def test_call_that_moved_without_its_device_time_is_the_host(tmp_path):
    tables(tmp_path, commits=2)

    def slow_host(value):
        if case(value)["timer"] == "call" and value["latency"]:
            value["latency"] |= {
                name: time * 1.2 for name, time in value["latency"].items() if name.endswith("_ns")
            }
        return value

    rewrite(tmp_path, 1, slow_host)
    (table,) = commit_tables(load_history(tmp_path))
    calls = [row for row in table.rows if row.key.timer == "call"]
    assert verdicts(calls) == {"regressed"}
    assert all(row.causes[0].kind == "host" for row in calls)
    assert verdicts(row for row in table.rows if row.key.timer == "graph") == {"unchanged"}


def test_time_that_follows_the_clock_is_told(tmp_path):
    tables(tmp_path, commits=2, effects={PACKED: 1.10})
    rewrite(tmp_path, 1, in_part("telemetry", sm_clock_mhz=1800))
    (table,) = commit_tables(load_history(tmp_path))
    assert "clocks" in kinds(of(table, "triton-packed"))


def test_series_that_stops_reporting_is_missing_and_a_fresh_one_new(tmp_path):
    tables(tmp_path, commits=3)
    rewrite(tmp_path, 1, lambda v: None if case(v)["implementation"] == "triton-packed" else v)
    newest, oldest = commit_tables(load_history(tmp_path))
    assert verdicts(of(oldest, "triton-packed")) == {"missing"}
    back = of(newest, "triton-packed")
    assert verdicts(back) == {"unchanged"}
    assert {row.before_commit for row in back} == {oldest.before.sha}


def test_op_that_was_not_asked_for_is_not_missing(tmp_path):
    tables(tmp_path, commits=2, ops=("sinkhorn", "rms_norm"))

    def sinkhorn_alone(value):
        if value["kind"] == "run":
            value["ops"] = [op for op in value["ops"] if op["name"] == "sinkhorn"]
        return None if case(value).get("op") == "rms_norm" else value

    rewrite(tmp_path, 1, sinkhorn_alone)
    (table,) = commit_tables(load_history(tmp_path))
    assert {row.key.op for row in table.rows} == {"sinkhorn"}
    assert "missing" not in table.counts


@pytest.mark.parametrize("status, verdict", [
    ("oom", "broken"), ("incorrect", "broken"), ("timeout", "broken"),
    ("unavailable", "missing"), ("skipped", "missing"),
])  # fmt: skip
def test_series_that_has_no_time_any_more(tmp_path, status, verdict):
    tables(tmp_path, commits=3)

    def fail(value):
        if case(value)["implementation"] == "triton-packed":
            value.pop("latency")
            value |= {"status": status, "reason": "planted"}
        return value

    rewrite(tmp_path, 1, fail)
    newest, oldest = commit_tables(load_history(tmp_path))
    assert verdicts(of(oldest, "triton-packed")) == {verdict}
    assert all("planted" in row.reason for row in of(oldest, "triton-packed"))
    assert verdicts(of(newest, "triton-packed")) == {"new"}
    assert {row.reason for row in of(newest, "triton-packed")} == {f"was {status}"}


def test_what_never_had_a_time_is_listed_as_unmeasured(tmp_path):
    (table,) = tables(tmp_path, commits=2, ops=("rms_norm",), failures=True)
    assert verdicts(of(table, "liger")) == {"unmeasured"}
    assert all("liger_kernel" in row.reason for row in of(table, "liger"))


@pytest.mark.parametrize("name, versions, reason", [
    ("triton", {1: {"triton": "3.9.0"}}, "triton 3.6.0 to 3.9.0"),
    ("torch", {1: {"torch": "2.13.0"}}, "torch 2.11.0 to 2.13.0"),
])  # fmt: skip
def test_toolchain_starts_an_epoch(tmp_path, name, versions, reason):
    (table,) = tables(tmp_path, commits=2, versions=versions, effects={PACKED: 1.5})
    assert verdicts(table.rows) == {"incomparable"}
    assert {row.reason for row in table.rows} == {reason}
    assert [difference.name for difference in table.differences] == [name]


@pytest.mark.parametrize("field, reason", [
    ("method_id", "another method"), ("workload_hash", "another workload"),
])  # fmt: skip
def test_other_method_or_workload_is_never_compared(tmp_path, field, reason):
    tables(tmp_path, commits=2)
    rewrite(tmp_path, 1, lambda v: v | {field: "e" * 12} if "case" in v else v)
    (table,) = commit_tables(load_history(tmp_path))
    assert {(row.verdict, row.reason) for row in table.rows} == {("incomparable", reason)}


def test_driver_counts_by_its_major_version(tmp_path):
    tables(tmp_path, commits=3)
    rewrite(tmp_path, 1, in_part("device", driver="580.200.00"))
    rewrite(tmp_path, 2, in_part("device", driver="590.10"))
    newest, oldest = commit_tables(load_history(tmp_path))
    assert verdicts(oldest.rows) == {"unchanged"}
    assert {row.reason for row in newest.rows} == {"driver 580 to 590"}


def test_old_commit_measured_again_by_the_new_toolchain_bridges_the_epochs(tmp_path):
    plan = synthetic.Plan(**SMALL, commits=2, replicates=4, versions={1: {"triton": "3.9.0"}})
    synthetic.build(tmp_path, plan)
    again = synthetic.run_records(
        replace(plan, versions={0: {"triton": "3.9.0"}}), synthetic.H200, 0
    )
    run, *rest = again
    later = {"run_id": "abcdef0123456789", "started_at": "2026-02-01T00:00:00Z"}
    synthetic.write(tmp_path, [run.model_copy(update=later), *rest])
    (table,) = commit_tables(load_history(tmp_path))
    assert verdicts(table.rows) == {"unchanged"}


def test_runs_of_one_commit_count_together_in_any_order(tmp_path):
    plan = synthetic.Plan(**SMALL, commits=2, replicates=2)
    synthetic.build(tmp_path, plan)
    other = replace(plan, seed=9, commits=plan.shas())
    synthetic.write(tmp_path, list(synthetic.run_records(other, synthetic.H200, 1)))
    (table,) = commit_tables(load_history(tmp_path))
    assert {row.judgement.comparison.n_after for row in table.rows} == {4}
    assert {row.judgement.comparison.n_before for row in table.rows} == {2}


def test_dirty_and_nameless_runs_stay_in_the_history_and_out_of_the_tables(tmp_path):
    synthetic.build(tmp_path, synthetic.Plan(**SMALL, commits=4, dirty=frozenset({1})))
    rewrite(tmp_path, 2, in_part("source", commit=None))
    history = load_history(tmp_path)
    (table,) = commit_tables(history)
    assert (table.before.subject, table.after.subject) == ("Change number 0", "Change number 3")
    assert len(left_out_runs(history)) == 2
    assert all(len(points) == 4 for points in history.series.values())


def test_many_replicates_give_a_noise_model(tmp_path):
    (table,) = tables(tmp_path, commits=2, replicates=6)
    assert {row.judgement.comparison.basis for row in table.rows} == {"noise-model"}


def test_single_replicates_are_inconclusive(tmp_path):
    (table,) = tables(tmp_path, commits=2, replicates=1, effects={PACKED: 1.2})
    assert verdicts(table.rows) == {"inconclusive"}


def test_slow_creep_is_seen_against_the_first_commit(tmp_path):
    effects = {(i, "sinkhorn", "triton-packed"): 1.006 for i in (1, 2, 3, 4)}
    steps = tables(tmp_path, commits=5, effects=effects)
    assert not any("regressed" in table.counts for table in steps)
    whole = since_first(load_history(tmp_path), "nvidia-h200")
    assert verdicts(of(whole, "triton-packed")) == {"regressed"}
    assert (whole.before.order, whole.after.order) == (0, 4)


def test_one_commit_has_no_table(tmp_path):
    assert tables(tmp_path, commits=1) == ()
    assert since_first(load_history(tmp_path), "nvidia-h200") is None
    assert since_first(load_history(tmp_path), "unknown") is None


def test_levels_break_at_changes_and_never_cross_an_epoch(tmp_path):
    changes = {
        "commits": 11, "replicates": 1, "sweep": 1, "caches": ("cold",),
        "effects": {(4, "sinkhorn", "triton-packed"): 1.08, (8, "sinkhorn", "triton-packed"): 1.3},
        "versions": {i: {"triton": "3.9.0"} for i in (8, 9, 10)},
    }  # fmt: skip
    synthetic.build(tmp_path, synthetic.Plan(**SMALL | changes))
    history = load_history(tmp_path)
    found = series_levels(Index(history), history.series)
    for key, epochs in found.items():
        assert [len(one.points) for one in epochs] == [8, 3]
        at = [change.index for change in epochs[0].levels.changes]
        assert at == ([4] if key.implementation == "triton-packed" else [])
        assert epochs[1].levels.changes == ()


def test_equal_environments_do_not_differ(tmp_path):
    synthetic.build(tmp_path, synthetic.Plan(**SMALL, commits=2))
    one, other = load_history(tmp_path).runs.values()
    assert environment_difference(one, other) == ()


def test_environment_that_one_side_did_not_tell_is_shown_as_none(tmp_path):
    plan = synthetic.Plan(**SMALL, commits=2, versions={1: {"liger-kernel": "0.8.5"}})
    synthetic.build(tmp_path, plan)
    one, other = load_history(tmp_path).runs.values()
    (found,) = environment_difference(one, other)
    assert (found.name, found.before, found.after) == ("liger-kernel", "none", "0.8.5")
