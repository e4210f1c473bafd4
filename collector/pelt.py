"""Find where a series changes its level: the exact search of PELT, by running medians."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stretch:
    """A last level from `start` on, behind levels that cost `before`: it grows by single values.

    `cost` is the sum of absolute distances from its median.
    """

    start: int
    before: float
    cost: float = 0.0
    row: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        """Take in the next value: the cost grows by its distance from the medians there were."""
        row = self.row
        size = len(row)
        if size:
            low, high = row[(size - 1) // 2], row[size // 2]
            if value > high:
                self.cost += value - high
            elif value < low:
                self.cost += low - value
        insort(row, value)


def breaks(values: Sequence[float], penalty: float, min_size: int) -> list[int]:
    """Return the first index of every new level: together they cost least, a penalty for each."""
    least, begin = {0: 0.0}, {0: 0}
    candidates: list[Stretch] = []
    for stop in range(min_size, len(values) + 1):
        for one in candidates:
            one.add(values[stop - 1])
        start = stop - min_size
        if start in least:
            candidates.append(Stretch(start, least[start]))
            for value in values[start:stop]:
                candidates[-1].add(value)
        totals = [one.before + (one.cost + penalty) for one in candidates]
        least[stop] = min(totals)
        begin[stop] = candidates[totals.index(least[stop])].start
        # What costs a penalty more than the best will never be part of it.
        pairs = zip(candidates, totals, strict=True)
        candidates = [one for one, total in pairs if total <= least[stop] + penalty]
    return _walk_back(begin, len(values))


def _walk_back(begin: dict[int, int], stop: int) -> list[int]:
    found = []
    while stop := begin[stop]:
        found.append(stop)
    return found[::-1]
