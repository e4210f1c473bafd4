"""What may share one chart: one device, type, mode, timer, cache and one set of fixed sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from collector.history.model import History, Point, RunInfo, SeriesKey, Sizes
from collector.record import OpInfo

FIELDS = ("d", "t", "c", "mode", "timer", "cache")
Lines = Mapping[str, Mapping[int, tuple[Point, ...]]]
SWEEP = 3  # so many sizes make a curve along another size than the op's own axis


@dataclass(frozen=True, slots=True, order=True)
class View:
    """One configuration of an op along one size: its lines may be compared with one another."""

    device: str
    dtype: str
    axis: str
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

    def differs_in_sizes_alone(self, key: SeriesKey) -> bool:
        """Tell whether a series, of whatever op, was measured as those of the view were."""
        same = (key.device, key.dtype, key.mode, key.timer, key.cache)
        return same == (self.device, self.dtype, self.mode, self.timer, self.cache)


@dataclass(frozen=True, slots=True)
class Curves:
    """The points of one view: those of the chosen run along the axis, and all over history."""

    view: View
    op: OpInfo
    run: RunInfo
    points: Mapping[str, Mapping[int, Point]]
    history: Lines
    keys: Mapping[str, Mapping[int, SeriesKey]]

    @property
    def axis(self) -> str:
        """Return the size that the curves run along."""
        return self.view.axis

    @property
    def along_own_axis(self) -> bool:
        """Say whether that is the op's own axis."""
        return self.view.axis == self.op.axis

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


def curves_of(history: History, op: OpInfo) -> dict[View, Curves]:
    """Return every view of an op, best default first.

    Beside those along its axis there is one for each other size that a run swept, all else equal.
    """
    keys = [key for key in history.series if key.op == op.name]
    sweeps = _longest_sweeps(_curves(history, op, *found) for found in _sweeps(keys, op))
    inside = {key for one in sweeps for line in one.keys.values() for key in line.values()}
    along = _grouped(keys, op.axis).items()
    own = [_curves(history, op, view, one) for view, one in along if not _within(one, inside)]
    return {curves.view: curves for curves in sorted([*own, *sweeps], key=_preference)}


def view_of(key: SeriesKey, axis: str) -> View:
    """Return the view along a size that a series belongs to."""
    fixed = tuple((name, size) for name, size in key.sizes if name != axis)
    return View(key.device, key.dtype, axis, fixed, key.mode, key.timer, key.cache)


def _grouped(keys: Iterable[SeriesKey], axis: str) -> dict[View, list[SeriesKey]]:
    found: dict[View, list[SeriesKey]] = {}
    for key in keys:
        found.setdefault(view_of(key, axis), []).append(key)
    return found


def _sweeps(keys: Sequence[SeriesKey], op: OpInfo) -> Iterator[tuple[View, list[SeriesKey]]]:
    """Return the views along other sizes than the axis that may hold a curve."""
    others = dict.fromkeys(name for key in keys for name, _ in key.sizes if name != op.axis)
    for name in others:
        having = [key for key in keys if dict(key.sizes).get(name, 0) > 0]
        for view, one in _grouped(having, name).items():
            if len({key.sizes for key in one}) >= SWEEP:
                yield view, one


def _longest_sweeps(found: Iterable[Curves]) -> list[Curves]:
    """Return the longest curve along each size, of those that one run measured enough of."""
    best: dict[View, Curves] = {}
    for curves in sorted(found, key=lambda one: (_length(one), one.view)):
        if _length(curves) >= SWEEP:
            best[replace(curves.view, fixed=())] = curves
    return list(best.values())


def _length(curves: Curves) -> int:
    return max((len(curves.passed(name)) for name in curves.points), default=0)


def _within(keys: Sequence[SeriesKey], inside: Set[SeriesKey]) -> bool:
    """Tell whether this is a single size, which a curve along another size shows as well."""
    return len({key.sizes for key in keys}) == 1 and inside >= set(keys)


def _curves(history: History, op: OpInfo, view: View, keys: Iterable[SeriesKey]) -> Curves:
    placed: dict[str, dict[int, SeriesKey]] = {}
    for key in keys:
        placed.setdefault(key.implementation, {})[dict(key.sizes).get(view.axis, 0)] = key
    lines = {
        name: {size: history.series[key] for size, key in line.items()}
        for name, line in placed.items()
    }
    run = history.runs[_chosen_run(history, op, view, lines)]
    points = {
        name: {size: one for size, ps in line.items() for one in ps if one.run_id == run.run_id}
        for name, line in lines.items()
    }
    kept = {name: line for name, line in points.items() if line}
    return Curves(view, op, run, kept, lines, placed)


def _chosen_run(history: History, op: OpInfo, view: View, lines: Lines) -> str:
    """Take the newest commit's last clean run that can compare; else the next best.

    Some runs measure a few sizes again, to confirm or to calibrate: of those none takes the place
    of a curve. Along another size than the op's axis most runs hold one point.
    """
    order = {commit.sha: commit.order for commit in history.commits}
    passed = _passed_sizes(lines)
    widest = max((_widest(counts) for counts in passed.values()), default=0)

    def rank(run_id: str) -> tuple[bool, bool, bool, bool, bool, bool, int, int, str, str]:
        run, counts = history.runs[run_id], passed[run_id]
        clean = run.source.commit is not None and not run.source.dirty
        compares = op.baseline in counts and len(counts) > 1
        curve = view.axis == op.axis or _widest(counts) >= SWEEP
        whole = 2 * _widest(counts) >= widest
        place = order.get(run.source.commit or "", -1)
        measured = run.purpose != "calibrate"
        told = (bool(counts), curve, compares, measured, clean, whole)
        return *told, place, _widest(counts), run.started_at, run_id

    return max(passed, key=rank)


def _passed_sizes(lines: Lines) -> dict[str, dict[str, int]]:
    """Count the sizes that have a time, by run and implementation."""
    found: dict[str, dict[str, int]] = {}
    for name, line in lines.items():
        for point in (p for ps in line.values() for p in ps):
            counts = found.setdefault(point.run_id, {})
            if point.median_ns is not None:
                counts[name] = counts.get(name, 0) + 1
    return found


def _widest(counts: Mapping[str, int]) -> int:
    return max(counts.values(), default=0)


def _preference(curves: Curves) -> tuple[object, ...]:
    """Order views: a GPU, the op's own axis, device time, cold, with a baseline, longest first.

    Of those as long as one another, the one with the most to move.
    """
    view, device = curves.view, curves.run.device
    passed = sum(len(curves.passed(name)) for name in curves.points)
    return (
        device.kind != "cuda",
        not curves.along_own_axis,
        ("graph", "call", "submit").index(view.timer),
        view.cache != "cold",
        view.mode != "forward",
        not curves.passed(curves.op.baseline),
        -len({size for name in curves.points for size in curves.passed(name)}),
        -passed,
        -dict(view.fixed).get("ranks", 0),
        -max(_minimal_bytes(curves), default=0),
        view,
    )


def _minimal_bytes(curves: Curves) -> Iterator[int]:
    """Return what each point of a view has to move at least."""
    points = (point for line in curves.points.values() for point in line.values())
    return (point.cost.minimal_bytes for point in points if point.cost)
