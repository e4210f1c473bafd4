"""What more ranks bring: the times of each number of ranks, and what the links take. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.history.model import History, Point, SeriesKey
from collector.history.roof import roof_in
from dashboard.pipeline import point_beside
from dashboard.views import Curves

RANKS = "ranks"


@dataclass(frozen=True, slots=True)
class Ranked:
    """One implementation at one size on a number of ranks; `alone` is the same on one rank."""

    size: int
    name: str
    ranks: int
    point: Point
    alone: Point | None
    ring_ns: float | None
    floor_ns: float | None

    @property
    def ideal_ns(self) -> float | None:
        """Return the time on one rank, times the share of that work which a rank has here."""
        own, whole = self.point.cost, self.alone.cost if self.alone else None
        if not self.alone or not self.alone.median_ns or not own or not whole or not whole.flops:
            return None
        return self.alone.median_ns * own.flops / whole.flops

    @property
    def efficiency(self) -> float | None:
        """Return the ideal time over the measured one."""
        if self.ideal_ns is None or not self.point.median_ns:
            return None
        return self.ideal_ns / self.point.median_ns

    @property
    def sent_bytes(self) -> int | None:
        """Return what each rank sends, by the model of a ring."""
        return self.point.cost.link_bytes if self.point.cost else None

    @property
    def slowest(self) -> int | None:
        """Return the rank with the longest median."""
        times = self.point.rank_medians_ns
        return times.index(max(times)) if len(times) > 1 else None

    @property
    def apart(self) -> float | None:
        """Return by what part the slowest rank is behind the fastest."""
        times = self.point.rank_medians_ns
        return max(times) / min(times) - 1 if len(times) > 1 else None


def over_ranks(history: History, curves: Curves) -> list[Ranked]:
    """Return all numbers of ranks that a view's cases were measured on; none for other ops."""
    if RANKS not in dict(curves.view.fixed):
        return []
    found = {_place(curves, key): key for key in history.series if _belongs(curves, key)}
    points = {
        place: point
        for place, key in found.items()
        if (point := point_beside(history, curves, key)) and point.median_ns
    }
    return [
        Ranked(*place, point, points.get((*place[:2], 1)), *_links(history, found[place], point))
        for place, point in sorted(points.items(), key=lambda item: item[0])
    ]


def _place(curves: Curves, key: SeriesKey) -> tuple[int, str, int]:
    sizes = dict(key.sizes)
    return sizes[curves.axis], key.implementation, sizes[RANKS]


def _belongs(curves: Curves, key: SeriesKey) -> bool:
    """Tell whether a series differs from a view in its ranks alone."""
    view, sizes = curves.view, dict(key.sizes)
    if key.op != curves.op.name or not view.differs_in_sizes_alone(key):
        return False
    fixed = dict(view.fixed) | {RANKS: sizes.get(RANKS)}
    return {name: size for name, size in sizes.items() if name != view.axis} == fixed


def _links(history: History, key: SeriesKey, point: Point) -> Iterator[float | None]:
    """Return the least times by the measured rate of the links and by a smallest all-reduce."""
    roof, ceilings = roof_in(history, key, point), history.ceilings.get(point.run_id)
    yield roof.limits_ns.get("link") if roof else None
    floors = ceilings.link_floor_ns.get(key.timer, {}) if ceilings else {}
    yield floors.get(key.size(RANKS))
