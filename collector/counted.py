"""The process under the profiler: check cases, empty the cache, let one call of each be counted.

It gets its task as its argument and writes its answers, what it ran or why it did not, to the file
that the task names. Between start and stop of the profiler stand the call and one more kernel, the
last: it reads memory until all that the call left in the cache has been written back.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton

from collector import correctness, device, plan
from collector.bench import Bench, Channel, graphs
from collector.timing import Clock
from collector.worker import first_line, impossible, job_of
from kernels.registry import load_op
from kernels.sentinels import _read_kernel
from kernels.spec import Op

if TYPE_CHECKING:
    from kernels.spec import Thunk

WARM_CALLS = 3
BLOCK, STEPS = 1024, 8


def main() -> None:
    """Do the task of the command line and write an answer for each of its jobs."""
    task = json.loads(sys.argv[1])
    answers = [answered(job_of(job), task["l2_bytes"]) for job in task["jobs"]]
    Path(task["answer"]).write_text(json.dumps(answers), encoding="utf-8")


def answered(job: plan.Job, l2_bytes: int) -> dict[str, Any]:
    """Count one job and return its answer."""
    try:
        return counted(job, l2_bytes)
    except Exception as error:  # noqa: BLE001 - any fault of a kernel is an answer, not a crash
        status = "oom" if isinstance(error, torch.OutOfMemoryError) else "error"
        return refusal(status, f"{type(error).__name__}: {first_line(error)}")


def refusal(status: str, reason: str) -> dict[str, Any]:
    """Make the answer of a case that was not counted."""
    return {"status": status, "reason": reason}


def counted(job: plan.Job, l2_bytes: int) -> dict[str, Any]:
    """Check a case and let one call be counted; returns the answer."""
    op, clock = load_op(job.op), Clock("cuda", l2_bytes, device.Watcher(None))
    bench = Bench(Channel(io.StringIO(), 0.0), clock, clock.watch, "cuda", 0)  # type: ignore[arg-type]
    if refused := impossible(bench, op, job):
        return refusal(*refused)
    return count_call(bench, op, job)


def count_call(bench: Bench, op: Op, job: plan.Job) -> dict[str, Any]:
    """Build, check and warm, then count."""
    implementation = op.implementation(job.implementation)
    builder = implementation.builder(job.mode)
    assert builder is not None, "the plan has only modes that an implementation has"
    inputs = bench.prepare(op, job.mode, job.workload, 1)[0]
    thunk, compiled = builder(inputs), implementation.kind == "compiled"
    thunk()
    if compiled and not graphs():
        return refusal("error", "torch.compile fell back to eager")
    truth, bounds = bench.truth(op, job.mode, 1)[0], op.bounds(job.mode, job.workload.dtype)
    verdict, _ = correctness.gate(truth, bounds, thunk, inputs, not compiled)
    checked = verdict.record("before")
    if not verdict.right or checked is None:
        return refusal("incorrect", verdict.reason or "there is no result to check")
    profile(thunk, bench.clock)
    return {
        "status": "passed",
        "cost": plan.cost_of(op, implementation, job),
        "correctness": checked.model_dump(),
        "workload_hash": plan.workload_hash(op, job.workload),
    }


def profile(thunk: Thunk, clock: Clock) -> None:
    """Warm up, empty the cache, then let one call and what drains the cache be counted."""
    for _ in range(WARM_CALLS):
        thunk()
    drain = drained_by(clock.l2_bytes)
    drain()
    clock.flush()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    kept = thunk()
    drain()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    del kept


def drained_by(l2_bytes: int) -> Any:
    """Return what reads three times the cache with one kernel, and writes next to nothing."""
    n = 3 * l2_bytes // 4
    grid = (triton.cdiv(n, BLOCK * STEPS),)
    buffer = torch.ones(n, device="cuda")
    out = torch.empty(grid[0], device="cuda")
    return lambda: _read_kernel[grid](buffer, out, n, BLOCK=BLOCK, STEPS=STEPS)


if __name__ == "__main__":
    main()
