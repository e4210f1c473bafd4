"""A fresh process: check, time, hand back case by case.

It writes one JSON object a line to the descriptor that its first argument names: `ready` when the
modules of the other arguments are imported, then, with the task that it reads from standard input,
`start` before a step, `record` for each line of the run, `spent` for the seconds of a phase, `done`
after a step. If it dies, the one that started it knows which step it was at.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from typing import IO, TYPE_CHECKING, Any, Literal

import torch

from collector import device, plan
from collector.bench import Bench, Built, Channel, RefusedError, build, time_series
from collector.method import Method, Rotation, method_of
from collector.record import (
    Correctness,
    CostRecord,
    Latency,
    Measurement,
    Sentinel,
    Status,
    Telemetry,
)
from collector.timing import Clock
from kernels.registry import load_op
from kernels.spec import Op, Workload

if TYPE_CHECKING:
    from kernels.spec import Thunk

Phase = Literal["before", "between", "after"]
LOST_CONTEXT = 75
HOST_HIDDEN_NS = 50_000_000


def run_job(bench: Bench, op: Op, job: plan.Job) -> None:
    """Run one job and send a line for each of its series, whatever happens."""
    todo = list(job.series[:1] if job.check else job.series)
    if refusal := impossible(bench, op, job):
        return send_failures(bench, op, job, todo, *refusal)
    try:
        built = build(bench, op, job)
    except Exception as error:  # noqa: BLE001 - any fault of a kernel costs its own case only
        return send_fault(bench, op, job, todo, error)
    if job.check:
        return send_checked(bench, built)
    while todo:
        try:
            send_timed(bench, built, todo[0])
        except RefusedError as error:
            return send_fault(bench, op, job, todo, error)
        except Exception as error:  # noqa: BLE001 - as above
            send_fault(bench, op, job, todo[:1], error, rest=todo[1:])
        todo.pop(0)
    return None


def send_fault(
    bench: Bench, op: Op, job: plan.Job, todo: list[plan.Series], error: Exception,
    rest: list[plan.Series] | None = None,
) -> None:  # fmt: skip
    """Send lines that say what went wrong; end the process when its CUDA context is lost."""
    checked: Correctness | None = None
    status: Status = "error"
    if isinstance(error, RefusedError):
        status, reason = "incorrect", str(error)
        checked = error.verdict.record("interpreter" if job.check else "before")
    elif isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        status, reason = "oom", first_line(error)
    else:
        reason = f"{type(error).__name__}: {first_line(error)}"
    send_failures(bench, op, job, todo, status, reason, checked)
    if context_is_lost(bench):
        send_failures(bench, op, job, rest or [], status, reason)
        bench.channel.send("done")
        os._exit(LOST_CONTEXT)
    bench.forget()


def context_is_lost(bench: Bench) -> bool:
    """Tell whether the CUDA context can no longer be used, so that a fresh process must go on."""
    if bench.where != "cuda":
        return False
    try:
        torch.cuda.synchronize()
        return bool(torch.zeros(1, device="cuda").item())
    except RuntimeError:
        return True


def impossible(bench: Bench, op: Op, job: plan.Job) -> tuple[Status, str] | None:
    """Say why a job cannot run here: status and reason, or None."""
    implementation = op.implementation(job.implementation)
    if missing := [name for name in implementation.packages if not installed(name)]:
        return "unavailable", f"package {', '.join(missing)} is not installed"
    if implementation.kind == "library" and bench.where == "cpu":
        return "unavailable", "needs a CUDA GPU"
    if implementation.least_sm > compute_capability(bench):
        return "unavailable", f"needs a GPU of compute capability {implementation.least_sm / 10}"
    if implementation.kind == "compiled" and not has_compiler():
        return "unavailable", "torch.compile needs a C++ compiler: install g++, or set CXX"
    if reason := implementation.unsupported(job.workload):
        return "skipped", reason
    return None


def compute_capability(bench: Bench) -> int:
    """Return the compute capability times ten; 0 on a CPU."""
    if bench.where != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability()
    return int(major * 10 + minor)


def installed(name: str) -> bool:
    """Tell whether a package can be found, without importing it."""
    return find_spec(name) is not None


def has_compiler() -> bool:
    """Tell whether the compiler that torch.compile needs is there."""
    return any(which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++"))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, shortened."""
    return (str(error).strip().splitlines() or ["no message"])[0][:300]


def send_timed(bench: Bench, built: Built, series: plan.Series) -> None:
    """Time one series and send its line; what the lines of a job share is in its first one."""
    method = method_of(*series)
    if series == ("graph", "hot") and built.set_bytes > bench.clock.l2_bytes:
        reason = "one set is larger than the cache: nothing of it stays hot"
        return send_failures(bench, built.op, built.job, [series], "skipped", reason)
    if series[0] != "graph" and bench.where == "cuda" and built.call_ns > HOST_HIDDEN_NS:
        reason = f"a call takes {built.call_ns / 1e6:.0f} ms of the GPU: the host's time is hidden"
        return send_failures(bench, built.op, built.job, [series], "skipped", reason)
    timing, checked = time_series(bench, built, method)
    flags = ["unsteady"] if timing.unsteady() else []
    send_measurement(
        bench, built.op, built.job, series, latency=timing.latency(), flags=flags,
        **shared(built, checked, bench.watcher.summary()),
    )  # fmt: skip
    built.described = True


def shared(built: Built, checked: str, telemetry: Telemetry | None) -> dict[str, Any]:
    """Return what the first line of a job says for all of its lines."""
    if built.described:
        return {}
    cost = plan.cost_of(built.op, built.implementation, built.job)
    return {
        "cost": CostRecord.model_validate(cost),
        "correctness": built.verdict.record(checked),
        "quality": built.quality,
        "codegen": built.code,
        "telemetry": telemetry,
        "peak_memory_bytes": built.peak_memory_bytes,
        "graph_nodes": built.graph_nodes,
        "compile_seconds": built.compile_seconds,
    }


def send_checked(bench: Bench, built: Built) -> None:
    """Send the line of a job that was only checked."""
    reason = "checked in Triton's interpreter; not timed without a GPU"
    series = built.job.series[0]
    send_measurement(
        bench, built.op, built.job, series, status="skipped", reason=reason,
        correctness=built.verdict.record("interpreter"), flags=["interpreter"],
    )  # fmt: skip


def send_failures(
    bench: Bench, op: Op, job: plan.Job, todo: list[plan.Series], status: Status, reason: str,
    checked: Correctness | None = None,
) -> None:  # fmt: skip
    """Send a line without a time for each series."""
    bench.watcher.summary()
    for series in todo:
        send_measurement(
            bench, op, job, series, status=status, reason=reason, correctness=checked, flags=[]
        )


def send_measurement(
    bench: Bench, op: Op, job: plan.Job, series: plan.Series, **fields: Any
) -> None:
    """Send one line."""
    line = measurement(op, job, series, bench.replicate, bench.channel.now_s(), **fields)
    bench.channel.record(line)


def measurement(
    op: Op, job: plan.Job, series: plan.Series, replicate: int, at_s: float,
    status: Status = "passed", **fields: Any,
) -> Measurement:  # fmt: skip
    """Make the line of one series."""
    return Measurement(
        case=job.case(series),
        workload_hash=plan.workload_hash(op, job.workload),
        method_id=method_of(*series, ranked=job.ranks > 0).id,
        replicate=replicate,
        status=status,
        at_s=at_s,
        **fields,
    )


def run_sentinels(bench: Bench, phase: Phase, drift_only: bool) -> None:
    """Measure the device itself."""
    from kernels.sentinels import sentinels

    bench.forget()
    for sentinel in sentinels(bench.where):
        if sentinel.drift or not drift_only:
            with bench.channel.spent("sentinels"):
                send_sentinel(bench, sentinel, phase)
    bench.free()


def send_sentinel(bench: Bench, sentinel: Any, phase: Phase) -> None:
    """Measure one sentinel and send its line."""
    cold = sentinel.bytes and bench.where == "cuda"
    method = method_of(sentinel.timer, "cold" if cold else "hot")
    latency: Latency | None = None
    status: Status = "passed"
    reason = None
    try:
        latency = time_sentinel(bench, method, sentinel.build())
    except RuntimeError as error:
        status, reason = "error", first_line(error)
    bench.channel.record(
        Sentinel(
            name=sentinel.name,
            replicate=bench.replicate,
            phase=phase,
            method_id=method.id,
            status=status,
            reason=reason,
            at_s=bench.channel.now_s(),
            latency=latency,
            bytes=sentinel.bytes,
            flops=sentinel.flops,
            special_ops=sentinel.special_ops,
            telemetry=bench.watcher.summary(),
        )
    )


def time_sentinel(bench: Bench, method: Method, thunks: list[Thunk]) -> Latency:
    """Time the thunks of a sentinel; they take turns in a graph."""
    clock = bench.clock
    for thunk in thunks:
        thunk()
    if method.timer == "call":
        return clock.call(method, thunks[0]).latency()
    if method.timer == "submit":
        return clock.submit(method, thunks[0]).latency()
    call_ns = clock.estimate_ns(thunks[0])
    calls = clock.plan(method, 0, call_ns).calls
    calls = -(-calls // len(thunks)) * len(thunks)
    return clock.graph(method, thunks, Rotation(len(thunks), calls, False))[0].latency()


def settle_clocks(bench: Bench) -> None:
    """Keep the card busy until its SM clock stays within 0.5 % for half a second, 5 s at most."""
    if bench.where != "cuda":
        return
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    last, end = 0.0, time.perf_counter() + 5
    while time.perf_counter() < end:
        half = time.perf_counter() + 0.5
        while time.perf_counter() < half:
            torch.mm(a, a)
            torch.cuda.synchronize()
            bench.watcher.sample()
        seen = bench.watcher.summary()
        now = (seen.sm_clock_mhz if seen else None) or 0.0
        if not now or abs(now - last) <= 0.005 * now:
            return
        last = now


def spend_first_graphs(bench: Bench) -> None:
    """Capture and replay a few graphs, so that none of the first ones is measured.

    Seen on an H200: a node of one of the first four or so graphs of a process takes 0.49 us, one
    of any later graph 0.66 us. What is timed first would look faster than it is.
    """
    if bench.where == "cuda":
        x = torch.zeros(1, device="cuda")
        for _ in range(8):
            bench.clock.estimate_ns(lambda: x + 1)


def job_of(row: dict[str, Any]) -> plan.Job:
    """Read a job from the task."""
    workload = Workload(row["sizes"], row["dtype"])
    series = tuple((timer, cache) for timer, cache in row["series"])
    return plan.Job(row["op"], row["implementation"], row["mode"], workload, series, row["check"])


def work(task: dict[str, Any], channel: Channel) -> None:
    """Run all steps of a task: jobs and sentinels, in their order."""
    where = "cuda" if task["device"] == "cuda" else "cpu"
    nvml = device.Nvml.current() if where == "cuda" else None
    watcher = device.Watcher(nvml)
    bench = Bench(
        channel, Clock(where, task["l2_bytes"], watcher), watcher, where, task["replicate"]
    )
    if where == "cuda":
        # Gradients are computed on the stream of their forward pass, which a capture needs to see.
        torch.cuda.set_stream(torch.cuda.Stream())
    with channel.spent("warm"):
        settle_clocks(bench)
        spend_first_graphs(bench)
    for index, step in enumerate(task["steps"]):
        channel.send("start", step=index)
        if "phase" in step:
            run_sentinels(bench, step["phase"], step["drift_only"])
        else:
            job = job_of(step)
            run_job(bench, load_op(job.op), job)
        channel.send("done")


def follow_parent(stream: IO[str]) -> None:
    """End at once when the process that started this one is gone, however it went."""
    stream.read()
    os._exit(70)


def main() -> None:
    """Import what jobs need, wait for the task, work, say that all is done."""
    fd, *imports = sys.argv[1:]
    for name in imports:
        import_module(name)
    with open(int(fd), "w", encoding="utf-8", buffering=1) as stream:  # noqa: PTH123
        channel = Channel(stream, 0.0)
        channel.send("ready")
        task = json.loads(sys.stdin.readline() or sys.exit())
        channel.epoch = task["epoch"]
        threading.Thread(target=follow_parent, args=(sys.stdin,), daemon=True).start()
        work(task, channel)
        channel.send("bye")
        stream.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
