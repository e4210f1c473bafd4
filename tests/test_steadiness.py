from pathlib import Path

import pytest

from collector.history.load import load_history
from dashboard import findings
from dashboard.book import make_book
from dashboard.environment import environment
from dashboard.links import Links
from dashboard.steadiness import APART, unsteady
from tests import synthetic

TEMPLATES = environment(Path(__file__).parent.parent / "templates")
TWICE = {(1, "sinkhorn", "torch.compile"): 2.0, (1, "sinkhorn", "triton-packed"): 2.0}


def scene_of(folder, timer="graph", **changes):
    plan = {"commits": 2, "ops": ("sinkhorn",), "timers": (timer,), "failures": False}
    synthetic.build(folder, synthetic.Plan(**(plan | changes)))
    return scene_in(folder)


def scene_in(folder):
    book = make_book(load_history(folder), TEMPLATES, Links(), "assets/plotly.js", "")
    return book.scene(next(iter(book.views["sinkhorn"].values())))


def test_a_baseline_that_took_twice_as_long_in_one_run_is_told_with_both_times(tmp_path):
    scene = scene_of(tmp_path, effects=TWICE)
    found = unsteady(scene, "torch.compile")
    # Far below a microsecond the launch is part of both times.
    assert 1.5 < found.ratio < 2.05
    assert found.runs == 2
    key = scene.curves.keys["torch.compile"][found.size]
    times = [point.median_ns for point in scene.history.series[key]]
    assert (found.low_ns, found.high_ns) == (min(times), max(times))
    assert "torch.compile itself took" in findings.lead(scene)


@pytest.mark.parametrize("changes", [
    {"effects": {}},
    {"effects": {(1, "sinkhorn", "torch.compile"): (1 + APART) / 2}},
    {"effects": TWICE, "versions": {1: {"triton": "9.9.0"}}},
    {"effects": TWICE, "timer": "call"},
    {"effects": TWICE, "commits": 1},
])  # fmt: skip
def test_steady_code_other_versions_host_times_and_single_runs_are_not(tmp_path, changes):
    scene = scene_of(tmp_path, **changes)
    assert unsteady(scene, "torch.compile") is None
    assert "itself took" not in findings.lead(scene)


def test_kernels_of_this_project_change_for_reasons_that_other_pages_tell(tmp_path):
    assert unsteady(scene_of(tmp_path, effects=TWICE), "triton-packed") is None
