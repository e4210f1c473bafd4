"""Memory traffic of an op: what its cost model says, and beside it what the hardware counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.history.counted import Counted, work
from collector.history.model import History, Point, SeriesKey
from collector.record import Device
from dashboard import format as words
from dashboard.book import Book

TIMED = ("graph", "cold")  # a counted call finds an empty cache as well


@dataclass(frozen=True, slots=True)
class Traffic:
    """One counted case, and the newest time of the same work from a cold cache."""

    counted: Counted
    key: SeriesKey | None
    point: Point | None

    @property
    def sizes(self) -> str:
        """Write the sizes, for example `rows 16Ki, hidden 8Ki`."""
        sizes = self.counted.record.case.workload.sizes.items()
        return ", ".join(f"{name} {words.binary(size)}" for name, size in sizes)

    @property
    def device(self) -> Device:
        """Return the device that counted."""
        return self.counted.run.device

    @property
    def read_bytes(self) -> int:
        """Return what all kernels read from memory."""
        return sum(kernel.dram_read_bytes for kernel in self.counted.record.kernels)

    @property
    def written_bytes(self) -> int:
        """Return what was written to memory, sooner or later."""
        return self.counted.dram_bytes - self.read_bytes

    @property
    def gb_per_s(self) -> float | None:
        """Return the counted bytes over the time; None where they are too few to tell."""
        time = self.point.median_ns if self.point and self.counted.amplification else None
        return self.counted.dram_bytes / time if time else None


def traffic(book: Book, op: str) -> list[Traffic]:
    """Return all that was counted of an op, the most bytes first."""
    counted = [one for one in book.counted.newest.values() if one.record.case.op == op]
    found = [Traffic(one, *_timed(book.history, one)) for one in counted]
    return sorted(found, key=lambda one: -one.counted.record.cost.minimal_bytes)


def _timed(history: History, one: Counted) -> tuple[SeriesKey | None, Point | None]:
    """Return the series of the same work and its newest time."""
    for key in _series(history, one):
        timed = [point for point in history.series[key] if point.median_ns is not None]
        if timed:
            return key, timed[-1]
    return None, None


def _series(history: History, one: Counted) -> Iterator[SeriesKey]:
    wanted = work(one)
    for key in history.series:
        if (key.timer, key.cache) == TIMED:
            name = (key.device, key.op, key.implementation, key.mode, key.dtype)
            if (*name, frozenset(key.sizes)) == wanted:
                yield key


def told(found: list[Traffic]) -> str:
    """Say of the largest case how near the counted bytes are to the least; empty if too small."""
    one = next((one for one in found if one.counted.amplification), None)
    if one is None or one.counted.amplification is None:
        return ""
    case, least = one.counted.record.case, one.counted.record.cost.minimal_bytes
    return (
        f"At {one.sizes}, {case.implementation} moves {words.bytes_text(one.counted.dram_bytes)}: "
        f"{words.times(one.counted.amplification)} the least of {words.bytes_text(least)}."
    )
