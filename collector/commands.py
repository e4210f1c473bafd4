"""The commands that read records and counters: report, roofline, counters."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from collector import choices
from collector.terminal import fail, tell

TABLE_COLUMNS = 400

Op = Annotated[
    list[str] | None, typer.Option("--op", metavar="NAME", help="Only this op, by its name.")
]
RunFile = Annotated[
    Path | None, typer.Option("--run", metavar="FILE", help="This run, by its file.")
]
Commit = Annotated[
    str,
    typer.Option("--commit", metavar="SHA", help="All runs of this commit, tag or branch."),
]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="Only runs of this device.")]
Timer = Annotated[
    str,
    typer.Option(
        "--timer", metavar="NAME", help="graph, call or submit; usually graph, on a CPU call."
    ),
]
Cache = Annotated[
    str,
    typer.Option("--cache", metavar="NAME", help="cold or hot; usually cold, on a CPU hot."),
]
Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="The data folder to read.")]
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write all of it as JSON as well.")
]


def report(
    op: Op = None,
    run: RunFile = None,
    commit: Commit = "",
    device: Device = "",
    timer: Timer = "",
    cache: Cache = "",
    data: Data = Path("data"),
    json_file: Json = None,
) -> None:
    """Tell what a run measured: samples, percentiles, speed-ups and rates of every case.

    It is the newest run of each device, or with --op the newest one that measured this op.
    """
    made, tables = _modules("report", "report_tables")
    chosen = _selection(op, timer, cache)
    written = []
    console = _console()
    for one in _runs(op, run, commit, device, data):
        found = made.rows(one, chosen.usual(one.info.device.kind))
        tables.show_report(one, found, console)
        written.append(made.as_json(one, found))
    _close(console, made.EXPLAINED, json_file, written)


def roofline(
    op: Op = None,
    peaks: Annotated[
        str,
        typer.Option(
            metavar="CARD", help="Peaks of a datasheet instead of measured limits: h200-sxm, ..."
        ),
    ] = "",
    peak_gb_per_s: Annotated[
        float | None,
        typer.Option(min=0, metavar="GB/S", help="A peak of memory instead of measured limits."),
    ] = None,
    peak_tflop_per_s: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="TFLOP/S", help="A peak of arithmetic instead of measured limits."
        ),
    ] = None,
    run: RunFile = None,
    commit: Commit = "",
    device: Device = "",
    timer: Timer = "",
    cache: Cache = "",
    data: Data = Path("data"),
    json_file: Json = None,
) -> None:
    """Tell which roof binds every case and how near to it each is, and what was counted of it.

    Limits are those measured in the same run, unless a peak of a datasheet is given.
    """
    made, tables, counted = _modules("roofline", "report_tables", "history.counted")
    for value, name in ((peak_gb_per_s, "gb"), (peak_tflop_per_s, "tflop")):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise typer.BadParameter("give a number above 0", param_hint=f"--peak-{name}-per-s")
    if peaks and peaks not in made.card_names():
        known = ", ".join(made.card_names())
        raise typer.BadParameter(f"{peaks!r} is none of {known}", param_hint="--peaks")
    roofs, found = made.peaks(peaks, peak_gb_per_s, peak_tflop_per_s), counted.read_counted(data)
    chosen = _selection(op, timer, cache)
    _tell_problems(found.problems)
    written = []
    console = _console()
    for one in _runs(op, run, commit, device, data):
        rows = made.rows(one, chosen.usual(one.info.device.kind), roofs, found)
        tables.show_roofline(one, roofs, rows, console)
        written.append(made.as_json(one, roofs, rows))
    _close(console, f"{made.EXPLAINED} {made.COUNTED}", json_file, written)


def counters(
    op: Annotated[list[str], typer.Option(metavar="NAME", help="This op, by its name.")],
    implementation: choices.Implementations = None,
    workload: choices.Workloads = None,
    dtype: choices.Dtypes = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="forward, which is usual, backward, or full (both)."),
    ] = None,
    output: choices.Data = Path("data"),
    commit: Annotated[
        str | None,
        typer.Option(metavar="SHA", help="The commit that is counted, where git cannot tell."),
    ] = None,
) -> None:
    """Count what the hardware does in one call of a case, by Nsight Compute, and keep it.

    Memory traffic, cache hits, instructions, occupancy and clock of each kernel, from an empty
    cache, go to one new file under data/counters; `roofline` then shows them. Each case starts
    several times. It needs an NVIDIA GPU, ncu and the permission to read hardware counters;
    without them it ends with 1 and keeps nothing.
    """
    (counting,) = _modules("counters")
    from collector.ncu import NcuError

    chosen = choices.chosen(op, implementation, workload, dtype, mode or ["forward"])
    options = replace(chosen, output=output, commit=commit)
    try:
        raise typer.Exit(counting.counters(options, tell))
    except NcuError as error:
        fail(str(error))


def _modules(*names: str) -> list[Any]:
    """Import modules of the collector, which may need packages that are not installed."""
    try:
        return [import_module(f"collector.{name}") for name in names]
    except ModuleNotFoundError as error:
        remedy = "`make install` installs it, or name a Python that has it: PYTHON=python3"
        fail(f"{error.name} is not installed in {sys.executable}: {remedy}")


def _selection(op: list[str] | None, timer: str, cache: str) -> Any:
    """Return the selection; a name that is none is a mistake of the command line."""
    from collector import record
    from collector.report import Selection

    for value, names, hint in ((timer, record.Timer, "--timer"), (cache, record.Cache, "--cache")):
        if value and value not in get_args(names):
            told = f"{value!r} is none of {', '.join(get_args(names))}"
            raise typer.BadParameter(told, param_hint=hint)
    return Selection(tuple(op or ()), timer, cache)


def _runs(
    op: list[str] | None, run: Path | None, commit: str, device: str, data: Path
) -> list[Any]:
    """Read the runs, and say what is wrong in them and what other runs hold."""
    from collector import runs

    if run is not None and (commit or device):
        raise typer.BadParameter("a file is one run: leave out --commit and --device")
    request = runs.Request(data, tuple(op or ()), device, run, commit)
    try:
        found = runs.chosen(request)
    except runs.RunsError as error:
        fail(str(error))
    for one in found:
        _tell_problems(one.problems)
    if others := runs.elsewhere(request, found):
        tell(f"older runs alone measured {', '.join(others)}: name one with --op")
    return found


def _tell_problems(problems: Any) -> None:
    for problem in problems:
        tell(str(problem))


def _console() -> Any:
    """Return a console that is wide enough for every table."""
    from rich.console import Console

    return Console(highlight=False, width=TABLE_COLUMNS)


def _close(console: Any, explained: str, path: Path | None, runs: list[dict[str, Any]]) -> None:
    """Explain the columns, and write the JSON where it is asked for."""
    console.print(f"\n{explained}", style="dim", soft_wrap=True)
    if not any(run["cases"] for run in runs):
        fail("no case fits: other series are chosen by --timer and --cache")
    if path is None:
        return
    try:
        text = json.dumps({"explained": explained, "runs": runs}, indent=1, allow_nan=False)
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}; name another file")
