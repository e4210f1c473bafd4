"""The sides of a comparison: which runs of which commit may be held against which."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from collector.history.model import Commit, History, Point, RunInfo, SeriesKey
from collector.history.roof import roof_in
from collector.verdict import (
    NO_DRIFT,
    Comparison,
    Drift,
    Noise,
    drift_of,
    mean_interval,
    noise_model,
)

IDENTITY = ("method", "workload", "driver", "torch", "triton")
Identity = tuple[str, str, str, str, str]

NEAR = 0.5
ALL_SENTINELS = "median of all"
SIDES_KEPT = 10_000  # of the two commits of a table, and not of a whole history
FLOOR_SENTINELS = {"graph": "empty", "call": "empty-call", "submit": "empty-submit"}


@dataclass(frozen=True, slots=True)
class Side:
    """All runs of one series at one commit that may be compared, as one point."""

    commit: str
    point: Point
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides that may be compared, before the verdict of the family is known.

    `control` says that it is no kernel of this project, `other_card` that two cards measured it;
    `own_floor` is the floor of the comparison before the cards raise it.
    """

    key: SeriesKey
    before: Side
    after: Side
    comparison: Comparison
    drift_name: str
    control: bool
    other_card: bool
    own_floor: float


def usable(run: RunInfo) -> bool:
    """Tell whether a run counts in tables of commits: it has a commit and its tree was clean."""
    return run.source.commit is not None and run.source.dirty is not True


def epoch(run: RunInfo) -> tuple[str, str, str]:
    """Return what splits a history: major version of the driver, versions of torch and Triton."""
    driver = (run.device.driver or "").split(".")[0]
    return driver, run.versions.get("torch", ""), run.versions.get("triton", "")


class Index:
    """A history by device, commit and identity; of usable runs only."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._epochs = {run_id: epoch(run) for run_id, run in history.runs.items() if usable(run)}
        self._points: dict[SeriesKey, dict[str, list[Point]]] = {}
        for key, points in history.series.items():
            by_commit: dict[str, list[Point]] = {}
            for point in points:
                if point.commit is not None and point.run_id in self._epochs:
                    by_commit.setdefault(point.commit, []).append(point)
            self._points[key] = by_commit
        self.order = {commit.sha: commit.order for commit in history.commits}
        self.commits = self._commits_by_device()
        self._noise: dict[SeriesKey, Noise | None] = {}
        self.sides = lru_cache(maxsize=SIDES_KEPT)(self._sides)
        self._shas = {key: tuple(by_commit) for key, by_commit in self._points.items()}
        self._cards: dict[tuple[str, ...], frozenset[str]] = {}
        self._drifts: dict[tuple[tuple[str, ...], tuple[str, ...]], Mapping[str, Drift]] = {}
        self._common: dict[tuple[tuple[str, ...], tuple[str, ...]], Drift] = {}
        self._runs: dict[tuple[str, str], list[RunInfo]] = {}
        for run_id in self._epochs:
            run = history.runs[run_id]
            self._runs.setdefault((run.device.slug, run.source.commit or ""), []).append(run)

    def _commits_by_device(self) -> Mapping[str, tuple[Commit, ...]]:
        measured: dict[str, set[str]] = {}
        for run_id in self._epochs:
            run = self.history.runs[run_id]
            measured.setdefault(run.device.slug, set()).add(run.source.commit or "")
        return {
            device: tuple(commit for commit in self.history.commits if commit.sha in shas)
            for device, shas in sorted(measured.items())
        }

    def keys(self, device: str) -> list[SeriesKey]:
        """Return the series of a device."""
        return [key for key in self._points if key.device == device]

    def runs(self, device: str, commit: str) -> list[RunInfo]:
        """Return the usable runs of a commit on a device, oldest first."""
        found = self._runs.get((device, commit), [])
        return sorted(found, key=lambda run: (run.started_at, run.run_id))

    def points(self, key: SeriesKey, commit: str) -> list[Point]:
        """Return the points of a series at a commit."""
        return self._points[key].get(commit, [])

    def last_alike(self, key: SeriesKey, upto: Commit, now: Collection[Identity]) -> str | None:
        """Return the newest commit up to one that measured a series in one of these ways.

        Where none did, the newest that measured it at all.
        """
        # Points are in the order of their commits.
        shas = self._shas[key]
        place = bisect_right(shas, upto.order, key=self.order.__getitem__)
        newest_first = (shas[at] for at in reversed(range(place)))
        alike = (sha for sha in newest_first if self._measured(key, sha, now))
        return next(alike, shas[place - 1] if place else None)

    def _measured(self, key: SeriesKey, commit: str, ways: Collection[Identity]) -> bool:
        return any(self.identity(point) in ways for point in self.points(key, commit))

    def identity(self, point: Point) -> Identity:
        """Return what two points must share to be compared."""
        return point.method_id, point.workload_hash, *self._epochs[point.run_id]

    def _sides(self, key: SeriesKey, commit: str) -> dict[Identity, Side]:
        """Return the sides that a commit offers, by identity, the newest last."""
        groups: dict[Identity, list[Point]] = {}
        for point in self.points(key, commit):
            groups.setdefault(self.identity(point), []).append(point)
        return {identity: _joined(commit, points) for identity, points in groups.items()}

    def cards(self, side: Side) -> frozenset[str]:
        """Return the physical cards of a side, as far as its runs name them."""
        if side.run_ids not in self._cards:
            found = (self.history.runs[run_id].device.uuid_hash for run_id in side.run_ids)
            self._cards[side.run_ids] = frozenset(card for card in found if card)
        return self._cards[side.run_ids]

    def noise(self, key: SeriesKey) -> Noise | None:
        """Return the noise of a series: how far replicates of one commit differ."""
        if key not in self._noise:
            self._noise[key] = noise_model(self.replicates(key))
        return self._noise[key]

    def replicates(self, key: SeriesKey, without: str = "") -> Iterator[tuple[float, ...]]:
        """Yield the replicates of every side of a series, but those of one commit."""
        for sha, points in self._points[key].items():
            if sha == without:
                continue
            if len(points) == 1:
                yield points[0].medians_ns
            else:
                yield from (side.point.medians_ns for side in self.sides(key, sha).values())

    def epochs(self, key: SeriesKey) -> list[list[Side]]:
        """Return the sides with a time of each identity, in commit order, oldest epoch first."""
        found: dict[Identity, list[Side]] = {}
        for sha in sorted(self._points[key], key=lambda sha: self.order[sha]):
            for identity, side in self.sides(key, sha).items():
                if side.point.median_ns is not None:
                    found.setdefault(identity, []).append(side)
        return list(found.values())

    def drift(self, key: SeriesKey, before: Side, after: Side) -> tuple[Drift, str]:
        """Return how the machine moved in what limits this series, and the sentinel that says so.

        Far from its limit, and for the part of a time above the floor, a series goes by the median
        of all sentinels.
        """
        found = self.drifts(before.run_ids, after.run_ids)
        common = self._common_drift(before.run_ids, after.run_ids)
        roof = roof_in(self.history, key, after.point)
        if roof is None or roof.regime is None or (roof.fraction or 0.0) < NEAR:
            return common, ALL_SENTINELS
        if roof.regime in ("latency", "host"):
            name, share = FLOOR_SENTINELS[key.timer], min(roof.fraction or 0.0, 1.0)
            return _mixed_drift(found.get(name, common), common, share), name
        names = _sentinels(roof.regime, after.point)
        name = next((name for name in names if name in found), "")
        return (found[name], name) if name else (common, ALL_SENTINELS)

    def drifts(self, before: tuple[str, ...], after: tuple[str, ...]) -> Mapping[str, Drift]:
        """Return the change of every sentinel that both sides measured, by name."""
        if (before, after) not in self._drifts:
            old, new = self._sentinels(before), self._sentinels(after)
            self._drifts[before, after] = {
                name: drift_of(old[name], new[name]) for name in sorted(old) if name in new
            }
        return self._drifts[before, after]

    def _common_drift(self, before: tuple[str, ...], after: tuple[str, ...]) -> Drift:
        """Return the median of all sentinels, the same for all series of two commits."""
        if (before, after) not in self._common:
            drifts = self.drifts(before, after).values()
            self._common[before, after] = _median_drift(drifts)
        return self._common[before, after]

    def _sentinels(self, run_ids: Iterable[str]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for run_id in run_ids:
            for point in self.history.sentinels.get(run_id, ()):
                found.setdefault(point.name, []).extend(point.medians_ns)
        return found


def _joined(commit: str, points: Sequence[Point]) -> Side:
    """Join several runs of one commit: all their replicates are fresh processes alike."""
    wrong = [point for point in points if point.status == "incorrect"]
    passed = wrong[-1:] or [point for point in points if point.median_ns is not None] or points[-1:]
    run_ids = tuple(point.run_id for point in passed)
    last = passed[-1]
    if len(passed) == 1:
        return Side(commit, last, run_ids)
    medians = tuple(ns for point in passed for ns in point.medians_ns)
    low, middle, high = mean_interval(medians)
    joined = last._replace(
        medians_ns=medians, median_ns=middle, ci_low_ns=low, ci_high_ns=high,
        samples=sum(point.samples for point in passed),
    )  # fmt: skip
    return Side(commit, joined, run_ids)


def _sentinels(regime: str | None, point: Point) -> tuple[str, ...]:
    """Return the sentinels that measure the same limit, the best one first."""
    if regime == "compute" and point.cost is not None:
        return (f"gemm-{point.cost.pipe}", "fma-fp32") if point.cost.pipe != "fp32" else (
            "fma-fp32", "gemm-fp32")  # fmt: skip
    return {"special": ("special",), "l2": ("l2-copy", "copy")}.get(regime or "", ("copy",))


def _median_drift(drifts: Iterable[Drift]) -> Drift:
    found = list(drifts)
    if not found:
        return NO_DRIFT
    middle = median(drift.log_ratio for drift in found)
    return Drift(middle, median(drift.standard_error for drift in found))


def _mixed_drift(floor: Drift, common: Drift, share: float) -> Drift:
    """Return the drift of a time of which the floor makes up `share`."""
    parts = ((floor, share), (common, 1 - share))
    moved = sum(math.expm1(drift.log_ratio) * part for drift, part in parts)
    error = math.hypot(*(drift.standard_error * part for drift, part in parts))
    return Drift(math.log1p(moved), error)
