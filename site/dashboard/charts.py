"""One description of a chart, which both the SVG and the Plotly figure are drawn from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from dashboard.format import binary, plain
from dashboard.palette import Style

Scale = Literal["linear", "log2", "log10"]
Value = float | None
TICKS_APART = 1.5  # times, so that their labels stand side by side


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis in data units, with the ticks that it shows."""

    title: str
    scale: Scale
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def placing(self, first: float, last: float) -> Callable[[float], float]:
        """Return the function that places values between two ends of a drawing."""
        if self.scale == "linear":
            step = (last - first) / (self.high - self.low)
            return lambda value: first + (value - self.low) * step
        start = math.log(self.low)
        rate = (last - first) / (math.log(self.high) - start)
        return lambda value: first + (math.log(value) - start) * rate


@dataclass(frozen=True, slots=True)
class Band:
    """The area between two lines over neighbouring points; it never crosses a gap."""

    label: str
    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One line. A y of None is a gap: not measured. `notes` are the hover texts of the points.

    `low` and `high` draw a whisker at each point; `breaks` are indices that no line leads to.
    `labels` are written above the points.
    """

    key: str
    name: str
    style: Style
    x: tuple[float, ...]
    y: tuple[Value, ...]
    notes: tuple[str, ...]
    low: tuple[Value, ...] = ()
    high: tuple[Value, ...] = ()
    bands: tuple[Band, ...] = ()
    breaks: frozenset[int] = frozenset()
    hollow: frozenset[int] = frozenset()
    labels: tuple[str, ...] = ()

    def labelled(self) -> list[tuple[float, float, str]]:
        """Return where which label belongs."""
        rows = zip(self.x, self.y, self.labels, strict=False)
        return [(x, y, text) for x, y, text in rows if y is not None and text]

    def segments(self) -> list[list[int]]:
        """Return runs of indices that a line may join."""
        runs: list[list[int]] = []
        for index, value in enumerate(self.y):
            if value is None:
                continue
            joined = index > 0 and self.y[index - 1] is not None and index not in self.breaks
            if not joined:
                runs.append([])
            runs[-1].append(index)
        return runs


@dataclass(frozen=True, slots=True)
class Mark:
    """A case without a time: drawn in a lane under the plot, never as a zero."""

    key: str
    name: str
    style: Style
    x: float
    status: str
    note: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A stretch of the x axis with a name, drawn behind the lines."""

    kind: str
    label: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Line:
    """A named limit or reference, as a polyline in data units."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    dash: str = "solid"
    label_at: Literal["start", "end", "below", "beside", "middle", "under"] = "end"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: what it shows, not how it is drawn."""

    key: str
    title: str
    caption: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    strips: tuple[Strip, ...] = ()
    lines: tuple[Line, ...] = ()
    spans: tuple[Strip, ...] = ()
    rules: tuple[Strip, ...] = ()

    @property
    def empty(self) -> bool:
        """Say whether there is nothing to draw."""
        return not any(value is not None for series in self.series for value in series.y)


def bands(
    label: str,
    x: Sequence[float],
    low: Sequence[Value],
    high: Sequence[Value],
    strong: bool = False,
) -> tuple[Band, ...]:
    """Cut a band at every missing point, so that nothing is filled where nothing was measured."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for place, bottom, top in zip(x, low, high, strict=True):
        if bottom is None or top is None:
            runs.append([])
        else:
            runs[-1].append((place, bottom, top))
    return tuple(_band(label, run, strong) for run in runs if run)


def _band(label: str, run: list[tuple[float, float, float]], strong: bool) -> Band:
    x, low, high = zip(*run, strict=True)
    return Band(label, x, low, high, strong)


def size_axis(title: str, values: Iterable[float]) -> Axis:
    """Make a base-2 axis for sizes, with ticks at powers of two, or at a few other sizes."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = math.floor(math.log2(min(positive))), math.ceil(math.log2(max(positive)))
    step = max(1, math.ceil((high - low) / 9))
    powers = [2.0**power for power in range(low, high + 1, step)]
    ticks = tuple((size, binary(size)) for size in _few_sizes(positive) or powers)
    margin = 2 ** max(0.25, (high - low) * 0.02)
    return Axis(title, "log2", min(positive) / margin, max(positive) * margin, ticks)


def _few_sizes(values: Sequence[float]) -> list[float]:
    """Return the sizes themselves where they are few, apart, and not all powers of two."""
    sizes = sorted(set(values))
    apart = all(b >= TICKS_APART * a for a, b in pairwise(sizes))
    few = len(sizes) <= 9 and apart and any(math.log2(size) % 1 for size in sizes)
    return sizes if few else []


def log_axis(title: str, values: Iterable[Value], suffix: str = "") -> Axis:
    """Make a base-10 axis around positive values: decades, with 2 and 5 when there are few."""
    positive = [value for value in values if value is not None and value > 0] or [1.0]
    low, high = min(positive), max(positive)
    pad = max((high / low) ** 0.06, 1.15)
    low, high = low / pad, high * pad
    return Axis(title, "log10", low, high, _ticks(low, high, suffix))


def linear_axis(title: str, labels: Sequence[str]) -> Axis:
    """Make an axis of places 0, 1, 2 ... with a label at most of them."""
    step = max(1, math.ceil(len(labels) / 8))
    last = len(labels) - 1
    ticks = tuple((float(i), labels[i]) for i in range(last % step, len(labels), step))
    return Axis(title, "linear", -0.5, max(last, 0) + 0.5, ticks)


def _ticks(low: float, high: float, suffix: str) -> tuple[tuple[float, str], ...]:
    decades = math.log10(high / low)
    steps = (1.0,) if decades > 3.5 else (1.0, 3.0) if decades > 2.2 else (1.0, 2.0, 5.0)
    if decades < 0.7:
        return _fine_ticks(low, high, suffix)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, round(decades / 7))
    values = (step * 10.0**power for power in powers if power % every == 0 for step in steps)
    return tuple((value, plain(value) + suffix) for value in values if low <= value <= high)


def _fine_ticks(low: float, high: float, suffix: str) -> tuple[tuple[float, str], ...]:
    step = _step((high - low) / 5)
    counts = range(math.ceil(low / step), math.floor(high / step) + 1)
    return tuple((count * step, plain(count * step) + suffix) for count in counts if count > 0)


def _step(rough: float) -> float:
    """Return the least round number that is not below another."""
    scale = 10.0 ** math.floor(math.log10(rough))
    return next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= rough)


def extent(chart_series: Iterable[Series]) -> list[Value]:
    """Return all values that a y axis must hold, bands and whiskers included."""
    values: list[Value] = []
    for series in chart_series:
        values += [*series.y, *series.low, *series.high]
        for band in series.bands:
            values += [*band.low, *band.high]
    return values


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of a chart in words: the head of the first column, the others, the rows."""

    corner: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def table(chart: Chart, write: Callable[[float], str], write_x: Callable[[float], str]) -> Table:
    """Return the chart as a table: one row for each x, one column for each series."""
    places = sorted({x for series in chart.series for x in series.x} | {m.x for m in chart.marks})
    cells = {(s.key, x): write(y) for s in chart.series for x, y in _drawn(s)}
    statuses = {(mark.key, mark.x): mark.status for mark in chart.marks}
    keys = {series.key: series.name for series in chart.series}
    keys |= {mark.key: mark.name for mark in chart.marks if mark.key not in keys}
    rows = [
        (write_x(x), tuple(cells.get((key, x), statuses.get((key, x), "")) for key in keys))
        for x in places
    ]
    return Table(chart.x.title, tuple(keys.values()), tuple(rows))


def _drawn(series: Series) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
