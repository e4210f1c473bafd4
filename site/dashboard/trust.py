"""How far verdicts can be trusted: what comparisons of unchanged code gave on each device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.history.calibration import AaSeries, Calibration, calibrations
from collector.history.sides import Index
from collector.record import Device

SERIES = 200


@dataclass(frozen=True, slots=True)
class Trust:
    """Comparisons of unchanged code on one device; `found` is None where there is none.

    `halves` counts calibrations cut in two, `pairs` the pairs of runs of one commit. `intervals`
    counts the comparisons whose noise was known, without which nothing is called slower; the
    intervals of `holding` hold no change, which is the truth. `series` has the worst first.
    """

    device: Device
    found: Calibration | None
    halves: int
    pairs: int
    intervals: int
    holding: int
    series: tuple[AaSeries, ...]


def trust(index: Index) -> list[Trust]:
    """Return what unchanged code says of each device."""
    found = {one.device: one for one in calibrations(index)}
    return [_trust(device, found.get(slug)) for slug, device in index.history.devices.items()]


def _trust(device: Device, found: Calibration | None) -> Trust:
    if found is None:
        return Trust(device, None, 0, 0, 0, 0, ())
    halves = sum(test.before == test.after for test in found.tests)
    ends = list(_intervals(found))
    return Trust(
        device=device,
        found=found,
        halves=halves,
        pairs=len(found.tests) - halves,
        intervals=len(ends),
        holding=sum(low <= 0 <= high for low, high in ends),
        series=tuple(sorted(found.series, key=_doubt, reverse=True)[:SERIES]),
    )


def _intervals(found: Calibration) -> Iterator[tuple[float, float]]:
    for _, judged in (pair for test in found.tests for pair in test.judged):
        low, high = judged.comparison.low, judged.comparison.high
        if low is not None and high is not None:
            yield low, high


def _doubt(series: AaSeries) -> tuple[float, float]:
    """Rank by the largest change that could be missed; what nothing is known of comes last."""
    return series.detectable or 0.0, series.difference_95 or 0.0
