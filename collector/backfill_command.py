"""The command `backfill`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from collector import choices
from collector.terminal import tell


def backfill(
    span: Annotated[
        str,
        typer.Argument(
            metavar="A..B",
            help="The commits after A up to B, along first parents, for example v1.0..main; A^..B "
            "takes A in as well.",
        ),
    ],
    op: choices.Ops = None,
    implementation: choices.Implementations = None,
    workload: choices.Workloads = None,
    dtype: choices.Dtypes = None,
    mode: choices.Modes = None,
    timer: choices.Timers = None,
    cache: choices.Caches = None,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="Only commits that changed something below kernels/."),
    ] = False,
    replicates: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Fresh processes a commit; 5 or more tell a change from noise."
        ),
    ] = 1,
    budget: choices.Budget = None,
    timeout: choices.Timeout = 300.0,
    output: choices.Data = Path("data"),
) -> None:
    """Measure past commits, newest first, with the collector that is here now.

    Each commit is checked out in a git worktree outside this checkout, which is removed again, and
    gets a run of its own. What a commit was measured on already on this device, by the same
    method, is left out: the same command goes on where it stopped. A commit that cannot be
    measured is told, and the next one goes on.
    """
    from collector.backfill import backfill as run

    options = replace(
        choices.chosen(op, implementation, workload, dtype, mode, timer, cache),
        replicates=replicates,
        budget_s=budget,
        timeout_s=timeout,
        output=output,
        purpose="backfill",
    )
    raise typer.Exit(run(span, options, tell, changed=changed))
