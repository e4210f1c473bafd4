"""History charts: one size of one view over the commits that measured it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from collector.history.model import Commit, Point, RunInfo
from collector.history.sides import epoch, usable
from dashboard import format as words
from dashboard.charts import Chart, Series, Strip, extent, linear_axis, log_axis
from dashboard.figures import Scene, status_words

COMMITS_SHOWN = 200
RECENT = 30  # commits of the chart that is part of the page: it must not grow with the history
EPOCH_NAMES = ("driver", "torch", "triton")


@dataclass(frozen=True, slots=True)
class Timeline:
    """The commits that a view was measured at, and where they fall into epochs."""

    scene: Scene
    commits: tuple[Commit, ...]
    rules: tuple[Strip, ...]


def timeline(scene: Scene, most: int = COMMITS_SHOWN) -> Timeline:
    """Return the last commits that have a clean point in this view."""
    lines = scene.curves.history.values()
    points = [point for line in lines for ps in line.values() for point in ps]
    runs = {p.commit: scene.history.runs[p.run_id] for p in points if _clean(scene, p)}
    commits = [commit for commit in scene.history.commits if commit.sha in runs][-most:]
    return Timeline(scene, tuple(commits), tuple(_epochs(runs, commits)))


def sizes_of(times: Timeline) -> Mapping[int, tuple[int, int]]:
    """Return the sizes that have a time, each with its number of commits and implementations."""
    shown = {commit.sha for commit in times.commits}
    found: dict[int, list[set[str | None]]] = {}
    for line in times.scene.curves.history.values():
        for size, points in line.items():
            measured = {p.commit for p in points if p.median_ns and _clean(times.scene, p)}
            if measured & shown:
                found.setdefault(size, []).append(measured & shown)
    return {size: (len(set().union(*sets)), len(sets)) for size, sets in sorted(found.items())}


def default_size(times: Timeline) -> int:
    """Return the size with the most commits, then the most implementations, then the largest."""
    counts = sizes_of(times)
    return max(counts, key=lambda size: (counts[size], size), default=1)


def history_chart(times: Timeline, size: int, relative: bool = True) -> Chart:
    """Draw each implementation over commits; nothing joins two epochs.

    `relative` divides by the first commit of an epoch, so that small changes can be seen.
    """
    curves, commits = times.scene.curves, times.commits
    lines = [_line(times.scene, name, size, commits) for name in curves.names]
    series = tuple(_relative(line) if relative else line for line in lines if line)
    title = "time over that of the first commit" if relative else "time of one call (µs)"
    return Chart(
        key="history",
        title=f"History at {curves.axis} = {words.binary(size)}",
        caption=_caption(curves.axis, size, len(commits), relative),
        x=linear_axis("commit, first parents in order", [c.sha[:7] for c in commits] or [""]),
        y=log_axis(title, extent(series), "×" if relative else ""),
        series=series,
        rules=times.rules,
    )


def _caption(axis: str, size: int, commits: int, relative: bool) -> str:
    what = "Median time over that of the first commit" if relative else "Median time"
    return (
        f"{what} at {axis} = {words.binary(size)} over {words.plural(commits, 'commit')}, whiskers "
        "from the 25th to the 75th percentile. Lines break, and begin at 1 again, where method, "
        "workload, driver, torch or Triton changed."
    )


def _relative(line: Series) -> Series:
    bases: dict[int, float] = {}
    for run in line.segments():
        continues = run[0] > 0 and run[0] not in line.breaks and bool(bases)
        base = bases[max(bases)] if continues else line.y[run[0]]
        bases |= dict.fromkeys(run, base or 1.0)

    def scaled(values: tuple[float | None, ...]) -> tuple[float | None, ...]:
        return tuple(v / bases[i] if v is not None else None for i, v in enumerate(values))

    return replace(line, y=scaled(line.y), low=scaled(line.low), high=scaled(line.high))


def _clean(scene: Scene, point: Point) -> bool:
    return usable(scene.history.runs[point.run_id])


def _line(scene: Scene, name: str, size: int, commits: Sequence[Commit]) -> Series | None:
    every = scene.curves.history[name].get(size, ())
    # Of several runs of a commit the one with the most replicates counts, the last of equals.
    ranked = sorted(every, key=lambda point: len(point.medians_ns))
    latest = {point.commit: point for point in ranked if _clean(scene, point)}
    points = [latest.get(commit.sha) for commit in commits]
    if not any(point and point.median_ns for point in points):
        return None

    def micros(quantile: str) -> tuple[float | None, ...]:
        times = (getattr(point, quantile) if point else None for point in points)
        return tuple(time / 1e3 if time is not None else None for time in times)

    return Series(
        key=name,
        name=name,
        style=scene.styles[name],
        x=tuple(map(float, range(len(commits)))),
        y=micros("median_ns"),
        notes=tuple(_note(*pair) for pair in zip(commits, points, strict=True)),
        low=micros("q25_ns"),
        high=micros("q75_ns"),
        breaks=frozenset(_breaks(scene, points)),
    )


def _note(commit: Commit, point: Point | None) -> str:
    if point is None:
        return ""
    if point.median_ns is None:
        return status_words(point)
    ends = words.interval(point.ci_low_ns, point.ci_high_ns)
    time = f"{words.duration(point.median_ns)} (95 %: {ends})"
    return f"{time}\n{commit.sha[:8]} {commit.subject[:60]}"


def _breaks(scene: Scene, points: list[Point | None]) -> Iterable[int]:
    """Return the places whose point may not be compared with the last one before it."""
    last: Point | None = None
    for place, point in enumerate(points):
        if point is None or point.median_ns is None:
            continue
        if last and _identity(scene, last) != _identity(scene, point):
            yield place
        last = point


def _identity(scene: Scene, point: Point) -> tuple[str, ...]:
    return point.method_id, point.workload_hash, *epoch(scene.history.runs[point.run_id])


def _epochs(runs: Mapping[str | None, RunInfo], commits: Sequence[Commit]) -> Iterable[Strip]:
    for place, (before, after) in enumerate(pairwise(commits), start=1):
        pairs = zip(EPOCH_NAMES, epoch(runs[before.sha]), epoch(runs[after.sha]), strict=True)
        moved = [f"{name} {new}" for name, old, new in pairs if old != new]
        if moved:
            yield Strip("epoch", ", ".join(moved), place - 0.5, place - 0.5)
