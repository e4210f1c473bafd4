"""Machine code before and after, side by side: chosen, aligned and cut to what differs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

from collector.code_rules import Difference
from dashboard.code_history import CodeHistory, Step
from dashboard.code_words import KernelChange, changes

STEPS = 10  # the newest records that differ: no more pages and files however long the history
SHOWN = 6  # kernels of a step
TEXT_CHARACTERS = 150_000
CONTEXT = 3
ROWS = 160
BLOCK_PAIRS = 40_000


class Row(NamedTuple):
    """One line of each side with its number, or none on a side."""

    old_number: int | None
    old: str | None
    new_number: int | None
    new: str | None

    @property
    def differs(self) -> bool:
        """Tell whether the sides differ."""
        return self.old != self.new


@dataclass(frozen=True, slots=True)
class Pair:
    """Both codes of the first form of a kernel that differs, and who launches it."""

    change: KernelChange
    old: str
    new: str
    launch: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One pair side by side: regions that differ with a few lines around, cut after some rows."""

    pair: Pair
    regions: tuple[tuple[Row, ...], ...]
    differing: int
    lines: int
    cut: int


@dataclass(frozen=True, slots=True)
class Listings:
    """What is shown of a step, how many kernels with texts are not, and those without a text."""

    shown: tuple[Listing, ...]
    more: int
    without: tuple[Pair, ...]


def listed(code: CodeHistory) -> list[Step]:
    """Return the steps that show listings where texts are kept: the newest that differ."""
    return [step for step in code.steps if step.found][:STEPS]


def wanted(code: CodeHistory) -> set[str]:
    """Return the hashes of all texts that may be shown."""
    pairs = [pair for step in listed(code) for pair in pairs_of(changes(step.found))]
    return {name for pair in pairs for name in (pair.old, pair.new)}


def pairs_of(found: Iterable[KernelChange]) -> Iterator[Pair]:
    """Yield for each kernel the first form that has other machine code on both sides."""
    for change in found:
        pairs = (_pair(change, form) for form in change.forms)
        yield from [pair for pair in pairs if pair is not None][:1]


def _pair(change: KernelChange, form: Difference) -> Pair | None:
    old, new = (line.code if line else None for line in (form.old, form.new))
    if old is None or new is None or old.sass_hash == new.sass_hash:
        return None
    _, _, implementation, workload = form.uses[0]
    return Pair(change, old.sass_hash, new.sass_hash, f"{implementation} {workload}")


def chosen(pairs: Iterable[Pair], texts: Mapping[str, str]) -> tuple[list[Pair], int]:
    """Return the first pairs that have both texts, and how many more there are."""
    both = [pair for pair in pairs if pair.old in texts and pair.new in texts]
    short = [p for p in both if max(len(texts[p.old]), len(texts[p.new])) <= TEXT_CHARACTERS]
    return short[:SHOWN], len(both) - len(short[:SHOWN])


def listings(found: Iterable[KernelChange], texts: Mapping[str, str]) -> Listings:
    """Put the first kernels of a step side by side."""
    pairs = list(pairs_of(found))
    shown, more = chosen(pairs, texts)
    without = tuple(pair for pair in pairs if pair.old not in texts or pair.new not in texts)
    return Listings(tuple(listing(pair, texts) for pair in shown), more, without)


def listing(pair: Pair, texts: Mapping[str, str]) -> Listing:
    """Put two texts side by side."""
    rows = list(aligned(texts[pair.old].split("\n"), texts[pair.new].split("\n")))
    whole = regions(rows)
    kept = tuple(_cut(whole, ROWS))
    cut = sum(map(len, whole)) - sum(map(len, kept))
    return Listing(pair, kept, sum(row.differs for row in rows), len(rows), cut)


def aligned(old: Sequence[str], new: Sequence[str]) -> Iterator[Row]:
    """Yield the lines of both sides: equal ones beside each other, then those of equal opcode."""
    for i, i_end, j, j_end in _blocks(old, new):
        left, right = old[i:i_end], new[j:j_end]
        ops = [opcode(line) for line in left], [opcode(line) for line in right]
        few = len(left) * len(right) <= BLOCK_PAIRS
        inner = list(_blocks(*ops)) if few else [(0, len(left), 0, len(right))]
        for a, a_end, b, b_end in inner:
            yield from _beside(old, range(i + a, i + a_end), new, range(j + b, j + b_end))


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    for _, *ends in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield ends[0], ends[1], ends[2], ends[3]


def _beside(
    old: Sequence[str], left: Iterable[int], new: Sequence[str], right: Iterable[int]
) -> Iterator[Row]:
    for a, b in zip_longest(left, right):
        yield Row(
            None if a is None else a + 1,
            None if a is None else old[a],
            None if b is None else b + 1,
            None if b is None else new[b],
        )


def opcode(line: str) -> str:
    """Return the opcode of a line of machine code, without its scheduling and its predicate."""
    parts = [part for part in line.split() if not part.startswith("@")]
    scheduled = len(parts) > 1 and parts[0].count(":") > 1
    return parts[scheduled].rstrip(";") if parts else ""


def regions(rows: Sequence[Row]) -> list[tuple[Row, ...]]:
    """Return the rows that differ with a few around them, in runs."""
    near = {
        place
        for at, row in enumerate(rows)
        if row.differs
        for place in range(max(0, at - CONTEXT), min(len(rows), at + CONTEXT + 1))
    }
    runs: list[list[Row]] = []
    for place in sorted(near):
        if place - 1 not in near:
            runs.append([])
        runs[-1].append(rows[place])
    return [tuple(run) for run in runs]


def _cut(whole: Iterable[tuple[Row, ...]], room: int) -> Iterator[tuple[Row, ...]]:
    for run in whole:
        if room > 0:
            yield run[:room]
        room -= len(run)


def text_file(name: str) -> str:
    """Return where the whole text of a hash is on the site."""
    return f"assets/sass/{name}.txt"
