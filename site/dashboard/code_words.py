"""Differences of machine code in words: which figures moved, and what that usually costs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from collector.code_record import Instructions
from collector.code_rules import Difference, Rule, figures_of
from dashboard import format as words

PAIRS = 3
LAUNCH = ("constants", "options")
KINDS = tuple(Instructions.model_fields)
NAMES = {
    "shared_bytes": "shared memory", "stack_bytes": "stack", "code_bytes": "code",
    "resident_blocks": "resident blocks", "limited_by": "limited by", "total": "all instructions",
    "wide_loads": "128-bit loads", "narrow_loads": "narrower loads",
    "wide_stores": "128-bit stores", "narrow_stores": "narrower stores",
    "special": "special functions", "shared": "shared-memory accesses",
    "local": "local-memory accesses", "tensor": "tensor-core operations",
    "shuffle": "shuffles", "barrier": "barriers", "bulk_copies": "bulk copies",
    "reason": "compiles", "sass_hash": "machine code",
}  # fmt: skip
SILENT = ("sass_hash",)


@dataclass(frozen=True, slots=True)
class KernelChange:
    """All forms of one kernel that differ for one target, with the rules that they break."""

    target: str
    op: str
    name: str
    forms: tuple[Difference, ...]

    @property
    def hashes(self) -> tuple[str, str] | None:
        """Return the hashes of the first form that has code on both sides."""
        pairs = ((form.old, form.new) for form in self.forms if form.old and form.new)
        both = ((old.code, new.code) for old, new in pairs if old.code and new.code)
        return next(((old.sass_hash, new.sass_hash) for old, new in both), None)

    @property
    def launches(self) -> int:
        """Return the number of workloads that launch them."""
        return sum(len(form.uses) for form in self.forms)

    @property
    def implementations(self) -> tuple[str, ...]:
        """Return who launches them."""
        return tuple(dict.fromkeys(use[2] for form in self.forms for use in form.uses))

    @property
    def rules(self) -> list[tuple[Rule, int]]:
        """Return the rules that are broken, gates first, each with its number of forms."""
        found = Counter(rule.name for form in self.forms for rule in form.rules)
        rules = {rule.name: rule for form in self.forms for rule in form.rules}
        return sorted(
            ((rules[name], count) for name, count in found.items()), key=lambda one: not one[0].gate
        )

    @property
    def resources(self) -> list[str]:
        """Say how registers, memory, occupancy and size moved."""
        return figure_words(self.forms, lambda name: name not in (*KINDS, *LAUNCH, *SILENT))

    @property
    def instructions(self) -> list[str]:
        """Say how the counts of instructions moved."""
        return figure_words(self.forms, lambda name: name in KINDS)

    @property
    def launch(self) -> list[str]:
        """Say which constants and options of the launch changed."""
        pairs = [form.figures[n] for form in self.forms for n in LAUNCH if n in form.figures]
        found = Counter(part for old, new in pairs for part in changed_parts(old or "", new or ""))
        return [text for text, _ in found.most_common(PAIRS)]


def changes(found: Iterable[Difference]) -> list[KernelChange]:
    """Group differences by target, op and kernel, in the order in which they were found."""
    groups: dict[tuple[str, str, str], list[Difference]] = {}
    for one in found:
        target, op, *_ = one.uses[0]
        groups.setdefault((target, op, kernel_name(one)), []).append(one)
    return [KernelChange(*key, tuple(forms)) for key, forms in groups.items()]


def kernel_name(one: Difference) -> str:
    """Name a kernel, with its state where it is on one side alone."""
    names = dict.fromkeys(line.kernel for line in (one.old, one.new) if line)
    state = "" if one.old and one.new else " (new)" if one.new else " (gone)"
    return " → ".join(names) + state


def figure_words(forms: Sequence[Difference], wanted: Any) -> list[str]:
    """Say of each figure from what to what it moved, the most frequent pairs first."""
    found: dict[str, Counter[tuple[Any, Any]]] = {}
    for form in forms:
        for name, pair in form.figures.items():
            if wanted(name):
                found.setdefault(name, Counter())[pair] += 1
    return [f"{label(name)} {_pairs(name, pairs)}" for name, pairs in found.items()]


def label(name: str) -> str:
    """Return the words for a figure."""
    return NAMES.get(name, name.replace("_", " "))


def _pairs(name: str, pairs: Counter[tuple[Any, Any]]) -> str:
    several = len(pairs) > 1
    told = [
        f"{value(name, old)} → {value(name, new)}" + (f" ({count})" if several else "")
        for (old, new), count in pairs.most_common(PAIRS)
    ]
    more = len(pairs) - PAIRS
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def value(name: str, amount: Any) -> str:
    """Write one value of a figure with its unit."""
    if name == "reason":
        return "yes" if amount is None else "no"
    if amount is None:
        return "none"
    if name == "occupancy":
        return words.percent(amount)
    return words.bytes_text(amount) if name.endswith("_bytes") else str(amount)


def cell(form: Difference, name: str) -> str:
    """Write a figure of one form: what it is, or from what to what it moved."""
    if name in form.figures:
        old, new = form.figures[name]
        return f"{value(name, old)} → {value(name, new)}"
    line = form.new or form.old
    return value(name, figures_of(line).get(name)) if line else words.NONE


def changed_parts(old: str, new: str) -> list[str]:
    """Say which parts of `A=1,B=2` changed."""
    before, after = _parts(old), _parts(new)
    return [
        f"{name} {before.get(name, 'none')} → {after.get(name, 'none')}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _parts(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: amount for name, _, amount in pairs}


def short_words(one: Difference) -> str:
    """Say in half a sentence how the code of one launch differs: what costs first, then figures."""
    if not one.old or not one.new:
        return f"kernel {kernel_name(one)}"
    rules = [rule.name for rule in one.rules]
    keys = ("registers", "spills", "shared_bytes", "occupancy", "wide_loads", "wide_stores")
    figures = figure_words([one], lambda name: name in keys)
    rest = figures or figure_words([one], lambda name: name in ("total", *KINDS))[:PAIRS]
    return "; ".join([*rules, *(rest or ["other instructions of equal number"])])
