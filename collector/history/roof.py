"""What limits a point: the measured limits of its run, and the roof that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collector.history.model import Ceilings, History, Point, SeriesKey

HOST_RATIO = 1.5
ABOVE_ROOF = 1.02
LIMITS = ("latency", "memory", "l2", "compute", "special", "link")


@dataclass(frozen=True, slots=True)
class Roof:
    """What limits a point, by the limits measured in its own run.

    `limits_ns` holds the least time that each limit allows, `time_ns` the longest of them, which
    is the roof. `regime` names it, or is `host` where a call takes far longer than its device
    time, by `host_ratio`. `fraction` of 1 is a point on its roof. `flags` says what cannot be:
    `above-roof`, `below-floor`.
    """

    limits_ns: Mapping[str, float]
    time_ns: float | None
    regime: str | None
    fraction: float | None
    host_ratio: float | None
    flags: tuple[str, ...]


def working_set_bytes(point: Point) -> int | None:
    """Return the bytes of all sets of inputs and outputs that were used in turn."""
    return point.sets * point.cost.minimal_bytes if point.cost and point.sets else None


def fits_l2(key: SeriesKey, point: Point, l2_bytes: int) -> bool:
    """Tell whether a hot case stays in the last cache before memory."""
    size = working_set_bytes(point)
    return key.cache == "hot" and size is not None and size <= l2_bytes


def limits_ns(
    key: SeriesKey, point: Point, ceilings: Ceilings, l2_bytes: int
) -> Mapping[str, float]:
    """Return the least time by each measured limit; enqueueing knows the floor alone."""
    floor_ns = {
        "graph": ceilings.floor_graph_ns,
        "call": ceilings.floor_call_ns,
        "submit": ceilings.floor_submit_ns,
    }[key.timer]
    ranks = dict(key.sizes).get("ranks", 0)
    link_floor_ns = ceilings.link_floor_ns.get(key.timer, {}).get(ranks)
    found: dict[str, float | None] = {"latency": link_floor_ns or floor_ns}
    cost = point.cost
    if cost is not None and key.timer != "submit":
        # In a cache whose rate was not measured, memory is no limit and there is none to name.
        if fits_l2(key, point, l2_bytes):
            found["l2"] = _least_ns(cost.minimal_bytes, ceilings.l2_bytes_per_s)
        else:
            found["memory"] = _least_ns(cost.minimal_bytes, ceilings.memory_bytes_per_s)
        found["compute"] = _least_ns(cost.flops, pipe_flops_per_s(ceilings, cost.pipe))
        found["special"] = _least_ns(cost.special_ops, ceilings.special_ops_per_s)
        found["link"] = _least_ns(cost.link_bytes or 0, ceilings.link_bytes_per_s.get(ranks))
    return {name: time for name in LIMITS if (time := found.get(name)) is not None}


def pipe_flops_per_s(ceilings: Ceilings, pipe: str) -> float | None:
    """Return the measured arithmetic rate of a pipe."""
    if pipe == "fp32":
        return ceilings.fp32_flops_per_s
    return ceilings.gemm_flops_per_s.get(pipe)


def regime(limits: Mapping[str, float], host_ratio: float | None = None) -> str | None:
    """Name what limits: the host where it is far behind, else the limit with the longest time."""
    if host_ratio is not None and host_ratio > HOST_RATIO:
        return "host"
    return max(limits, key=lambda name: limits[name]) if limits else None


def roof(
    key: SeriesKey,
    point: Point,
    ceilings: Ceilings,
    l2_bytes: int,
    device_point: Point | None = None,
) -> Roof:
    """Return what limits a point; `device_point` is the same case timed on the device alone.

    A case that is itself timed on the device knows no host: its regime names a limit of the device.
    """
    limits = limits_ns(key, point, ceilings, l2_bytes)
    ratio = None
    if device_point and point.median_ns and device_point.median_ns and key.timer != "graph":
        ratio = point.median_ns / device_point.median_ns
    longest = max(limits.values(), default=None)
    time_ns = point.median_ns
    fraction = longest / time_ns if longest is not None and time_ns else None
    flags = _impossible(limits, time_ns, key.timer)
    return Roof(limits, longest, regime(limits, ratio), fraction, ratio, flags)


def roof_in(history: History, key: SeriesKey, point: Point) -> Roof | None:
    """Return the roof of a point by the ceilings of its run; None where the run has none."""
    ceilings = history.ceilings.get(point.run_id)
    if ceilings is None:
        return None
    l2_bytes = history.runs[point.run_id].device.l2_bytes
    device_point = partner(history, key, point, "graph") if key.timer != "graph" else None
    return roof(key, point, ceilings, l2_bytes, device_point)


def partner(history: History, key: SeriesKey, point: Point, timer: str) -> Point | None:
    """Return the same case of the same run under another timer."""
    return history.by_run[point.run_id].get(key._replace(timer=timer))


def _least_ns(amount: int, per_s: float | None) -> float | None:
    return amount / per_s * 1e9 if per_s else None


def _impossible(limits: Mapping[str, float], time_ns: float | None, timer: str) -> tuple[str, ...]:
    if time_ns is None:
        return ()
    work = max((time for name, time in limits.items() if name != "latency"), default=0.0)
    above = work > time_ns * ABOVE_ROOF
    # The floors of a call are those of Triton's launcher; PyTorch's own is faster.
    below = timer == "graph" and limits.get("latency", 0.0) > time_ns * ABOVE_ROOF
    return ("above-roof",) * above + ("below-floor",) * below
