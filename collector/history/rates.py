"""Rates of points: work over time. Pure functions of points."""

from __future__ import annotations

from collector.history.model import Point, SeriesKey


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


def units_per_s(key: SeriesKey, point: Point, axis: str) -> float | None:
    """Return how many units of an op's axis, such as rows, are done a second."""
    rate = _rate(point, dict(key.sizes).get(axis) or None)
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
