"""What more ranks bring, told beside the times."""

from pathlib import Path

import pytest

from collector.history.load import load_history
from collector.history.model import Point
from collector.record import CostRecord
from dashboard.scaling import Ranked, over_ranks
from dashboard.views import curves_of

ROOT = Path(__file__).parent.parent
POINT = Point(
    run_id="run1", commit=None, medians_ns=(1e5,), median_ns=1e5, ci_low_ns=1e5, ci_high_ns=1e5,
    q01_ns=1e5, q25_ns=1e5, q75_ns=1e5, q99_ns=1e5, min_ns=1e5, samples=30, calls=10, sets=1,
    status="passed", reason=None, cost=None, correctness=None, codegen=(), sm_clock_mhz=None,
    peak_memory_bytes=None, compile_seconds=None, flags=(), method_id="aa", workload_hash="bb",
    file="runs/a.jsonl", line=2,
)  # fmt: skip


def ranked(ranks, time_us, flops, alone_flops, by_rank=()):
    def point(us, flops):
        cost = CostRecord(flops=flops, minimal_bytes=1, special_ops=0, pipe="fp32")
        return POINT._replace(median_ns=us * 1e3, cost=cost, rank_medians_ns=by_rank)

    return Ranked(64, "triton", ranks, point(time_us, flops), point(100, alone_flops), None, None)


@pytest.mark.parametrize(("time_us", "efficiency"), [(25, 1.0), (50, 0.5), (100, 0.25)])
def test_a_batch_shared_out_is_ideal_in_the_share_of_the_time(time_us, efficiency):
    assert ranked(4, time_us, 250, 1000).efficiency == pytest.approx(efficiency)


def test_a_batch_that_grows_with_the_ranks_is_ideal_in_the_same_time():
    assert ranked(8, 100, 1000, 1000).efficiency == pytest.approx(1.0)
    assert ranked(8, 125, 1000, 1000).efficiency == pytest.approx(0.8)


def test_what_one_rank_has_no_work_in_has_no_efficiency():
    assert ranked(2, 8, 500, 0).efficiency is None


def test_the_slowest_rank_is_named_with_what_it_is_behind():
    one = ranked(3, 100, 1, 1, (100.0, 120.0, 110.0))
    assert (one.slowest, one.apart) == (1, pytest.approx(0.2))
    assert ranked(1, 100, 1, 1, (100.0,)).slowest is None


@pytest.fixture(scope="module")
def history():
    return load_history(ROOT / "data")


@pytest.mark.parametrize("op", ["sigreg_strong", "sigreg_weak", "sigreg_sync"])
def test_every_number_of_ranks_stands_beside_the_same_case_on_one(history, op):
    for view, curves in curves_of(history, history.ops[op]).items():
        found = over_ranks(history, curves)
        several = [one for one in found if one.ranks > 1 and view.mode == "forward"]
        assert several or view.mode != "forward"
        assert all(one.alone and one.sent_bytes and one.ring_ns for one in several)
        assert {one.name for one in found} >= set(curves.names)


def test_ops_of_one_device_have_no_ranks_to_tell_of(history):
    curves = next(iter(curves_of(history, history.ops["rms_norm"]).values()))
    assert over_ranks(history, curves) == []
