"""What datasheets allow an op: a roofline of its cost below peaks that were not measured here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collector.history.datasheets import Card
from collector.history.model import Ceilings
from collector.history.roof import pipe_flops_per_s
from collector.record import CostRecord
from dashboard import format as words
from dashboard.charts import Chart, Series, Table, extent, log_axis
from dashboard.figures import Scene
from dashboard.palette import COLOURS, SYMBOLS, Style
from dashboard.pipeline import Cases, cases_of, find_case
from dashboard.roofline import cut, limit_lines, x_axis
from dashboard.views import view_of

SPECIAL_AS = (0, 20)  # operations that a special function may be counted as
WHOLE = Style("currentColor", "circle", "solid")
Elsewhere = Sequence[tuple[str, str, CostRecord]]  # implementation, sizes, cost
CAPTION = (
    "Datasheet, not measured: {card}, {memory}; {source}. Each point is the most that these peaks "
    "allow the op's cost model, along {axis}, hollow at other sizes; a special function counts as "
    "{special} operations. "
    "Paths of traffic divide by the bytes that an implementation is expected to move, others by "
    "minimal bytes."
)


@dataclass(frozen=True, slots=True)
class Work:
    """What a cost model counts at one size, with special functions as operations or as nothing."""

    at: str
    operations: int
    moved_bytes: int
    pipe: str

    @property
    def intensity(self) -> float:
        """Return operations over bytes."""
        return self.operations / self.moved_bytes

    def least_s(self, roofs: Ceilings) -> float | None:
        """Return the least time by memory and by the pipe."""
        pipe, memory = pipe_flops_per_s(roofs, self.pipe), roofs.memory_bytes_per_s
        if not pipe or not memory:
            return None
        return max(self.operations / pipe, self.moved_bytes / memory)


@dataclass(frozen=True, slots=True)
class TheoryPath:
    """The work of one way of counting, along the axis; `joined` by a line, or points alone."""

    name: str
    style: Style
    works: tuple[Work, ...]
    joined: bool = True


def counts_special(scene: Scene) -> bool:
    """Tell whether the cost of an op has special functions."""
    return any(cost.special_ops for cost in _costs(scene).values())


def theory_paths(scene: Scene, special: int) -> list[TheoryPath]:
    """Return the op by its minimal bytes, by modelled traffic, and the regions that it has.

    Of the op there are also the other sizes that were measured, as points alone.
    """
    others = _elsewhere(scene)
    made = _whole_paths(scene, others, None, special)
    for name in scene.curves.names:
        made += _whole_paths(scene, others, name, special)
    made += _region_paths(scene, special) if scene.curves.op.regions else []
    return [path for path in made if path.works]


def _whole_paths(
    scene: Scene, others: Elsewhere, traffic_of: str | None, special: int
) -> list[TheoryPath]:
    """Return the op along the axis and at other sizes, by minimal bytes or by modelled traffic."""
    title, style, traffic = "minimal bytes", WHOLE, traffic_of is not None
    if traffic_of is not None:
        title, style = f"traffic of {traffic_of}", scene.styles[traffic_of]
    names = [traffic_of] if traffic_of else None
    along = {_at(scene, size): cost for size, cost in _costs(scene, names).items()}
    apart = {at: cost for name, at, cost in others if traffic_of in (None, name)}
    return [
        TheoryPath(title, style, _works(along, special, traffic)),
        TheoryPath(f"{title}, other sizes", style, _works(apart, special, traffic), joined=False),
    ]


def _region_paths(scene: Scene, special: int) -> Iterator[TheoryPath]:
    cases = cases_of(scene.history, scene.curves)
    for place, region in enumerate(scene.curves.op.regions):
        costs = _distinct(_region_costs(scene, cases, region))
        yield TheoryPath(region, _region_style(place), _works(costs, special))


def _costs(scene: Scene, names: Iterable[str] | None = None) -> dict[int, CostRecord]:
    """Return the cost at each size, of any implementation: it is the same for all."""
    lines = [scene.curves.points[name] for name in names or scene.curves.names]
    found = {size: p.cost for line in lines for size, p in line.items() if p.cost}
    return dict(sorted(found.items()))


def _elsewhere(scene: Scene) -> Elsewhere:
    """Return the cost at all sizes of the same type and mode that the view does not show."""
    op, view = scene.curves.op.name, scene.curves.view
    found = []
    for key, points in scene.history.series.items():
        same = key.op == op and (key.dtype, key.mode) == (view.dtype, view.mode)
        elsewhere = same and view_of(key, view.axis).fixed != view.fixed
        if elsewhere and (cost := points[-1].cost):
            sizes = ", ".join(f"{name} {words.binary(size)}" for name, size in key.sizes)
            found.append((key.implementation, sizes, cost))
    return found


def _at(scene: Scene, size: int) -> str:
    return f"{scene.curves.axis} {words.binary(size)}"


def _works(
    costs: Mapping[str, CostRecord], special: int, by_traffic: bool = False
) -> tuple[Work, ...]:
    made = []
    for at, cost in costs.items():
        moved = (cost.traffic_bytes if by_traffic else cost.minimal_bytes) or 0
        operations = cost.flops + special * cost.special_ops
        if moved and operations:
            made.append(Work(at, operations, moved, cost.pipe))
    return tuple(made)


def _region_costs(scene: Scene, cases: Cases, region: str) -> dict[str, CostRecord]:
    """Return the cost of a region at each size of the pipeline where a run measured it."""
    curves = scene.curves
    found: dict[str, CostRecord] = {}
    for size in curves.axis_sizes:
        for name in cases.names.get(region, ()):
            key, _ = find_case(curves, cases, region, name, size)
            for point in scene.history.series[key] if key else ():
                if point.cost:
                    found[_at(scene, size)] = point.cost
    return found


def _distinct(costs: Mapping[str, CostRecord]) -> dict[str, CostRecord]:
    """Leave the first of equal costs: the work of some regions does not depend on the axis."""
    found: dict[tuple[int, int, int], tuple[str, CostRecord]] = {}
    for at, cost in costs.items():
        found.setdefault((cost.flops, cost.minimal_bytes, cost.special_ops), (at, cost))
    return dict(found.values())


def _region_style(place: int) -> Style:
    """Return the colour of a region in the stacked bars, with a symbol of its own."""
    colours = len(COLOURS) - 1
    return Style(COLOURS[place % colours], SYMBOLS[(place + 1) % len(SYMBOLS)], "dot")


def theory_chart(paths: Sequence[TheoryPath], axis: str, card: Card, special: int) -> Chart:
    """Draw the paths below the peaks of one card; nothing in it comes from a measurement."""
    roofs = card.roofs
    series = tuple(_series(path, roofs) for path in paths)
    intensities = [x for line in series for x in line.x]
    pipes = {work.pipe for path in paths for work in path.works}
    x = x_axis(intensities, roofs, pipes)
    lines = list(limit_lines(x, roofs, pipes, max(intensities, default=1.0)))
    low = min((y for y in extent(series) if y), default=1.0)
    heights = [*extent(series), *(y for line in lines for y in line.y if y >= low / 10)]
    y = log_axis("TFLOP/s at most", heights)
    return Chart(
        key="theory",
        title=f"Theoretical roofline of {card.name}",
        caption=CAPTION.format(
            card=card.name,
            memory=words.rate(roofs.memory_bytes_per_s, "B/s"),
            source=card.source,
            axis=axis,
            special=special,
        ),
        x=x,
        y=y,
        series=series,
        lines=tuple(cut(lines, y)),
    )


def _series(path: TheoryPath, roofs: Ceilings) -> Series:
    places = list(_places(path.works, roofs))
    x = tuple(work.intensity for work, _ in places)
    y = tuple(rate / 1e12 for _, rate in places)
    notes = tuple(
        f"{work.at}: {words.rate(rate, 'FLOP/s')} at most\n"
        f"{work.operations:,} operations, {work.moved_bytes:,} bytes"
        for work, rate in places
    )
    alone = frozenset() if path.joined else frozenset(range(len(x)))
    return Series(path.name, path.name, path.style, x, y, notes, breaks=alone, hollow=alone)


def _places(works: Iterable[Work], roofs: Ceilings) -> Iterator[tuple[Work, float]]:
    """Return the highest rate of each work that the card has a peak for."""
    for work in works:
        if (least_s := work.least_s(roofs)) is not None:
            yield work, work.operations / least_s


def theory_table(paths: Sequence[TheoryPath], card: Card) -> Table:
    """List what is counted, and the least time by the card's peaks."""
    rows = [
        (f"{path.name}, {work.at}", _cells(work, card.roofs))
        for path in paths
        for work in path.works
    ]
    heads = ("operations", "bytes", "FLOP per byte", "pipe", "TFLOP/s at most", "least time")
    return Table("path, sizes", heads, tuple(rows))


def _cells(work: Work, roofs: Ceilings) -> tuple[str, ...]:
    least_s = work.least_s(roofs) or math.inf
    rate = words.significant(work.operations / least_s / 1e12) if least_s < math.inf else ""
    return (
        f"{work.operations:,}",
        f"{work.moved_bytes:,}",
        words.significant(work.intensity),
        work.pipe,
        rate,
        words.duration(least_s * 1e9, 3) if least_s < math.inf else "",
    )
