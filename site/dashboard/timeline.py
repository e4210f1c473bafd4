"""History charts: one size of one view over the commits that measured it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from dashboard import format as words
from dashboard.charts import Chart, Series, Strip, extent, linear_axis, log_axis
from dashboard.figures import Scene, status_words
from dashboard.model import Commit, Point, RunInfo

COMMITS_SHOWN = 200
EPOCH_VERSIONS = ("torch", "triton", "cuda", "python")


def history_chart(scene: Scene, size: int) -> Chart:
    """Draw the median of each implementation over commits; nothing joins two epochs."""
    commits = measured_commits(scene)
    places = {commit.sha: place for place, commit in enumerate(commits)}
    lines = (_series(scene, name, size, commits, places) for name in scene.curves.history)
    order = {name: place for place, name in enumerate(scene.curves.names)}
    series = sorted((line for line in lines if line), key=lambda one: order.get(one.key, 99))
    rules = tuple(_epochs(scene, commits))
    axis = scene.curves.op.axis
    return Chart(
        key="history",
        title=f"History at {axis} = {words.binary(size)}",
        caption=_caption(axis, size, len(commits), bool(rules)),
        x=linear_axis("commit, first parents in order", [c.sha[:7] for c in commits] or [""]),
        y=log_axis("time of one call (µs)", extent(series)),
        series=tuple(series),
        rules=rules,
    )


def _caption(axis: str, size: int, commits: int, has_rules: bool) -> str:
    epochs = " Dotted lines mark a change of the toolchain." if has_rules else ""
    return (
        f"Median time at {axis} = {words.binary(size)} over {words.plural(commits, 'commit')}, "
        f"whiskers from the 25th to the 75th percentile.{epochs} Lines break where the method, "
        "the workload or the toolchain changed."
    )


def measured_commits(scene: Scene) -> list[Commit]:
    """Return the last commits that have a clean point in this view."""
    lines = scene.curves.history.values()
    found = {p.commit for line in lines for ps in line.values() for p in ps if _clean(scene, p)}
    return [commit for commit in scene.history.commits if commit.sha in found][-COMMITS_SHOWN:]


def _clean(scene: Scene, point: Point) -> bool:
    return point.commit is not None and not scene.history.runs[point.run_id].source.dirty


def _series(
    scene: Scene, name: str, size: int, commits: list[Commit], places: Mapping[str, int]
) -> Series | None:
    every = scene.curves.history[name].get(size, ())
    latest = {p.commit: p for p in every if p.commit in places and _clean(scene, p)}
    points = [latest.get(commit.sha) for commit in commits]
    if not any(point and point.median_ns for point in points):
        return None
    x = tuple(map(float, range(len(commits))))

    def micros(quantile: str) -> tuple[float | None, ...]:
        times = (getattr(point, quantile) if point else None for point in points)
        return tuple(time / 1e3 if time is not None else None for time in times)

    pairs = zip(commits, points, strict=True)
    return Series(
        key=name,
        name=name,
        style=scene.styles[name],
        x=x,
        y=micros("median_ns"),
        notes=tuple(_note(commit, point) for commit, point in pairs),
        low=micros("q25_ns"),
        high=micros("q75_ns"),
        breaks=frozenset(_breaks(scene, points)),
    )


def _note(commit: Commit, point: Point | None) -> str:
    if point is None:
        return ""
    if point.median_ns is None:
        return status_words(point)
    time = words.duration(point.median_ns)
    ends = words.interval(point.ci_low_ns, point.ci_high_ns)
    return f"{time} (95 %: {ends})\n{commit.sha[:8]} {commit.subject[:60]}"


def _breaks(scene: Scene, points: list[Point | None]) -> Iterable[int]:
    """Return the places whose point may not be compared with the one before."""
    for place, (before, after) in enumerate(pairwise(points), start=1):
        if before and after and _epoch(scene, before) != _epoch(scene, after):
            yield place


def _epoch(scene: Scene, point: Point) -> tuple[object, ...]:
    return point.method_id, point.workload_hash, *toolchain(scene.history.runs[point.run_id])


def toolchain(run: RunInfo) -> tuple[str | None, ...]:
    """Return what makes times of two runs incomparable: driver major and compilers."""
    driver = (run.device.driver or "").split(".")[0]
    return driver, *(run.versions.get(name) for name in EPOCH_VERSIONS)


def _epochs(scene: Scene, commits: list[Commit]) -> Iterable[Strip]:
    runs = {}
    for line in scene.curves.history.values():
        for points in line.values():
            runs |= {p.commit: scene.history.runs[p.run_id] for p in points if p.commit}
    for place, (before, after) in enumerate(pairwise(commits), start=1):
        old, new = toolchain(runs[before.sha]), toolchain(runs[after.sha])
        names = ("driver", *EPOCH_VERSIONS)
        moved = [n for n, a, b in zip(names, old, new, strict=True) if a != b]
        if moved:
            yield Strip("epoch", ", ".join(moved), place - 0.5, place - 0.5)
