from __future__ import annotations

import itertools
import statistics
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collector import timing
from collector.method import Method, method_of, rotation
from collector.record import decode_samples
from collector.timing import Clock, Timing, median_interval

KIB, MIB = 1024, 1024**2
COLD, HOT = Method("graph", "cold"), Method("graph", "hot")


class Blind:
    def sample(self) -> None:
        pass


@given(
    st.integers(4 * KIB, 1024 * MIB),
    st.floats(400, 1e9),
    st.sampled_from([4 * MIB, 50 * MIB, 60 * MIB, 126 * MIB]),
    st.sampled_from([COLD, method_of("graph", "cold")]),
)
def test_a_cold_set_is_reused_only_after_three_times_the_cache_was_touched(
    size, call_ns, l2_bytes, method
):
    plan = rotation(method, size, call_ns, l2_bytes)
    between = (plan.sets - 1) * size + (3 * l2_bytes if plan.flush else 0)
    assert between >= 3 * l2_bytes
    assert plan.calls % plan.sets == 0


@given(st.integers(4 * KIB, 1024 * MIB), st.floats(400, 1e9))
def test_a_cold_device_time_is_averaged_over_many_places_of_its_sets(size, call_ns):
    method = method_of("graph", "cold")
    few, many = (rotation(m, size, call_ns, 60 * MIB) for m in (COLD, method))

    def fits(sets):
        return sets * size <= 2048 * MIB and sets * call_ns <= 4 * method.target_ns

    assert many.sets >= few.sets
    assert many.flush or many.sets >= 64 or not fits(many.sets + 1)
    assert many.sets == few.sets or fits(many.sets)


@given(st.integers(4 * KIB, 1024 * MIB), st.floats(400, 1e9), st.integers(0, 8192))
def test_more_places_than_the_cache_asks_for_take_no_more_memory_than_can_be_spared(
    size, call_ns, spare_mib
):
    method, spare = method_of("graph", "cold"), spare_mib * MIB
    least, plan = (rotation(m, size, call_ns, 60 * MIB, spare) for m in (COLD, method))
    assert plan.sets == least.sets or plan.sets * size <= spare


@given(st.integers(1, 1024 * MIB), st.floats(400, 1e9))
def test_a_flushed_sample_uses_each_set_once(size, call_ns):
    plan = rotation(COLD, size, call_ns, 60 * MIB)
    assert not plan.flush or plan.sets == plan.calls


@given(st.floats(1000, 1e9))
def test_a_sample_is_long_enough_to_hide_the_launch_of_its_graph(call_ns):
    plan = rotation(HOT, 1 * MIB, call_ns, 60 * MIB)
    assert plan.sets == 1
    assert plan.calls * call_ns >= min(COLD.target_ns, 2_000 * call_ns) * 0.999


def test_every_sampling_parameter_changes_the_method_id():
    changed = [
        Method("call", "cold"),
        Method("graph", "hot"),
        *(
            Method("graph", "cold", **{name: value * 2})
            for name, value in COLD.describe().items()
            if isinstance(value, (int, float))
        ),
    ]
    ids = [COLD.id, *(method.id for method in changed)]
    assert len(set(ids)) == len(ids) == 12


@pytest.mark.parametrize("n", [6, 7, 20, 33, 60])
def test_the_interval_of_the_median_covers_it_as_often_as_it_says(n):
    low, high = median_interval(list(range(n)))
    rank = int(low)
    assert high == n - 1 - rank
    # Chance that the median of a continuous distribution falls outside, counted from coin tosses.
    outside = 2 * sum(_coins(n, k) for k in range(rank + 1))
    assert outside <= 0.05
    assert rank + 1 >= n / 2 or 2 * sum(_coins(n, k) for k in range(rank + 2)) > 0.05


def _coins(n, k):
    ways = sum(1 for _ in itertools.combinations(range(n), k)) if n <= 20 else None
    if ways is None:
        import scipy.special

        ways = scipy.special.comb(n, k, exact=True)
    return ways / 2**n


def test_sampling_stops_when_the_median_is_settled():
    samples, stopped = timing.sample(Method("call", "hot", warm_ns=0), lambda: [1000, 1001])
    assert stopped == "settled"
    assert len(samples) == 20


def test_sampling_stops_at_its_limit_when_it_never_settles():
    noise = itertools.cycle([100, 200, 400, 800])
    samples, stopped = timing.sample(Method("call", "hot", warm_ns=0), lambda: [next(noise)])
    assert stopped == "limit"
    assert len(samples) == 60


def test_sampling_stops_when_the_budget_ends_but_never_before_three_samples():
    method = Method("call", "hot", warm_ns=0, budget_ns=0)
    samples, stopped = timing.sample(method, lambda: [100])
    assert stopped == "budget"
    assert len(samples) == 3


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=60), st.integers(1, 2000))
def test_a_latency_keeps_every_sample_and_orders_its_quantiles(samples, calls):
    latency = Timing(samples, calls, 1, "limit").latency()
    assert decode_samples(latency.encoded) == samples
    assert latency.median_ns == pytest.approx(statistics.median(samples) / calls, rel=1e-6)


def test_quantiles_agree_with_numpy():
    numpy = pytest.importorskip("numpy")
    values = sorted([3.0, 1.0, 4.0, 1.5, 9.0, 2.6])
    for q in (0, 0.01, 0.25, 0.5, 0.99, 1):
        assert timing.quantile(values, q) == pytest.approx(numpy.quantile(values, q))


def test_falling_clocks_make_a_series_unsteady():
    falling = [round(1000 * 1.003**i) for i in range(60)]
    assert Timing(falling, 1, 1, "limit").unsteady()
    assert not Timing([1000, 1004] * 30, 1, 1, "limit").unsteady()


def test_close_times_stay_distinct_in_the_record():
    a = Timing([20_490_000], 1000, 1, "limit").latency()
    b = Timing([20_530_000], 1000, 1, "limit").latency()
    assert (a.median_ns, b.median_ns) == (20490, 20530)


def test_one_slow_call_does_not_shorten_the_samples_of_those_that_follow():
    seconds = iter([0.01])
    thunk = lambda: time.sleep(next(seconds, 0.0))  # noqa: E731
    timed = Clock("cpu", 1 * MIB, Blind()).call(Method("call", "hot", warm_ns=0), thunk)
    assert timed.calls > 10


def test_a_call_is_timed_from_python_on_the_cpu():
    x = torch.randn(1000)
    timed = Clock("cpu", 1 * MIB, Blind()).call(Method("call", "hot", warm_ns=0), lambda: x * 2)
    assert 100 < timed.latency().median_ns < 1e7
    assert timed.calls > 1
