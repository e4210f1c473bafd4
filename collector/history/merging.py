"""Merge the replicates of one case in one run into a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

from collector.history.model import Point
from collector.record import Latency, Measurement, decode_samples
from collector.verdict import mean_interval

T = TypeVar("T")

QUANTILES = (0.01, 0.25, 0.75, 0.99)
FAILURES = ("incorrect", "error", "oom", "timeout", "skipped", "unavailable")


class Located(NamedTuple):
    """A measurement, its line, and the first line of its workload, which holds the details."""

    line: int
    record: Measurement
    details: Measurement


@dataclass(frozen=True, slots=True)
class Times:
    """The time of a call from all passed replicates of a case; None and 0 where there is none."""

    medians_ns: tuple[float, ...] = ()
    median_ns: float | None = None
    ci_low_ns: float | None = None
    ci_high_ns: float | None = None
    q01_ns: float | None = None
    q25_ns: float | None = None
    q75_ns: float | None = None
    q99_ns: float | None = None
    min_ns: float | None = None
    samples: int = 0
    calls: int = 0
    sets: int = 0


def merge(run_id: str, commit: str | None, file: str, lines: Sequence[Located]) -> Iterator[Point]:
    """Yield one point for each method and workload identity: almost always just one."""
    groups: dict[tuple[str, str], list[Located]] = {}
    for line in lines:
        groups.setdefault((line.record.method_id, line.record.workload_hash), []).append(line)
    for group in groups.values():
        ordered = sorted(group, key=lambda line: line.record.replicate)
        yield _point(run_id, commit, file, ordered)


def _point(run_id: str, commit: str | None, file: str, lines: Sequence[Located]) -> Point:
    status, reason = _status(lines)
    passed = [line.record.latency for line in lines if line.record.latency is not None]
    times = merge_times(passed) if passed and status == "passed" else Times()
    best = next((line for line in lines if line.record.status == status), lines[0])
    record, details = best.record, best.details
    flags = {flag for line in lines for flag in line.record.flags}
    if status == "passed" and len(passed) < len(lines):
        flags.add("partly-failed")
    return Point(
        run_id=run_id,
        commit=commit,
        medians_ns=times.medians_ns,
        median_ns=times.median_ns,
        ci_low_ns=times.ci_low_ns,
        ci_high_ns=times.ci_high_ns,
        q01_ns=times.q01_ns,
        q25_ns=times.q25_ns,
        q75_ns=times.q75_ns,
        q99_ns=times.q99_ns,
        min_ns=times.min_ns,
        samples=times.samples,
        calls=times.calls,
        sets=times.sets,
        status=status,
        reason=reason,
        cost=record.cost or details.cost,
        correctness=record.correctness or details.correctness,
        codegen=tuple(record.codegen or details.codegen or ()),
        sm_clock_mhz=record.telemetry.sm_clock_mhz if record.telemetry else None,
        peak_memory_bytes=_own(record.peak_memory_bytes, details.peak_memory_bytes),
        compile_seconds=_own(record.compile_seconds, details.compile_seconds),
        flags=tuple(sorted(flags)),
        method_id=record.method_id,
        workload_hash=record.workload_hash,
        file=file,
        line=lines[0].line,
        graph_nodes=_own(record.graph_nodes, details.graph_nodes),
        quality=tuple((record.quality or details.quality or {}).items()),
        rank_medians_ns=tuple(record.ranks.median_ns) if record.ranks else (),
    )


def _own(value: T | None, first: T | None) -> T | None:
    return first if value is None else value


def _status(lines: Sequence[Located]) -> tuple[str, str | None]:
    """Return the status of all replicates together: one wrong result outweighs all right ones."""
    statuses = [line.record.status for line in lines]
    failed = [line.record for line in lines if line.record.status != "passed"]
    if not failed:
        return "passed", None
    worst = min(failed, key=lambda record: FAILURES.index(record.status))
    told = worst.reason or worst.status
    if len(lines) > 1:
        told = f"{len(failed)} of {len(lines)} replicates: {worst.status}: {told}"
    if worst.status != "incorrect" and "passed" in statuses:
        return "passed", told
    return worst.status, told


def merge_times(latencies: Sequence[Latency]) -> Times:
    """Merge replicates: medians by their geometric mean, quantiles over all samples."""
    first = latencies[0]
    if len(latencies) == 1:
        return Times(
            (first.median_ns,), first.median_ns, first.ci_low_ns, first.ci_high_ns,
            first.q01_ns, first.q25_ns, first.q75_ns, first.q99_ns,
            first.min_ns, first.samples, first.calls, first.sets,
        )  # fmt: skip
    medians = tuple(latency.median_ns for latency in latencies)
    low, middle, high = mean_interval(medians)
    row = _pooled_ns(latencies)
    q01, q25, q75, q99 = (quantile(row, share) for share in QUANTILES)
    return Times(
        medians, middle, low, high,
        q01, q25, q75, q99, row[0], len(row), first.calls,
        min(latency.sets for latency in latencies),
    )  # fmt: skip


def _pooled_ns(latencies: Sequence[Latency]) -> list[float]:
    """Return the samples of all replicates per call, sorted."""
    return sorted(chain.from_iterable(map(_samples_ns, latencies)))


def _samples_ns(latency: Latency) -> list[float]:
    """Return the samples per call; when they are damaged, the summary stands for them."""
    try:
        whole = decode_samples(latency.encoded)
    except ValueError:
        return [latency.q01_ns, latency.q25_ns, latency.median_ns, latency.q75_ns, latency.q99_ns]
    calls = latency.calls
    return [sample / calls for sample in whole]


def quantile(row: Sequence[float], share: float) -> float:
    """Return a quantile of a sorted row, linear between neighbours."""
    place = share * (len(row) - 1)
    low = int(place)
    high = min(low + 1, len(row) - 1)
    return row[low] + (row[high] - row[low]) * (place - low)
