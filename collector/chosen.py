"""Measure chosen replicates of chosen cases: what a second look and a backfill have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from rich.console import Console

from collector import collect
from collector.plan import CollectOptions, Job, plan
from collector.record import Case
from kernels.spec import Op

Counted = Callable[[Case], int]


def collect_chosen(
    ops: Mapping[str, Op], options: CollectOptions, found: dict[str, Any], counted: Counted,
    console: Console,
) -> collect.Measured | None:  # fmt: skip
    """Measure what the options select of the ops; None when nothing is left of it.

    `found` is what the probe of the device said; `counted` says how many replicates of a case
    there are already, which are not measured again.
    """
    planned = plan(ops, options, found["device"]["kind"])
    done = done_already(planned, options.replicates, counted)
    jobs = tuple(job for job in planned if not is_done(job, options.replicates, done))
    return collect.measured(ops, options, found, jobs, console, done) if jobs else None


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
