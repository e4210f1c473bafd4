"""What may share one chart: one device, type, mode, timer, cache and one set of fixed sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collector.history.model import History, Point, RunInfo, SeriesKey, Sizes
from collector.record import OpInfo

FIELDS = ("d", "t", "c", "mode", "timer", "cache")


@dataclass(frozen=True, slots=True, order=True)
class View:
    """One configuration of an op: its lines may be compared with one another."""

    device: str
    dtype: str
    fixed: Sizes
    mode: str
    timer: str
    cache: str

    @property
    def timed_on_device(self) -> bool:
        """Say whether the time holds the work: enqueueing it does not."""
        return self.timer != "submit"

    @property
    def config(self) -> str:
        """Name the sizes that stay fixed along the axis, for example `n=4,n_iter=20`."""
        return ",".join(f"{name}={size}" for name, size in self.fixed) or "all"

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the values of the page's controls, in the order of `FIELDS`."""
        return (self.device, self.dtype, self.config, self.mode, self.timer, self.cache)

    @property
    def key(self) -> str:
        """Name the view as the page's script looks it up."""
        return "|".join(self.choices)


@dataclass(frozen=True, slots=True)
class Curves:
    """The points of one view: those of the chosen run along the axis, and all over history."""

    view: View
    op: OpInfo
    run: RunInfo
    points: Mapping[str, Mapping[int, Point]]
    history: Mapping[str, Mapping[int, tuple[Point, ...]]]
    keys: Mapping[str, Mapping[int, SeriesKey]]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the implementations in display order."""
        shown = [info.name for info in self.op.implementations if info.name in self.points]
        return (*shown, *sorted(set(self.points) - set(shown)))

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        """Return all sizes along the axis that the chosen run holds."""
        return tuple(sorted({size for line in self.points.values() for size in line}))

    def passed(self, name: str) -> dict[int, Point]:
        """Return the points of an implementation that have a time."""
        line = self.points.get(name, {})
        return {size: line[size] for size in sorted(line) if line[size].median_ns is not None}


@dataclass(slots=True)
class _Found:
    history: dict[str, dict[int, tuple[Point, ...]]] = field(default_factory=dict)
    keys: dict[str, dict[int, SeriesKey]] = field(default_factory=dict)


def curves_of(history: History, op: OpInfo) -> dict[View, Curves]:
    """Return every view of an op, best default first."""
    found: dict[View, _Found] = {}
    for key, points in history.series.items():
        if key.op == op.name:
            _place(found.setdefault(view_of(key, op), _Found()), key, op, points)
    made = [_curves(history, op, view, one) for view, one in found.items()]
    return {curves.view: curves for curves in sorted(made, key=_preference)}


def view_of(key: SeriesKey, op: OpInfo) -> View:
    """Return the view that a series belongs to."""
    fixed = tuple((name, size) for name, size in key.sizes if name != op.axis)
    return View(key.device, key.dtype, fixed, key.mode, key.timer, key.cache)


def axis_size(key: SeriesKey, op: OpInfo) -> int:
    """Return where a series lies on its op's axis; 0 when it has no such size."""
    return dict(key.sizes).get(op.axis, 0)


def _place(found: _Found, key: SeriesKey, op: OpInfo, points: tuple[Point, ...]) -> None:
    size = axis_size(key, op)
    found.history.setdefault(key.implementation, {})[size] = points
    found.keys.setdefault(key.implementation, {})[size] = key


def _curves(history: History, op: OpInfo, view: View, found: _Found) -> Curves:
    every = [(name, p) for name, line in found.history.items() for ps in line.values() for p in ps]
    run = history.runs[_chosen_run(history, op, every)]
    points = {
        name: {size: one for size, ps in line.items() for one in ps if one.run_id == run.run_id}
        for name, line in found.history.items()
    }
    kept = {name: line for name, line in points.items() if line}
    return Curves(view, op, run, kept, found.history, found.keys)


def _chosen_run(history: History, op: OpInfo, points: Iterable[tuple[str, Point]]) -> str:
    """Take the newest commit's last clean run that can compare; else the next best."""
    order = {commit.sha: commit.order for commit in history.commits}
    passed: dict[str, set[str]] = {}
    for name, point in points:
        names = passed.setdefault(point.run_id, set())
        if point.median_ns is not None:
            names.add(name)

    def rank(run_id: str) -> tuple[bool, bool, bool, int, str, str]:
        run, names = history.runs[run_id], passed[run_id]
        clean = run.source.commit is not None and not run.source.dirty
        compares = op.baseline in names and len(names) > 1
        place = order.get(run.source.commit or "", -1)
        return bool(names), compares, clean, place, run.started_at, run_id

    return max(passed, key=rank)


def _preference(curves: Curves) -> tuple[object, ...]:
    """Order views: a GPU first, device time first, cold first, the longest curve first."""
    view, device = curves.view, curves.run.device
    passed = sum(len(curves.passed(name)) for name in curves.points)
    return (
        device.kind != "cuda",
        ("graph", "call", "submit").index(view.timer),
        view.cache != "cold",
        view.mode != "forward",
        -len({size for name in curves.points for size in curves.passed(name)}),
        -passed,
        view,
    )
