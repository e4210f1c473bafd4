"""Options of the command line that choose what is measured, shared by its commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from collector.plan import CollectOptions

SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str | float) -> float:
    """Read a time such as `90`, `90s`, `10m` or `1.5h` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(text).strip())
    if not found or not float(found[1]):
        raise typer.BadParameter(f"{text!r} is no time: give seconds, or 90s, 10m, 1.5h")
    return float(found[1]) * SECONDS[found[2]]


Ops = Annotated[
    list[str] | None,
    typer.Option("--op", metavar="NAME", help="Only this op, for example sinkhorn."),
]
Implementations = Annotated[
    list[str] | None,
    typer.Option(
        "--implementation",
        metavar="NAME",
        help="Only this implementation, for example triton or torch.compile.",
    ),
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="TAG|SIZES",
        help="Only these problem sizes: a tag (smoke, cpu, default, full, edge) or sizes such as "
        "batch=1024 or rows=128,hidden=1024.",
    ),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option("--dtype", metavar="NAME", help="Only this data type, for example float16."),
]
Modes = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        metavar="NAME",
        help="Only forward, backward, or full (both passes). Unless this or --workload is given, "
        "forward alone.",
    ),
]
Timers = Annotated[
    list[str] | None,
    typer.Option(
        "--timer",
        metavar="NAME",
        help="Only this kind of time: graph (on the device alone), call (as Python sees it) or "
        "submit (until the host is free again), which nothing else asks for.",
    ),
]
Caches = Annotated[
    list[str] | None,
    typer.Option(
        "--cache",
        metavar="NAME",
        help="Only cold (data comes from memory) or hot (data is in the cache).",
    ),
]
Ranks = Annotated[
    list[int] | None,
    typer.Option(
        "--ranks",
        min=1,
        max=8,
        metavar="N",
        help="Only ops that are shared out over ranks (sigreg_sync and others), on so many: a GPU "
        "each, or processes of a CPU. Given as 1, 2, 4 and 8 it makes one curve of them.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget", parser=seconds, metavar="TIME", help="Stop in time: seconds, 90s, 10m, 1.5h."
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", parser=seconds, metavar="TIME", help="Give one case this long, then end it."
    ),
]
Data = Annotated[Path, typer.Option("--output", metavar="DIR", help="The data folder.")]


def chosen(
    op: list[str] | None, implementation: list[str] | None, workload: list[str] | None,
    dtype: list[str] | None, mode: list[str] | None, timer: list[str] | None = None,
    cache: list[str] | None = None,
) -> CollectOptions:  # fmt: skip
    """Return what these options choose, the rest as it usually is."""
    return CollectOptions(
        ops=tuple(op or ()),
        implementations=tuple(implementation or ()),
        workloads=tuple(workload or ()),
        dtypes=tuple(dtype or ()),
        modes=tuple(mode or ()),
        timers=tuple(timer or ()),
        caches=tuple(cache or ()),
    )
