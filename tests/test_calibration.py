import math
from itertools import combinations

import numpy as np
import pytest
import synthetic

from collector.history.calibration import calibration, calibrations
from collector.history.load import load_history
from collector.history.sides import Index

DEVICE = "nvidia-h200"


def plan(**changes):
    small = {"ops": ("sinkhorn",), "sweep": 2, "caches": ("cold",), "failures": False,
             "samples": 3, "noise": 5e-4, "commits": 1, "replicates": 10}  # fmt: skip
    return synthetic.Plan(**(small | changes))


def written(data, made, *, purpose="calibrate", run_id="a" * 16, slow=None, **run_changes):
    """Write the first commit's run for this purpose; `slow` changes the time of replicates."""
    run, *rest = synthetic.run_records(made, synthetic.H200, 0)
    run = run.model_copy(update={"purpose": purpose, "run_id": run_id, **run_changes})
    lines = [slowed(line, slow(line)) if slow and line.kind == "measurement" else line
             for line in rest]  # fmt: skip
    return synthetic.write(data, [run, *lines])


def slowed(line, factor):
    if factor == 1 or line.latency is None:
        return line
    times = [round(ns * factor) for ns in synthetic.r.decode_samples(line.latency.encoded)]
    latency = synthetic.summary(times, line.latency.calls)
    return line.model_copy(update={"latency": latency})


def second_half_of(implementation, factor):
    def slow(line):
        moved = line.case.implementation == implementation and line.replicate >= 5
        return factor if moved else 1

    return slow


def of(data):
    return calibration(Index(load_history(data)), DEVICE)


def test_halves_of_a_calibration_are_two_sides_of_unchanged_code(tmp_path):
    written(tmp_path, plan())
    (found,) = calibrations(Index(load_history(tmp_path)))
    (test,) = found.tests
    assert (test.before, test.after) == ("a" * 16, "a" * 16)
    assert found.comparisons == len(test.judged) == len(found.series) == 20
    assert {(one.comparison.n_before, one.comparison.n_after) for _, one in test.judged} == {(5, 5)}
    assert (found.slower, found.faster) == (0, 0)


@pytest.mark.parametrize(("factor", "alarms"), [(1.05, (4, 0)), (0.95, (0, 4))])
def test_what_changes_within_a_calibration_is_a_false_alarm(tmp_path, factor, alarms):
    written(tmp_path, plan(), slow=second_half_of("triton-packed", factor))
    found = of(tmp_path)
    assert (found.slower, found.faster) == alarms
    moved = {key.implementation for test in found.tests for key, one in test.judged
             if one.verdict != "unchanged"}  # fmt: skip
    assert moved == {"triton-packed"}


def test_two_runs_of_a_commit_are_two_sides_with_the_drift_taken_off(tmp_path):
    shas = plan().shas()
    written(tmp_path, plan(replicates=6), purpose="measure")
    again = plan(seed=5, commits=shas, replicates=6, shift={0: 1.03})
    written(tmp_path, again, purpose="measure", run_id="b" * 16)
    found = of(tmp_path)
    assert [(t.before, t.after) for t in found.tests] == [("a" * 16, "b" * 16)]
    assert (found.comparisons, found.slower, found.faster) == (20, 0, 0)


def test_two_runs_of_a_commit_that_differ_are_a_false_alarm(tmp_path):
    written(tmp_path, plan(), purpose="measure")
    slow = {(0, "sinkhorn", "triton-packed"): 1.05}
    again = plan(seed=5, commits=plan().shas(), effects=slow)
    written(tmp_path, again, purpose="measure", run_id="b" * 16)
    assert of(tmp_path).slower == 4


@pytest.mark.parametrize(
    "changes", [{"purpose": "measure"}, {"purpose": "backfill"}], ids=lambda c: c["purpose"]
)
def test_a_run_that_is_no_calibration_is_not_cut_in_halves(tmp_path, changes):
    written(tmp_path, plan(), **changes)
    assert calibrations(Index(load_history(tmp_path))) == ()


def test_three_replicates_are_too_few_for_halves(tmp_path):
    written(tmp_path, plan(replicates=3))
    assert of(tmp_path).tests == ()


def test_other_commits_and_toolchains_are_no_unchanged_code(tmp_path):
    synthetic.build(tmp_path, plan(commits=2))
    shas = plan(commits=2).shas()
    newer = plan(commits=shas, seed=3, versions={0: {"triton": "3.9.0"}})
    written(tmp_path, newer, purpose="measure")
    assert of(tmp_path).tests == ()


def test_files_that_differed_from_their_commit_do_not_count(tmp_path):
    written(tmp_path, plan(dirty=frozenset({0})))
    assert calibrations(Index(load_history(tmp_path))) == ()


@pytest.mark.parametrize("replicates", [7, 10, 12])
def test_difference_95_is_that_of_all_pairs_of_replicates(tmp_path, replicates):
    written(tmp_path, plan(replicates=replicates, noise=0.01))
    history = load_history(tmp_path)
    found = {one.key: one for one in of(tmp_path).series}
    for key, (point,) in history.series.items():
        logs = [math.log(ns) for ns in point.medians_ns]
        apart = [abs(a - b) for a, b in combinations(logs, 2)]
        assert math.log1p(found[key].difference_95) == pytest.approx(np.percentile(apart, 95))


def test_few_differences_have_no_percentile(tmp_path):
    written(tmp_path, plan(replicates=6))
    assert {one.difference_95 for one in of(tmp_path).series} == {None}


def test_detectable_change_shrinks_with_the_noise(tmp_path):
    for name, noise in (("loud", 0.02), ("quiet", 0.002)):
        written(tmp_path / name, plan(noise=noise))
    loud, quiet = ([one.detectable for one in of(tmp_path / name).series]
                   for name in ("loud", "quiet"))  # fmt: skip
    assert len(loud) == 20 and all(a > b > 0.005 for a, b in zip(loud, quiet, strict=True))


def test_alarms_of_unchanged_code_are_rare_and_balanced(tmp_path):
    """The published figure: at most 1 false alarm in 10,000 series-commits, either way."""
    for seed in range(10):
        shas = [str(seed) * 40]
        made = plan(seed=seed, commits=shas, noise=0.004, sweep=13)
        written(tmp_path, made, run_id=str(seed) * 16)
    found = of(tmp_path)
    assert found.comparisons == 10 * 130
    assert found.slower + found.faster == 0
