"""What the regions of a pipeline say: which one binds, by what, and what each step bought."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard import format as words
from dashboard.figures import REGIME_WORDS
from dashboard.pipeline import Breakdown, Column, Part


def signed(time_ns: float) -> str:
    """Write a difference of times with its sign."""
    sign = "+" if time_ns > 0 else "−" if time_ns < 0 else "±"
    return sign + words.duration(abs(time_ns), 3)


def gist(breakdown: Breakdown, baseline: str) -> str:
    """Say of the fastest implementation with regions how fast it is and what binds it."""
    told = [one for one in breakdown.columns if one.sum_ns is not None and one.whole_ns]
    if not told:
        return ""
    best = min(told, key=lambda one: one.whole_ns or 0.0)
    ratio = best.over(breakdown.named(baseline)) if best.name != baseline else None
    faster = f", {words.times(ratio)} as fast as {baseline}" if ratio else ""
    return f"{best.name} takes {words.duration(best.whole_ns, 3)}{faster}; {binds(best)}"


def binds(column: Column) -> str:
    """Name the region that takes the most, and what limits it."""
    part = column.binding
    if part is None:
        return ""
    text = f"{part.op} binds, {words.percent(column.of_sum(part))} of the sum"
    return ", ".join(filter(None, (text, limit(part))))


def limit(part: Part) -> str:
    """Say what limits a region, and how much of that it reaches."""
    if part.roof is None or part.roof.regime is None:
        return ""
    return f"{REGIME_WORDS[part.roof.regime]} at {words.percent(part.roof.fraction)} of its roof"


def story(breakdown: Breakdown, baseline: str) -> list[tuple[str, str]]:
    """Say of every implementation what it bought over the baseline, and what binds it."""
    against = breakdown.named(baseline)
    told = []
    for column in breakdown.columns:
        other = against if column is not against else None
        text = ". ".join(filter(None, (_bought(column, other), binds(column))))
        told += [(column.name, f"{text}.")] if text else []
    return told


def _bought(column: Column, other: Column | None) -> str:
    """Say what changed end to end, and how much of it each region brought."""
    ratio = column.over(other)
    if other is None or ratio is None or column.whole_ns is None or other.whole_ns is None:
        return ""
    ends = signed(column.whole_ns - other.whole_ns)
    text = f"{words.times(ratio)} as fast as {other.name} end to end, {ends}"
    steps = sorted(_steps(column, other), key=lambda step: step[1])
    told = ", ".join(f"{name} {signed(difference)}" for name, difference in steps)
    return f"{text}; by region: {told}" if told else text


def _steps(column: Column, other: Column) -> Iterator[tuple[str, float]]:
    for mine, theirs in zip(column.parts, other.parts, strict=False):
        if mine.time_ns is not None and theirs.time_ns is not None:
            yield mine.op, mine.time_ns - theirs.time_ns
