"""Whether what a kernel is held against takes the same time in every run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from collector.history.model import History, Point
from collector.history.sides import epoch
from dashboard.figures import Scene

APART = 1.2  # times: methods, cards and noise are nearer to one another


@dataclass(frozen=True, slots=True)
class Unsteady:
    """The size at which an implementation differs most between runs with the same versions."""

    size: int
    low_ns: float
    high_ns: float
    runs: int

    @property
    def ratio(self) -> float:
        """Return how many times longer it took in the slowest run."""
        return self.high_ns / self.low_ns


def unsteady(scene: Scene, name: str) -> Unsteady | None:
    """Return where device times of code that is not ours differ most; None where hardly."""
    curves = scene.curves
    if curves.op.kind_of(name) == "triton" or curves.view.timer != "graph":
        return None
    found = []
    for size, points in curves.history.get(name, {}).items():
        times = list(_times_ns(scene.history, points, epoch(curves.run)))
        if len(times) > 1:
            found.append(Unsteady(size, min(times), max(times), len(times)))
    most = max(found, key=lambda one: one.ratio, default=None)
    return most if most and most.ratio >= APART else None


def _times_ns(
    history: History, points: Iterable[Point], versions: tuple[str, str, str]
) -> Iterator[float]:
    for point in points:
        if point.median_ns is not None and epoch(history.runs[point.run_id]) == versions:
            yield point.median_ns
