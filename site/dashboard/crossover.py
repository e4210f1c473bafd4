"""Who is faster, and from which size on: ratios, crossovers, regime boundaries, fair means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from collector.history.model import Point
from collector.verdict import ratio_interval
from dashboard.metrics import geometric_mean

K = TypeVar("K")
Basis = Literal["replicates", "samples"]


class NotComparableError(ValueError):
    """Two points that no ratio may be made of; the message says why."""


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """Time of another implementation over the time of this one; above 1 this one is faster.

    `basis` says what the 95 % interval rests on: `replicates` (fresh processes), or `samples` of
    one process each, which knows nothing of how processes differ.
    """

    value: float
    low: float
    high: float
    basis: Basis
    against: str

    @property
    def surely_faster(self) -> bool:
        """Whether the whole interval is above 1."""
        return self.low > 1

    @property
    def surely_slower(self) -> bool:
        """Whether the whole interval is below 1."""
        return self.high < 1


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where along the axis one implementation becomes faster or slower than the other.

    `low` is the last size on the side before, `high` the first size on the side behind.
    """

    low: int
    high: int
    becomes: Literal["faster", "slower"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring sizes of one regime, and the interval in which the next regime begins."""

    regime: str
    first: int
    last: int
    next_from: int | None


@dataclass(frozen=True, slots=True)
class FairMean:
    """Geometric mean over the cases that every one has, and the cases that were left out."""

    value: float | None
    n: int
    missing: tuple[object, ...]


def speed_up(point: Point, other: Point, against: str = "") -> SpeedUp | None:
    """Return how much faster a point is than another one of the same run; None without a time.

    Points of two runs or of two methods are refused: NotComparableError.
    """
    if point.run_id != other.run_id:
        raise NotComparableError("a speed-up needs both times from the same run")
    if point.method_id != other.method_id:
        raise NotComparableError("a speed-up needs both times by the same method")
    if point.median_ns is None or other.median_ns is None:
        return None
    if min(len(point.medians_ns), len(other.medians_ns)) > 1:
        found = ratio_interval(other.medians_ns, point.medians_ns)
        return SpeedUp(found.value, found.low, found.high, "replicates", against)
    value = other.median_ns / point.median_ns
    low = (other.ci_low_ns or other.median_ns) / (point.ci_high_ns or point.median_ns)
    high = (other.ci_high_ns or other.median_ns) / (point.ci_low_ns or point.median_ns)
    return SpeedUp(value, low, high, "samples", against)


def best_other(point: Point, others: Mapping[str, Point]) -> SpeedUp | None:
    """Return the speed-up against the fastest of the others; None where none has a time."""
    timed = {name: other for name, other in others.items() if other.median_ns is not None}
    if not timed:
        return None
    name = min(timed, key=lambda name: (timed[name].median_ns or 0.0, name))
    return speed_up(point, timed[name], name)


def crossovers(curve: Sequence[tuple[int, SpeedUp]]) -> tuple[Crossover, ...]:
    """Return every place along the axis where the sure answer changes, as an interval of sizes."""
    found = []
    last: tuple[int, bool] | None = None
    for size, ratio in sorted(curve, key=lambda pair: pair[0]):
        if not (ratio.surely_faster or ratio.surely_slower):
            continue
        if last is not None and last[1] != ratio.surely_faster:
            becomes: Literal["faster", "slower"] = "faster" if ratio.surely_faster else "slower"
            found.append(Crossover(last[0], size, becomes))
        last = (size, ratio.surely_faster)
    return tuple(found)


def stretches(regimes: Sequence[tuple[int, str | None]]) -> tuple[Stretch, ...]:
    """Join neighbouring sizes of one regime; a boundary lies between two measured sizes."""
    known = sorted((size, name) for size, name in regimes if name is not None)
    made: list[Stretch] = []
    for size, name in known:
        if made and made[-1].regime == name:
            made[-1] = Stretch(name, made[-1].first, size, None)
            continue
        if made:
            made[-1] = Stretch(made[-1].regime, made[-1].first, made[-1].last, size)
        made.append(Stretch(name, size, size, None))
    return tuple(made)


def fair_means(table: Mapping[str, Mapping[K, float | None]]) -> Mapping[str, FairMean]:
    """Return the mean of each row over the columns that all rows have, and what that leaves out."""
    columns = {column for row in table.values() for column in row}
    common = {
        column for column in columns if all(row.get(column) is not None for row in table.values())
    }
    left_out = tuple(sorted(columns - common, key=str))
    return {name: _fair_mean(row, common, left_out) for name, row in table.items()}


def _fair_mean(
    row: Mapping[K, float | None], common: set[K], left_out: tuple[object, ...]
) -> FairMean:
    values = [value for column, value in row.items() if column in common and value is not None]
    return FairMean(geometric_mean(values), len(values), left_out)
