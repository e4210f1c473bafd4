"""A peer that a page's run did not time is shown from a run that timed it beside one of ours."""

import pytest

from dashboard.elsewhere import elsewhere
from dashboard.findings import finding
from tests import synthetic
from tests.test_regressions import case, in_part, rewrite
from tests.test_steadiness import scene_in


def leave_out(folder, run, *names):
    rewrite(folder, run, lambda v: None if case(v)["implementation"] in names else v)


@pytest.fixture
def folder(tmp_path):
    """Three runs; the last, which the page shows, did not time PyTorch's operators."""
    plan = synthetic.Plan(
        commits=3, ops=("sinkhorn",), sweep=3, failures=False, timers=("graph",), caches=("cold",)
    )
    synthetic.build(tmp_path, plan)
    leave_out(tmp_path, 2, "torch")
    return tmp_path


def test_peer_comes_from_the_newest_run_that_timed_it(folder):
    scene = scene_in(folder)
    found = elsewhere(scene)
    assert "torch" not in scene.curves.names
    assert [(one.name, one.size) for one in found] == [
        ("torch", n) for n in scene.curves.axis_sizes
    ]
    assert {one.run.source.subject for one in found} == {"Change number 1"}


def test_it_stands_beside_our_fastest_kernel_of_the_same_run(folder):
    scene = scene_in(folder)
    for one in elsewhere(scene):
        ours = {
            name: point.median_ns
            for name, line in scene.curves.history.items()
            for point in line[one.size]
            if name.startswith("triton") and point.run_id == one.run.run_id
        }
        assert one.best == min(ours, key=ours.get) and len(ours) == 3
        assert one.mine.median_ns == ours[one.best]
        assert one.ratio.value == pytest.approx(one.theirs.median_ns / ours[one.best])


def test_peer_of_the_pages_own_run_and_kernels_of_ours_are_not_repeated(folder):
    leave_out(folder, 2, "triton-global")
    assert {one.name for one in elsewhere(scene_in(folder))} == {"torch"}


def test_peer_that_came_nearer_there_is_the_fastest_other(folder):
    rewrite(folder, 1, faster_torch)
    found = finding(scene_in(folder))
    apart = {one.size: one.ratio.value for one in elsewhere(found.scene)}
    assert {ratio.against for _, ratio in found.rivals} == {"torch"} and found.has_rivals
    assert {size: ratio.value for size, ratio in found.rivals} == apart
    assert found.over_rivals < found.mean


def faster_torch(value):
    """Let PyTorch's operators be as fast as a kernel of ours, nearly."""
    if case(value)["implementation"] == "torch" and value.get("latency"):
        times = {n: t / 500 for n, t in value["latency"].items() if n.endswith("_ns")}
        value["latency"] |= times
    return value


def test_run_of_changed_files_or_without_a_kernel_of_ours_is_passed_over(folder):
    rewrite(folder, 1, in_part("source", dirty=True))
    leave_out(folder, 0, "triton-global", "triton-registers", "triton-packed")
    assert elsewhere(scene_in(folder)) == []
