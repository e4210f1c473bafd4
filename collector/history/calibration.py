"""How often unchanged code raises an alarm: both sides of each comparison are one commit.

A run is cut into its first and its second half of replicates; two runs of one commit are held
against each other as they are. Whatever is called slower or faster there is a false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median, quantiles

from collector.history.cards import with_card_floors
from collector.history.model import Point, RunInfo, SeriesKey
from collector.history.sides import Index, Pair, Side
from collector.history.tables import paired
from collector.verdict import Judgement, Noise, judge, logs_of, mean_interval, noise_model

LEAST_REPLICATES = 4  # two a half
LEAST_DIFFERENCES = 20


@dataclass(frozen=True, slots=True)
class AaTest:
    """All series of one comparison of a commit with itself, judged as one family.

    `before` and `after` name the run of each side; the same twice where its halves were compared.
    """

    device: str
    commit: str
    before: str
    after: str
    judged: tuple[tuple[SeriesKey, Judgement], ...]

    @property
    def slower(self) -> int:
        """Number of series falsely called slower."""
        return self._count("regressed")

    @property
    def faster(self) -> int:
        """Number of series falsely called faster."""
        return self._count("improved")

    def _count(self, verdict: str) -> int:
        return sum(one.verdict == verdict for _, one in self.judged)


@dataclass(frozen=True, slots=True)
class AaSeries:
    """One series over all comparisons of a commit with itself, as relative changes.

    `difference_95` is the 95th percentile of the differences between replicates of one commit;
    None below twenty differences. `detectable` is the smallest change that such a
    comparison would have found in four of five cases; None where one side has a single replicate.
    """

    key: SeriesKey
    tests: int
    difference_95: float | None
    detectable: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What comparing commits with themselves says of one device."""

    device: str
    tests: tuple[AaTest, ...]
    series: tuple[AaSeries, ...]

    @property
    def comparisons(self) -> int:
        """Number of series compared, over all tests."""
        return sum(len(test.judged) for test in self.tests)

    @property
    def slower(self) -> int:
        """Number of series falsely called slower."""
        return sum(test.slower for test in self.tests)

    @property
    def faster(self) -> int:
        """Number of series falsely called faster."""
        return sum(test.faster for test in self.tests)


def calibrations(index: Index) -> tuple[Calibration, ...]:
    """Return what each device says, where a commit can be compared with itself."""
    made = (calibration(index, device) for device in index.commits)
    return tuple(one for one in made if one.tests)


def calibration(index: Index, device: str) -> Calibration:
    """Compare every commit of a device with itself: halves of calibrations, and pairs of runs."""
    found = [
        test
        for commit in index.commits[device]
        for runs in [index.runs(device, commit.sha)]
        for test in (*_halves(index, runs), *_pairs(index, runs))
        if test.judged
    ]
    return Calibration(device, tuple(found), _series(index, found))


def _timed(index: Index, run: RunInfo) -> Mapping[SeriesKey, Point]:
    """Return the points of a run that have a time."""
    points = index.history.by_run[run.run_id]
    return {key: point for key, point in points.items() if point.median_ns is not None}


def _halves(index: Index, runs: Sequence[RunInfo]) -> Iterator[AaTest]:
    for run in runs:
        if run.purpose == "calibrate":
            sides = {
                key: (_side(point, point.medians_ns[:half]), _side(point, point.medians_ns[half:]))
                for key, point in _timed(index, run).items()
                for half in [len(point.medians_ns) // 2]
                if len(point.medians_ns) >= LEAST_REPLICATES
            }
            yield _test(index, run, run, sides)


def _pairs(index: Index, runs: Sequence[RunInfo]) -> Iterator[AaTest]:
    for before, after in combinations(runs, 2):
        old, new = _timed(index, before), _timed(index, after)
        sides = {
            key: (_side(old[key], old[key].medians_ns), _side(new[key], new[key].medians_ns))
            for key in old
            if key in new and index.identity(old[key]) == index.identity(new[key])
        }
        yield _test(index, before, after, sides)


def _side(point: Point, medians_ns: tuple[float, ...]) -> Side:
    """Return some replicates of a point as a side."""
    low, middle, high = mean_interval(medians_ns)
    part = point._replace(
        medians_ns=medians_ns, median_ns=middle, ci_low_ns=low, ci_high_ns=high
    )  # fmt: skip
    return Side(point.commit or "", part, (point.run_id,))


def _test(
    index: Index, before: RunInfo, after: RunInfo, sides: Mapping[SeriesKey, tuple[Side, Side]]
) -> AaTest:
    compared = [
        paired(index, key, then, now, _noise(index, key, then, now))
        for key, (then, now) in sides.items()
    ]
    pairs, _ = with_card_floors(index, (one for one in compared if isinstance(one, Pair)))
    judged = judge([pair.comparison for pair in pairs])
    named = tuple((pair.key, one) for pair, one in zip(pairs, judged, strict=True))
    commit = before.source.commit or ""
    return AaTest(before.device.slug, commit, before.run_id, after.run_id, named)


def _noise(index: Index, key: SeriesKey, then: Side, now: Side) -> Noise | None:
    """Return the noise as if the sides were two commits: what they differ by is no part of it."""
    others = index.replicates(key, without=then.commit)
    return noise_model([*others, then.point.medians_ns, now.point.medians_ns])


def _series(index: Index, tests: Sequence[AaTest]) -> tuple[AaSeries, ...]:
    found: dict[SeriesKey, list[Judgement]] = {}
    for test in tests:
        for key, one in test.judged:
            found.setdefault(key, []).append(one)
    return tuple(_of_series(index, key, judged) for key, judged in sorted(found.items()))


def _of_series(index: Index, key: SeriesKey, judged: Sequence[Judgement]) -> AaSeries:
    seen = [one.comparison.smallest_seen for one in judged]
    known = [change for change in seen if change is not None]
    return AaSeries(
        key=key,
        tests=len(judged),
        difference_95=_difference_95(index.replicates(key)),
        detectable=median(known) if known else None,
    )


def _difference_95(groups: Iterable[Sequence[float]]) -> float | None:
    apart = [abs(a - b) for group in groups for a, b in combinations(logs_of(group), 2)]
    if len(apart) < LEAST_DIFFERENCES:
        return None
    return math.expm1(quantiles(apart, n=20, method="inclusive")[-1])
