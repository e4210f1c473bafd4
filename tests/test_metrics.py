import math
from dataclasses import replace
from itertools import pairwise

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from collector.history.load import load_history
from collector.history.model import Ceilings, Point, SeriesKey
from collector.history.rates import (
    gb_per_s,
    intensity_flops_per_byte,
    special_per_s,
    tflop_per_s,
)
from collector.history.roof import (
    fits_l2,
    limits_ns,
    partner,
    regime,
    roof,
    roof_in,
    working_set_bytes,
)
from collector.record import CostRecord
from dashboard.crossover import (
    NotComparableError,
    SpeedUp,
    best_other,
    crossovers,
    fair_means,
    speed_up,
    stretches,
)
from dashboard.metrics import geometric_mean

TIME = st.floats(min_value=1.0, max_value=1e9)

# The limits of an H200 as measured: bytes/s, operations/s, ns.
H200 = Ceilings(
    copy_bytes_per_s=4.24e12, read_bytes_per_s=4.13e12, write_bytes_per_s=4.64e12,
    l2_bytes_per_s=9e12, fp32_flops_per_s=5.1e13, special_ops_per_s=4e12,
    gemm_flops_per_s={"bf16": 6.79e14}, floor_graph_ns=540.0, floor_call_ns=9000.0,
    floor_submit_ns=5000.0,
)  # fmt: skip
KEY = SeriesKey("nvidia-h200", "rms_norm", "triton", "forward", "float16",
                (("rows", 16384), ("hidden", 8192)), "graph", "cold")  # fmt: skip
L2_BYTES = 60_000_000


def work(flops=0, minimal_bytes=0, special_ops=0, pipe="fp32"):
    return CostRecord(flops=flops, minimal_bytes=minimal_bytes, special_ops=special_ops, pipe=pipe)


def point(median_ns=1000.0, cost=None, **changes):
    medians = changes.pop("medians_ns", () if median_ns is None else (median_ns,))
    made = Point(
        run_id="run1", commit=None, medians_ns=medians, median_ns=median_ns, ci_low_ns=median_ns,
        ci_high_ns=median_ns, q01_ns=median_ns, q25_ns=median_ns, q75_ns=median_ns,
        q99_ns=median_ns, min_ns=median_ns, samples=30, calls=10, sets=1, status="passed",
        reason=None, cost=cost, correctness=None, codegen=(), sm_clock_mhz=None,
        peak_memory_bytes=None, compile_seconds=None, flags=(), method_id="aa", workload_hash="bb",
        file="runs/a.jsonl", line=2,
    )  # fmt: skip
    return made._replace(**changes)


def rms_norm(rows, hidden):
    return work(4 * rows * hidden + 2 * rows, (2 * rows * hidden + hidden) * 2, rows)


def ratio(low, high=None):
    high = low if high is None else high
    return SpeedUp(math.sqrt(low * high), low, high, "replicates", "torch")


# Rates


@pytest.mark.parametrize("time_us, rate", [(127.9, 4196), (133.2, 4029), (203.0, 2644)])
def test_bandwidth_agrees_with_a_hand_measurement(time_us, rate):
    found = gb_per_s(point(time_us * 1e3, rms_norm(16384, 8192)))
    assert found == pytest.approx(rate, rel=1e-3)


def test_rates_of_a_gemm():
    gemm = point(1e6, work(2 * 8192**3, 3 * 2 * 8192**2, 0, "bf16"))
    assert tflop_per_s(gemm) == pytest.approx(1099.5, rel=1e-4)
    assert intensity_flops_per_byte(gemm) == pytest.approx(8192 / 3)


def test_special_operations_are_counted_per_second():
    assert special_per_s(point(1e3, work(special_ops=2_000_000))) == pytest.approx(2e12)


def test_sinkhorn_intensity_is_that_of_its_paper_form():
    batch = 1 << 12
    assert intensity_flops_per_byte(point(1.0, work(1472 * batch, 128 * batch))) == 11.5


def test_links_limit_what_ranks_send_and_only_among_as_many_ranks():
    limits = replace(
        H200,
        link_bytes_per_s={2: 4e11, 8: 2e11},
        link_floor_ns={"call": {2: 2e4, 8: 3e4}, "graph": {2: 7e3}},
    )
    sent = work(minimal_bytes=1000).model_copy(update={"link_bytes": 40_000_000})

    def limits_over(ranks, timer):
        key = KEY._replace(sizes=(("ranks", ranks), ("slices", 64)), timer=timer, cache="hot")
        return limits_ns(key, point(2e5, sent), limits, L2_BYTES)

    assert limits_over(2, "call")["link"] == pytest.approx(1e5)
    assert limits_over(8, "call")["link"] == pytest.approx(2e5)
    assert "link" not in limits_over(4, "call")
    assert regime(limits_over(2, "call")) == "link"
    floors = [limits_over(n, timer)["latency"] for n in (2, 8) for timer in ("call", "graph")]
    assert floors == [2e4, 7e3, 3e4, H200.floor_graph_ns]
    assert "link" not in limits_ns(KEY, point(cost=work(minimal_bytes=1000)), limits, L2_BYTES)


def test_without_a_time_or_a_cost_there_is_no_rate():
    for nothing in (point(None, rms_norm(1, 1), sets=0), point(1000.0, None)):
        assert gb_per_s(nothing) is None
        assert tflop_per_s(nothing) is None
        assert special_per_s(nothing) is None
        assert working_set_bytes(nothing) is None
    assert intensity_flops_per_byte(point(1.0, work(flops=5))) is None


@given(TIME, st.integers(1, 10**12))
def test_rate_times_time_is_the_work(time_ns, minimal_bytes):
    found = gb_per_s(point(time_ns, work(minimal_bytes=minimal_bytes)))
    assert found * time_ns == pytest.approx(minimal_bytes)


# Limits and regimes


@pytest.mark.parametrize("cost, expected", [
    (rms_norm(16384, 8192), "memory"),
    (rms_norm(128, 1024), "latency"),
    (work(2 * 8192**3, 3 * 2 * 8192**2, 0, "bf16"), "compute"),
    (work(10**9, 10**6, 10**9), "special"),
    (work(), "latency"),
])  # fmt: skip
def test_regime_is_the_limit_with_the_longest_time(cost, expected):
    assert roof(KEY, point(1e9, cost), H200, L2_BYTES).regime == expected


def test_roof_of_a_copy_is_its_bytes_over_the_copy_rate():
    found = roof(KEY, point(127.9e3, rms_norm(16384, 8192)), H200, L2_BYTES)
    assert found.time_ns == pytest.approx(536_887_296 / 4.24e12 * 1e9)
    assert found.fraction == pytest.approx(0.990, abs=1e-3)
    assert found.flags == ()


def test_hot_case_that_fits_the_cache_is_held_against_the_cache():
    hot = KEY._replace(cache="hot")
    fitting = point(1e6, work(minimal_bytes=40_000_000))
    assert fits_l2(hot, fitting, L2_BYTES)
    assert roof(hot, fitting, H200, L2_BYTES).regime == "l2"
    assert not fits_l2(hot, fitting._replace(sets=2), L2_BYTES)
    assert not fits_l2(KEY, fitting, L2_BYTES)
    assert roof(KEY, fitting, H200, L2_BYTES).regime == "memory"


def test_case_in_a_cache_of_unknown_speed_is_not_held_against_memory():
    blind = replace(H200, l2_bytes_per_s=None)
    inside = point(10e3, work(minimal_bytes=50_000_000))
    found = roof(KEY._replace(cache="hot"), inside, blind, L2_BYTES)
    assert set(found.limits_ns) == {"latency", "compute", "special"}
    assert found.flags == ()
    assert roof(KEY, inside, blind, L2_BYTES).flags == ("above-roof",)


def test_case_with_a_slow_host_and_a_fast_kernel_is_bound_by_the_host():
    call = KEY._replace(timer="call")
    kernel = point(5e3, rms_norm(128, 1024))
    found = roof(call, point(30e3, rms_norm(128, 1024)), H200, L2_BYTES, kernel)
    assert (found.regime, found.host_ratio) == ("host", 6.0)
    assert roof(call, point(5.5e3, rms_norm(128, 1024)), H200, L2_BYTES, kernel).regime != "host"


def test_device_time_knows_no_host():
    found = roof(KEY, point(5e3, rms_norm(128, 1024)), H200, L2_BYTES, point(1e3))
    assert (found.regime, found.host_ratio) == ("latency", None)


def test_enqueueing_is_held_against_its_floor_alone():
    found = limits_ns(KEY._replace(timer="submit"), point(1.0, rms_norm(9, 9)), H200, L2_BYTES)
    assert found == {"latency": 5000.0}


@pytest.mark.parametrize("time_ns, flags", [
    (536_887_296 / 4.24e12 * 1e9 / 1.03, ("above-roof",)),
    (536_887_296 / 4.24e12 * 1e9 / 1.01, ()),
    (500.0, ("above-roof", "below-floor")),
])  # fmt: skip
def test_what_beats_its_roof_by_two_percent_is_flagged(time_ns, flags):
    assert roof(KEY, point(time_ns, rms_norm(16384, 8192)), H200, L2_BYTES).flags == flags


def test_below_the_floor_is_not_above_the_roof():
    assert roof(KEY, point(400.0, rms_norm(1, 16)), H200, L2_BYTES).flags == ("below-floor",)


@pytest.mark.parametrize("timer", ["call", "submit"])
def test_a_call_may_beat_the_floor_of_tritons_launcher(timer):
    found = roof(KEY._replace(timer=timer), point(400.0, rms_norm(1, 16)), H200, L2_BYTES)
    assert (found.regime, found.flags) == ("latency", ())


def test_fill_that_never_reached_memory_is_flagged():
    found = roof(KEY, point(16e6 / 4.9e12 * 1e9, work(minimal_bytes=16_000_000)), H200, L2_BYTES)
    assert "above-roof" in found.flags


def test_without_ceilings_nothing_is_said():
    none = Ceilings(None, None, None, None, None, None, {}, None, None, None)
    found = roof(KEY, point(1e3, rms_norm(9, 9)), none, L2_BYTES)
    assert (found.regime, found.time_ns, found.fraction, found.flags) == (None, None, None, ())
    assert regime({}) is None


@given(TIME, st.integers(0, 10**14), st.integers(0, 10**12), st.integers(0, 10**12))
def test_fraction_and_roof_agree(time_ns, flops, minimal_bytes, special_ops):
    found = roof(KEY, point(time_ns, work(flops, minimal_bytes, special_ops)), H200, L2_BYTES)
    assert found.fraction * time_ns == pytest.approx(found.time_ns)
    assert found.limits_ns[found.regime] == found.time_ns


def test_roofs_of_a_whole_history_use_the_ceilings_of_the_same_run(tmp_path):
    synthetic.build(tmp_path, commits=2, sweep=3, shift={1: 2.0}, ops=("sinkhorn",))
    history = load_history(tmp_path)
    for key, points in history.series.items():
        found = [roof_in(history, key, point) for point in points if point.median_ns]
        if key.timer == "graph" and found:
            assert found[1].time_ns == pytest.approx(2 * found[0].time_ns, rel=0.02)
            assert found[1].fraction == pytest.approx(found[0].fraction, rel=0.02)


def test_partner_is_the_same_case_of_the_same_run(tmp_path):
    synthetic.build(tmp_path, commits=2, sweep=1, ops=("sinkhorn",), failures=False)
    history = load_history(tmp_path)
    key = next(key for key in history.series if key.timer == "call")
    for one in history.series[key]:
        other = partner(history, key, one, "graph")
        assert (other.run_id, other.cost) == (one.run_id, one.cost)
        assert other.method_id != one.method_id
    assert partner(history, key, history.series[key][0], "submit") is None


# Speed-ups


def test_speed_up_of_another_run_or_method_is_refused():
    with pytest.raises(NotComparableError, match="same run"):
        speed_up(point(), point(run_id="run2"))
    with pytest.raises(NotComparableError, match="same method"):
        speed_up(point(), point(method_id="cc"))


def test_speed_up_rests_on_replicates_where_both_have_two():
    fast, slow = (100.0, 101.0, 102.0), (200.0, 203.0, 204.0)
    found = speed_up(point(101.0, medians_ns=fast), point(202.0, medians_ns=slow), "torch")
    logs = [[math.log(t) for t in side] for side in (slow, fast)]
    told = stats.ttest_ind(*logs, equal_var=False)
    interval = told.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(
        (math.exp(interval.low), math.exp(interval.high))
    )
    assert (found.basis, found.against) == ("replicates", "torch")


def test_speed_up_of_single_processes_says_so_and_takes_the_far_ends():
    mine = point(100.0, ci_low_ns=98.0, ci_high_ns=104.0)
    found = speed_up(mine, point(200.0, ci_low_ns=190.0, ci_high_ns=220.0))
    assert (found.value, found.basis) == (2.0, "samples")
    assert (found.low, found.high) == pytest.approx((190 / 104, 220 / 98))


def test_speed_up_without_a_time_is_none():
    assert speed_up(point(None), point()) is None
    assert speed_up(point(), point(None)) is None


def test_best_other_is_the_fastest_one_with_a_time():
    others = {"a": point(300.0), "b": point(200.0), "c": point(None, status="oom")}
    found = best_other(point(100.0), others)
    assert (found.against, found.value) == ("b", 2.0)
    assert best_other(point(100.0), {"c": point(None)}) is None


@given(TIME, TIME)
def test_speed_up_and_slow_down_are_reciprocal(a, b):
    there, back = speed_up(point(a), point(b)), speed_up(point(b), point(a))
    assert there.value * back.value == pytest.approx(1.0)


# Crossovers and stretches


def test_crossover_is_an_interval_of_measured_sizes():
    curve = [(64, ratio(2)), (1, ratio(0.5)), (16, ratio(0.95, 1.05)), (4, ratio(0.8))]
    (found,) = crossovers(curve)
    assert (found.low, found.high, found.becomes) == (4, 64, "faster")


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(1, 1.5)), max_size=12))
def test_crossovers_alternate_and_do_not_overlap(ends):
    curve = [(2**i, ratio(low, low * wide)) for i, (low, wide) in enumerate(ends)]
    found = crossovers(curve)
    assert all(place.low < place.high for place in found)
    assert all(a.high <= b.low and a.becomes != b.becomes for a, b in pairwise(found))


def test_stretches_join_neighbours_and_leave_out_what_is_unknown():
    found = stretches([(64, "memory"), (1, "latency"), (4, "latency"), (16, None), (256, "memory")])
    told = [(s.regime, s.first, s.last, s.next_from) for s in found]
    assert told == [("latency", 1, 4, 64), ("memory", 64, 256, None)]


# Means


def test_mean_is_taken_over_what_all_have_and_names_the_rest():
    table = {"a": {1: 2.0, 2: 8.0, 3: 5.0}, "b": {1: 1.0, 2: 4.0, 3: None}, "c": {1: 1.0, 2: 1.0}}
    found = fair_means(table)
    assert (found["a"].value, found["a"].n, found["a"].missing) == (pytest.approx(4.0), 2, (3,))
    assert found["b"].value == pytest.approx(2.0)


def test_mean_over_nothing_is_none_and_not_zero():
    found = fair_means({"a": {1: 2.0}, "b": {1: None}})
    assert (found["a"].value, found["a"].n) == (None, 0)
    assert geometric_mean([]) is None


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_geometric_mean_agrees_with_scipy(values):
    assert geometric_mean(values) == pytest.approx(stats.gmean(values))
