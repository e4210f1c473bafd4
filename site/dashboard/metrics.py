"""Means of many values."""

from __future__ import annotations

import math


def geometric_mean(values: list[float]) -> float | None:
    """Return the geometric mean of positive values; None of none."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None
