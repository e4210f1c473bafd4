"""Hardware counters as they are read: what a call moved, and how far that is from the least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from collector.history.model import Problem, SeriesKey
from collector.history.reading import counters_paths, read_run
from collector.record import Counters, Run

# One call under the profiler leaves some 3 MB behind that the kernel never wrote.
LEAST_BYTES = 64_000_000

Work: TypeAlias = tuple[str, str, str, str, str, frozenset[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class Counted:
    """The counters of one case in one run; `location` is `file:line` of its record."""

    run: Run
    record: Counters
    location: str

    @property
    def dram_bytes(self) -> int:
        """Bytes between the device and its memory, what was written back late included."""
        kernels = self.record.kernels
        moved = sum(one.dram_read_bytes + one.dram_write_bytes for one in kernels)
        return moved + self.record.written_back_bytes

    @property
    def intensity_flops_per_byte(self) -> float | None:
        """Flops that the mathematics needs over bytes that were moved."""
        return self.record.cost.flops / self.dram_bytes if self.dram_bytes else None

    @property
    def amplification(self) -> float | None:
        """Bytes that were moved over the least; None where that is too little to tell."""
        least = self.record.cost.minimal_bytes
        return self.dram_bytes / least if least >= LEAST_BYTES else None

    @property
    def fp32_flops(self) -> int | None:
        """Flops that were executed in fp32, a fused multiply-add as two; None if not counted."""
        total = 0
        for one in self.record.kernels:
            if one.fp32_adds is None or one.fp32_multiplies is None or one.fp32_fused is None:
                return None
            total += one.fp32_adds + one.fp32_multiplies + 2 * one.fp32_fused
        return total


@dataclass(frozen=True, slots=True)
class AllCounted:
    """The newest counters of every case on every device, and what could not be read."""

    newest: Mapping[Work, Counted]
    problems: tuple[Problem, ...]

    def of(self, key: SeriesKey) -> Counted | None:
        """Return what was counted of the work of a series, whatever timed it."""
        sizes = frozenset(key.sizes)
        return self.newest.get((key.device, key.op, key.implementation, key.mode, key.dtype, sizes))


NOTHING_COUNTED = AllCounted({}, ())


def read_counted(data: Path) -> AllCounted:
    """Read the files of hardware counters under a data folder."""
    found: list[Counted] = []
    problems: list[Problem] = []
    for path in counters_paths(data):
        name = path.relative_to(data).as_posix()
        read, faults = read_run(name, path.read_bytes())
        problems += faults
        if read is not None:
            found += [Counted(read.run, line, f"{name}:{n}") for n, line in read.counters]
    found.sort(key=lambda one: (one.run.started_at, one.location))
    return AllCounted({work(one): one for one in found}, tuple(problems))


def work(one: Counted) -> Work:
    """Name what was counted, and on which device."""
    case = one.record.case
    sizes = frozenset(case.workload.sizes.items())
    device = one.run.device.slug
    return device, case.op, case.implementation, case.mode, case.workload.dtype, sizes
