"""Two sizes beside the axis as a table of shaded cells: what each pair costs a unit of the axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from collector.history.model import History, Point, SeriesKey
from collector.record import OpInfo
from dashboard import format as words
from dashboard.crossover import speed_up
from dashboard.views import View

LEAST_CELLS = 3
DARKEST = 25  # percent of the colour, so that text stays legible on it


@dataclass(frozen=True, slots=True)
class Cell:
    """The fastest implementation of one pair of sizes, at the largest size along the axis."""

    key: SeriesKey
    point: Point
    count: int
    ratio: float | None

    @property
    def unit_ns(self) -> float:
        """Return the time of one unit of the axis, such as one matrix."""
        return (self.point.median_ns or 0.0) / self.count

    @property
    def text(self) -> str:
        """Write that time, which may be far below a nanosecond."""
        ps = self.unit_ns * 1e3
        return f"{words.significant(ps)} ps" if ps < 1e3 else words.duration(self.unit_ns, 3)


@dataclass(frozen=True, slots=True)
class Heat:
    """The cells by the values of two sizes; `shades` are percents of the darkest colour."""

    down: str
    across: str
    cells: Mapping[tuple[int, int], Cell]

    @property
    def rows(self) -> list[int]:
        """Return the values of the first size."""
        return sorted({row for row, _ in self.cells})

    @property
    def columns(self) -> list[int]:
        """Return the values of the second size."""
        return sorted({column for _, column in self.cells})

    def shade(self, cell: Cell) -> int:
        """Return how dark a cell is: by the logarithm of its time, between the extremes."""
        logs = [math.log(one.unit_ns) for one in self.cells.values()]
        low, span = min(logs), (max(logs) - min(logs)) or 1.0
        return round(DARKEST * (math.log(cell.unit_ns) - low) / span)


def heat(history: History, op: OpInfo, view: View) -> Heat | None:
    """Return the table of an op with two other sizes; None with others or too few cells."""
    found: dict[tuple[int, int], list[tuple[SeriesKey, Point]]] = {}
    names = [name for name, _ in view.fixed]
    if len(names) != 2 or view.axis != op.axis:
        return None
    for key, point in _timed(history, op, view):
        found.setdefault((key.size(names[0]), key.size(names[1])), []).append((key, point))
    cells = {pair: _cell(op, cases) for pair, cases in found.items()}
    return Heat(names[0], names[1], cells) if len(cells) >= LEAST_CELLS else None


def _timed(history: History, op: OpInfo, view: View) -> Iterator[tuple[SeriesKey, Point]]:
    """Return the newest time of every series that differs from a view in sizes alone."""
    for key, points in history.series.items():
        same = key.op == op.name and view.differs_in_sizes_alone(key)
        timed = [point for point in points if point.median_ns is not None] if same else []
        if timed and dict(key.sizes).get(op.axis):
            yield key, timed[-1]


def _cell(op: OpInfo, cases: Iterable[tuple[SeriesKey, Point]]) -> Cell:
    known = list(cases)
    count = max(key.size(op.axis) for key, _ in known)
    at = [(key, point) for key, point in known if key.size(op.axis) == count]
    ours = [pair for pair in at if op.kind_of(pair[0].implementation) == "triton"] or at
    key, point = min(ours, key=lambda pair: pair[1].median_ns or math.inf)
    base = [p for k, p in at if k.implementation == op.baseline and p.run_id == point.run_id]
    ratio = speed_up(point, base[0]) if base and key.implementation != op.baseline else None
    return Cell(key, point, count, ratio.value if ratio else None)
