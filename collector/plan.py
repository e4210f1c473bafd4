"""Ops x workloads x implementations x modes to jobs, in the order of each replicate. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from collector.record import Cache, Case, Timer, WorkloadKey, identity
from kernels.spec import Implementation, Mode, Op, Tag, Workload

TAGS: tuple[str, ...] = get_args(Tag)
SEED = 20_260_614
Series = tuple[Timer, Cache]
GPU_SERIES: tuple[Series, ...] = (
    ("graph", "cold"),
    ("graph", "hot"),
    ("call", "hot"),
    ("submit", "hot"),
)
CPU_SERIES: tuple[Series, ...] = (("call", "hot"),)
# Calls first: they are kept where a graph of what ranks say to each other cannot be made.
RANKED_SERIES: tuple[Series, ...] = (("call", "hot"), ("graph", "hot"))
USUAL_TIMERS: tuple[Timer, ...] = ("graph", "call")


class PlanError(ValueError):
    """The command line asks for something that does not exist; the message lists what does."""


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What the command line of `collect` asks for."""

    ops: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    timers: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    replicates: int = 1
    budget_s: float | None = None
    timeout_s: float = 300.0
    resume: Path | None = None
    output: Path = Path("data")
    commit: str | None = None
    purpose: Literal["measure", "calibrate", "backfill"] = "measure"


@dataclass(frozen=True, slots=True)
class Job:
    """One op, implementation, mode and workload, with the series that are timed on it.

    `check` is where it is only checked, in Triton's interpreter, and not timed.
    """

    op: str
    implementation: str
    mode: Mode
    workload: Workload
    series: tuple[Series, ...]
    check: bool = False

    @property
    def ranks(self) -> int:
        """Return the number of ranks that share it; 0 where it runs in one process of its own."""
        return self.workload.sizes.get("ranks", 0)

    def case(self, series: Series) -> Case:
        """Return the key of one series of this job."""
        return Case(
            op=self.op,
            implementation=self.implementation,
            mode=self.mode,
            workload=WorkloadKey(sizes=dict(self.workload.sizes), dtype=self.workload.dtype),
            timer=series[0],
            cache=series[1],
        )


def workload_hash(op: Op, workload: Workload) -> str:
    """Hash what decides the number apart from the method."""
    return identity(op.name, dict(workload.sizes), workload.dtype, op.inputs, dict(op.params), SEED)


def plan(ops: Mapping[str, Op], options: CollectOptions, device: str) -> tuple[Job, ...]:
    """List the jobs of one replicate; PlanError when the selection is empty or unknown."""
    check_options(ops, options)
    chosen = [ops[name] for name in options.ops or ops]
    jobs = tuple(job for op in chosen for job in op_jobs(op, options, device))
    if not jobs:
        raise PlanError(nothing(ops, options))
    return jobs


def nothing(ops: Mapping[str, Op], options: CollectOptions) -> str:
    """Say that a selection is empty, and what runs on ranks where that was asked for."""
    text = "nothing to measure: no workload and implementation fit the selection"
    there = {name: ranks_in(op) for name, op in ops.items() if ranks_in(op)}
    if not options.ranks or not there:
        return text
    counts = ", ".join(map(str, sorted(set().union(*there.values()))))
    return f"{text}; on ranks run {', '.join(there)}, on {counts} of them"


def ranks_in(op: Op) -> set[int]:
    """Return the numbers of ranks that an op has workloads for."""
    return {workload["ranks"] for workload in op.workloads if "ranks" in workload.sizes}


def ranks_of(steps: Iterable[object]) -> int:
    """Return the number of ranks that the jobs among some steps run on; 0 for none."""
    return max((step.ranks for step in steps if isinstance(step, Job)), default=0)


def op_jobs(op: Op, options: CollectOptions, device: str) -> Iterable[Job]:
    """List the jobs of one op, workload by workload."""
    for workload in op.workloads:
        for implementation in op.implementations:
            if not wanted(implementation.name, options.implementations):
                continue
            check = device == "cpu" and implementation.kind in ("triton", "library")
            series = chosen_series(options, device)
            where = "smoke" if check and not options.ranks else device
            if series and on_ranks(workload, options) and fits(workload, options, where):
                for mode in chosen_modes(op, workload, options):
                    if implementation.builder(mode):
                        yield Job(op.name, implementation.name, mode, workload, series, check)


def chosen_modes(op: Op, workload: Workload, options: CollectOptions) -> tuple[Mode, ...]:
    """Return the modes that are selected; forward alone where neither they nor sizes are named."""
    if not options.modes and not options.workloads:
        return ("forward",)
    return tuple(mode for mode in op.modes(workload) if wanted(mode, options.modes))


def on_ranks(workload: Workload, options: CollectOptions) -> bool:
    """Tell whether a workload runs on the ranks that are asked for, or alone where none are."""
    count = workload.sizes.get("ranks")
    return count in options.ranks if options.ranks else count is None


def fits(workload: Workload, options: CollectOptions, where: str) -> bool:
    """Tell whether a workload is selected; by default what suits the place it runs at."""
    if not wanted(workload.dtype, options.dtypes):
        return False
    usual = {"cuda": "default"}.get(where, where)
    filters = options.workloads or (usual,)
    if where == "smoke":
        filters = tuple(usual if text in TAGS else text for text in filters)
    return any(matches(workload, text) for text in filters)


def matches(workload: Workload, text: str) -> bool:
    """Match a tag (`full` takes in `default`) or a list of sizes such as `rows=128,hidden=1024`."""
    if text in TAGS:
        return text in workload.tags or (text == "full" and "default" in workload.tags)
    return all(workload.sizes.get(name) == size for name, size in parse_sizes(text).items())


def parse_sizes(text: str) -> dict[str, int]:
    """Read `rows=128,hidden=1024`; PlanError when it is neither that nor a tag."""
    try:
        return {name: int(size) for name, size in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise PlanError(
            f"workload {text!r}: give a tag ({', '.join(TAGS)}) or sizes such as rows=128"
        ) from None


def chosen_series(options: CollectOptions, device: str) -> tuple[Series, ...]:
    """Return the timer and cache pairs that are selected; `submit` only where it is named."""
    on_gpu = RANKED_SERIES if options.ranks else GPU_SERIES
    series = on_gpu if device == "cuda" else CPU_SERIES
    return tuple(
        (timer, cache)
        for timer, cache in series
        if wanted(timer, options.timers or USUAL_TIMERS) and wanted(cache, options.caches)
    )


def wanted(name: str, names: Sequence[str]) -> bool:
    """Tell whether a name is selected; an empty selection selects all."""
    return not names or name in names


def check_options(ops: Mapping[str, Op], options: CollectOptions) -> None:
    """Raise PlanError at the first name that does not exist, with those that do."""
    chosen = [ops[name] for name in options.ops or ops if name in ops]
    known = {
        "op": (options.ops, list(ops)),
        "implementation": (
            options.implementations,
            sorted({i.name for op in chosen for i in op.implementations}),
        ),
        "dtype": (options.dtypes, sorted({w.dtype for op in chosen for w in op.workloads})),
        "mode": (options.modes, list(get_args(Mode))),
        "timer": (options.timers, list(get_args(Timer))),
        "cache": (options.caches, list(get_args(Cache))),
    }
    for what, (asked, there) in known.items():
        for name in asked:
            if name not in there:
                raise PlanError(f"unknown {what} {name!r}; there are: {', '.join(there)}")
    for text in options.workloads:
        check_workload(chosen, text)
    if options.replicates < 1:
        raise PlanError("--replicates must be at least 1")


def check_workload(ops: Sequence[Op], text: str) -> None:
    """Raise PlanError for a size that no selected op has."""
    if text in TAGS:
        return
    names = sorted({name for op in ops for w in op.workloads for name in w.sizes})
    for name in parse_sizes(text):
        if name not in names:
            raise PlanError(f"unknown size {name!r} in {text!r}; there are: {', '.join(names)}")
    if not any(matches(w, text) for op in ops for w in op.workloads):
        raise PlanError(f"no workload of {', '.join(op.name for op in ops)} has {text}")


def ordered(jobs: Sequence[Job], replicate: int) -> list[Job]:
    """Order jobs for a replicate: implementations of a workload stay together and take turns.

    Each workload starts with another implementation, each replicate with another one again, and
    every second replicate runs the workloads backwards, so that none is always first.
    """
    groups: dict[tuple[str, str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.op, job.mode, job.workload.key), []).append(job)
    rows = [rotate(group, index + replicate) for index, group in enumerate(groups.values())]
    if replicate % 2:
        rows = [row[::-1] for row in rows[::-1]]
    return [job for row in rows for job in row]


def to_build(ops: Mapping[str, Op], jobs: Iterable[Job]) -> list[Job]:
    """List the jobs to compile ahead, each once, in the order in which to share them out.

    Workloads of one implementation lie far apart: the first of them often leaves in the cache what
    the next ones need. Not torch.compile: it chooses among configurations by time, on a card that
    nobody else uses.
    """
    groups: dict[tuple[str, str, Mode], dict[str, Job]] = {}
    for job in jobs:
        implementation = ops[job.op].implementation(job.implementation)
        ahead = implementation.kind in ("triton", "library")
        if ahead and not implementation.unsupported(job.workload):
            group = groups.setdefault((job.op, job.implementation, job.mode), {})
            group.setdefault(job.workload.key, job)
    rows = [(index, job) for group in groups.values() for index, job in enumerate(group.values())]
    return [job for _, job in sorted(rows, key=lambda row: row[0])]


def rotate(row: list[Job], by: int) -> list[Job]:
    """Rotate a list to the left."""
    at = by % len(row)
    return row[at:] + row[:at]


def cost_of(op: Op, implementation: Implementation, job: Job) -> dict[str, object]:
    """Return the cost of a job with what is modelled of this implementation."""
    cost = op.cost(job.workload, job.mode)
    forward = job.mode == "forward"
    traffic = implementation.traffic_bytes if forward else None
    launches = implementation.launches if forward else None
    return {
        "flops": cost.flops,
        "minimal_bytes": cost.minimal_bytes,
        "special_ops": cost.special_ops,
        "pipe": cost.pipe,
        "link_bytes": cost.link_bytes if job.ranks else None,
        "traffic_bytes": traffic(job.workload) if traffic else None,
        "launches": launches(job.workload) if launches else None,
    }
