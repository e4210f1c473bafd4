"""The pages over all ops: home, kernels, roofline. Each function returns files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from collector.history.model import Ceilings
from collector.record import OpInfo
from dashboard import format as words
from dashboard.book import Book
from dashboard.drawing import Drawn, compact, draw, inline, shard
from dashboard.findings import TIMER_WORDS, Finding, finding, view_words
from dashboard.metrics import geometric_mean
from dashboard.op_page import op_path
from dashboard.palette import Style, styles
from dashboard.regressions import CommitTable
from dashboard.roofline import Path, roofline_chart, roofline_table
from dashboard.svg import Spark, sparkline
from dashboard.views import Curves

File = tuple[str, bytes]
ROOF_FIELDS = ("d", "timer", "cache")
ROOF_PATHS = 8


@dataclass(frozen=True, slots=True)
class Summary:
    """One op in one line: its default view and what it says."""

    op: OpInfo
    path: str
    curves: Curves | None
    finding: Finding | None
    spark: Spark | None
    statuses: dict[str, int]

    @property
    def view_text(self) -> str:
        """Say what the line was measured with."""
        return view_words(self.curves.view) if self.curves else ""


def summaries(book: Book) -> list[Summary]:
    """Return a summary of every op."""
    return [_summary(book, op) for op in book.history.ops.values()]


def _summary(book: Book, op: OpInfo) -> Summary:
    curves = next(iter(book.views[op.name].values()), None)
    found = finding(book.scene(curves)) if curves else None
    spark = sparkline([ratio.value for _, ratio in found.ratios]) if found else None
    statuses: dict[str, int] = {}
    for line in curves.points.values() if curves else ():
        for point in line.values():
            statuses[point.status] = statuses.get(point.status, 0) + 1
    return Summary(op, op_path(op.name), curves, found, spark, statuses)


def home(book: Book, tables: tuple[CommitTable, ...]) -> Iterator[File]:
    """Answer in ten seconds: how fast, what changed, how fresh, on what."""
    lines = summaries(book)
    runs = sorted(book.history.runs.values(), key=lambda run: (run.started_at, run.run_id))
    newest = [table for table in tables if table.after.sha == tables[0].after.sha]
    counts: Counter[str] = Counter()
    for table in newest:
        counts.update(row.verdict for row in table.rows if not row.acknowledged)
    yield book.write(
        "index.md",
        "home.md.j2",
        "Kernel Almanac",
        lines=lines,
        mean=_overall(lines),
        counts=counts,
        newest=newest,
        latest=runs[-1] if runs else None,
        runs=runs,
    )


def _overall(lines: list[Summary]) -> tuple[float, int] | None:
    """Return the geometric mean of the ops' own means, and how many ops have one."""
    means = [line.finding.mean for line in lines if line.finding]
    mean = geometric_mean(means)
    return (mean, len(means)) if mean is not None else None


def kernels(book: Book) -> Iterator[File]:
    """List all ops with their best and worst."""
    yield book.write("kernels/index.md", "kernels.md.j2", "Kernels", lines=summaries(book))


# Roofline of all ops --------------------------------------------------------------------------


def roofline(book: Book) -> Iterator[File]:
    """Draw the best implementation of every op below the limits of one device."""
    groups = _roof_groups(book)
    if not groups:
        yield book.write("roofline.md", "nothing.md.j2", "Roofline")
        return
    index: dict[str, list[str]] = {}
    drawn: dict[str, tuple[Drawn, dict[str, str]]] = {}
    found = {choices: _findings(book, curves) for choices, curves in groups.items()}
    looks = styles([{_path_name(one): "triton" for every in found.values() for one in every}])
    for choices, scenes in groups.items():
        paths = [_roof_path(one, looks) for one in found[choices]]
        chart = roofline_chart(paths, _ceilings(book, scenes), "the op's axis")
        made = draw(chart, book.environment, roofline_table(paths, "size"))
        slots = {"roofs": _roof_rows(book, paths)}
        drawn["|".join(choices)] = made, slots
        content = {"charts": {"roofline": _entry(book, made)}, "slots": slots}
        full, where, script = shard(f"roofline-{words.slug('-'.join(choices))}", content)
        index["|".join(choices)] = [full]
        yield where, script
    yield _roof_page(book, groups, index, drawn)


def _roof_groups(book: Book) -> dict[tuple[str, str, str], list[Curves]]:
    """Group the best view of each op and type by device, timer and cache."""
    groups: dict[tuple[str, str, str], dict[tuple[str, str], Curves]] = {}
    for name, views in book.views.items():
        for view, curves in views.items():
            choices = (view.device, view.timer, view.cache)
            if view.timer != "submit":
                groups.setdefault(choices, {}).setdefault((name, view.dtype), curves)
    ordered = sorted(groups, key=lambda choices: _roof_preference(book, choices))
    return {choices: list(groups[choices].values()) for choices in ordered}


def _roof_preference(book: Book, choices: tuple[str, str, str]) -> tuple[object, ...]:
    device, timer, cache = choices
    return book.history.devices[device].kind != "cuda", timer != "graph", cache != "cold", device


def _findings(book: Book, curves: list[Curves]) -> list[Finding]:
    return [made for one in curves if (made := finding(book.scene(one)))][:ROOF_PATHS]


def _roof_path(found: Finding, looks: Mapping[str, Style]) -> Path:
    name = _path_name(found)
    return Path(name, name, looks[name], found.scene, found.name)


def _path_name(found: Finding) -> str:
    return f"{found.scene.curves.op.name} {found.name} {found.scene.curves.view.dtype}"


def _ceilings(book: Book, curves: list[Curves]) -> Ceilings | None:
    """Return the limits of the newest of these runs."""
    newest = max((one.run for one in curves), key=lambda run: (run.started_at, run.run_id))
    return book.history.ceilings.get(newest.run_id)


def _roof_rows(book: Book, paths: list[Path]) -> str:
    rows = []
    for path in paths:
        passed = path.scene.curves.passed(path.implementation)
        rows += [
            (path, size, passed[size], path.scene.roof(path.implementation, size))
            for size in sorted({min(passed), max(passed)})
        ]
    rows.sort(key=lambda row: -(row[3].fraction or 0) if row[3] else 0)
    template = book.environment.get_template("part_roofs.j2")
    return template.render(rows=rows, op_path=op_path, to=lambda t: book.links.to("roofline.md", t))


def _roof_page(
    book: Book,
    groups: dict[tuple[str, str, str], list[Curves]],
    index: dict[str, list[str]],
    drawn: dict[str, tuple[Drawn, dict[str, str]]],
) -> File:
    default = next(iter(groups))
    made, slots = drawn["|".join(default)]
    lookup = {"fields": ROOF_FIELDS, "default": "|".join(default), "views": index}
    keys = {s.key: s.style for one, _ in drawn.values() for s in one.chart.series}
    return book.write(
        "roofline.md",
        "roofline.md.j2",
        "Roofline",
        drawn=made,
        slots={name: Markup(html) for name, html in slots.items()},
        choices=_roof_choices(book, list(groups)),
        keys=keys,
        views_json=Markup(compact(lookup)),
        figures_json=inline({"roofline": made.figure}),
    )


def _roof_choices(book: Book, groups: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    made = []
    for place, (field, label) in enumerate(
        zip(ROOF_FIELDS, ("Device", "Timer", "Cache"), strict=True)
    ):
        values = list(dict.fromkeys(choices[place] for choices in groups))
        names = {value: value for value in values}
        if field == "d":
            names = {value: book.history.devices[value].name for value in values}
        if field == "timer":
            names = {value: f"{value} ({TIMER_WORDS[value]})" for value in values}
        made.append(
            {
                "name": field,
                "label": label,
                "options": list(names.items()),
                "chosen": groups[0][place],
            }
        )
    return made


def _entry(book: Book, drawn: Drawn) -> dict[str, Any]:
    macros = book.environment.get_template("macros.j2").module
    return {"html": str(macros.chart(drawn)), "figure": drawn.figure}  # type: ignore[attr-defined]
