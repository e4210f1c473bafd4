"""Levels of a history: where a series changes for good, in pure Python.

Everything is done on logarithms of replicate medians, as in `verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from collector.pelt import breaks
from collector.verdict import FLOOR, Noise, logs_of

State = Literal["new", "confirmed", "reverted"]

LEAST_LEVEL = 3
CONFIRMED_AFTER = 5
LEAST_SD_LOG = 2e-4


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch `values[start:stop]` of a history without a change; `time_ns` is its median."""

    start: int
    stop: int
    time_ns: float


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of level: `index` is the first value of the new one.

    `log_ratio` is after over before with its 95 % interval. A change is `new` below five values
    after it, then `confirmed`; `reverted` when the next change takes it back.
    """

    index: int
    log_ratio: float
    low: float
    high: float
    state: State

    @property
    def change(self) -> float:
        """Relative change of the time: 0.03 is 3 % slower."""
        return math.expm1(self.log_ratio)


@dataclass(frozen=True, slots=True)
class Levels:
    """The history of a series in levels; `outliers` are single values far from theirs."""

    levels: tuple[Level, ...]
    changes: tuple[ChangePoint, ...]
    outliers: tuple[int, ...]


def find_levels(times_ns: Sequence[float], *, noise: Noise | None = None) -> Levels:
    """Split a history, in commit order, into levels; ValueError for a value that is no time.

    A change needs three values on either side and must pass the floor, so that a spike is an
    outlier and no change.
    """
    logs = logs_of(times_ns)
    if not logs:
        return Levels((), (), ())
    sd_log = max(noise.sd_log if noise else _sd_of_steps(logs), LEAST_SD_LOG)
    least = max(math.log1p(FLOOR), noise.aa_95 if noise else 0.0)
    bounds = _bounds(logs, sd_log, least)
    while (weak := _weakest(logs, bounds, sd_log, least)) is not None:
        bounds.remove(weak)
    pieces = [logs[start:stop] for start, stop in pairwise(bounds)]
    levels = [
        Level(start, stop, math.exp(median(piece)))
        for (start, stop), piece in zip(pairwise(bounds), pieces, strict=True)
    ]
    limit = max(least, 5 * sd_log)
    outliers = [
        level.start + i
        for level, piece in zip(levels, pieces, strict=True)
        for i, value in enumerate(piece)
        if abs(value - median(piece)) > limit
    ]
    return Levels(tuple(levels), tuple(_changes(pieces, bounds, sd_log)), tuple(outliers))


def _bounds(logs: Sequence[float], sd_log: float, least: float) -> list[int]:
    """Return the ends of the stretches that PELT finds, both ends of the series among them."""
    n = len(logs)
    # No change can pass the floor then.
    if n < 2 * LEAST_LEVEL or max(logs) - min(logs) < least:
        return [0, n]
    # The mean absolute deviation of normal noise is 0.8 standard deviations.
    penalty = 3 * math.log(n) * 0.8 * sd_log
    return [0, *breaks(_calmed(logs, sd_log), penalty, LEAST_LEVEL), n]


def _calmed(logs: Sequence[float], sd_log: float) -> list[float]:
    """Pull single values in towards their neighbours, so that two spikes make no level."""
    made = []
    for i, value in enumerate(logs):
        middle = median(logs[max(0, i - 2) : i + 3])
        made.append(min(max(value, middle - 3 * sd_log), middle + 3 * sd_log))
    return made


def _weakest(
    logs: Sequence[float], bounds: Sequence[int], sd_log: float, least: float
) -> int | None:
    """Return the change that is furthest below its floor, if there is one."""
    below = []
    for start, middle, stop in zip(bounds, bounds[1:], bounds[2:], strict=False):
        a, b = logs[start:middle], logs[middle:stop]
        floor = max(least, 3 * _error_of_medians(a, b, sd_log))
        below.append((abs(median(b) - median(a)) / floor, middle))
    share, index = min(below, default=(1.0, 0))
    return index if share < 1 else None


def _changes(
    pieces: Sequence[Sequence[float]], bounds: Sequence[int], sd_log: float
) -> Iterator[ChangePoint]:
    middles = [median(piece) for piece in pieces]
    for i, (a, b) in enumerate(pairwise(pieces)):
        ratio, half = middles[i + 1] - middles[i], 1.96 * _error_of_medians(a, b, sd_log)
        back = i + 2 < len(middles) and abs(middles[i + 2] - middles[i]) < abs(ratio) / 2
        state: State = "reverted" if back else "confirmed"
        if not back and bounds[-1] - bounds[i + 1] < CONFIRMED_AFTER:
            state = "new"
        yield ChangePoint(bounds[i + 1], ratio, ratio - half, ratio + half, state)


def _error_of_medians(a: Sequence[float], b: Sequence[float], sd_log: float) -> float:
    # The median of normal noise spreads sqrt(pi / 2) times as far as the mean.
    return math.sqrt(math.pi / 2 * (1 / len(a) + 1 / len(b))) * sd_log


def _sd_of_steps(logs: Sequence[float]) -> float:
    """Estimate the noise from neighbours alone, so that changes of level do not count."""
    steps = [b - a for a, b in pairwise(logs)]
    if not steps:
        return 0.0
    middle = median(steps)
    return 1.4826 * median([abs(step - middle) for step in steps]) / math.sqrt(2)
