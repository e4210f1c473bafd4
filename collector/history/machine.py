"""What the sentinels of a run say of the machine: its limits and its floors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from collector.history.model import Ceilings, SentinelPoint
from collector.history.reading import RunFile
from collector.record import Sentinel

COPIES = ("copy", "copy-torch")
LINK_FLOORS = {"graph": "link-floor-graph", "call": "link-floor"}  # by the timer


def sentinel_points(one: RunFile) -> tuple[SentinelPoint, ...]:
    """Return the sentinels of a run by name, with a median for each replicate and phase."""
    groups: dict[str, list[Sentinel]] = {}
    for _, line in one.sentinels:
        if line.latency is not None:
            groups.setdefault(line.name, []).append(line)
    return tuple(_point(one.run.run_id, groups[name]) for name in sorted(groups))


def _point(run_id: str, lines: Sequence[Sentinel]) -> SentinelPoint:
    phases: dict[str, list[float]] = {}
    for line in lines:
        if line.latency is not None:
            phases.setdefault(line.phase, []).append(line.latency.median_ns)
    medians = tuple(time_ns for phase in phases.values() for time_ns in phase)
    first = lines[0]
    return SentinelPoint(
        name=first.name,
        run_id=run_id,
        medians_ns=medians,
        median_ns=median(medians),
        best_ns=min(median(times) for times in phases.values()),
        bytes=first.bytes,
        flops=first.flops,
        special_ops=first.special_ops,
    )


def ceilings_of(points: Sequence[SentinelPoint]) -> Ceilings:
    """Return the measured limits: rates of the best phase, floors of the median of all phases.

    The first graphs of a fresh process start faster than all later ones, so the best floor is one
    that no kernel of the run can reach.
    """
    by_name = {point.name: point for point in points}
    gemms = {
        name.removeprefix("gemm-"): point.flops / point.best_ns * 1e9
        for name, point in by_name.items()
        if name.startswith("gemm-") and point.flops
    }
    return Ceilings(
        copy_bytes_per_s=_fastest_copy(by_name),
        read_bytes_per_s=_rate(by_name, "read", "bytes"),
        write_bytes_per_s=_rate(by_name, "write", "bytes"),
        l2_bytes_per_s=_rate(by_name, "l2-copy", "bytes"),
        fp32_flops_per_s=_rate(by_name, "fma-fp32", "flops") or gemms.get("fp32"),
        special_ops_per_s=_rate(by_name, "special", "special_ops"),
        gemm_flops_per_s=gemms,
        floor_graph_ns=_floor(by_name, "empty"),
        floor_call_ns=_floor(by_name, "empty-call"),
        floor_submit_ns=_floor(by_name, "empty-submit"),
        link_bytes_per_s={
            ranks: rate
            for ranks in _ranks_of(by_name)
            if (rate := _rate(by_name, f"link-{ranks}", "bytes"))
        },
        link_floor_ns={timer: _link_floors(by_name, name) for timer, name in LINK_FLOORS.items()},
    )


def _link_floors(points: Mapping[str, SentinelPoint], name: str) -> Mapping[int, float]:
    """Return the time of a smallest all-reduce by the number of ranks."""
    floors = {ranks: _floor(points, f"{name}-{ranks}") for ranks in _ranks_of(points)}
    return {ranks: floor for ranks, floor in floors.items() if floor}


def _ranks_of(names: Iterable[str]) -> list[int]:
    """Return the numbers of ranks whose links were measured."""
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(r"link-(\d+)", name)))


def _fastest_copy(points: Mapping[str, SentinelPoint]) -> float | None:
    """Return the memory roof: no kernel may be held against a slower copy than there is."""
    return max(filter(None, (_rate(points, name, "bytes") for name in COPIES)), default=None)


def _rate(points: Mapping[str, SentinelPoint], name: str, count: str) -> float | None:
    point = points.get(name)
    amount = getattr(point, count, 0)
    return amount / point.best_ns * 1e9 if point and amount else None


def _floor(points: Mapping[str, SentinelPoint], name: str) -> float | None:
    return points[name].median_ns if name in points else None
