"""A chart as a Plotly figure without a template; the page's script adds the theme's colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from dashboard.charts import Axis, Band, Chart, Line, Mark, Series, Strip
from dashboard.palette import strip_colour

Json = dict[str, Any]

LABELS = {
    "end": (-1, "top left"),
    "middle": (1, "top left"),
    "start": (0, "top right"),
    "below": (0, "bottom right"),
    "beside": (1, "bottom right"),
    "under": (-1, "bottom left"),
}
LANE_SHARE = 0.045
STATUS_SYMBOLS = {"skipped": "line-ew-open", "unavailable": "line-ew-open"}


def plotly(chart: Chart) -> Json:
    """Return traces and layout with the same data as the SVG."""
    keys = list(dict.fromkeys(mark.key for mark in chart.marks))
    traces = [_line(line) for line in chart.lines]
    traces += [trace for series in chart.series for trace in _series(series, chart.x)]
    traces += [_marks([m for m in chart.marks if m.key == key], keys.index(key)) for key in keys]
    return {"data": traces, "layout": _layout(chart, len(keys))}


def escape(text: str) -> str:
    """Take the meaning out of what Plotly would read as markup; lines stay lines."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("\n", "<br>")


def tint(colour: str, alpha: float) -> str:
    """Return a colour with transparency; the theme's own colour becomes a middle grey."""
    digits = "808080" if colour == "currentColor" else colour.removeprefix("#")
    red, green, blue = (int(digits[place : place + 2], 16) for place in (0, 2, 4))
    return f"rgba({red},{green},{blue},{alpha})"


def along(axis: Axis, value: float) -> float:
    """Return a place as ranges and annotations want it: log axes count in powers of ten there."""
    return value if axis.scale == "linear" else math.log10(value)


def _series(series: Series, axis: Axis) -> Iterator[Json]:
    for band in series.bands:
        yield _band(band, series)
    x, y, notes, hollow = _with_gaps(series)
    trace: Json = {
        "type": "scatter",
        "mode": "lines+markers",
        "meta": series.key,
        "name": escape(series.name),
        "x": x,
        "y": y,
        "text": [escape(note) for note in notes],
        "hovertemplate": f"<b>{escape(series.name)}</b><br>%{{text}}<extra></extra>",
        "line": {"color": series.style.colour, "dash": series.style.dash, "width": 2},
        "marker": _marker(series, hollow),
    }
    if series.low:
        trace["error_y"] = _whiskers(series)
    yield trace
    if labelled := series.labelled():
        yield _values(labelled, series)


def _values(labelled: list[tuple[float, float, str]], series: Series) -> Json:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "meta": series.key,
        "name": escape(series.name),
        "x": [x for x, _, _ in labelled],
        "y": [y for _, y, _ in labelled],
        "text": [escape(text) for _, _, text in labelled],
        "textposition": "top center",
        "textfont": {"size": 11},
        "marker": {"size": 14, "opacity": 0},
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _with_gaps(series: Series) -> tuple[list[float], list[float | None], list[str], list[bool]]:
    """Put an empty point wherever the line must break."""
    rows: list[tuple[float, float | None, str, bool]] = []
    for i, (x, y, note) in enumerate(zip(series.x, series.y, series.notes, strict=True)):
        if i in series.breaks:
            rows.append((x, None, "", False))
        rows.append((x, y, note, i in series.hollow))
    xs, ys, notes, hollow = zip(*rows, strict=True) if rows else ((), (), (), ())
    return list(xs), list(ys), list(notes), list(hollow)


def _marker(series: Series, hollow: list[bool]) -> Json:
    symbol = series.style.symbol
    made: Json = {"symbol": symbol, "size": 8, "color": series.style.colour}
    if any(hollow):
        made["symbol"] = [symbol + "-open" * flag for flag in hollow]
        made["line"] = {"width": [2 * flag for flag in hollow]}
    return made


def _whiskers(series: Series) -> Json:
    above: list[float | None] = []
    below: list[float | None] = []
    for i, (y, low, high) in enumerate(zip(series.y, series.low, series.high, strict=True)):
        if i in series.breaks:
            above.append(None)
            below.append(None)
        whole = y is not None and low is not None and high is not None
        above.append(high - y if whole else None)  # type: ignore[operator]
        below.append(y - low if whole else None)  # type: ignore[operator]
    shape = {"type": "data", "symmetric": False, "thickness": 1.2, "width": 3}
    return {**shape, "color": series.style.colour, "array": above, "arrayminus": below}


def _band(band: Band, series: Series) -> Json:
    colour = series.style.colour
    return {
        "type": "scatter",
        "mode": "lines",
        "meta": series.key,
        "name": escape(f"{series.name}, {band.label}"),
        "x": [*band.x, *reversed(band.x)],
        "y": [*band.high, *reversed(band.low)],
        "fill": "toself",
        "fillcolor": tint(colour, 0.26 if band.strong else 0.15),
        "line": {"color": tint(colour, 0.3), "width": 0.5},
        "hoverinfo": "skip",
    }


def _line(line: Line) -> Json:
    place, position = LABELS[line.label_at]
    texts = [""] * len(line.x)
    texts[place] = escape(line.label)
    return {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": escape(line.label),
        "marker": {"size": 4, "opacity": 0},
        "x": list(line.x),
        "y": list(line.y),
        "text": texts,
        "textposition": position,
        "line": {"color": "currentColor", "dash": line.dash, "width": 1.4},
        "opacity": 0.75,
        "hoverinfo": "skip",
    }


def _marks(marks: list[Mark], lane: int) -> Json:
    first = marks[0]
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": first.key,
        "name": escape(first.name),
        "yaxis": "y2",
        "x": [mark.x for mark in marks],
        "y": [-lane for _ in marks],
        "text": [escape(mark.note) for mark in marks],
        "hovertemplate": f"<b>{escape(first.name)}</b><br>%{{text}}<extra></extra>",
        "marker": {
            "symbol": [STATUS_SYMBOLS.get(mark.status, "x-thin-open") for mark in marks],
            "size": 8,
            "color": first.style.colour,
            "line": {"width": 2},
        },
    }


def _layout(chart: Chart, lanes: int) -> Json:
    foot = LANE_SHARE * lanes
    layout: Json = {
        "xaxis": {**_axis(chart.x), "anchor": "y2" if lanes else "y"},
        "yaxis": {**_axis(chart.y), "domain": [foot + 0.02 if lanes else 0, 1]},
        "showlegend": False,
        "hovermode": "closest",
        "shapes": [*_boxes(chart.strips, 0.07), *_boxes(chart.spans, 0.12), *_rules(chart.rules)],
        "annotations": [*_labels(chart, 1.0, "bottom", [*chart.strips, *chart.rules])],
    }
    layout["annotations"] += _labels(chart, 1.0, "top", chart.spans)
    if lanes:
        silent = {"visible": False, "fixedrange": True}
        layout["yaxis2"] = {**silent, "domain": [0, foot], "range": [0.5 - lanes, 0.5]}
    return layout


def _axis(axis: Axis) -> Json:
    made: Json = {
        "title": {"text": escape(axis.title)},
        "type": "linear" if axis.scale == "linear" else "log",
        "range": [along(axis, axis.low), along(axis, axis.high)],
        "tickvals": [value for value, _ in axis.ticks],
        "ticktext": [escape(label) for _, label in axis.ticks],
        "zeroline": False,
    }
    return made


def _boxes(strips: Iterable[Strip], opacity: float) -> Iterator[Json]:
    for strip in strips:
        yield {
            "type": "rect",
            "name": strip.kind,
            "xref": "x",
            "yref": "paper",
            "x0": strip.start,
            "x1": strip.end,
            "y0": 0,
            "y1": 1,
            "fillcolor": strip_colour(strip.kind),
            "opacity": opacity,
            "line": {"width": 0},
            "layer": "below",
        }


def _rules(rules: Iterable[Strip]) -> Iterator[Json]:
    for rule in rules:
        place = {"x0": rule.start, "x1": rule.start, "y0": 0, "y1": 1}
        line = {"color": "currentColor", "width": 1, "dash": "dot"}
        yield {"type": "line", "xref": "x", "yref": "paper", **place, "line": line}


def _labels(chart: Chart, y: float, anchor: str, strips: Iterable[Strip]) -> Iterator[Json]:
    for place, strip in enumerate(strips):
        ends = [along(chart.x, min(max(end, chart.x.low), chart.x.high)) for end in _ends(strip)]
        share = (ends[1] - ends[0]) / (along(chart.x, chart.x.high) - along(chart.x, chart.x.low))
        if anchor == "bottom" and strip.start != strip.end and share < 0.011 * len(strip.label):
            continue
        yield {
            "text": escape(strip.label),
            "x": sum(ends) / 2,
            "y": y,
            "yshift": -14 * place if anchor == "top" else 0,
            "xref": "x",
            "yref": "paper",
            "yanchor": anchor,
            "showarrow": False,
        }


def _ends(strip: Strip) -> tuple[float, float]:
    return strip.start, strip.end
