"""The picture that other sites show beside a link: some words and a curve, as a small PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 1200, 630  # pixels, as previews crop them
FINER = 2  # drawn so many times as large, then averaged: edges become smooth
COLOURS = 32
MARGIN, CURVE_TOP = 70, 380
GROUND, INK, PALE, ACCENT = "#10222f", "#ffffff", "#a9bfcd", "#e69f00"
ASCII = str.maketrans({"×": "x", "–": "-", "−": "-", "µ": "u", "²": "2", "·": "-"})


@dataclass(frozen=True, slots=True)
class Card:
    """What a picture says: `ratios` are drawn as a curve on a log scale, dashed at 1."""

    title: str
    number: str
    words: str
    details: str
    ratios: tuple[float, ...]


def picture(card: Card) -> bytes:
    """Draw a card; the same card gives the same bytes."""
    image = Image.new("RGB", (WIDTH * FINER, HEIGHT * FINER), GROUND)
    pen = ImageDraw.Draw(image)
    _write(pen, (MARGIN, 52), "Kernel Almanac", 30, PALE)
    _write(pen, (MARGIN, 96), card.title, 64, INK, bold=True)
    right = _write(pen, (MARGIN, 196), card.number, 92, ACCENT, bold=True)
    _write(pen, (right + 24 * bool(card.number), 238), card.words, 40, INK)
    _write(pen, (MARGIN, 318), card.details, 28, PALE)
    _curve(pen, card.ratios)
    small = image.reduce(FINER).quantize(COLOURS, Image.Quantize.FASTOCTREE)
    made = BytesIO()
    small.save(made, "PNG", compress_level=6)
    return made.getvalue()


def _write(
    pen: ImageDraw.ImageDraw,
    place: tuple[float, float],
    text: str,
    size: int,
    colour: str,
    bold: bool = False,
) -> float:
    """Write a line as large as it fits and return where it ends; the font holds ASCII alone."""
    plain = text.translate(ASCII).encode("ascii", "replace").decode()
    font = ImageFont.load_default(size * FINER)
    room = (WIDTH - MARGIN - place[0]) * FINER
    if plain and (wide := font.getlength(plain)) > room:
        font = ImageFont.load_default(size * FINER * room / wide)
    where = (place[0] * FINER, place[1] * FINER)
    pen.text(where, plain, colour, font, stroke_width=FINER if bold else 0)
    return place[0] + font.getlength(plain) / FINER


def _curve(pen: ImageDraw.ImageDraw, ratios: Sequence[float]) -> None:
    """Draw ratios evenly spaced; fewer than two make no curve."""
    if len(ratios) < 2:
        return
    logs = [math.log(ratio) for ratio in ratios]
    low, high = min(0.0, *logs), max(0.0, *logs)

    def place(index: int, value: float) -> tuple[float, float]:
        across = MARGIN + (WIDTH - 2 * MARGIN) * index / (len(logs) - 1)
        up = HEIGHT - 55 - (HEIGHT - 55 - CURVE_TOP) * (value - low) / ((high - low) or 1.0)
        return across * FINER, up * FINER

    (left, one), (right, _) = place(0, 0.0), place(len(logs) - 1, 0.0)
    for start in range(int(left), int(right), 24 * FINER):
        pen.line((start, one, start + 12 * FINER, one), PALE, 2 * FINER)
    points = [place(index, value) for index, value in enumerate(logs)]
    pen.line(points, ACCENT, 5 * FINER, joint="curve")
    for point in points:
        pen.circle(point, 8 * FINER, ACCENT)
