"""The page of one op: its default view inline, the other views and variants as shards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup

from collector.history.datasheets import CARDS, Card
from collector.record import OpInfo
from dashboard import format as words
from dashboard.book import Book
from dashboard.drawing import Drawn, compact, draw, inline, picture, shard
from dashboard.elsewhere import elsewhere
from dashboard.figures import METRICS, Scene, metric_chart, speed_up_chart, status_words
from dashboard.findings import focus, lead, view_words
from dashboard.heat import heat
from dashboard.op_controls import baselines, choices, implementations, size_key, sizes
from dashboard.pipeline import breakdowns, pipelines_of
from dashboard.region_story import gist, signed, story
from dashboard.roofline import op_paths, roofline_chart, roofline_table
from dashboard.rows import Row, as_json, columns, command_of_all, quality_names, rows
from dashboard.scaling import over_ranks
from dashboard.stack import fills, stack_svg
from dashboard.sweeps import Sweep, query, sweep_chart, sweeps_beside
from dashboard.theory import (
    SPECIAL_AS,
    TheoryPath,
    counts_special,
    theory_chart,
    theory_paths,
    theory_table,
)
from dashboard.timeline import (
    COMMITS_SHOWN,
    RECENT,
    default_size,
    history_chart,
    sizes_of,
    timeline,
)
from dashboard.traffic import told, traffic
from dashboard.views import FIELDS, Curves, View

APART = ("bandwidth", "throughput", "theory")  # in files of their own: a page is to stay small
SOON = ("speedup", METRICS[0].key)  # near the top: figures further down come with the shards
File = tuple[str, bytes]
Shard = tuple[str, str, bytes]  # name, path, content
Theory = Mapping[int, tuple[TheoryPath, ...]]  # by the operations that a special function counts as


@dataclass(frozen=True, slots=True)
class Shown:
    """One view made ready: its charts and the pieces of HTML that belong to them."""

    scene: Scene
    charts: dict[str, Drawn]
    slots: dict[str, str]
    sweeps: list[Sweep]
    theory: Theory
    cases: list[Row]


def op_path(name: str) -> str:
    """Return where the page of an op is."""
    return f"kernels/{words.slug(name)}.md"


def op_files(book: Book, op: OpInfo) -> Iterator[File]:
    """Return the page of an op and its shards."""
    path, views = op_path(op.name), book.views[op.name]
    if not views:
        yield book.write(
            path,
            "op_empty.md.j2",
            op.title,
            op=op,
            notes=book.notes_on(op.name),
            pipelines=_pipelines(book, op),
        )
        return
    index: dict[str, list[str]] = {}
    first: Shown | None = None
    theory = any(counts_special(book.scene(curves)) for curves in views.values())
    spans = _spans(book, views.values())
    theories: dict[object, Shard] = {}
    for view, curves in views.items():
        shown = show(book, path, curves, theory)
        first = first or shown
        made = [shard(name, content) for name, content in _contents(book, shown, spans)]
        made += [_theory_shard(book, shown, theories)] if theory else []
        index[view.key] = [full for full, _, _ in made]
        yield from ((where, script) for _, where, script in made)
    if first is not None:
        pictures = _pictures(book, first)
        yield from pictures.values()
        ways = {key: book.links.to(path, where) for key, (where, _) in pictures.items()}
        yield _page(book, path, op, first, index, list(spans), ways)


def _pictures(book: Book, shown: Shown) -> dict[str, File]:
    """Draw the charts that a page shows as pictures until its script draws them."""
    name = words.slug(shown.scene.curves.op.name)
    charts = [
        drawn.chart for key, drawn in shown.charts.items() if key in APART and not drawn.chart.empty
    ]
    return {one.key: picture(f"{name}-{one.key}", one, book.environment) for one in charts}


def _spans(book: Book, views: Iterable[Curves]) -> dict[str, int]:
    """Return how many commits a history may show: only the last, or all where there are more."""
    longest = max(len(timeline(book.scene(curves)).commits) for curves in views)
    return {"recent": RECENT} | ({"all": COMMITS_SHOWN} if longest > RECENT else {})


def _contents(
    book: Book, shown: Shown, spans: Mapping[str, int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return what the shards of a view hold: what is there at first, and for the controls."""
    name, view = words.slug(shown.scene.curves.op.name), shown.scene.curves.view
    yield f"{name}-{_short_hash(view)}-a", _main(book, shown)
    yield f"{name}-{_short_hash(view)}-b", _variants(book, shown, spans)


def show(book: Book, path: str, curves: Curves, theory: bool = False) -> Shown:
    """Draw everything that a view shows at first."""
    scene = book.scene(curves)
    baseline = curves.op.baseline
    drawn = [draw(speed_up_chart(scene, baseline, focus(curves, baseline)), book.environment)]
    drawn += [draw(metric_chart(scene, metric), book.environment) for metric in METRICS]
    drawn.append(_roofline(book, scene, _best_and_baseline(curves)))
    times = timeline(scene, RECENT)
    drawn.append(draw(history_chart(times, default_size(times)), book.environment))
    paths = {special: tuple(theory_paths(scene, special)) for special in SPECIAL_AS}
    drawn += [_theory(book, paths, curves.axis, CARDS[0], SPECIAL_AS[0])] if theory else []
    sweeps = _sweeps(book, curves)
    charts = {one.chart.key: one for one in [*drawn, *(sweep.drawn for sweep in sweeps)]}
    cases = rows(scene, book.counted)
    slots = _slots(book, path, scene, sweeps, paths, cases)
    return Shown(scene, charts, slots, sweeps, paths, cases)


def _sweeps(book: Book, curves: Curves) -> list[Sweep]:
    """Draw the curves along other sizes that belong to a view."""
    views = book.views[curves.op.name]
    made = []
    for place, beside in enumerate(sweeps_beside(views, curves.view)):
        drawn = draw(sweep_chart(book.scene(beside), place), book.environment)
        made.append(Sweep(beside.axis, drawn, query(beside.view, next(iter(views)))))
    return made


def _slots(
    book: Book, path: str, scene: Scene, sweeps: list[Sweep], theory: Theory, found: list[Row]
) -> dict[str, str]:
    """Return the pieces of HTML that change with the view."""
    axis = scene.curves.axis
    pairs = heat(book.history, scene.curves.op, scene.curves.view)
    table = {
        "rows": found,
        "op": scene.curves.op,
        "axis": axis,
        "has": columns(found),
        "qualities": quality_names(found),
        "command": command_of_all(found),
        "unit": scene.curves.op.unit or scene.curves.op.axis,
    }
    return {
        "lead": str(lead(scene)),
        "run": _part(book, "part_run.j2", path, scene=scene, words=view_words(scene.curves.view)),
        "missing": _part(
            book,
            "part_missing.j2",
            path,
            missing=missing(scene),
            elsewhere=elsewhere(scene),
            axis=axis,
        ),
        "sweeps": _part(book, "part_sweeps.j2", path, sweeps=sweeps, filled=True),
        "heat": _part(book, "part_heat.j2", path, heat=pairs, **table),
        "columns": _part(book, "part_columns.j2", path, **table),
        "table": _part(book, "part_rows.j2", path, **table),
        "regions": _regions(book, path, scene),
        "ranks": _ranks(book, path, scene),
        "theory": _part(book, "part_paths.j2", path, paths=theory[SPECIAL_AS[0]]),
    }


def _regions(book: Book, path: str, scene: Scene) -> str:
    """Return the regions of a pipeline at each size; nothing for other ops."""
    curves, baseline = scene.curves, scene.curves.op.baseline
    found = [
        (one, stack_svg(one, book.environment), gist(one, baseline), story(one, baseline))
        for one in breakdowns(book.history, curves)
    ]
    return _part(
        book,
        "part_regions.j2",
        path,
        breakdowns=found,
        op=curves.op,
        axis=curves.axis,
        mode=curves.view.mode,
        fills=fills(len(curves.op.regions)),
        op_path=op_path,
        signed=signed,
        status_words=status_words,
    )


def _ranks(book: Book, path: str, scene: Scene) -> str:
    """Return what more ranks bring; nothing for ops that are not shared out."""
    curves, run = scene.curves, scene.curves.run
    ranked = over_ranks(book.history, curves)
    shared = {"axis": curves.axis, "info": run.ranks, "nccl": run.versions.get("nccl")}
    return _part(book, "part_scaling.j2", path, ranked=ranked, **shared)


def _pipelines(book: Book, op: OpInfo) -> list[tuple[str, str]]:
    """Return title and path of the pipelines that an op is a region of."""
    return [(one.title, op_path(one.name)) for one in pipelines_of(book.history, op.name)]


def _theory(book: Book, theory: Theory, axis: str, card: Card, special: int) -> Drawn:
    chart = theory_chart(theory[special], axis, card, special)
    return draw(chart, book.environment, theory_table(theory[special], card))


def _theory_shard(book: Book, shown: Shown, known: dict[object, Shard]) -> Shard:
    """Return what datasheets allow: of every card, by both ways to count special functions.

    It is made once for all views that count the same work along the same axis.
    """
    curves, theory = shown.scene.curves, shown.theory
    key = curves.axis, *theory.values()
    if key not in known:
        charts = {
            f"theory:{card.slug}:{special}": _entry(
                book, _theory(book, theory, curves.axis, card, special)
            )
            for card in CARDS
            for special in SPECIAL_AS
        }
        known[key] = shard(f"{words.slug(curves.op.name)}-theory", {"charts": charts})
    return known[key]


def _best_and_baseline(curves: Curves) -> list[str]:
    """Return what the roofline shows at first: of one op all paths lie above one another."""
    baseline = curves.op.baseline
    pair = (focus(curves, baseline), baseline)
    return [name for name in curves.names if name in pair] or list(curves.names)


def _roofline(book: Book, scene: Scene, names: Iterable[str]) -> Drawn:
    paths, axis = op_paths(scene, names), scene.curves.axis
    chart = roofline_chart(paths, scene.ceilings, axis)
    return draw(chart, book.environment, roofline_table(paths, axis))


def missing(scene: Scene) -> list[tuple[str, str, list[str]]]:
    """Group the cases without a time by implementation and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in scene.curves.names:
        for size, point in sorted(scene.curves.points[name].items()):
            if point.median_ns is None:
                found.setdefault((name, status_words(point)), []).append(words.binary(size))
    return [(name, why, sizes) for (name, why), sizes in found.items()]


def _main(book: Book, shown: Shown) -> dict[str, Any]:
    """Return what the script puts into the page; it fills the figures of a slot by itself."""
    charts = {key: _entry(book, drawn) for key, drawn in shown.charts.items()}
    shells = _part(book, "part_sweeps.j2", "", sweeps=shown.sweeps, filled=False)
    return {"charts": charts, "slots": shown.slots | {"sweeps": shells}}


def _variants(book: Book, shown: Shown, spans: Mapping[str, int]) -> dict[str, Any]:
    """Return what only a control asks for: other baselines and sizes of history, the cases."""
    scene, curves = shown.scene, shown.scene.curves
    made: dict[str, Any] = {}
    for name in curves.names:
        if name != curves.op.baseline and curves.passed(name):
            chart = speed_up_chart(scene, name, focus(curves, name))
            made[f"speedup:{name}"] = _entry(book, draw(chart, book.environment))
    for span, most in spans.items():
        made |= dict(_histories(book, scene, span, most))
    made["roofline:all"] = _entry(book, _roofline(book, scene, curves.names))
    return {"charts": made, "cases": [as_json(row) for row in shown.cases]}


def _histories(
    book: Book, scene: Scene, span: str, most: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the history at each size, and once more where no size is chosen."""
    times = timeline(scene, most)
    default = default_size(times)

    @cache
    def entry(size: int, relative: bool) -> dict[str, Any]:
        return _entry(book, draw(history_chart(times, size, relative), book.environment))

    for size in (None, *sizes_of(times)):
        at = size_key(scene.curves, size) if size else ""
        yield f"history:{at}:change:{span}", entry(size or default, True)
        yield f"history:{at}:time:{span}", entry(size or default, False)


def _entry(book: Book, drawn: Drawn) -> dict[str, Any]:
    macros = book.environment.get_template("macros.j2").module
    return {"html": str(macros.chart(drawn)), "figure": drawn.figure}  # type: ignore[attr-defined]


def _part(book: Book, template: str, path: str, **context: Any) -> str:
    def to(target: str) -> str:
        return book.links.to(path, target)

    made = book.environment.get_template(template)
    return made.render(to=to, here=path, links=book.links, history=book.history, **context)


def _page(
    book: Book,
    path: str,
    op: OpInfo,
    first: Shown,
    index: dict[str, list[str]],
    spans: list[str],
    pictures: Mapping[str, str],
) -> File:
    views = list(book.views[op.name])
    view = first.scene.curves.view
    lookup = {"fields": FIELDS, "default": view.key, "views": index}
    figures = {key: first.charts[key].figure for key in SOON}
    counted = traffic(book, op.name)
    return book.write(
        path,
        "op.md.j2",
        op.title,
        op=op,
        shown=first,
        pictures=pictures,
        notes=book.notes_on(op.name),
        traffic=counted,
        traffic_told=told(counted),
        slots={name: Markup(html) for name, html in first.slots.items()},
        choices=choices(book, views, view),
        implementations=implementations(book, op),
        baselines=[(name, name) for name in baselines(book, op)],
        sizes=sizes(book, op),
        spans=[(span, f"last {RECENT}" if span == "recent" else span) for span in spans],
        metrics=[(metric.key, metric.title.lower()) for metric in METRICS],
        pipelines=_pipelines(book, op),
        cards=[(card.slug, card.name) for card in CARDS],
        special_as=[(str(count), f"{count} operations") for count in SPECIAL_AS],
        views_json=Markup(compact(lookup)),
        figures_json=inline(figures),
    )


def _short_hash(view: View) -> str:
    return hashlib.sha256(view.key.encode()).hexdigest()[:6]
