"""The roofline of all ops on one device: the best implementation of each as one path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from collector.history.model import Ceilings
from dashboard import format as words
from dashboard.book import Book
from dashboard.drawing import Drawn, compact, draw, inline, shard
from dashboard.findings import TIMER_WORDS, Finding, finding
from dashboard.op_page import op_path
from dashboard.palette import Style, styles
from dashboard.roofline import Path, roofline_chart, roofline_table
from dashboard.rows import as_json, rows
from dashboard.views import Curves

File = tuple[str, bytes]
LABELS = {"d": "Device", "t": "Type", "timer": "Timer", "cache": "Cache"}
USUAL = "usual"


class Choice(NamedTuple):
    """What the controls of the page choose, in their order."""

    device: str
    dtype: str
    timer: str
    cache: str

    @property
    def key(self) -> str:
        """Name the choice as the page's script looks it up."""
        return "|".join(self)


class Shown(NamedTuple):
    """The chart of one choice, its table, and the cases that it draws."""

    drawn: Drawn
    slots: dict[str, str]
    cases: list[dict[str, Any]]


def roofline(book: Book) -> Iterator[File]:
    """Draw the best implementation of every op below the limits of one device."""
    groups = _groups(book)
    if not groups:
        yield book.write("roofline.md", "nothing.md.j2", "Roofline")
        return
    looks = styles([dict.fromkeys(book.history.ops, "triton")])
    made = {choice: _shown(book, curves, looks) for choice, curves in groups.items()}
    index: dict[str, list[str]] = {}
    for choice, shown in made.items():
        charts = {"roofline": _entry(book, shown.drawn)}
        content = {"charts": charts, "slots": shown.slots, "cases": shown.cases}
        full, where, script = shard(f"roofline-{words.slug('-'.join(choice))}", content)
        index[choice.key] = [full]
        yield where, script
    yield _page(book, made, index)


def _groups(book: Book) -> dict[Choice, list[Curves]]:
    """Return the best view of each op for every choice; a type of their own where none is asked."""
    groups: dict[Choice, dict[str, Curves]] = {}
    for name, views in book.views.items():
        for view, curves in views.items():
            for dtype in (USUAL, view.dtype) if view.timer != "submit" else ():
                choice = Choice(view.device, dtype, view.timer, view.cache)
                groups.setdefault(choice, {}).setdefault(name, curves)
    ordered = sorted(groups, key=lambda choice: _preference(book, choice))
    return {choice: list(groups[choice].values()) for choice in ordered}


def _preference(book: Book, choice: Choice) -> tuple[object, ...]:
    kind = book.history.devices[choice.device].kind
    usual = choice.dtype == USUAL
    return kind != "cuda", not usual, choice.timer != "graph", choice.cache != "cold", choice


def _shown(book: Book, curves: list[Curves], looks: Mapping[str, Style]) -> Shown:
    found = [made for one in curves if (made := finding(book.scene(one)))]
    paths = [_path(one, looks) for one in found]
    chart = roofline_chart(paths, _ceilings(book, curves), "the op's axis")
    drawn = draw(chart, book.environment, roofline_table(paths, "size"))
    return Shown(drawn, {"roofs": _rows(book, paths)}, list(_cases(paths)))


def _path(found: Finding, looks: Mapping[str, Style]) -> Path:
    name = found.scene.curves.op.name
    return Path(name, name, looks[name], found.scene, found.name)


def _cases(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """Return the points of all paths, each with the line that it belongs to."""
    for path in paths:
        for row in rows(path.scene):
            if row.key.implementation == path.implementation and row.point.median_ns is not None:
                yield {"line": path.key, **as_json(row)}


def _ceilings(book: Book, curves: list[Curves]) -> Ceilings | None:
    """Return the limits of the newest of these runs."""
    newest = max((one.run for one in curves), key=lambda run: (run.started_at, run.run_id))
    return book.history.ceilings.get(newest.run_id)


def _rows(book: Book, paths: list[Path]) -> str:
    found = []
    for path in paths:
        passed = path.scene.curves.passed(path.implementation)
        found += [
            (path, size, passed[size], path.scene.roof(path.implementation, size))
            for size in sorted({min(passed), max(passed)})
        ]
    found.sort(key=lambda row: -(row[3].fraction or 0) if row[3] else 0)
    template = book.environment.get_template("part_roofs.j2")
    return template.render(
        rows=found, op_path=op_path, to=lambda t: book.links.to("roofline.md", t)
    )


def _page(book: Book, made: dict[Choice, Shown], index: dict[str, list[str]]) -> File:
    default, first = next(iter(made.items()))
    lookup = {"fields": list(LABELS), "default": default.key, "views": index}
    keys = {line.key: line.style for one in made.values() for line in one.drawn.chart.series}
    return book.write(
        "roofline.md",
        "roofline.md.j2",
        "Roofline",
        drawn=first.drawn,
        slots={name: Markup(html) for name, html in first.slots.items()},
        choices=[_control(book, list(made), place) for place in range(len(LABELS))],
        keys=keys,
        views_json=Markup(compact(lookup)),
        figures_json=inline({"roofline": first.drawn.figure}),
    )


def _control(book: Book, choices: list[Choice], place: int) -> dict[str, Any]:
    """Return one control with its options."""
    field, label = list(LABELS.items())[place]
    values = dict.fromkeys(choice[place] for choice in choices)
    options = [(value, _option(book, field, value)) for value in values]
    return {"name": field, "label": label, "options": options, "chosen": choices[0][place]}


def _option(book: Book, field: str, value: str) -> str:
    if field == "d":
        return book.history.devices[value].name
    if field == "timer":
        return f"{value} ({TIMER_WORDS[value]})"
    return "of each op's first view" if value == USUAL else value


def _entry(book: Book, drawn: Drawn) -> dict[str, Any]:
    macros = book.environment.get_template("macros.j2").module
    return {"html": str(macros.chart(drawn)), "figure": drawn.figure}  # type: ignore[attr-defined]
