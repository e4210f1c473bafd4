"""Reports and rooflines as tables in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from collector import report, roofline
from collector.history.counted import Counted
from collector.history.format import NONE, binary, percent, short, significant, times
from collector.history.model import SeriesKey
from collector.roofline import scaled
from collector.runs import OneRun

T = TypeVar("T", report.Row, roofline.Row)

SAMPLE_HEADS = ("n", "min µs", "p50 µs", "p95 µs", "p99 µs", "max µs")
RATIO_HEADS = (f"over {report.COMPILED}", f"over {report.EAGER}", "over best other")
ROOFLINE_HEADS = (
    "least bytes", "flops", "flop/byte", "GB/s", "TFLOP/s", "µs", "roof", "of roof",
)  # fmt: skip
COUNTED_HEADS = ("DRAM bytes", "measured flop/byte", "amplification")


def show_report(run: OneRun, found: Sequence[report.Row], console: Console) -> None:
    """Print a table for each op, mode, dtype, timer and cache."""
    show_run(run, console)
    for name, group in groups(found):
        info = run.op(group[0].key.op)
        units = f"{info.unit or info.axis}/s"
        table = table_of(name, (*SAMPLE_HEADS, *RATIO_HEADS, "GB/s", units))
        for one in group:
            table.add_row(*case_cells(one.key), *report_cells(one))
        show(table, console)
        show_faults(group, console)


def show_roofline(
    run: OneRun, chosen: roofline.Peaks, found: Sequence[roofline.Row], console: Console
) -> None:
    """Print the limits, then a table for each op, mode, dtype, timer and cache."""
    show_run(run, console)
    console.print(f"Limits: {limit_words(roofline.limits_json(run, chosen))}", soft_wrap=True)
    console.print(f"From: {chosen.words}.", soft_wrap=True)
    for name, group in groups(found):
        counted = any(one.counted for one in group)
        table = table_of(name, (*ROOFLINE_HEADS, *(COUNTED_HEADS if counted else ())))
        for one in group:
            cells = (*roofline_cells(one), *(counted_cells(one) if counted else ()))
            table.add_row(*case_cells(one.key), *cells)
        show(table, console)
        for line in sorted({counted_by(one.counted) for one in group if one.counted}):
            console.print(line, markup=False, soft_wrap=True)


def show_run(run: OneRun, console: Console) -> None:
    """Say which run this is."""
    info = run.info
    commit = short(info.source.commit) + (" with local changes" if info.source.dirty else "")
    console.print(
        f"[bold]{info.device.name}[/bold], commit {commit}, {info.started_at}", highlight=False
    )
    console.print(info.file, markup=False, highlight=False, style="dim", soft_wrap=True)


def groups(found: Sequence[T]) -> Iterator[tuple[str, list[T]]]:
    """Yield rows that share op, mode, dtype, timer and cache, and a title."""

    def name(one: T) -> str:
        key = one.key
        return f"{key.op}, {key.mode}, {key.dtype}, {key.timer}, {key.cache}"

    for title, group in groupby(found, key=name):
        yield title, list(group)


def table_of(title: str, heads: Iterable[str]) -> Table:
    """Make a table whose figures stand below each other."""
    table = Table(title=title, box=None, title_justify="left", pad_edge=False, header_style="dim")
    table.add_column("sizes")
    table.add_column("implementation")
    for head in heads:
        table.add_column(head, justify="left" if head == "roof" else "right")
    return table


def show(table: Table, console: Console) -> None:
    """Print a table at its full width: a narrow terminal breaks lines, but no figure is cut."""
    console.print()
    console.print(table, crop=False)


def case_cells(key: SeriesKey) -> tuple[str, str]:
    """Write the sizes and the implementation."""
    return ",".join(f"{name}={binary(size)}" for name, size in key.sizes), key.implementation


def report_cells(one: report.Row) -> tuple[str, ...]:
    """Write what a case took; one that failed shows its status."""
    found = one.samples
    if found is None:
        return (one.point.status, *[NONE] * 10)
    samples = (found.min_ns, found.p50_ns, found.p95_ns, found.p99_ns, found.max_ns)
    best = f"{times(one.over_best)} {one.best_other}" if one.best_other else NONE
    return (
        str(len(found.samples_ns)),
        *map(micro, samples),
        times(one.over_compiled),
        times(one.over_eager),
        best,
        number(one.gb_per_s),
        number(one.units_per_s),
    )


def show_faults(group: Iterable[report.Row], console: Console) -> None:
    """Say why cases have no time, each reason once for each implementation."""
    told = {
        (one.key.implementation, one.point.status, one.point.reason or "no reason given")
        for one in group
        if one.point.median_ns is None
    }
    for name, status, reason in sorted(told):
        console.print(f"{name}: {status}: {reason}", markup=False, highlight=False, soft_wrap=True)


def roofline_cells(one: roofline.Row) -> tuple[str, ...]:
    """Write what a case needs, what it reached and what binds it."""
    cost = one.point.cost
    assert cost is not None, "rows have a cost"
    return (
        f"{cost.minimal_bytes:,}",
        f"{cost.flops:,}",
        number(one.intensity_flops_per_byte),
        number(one.gb_per_s),
        number(one.tflop_per_s),
        micro(one.point.median_ns),
        ", ".join([one.roof.regime or NONE, *one.roof.flags]),
        percent(one.roof.fraction, 1),
    )


def counted_cells(one: roofline.Row) -> tuple[str, ...]:
    """Write what the hardware counted."""
    if one.counted is None:
        return (NONE,) * len(COUNTED_HEADS)
    found = one.counted
    intensity, factor = found.intensity_flops_per_byte, found.amplification
    return f"{found.dram_bytes:,}", number(intensity), times(factor)


def counted_by(found: Counted) -> str:
    """Say what counted, and at which commit."""
    profiler = f"ncu {found.run.versions.get('ncu', 'unknown')}"
    return f"Counted by {profiler} at commit {short(found.run.source.commit)}."


def limit_words(limits: dict[str, Any]) -> str:
    """Write the limits in one line."""
    floor_ns = limits["floor_ns"]["graph"] or limits["floor_ns"]["call"]
    parts = [
        worded("memory", limits["memory_gb_per_s"], "GB/s"),
        worded("L2", limits["l2_gb_per_s"], "GB/s"),
        *(worded(pipe, rate, "TFLOP/s") for pipe, rate in limits["tflop_per_s"].items()),
        worded("special functions", scaled(limits["special_per_s"], 1e12), "T/s"),
        worded("floor", scaled(floor_ns, 1e3), "µs"),
        *(worded(f"link of {n} ranks", r, "GB/s") for n, r in limits["link_gb_per_s"].items()),
        *(
            worded(f"{timer} floor of {n} ranks", scaled(ns, 1e3), "µs")
            for timer, floors in limits["link_floor_ns"].items()
            for n, ns in floors.items()
        ),
    ]
    return ", ".join(filter(None, parts)) or "none"


def worded(name: str, value: float | None, unit: str) -> str:
    """Write a limit, or nothing."""
    return "" if value is None else f"{name} {significant(value, 4)} {unit}"


def micro(value_ns: float | None) -> str:
    """Write nanoseconds as microseconds."""
    return number(scaled(value_ns, 1e3))


def number(value: float | None) -> str:
    """Write four digits, or that there is nothing."""
    return NONE if value is None else significant(value, 4)
