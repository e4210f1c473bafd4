"""Measure chosen replicates of chosen cases: what a second look and a backfill have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from collector import collect
from collector.plan import CollectOptions, Job, plan
from collector.record import Case, Device
from collector.summary import exit_code, report, warnings
from kernels.spec import Op

Counted = Callable[[Case], int]


@dataclass(frozen=True, slots=True)
class Measured:
    """The file of a run, how the run ended, and its exit code."""

    path: Path
    outcome: collect.Outcome
    exit_code: int


def collect_chosen(
    ops: Mapping[str, Op], options: CollectOptions, found: dict[str, Any], counted: Counted,
    console: Console,
) -> Measured | None:  # fmt: skip
    """Measure what the options select of the ops; None when nothing is left of it.

    `found` is what the probe of the device said; `counted` says how many replicates of a case
    there are already, which are not measured again.
    """
    device = Device.model_validate(found["device"])
    planned = plan(ops, options, device.kind)
    done = done_already(planned, options.replicates, counted)
    jobs = tuple(job for job in planned if not is_done(job, options.replicates, done))
    if not jobs:
        return None
    chosen = {name: ops[name] for name in dict.fromkeys(job.op for job in jobs)}
    run = collect.describe(options, device, found["versions"], chosen)
    file, run, _ = collect.opened(options, run, console)
    for line in warnings(run, found["why_no_gpu"]):
        console.print(line, style="yellow", markup=False)
    with collect.bar(console) as progress:
        session = collect.Session(file, run, chosen, options, progress, time.time())
        outcome = collect.measure(session, jobs, done)
    collect.finish(session, outcome)
    report(session, outcome, console)
    return Measured(file.path, outcome, exit_code(session, outcome))


def is_done(job: Job, replicates: int, done: collect.Done) -> bool:
    """Tell whether nothing of a job is left."""
    keys = [collect.key(job.case(series)) for series in job.series]
    return all((key, replicate) in done for key in keys for replicate in range(replicates))


def done_already(jobs: Iterable[Job], replicates: int, counted: Counted) -> collect.Done:
    """Return the replicates that need not be measured: the first ones, as many as are counted."""
    cases = [job.case(series) for job in jobs for series in job.series]
    return {
        (collect.key(case), replicate)
        for case in cases
        for replicate in range(min(counted(case), replicates))
    }


def name_of(case: Case) -> Hashable:
    """Name a case, whatever the order in which its sizes are written."""
    sizes = frozenset(case.workload.sizes.items())
    return (
        case.op, case.implementation, case.mode, sizes, case.workload.dtype, case.timer, case.cache
    )  # fmt: skip
