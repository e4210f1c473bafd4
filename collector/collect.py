"""One run: probe, plan, measure in fresh processes, append every line as it comes."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from collector import ahead, ranks
from collector.crew import Crew, Event, Loss, Pool, probe, started_at
from collector.exit_codes import FAILED, NOT_COMPARABLE, USAGE
from collector.plan import (
    CollectOptions,
    Job,
    PlanError,
    ordered,
    plan,
    ranks_of,
    to_build,
)
from collector.record import (
    Case,
    Device,
    End,
    Measurement,
    Run,
    Sentinel,
    parse,
)
from collector.run_head import describe
from collector.store import RunFile, read
from collector.summary import exit_code, report, warnings
from collector.worker import measurement
from kernels.registry import load_ops
from kernels.spec import Op, OpError

Done = Set[tuple[str, int]]
Outcome = Literal["complete", "budget", "interrupted", "error"]


@dataclass
class Session:
    """One run while it is being made."""

    file: RunFile
    run: Run
    ops: dict[str, Op]
    options: CollectOptions
    progress: Progress
    epoch: float
    began: float = field(default_factory=time.monotonic)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    failures: list[Measurement] = field(default_factory=list)
    bar: Any = None

    def out_of_budget(self) -> bool:
        """Tell whether the time that the command line grants is used up."""
        budget = self.options.budget_s
        return budget is not None and time.monotonic() - self.began > budget

    def keep(self, record: Measurement | Sentinel) -> None:
        """Append a line, at once and for good."""
        self.file.append(record)
        if isinstance(record, Measurement):
            self.counts[record.status] += 1
            if record.status in ("incorrect", "error", "timeout"):
                self.failures.append(record)

    def now_s(self) -> float:
        """Return seconds since the start of the run."""
        return round(max(time.time() - self.epoch, 0), 2)


class NotComparableError(ValueError):
    """A run cannot be gone on with here: device, source, versions or method differ."""


def collect(options: CollectOptions) -> int:
    """Measure what the options select; returns the exit code."""
    console = Console(stderr=True, soft_wrap=True)
    try:
        return collect_all(options, console)
    except (PlanError, NotComparableError, OpError, RuntimeError) as error:
        console.print(f"collect: {error}", style="red", markup=False)
        codes: dict[type, int] = {PlanError: USAGE, NotComparableError: NOT_COMPARABLE}
        return codes.get(type(error), FAILED)


def collect_all(options: CollectOptions, console: Console) -> int:
    """Probe, plan and measure; raises what `collect` turns into messages."""
    ops = load_ops()
    found = probe()
    jobs = plan(ops, options, found["device"]["kind"])
    return measured(ops, options, found, jobs, console).exit_code


@dataclass(frozen=True, slots=True)
class Measured:
    """The file of a run, how the run ended, and its exit code."""

    path: Path
    outcome: Outcome
    exit_code: int


def measured(
    ops: Mapping[str, Op], options: CollectOptions, found: Mapping[str, Any],
    jobs: tuple[Job, ...], console: Console, known: Done = frozenset(),
) -> Measured:  # fmt: skip
    """Measure jobs as one run, from its first line to what is said of it.

    `found` is what the probe said; what is in `known` is not measured again.
    """
    device = Device.model_validate(found["device"])
    chosen = {name: ops[name] for name in dict.fromkeys(job.op for job in jobs)}
    links, more = ranks.probe(options.ranks, device.kind)
    run = describe(options, device, found["versions"] | more, chosen, links)
    file, run, done = opened(options, run, console)
    for line in warnings(run, found["why_no_gpu"]):
        console.print(line, style="yellow", markup=False)
    with bar(console) as progress:
        session = Session(file, run, chosen, options, progress, time.time() - age_s(run.started_at))
        outcome = measure(session, jobs, done | known)
    finish(session, outcome)
    report(session, outcome, console)
    return Measured(file.path, outcome, exit_code(session, outcome))


def opened(options: CollectOptions, run: Run, console: Console) -> tuple[RunFile, Run, Done]:
    """Open the file of a new run, or one to go on with and what it holds already."""
    if options.resume is None:
        return RunFile.create(options.output, run), run, set()
    expect_same(options.resume, run)
    resumed = RunFile.resume(options.resume)
    for note in resumed.notes:
        console.print(note, style="yellow", markup=False)
    done = {(key(r.case), r.replicate) for r in resumed.records if isinstance(r, Measurement)}
    return resumed.file, resumed.run, done


def expect_same(path: Path, run: Run) -> None:
    """Raise NotComparableError where a file was made with something else than is here now."""
    earlier = next((record for _, record in read(path) if isinstance(record, Run)), None)
    for name in ("device", "source", "versions", "methods", "ranks") if earlier else ():
        if getattr(earlier, name) != getattr(run, name):
            raise NotComparableError(
                f"{path}: cannot go on, its {name} differs from what is here now; start a new run"
            )


def key(case: Case) -> str:
    """Name a case in one word."""
    return case.model_dump_json()


def age_s(started: str) -> float:
    """Return the seconds since a start that a record gives."""
    import calendar

    return time.time() - calendar.timegm(time.strptime(started, "%Y-%m-%dT%H:%M:%SZ"))


def bar(console: Console) -> Progress:
    """Make the progress bar."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs, about"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
    )


def measure(session: Session, jobs: tuple[Job, ...], done: Done) -> Outcome:
    """Run all replicates; returns how the run ended."""
    replicates = range(session.options.replicates)
    session.bar = session.progress.add_task("starting", total=len(jobs) * len(replicates))
    todo = [(*task, n) for n in replicates for task in tasks(session, jobs, n, done)]
    planned = (step for steps, *_ in todo for step in steps if isinstance(step, Job))
    rows = [row(job) for job in to_build(session.ops, planned)]
    cuda = session.run.device.kind == "cuda"
    compiled = cuda and not session.options.ranks and ahead.worth_it(len(rows))
    pools = {count: ranks.pool(count) for count in session.options.ranks}
    pools[0] = ahead.pool(cuda, len(todo))
    try:
        if compiled:
            pools[0].fill()
            compile_ahead(session, rows)
        for steps, interpret, replicate in todo:
            run_task(session, pools[ranks_of(steps)], steps, replicate, interpret)
            if session.out_of_budget():
                return "budget"
    except KeyboardInterrupt:
        return "interrupted"
    finally:
        for pool in pools.values():
            pool.end()
    return "complete"


def compile_ahead(session: Session, rows: list[dict[str, Any]]) -> None:
    """Compile all jobs in several processes before anything is measured."""

    def told(left: int) -> None:
        text = f"compiling, {left} jobs wait"
        session.progress.update(session.bar, description=text.ljust(60))

    start, limit_s = time.monotonic(), session.options.timeout_s
    try:
        ahead.build_all(rows, ahead.builder, ahead.hands(), limit_s, session.out_of_budget, told)
    finally:
        session.seconds["build"] += time.monotonic() - start


def tasks(
    session: Session, jobs: tuple[Job, ...], replicate: int, done: Done
) -> list[tuple[list[Any], bool]]:
    """List the tasks of a replicate: each is for one fresh process, steps in their order."""
    left = []
    for job in ordered(jobs, replicate):
        series = tuple(s for s in job.series if (key(job.case(s)), replicate) not in done)
        if series:
            left.append(replace(job, series=series))
    if not left:
        return []
    groups = [(name, n) for name in session.ops for n in session.options.ranks or (0,)]
    timed = [
        [job for job in left if (job.op, job.ranks) == one and not job.check] for one in groups
    ]
    checked = [[job for job in left if (job.op, job.ranks) == one and job.check] for one in groups]
    device = [with_sentinels(jobs) for jobs in timed if jobs] or [[]]
    device[0].insert(0, phase("before", False))
    device[-1].append(phase("after", True))
    return [(steps, False) for steps in device] + [(list(jobs), True) for jobs in checked if jobs]


def phase(name: str, drift_only: bool) -> dict[str, Any]:
    """Make a step that measures the device itself."""
    return {"phase": name, "drift_only": drift_only}


def with_sentinels(jobs: list[Job]) -> list[Any]:
    """Put a look at the device between workloads."""
    steps: list[Any] = []
    for before, job in zip([None, *jobs], jobs, strict=False):
        if before is not None and before.workload.key != job.workload.key:
            steps.append(phase("between", True))
        steps.append(job)
    return steps


def run_task(
    session: Session, pool: Pool, steps: list[Any], replicate: int, interpret: bool
) -> None:
    """Run the steps of one task, keep every line, and write lines for what died."""
    device = session.run.device
    task = {
        "device": device.kind,
        "l2_bytes": device.l2_bytes,
        "replicate": replicate,
        "epoch": session.epoch,
        "steps": [row(step) for step in steps],
    }
    crew = Crew(task, session.options.timeout_s, lambda: pool.take(interpret))
    seen = set[str]()
    start = time.monotonic()
    before = sum(session.seconds.values())
    for event in crew.events(session.out_of_budget):
        if isinstance(event, Loss):
            keep_loss(session, steps, event, replicate, seen)
        else:
            keep_event(session, steps, event, seen)
    session.seconds["start"] += time.monotonic() - start - (sum(session.seconds.values()) - before)


def row(step: Any) -> dict[str, Any]:
    """Write a step for a worker."""
    if isinstance(step, dict):
        return step
    return {
        "op": step.op,
        "implementation": step.implementation,
        "mode": step.mode,
        "sizes": dict(step.workload.sizes),
        "dtype": step.workload.dtype,
        "series": step.series,
        "check": step.check,
    }


def keep_event(session: Session, steps: list[Any], event: Event, seen: set[str]) -> None:
    """Keep what a worker sent."""
    if event["event"] == "record":
        record = parse(event["line"])
        assert isinstance(record, Measurement | Sentinel)
        session.keep(record)
        if isinstance(record, Measurement):
            seen.add(key(record.case))
    elif event["event"] == "spent":
        session.seconds[event["phase"]] += event["seconds"]
    elif event["event"] == "start" and isinstance(steps[event["step"]], Job):
        job = steps[event["step"]]
        text = f"{job.op} {job.implementation} {job.workload.key}"
        session.progress.update(session.bar, description=text[:60].ljust(60), advance=1)


def keep_loss(
    session: Session, steps: list[Any], loss: Loss, replicate: int, seen: set[str]
) -> None:
    """Write a line for each series that a worker's death cost."""
    lost = steps if loss.step is None else [steps[loss.step]]
    for job in (step for step in lost if isinstance(step, Job)):
        for series in job.series[:1] if job.check else job.series:
            if key(job.case(series)) not in seen:
                session.keep(
                    measurement(
                        session.ops[job.op], job, series, replicate, session.now_s(),
                        status=loss.status, reason=loss.reason, flags=[],
                    )
                )  # fmt: skip


def finish(session: Session, outcome: Outcome) -> None:
    """Close the run."""
    seconds = {name: round(spent, 2) for name, spent in sorted(session.seconds.items())}
    session.file.append(
        End(
            ended_at=started_at(),
            outcome=outcome,
            counts=dict(session.counts),
            seconds=seconds,
        )
    )
    session.file.close()
