"""History charts: one size of one view over the commits that measured it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
class Measured:
    """What the runs of a view on a clean tree measured: a run of each commit, and by implementation
    and size the point of each commit and the commits with a time.
    """

    runs: Mapping[str | None, RunInfo]
    latest: Mapping[tuple[str, int], Mapping[str | None, Point]]
    timed: Mapping[tuple[str, int], set[str | None]]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The commits that a view was measured at, and where they fall into epochs.

    `lines` holds what was drawn before: several charts show the same.
    """

    scene: Scene
    commits: tuple[Commit, ...]
    rules: tuple[Strip, ...]
    lines: dict[tuple[str, int], Series | None] = field(default_factory=dict, repr=False)

    def line(self, name: str, size: int) -> Series | None:
        """Return an implementation at one size over the commits."""
        if (name, size) not in self.lines:
            self.lines[name, size] = _line(self.scene, name, size, self.commits)
        return self.lines[name, size]


def measured(scene: Scene) -> Measured:
    """Return what a view holds, worked out once for all charts."""
    if "measured" not in scene.known:
        scene.known["measured"] = _measured(scene)
    found: Measured = scene.known["measured"]
    return found


def _measured(scene: Scene) -> Measured:
    clean = {run_id: run for run_id, run in scene.history.runs.items() if usable(run)}
    points = {
        (name, size): [point for point in every if point.run_id in clean]
        for name, line in scene.curves.history.items()
        for size, every in line.items()
    }
    return Measured(
        runs={p.commit: clean[p.run_id] for every in points.values() for p in every},
        latest={place: _latest(every) for place, every in points.items()},
        timed={place: {p.commit for p in ps if p.median_ns} for place, ps in points.items()},
    )


def _latest(points: Iterable[Point]) -> Mapping[str | None, Point]:
    """Return the point of each commit; the most replicates count, the last run of equals."""
    ranked = sorted(points, key=lambda point: len(point.medians_ns))
    return {point.commit: point for point in ranked}


def timeline(scene: Scene, most: int = COMMITS_SHOWN) -> Timeline:
    """Return the last commits that have a clean point in this view."""
    runs = measured(scene).runs
    commits = [commit for commit in scene.history.commits if commit.sha in runs][-most:]
    return Timeline(scene, tuple(commits), tuple(_epochs(runs, commits)))


def sizes_of(times: Timeline) -> Mapping[int, tuple[int, int]]:
    """Return the sizes that have a time, each with its number of commits and implementations."""
    shown = {commit.sha for commit in times.commits}
    found: dict[int, list[set[str | None]]] = {}
    for (_, size), timed in measured(times.scene).timed.items():
        if timed & shown:
            found.setdefault(size, []).append(timed & shown)
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
    lines = [times.line(name, size) for name in curves.names]
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


def _line(scene: Scene, name: str, size: int, commits: Sequence[Commit]) -> Series | None:
    latest = measured(scene).latest.get((name, size), {})
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
