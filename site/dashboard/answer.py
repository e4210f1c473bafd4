"""Where one implementation is faster than another, and what decides there, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from markupsafe import Markup

from dashboard import format as words
from dashboard.crossover import SpeedUp

Kind = Literal["faster", "slower", "even"]
Ratios = Sequence[tuple[int, SpeedUp]]

EVEN = 1.05  # times: what is nearer to one is even to a reader, however sure it is
FEW = 3  # stretches that a sentence can tell
DECIDES = {
    "host": "the host decides",
    "latency": "the launch decides",
    "memory": "memory decides",
    "l2": "the L2 cache decides",
    "compute": "arithmetic decides",
    "special": "special functions decide",
    "link": "links decide",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Neighbouring sizes with one answer; `regime` is None where no single limit decides."""

    kind: Kind
    ratios: Ratios
    regime: str | None

    @property
    def first(self) -> int:
        """Return the smallest size."""
        return self.ratios[0][0]

    @property
    def last(self) -> int:
        """Return the largest size."""
        return self.ratios[-1][0]


def kind_of(ratio: SpeedUp) -> Kind:
    """Say who is faster; even where that is unsure or hardly matters."""
    if ratio.surely_faster and ratio.value >= EVEN:
        return "faster"
    if ratio.surely_slower and ratio.value <= 1 / EVEN:
        return "slower"
    return "even"


def answers(ratios: Ratios, regimes: Mapping[int, str | None]) -> list[Answer]:
    """Join neighbouring sizes of one answer."""
    made = []
    for kind, group in groupby(ratios, key=lambda pair: kind_of(pair[1])):
        found = tuple(group)
        limits = {regimes.get(size) for size, _ in found}
        made.append(Answer(kind, found, limits.pop() if len(limits) == 1 else None))
    return made


def answer_words(found: Sequence[Answer], axis: str, baseline: str) -> Markup:
    """Say where it is how much faster, and what decides there; many stretches are counted."""
    if len(found) > FEW:
        return Markup("{} than {}").format(count_words(found), baseline)
    parts = [_part(one, place, len(found), axis) for place, one in enumerate(found)]
    first, *rest = (
        Markup("{}{}{}").format(how, Markup(" as {}").format(baseline) if not place else "", where)
        for place, (how, where) in enumerate(parts)
    )
    return Markup("; ").join([first, *rest])


def _part(one: Answer, place: int, count: int, axis: str) -> tuple[Markup, str]:
    """Return how fast it is there, and where that is and why."""
    why = f", where {DECIDES[one.regime]}" if one.regime else ""
    return _how(one), f" {_where(one, place, count, axis)}{why}"


def _how(one: Answer) -> Markup:
    if one.kind == "even":
        return Markup("about as fast")
    how_fast = words.times_span([ratio.value for _, ratio in one.ratios])
    return Markup("<strong>{}</strong> as fast").format(how_fast)


def _where(one: Answer, place: int, count: int, axis: str) -> str:
    first, last = words.binary(one.first), words.binary(one.last)
    if count == 1 and first != last:
        return f"at every measured size ({axis} = {first} to {last})"
    if first == last:
        return f"at {axis} = {first}"
    if place == 0:
        return f"up to {axis} = {last}"
    return f"from {axis} = {first} on" if place == count - 1 else f"from {axis} = {first} to {last}"


def count_words(found: Sequence[Answer]) -> str:
    """Count the sizes of each answer, for example `faster at 3 of 5 sizes, never slower`."""
    counts = Counter({"faster": 0, "slower": 0})
    for one in found:
        counts[one.kind] += len(one.ratios)
    total = counts.total()
    if counts["faster"] == total:
        return "faster at every size" if total > 1 else "faster at the one size measured"
    if not counts["faster"] and not counts["slower"]:
        return "about as fast at every size"
    told = [f"{kind} at {counts[kind]}" for kind in ("faster", "slower") if counts[kind]]
    never = ", never slower" if not counts["slower"] else ""
    return f"{', '.join(told)} of {words.plural(total, 'size')}{never}"
