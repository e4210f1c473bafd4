"""All ops at all their sizes in one table, as papers print it: best kernel beside baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.history.model import Point, SeriesKey
from dashboard.book import Book
from dashboard.crossover import SpeedUp
from dashboard.figures import Scene, ratios
from dashboard.findings import focus
from dashboard.views import Curves


@dataclass(frozen=True, slots=True)
class Result:
    """One op at one size: its best kernel, its baseline and what lies between."""

    title: str
    key: SeriesKey
    mine: Point
    theirs: Point
    ratio: SpeedUp
    fraction: float | None

    @property
    def shape(self) -> str:
        """Write the sizes as tables of papers do, for example `512 × 4096`."""
        return " × ".join(f"{size:,}" for _, size in self.key.sizes)

    @property
    def size_names(self) -> str:
        """Name the sizes in the same order."""
        return " × ".join(name for name, _ in self.key.sizes)

    @property
    def gb_per_s(self) -> float | None:
        """Return the minimal bytes over the time: what papers call logical bandwidth."""
        cost, time = self.mine.cost, self.mine.median_ns
        return cost.minimal_bytes / time if cost and time else None


def results(book: Book) -> list[Result]:
    """Return device times of forward passes from a cold cache, op by op, each size once."""
    found: dict[tuple[str, ...], Result] = {}
    for views in book.views.values():
        for view, curves in views.items():
            if (view.timer, view.cache, view.mode) == ("graph", "cold", "forward"):
                for one in _of_view(book.scene(curves)):
                    where = (view.device, one.key.op, one.key.dtype, str(sorted(one.key.sizes)))
                    found.setdefault(where, one)
    return list(found.values())


def _of_view(scene: Scene) -> Iterator[Result]:
    curves, baseline = scene.curves, scene.curves.op.baseline
    name = focus(curves, baseline)
    if name is None:
        return
    for size, ratio in ratios(curves, name, baseline):
        roof = scene.roof(name, size)
        key, mine, theirs = _pair(curves, name, size)
        yield Result(curves.op.title, key, mine, theirs, ratio, roof.fraction if roof else None)


def _pair(curves: Curves, name: str, size: int) -> tuple[SeriesKey, Point, Point]:
    return (
        curves.keys[name][size],
        curves.points[name][size],
        curves.points[curves.op.baseline][size],
    )
