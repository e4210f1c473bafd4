"""Did it change? The statistics of two commits and of a history: pure, without torch.

Everything is done on logarithms of replicate medians: a replicate is one fresh process, and the
samples within a process never decide anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from statistics import quantiles
from typing import Literal

from scipy.special import stdtr, stdtrit

Verdict = Literal["regressed", "improved", "unchanged", "inconclusive"]
Basis = Literal["noise-model", "welch", "none"]

ALPHA = 0.05
POWER = 0.8
FLOOR = 0.01
FLOOR_NS = 10.0
LEAST_DEGREES = 10


@dataclass(frozen=True, slots=True)
class Noise:
    """How far replicates of one commit differ: pooled over all commits of a series.

    `sd_log` is the standard deviation of log medians with its `degrees` of freedom; `aa_95` is the
    95th percentile of the absolute log differences of pairs.
    """

    sd_log: float
    degrees: int
    aa_95: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Logarithms of replicate medians, with mean and variance; a single one has no variance."""

    logs: tuple[float, ...]
    degrees: int
    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class Drift:
    """How much slower the machine itself was afterwards, by its sentinels, as a log ratio."""

    log_ratio: float = 0.0
    standard_error: float = 0.0


NO_DRIFT = Drift()


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the ends of its 95 % interval."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides of a series compared; log ratios are after over before, drift taken off.

    `noise_floor` is the smallest relative change that noise, clock and cards leave in sight,
    `smallest_seen` the smallest that this comparison would have found in four of five cases. What
    one replicate on a side without a noise model cannot tell is None.
    """

    n_before: int
    n_after: int
    log_ratio: float
    drift: Drift
    noise_floor: float
    standard_error: float | None
    degrees: float | None
    low: float | None
    high: float | None
    p_value: float | None
    smallest_seen: float | None
    basis: Basis

    @property
    def change(self) -> float:
        """Relative change of the time: 0.03 is 3 % slower."""
        return math.expm1(self.log_ratio)

    @property
    def floor(self) -> float:
        """Smallest relative change that matters and can be seen."""
        return max(FLOOR, self.noise_floor)

    @property
    def reach(self) -> float | None:
        """Largest change, as a log ratio, that the interval allows in the direction it has."""
        if self.low is None or self.high is None:
            return None
        return max(self.high, -self.low)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A comparison with its verdict and its p-value after correction over the family."""

    comparison: Comparison
    verdict: Verdict
    q_value: float | None


def noise_model(groups: Iterable[Sequence[float]]) -> Noise | None:
    """Return the noise of a series from groups of replicates of one commit each.

    None below ten degrees of freedom: such a model would be a guess.
    """
    found = [_sample(tuple(group)) for group in groups if len(group) > 1]
    degrees = sum(one.degrees for one in found)
    if degrees < LEAST_DEGREES:
        return None
    pooled = sum(one.degrees * one.variance for one in found) / degrees
    apart = [abs(a - b) for one in found for a, b in combinations(one.logs, 2)]
    return Noise(math.sqrt(pooled), degrees, quantiles(apart, n=20, method="inclusive")[-1])


def drift_of(before: Sequence[float], after: Sequence[float]) -> Drift:
    """Return the drift that one sentinel shows; none where a side did not measure it."""
    if not before or not after:
        return NO_DRIFT
    a, b = _sample(tuple(before)), _sample(tuple(after))
    error, _ = _welch(a, b) if a.degrees and b.degrees else (0, 0)
    return Drift(b.mean - a.mean, error)


def compare(
    before: Sequence[float],
    after: Sequence[float],
    *,
    drift: Drift = NO_DRIFT,
    noise: Noise | None = None,
    tick_ns: float = 0.0,
) -> Comparison:
    """Compare replicate medians in ns; ValueError when a side is empty or holds no valid time."""
    if not before or not after:
        raise ValueError("both sides need at least one replicate")
    a, b = _sample(tuple(before)), _sample(tuple(after))
    n_before, n_after = len(before), len(after)
    time_ns = math.exp(a.mean)
    log_ratio = b.mean - a.mean - drift.log_ratio
    error, degrees, basis = _error(a, b, noise)
    tick = tick_ns / time_ns
    floor = _noise_floor(a, b, noise, tick=tick, time_ns=time_ns)
    if error is None or degrees is None:
        return Comparison(
            n_before, n_after, log_ratio, drift, floor, None, None, None, None, None, None, basis
        )
    # Times are multiples of the tick, so equal medians do not prove that the noise is zero.
    error = math.hypot(max(error, tick / math.sqrt(12)), drift.standard_error)
    half = error * _t_quantile(degrees, 1 - ALPHA / 2)
    return Comparison(
        n_before, n_after, log_ratio, drift, floor, error, degrees,
        log_ratio - half, log_ratio + half, _p_value(log_ratio, error, degrees),
        _smallest_seen(half, floor, error, degrees), basis,
    )  # fmt: skip


def raise_floor(comparison: Comparison, floor: float) -> Comparison:
    """Return the comparison with a floor of at least `floor`."""
    error, degrees = comparison.standard_error, comparison.degrees
    floor = max(floor, comparison.noise_floor)
    if error is None or degrees is None:
        return replace(comparison, noise_floor=floor)
    half = error * _t_quantile(degrees, 1 - ALPHA / 2)
    seen = _smallest_seen(half, floor, error, degrees)
    return replace(comparison, noise_floor=floor, smallest_seen=seen)


def floor_of_cards(sentinels: Iterable[Drift], controls: Iterable[Comparison]) -> float:
    """Return the largest relative change that two cards show without a change of the source.

    Sentinels and controls (PyTorch, libraries) are not this project's kernels: whatever they
    differ by between two cards, a kernel of this project may differ by as well.
    """
    moved = [drift.log_ratio for drift in sentinels] + [one.log_ratio for one in controls]
    return math.expm1(max(map(abs, moved), default=0.0))


def judge(family: Sequence[Comparison]) -> tuple[Judgement, ...]:
    """Give each comparison its verdict; all series of one device and commit are one family."""
    tested = [c.p_value for c in family if c.p_value is not None]
    corrected = iter(_benjamini_hochberg(tested))
    made = []
    for comparison in family:
        q_value = next(corrected) if comparison.p_value is not None else None
        made.append(Judgement(comparison, _verdict(comparison, q_value), q_value))
    return tuple(made)


def mean_interval(medians: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of replicate medians as (low, mean, high) at 95 %."""
    one, half = _sample(tuple(medians)), 0.0
    if one.degrees:
        error = math.sqrt(one.variance / len(one.logs))
        half = error * _t_quantile(one.degrees, 1 - ALPHA / 2)
    return math.exp(one.mean - half), math.exp(one.mean), math.exp(one.mean + half)


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float]) -> Interval:
    """Return the ratio of two sets of replicate medians, two or more each, with its interval."""
    a, b = _sample(tuple(denominator)), _sample(tuple(numerator))
    error, degrees = _welch(a, b)
    middle, half = b.mean - a.mean, error * _t_quantile(degrees, 1 - ALPHA / 2)
    return Interval(math.exp(middle - half), math.exp(middle), math.exp(middle + half))


def logs_of(times_ns: Sequence[float]) -> list[float]:
    """Return the logarithms of times; ValueError for a value that is no time."""
    if not all(0 < time < math.inf for time in times_ns):
        raise ValueError(f"times must be finite and above zero: {list(times_ns)}")
    return list(map(math.log, times_ns))


@lru_cache(maxsize=4096)
def _sample(times_ns: tuple[float, ...]) -> Sample:
    # Each side is the later one of a pair, then the earlier one of the next.
    # statistics.variance counts in fractions: ten times slower, and histories have many points.
    logs = tuple(logs_of(times_ns))
    mean, degrees = math.fsum(logs) / len(logs), len(logs) - 1
    apart = math.fsum([(value - mean) ** 2 for value in logs])
    return Sample(logs, degrees, mean, apart / degrees if degrees else 0.0)


def _error(a: Sample, b: Sample, noise: Noise | None) -> tuple[float | None, float | None, Basis]:
    """Return standard error, degrees of freedom and where they come from."""
    fresh = bool(a.degrees and b.degrees)
    if noise is not None and not (fresh and _pooled_sd(a, b) > 2 * noise.sd_log):
        return noise.sd_log * _root_of_counts(a, b), noise.degrees, "noise-model"
    if fresh:
        return *_welch(a, b), "welch"
    return None, None, "none"


def _welch(a: Sample, b: Sample) -> tuple[float, float]:
    """Return standard error and degrees of freedom after Welch and Satterthwaite."""
    first, second = a.variance / len(a.logs), b.variance / len(b.logs)
    total = first + second
    # Below this the squares underflow; without any spread the sides count alike.
    if total < 1e-150:
        return 0.0, a.degrees + b.degrees
    return math.sqrt(total), total**2 / (first**2 / a.degrees + second**2 / b.degrees)


def _pooled_sd(a: Sample, b: Sample) -> float:
    degrees = a.degrees + b.degrees
    total = a.degrees * a.variance + b.degrees * b.variance
    return math.sqrt(total / degrees) if degrees else 0.0


def _root_of_counts(a: Sample, b: Sample) -> float:
    return math.sqrt(1 / len(a.logs) + 1 / len(b.logs))


def _noise_floor(
    a: Sample, b: Sample, noise: Noise | None, *, tick: float, time_ns: float
) -> float:
    """Return the smallest relative change that noise and clock leave in sight."""
    sd_log = noise.sd_log if noise else _pooled_sd(a, b)
    spread = 3 * sd_log * _root_of_counts(a, b)
    return max(
        math.expm1(spread),
        2 * tick,
        math.expm1(noise.aa_95) if noise else 0.0,
        FLOOR_NS / time_ns,
    )


def _smallest_seen(half: float, noise_floor: float, error: float, degrees: float) -> float:
    # A change is reported when it is sure, above the noise, and may matter: four of five must be.
    least = max(half, math.log1p(noise_floor), math.log1p(FLOOR) - half)
    return math.expm1(least + error * _t_quantile(degrees, POWER))


def _p_value(log_ratio: float, error: float, degrees: float) -> float:
    if error == 0:
        return 1.0 if log_ratio == 0 else 0.0
    return float(2 * stdtr(degrees, -abs(log_ratio) / error))


@lru_cache(maxsize=1024)
def _t_quantile(degrees: float, share: float) -> float:
    return float(stdtrit(degrees, share))


def _benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return the least false discovery rate at which each is a discovery."""
    # scipy.stats has this as well, and takes a second to import.
    count, least = len(p_values), 1.0
    q_values = [1.0] * count
    order = sorted(range(count), key=p_values.__getitem__)
    for rank in range(count, 0, -1):
        place = order[rank - 1]
        least = min(least, p_values[place] * (count / rank))
        q_values[place] = least
    return q_values


def _verdict(comparison: Comparison, q_value: float | None) -> Verdict:
    if comparison.low is None or comparison.high is None or comparison.reach is None:
        return "inconclusive"
    # Both directions on the log scale: twice as fast and half as fast are changes of one size.
    floor = math.log1p(comparison.floor)
    sure = q_value is not None and q_value < ALPHA
    seen = abs(comparison.log_ratio) >= math.log1p(comparison.noise_floor)
    # Only the end of its interval need matter: else half of all changes of that size are missed.
    if sure and seen and comparison.reach >= math.log1p(FLOOR):
        return "regressed" if comparison.log_ratio > 0 else "improved"
    inside = -floor < comparison.low and comparison.high < floor
    return "unchanged" if inside else "inconclusive"
