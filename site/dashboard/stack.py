"""Stacked bars of a pipeline: its regions one behind the other, and a mark at the end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment
from markupsafe import Markup

from dashboard import format as words
from dashboard.palette import COLOURS
from dashboard.pipeline import Breakdown, Column

WIDTH, TOP, ROW, BAR = 720, 6, 50, 20
LEFT, RIGHT, FOOT = 8, 24, 44
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
NUMBER_FITS = 16  # drawing units, for a number on the narrow screen of a phone
TIME_FITS = 160  # the same for a number and a time


@dataclass(frozen=True, slots=True)
class Segment:
    """One region in a bar, in drawing units; `number` is its place in the pipeline."""

    number: int
    left: float
    width: float
    note: str
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One implementation: what it says, its regions, and where its end to end lies."""

    name: str
    note: str
    top: float
    segments: tuple[Segment, ...]
    end: float | None


def stack_svg(breakdown: Breakdown, environment: Environment) -> Markup:
    """Draw the bars of one size, each on a scale of its own: end to end is as long in all of them.

    Times differ a hundredfold between implementations; what they consist of is seen this way.
    """
    columns = breakdown.columns
    longest = max((_length(one) for one in columns), default=0.0)
    if not longest:
        return Markup("")
    scale = (WIDTH - LEFT - RIGHT) / longest
    bottom = TOP + ROW * len(columns)
    template = environment.get_template("stack.svg.j2")
    return Markup(
        template.render(
            bars=[_bar(column, scale, place) for place, column in enumerate(columns)],
            ticks=[(LEFT + t * scale, words.percent(t)) for t in TICKS if t <= longest],
            size=(WIDTH, bottom + FOOT, LEFT, bottom, BAR),
            label=_label(breakdown),
        )
    )


def _length(column: Column) -> float:
    """Return the length of a bar in times its end to end."""
    if not column.whole_ns:
        return 1.0 if column.sum_ns else 0.0
    return max(1.0, (column.sum_ns or 0.0) / column.whole_ns)


def fills(count: int) -> list[tuple[int, str]]:
    """Return the number and colour of each region; the pattern goes by the number."""
    return [(place + 1, COLOURS[place % (len(COLOURS) - 1)]) for place in range(count)]


def _bar(column: Column, scale: float, place: int) -> Bar:
    unit = column.whole_ns or column.sum_ns or 1.0
    end = LEFT + scale if column.whole_ns is not None else None
    segments = tuple(_segments(column, scale / unit)) if column.sum_ns is not None else ()
    return Bar(column.name, _bar_note(column), TOP + ROW * place, segments, end)


def _segments(column: Column, scale: float) -> Iterator[Segment]:
    left = float(LEFT)
    for place, part in enumerate(column.parts):
        width = (part.time_ns or 0.0) * scale
        share = words.percent(column.of_sum(part))
        note = f"{part.op} {words.duration(part.time_ns, 3)}, {share} of the sum"
        label = str(place + 1) if width >= NUMBER_FITS else ""
        label = f"{label}: {words.duration(part.time_ns, 3)}" if width >= TIME_FITS else label
        yield Segment(place + 1, round(left, 1), round(width, 1), note, label)
        left += width


def _bar_note(column: Column) -> str:
    """Say what the bar shows, and what it cannot."""
    whole = f"end to end {words.duration(column.whole_ns, 3)}" if column.whole_ns else ""
    if not column.parts:
        regions = "no separate regions"
    elif column.sum_ns is None:
        regions = "regions not all measured"
    else:
        regions = f"regions {words.duration(column.sum_ns, 3)}"
    return ", ".join(filter(None, (regions, whole or "end to end without a time")))


def _label(breakdown: Breakdown) -> str:
    told = "; ".join(f"{one.name}: {_bar_note(one)}" for one in breakdown.columns)
    return f"Regions stacked, and the time end to end. {told}"
