"""The command `counters`: let Nsight Compute count what the hardware does in one call of a case."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from collector import ncu
from collector.collect import row
from collector.crew import environment, probe, started_at
from collector.exit_codes import FAILED, FINE, WRONG
from collector.ncu import ForbiddenError, KernelRow, Metric, NcuError
from collector.plan import CollectOptions, Job, plan
from collector.record import (
    CaseWork,
    Correctness,
    CostRecord,
    Counters,
    Device,
    End,
    KernelCounters,
    Run,
    WorkloadKey,
    identity,
)
from collector.run_head import describe
from collector.store import RunFile
from kernels.registry import load_ops

Tell = Callable[[str], None]
Outcome = Literal["complete", "interrupted", "error"]

DRAIN = "_read_kernel"
# Starting a process takes longer than most cases, and there is one for each pass.
CASES_A_PROCESS = 16
ALWAYS = (
    "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function",
    "--target-processes", "application-only", "--profile-from-start", "off",
    "--clock-control", "none",
)  # fmt: skip
# The whole process is run again for each pass, so that each finds the cache as the first one did.
TRAFFIC = ("--replay-mode", "application", "--cache-control", "none")
# Instructions do not depend on the cache: only the kernels are run again, each from an empty one.
EXECUTION = ("--replay-mode", "kernel", "--cache-control", "all")
TRAFFIC_METRICS = (
    Metric("duration_ns", "gpu__time_duration.sum", "ns", needed=True),
    Metric("dram_read_bytes", "dram__bytes_read.sum", "bytes", needed=True),
    Metric("dram_write_bytes", "dram__bytes_write.sum", "bytes", needed=True),
    Metric("blocks", "launch__grid_size", needed=True),
    Metric("threads_per_block", "launch__block_size", needed=True),
    Metric("sm_clock_mhz", "smsp__cycles_elapsed.avg.per_second", "mhz"),
    Metric("l2_hit_percent", "lts__t_sector_hit_rate.pct", "percent"),
    Metric("registers", "launch__registers_per_thread"),
    Metric("blocks_by_registers", "launch__occupancy_limit_registers"),
    Metric("blocks_by_shared_memory", "launch__occupancy_limit_shared_mem"),
    Metric("blocks_by_warps", "launch__occupancy_limit_warps"),
    Metric("blocks_at_most", "launch__occupancy_limit_blocks"),
)
FP32 = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum"
EXECUTION_METRICS = (
    Metric("occupancy_percent", "sm__warps_active.avg.pct_of_peak_sustained_active", "percent"),
    Metric(
        "issue_active_percent", "smsp__issue_active.avg.pct_of_peak_sustained_active", "percent"
    ),
    Metric("instructions", "sm__inst_executed.sum"),
    Metric("special_instructions", "smsp__inst_executed_pipe_xu.sum"),
    Metric("fp32_adds", FP32.format("add")),
    Metric("fp32_multiplies", FP32.format("mul")),
    Metric("fp32_fused", FP32.format("fma")),
)
PASSES = ((TRAFFIC, TRAFFIC_METRICS), (EXECUTION, EXECUTION_METRICS))
METHOD = {"profiler": "ncu", "options": ALWAYS, "traffic": TRAFFIC, "execution": EXECUTION,
          "code": 2}  # fmt: skip


class NotCountedError(RuntimeError):
    """One case was not counted: its status and why."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status


@dataclass
class Session:
    """Counters while they are taken; the file is made with the first line that there is."""

    options: CollectOptions
    run: Run
    ncu: Path
    tell: Tell
    began: float = field(default_factory=time.monotonic)
    counts: Counter[str] = field(default_factory=Counter)
    file: RunFile | None = None

    def keep(self, record: Counters | End) -> Path:
        """Append a line and return the file."""
        self.file = self.file or RunFile.create(self.options.output, self.run)
        self.file.append(record)
        return self.file.path


def counters(options: CollectOptions, tell: Tell) -> int:
    """Count every case that the options select; NcuError where nothing can be counted here."""
    ops = load_ops()
    jobs = plan(ops, replace(options, timers=("graph",), caches=("cold",)), "cuda")
    found = probe()
    device = Device.model_validate(found["device"])
    if device.kind != "cuda":
        raise NcuError(f"hardware counters need an NVIDIA GPU: {found['why_no_gpu']}")
    profiler = ncu.find()
    versions = {**found["versions"], "ncu": ncu.version(profiler)}
    chosen = {name: ops[name] for name in dict.fromkeys(job.op for job in jobs)}
    run = describe(options, device, versions, chosen)
    run = run.model_copy(update={"purpose": "count", "methods": {identity(METHOD): METHOD}})
    session = Session(options, run, profiler, tell)
    outcome = count_all(session, jobs)
    return finish(session, outcome)


def count_all(session: Session, jobs: Sequence[Job]) -> Outcome:
    """Count some cases at a time; a fault of one costs that one alone, a missing permission all."""
    try:
        for first in range(0, len(jobs), CASES_A_PROCESS):
            count_together(session, jobs[first : first + CASES_A_PROCESS])
    except KeyboardInterrupt:
        return "interrupted"
    except ForbiddenError as error:
        session.tell(str(error))
        session.counts["error"] += 1
        return "error"
    return "complete"


def name_of(job: Job) -> str:
    """Return the name of a case, as messages tell it."""
    return f"{job.op} {job.implementation} {job.mode} {job.workload.key}"


def count_together(session: Session, jobs: Sequence[Job]) -> None:
    """Count cases in one process and keep their lines; one by one where that process fails."""
    session.tell(f"counting {', '.join(map(name_of, jobs))}")
    try:
        results = counted(session, jobs)
    except NotCountedError as error:
        if len(jobs) > 1:
            for job in jobs:
                count_together(session, [job])
            return
        results = [error]
    for job, result in zip(jobs, results, strict=True):
        if isinstance(result, Counters):
            session.counts["passed"] += 1
            session.keep(result)
        else:
            session.counts[result.status] += 1
            session.tell(f"{name_of(job)}: {result}")


def counted(session: Session, jobs: Sequence[Job]) -> list[Counters | NotCountedError]:
    """Run cases under the profiler, once for their traffic and once for their instructions."""
    at_s = round(time.monotonic() - session.began, 2)
    with tempfile.TemporaryDirectory(prefix="almanac-") as folder:
        log = Path(folder) / "log"
        (answers, traffic), (others, execution) = (
            passed(session, jobs, options, metrics, log) for options, metrics in PASSES
        )
    if [a["status"] for a in answers] != [a["status"] for a in others]:
        raise NotCountedError("error", "of two calls only one went well")
    ran = [a["status"] == "passed" for a in answers]
    pairs = zip(by_case(traffic, sum(ran)), by_case(execution, sum(ran)), strict=True)
    return [
        counters_of(job, answer, at_s, *next(pairs)) if right
        else NotCountedError(answer["status"], answer["reason"])
        for job, answer, right in zip(jobs, answers, ran, strict=True)
    ]  # fmt: skip


def counters_of(
    job: Job, answer: Mapping[str, Any], at_s: float,
    traffic: Sequence[KernelRow], execution: Sequence[KernelRow],
) -> Counters:  # fmt: skip
    """Make the line of one case."""
    kernels, written_back_bytes = merged(traffic, execution)
    return Counters(
        case=CaseWork(
            op=job.op,
            implementation=job.implementation,
            mode=job.mode,
            workload=WorkloadKey(sizes=dict(job.workload.sizes), dtype=job.workload.dtype),
        ),
        workload_hash=answer["workload_hash"],
        method_id=identity(METHOD),
        at_s=at_s,
        cost=CostRecord.model_validate(answer["cost"]),
        correctness=Correctness.model_validate(answer["correctness"]),
        kernels=kernels,
        written_back_bytes=written_back_bytes,
    )


def by_case(launches: Sequence[KernelRow], count: int) -> list[Sequence[KernelRow]]:
    """Share the launches of a process out to that many cases, each of which ends with the drain."""
    if count == 1:
        return [launches]
    ends = [index for index, one in enumerate(launches, start=1) if one.kernel == DRAIN]
    if len(ends) != count or (ends and ends[-1] != len(launches)):
        raise NotCountedError("error", f"{len(ends)} cases where {count} were called")
    return [launches[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def passed(
    session: Session, jobs: Sequence[Job], options: Sequence[str], metrics: Sequence[Metric],
    log: Path,
) -> tuple[list[dict[str, Any]], list[KernelRow]]:  # fmt: skip
    """Return what a process says of its cases, and its launches; NotCountedError when it failed."""
    answer = log.with_name("answer")
    l2_bytes = session.run.device.l2_bytes
    task = {"jobs": [row(job) for job in jobs], "l2_bytes": l2_bytes, "answer": str(answer)}
    command = [sys.executable, "-m", "collector.counted", json.dumps(task)]
    # Another language would print 1,234.5 as 1.234,5.
    env = environment(interpret=False) | {"LC_ALL": "C"}
    answer.unlink(missing_ok=True)
    try:
        launches = ncu.count(session.ncu, (*ALWAYS, *options), metrics, command, env, log)
    except ForbiddenError:
        raise
    except NcuError as error:
        told = answers_of(answer)
        if told and all(one["status"] != "passed" for one in told):
            return told, []
        raise NotCountedError("error", str(error)) from error
    return answers_of(answer), launches


def answers_of(path: Path) -> list[dict[str, Any]]:
    """Read the answers of a process; none where it did not come that far."""
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def merged(
    traffic: Sequence[KernelRow], execution: Sequence[KernelRow]
) -> tuple[list[KernelCounters], int]:
    """Join what was counted of the same launches, and what the last one saw written back."""
    names, others = [one.kernel for one in traffic], [one.kernel for one in execution]
    if names != others:
        raise NotCountedError("error", f"two calls launched other kernels: {names}, {others}")
    if len(names) < 2 or names[-1] != DRAIN:
        raise NotCountedError("error", f"a call launched no kernel; ncu saw {', '.join(names)}")
    pairs = list(zip(traffic, execution, strict=True))
    kernels = [kernel_counters(a.kernel, {**a.values, **b.values}) for a, b in pairs[:-1]]
    return kernels, round(traffic[-1].values["dram_write_bytes"])


def kernel_counters(name: str, values: Mapping[str, float]) -> KernelCounters:
    """Make the part of one launch; what counts things is a whole number."""
    measured = {"duration_ns", "sm_clock_mhz"} | {k for k in values if k.endswith("_percent")}
    whole: dict[str, Any] = {k: v if k in measured else round(v) for k, v in values.items()}
    # A share over 100 comes from counters that did not start and stop in the same cycle.
    shares = {k: min(v, 100.0) for k, v in values.items() if k.endswith("_percent")}
    return KernelCounters(name=name, **(whole | shares))


def finish(session: Session, outcome: Outcome) -> int:
    """Close the file, if there is one, and return the exit code."""
    if session.file is None:
        session.tell("nothing was counted")
    else:
        seconds = {"count": round(time.monotonic() - session.began, 2)}
        end = End(
            ended_at=started_at(), outcome=outcome, counts=dict(session.counts), seconds=seconds
        )
        path = session.keep(end)
        session.file.close()
        session.tell(f"{os.path.relpath(path)}: {session.counts['passed']} cases counted")
    if session.counts["incorrect"]:
        return WRONG
    failed = session.counts["error"] or session.counts["oom"] or session.counts["timeout"]
    return FAILED if failed or outcome != "complete" or session.file is None else FINE
