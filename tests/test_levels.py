import math
import random

import numpy as np
import pytest
import ruptures
from hypothesis import given
from hypothesis import strategies as st

from collector.levels import find_levels
from collector.pelt import Stretch, breaks
from collector.verdict import Noise, noise_model
from tests.test_verdict import around


def changes(times_ns, noise=None):
    return [change.index for change in find_levels(times_ns, noise=noise).changes]


@pytest.mark.parametrize("n", range(4))
def test_short_history_has_at_most_one_level(n):
    found = find_levels([100e3 * (1 + i) for i in range(n)])
    assert (len(found.levels), found.changes) == (min(n, 1), ())


@pytest.mark.parametrize("series, expected", [
    ([100e3] * 30, [[]]),
    ([100e3] * 12 + [105e3] * 12, [[12]]),
    ([100e3] * 12 + [105e3] + [100e3] * 12, [[]]),
    ([100e3] * 20 + [130e3], [[]]),
    ([100e3] * 10 + [110e3] * 10 + [100e3] * 10, [[10, 20]]),
    ([100e3] * 10 + [100.032e3] * 10, [[]]),
    ([100e3] * 10 + [90e3] * 3, [[10]]),
    ([100e3] * 9 + [105e3] * 1 + [111e3] * 9, [[9], [10]]),
], ids=["constant", "step", "spike", "last spike", "there and back", "one tick", "three at the end",
        "two steps one commit apart"])  # fmt: skip
def test_golden_series(series, expected):
    assert changes(series) in expected


def test_spike_is_an_outlier():
    found = find_levels([100e3] * 12 + [120e3] + [100e3] * 12)
    assert found.outliers == (12,)


def test_two_spikes_next_to_one_another_make_no_level():
    rng = random.Random(1)
    quiet = Noise(0.002, 50, 0.0055)
    series = around(100e3, 0.002, 30, rng)
    series[12] *= 1.1
    series[14] *= 1.1
    found = find_levels(series, noise=quiet)
    assert (found.changes, found.outliers) == ((), (12, 14))


def test_zero_variance_stretch_before_a_noisy_step():
    rng = random.Random(4)
    assert changes([100e3] * 15 + around(106e3, 0.003, 15, rng)) == [15]


def test_quantised_series_with_two_values_has_no_change():
    rng = random.Random(6)
    assert changes([rng.choice([2000.0, 2008.0]) for _ in range(40)]) == []


def test_bimodal_series_has_no_change():
    rng = random.Random(7)
    mixed = [rng.choice([100e3, 102e3]) * math.exp(rng.gauss(0, 5e-4)) for _ in range(60)]
    groups = [[rng.choice([100e3, 102e3]) for _ in range(3)] for _ in range(20)]
    assert changes(mixed, noise_model(groups)) == []


def test_slow_drift_is_seen_as_steps():
    assert changes([100e3 * 1.004**i for i in range(30)])


def test_change_says_how_large_it_is_and_how_sure():
    rng = random.Random(9)
    series = around(100e3, 0.003, 20, rng) + around(104e3, 0.003, 20, rng)
    (change,) = find_levels(series, noise=Noise(0.003, 50, 0.008)).changes
    assert change.low < math.log(1.04) < change.high
    assert change.state == "confirmed"


def test_change_that_came_back_is_reverted_and_a_fresh_one_is_new():
    found = find_levels([100e3] * 10 + [110e3] * 10 + [100e3] * 4)
    assert [change.state for change in found.changes] == ["reverted", "new"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -5.0])
def test_history_with_a_value_that_is_no_time_is_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        find_levels([100e3] * 5 + [bad])


@given(st.integers(0, 50), st.floats(min_value=1e-3, max_value=1e3))
def test_scale_does_not_move_changes(seed, scale):
    rng = random.Random(seed)
    series = around(100e3, 0.004, 12, rng) + around(104e3, 0.004, 12, rng)
    assert changes([t * scale for t in series]) == changes(series)


@given(st.integers(0, 50))
def test_reversal_mirrors_changes(seed):
    rng = random.Random(seed)
    series = around(100e3, 0.003, 14, rng) + around(105e3, 0.003, 10, rng)
    assert changes(series[::-1]) == [len(series) - i for i in reversed(changes(series))]


def test_levels_cover_the_history_without_gaps():
    found = find_levels([100e3] * 8 + [120e3] * 8 + [90e3] * 8)
    assert [(level.start, level.stop) for level in found.levels] == [(0, 8), (8, 16), (16, 24)]
    assert [level.time_ns for level in found.levels] == pytest.approx([100e3, 120e3, 90e3])


def test_histories_without_a_change_raise_no_alarm():
    rng = random.Random(12)
    noise = Noise(0.005, 50, 0.014)
    alarms = sum(bool(changes(around(1e5, 0.005, 30, rng), noise)) for _ in range(500))
    assert alarms / 500 <= 0.02


def test_cost_of_a_stretch_is_that_of_ruptures_however_it_grew():
    values = np.array(around(1.0, 0.01, 30, random.Random(1)))
    theirs = ruptures.costs.CostL1().fit(values.reshape(-1, 1))
    for start in (0, 3, 11):
        ours = Stretch(start, before=0.0)
        for end, value in enumerate(values[start:], start=start + 1):
            ours.add(value)
            assert ours.cost == pytest.approx(theirs.error(start, end) if end - start > 1 else 0.0)


@pytest.mark.parametrize("size", [6, 7, 20, 60])
def test_levels_begin_where_ruptures_says(size):
    rng, found = random.Random(size), 0
    for _ in range(25):
        steps = [rng.choice((0, 0, 0, 0, 0.02, -0.03)) for _ in range(size)]
        noise = [rng.gauss(0, 1e-3) for _ in range(size)]
        values = [sum(steps[:n]) + noise[n] for n in range(size)]
        theirs = ruptures.Pelt(model="l1", min_size=3, jump=1).fit(np.array(values))
        ours = breaks(values, 0.01, 3)
        assert [*ours, size] == theirs.predict(pen=0.01)
        found += len(ours)
    assert found > 5


@pytest.mark.parametrize("at", [3, 10, 17])
def test_levels_without_any_noise_begin_at_the_step(at):
    assert breaks([1.0] * at + [2.0] * (20 - at), 0.01, 3) == [at]
