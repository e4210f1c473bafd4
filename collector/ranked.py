"""One rank of a case that several share: it checks and times as a worker does, all in step.

All ranks run the same calls in the same order. What decides how often a call is made is agreed on
first, over gloo; the first rank sends what the others measured too. A rank that meets a fault ends
at once: torchrun then ends the others, and whoever started it writes down the case as failed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from collector import device, plan
from collector.bench import Bench, Built, Channel, RefusedError, build, time_series
from collector.correctness import Verdict, ratio
from collector.method import method_of
from collector.record import RankTimes, Sentinel, Timer
from collector.timing import Clock, Timing
from collector.worker import (
    first_line,
    impossible,
    job_of,
    run_sentinels,
    send_checked,
    send_failures,
    send_fault,
    send_measurement,
    settle_clocks,
    shared,
    spend_first_graphs,
    time_sentinel,
)
from kernels import ranks
from kernels.registry import load_op
from kernels.spec import Op

if TYPE_CHECKING:
    from kernels.spec import Thunk

PR_SET_PDEATHSIG = 1
MIB = 1024**2
LINK_BYTES = {"cuda": 256 * MIB, "cpu": 4 * MIB}


class Group:
    """All ranks, in talk about the measurement itself: on the CPU, over gloo."""

    def __init__(self) -> None:
        """Make a group beside the one that is measured."""
        self._group = dist.new_group(backend="gloo")

    def meet(self) -> None:
        """Wait for all."""
        dist.barrier(group=self._group)

    def largest(self, values: list[int]) -> list[int]:
        """Return the largest value of any rank, place by place."""
        found = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self._group)
        return [int(value) for value in found]

    def all(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        found: list[Any] = [None] * ranks.count()
        dist.all_gather_object(found, value, group=self._group)
        return found

    def of_first(self, value: Any) -> Any:
        """Return the value of the first rank."""
        return self.all(value)[0]


class RankedClock(Clock):
    """Time what ranks do together: a sample is the longest of any rank, and kept of this one."""

    # NCCL has a thread of its own that asks after events, which would end a capture.
    capture_mode = "thread_local"

    def __init__(self, device: str, l2_bytes: int, watch: device.Watcher, group: Group) -> None:
        """Prepare as for one process."""
        super().__init__(device, l2_bytes, watch)
        self.group = group
        self.own_ns: list[int] = []

    def now_ns(self) -> int:
        """Return one time for all."""
        return self.group.largest([super().now_ns()])[0]

    def estimate_ns(self, thunk: Thunk) -> float:
        """Return the wall time of a call, roughly; no graph is made where none is asked for."""
        return self._wall(thunk, 5) / 5

    def graph_nodes(self, thunk: Thunk) -> int | None:
        """Count nothing, for the same reason."""
        return None

    def _wall(self, thunk: Thunk, calls: int) -> int:
        self.group.meet()
        return self._kept([super()._wall(thunk, calls)])[0]

    def _replays(self, graph: torch.cuda.CUDAGraph, flush: bool, count: int) -> list[int]:
        self.group.meet()
        return self._kept(super()._replays(graph, flush, count))

    def _kept(self, own_ns: list[int]) -> list[int]:
        self.own_ns += own_ns
        return self.group.largest(own_ns)

    def timings(self, agreed: Timing) -> list[Timing]:
        """Return the last timing as each rank took it, in their order."""
        own_ns = self.own_ns[-len(agreed.samples_ns) :]
        return [replace(agreed, samples_ns=samples_ns) for samples_ns in self.group.all(own_ns)]


@dataclass
class RankedBench(Bench):
    """One rank at work."""

    clock: RankedClock
    solo: Bench = field(kw_only=True)

    def agreed(self, verdict: Verdict) -> Verdict:
        """Return the verdict of all ranks: the first that is wrong, else the worst."""
        verdicts: list[Verdict] = self.clock.group.all(verdict)
        for rank, one in enumerate(verdicts):
            if not one.right:
                return replace(one, reason=f"rank {rank}: {one.reason}")
        return max(verdicts, key=ratio)


def run_job(bench: RankedBench, op: Op, job: plan.Job) -> None:
    """Run one job in step with all ranks; any fault but a wrong result ends this process."""
    todo = list(job.series[:1] if job.check else job.series)
    if refusal := impossible(bench, op, job):
        return send_failures(bench, op, job, todo, *refusal)
    try:
        built = build(bench, op, job)
        if job.check:
            return send_checked(bench, built)
        while todo:
            send_timed(bench, built, todo[0])
            todo.pop(0)
    except RefusedError as error:
        send_fault(bench, op, job, todo, error)


def send_timed(bench: RankedBench, built: Built, series: plan.Series) -> None:
    """Time one series and send its line, with the samples of the slowest rank."""
    timing, checked = time_series(bench, built, method_of(*series, ranked=True))
    timings = bench.clock.timings(timing)
    medians_ns = [one.latency().median_ns for one in timings]
    slowest = medians_ns.index(max(medians_ns))
    send_measurement(
        bench, built.op, built.job, series,
        latency=timings[slowest].latency(),
        ranks=RankTimes(median_ns=medians_ns, slowest=slowest),
        flags=["unsteady"] if timings[slowest].unsteady() else [],
        **shared(built, checked, bench.watcher.summary()),
    )  # fmt: skip
    built.described = True


def measure_links(bench: RankedBench) -> None:
    """Measure the links by a large all-reduce, and the least time of any by one number."""
    if ranks.count() > 1:
        send_link(bench, "link", LINK_BYTES[bench.where])
        send_link(bench, "link-floor", 4)
        if bench.clock.cuda:
            send_link(bench, "link-floor-graph", 4, "graph")


def send_link(bench: RankedBench, name: str, size_bytes: int, timer: Timer = "call") -> None:
    """Time one all-reduce and send its line; its bytes are those that each rank sends."""
    x = torch.zeros(size_bytes // 4, device=bench.where)
    method = method_of(timer, "hot", ranked=True)
    with bench.channel.spent("sentinels"):
        latency = time_sentinel(bench, method, [lambda: dist.all_reduce(x)])
    bench.channel.record(
        Sentinel(
            name=f"{name}-{ranks.count()}", replicate=bench.replicate, phase="before",
            method_id=method.id, status="passed", at_s=bench.channel.now_s(), latency=latency,
            bytes=ranks.ring_bytes(ranks.count(), size_bytes), flops=0, special_ops=0,
            telemetry=bench.watcher.summary(),
        )
    )  # fmt: skip


def run_step(bench: RankedBench, step: dict[str, Any]) -> None:
    """Run a job together; the device itself is measured by the first rank, while others wait."""
    if "phase" not in step:
        job = job_of(step)
        return run_job(bench, load_op(job.op), job)
    bench.forget()
    if ranks.own() == 0:
        run_sentinels(bench.solo, step["phase"], step["drift_only"])
    bench.clock.group.meet()


def work(task: dict[str, Any], channel: Channel, group: Group) -> None:
    """Run all steps of a task."""
    where = "cuda" if task["device"] == "cuda" else "cpu"
    watcher = device.Watcher(device.Nvml.current() if where == "cuda" else None)
    alone = Clock(where, task["l2_bytes"], watcher)
    together = RankedClock(where, task["l2_bytes"], watcher, group)
    rest = watcher, where, task["replicate"]
    solo = Bench(channel, alone, *rest)
    bench = RankedBench(channel, together, *rest, solo=solo)
    if where == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())
    with channel.spent("warm"):
        settle_clocks(solo)
        spend_first_graphs(solo)
    if not all(step.get("check") for step in task["steps"]):
        measure_links(bench)
    for index, step in enumerate(task["steps"]):
        channel.send("start", step=index)
        run_step(bench, step)
        channel.send("done")


def join() -> Group:
    """Join the other ranks, on a GPU of this rank's own where there are any."""
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpu else "gloo")
    return Group()


def follow_torchrun() -> None:
    """Let the system end this process with torchrun, however that goes."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def follow_starter() -> None:
    """End at once when who started torchrun is gone; read nothing, since all ranks share it."""
    poll = select.poll()
    poll.register(sys.stdin, 0)
    poll.poll()
    os._exit(70)


def sent() -> int:
    """Take standard output for what is sent alone; whatever is printed goes to the errors."""
    stream = os.dup(1)
    os.dup2(2, 1)
    return stream


def main() -> None:
    """Join, wait for the task, work, say that all is done."""
    follow_torchrun()
    threading.Thread(target=follow_starter, daemon=True).start()
    out = sent()
    group = join()
    first = ranks.own() == 0
    path: int | Path = out if first else Path(os.devnull)
    with open(path, "w", encoding="utf-8", buffering=1) as stream:  # noqa: PTH123
        channel = Channel(stream, 0.0)
        channel.send("ready")
        line = group.of_first(sys.stdin.readline() if first else None)
        task = json.loads(line or sys.exit())
        channel.epoch = task["epoch"]
        work(task, channel, group)
        channel.send("bye")
        stream.flush()
        group.meet()
        os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # noqa: BLE001 - whatever it is ends this rank, with a last word
        words = f"rank {os.environ.get('RANK')}: {type(error).__name__}: {first_line(error)}\n"
        sys.stderr.write(words)
        sys.stderr.flush()
        os._exit(1)
