"""Peers that the run of a page did not time, from runs that timed them beside a kernel of ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.history.model import Point, RunInfo
from collector.history.sides import usable
from dashboard.crossover import SpeedUp, speed_up
from dashboard.figures import Scene


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A peer at one size, and the fastest kernel of ours in the same run."""

    name: str
    size: int
    theirs: Point
    best: str
    mine: Point
    ratio: SpeedUp
    run: RunInfo


def elsewhere(scene: Scene) -> list[Elsewhere]:
    """Return the newest time of each peer that has none in the chosen run, size by size."""
    curves = scene.curves
    peers = [
        info.name
        for info in curves.op.implementations
        if info.kind != "triton" and info.name in curves.history and not curves.passed(info.name)
    ]
    sizes = ((name, size) for name in peers for size in sorted(curves.history[name]))
    newest = (next(_beside_ours(scene, name, size), None) for name, size in sizes)
    return [one for one in newest if one is not None]


def _beside_ours(scene: Scene, name: str, size: int) -> Iterator[Elsewhere]:
    """Yield the times of a peer that a clean run has beside one of ours, newest first."""
    for point in reversed(scene.curves.history[name][size]):
        run = scene.history.runs[point.run_id]
        ours = _ours(scene, size, point)
        if point.median_ns is None or not usable(run) or not ours:
            continue
        _, best, mine = min(ours)
        if ratio := speed_up(mine, point, name):
            yield Elsewhere(name, size, point, best, mine, ratio, run)


def _ours(scene: Scene, size: int, like: Point) -> list[tuple[float, str, Point]]:
    """Return the times of our kernels in the run of a point, by its method."""
    there, kind_of = scene.history.by_run[like.run_id], scene.curves.op.kind_of
    keys = {
        name: line[size]
        for name, line in scene.curves.keys.items()
        if kind_of(name) == "triton" and line.get(size) in there
    }
    found = ((name, there[key]) for name, key in keys.items())
    return [
        (point.median_ns, name, point)
        for name, point in found
        if point.method_id == like.method_id and point.median_ns is not None
    ]
