"""Numbers and names as people read them: units fixed, digits few, nothing hidden."""

from __future__ import annotations

import math

NONE = "–"
_BINARY = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))
_DURATIONS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def significant(value: float, digits: int = 3) -> str:
    """Write a number with so many significant digits, thousands apart, never an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(places, 0)}f}"


def plain(value: float) -> str:
    """Write a tick label: as few digits as the number needs."""
    return f"{value:,.10f}".rstrip("0").rstrip(".")


def binary(value: float) -> str:
    """Write a size with binary prefixes where it divides evenly, for example `64Ki`."""
    for factor, prefix in _BINARY:
        if value >= factor and value % factor == 0:
            return f"{int(value // factor)}{prefix}"
    return plain(value)


def duration(value_ns: float | None, digits: int = 4) -> str:
    """Write a time with the unit that suits it."""
    if value_ns is None:
        return NONE
    factor, unit = next((pair for pair in _DURATIONS if value_ns >= pair[0]), _DURATIONS[-1])
    return f"{significant(value_ns / factor, digits)} {unit}"


def interval(low_ns: float | None, high_ns: float | None) -> str:
    """Write the ends of an interval in the unit of its upper end."""
    if low_ns is None or high_ns is None:
        return NONE
    factor, unit = next((pair for pair in _DURATIONS if high_ns >= pair[0]), _DURATIONS[-1])
    return f"{significant(low_ns / factor, 4)}–{significant(high_ns / factor, 4)} {unit}"


def times(ratio: float | None) -> str:
    """Write a ratio, for example `1.93×`."""
    return NONE if ratio is None else f"{significant(ratio)}×"


def percent(share: float | None, digits: int = 0) -> str:
    """Write a share as per cent."""
    return NONE if share is None else f"{100 * share:.{digits}f} %"


def change(log_ratio: float | None) -> str:
    """Write a change of time with its sign, so that colour need not carry it."""
    if log_ratio is None:
        return NONE
    value = round(100 * math.expm1(log_ratio), 1)
    sign = "+" if value > 0 else "−" if value < 0 else "±"
    return f"{sign}{abs(value):.1f} %"


def bytes_text(count: float | None) -> str:
    """Write an amount of memory."""
    if count is None:
        return NONE
    for factor, prefix in _BINARY:
        if count >= factor:
            return f"{significant(count / factor)} {prefix}B"
    return f"{count:,.0f} B"


def rate(value: float | None, unit: str) -> str:
    """Write a rate in the largest prefix that keeps it above one, for example `4.24 TB/s`."""
    if value is None:
        return NONE
    pairs = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    factor, prefix = next((pair for pair in pairs if value >= pair[0]), pairs[-1])
    return f"{significant(value / factor)} {prefix}{unit}"


def short(sha: str | None) -> str:
    """Return the 8 digits that people use for a commit."""
    return sha[:8] if sha else "unknown"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 or noun.endswith('s') else 's'}"
