"""Two cards of one model differ: how much of a change the card alone may explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from collector.history.causes import Cause
from collector.history.format import percent
from collector.history.model import History, SeriesKey
from collector.history.sides import FLOOR_SENTINELS, Index, Pair, Side
from collector.verdict import ALPHA, FLOOR, Judgement, floor_of_cards, raise_floor

Family = tuple[str, str]  # op, timer

HOST_SENTINELS = {name for timer, name in FLOOR_SENTINELS.items() if timer != "graph"}


def other_cards(index: Index, before: Side, after: Side) -> bool:
    """Tell whether two sides are known to come from different cards."""
    a, b = index.cards(before), index.cards(after)
    return bool(a and b) and a != b


def is_control(history: History, key: SeriesKey, before: Side, after: Side) -> bool:
    """Tell whether a series is no kernel of this project: PyTorch or a library, unchanged.

    Sides that are compared share torch and Triton already; a library is a package of its own.
    """
    kind = _kind(history, key)
    if kind != "library":
        return kind != "triton"
    a, b = (history.runs[side.run_ids[-1]].versions for side in (before, after))
    return a == b


def _kind(history: History, key: SeriesKey) -> str:
    op = history.ops.get(key.op)
    return (op.kind_of(key.implementation) if op else None) or "triton"


def with_card_floors(
    index: Index, pairs: Iterable[Pair]
) -> tuple[list[Pair], Mapping[Family, float]]:
    """Raise the floor of every pair that two cards measured; return those floors as well."""
    every = list(pairs)
    families: dict[Family, list[Pair]] = {}
    for pair in every:
        if pair.other_card:
            families.setdefault(_family(pair), []).append(pair)
    floors = {family: _floor(index, members) for family, members in families.items()}
    return [_raised(pair, floors) for pair in every], floors


def _family(pair: Pair) -> Family:
    return pair.key.op, pair.key.timer


def _floor(index: Index, members: Sequence[Pair]) -> float:
    """Take sentinels and controls but torch.compile, which times its choices anew in each process.

    Seen on an H200: 2.5 times as slow in one run as in another, where PyTorch's own moved by 1 %.
    """
    sides = {(pair.before.run_ids, pair.after.run_ids) for pair in members}
    drifts = [index.drifts(before, after) for before, after in sides]
    return floor_of_cards(
        [drift for row in drifts for name, drift in row.items() if name not in HOST_SENTINELS],
        [
            pair.comparison
            for pair in members
            if pair.control and _kind(index.history, pair.key) != "compiled"
        ],
    )


def _raised(pair: Pair, floors: Mapping[Family, float]) -> Pair:
    if not pair.other_card:
        return pair
    # Controls bound what cards differ by from below only: the change itself has to matter.
    floor = max(FLOOR, floors[_family(pair)])
    if pair.control:
        floor = max(floor, math.expm1(abs(pair.comparison.log_ratio)))
    return replace(pair, comparison=raise_floor(pair.comparison, floor))


def card_cause(pair: Pair, judged: Judgement) -> Cause | None:
    """Say what another card, or a series that is no kernel of this project, means for a change."""
    if not _sure(pair, judged):
        return None
    versions = "it is not this project's kernel, and the versions are the same"
    if not pair.other_card:
        return Cause("not-ours", f"{versions[0].upper()}{versions[1:]}.") if pair.control else None
    if pair.control:
        return Cause("card", f"The card changed: {versions}.")
    also = " as well" if judged.verdict in ("regressed", "improved") else ""
    share = percent(judged.comparison.floor, 1)
    return Cause("card", f"The card changed{also}, which alone moves times by up to {share}.")


def _sure(pair: Pair, judged: Judgement) -> bool:
    """Tell whether there was a change at all, whatever made it."""
    large = abs(judged.comparison.log_ratio) >= math.log1p(pair.own_floor)
    return large and judged.q_value is not None and judged.q_value < ALPHA
