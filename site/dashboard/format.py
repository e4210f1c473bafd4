"""How the site writes numbers and names; the numbers as the terminal does."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from collector.history.format import (
    NONE,
    binary,
    bytes_text,
    change,
    duration,
    interval,
    percent,
    plain,
    plural,
    rate,
    short,
    significant,
    times,
)

__all__ = [
    "NONE",
    "OUTCOME_WORDS",
    "STATUS_WORDS",
    "binary",
    "bytes_text",
    "change",
    "compact",
    "date",
    "duration",
    "interval",
    "percent",
    "plain",
    "plural",
    "rate",
    "scientific",
    "short",
    "significant",
    "slug",
    "times",
    "times_span",
    "title_text",
]

ALIKE = 1.05  # times: ratios within are told as one
OUTCOME_WORDS: Mapping[str, str] = {
    "complete": "complete",
    "budget": "out of time",
    "interrupted": "interrupted",
    "error": "ended by an error",
}
STATUS_WORDS: Mapping[str, str] = {
    "passed": "passed",
    "incorrect": "wrong result",
    "oom": "out of memory",
    "error": "error",
    "timeout": "timed out",
    "unavailable": "not available",
    "skipped": "skipped",
}


def compact(value: float) -> str:
    """Write a large number with an SI prefix, for example `18.2 G`."""
    return rate(value, "").strip()


def sortable(value: float | str) -> float | str:
    """Shorten what a column is sorted by: tables hold thousands, and digits do not compress."""
    return f"{value:.4g}" if isinstance(value, float) else value


def scientific(value: float) -> str:
    """Write a number that may be very small, for example `5.4e-4`."""
    if value == 0 or 0.01 <= abs(value) < 1e6:
        return significant(value, 2)
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}e{int(power)}"


def date(stamp: str) -> str:
    """Return the day of an ISO time."""
    return stamp[:10]


def slug(text: str) -> str:
    """Return a name that is safe in paths and addresses on every system."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def moved(difference_ns: float) -> str:
    """Write a difference of times with its sign."""
    return f"{'−' if difference_ns < 0 else '+'}{duration(abs(difference_ns), 3)}"


def title_text(text: str) -> str:
    """Return a page title without characters that mean something in YAML, HTML or Markdown."""
    return re.sub(r"\s+", " ", re.sub(r"[<>&\"'{}|`\\\[\]*#]", " ", text)).strip() or "untitled"


def times_span(ratios: Collection[float]) -> str:
    """Write the ends of ratios, or the lower where they hardly differ, as in `1.05× to 1.57×`."""
    low, high = min(ratios), max(ratios)
    return times(low) if high < ALIKE * low else f"{times(low)} to {times(high)}"
