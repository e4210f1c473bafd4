"""Static expectation beside measured fact: what the hardware counted of kernels in a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from collector.code_record import Codegen, MachineCode
from collector.history.counted import AllCounted, Counted
from collector.history.model import SeriesKey
from collector.record import KernelCounters
from dashboard.code_history import CodeHistory, CodeRecord, lines_by_use, target_of, use_of

WARP_THREADS = 32


@dataclass(frozen=True, slots=True)
class Beside:
    """One counted kernel, and its form in the record that is nearest; None: no record has it.

    `same` where that record is of the same commit by the same Triton, so that both must agree.
    """

    key: SeriesKey
    counted: Counted
    kernel: KernelCounters
    record: CodeRecord | None
    code: MachineCode | None
    same: bool

    @property
    def warps(self) -> int:
        """Return the warps of the launch."""
        return self.kernel.blocks * -(-self.kernel.threads_per_block // WARP_THREADS)

    def of_a_warp(self, figure: str) -> float | None:
        """Return a count of executed instructions over the warps of the launch."""
        count = getattr(self.kernel, figure)
        return count / self.warps if count is not None and self.warps else None


def beside(counted: AllCounted, code: CodeHistory) -> list[Beside]:
    """Put all that was counted beside the records, in the order of ops and implementations."""
    found = [row for one in counted.newest.values() for row in _rows(one, code)]
    return sorted(found, key=lambda row: row.key)


def _rows(one: Counted, code: CodeHistory) -> Iterator[Beside]:
    device, case = one.run.device, one.record.case
    sizes = tuple(case.workload.sizes.items())
    names = device.slug, case.op, case.implementation, case.mode
    key = SeriesKey(*names, case.workload.dtype, sizes, "", "")
    target, use = target_of(device), use_of(key, device)
    records = sorted(code.records, key=lambda record: _nearness(record, one))
    known = [(record, lines_by_use(record, target).get(use, ())) for record in records]
    for kernel in one.record.kernels:
        forms = [(record, form) for record, lines in known if (form := _form(lines, kernel))]
        record, form = forms[-1] if forms else (None, None)
        same = record is not None and _nearness(record, one) == (True, True)
        yield Beside(key, one, kernel, record, form, same)


def _nearness(record: CodeRecord, one: Counted) -> tuple[bool, bool]:
    """Rank a record by what it has in common with a run: the compiler counts for most."""
    same_triton = record.triton == one.run.versions.get("triton")
    return same_triton, same_triton and record.commit == one.run.source.commit


def _form(lines: Iterable[Codegen], kernel: KernelCounters) -> MachineCode | None:
    """Return the code of a counted kernel: of equal name and as many warps a block."""
    warps = f"num_warps={-(-kernel.threads_per_block // WARP_THREADS)}"
    named = [line for line in lines if line.kernel == kernel.name]
    return next((line.code for line in named if warps in line.options.split(",")), None)
