"""What a run measured, case by case: samples, percentiles, speed-ups and rates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collector.history.merging import quantile
from collector.history.model import Point, SeriesKey
from collector.history.rates import gb_per_s, tflop_per_s, units_per_s
from collector.runs import OneRun

COMPILED, EAGER = "torch.compile", "torch"
PERCENTILES = (50, 95, 99)
EXPLAINED = (
    "A sample is the mean of so many calls that the clock does not show in it; percentiles are "
    "those of the samples of all replicates, linear between neighbours. Speed-ups divide medians "
    "of the same run, case and timer; above 1 is faster than the other. GB/s and TFLOP/s are by "
    "the least work that the op needs."
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which series of a run are shown; what is empty does not choose."""

    ops: tuple[str, ...] = ()
    timer: str = ""
    cache: str = ""

    def usual(self, device_kind: str) -> Selection:
        """Return the same with the usual timer and cache of a device, where none is named."""
        timer, cache = ("graph", "cold") if device_kind == "cuda" else ("call", "hot")
        if self.timer in ("call", "submit"):
            cache = "hot"
        return Selection(self.ops, self.timer or timer, self.cache or cache)

    def takes(self, key: SeriesKey) -> bool:
        """Tell whether a series is among them."""
        return (
            (not self.ops or key.op in self.ops)
            and self.timer in ("", key.timer)
            and self.cache in ("", key.cache)
        )


@dataclass(frozen=True, slots=True)
class Samples:
    """The times of one call, in ns."""

    samples_ns: Sequence[float]
    min_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: float


@dataclass(frozen=True, slots=True)
class Row:
    """One case; what it lacks is None. `best_other` is the fastest other implementation."""

    key: SeriesKey
    point: Point
    samples: Samples | None
    over_compiled: float | None
    over_eager: float | None
    over_best: float | None
    best_other: str | None
    gb_per_s: float | None
    tflop_per_s: float | None
    units_per_s: float | None


def summarised(samples_ns: Sequence[float]) -> Samples:
    """Summarise sorted samples."""
    p50, p95, p99 = (quantile(samples_ns, share / 100) for share in PERCENTILES)
    return Samples(samples_ns, samples_ns[0], p50, p95, p99, samples_ns[-1])


def selected(run: OneRun, selection: Selection) -> Iterator[tuple[SeriesKey, Point]]:
    """Yield the series that are shown: ops and implementations as the run lists them."""
    places = {
        (op, one.name): place
        for op in run.info.ops
        for place, one in enumerate(run.op(op).implementations)
    }

    def order(key: SeriesKey) -> tuple[Any, ...]:
        place = places.get((key.op, key.implementation), len(places))
        series = (key.mode, key.dtype, key.timer, key.cache)
        return run.info.ops.index(key.op), *series, sizes_in_order(key), place

    chosen = (key for key in run.points if key.op in run.info.ops and selection.takes(key))
    yield from ((key, run.points[key]) for key in sorted(chosen, key=order))


def sizes_in_order(key: SeriesKey) -> tuple[int, ...]:
    """Return the sizes as numbers, so that cases sort as people count."""
    return tuple(size for _, size in key.sizes)


def rows(run: OneRun, selection: Selection) -> list[Row]:
    """Return a row for each series that is selected."""
    rivals = by_rivalry(run.points)
    return [row(run, key, point, rivals[rivalry(key)]) for key, point in selected(run, selection)]


def rivalry(key: SeriesKey) -> tuple[Any, ...]:
    """Name what implementations compete in."""
    return key.op, key.mode, key.dtype, frozenset(key.sizes), key.timer, key.cache


def by_rivalry(
    points: Mapping[SeriesKey, Point],
) -> Mapping[tuple[Any, ...], Mapping[str, Point]]:
    """Group points by what they compete in, then by implementation."""
    found: dict[tuple[Any, ...], dict[str, Point]] = {}
    for key, point in points.items():
        found.setdefault(rivalry(key), {})[key.implementation] = point
    return found


def row(run: OneRun, key: SeriesKey, point: Point, rivals: Mapping[str, Point]) -> Row:
    """Return the row of one series."""
    samples_ns = run.samples_ns.get(key)
    others = {name: other for name, other in rivals.items() if name != key.implementation}
    best = fastest(others, point.method_id)
    return Row(
        key=key,
        point=point,
        samples=summarised(samples_ns) if samples_ns else None,
        over_compiled=speed_up(point, others.get(COMPILED)),
        over_eager=speed_up(point, others.get(EAGER)),
        over_best=speed_up(point, others.get(best)) if best else None,
        best_other=best,
        gb_per_s=gb_per_s(point) or None,
        tflop_per_s=tflop_per_s(point) or None,
        units_per_s=units_per_s(key, point, run.op(key.op).axis),
    )


def fastest(others: Mapping[str, Point], method_id: str) -> str | None:
    """Return the implementation with the smallest median by the same method."""
    timed = [
        (point.median_ns, name)
        for name, point in others.items()
        if point.median_ns is not None and point.method_id == method_id
    ]
    return min(timed)[1] if timed else None


def speed_up(point: Point, other: Point | None) -> float | None:
    """Return how many times faster a point is than another one; None without both times."""
    if other is None or point.median_ns is None or other.median_ns is None:
        return None
    return other.median_ns / point.median_ns if point.method_id == other.method_id else None


def as_json(run: OneRun, found: Iterable[Row]) -> dict[str, Any]:
    """Return a run and its rows for JSON: every sample, and every figure of the table."""
    return {**run_json(run), "cases": [row_json(one) for one in found]}


def run_json(run: OneRun) -> dict[str, Any]:
    """Return who measured what, when and with what."""
    info = run.info
    return {
        "file": info.file,
        "run_id": info.run_id,
        "started_at": info.started_at,
        "command": list(info.command),
        "source": info.source.model_dump(mode="json"),
        "device": info.device.model_dump(mode="json"),
        "versions": dict(info.versions),
        "methods": {name: dict(method) for name, method in info.methods.items()},
        "flags": list(info.flags),
    }


def case_json(key: SeriesKey) -> dict[str, Any]:
    """Return the key of a case as records write it."""
    return {
        "op": key.op,
        "implementation": key.implementation,
        "mode": key.mode,
        "workload": {"sizes": dict(key.sizes), "dtype": key.dtype},
        "timer": key.timer,
        "cache": key.cache,
    }


def row_json(one: Row) -> dict[str, Any]:
    """Return one row for JSON."""
    point = one.point
    return {
        "case": case_json(one.key),
        "status": point.status,
        "reason": point.reason,
        "record": point.location,
        "samples": samples_json(one),
        "median_ns": point.median_ns,
        "replicates": len(point.medians_ns),
        "speed_up": {
            "over_torch_compile": one.over_compiled,
            "over_torch": one.over_eager,
            "over_best_other": one.over_best,
            "best_other": one.best_other,
        },
        "gb_per_s": one.gb_per_s,
        "tflop_per_s": one.tflop_per_s,
        "units_per_s": one.units_per_s,
        "cost": point.cost.model_dump(mode="json") if point.cost else None,
        "correctness": point.correctness.model_dump(mode="json") if point.correctness else None,
        "flags": list(point.flags),
    }


def samples_json(one: Row) -> dict[str, Any] | None:
    """Return the samples of a row for JSON; None where there are none."""
    if one.samples is None:
        return None
    found = one.samples
    return {
        "count": len(found.samples_ns),
        "calls": one.point.calls,
        "min_ns": found.min_ns,
        "p50_ns": found.p50_ns,
        "p95_ns": found.p95_ns,
        "p99_ns": found.p99_ns,
        "max_ns": found.max_ns,
        "samples_ns": list(found.samples_ns),
    }
