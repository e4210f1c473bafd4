"""What a time means: rates of points, and what limits them. Pure functions of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from collector.history.model import Point


def gb_per_s(point: Point) -> float | None:
    """Return the bandwidth by minimal bytes; None without a time."""
    return _rate(point, point.cost.minimal_bytes if point.cost else None)


def tflop_per_s(point: Point) -> float | None:
    """Return the arithmetic rate; None without a time."""
    rate = _rate(point, point.cost.flops if point.cost else None)
    return rate / 1e3 if rate is not None else None


def special_per_s(point: Point) -> float | None:
    """Return special-function operations per second; None without a time."""
    rate = _rate(point, point.cost.special_ops if point.cost else None)
    return rate * 1e9 if rate is not None else None


def intensity_flops_per_byte(point: Point) -> float | None:
    """Return flops over minimal bytes; None where nothing is moved."""
    cost = point.cost
    return cost.flops / cost.minimal_bytes if cost and cost.minimal_bytes else None


def _rate(point: Point, amount: int | None) -> float | None:
    """Return amount per ns, which is 1e9 of them per second."""
    if amount is None or point.median_ns is None:
        return None
    return amount / point.median_ns


METRICS: Mapping[str, Callable[[Point], float | None]] = {
    "latency_ns": lambda point: point.median_ns,
    "gb_per_s": gb_per_s,
    "tflop_per_s": tflop_per_s,
    "special_per_s": special_per_s,
}


def geometric_mean(values: list[float]) -> float | None:
    """Return the geometric mean of positive values; None of none."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None
