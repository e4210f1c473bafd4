"""A pipeline and the ops that it consists of: what each region takes of the whole. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from collector.history.model import History, Point, SeriesKey
from collector.history.roof import Roof, roof_in
from collector.record import OpInfo
from dashboard import format as words
from dashboard.figures import status_words
from dashboard.views import Curves


@dataclass(frozen=True, slots=True)
class Part:
    """One region of one implementation; `at` names the size of its case where it differs."""

    op: str
    point: Point | None
    roof: Roof | None
    at: str

    @property
    def time_ns(self) -> float | None:
        """Return its time, None where there is none."""
        return self.point.median_ns if self.point else None

    @property
    def why(self) -> str:
        """Say why there is no time."""
        return status_words(self.point) if self.point else "not measured"


@dataclass(frozen=True, slots=True)
class Column:
    """One implementation of the pipeline at one size; no parts where none has its name."""

    name: str
    whole: Point
    parts: tuple[Part, ...]

    @property
    def whole_ns(self) -> float | None:
        """Return the time end to end."""
        return self.whole.median_ns

    @property
    def sum_ns(self) -> float | None:
        """Return the sum of the regions; None unless every region has a time."""
        times = [part.time_ns for part in self.parts]
        known = [time for time in times if time is not None]
        return math.fsum(known) if known and len(known) == len(times) else None

    @property
    def rest_ns(self) -> float | None:
        """Return the time end to end minus the sum: below zero where regions are done together."""
        if self.whole_ns is None or self.sum_ns is None:
            return None
        return self.whole_ns - self.sum_ns

    @property
    def rest_error_ns(self) -> float:
        """Return half the width of its 95 % interval: the errors are independent."""
        points = [self.whole, *(part.point for part in self.parts if part.point)]
        return math.hypot(*(half_width_ns(point) for point in points))

    def of_sum(self, part: Part) -> float | None:
        """Return the share of a region in the sum."""
        return _share(part.time_ns, self.sum_ns)

    def of_whole(self, part: Part) -> float | None:
        """Return the time of a region over the time end to end."""
        return _share(part.time_ns, self.whole_ns)

    @property
    def binding(self) -> Part | None:
        """Return the region that takes the most; None unless every region has a time."""
        if self.sum_ns is None:
            return None
        return max(self.parts, key=lambda part: part.time_ns or 0.0)

    def over(self, other: Column | None) -> float | None:
        """Return how many times faster this one is end to end."""
        return _share(other.whole_ns, self.whole_ns) if other else None


@dataclass(frozen=True, slots=True)
class Breakdown:
    """All implementations of a pipeline at one size along its axis."""

    size: int
    columns: tuple[Column, ...]

    def named(self, name: str) -> Column | None:
        """Return the column of an implementation."""
        return next((one for one in self.columns if one.name == name), None)

    def before(self, column: Column) -> Column | None:
        """Return the step before: the implementation that is listed above."""
        place = self.columns.index(column)
        return self.columns[place - 1] if place else None

    def at(self, place: int) -> str:
        """Return the size that a region was measured at, where it is another one."""
        parts = (column.parts[place] for column in self.columns if column.parts)
        return next((part.at for part in parts if part.at), "")


def half_width_ns(point: Point) -> float:
    """Return half the width of the 95 % interval of a median."""
    if point.ci_low_ns is None or point.ci_high_ns is None:
        return 0.0
    return (point.ci_high_ns - point.ci_low_ns) / 2


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def pipelines_of(history: History, op: str) -> list[OpInfo]:
    """Return the pipelines that an op is a region of."""
    return [info for info in history.ops.values() if op in info.regions]


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases of all regions that may belong to a view, by region and implementation.

    `constant` names the regions that were measured at one value alone of the pipeline's axis and
    whose own curves run along another size: they stand for all values.
    """

    found: Mapping[tuple[str, str], Sequence[SeriesKey]]
    names: Mapping[str, Set[str]]
    constant: Set[str]


def cases_of(history: History, curves: Curves) -> Cases:
    """Return the cases of equal device, type, mode, timer and cache."""
    view, regions = curves.view, curves.op.regions
    found: dict[tuple[str, str], list[SeriesKey]] = {}
    values: dict[str, set[int | None]] = {}
    for key in history.series:
        if key.op in regions:
            values.setdefault(key.op, set()).add(dict(key.sizes).get(curves.op.axis))
            if view.differs_in_sizes_alone(key):
                found.setdefault((key.op, key.implementation), []).append(key)
    known = {region: info for region in regions if (info := history.ops.get(region))}
    names = {region: {one.name for one in info.implementations} for region, info in known.items()}
    constant = {
        region
        for region, seen in values.items()
        if len(seen) == 1 and region in known and known[region].axis != curves.op.axis
    }
    return Cases(found, names, constant)


def breakdowns(history: History, curves: Curves) -> list[Breakdown]:
    """Return a breakdown of every size of a view, smallest first; none where no op is a region."""
    if not curves.op.regions:
        return []
    cases = cases_of(history, curves)
    return [
        Breakdown(size, tuple(_columns(history, curves, cases, size))) for size in curves.axis_sizes
    ]


def _columns(history: History, curves: Curves, cases: Cases, size: int) -> Iterator[Column]:
    for name in curves.names:
        if size in curves.points[name]:
            own = tuple(_parts(history, curves, cases, name, size))
            yield Column(name, curves.points[name][size], own)


def _parts(history: History, curves: Curves, cases: Cases, name: str, size: int) -> Iterator[Part]:
    """Return the regions of an implementation: those of the same name, where one has it."""
    regions = curves.op.regions
    if not any(name in cases.names.get(region, ()) for region in regions):
        return
    for region in regions:
        key, at = find_case(curves, cases, region, name, size)
        point = point_beside(history, curves, key) if key else None
        roof = roof_in(history, key, point) if key and point else None
        yield Part(region, point, roof, at if point else "")


def find_case(
    curves: Curves, cases: Cases, region: str, name: str, size: int
) -> tuple[SeriesKey | None, str]:
    """Return the case of a region that belongs to a size of the pipeline, and where it lies.

    All sizes that both have are equal, save for a region that stands for all values of the axis.
    """
    axis, sizes = curves.op.axis, dict(curves.view.fixed) | {curves.axis: size}
    for key in cases.found.get((region, name), ()):
        differing = [n for n, value in key.sizes if sizes.get(n, value) != value]
        if not differing:
            return key, ""
        if differing == [axis] and region in cases.constant:
            return key, f"{axis} = {words.binary(key.size(axis))}"
    return None, ""


def point_beside(history: History, curves: Curves, key: SeriesKey) -> Point | None:
    """Return the point of the curves' own run, else the newest of its commit."""
    run, points = curves.run, history.series[key]
    same_run = [point for point in points if point.run_id == run.run_id]
    clean = run.source.commit is not None and not run.source.dirty
    same_commit = [
        point
        for point in points
        if clean
        and point.commit == run.source.commit
        and not history.runs[point.run_id].source.dirty
    ]
    timed = [point for point in [*same_commit, *same_run] if point.median_ns is not None]
    found = timed or same_commit or same_run
    return found[-1] if found else None


def region_files(history: History, views: Sequence[Curves]) -> set[str]:
    """Return the record files that breakdowns link to."""
    parts = (
        part
        for curves in views
        for one in breakdowns(history, curves)
        for column in one.columns
        for part in column.parts
    )
    return {part.point.location.rpartition(":")[0] for part in parts if part.point}
