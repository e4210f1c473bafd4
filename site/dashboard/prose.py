"""Pages that people write, with numbers and figures of the records: Markdown, then Jinja."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from collector.history.model import Ceilings, Point
from collector.history.rates import intensity_flops_per_byte, tflop_per_s
from collector.history.roof import Roof, pipe_flops_per_s
from dashboard import format as words
from dashboard.book import Book
from dashboard.charts import Chart, Series, log_axis, size_axis
from dashboard.drawing import draw
from dashboard.facts import device_path
from dashboard.figures import METRICS, REGIME_WORDS, Scene, metric_chart, speed_up_chart
from dashboard.findings import Finding, finding, view_words
from dashboard.op_page import op_path
from dashboard.palette import Style
from dashboard.roofline import op_paths, roofline_chart
from dashboard.trust import trust
from dashboard.views import Curves

File = tuple[str, bytes]
MARKDOWN_SIGNS = re.compile(r"[\\`*_{}\[\]()#+!|~-]")
COLD, HOT = Style("#0072B2", "circle", "solid"), Style("#D55E00", "square", "dash")
NOTHING = Markup('<p class="ka-nothing">No records to draw this from yet.</p>')
LEAST = {
    "latency": "an empty kernel",
    "memory": "minimal bytes over the measured bandwidth of memory",
    "l2": "minimal bytes over the measured bandwidth of the cache",
    "compute": "flops over the measured rate of their unit",
    "special": "special functions over their measured rate",
    "link": "bytes sent over the measured rate of the links",
}


@dataclass(frozen=True, slots=True)
class Example:
    """One measured point, worked out: the largest size of an op that several limits bind."""

    found: Finding
    point: Point
    roof: Roof
    ceilings: Ceilings

    @property
    def scene(self) -> Scene:
        """Return what the charts of the op share."""
        return self.found.scene

    @property
    def limits(self) -> list[tuple[str, str, float]]:
        """Return name, meaning and least time of each limit, the longest first."""
        times = sorted(self.roof.limits_ns.items(), key=lambda pair: -pair[1])
        return [(name, LEAST[name], time_ns) for name, time_ns in times]


def read_written(docs: Path) -> dict[str, str]:
    """Return the pages that may ask for numbers: those at the top of the documents."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(docs.glob("*.md"))}


def written(book: Book, texts: Mapping[str, str]) -> Iterator[File]:
    """Fill in what the pages ask for; what a value says is text, never Markdown or HTML."""
    environment = book.environment.overlay(finalize=inert)
    values = _values(book)
    for path, text in texts.items():
        filled = environment.from_string(text).render(values)
        yield path, f"{filled.rstrip()}\n".encode()


def inert(value: Any) -> Any:
    """Write the signs of Markdown in a value as entities, which mean nothing but themselves."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return Markup(MARKDOWN_SIGNS.sub(lambda sign: f"&#{ord(sign[0])};", str(escape(value))))


def _values(book: Book) -> dict[str, Any]:
    example = _example(book)
    return {
        "example": _told(example) if example else None,
        "unchanged": [one for one in trust(book.index) if one.intervals],
        "history": book.history,
        "op_page": lambda name: Markup(quote(op_path(name))),
        "device_page": lambda slug: Markup(quote(device_path(slug))),
        "figure": _figures(book, example),
    }


def _example(book: Book) -> Example | None:
    """Choose the op whose fastest kernel meets the most different limits along its axis."""
    firsts = (next(iter(views.values()), None) for views in book.views.values())
    made = [one for curves in firsts if curves and (one := _of(book, curves))]
    return max(made, key=_variety, default=None)


def _of(book: Book, curves: Curves) -> Example | None:
    found = finding(book.scene(curves))
    if found is None or not curves.view.timed_on_device or curves.run.device.kind != "cuda":
        return None
    point, ceilings = curves.passed(found.name)[found.largest], found.scene.ceilings
    if found.roof is None or ceilings is None or point.cost is None or not point.cost.flops:
        return None
    return Example(found, point, found.roof, ceilings)


def _variety(example: Example) -> tuple[int, int]:
    scene, name = example.scene, example.found.name
    roofs = (scene.roof(name, size) for size in scene.curves.passed(name))
    return len({one.regime for one in roofs if one}), len(scene.curves.passed(name))


def _told(example: Example) -> dict[str, Any]:
    """Return the numbers of an example as words."""
    point, ceilings, curves = example.point, example.ceilings, example.scene.curves
    cost, roof = point.cost, example.roof
    assert cost is not None
    memory, pipe = ceilings.memory_bytes_per_s, pipe_flops_per_s(ceilings, cost.pipe)
    return {
        "op": curves.op,
        "name": example.found.name,
        "device": curves.run.device.name,
        "measured_with": view_words(curves.view),
        "where": f"{curves.axis} = {words.binary(example.found.largest)}",
        "flops": words.compact(cost.flops),
        "bytes": words.rate(cost.minimal_bytes, "B"),
        "special": words.compact(cost.special_ops) if cost.special_ops else "",
        "intensity": words.significant(intensity_flops_per_byte(point) or 0),
        "rate": words.significant(tflop_per_s(point) or 0),
        "time": words.duration(point.median_ns),
        "limits": [(name, why, words.duration(ns)) for name, why, ns in example.limits],
        "least": words.duration(roof.time_ns),
        "regime": REGIME_WORDS[roof.regime or "latency"],
        "share": words.percent(roof.fraction or 0),
        "pipe": cost.pipe,
        "memory": words.rate(memory, "B/s") if memory else "",
        "ridge": words.significant(pipe / memory) if pipe and memory else "",
        "floor": words.duration(ceilings.floor_graph_ns),
    }


# Figures ------------------------------------------------------------------------------------------


def _figures(book: Book, example: Example | None) -> Callable[[str], Markup]:
    """Return what draws a figure by its name; each names the op that it shows."""
    makers: dict[str, Callable[[Example], Chart | None]] = {
        "roofline": _roofline,
        "share": _share,
        "time": lambda one: metric_chart(one.scene, METRICS[0]),
        "speedup": lambda one: speed_up_chart(one.scene, one.found.baseline, one.found.name),
        "caches": partial(_caches, book),
    }

    def figure(name: str) -> Markup:
        chart = makers[name](example) if example else None
        return _figure(book, example, chart) if example and chart else NOTHING

    return figure


def _figure(book: Book, example: Example, chart: Chart) -> Markup:
    curves = example.scene.curves
    how = view_words(curves.view)
    how = how.replace(f"{curves.view.cache} cache, ", "") if chart.key == "caches" else how
    caption = f"{curves.op.title} on {curves.run.device.name}, {how}. {chart.caption}"
    drawn = draw(replace(chart, caption=caption), book.environment)
    keys = {line.name: line.style for line in chart.series}
    keys |= {mark.name: mark.style for mark in chart.marks}
    template = book.environment.get_template("part_figure.j2")
    return Markup(re.sub(r"\n\s*", "\n", template.render(drawn=drawn, keys=keys).strip()))


def _roofline(example: Example) -> Chart:
    names = list(dict.fromkeys([example.found.name, example.found.baseline]))
    paths = op_paths(example.scene, names)
    return roofline_chart(paths, example.ceilings, example.scene.curves.axis)


def _share(example: Example) -> Chart:
    """Draw how much of its roof the example reaches at each size."""
    scene, name = example.scene, example.found.name
    time = metric_chart(scene, METRICS[0])
    roofs = [(size, scene.roof(name, size)) for size in sorted(scene.curves.passed(name))]
    shares = [(float(size), 100 * one.fraction) for size, one in roofs if one and one.fraction]
    x, y = zip(*shares, strict=True)
    line = Series(name, name, scene.styles[name], x, y, ("",) * len(x))
    return replace(
        time, key="share", title="Share of the roof", series=(line,), lines=(), marks=(),
        y=log_axis("% of the roof", [*y, 100.0]),
        caption="Least time by the limits over the measured time; the strips name the limit.",
    )  # fmt: skip


def _caches(book: Book, example: Example) -> Chart | None:
    """Draw one implementation with inputs in memory and in the cache."""
    curves, name = example.scene.curves, example.found.name
    warm = book.views[curves.op.name].get(replace(curves.view, cache="hot"))
    if warm is None or name not in warm.names:
        return None
    lines = [_line("cold", COLD, curves, name), _line("hot", HOT, warm, name)]
    values = [y for line in lines for y in line.y]
    return Chart(
        key="caches", title="Cold and hot", series=tuple(lines),
        caption=f"Median time of {name}, inputs in memory or, as far as they fit, in the cache.",
        x=size_axis(curves.axis, curves.axis_sizes), y=log_axis("time of one call (µs)", values),
    )  # fmt: skip


def _line(state: str, style: Style, curves: Curves, name: str) -> Series:
    points = sorted(curves.passed(name).items())
    pairs = [(float(size), point.median_ns / 1e3) for size, point in points if point.median_ns]
    x, y = zip(*pairs, strict=True)
    return Series(state, state, style, x, y, ("",) * len(x))
