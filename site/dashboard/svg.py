"""A chart as a small SVG that needs no script: colours and text follow the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from jinja2 import Environment
from markupsafe import Markup

from dashboard.charts import Band, Chart, Line, Mark, Series, Strip
from dashboard.palette import strip_colour

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 22, 46
CHARACTER = 11.5  # units, where little room makes letters large
LANE_HEIGHT = 13
DASHES = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4"}
# Where the label of a line goes: at which of its points, anchored how, moved by how much.
LABELS = {
    "end": (-1, "end", -4, -5),
    "middle": (1, "end", -4, -5),
    "start": (0, "start", 4, -5),
    "below": (0, "start", 8, 16),
    "beside": (1, "start", 4, 16),
    "under": (-1, "end", -4, 14),
}
SYMBOLS = {
    "circle": "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0",
    "square": "m-3.2-3.2h6.4v6.4h-6.4z",
    "diamond": "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
    "triangle-up": "m0-4.4l4.2 7.4h-8.4z",
    "triangle-down": "m0 4.4l4.2-7.4h-8.4z",
    "cross": "m-1.4-4.2h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8z",
    "x": "m-3.6-3.6l7.2 7.2m0-7.2l-7.2 7.2",
}


Place = tuple[float, float]


class Frame:
    """Where the plot lies inside the drawing, in drawing units."""

    def __init__(self, chart: Chart, lanes: int) -> None:
        self.x = chart.x
        self.lanes = lanes
        self.bottom = HEIGHT - BOTTOM - LANE_HEIGHT * lanes
        longest = max((len(label) for _, label in chart.y.ticks), default=0)
        self.left = max(LEFT, round(CHARACTER * longest) + 8)
        self._across = chart.x.placing(self.left, WIDTH - RIGHT)
        self._up = chart.y.placing(self.bottom, TOP)

    def at_x(self, value: float) -> float:
        """Return the horizontal place of a value, to half a unit: paths stay short."""
        return round(self._across(value) * 2) / 2

    def at_y(self, value: float) -> float:
        """Return the vertical place of a value, to half a unit."""
        return round(self._up(value) * 2) / 2

    def point(self, x: float, y: float) -> Place:
        """Return where a point is drawn."""
        return self.at_x(x), self.at_y(y)


@dataclass(frozen=True, slots=True)
class Drawing:
    """The paths of one series; `id` names its symbol, which is drawn at each of its points."""

    series: Series
    id: str
    symbol: str
    line: str
    markers: str
    hollow: str
    whiskers: str
    bands: tuple[tuple[str, bool], ...]
    dash: str
    labels: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A strip or span in drawing units."""

    kind: str
    colour: str
    label: str
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Lane:
    """The marks of one series under the plot."""

    name: str
    colour: str
    key: str
    top: float
    marks: tuple[tuple[float, str, str], ...]


def svg(chart: Chart, environment: Environment, alone: bool = False) -> Markup:
    """Draw a chart; nothing in it comes from a script. One that stands alone brings its styles."""
    lanes = _lane_marks(chart.marks)
    frame = Frame(chart, len(lanes))
    template = environment.get_template("chart.svg.j2")
    return Markup(
        template.render(
            chart=chart,
            alone=alone,
            frame=frame,
            size=(WIDTH, HEIGHT, RIGHT, TOP),
            across=[(frame.at_x(value), label) for value, label in chart.x.ticks],
            up=[(frame.at_y(value), label) for value, label in chart.y.ticks],
            drawings=[
                _drawing(series, frame, f"{chart.key}-{place}")
                for place, series in enumerate(chart.series)
            ],
            lines=list(_lines(chart.lines, frame)),
            strips=[_box(strip, frame) for strip in chart.strips],
            spans=[_box(span, frame) for span in chart.spans],
            rules=[_box(rule, frame) for rule in chart.rules],
            lanes=[_lane(marks, frame, place) for place, marks in enumerate(lanes)],
        )
    )


def _drawing(series: Series, frame: Frame, name: str) -> Drawing:
    solid = [i for i, y in enumerate(series.y) if y is not None and i not in series.hollow]
    hollow = [i for i, y in enumerate(series.y) if y is not None and i in series.hollow]
    return Drawing(
        series=series,
        id=name,
        symbol=SYMBOLS[series.style.symbol],
        line="".join(_path(_points(series, run, frame)) for run in series.segments() if run[1:]),
        markers=_path(_points(series, solid, frame)),
        hollow=_path(_points(series, hollow, frame)),
        whiskers="".join(_whiskers(series, frame)),
        bands=tuple((_polygon(band, frame), band.strong) for band in series.bands),
        dash=DASHES[series.style.dash],
        labels=tuple((frame.at_x(x), frame.at_y(y), text) for x, y, text in series.labelled()),
    )


def _points(series: Series, indices: Iterable[int], frame: Frame) -> list[Place]:
    values = ((series.x[i], series.y[i]) for i in indices)
    return [frame.point(x, y) for x, y in values if y is not None]


def _path(points: Sequence[Place]) -> str:
    """Write a line as steps from point to point: equal steps are packed best."""
    if not points:
        return ""
    (x, y), *_ = points
    steps = [f"l{_pair(c - a, d - b)}" for (a, b), (c, d) in pairwise(points)]
    return f"M{_pair(x, y)}{''.join(steps)}"


def _pair(x: float, y: float) -> str:
    return f"{x:g}{y:g}" if y < 0 else f"{x:g} {y:g}"


def _polygon(band: Band, frame: Frame) -> str:
    there = [frame.point(x, y) for x, y in zip(band.x, band.high, strict=True)]
    back = [frame.point(x, y) for x, y in zip(band.x, band.low, strict=True)]
    return _path([*there, *reversed(back)]) + "z"


def _whiskers(series: Series, frame: Frame) -> Iterator[str]:
    for x, low, high in zip(series.x, series.low, series.high, strict=False):
        if low is not None and high is not None:
            yield f"M{_pair(*frame.point(x, low))}V{frame.at_y(high):g}"


def _lines(
    lines: Iterable[Line], frame: Frame
) -> Iterator[tuple[Line, str, str, str, float, float]]:
    for line in lines:
        path = _path([frame.point(x, y) for x, y in zip(line.x, line.y, strict=True)])
        end, anchor, across, up = LABELS[line.label_at]
        x, y = frame.at_x(line.x[end]) + across, frame.at_y(line.y[end]) + up
        yield line, path, DASHES[line.dash], anchor, x, y


def _box(strip: Strip, frame: Frame) -> Box:
    inside = [min(max(end, frame.x.low), frame.x.high) for end in (strip.start, strip.end)]
    left, right = (frame.at_x(end) for end in inside)
    return Box(strip.kind, strip_colour(strip.kind), strip.label, left, right - left)


def _lane_marks(marks: Iterable[Mark]) -> list[list[Mark]]:
    lanes: dict[str, list[Mark]] = {}
    for mark in marks:
        lanes.setdefault(mark.key, []).append(mark)
    return list(lanes.values())


def _lane(marks: list[Mark], frame: Frame, place: int) -> Lane:
    first = marks[0]
    top = round(frame.bottom + LANE_HEIGHT * (place + 0.6), 1)
    glyphs = tuple((frame.at_x(mark.x), glyph(mark.status), mark.note) for mark in marks)
    return Lane(first.name, first.style.colour, first.key, top, glyphs)


def glyph(status: str) -> str:
    """Return the sign of a case without a time: a cross when it failed, a dash when not tried."""
    return "–" if status in ("skipped", "unavailable") else "×"


@dataclass(frozen=True, slots=True)
class Spark:
    """A line without axes, 100 wide and 30 high; `one` is the height of a ratio of 1."""

    line: str
    end: str
    one: float


def sparkline(values: list[float]) -> Spark | None:
    """Draw positive values on a log scale, evenly spaced; None for fewer than two."""
    if len(values) < 2:
        return None
    logs = [math.log(value) for value in values]
    low, high = min(0.0, *logs), max(0.0, *logs)
    span = (high - low) or 1.0

    def place(index: int, value: float) -> str:
        return f"{100 * index / (len(logs) - 1):.1f} {28 - 26 * (value - low) / span:.1f}"

    points = [place(index, value) for index, value in enumerate(logs)]
    return Spark("M" + "L".join(points), points[-1], round(28 - 26 * (0 - low) / span, 1))
