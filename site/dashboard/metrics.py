"""What a time means: rates of points, and means of many."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from collector.history.model import Point
from collector.history.rates import gb_per_s as gb_per_s
from collector.history.rates import intensity_flops_per_byte as intensity_flops_per_byte
from collector.history.rates import special_per_s as special_per_s
from collector.history.rates import tflop_per_s as tflop_per_s

METRICS: Mapping[str, Callable[[Point], float | None]] = {
    "latency_ns": lambda point: point.median_ns,
    "gb_per_s": gb_per_s,
    "tflop_per_s": tflop_per_s,
    "special_per_s": special_per_s,
}


def geometric_mean(values: list[float]) -> float | None:
    """Return the geometric mean of positive values; None of none."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None
