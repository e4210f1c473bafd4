"""The page of what the compiler made, and what commits and changes of time say of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from collector.code_record import Codegen, MachineCode
from dashboard import format as words
from dashboard.book import Book
from dashboard.code_checks import Check, Unchecked, checks, verdict
from dashboard.code_counted import beside
from dashboard.code_diff import Listings, chosen, listed, listings, pairs_of, text_file
from dashboard.code_history import CodeRecord, Step, target_of, use_of
from dashboard.code_words import KINDS, KernelChange, cell, changes, label, short_words, value
from dashboard.op_page import op_path
from dashboard.regressions import CommitTable, Row

File = tuple[str, bytes]
PATH = "compiler.md"
SHOWN_WHOLE = 10  # steps of commits without a page that are told here
TOLD = 2
FORMS_SHOWN = 120  # in one table, shared out over its kernels
LEAST_FORMS = 2
FORM_FIGURES = (
    "registers", "spills", "shared_bytes", "occupancy", "wide_loads", "narrow_loads", "wide_stores",
    "narrow_stores", "tensor", "special", "shuffle", "local", "barrier", "total", "code_bytes",
    "sass_hash",
)  # fmt: skip
FIGURES = ("registers", "spills", "stack_bytes", "shared_bytes", "occupancy", "code_bytes")


@dataclass(frozen=True, slots=True)
class Kernel:
    """All forms of one kernel for one target, as the newest record has them."""

    target: str
    op: str
    name: str
    record: CodeRecord
    codes: tuple[MachineCode, ...]
    failed: tuple[str, ...]
    implementations: tuple[str, ...]

    def span(self, figure: str) -> str:
        """Write the smallest and largest value of a figure over all forms."""
        if not self.codes:
            return words.NONE
        source = (c.instructions if figure in KINDS else c for c in self.codes)
        values = [getattr(one, figure) for one in source]
        low, high = value(figure, min(values)), value(figure, max(values))
        return low if low == high else f"{low}–{high}"

    def most(self, figure: str) -> float | str:
        """Return the largest value of a figure, to sort by."""
        source = (c.instructions if figure in KINDS else c for c in self.codes)
        return max((getattr(one, figure) for one in source), default="")


def kernels(newest: Iterable[tuple[tuple[str, str], CodeRecord]]) -> Iterator[Kernel]:
    """Return one row for each target, op and kernel."""
    for (target, op), record in newest:
        found: dict[str, list[Codegen]] = {}
        for line in record.lines:
            if (line.target, line.op) == (target, op):
                found.setdefault(line.kernel, []).append(line)
        for name, lines in found.items():
            yield Kernel(
                target=target,
                op=op,
                name=name,
                record=record,
                codes=tuple(line.code for line in lines if line.code),
                failed=tuple(dict.fromkeys(line.reason for line in lines if line.reason)),
                implementations=tuple(
                    dict.fromkeys(user.implementation for line in lines for user in line.used_by)
                ),
            )


def compiler(book: Book, paged: frozenset[str]) -> Iterator[File]:
    """Return the page; `paged` are the commits whose differences their own page tells."""
    code, home = book.code, home_target(book)
    if not code.records:
        yield book.write(PATH, "compiler_empty.md.j2", "Compiler", left_out=code.left_out)
        return
    rows = sorted(kernels(code.newest().items()), key=lambda row: _rank(row.target, home))
    told = [s for s in code.steps if s.found and s.record.commit not in paged][:SHOWN_WHOLE]
    found, other = checks(book.history, code)
    yield book.write(
        PATH,
        "compiler.md.j2",
        "Compiler",
        rows=rows,
        home=home,
        targets=list(dict.fromkeys(row.target for row in rows)),
        ops=sorted({row.op for row in rows}),
        newest=code.records[-1],
        steps=code.steps,
        told=told,
        paged=paged,
        left_out=code.left_out,
        counted=beside(book.counted, code),
        figures=FIGURES,
        kinds=KINDS,
        op_path=op_path,
        **step_context(book),
        **check_context(found, other),
    )
    yield from text_files(book)


def text_files(book: Book) -> Iterator[File]:
    """Return the whole machine code of both sides of all kernels that are shown side by side."""
    texts, home = book.code.texts, home_target(book)
    names = {
        name
        for step in listed(book.code)
        for pair in chosen(pairs_of(_in_order(step, home)), texts)[0]
        for name in (pair.old, pair.new)
    }
    yield from ((text_file(name), f"{texts[name]}\n".encode()) for name in sorted(names))


def _in_order(step: Step, home: str) -> list[KernelChange]:
    """Return the kernels that differ, those for the home target first."""
    return sorted(changes(step.found), key=lambda one: _rank(one.target, home))


def _rank(target: str, home: str) -> tuple[bool, int, str]:
    number = target.removeprefix("sm_")
    return target != home, int(number) if number.isdigit() else 10**6, target


def home_target(book: Book) -> str:
    """Return the target of the device that was measured last, else the first in the records."""
    runs = sorted(book.history.runs.values(), key=lambda run: run.started_at, reverse=True)
    measured = [target for run in runs if (target := target_of(run.device))]
    known = {t: None for record in reversed(book.code.records) for t in record.toolchain.targets}
    return next((target for target in [*measured, *known] if target in known), "")


def step_context(book: Book) -> dict[str, Any]:
    """Return what templates need to tell a step."""
    home = home_target(book)

    def by_target(step: Step) -> list[tuple[str, list[KernelChange]]]:
        groups: dict[str, list[KernelChange]] = {}
        for change in _in_order(step, home):
            groups.setdefault(change.target, []).append(change)
        return list(groups.items())

    def sides(step: Step) -> Listings:
        kept = book.code.texts if step in listed(book.code) else {}
        return listings(_in_order(step, home), kept)

    return {
        "sides": sides,
        "text_file": text_file,
        "by_target": by_target,
        "commit_file": commit_file,
        "slug": words.slug,
        "form_figures": FORM_FIGURES,
        "forms_shown": forms_shown,
        "cell": cell,
        "label": label,
    }


def forms_shown(changes: Sequence[KernelChange]) -> int:
    """Return how many forms of each kernel a table lists, so that many kernels fit a page."""
    return max(LEAST_FORMS, FORMS_SHOWN // max(1, len(changes)))


def check_context(found: list[Check], other: list[Unchecked]) -> dict[str, Any]:
    """Return what templates need to hold loaded kernels against records."""
    return {"checks": found, "unchecked": other, "check_words": verdict}


def commit_file(sha: str) -> str:
    """Return where the page of a commit is."""
    return f"commits/{sha[:12]}.md"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the compiler's records say of a change of time, between the same two commits."""

    text: str
    differs: bool


def evidence(book: Book, table: CommitTable, row: Row) -> Evidence | None:
    """Return the code change that goes with a change of time; None where no record tells."""
    device = book.history.devices[row.key.device]
    found = book.code.between(row.before_commit or "", table.after.sha)
    here = found.get(use_of(row.key, device)) if found is not None else None
    if here is None:
        return None
    target = target_of(device)
    if not here:
        return Evidence(f"Compiled for {target}, the machine code of both is the same.", False)
    told = ". ".join(short_words(one) for one in here[:TOLD])
    more = f" and {len(here) - TOLD} more kernels" if len(here) > TOLD else ""
    return Evidence(f"Compiled for {target}, the machine code differs: {told}{more}.", True)
