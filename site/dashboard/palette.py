"""Colour, symbol and dash of every name: bound to its identity, the same in all charts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Okabe and Ito's colours without yellow, which a white page swallows; black follows the theme.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "currentColor")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x")
STRIPS = {
    "memory": "#0072B2",
    "l2": "#56B4E9",
    "compute": "#D55E00",
    "special": "#CC79A7",
    "range": "#7E57C2",
    "crossover": "#E69F00",
}
DASHES = {"triton": "solid", "compiled": "dash", "eager": "dot", "library": "dashdot"}


@dataclass(frozen=True, slots=True)
class Style:
    """How one name is drawn."""

    colour: str
    symbol: str
    dash: str


def strip_colour(kind: str) -> str:
    """Return the colour of a stretch of an axis: grey where no unit is what limits there."""
    return STRIPS.get(kind, "#808080")


def styles(groups: Iterable[Mapping[str, str]]) -> dict[str, Style]:
    """Give each name a style; names of one group never look alike while colours last.

    A group maps the names that share a chart to their kinds; the kind decides the dash. A name
    starts at the place that its hash gives, so that a new name rarely moves an old one.
    """
    shared = [dict(group) for group in groups]
    kinds = {name: kind for group in shared for name, kind in group.items()}
    taken: dict[str, int] = {}
    for name in sorted(kinds, key=_hash):
        rivals = {
            taken[other] for group in shared if name in group for other in group.keys() & taken
        }
        taken[name] = _free_place(_hash(name) % len(COLOURS), rivals)
    return {name: _style(place, kinds[name]) for name, place in taken.items()}


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def _free_place(start: int, rivals: set[int]) -> int:
    size = len(COLOURS)
    for lap in range(len(SYMBOLS)):
        for step in range(size):
            place = lap * size + (start + step) % size
            if place not in rivals:
                return place
    return start


def _style(place: int, kind: str) -> Style:
    lap, colour = divmod(place, len(COLOURS))
    symbol = SYMBOLS[(colour + 3 * lap) % len(SYMBOLS)]
    return Style(COLOURS[colour], symbol, DASHES.get(kind, "solid"))
