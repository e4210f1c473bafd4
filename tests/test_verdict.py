import math
import random
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from collector.verdict import (
    Drift,
    Noise,
    compare,
    drift_of,
    floor_of_cards,
    judge,
    mean_interval,
    noise_model,
    raise_floor,
    ratio_interval,
)

TIME = st.floats(min_value=1e3, max_value=1e8)
SIDE = st.lists(TIME, min_size=2, max_size=8)
QUIET = Noise(sd_log=0.002, degrees=20, aa_95=0.0055)


def around(centre_ns, sd_log, n, rng):
    return [centre_ns * math.exp(rng.gauss(0, sd_log)) for _ in range(n)]


def verdict_of(before, after, **known):
    return judge([compare(before, after, **known)])[0].verdict


@given(SIDE, SIDE)
def test_welch_agrees_with_scipy(before, after):
    assume(all(stdev(map(math.log, side)) > 1e-6 for side in (before, after)))
    found = compare(before, after)
    told = stats.ttest_ind([math.log(t) for t in after], [math.log(t) for t in before],
                           equal_var=False)  # fmt: skip
    assert found.p_value == pytest.approx(told.pvalue, rel=1e-6, abs=1e-12)
    interval = told.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6)


def test_known_noise_gives_the_textbook_error():
    found = compare([100e3] * 5, [103e3] * 5, noise=QUIET)
    assert found.basis == "noise-model"
    assert found.standard_error == pytest.approx(0.002 * math.sqrt(2 / 5))
    half = 2.086 * found.standard_error  # t at 97.5 % with 20 degrees, from a printed table
    assert found.high - found.log_ratio == pytest.approx(half, rel=1e-3)
    assert found.change == pytest.approx(0.03)


def test_fresh_spread_far_above_the_model_is_believed():
    found = compare([100e3, 102e3, 98e3], [100e3, 102e3, 98e3], noise=QUIET)
    assert found.basis == "welch"


def test_a_raised_floor_hides_what_is_below_it_alone():
    small, large = (compare([100e3] * 5, [after] * 5, noise=QUIET) for after in (103e3, 110e3))
    judged = judge([raise_floor(small, 0.05), raise_floor(large, 0.05)])
    assert [one.verdict for one in judged] == ["unchanged", "regressed"]


@given(SIDE, SIDE, st.floats(0.0, 0.5))
def test_a_raised_floor_never_falls_and_sees_less(before, after, floor):
    found = compare(before, after)
    raised = raise_floor(found, floor)
    assert raised.floor == max(found.floor, floor)
    assert raised.smallest_seen >= found.smallest_seen * (1 - 1e-12)
    assert (raised.low, raised.p_value) == (found.low, found.p_value)


def test_the_floor_of_two_cards_is_the_largest_change_of_either_sign():
    controls = [compare([100e3] * 3, [after] * 3) for after in (101e3, 100e3 / 1.04)]
    assert floor_of_cards([Drift(0.01)], controls) == pytest.approx(0.04)
    assert floor_of_cards([Drift(-0.0488)], controls) == pytest.approx(0.05, abs=1e-4)
    assert floor_of_cards([], []) == 0.0


@pytest.mark.parametrize("after, verdict", [
    (103e3, "regressed"), (97e3, "improved"), (100.2e3, "unchanged"),
    # Sure, and 1 % is within its interval; sure, and surely less than 1 %.
    (100.9e3, "regressed"), (99.1e3, "improved"), (100.65e3, "unchanged"),
])  # fmt: skip
def test_verdict_by_size_of_change(after, verdict):
    before = [99.9e3, 100e3, 100.1e3, 100e3, 100e3]
    noisy = [after * factor for factor in (0.999, 1, 1.001, 1, 1)]
    assert verdict_of(before, noisy, noise=Noise(0.0021, 20, 0.0055)) == verdict


def test_what_noise_may_hide_is_inconclusive():
    assert verdict_of([1e5] * 5, [100.6e3] * 5, noise=Noise(0.004, 20, 0.008)) == "inconclusive"


def test_one_replicate_is_never_better_than_inconclusive_without_a_noise_model():
    judged = judge([compare([100e3], [150e3]), compare([100e3, 100e3], [150e3])])
    assert [one.verdict for one in judged] == ["inconclusive"] * 2
    assert all(one.q_value is None and one.comparison.low is None for one in judged)


def test_one_replicate_is_judged_where_the_noise_is_known():
    assert verdict_of([100e3], [105e3], noise=QUIET) == "regressed"


def test_equal_medians_without_spread_are_unchanged():
    assert verdict_of([5000.0] * 3, [5000.0] * 3) == "unchanged"


def test_one_tick_up_is_no_change():
    assert verdict_of([2000.0] * 3, [2032.0] * 3, tick_ns=32.0) != "regressed"


def test_change_below_the_absolute_floor_is_not_reported():
    assert verdict_of([400.0] * 5, [408.0] * 5, noise=QUIET) == "unchanged"
    assert verdict_of([400.0] * 5, [440.0] * 5, noise=QUIET) == "regressed"


def test_floor_is_the_largest_of_its_parts():
    assert compare([1e6] * 5, [1e6] * 5).floor == 0.01
    assert compare([1e6] * 5, [1e6] * 5, tick_ns=1e4).floor == pytest.approx(0.02)
    wide = Noise(0.02, 20, 0.01)
    assert compare([1e6] * 5, [1e6] * 5, noise=wide).floor == pytest.approx(
        math.expm1(3 * 0.02 * math.sqrt(2 / 5)))  # fmt: skip
    assert compare([1e6], [1e6], noise=Noise(0.001, 20, 0.05)).floor == pytest.approx(
        math.expm1(0.05))  # fmt: skip


def test_smallest_seen_is_2_8_errors_where_the_floor_is_lower():
    found = compare([1e6] * 5, [1e6] * 5, drift=Drift(0.0, 0.03), noise=Noise(1e-6, 10_000, 0.0))
    assert math.log1p(found.smallest_seen) == pytest.approx(2.8 * 0.03, rel=2e-3)


def test_drift_of_the_machine_is_taken_off():
    shifted = [t * 1.02 for t in (100e3, 100.1e3, 99.9e3, 100e3, 100e3)]
    before = [100e3, 100.1e3, 99.9e3, 100e3, 100e3]
    assert verdict_of(before, shifted) == "regressed"
    assert verdict_of(before, shifted, drift=Drift(math.log(1.02), 1e-4)) == "unchanged"


def test_uncertain_drift_widens_the_interval():
    sure, unsure = (compare([1e5] * 5, [1e5] * 5, noise=QUIET, drift=Drift(0.0, error))
                    for error in (0.0, 0.01))  # fmt: skip
    assert unsure.high > 3 * sure.high


def test_environment_shift_over_a_family_with_and_without_sentinels():
    rng = random.Random(5)
    shift = math.log(1.02)
    sides = [(around(1e5, 0.002, 5, rng), around(1.02e5, 0.002, 5, rng)) for _ in range(100)]
    blind = judge([compare(a, b, noise=QUIET) for a, b in sides])
    seeing = judge([compare(a, b, noise=QUIET, drift=Drift(shift, 2e-4)) for a, b in sides])
    assert sum(one.verdict == "regressed" for one in blind) > 90
    assert not any(one.verdict in ("regressed", "improved") for one in seeing)


@given(SIDE, SIDE, st.floats(min_value=1e-2, max_value=1e2))
def test_unit_does_not_matter(before, after, scale):
    # Above the floor in ns: that one is absolute by intention.
    before, after = [t + 1e6 for t in before], [t + 1e6 for t in after]
    a = judge([compare(before, after)])[0]
    b = judge([compare([t * scale * 100 for t in before], [t * scale * 100 for t in after])])[0]
    assert b.comparison.log_ratio == pytest.approx(a.comparison.log_ratio, abs=1e-9)
    assert b.comparison.p_value == pytest.approx(a.comparison.p_value, abs=1e-4)


@given(SIDE, SIDE)
def test_swapping_sides_mirrors_the_answer(before, after):
    mirror = {"regressed": "improved", "improved": "regressed"}
    there, back = judge([compare(before, after)])[0], judge([compare(after, before)])[0]
    assert back.comparison.log_ratio == pytest.approx(-there.comparison.log_ratio)
    if there.comparison.floor == back.comparison.floor:
        assert back.verdict == mirror.get(there.verdict, there.verdict)


@given(st.permutations([100e3, 101e3, 99e3, 100.5e3]))
def test_order_of_replicates_does_not_matter(shuffled):
    plain = compare([100e3, 101e3, 99e3, 100.5e3], [1e5, 1.1e5])
    assert compare(shuffled, [1e5, 1.1e5]).p_value == pytest.approx(plain.p_value)


def test_aa_false_alarms_stay_below_twice_the_nominal_rate():
    rng = random.Random(11)
    families = 500
    alarms = 0
    for _ in range(families):
        sides = [(around(1e5, 0.004, 5, rng), around(1e5, 0.004, 5, rng)) for _ in range(10)]
        found = judge([compare(a, b) for a, b in sides])
        alarms += any(one.verdict in ("regressed", "improved") for one in found)
    assert alarms / families <= 0.10


def test_null_alarms_are_balanced_between_better_and_worse():
    rng = random.Random(3)
    pairs = [compare(around(1e6, 0.01, 4, rng), around(1e6, 0.01, 4, rng)) for _ in range(2000)]
    loud = [pair for pair in pairs if pair.p_value < 0.05]
    slower = sum(pair.log_ratio > 0 for pair in loud)
    assert 0.02 < len(loud) / 2000 < 0.08
    assert stats.binomtest(slower, len(loud)).pvalue > 0.01


def test_four_of_five_changes_of_the_smallest_size_promised_are_reported():
    rng = random.Random(8)
    noise = Noise(0.01, 1000, 0.0)
    seen = compare([1e5] * 5, [1e5] * 5, noise=noise).smallest_seen
    verdicts = [
        verdict_of(around(1e5, 0.01, 5, rng), around(1e5 * (1 + seen), 0.01, 5, rng), noise=noise)
        for _ in range(1000)
    ]
    assert 0.76 < verdicts.count("regressed") / 1000 < 0.84


def test_correction_holds_back_a_single_lucky_series():
    rng = random.Random(2)
    null = [compare(around(1e5, 0.02, 5, rng), around(1e5, 0.02, 5, rng)) for _ in range(200)]
    assert min(one.p_value for one in null) < 0.05
    assert all(one.q_value >= one.comparison.p_value for one in judge(null))
    assert not any(one.verdict in ("regressed", "improved") for one in judge(null))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_corrected_p_values_are_those_of_scipy(p_values):
    known = compare([100e3, 101e3], [100e3, 102e3])
    judged = judge([replace(known, p_value=p_value) for p_value in p_values])
    expected = stats.false_discovery_control(p_values)
    assert [one.q_value for one in judged] == pytest.approx(list(expected), rel=1e-12)


def test_noise_is_pooled_over_commits_and_ignores_their_levels():
    groups = [[100.0, 102.0, 104.0], [1000.0, 1020.0, 1040.0]] * 3
    found = noise_model(groups)
    logs = [math.log(t) for t in groups[0]]
    sd_log = math.sqrt(sum((x - fmean(logs)) ** 2 for x in logs) / 2)
    assert found.degrees == 12
    assert found.sd_log == pytest.approx(sd_log)
    assert found.aa_95 <= math.log(104 / 100) + 1e-12


def test_thin_noise_is_no_model():
    assert noise_model([[100.0, 101.0]] * 9) is None
    assert noise_model([[100.0, 101.0]] * 10) is not None
    assert noise_model([[100.0]] * 50) is None


@pytest.mark.parametrize("bad", [[], [0.0], [-1.0], [math.nan], [math.inf, 1.0]])
def test_what_is_no_time_is_refused(bad):
    with pytest.raises(ValueError):
        compare(bad, [1e5])
    with pytest.raises(ValueError):
        compare([1e5], bad)


def test_drift_of_a_missing_sentinel_is_none():
    assert drift_of([], [100.0]) == Drift(0.0, 0.0)


def test_mean_interval_agrees_with_scipy():
    row = [100.0, 103.0, 101.0, 99.0]
    logs = [math.log(t) for t in row]
    low, high = stats.t.interval(0.95, 3, loc=fmean(logs), scale=stats.sem(logs))
    assert mean_interval(row) == pytest.approx(
        (math.exp(low), math.exp(fmean(logs)), math.exp(high))
    )
    assert mean_interval([7.0]) == pytest.approx((7.0, 7.0, 7.0))


@given(SIDE, SIDE)
def test_ratio_interval_of_swapped_sides_is_the_reciprocal(a, b):
    there, back = ratio_interval(a, b), ratio_interval(b, a)
    assert there.value == pytest.approx(1 / back.value)
    assert there.low <= there.value <= there.high


# Levels of a history
