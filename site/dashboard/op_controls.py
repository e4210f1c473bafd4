"""The controls of an op's page: what there is to choose from."""

from __future__ import annotations

from typing import Any

from collector.record import OpInfo
from dashboard import format as words
from dashboard.book import Book
from dashboard.findings import TIMER_WORDS
from dashboard.views import FIELDS, Curves, View


def choices(book: Book, views: list[View], default: View) -> list[dict[str, Any]]:
    """Return the controls that choose a view, each with its options."""
    labels = ("Device", "Type", "Sizes", "Mode", "Timer", "Cache")
    made = []
    several = len({view.axis for view in views}) > 1
    configs = {view.config: _config_text(view, several) for view in views}
    for place, (field, label) in enumerate(zip(FIELDS, labels, strict=True)):
        values = list(dict.fromkeys(view.choices[place] for view in views))
        options = [
            (v, configs[v] if field == "c" else _choice_text(book, field, v)) for v in values
        ]
        chosen = default.choices[place]
        made.append({"name": field, "label": label, "options": options, "chosen": chosen})
    return made


def _choice_text(book: Book, field: str, value: str) -> str:
    if field == "d":
        return book.history.devices[value].name
    if field == "timer":
        return f"{value} ({TIMER_WORDS[value]})"
    return value


def _config_text(view: View, along: bool) -> str:
    """Say which sizes are fixed, and along which the curves run where there is a choice."""
    fixed = ", ".join(f"{name} = {words.binary(size)}" for name, size in view.fixed) or "all"
    return f"{fixed}, along {view.axis}" if along else fixed


def implementations(book: Book, op: OpInfo) -> list[dict[str, Any]]:
    """Return every implementation that was measured, with how it is drawn."""
    summaries = {info.name: info.summary for info in op.implementations}
    names = dict.fromkeys(n for curves in book.views[op.name].values() for n in curves.names)
    return [
        {"name": name, "summary": summaries.get(name, ""), "style": book.styles[name]}
        for name in names
    ]


def baselines(book: Book, op: OpInfo) -> list[str]:
    """Return what speed-ups may be told against, the op's own choice first."""
    views = book.views[op.name].values()
    names = dict.fromkeys(n for c in views for n in c.names if c.passed(n))
    return [op.baseline, *(name for name in names if name != op.baseline)]


def sizes(book: Book, op: OpInfo) -> list[tuple[str, str]]:
    """Return the sizes that a history can be shown at: those along the op's axis first."""
    found: dict[tuple[bool, str, int], tuple[str, str]] = {}
    for curves in book.views[op.name].values():
        for size in {size for line in curves.history.values() for size in line}:
            place = (not curves.along_own_axis, curves.axis, size)
            found[place] = size_key(curves, size), f"{curves.axis} = {words.binary(size)}"
    return [("", "size with most commits"), *(found[place] for place in sorted(found))]


def size_key(curves: Curves, size: int) -> str:
    """Name a size in the keys of histories."""
    return str(size) if curves.along_own_axis else f"{curves.axis}={size}"
