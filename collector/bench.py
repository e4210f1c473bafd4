"""One process at work: build, check and time the series of a job."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import torch

from collector import codegen, correctness, device, plan
from collector.method import Method
from collector.record import KernelCode, Measurement, Sentinel, dump
from collector.timing import Clock, Timing
from collector.truths import truths
from kernels.spec import Implementation, Mode, Op, Workload

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs, Outputs, Thunk


MIB = 1024**2


class RefusedError(Exception):
    """The correctness gate is red."""

    def __init__(self, verdict: correctness.Verdict) -> None:
        """Keep the verdict for the record."""
        super().__init__(verdict.reason)
        self.verdict = verdict


class ContaminatedError(Exception):
    """What was timed is not what was meant, for example a recompilation in the timed part."""


@dataclass
class Channel:
    """The way back to the process that started this one."""

    stream: IO[str]
    epoch: float

    def send(self, event: str, **fields: Any) -> None:
        """Send one event, at once."""
        self.stream.write(json.dumps({"event": event, **fields}) + "\n")
        self.stream.flush()

    def record(self, record: Measurement | Sentinel) -> None:
        """Send one line of the run."""
        self.send("record", line=dump(record))

    def now_s(self) -> float:
        """Return seconds since the start of the run."""
        return round(max(time.time() - self.epoch, 0), 2)

    @contextmanager
    def spent(self, phase: str) -> Iterator[None]:
        """Report the seconds of a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.send("spent", phase=phase, seconds=round(time.perf_counter() - start, 4))


@dataclass
class Bench:
    """One process at work: the clock, the card, and the sets of the present workload."""

    channel: Channel
    clock: Clock
    watcher: device.Watcher
    where: str
    replicate: int
    key: str = ""
    sets: list[Inputs] = field(default_factory=list)
    gaps: list[torch.Tensor] = field(default_factory=list)
    truths: list[Outputs] = field(default_factory=list)

    def prepare(self, op: Op, mode: Mode, workload: Workload, count: int) -> list[Inputs]:
        """Return that many sets of inputs of a workload, the same for every implementation."""
        key = f"{op.name} {mode} {workload.key}"
        if self.key != key:
            self.forget()
            self.key = key
        with self.channel.spent("inputs"):
            for index in range(len(self.sets), count):
                if self.sets and self.where == "cuda":
                    self.leave_gap()
                generator = torch.Generator(device=self.where).manual_seed(plan.SEED + index)
                self.sets.append(op.draw(mode, workload, generator, self.where))
        return self.sets[:count]

    def leave_gap(self) -> None:
        """Hold memory of random sizes behind the last set."""
        for size in gap_bytes(self.sets[-1]):
            self.gaps.append(torch.empty(size, dtype=torch.uint8, device=self.where))

    def agreed(self, verdict: correctness.Verdict) -> correctness.Verdict:
        """Return the verdict of all who share a case: here, of this process alone."""
        return verdict

    def truth(self, op: Op, mode: Mode, count: int) -> list[Outputs]:
        """Return the oracle's results of the first sets."""
        todo = self.sets[len(self.truths) : count]
        if mode == "forward":
            self.truths += truths(op.oracle, todo)
        else:
            self.truths += [op.truth(mode, inputs) for inputs in todo]
        return self.truths[:count]

    def forget(self) -> None:
        """Drop the sets and give their memory back."""
        self.key, self.sets, self.gaps, self.truths = "", [], [], []
        self.free()

    def free(self) -> None:
        """Give cached memory back to the device."""
        if self.where == "cuda":
            torch.cuda.empty_cache()


def gap_bytes(inputs: Inputs) -> tuple[int, int]:
    """Draw how much memory to leave between two sets, for small tensors and for large ones.

    Each process and each set is to be a draw of its own. torch's allocator keeps what has 1 MiB or
    less apart from the rest, and puts 10 MiB and more into segments of their own.
    """
    set_bytes = sum(tensor.nbytes for tensor in inputs.values())
    small = random.randrange(min(set_bytes, MIB) + 1)
    if set_bytes < 10 * MIB:
        return small, random.randrange(set_bytes + 1)
    return small, random.randrange(5, 17) * 2 * MIB


@dataclass
class Built:
    """A job that passed its gate: what is needed to time it and to describe it."""

    op: Op
    implementation: Implementation
    job: plan.Job
    builder: Builder
    thunk: Thunk
    call_ns: float
    set_bytes: int
    verdict: correctness.Verdict
    quality: Mapping[str, float] | None
    compile_seconds: float
    code: list[KernelCode] | None
    peak_memory_bytes: int | None
    graph_nodes: int | None
    described: bool = False


def build(bench: Bench, op: Op, job: plan.Job) -> Built:
    """Compile, check and measure what a job needs before it is timed."""
    implementation = op.implementation(job.implementation)
    builder = implementation.builder(job.mode)
    if builder is None:
        raise ValueError(f"{implementation.name} has no mode {job.mode}")
    inputs = bench.prepare(op, job.mode, job.workload, 1)[0]
    with bench.channel.spent("check"):
        truth = bench.truth(op, job.mode, 1)[0]
    if implementation.kind == "compiled":
        torch._dynamo.reset()
    before = graphs()
    with bench.channel.spent("compile"):
        thunk = builder(inputs)
        _, seconds = bench.clock.first_call(thunk)
    if implementation.kind == "compiled" and graphs() == before:
        raise ContaminatedError("torch.compile fell back to eager")
    with bench.channel.spent("check"):
        poison = implementation.kind != "compiled"
        bounds = op.bounds(job.mode, job.workload.dtype)
        verdict, outputs = correctness.gate(truth, bounds, thunk, inputs, poison)
        verdict = bench.agreed(verdict)
    held_bytes = sum(t.nbytes for t in [*inputs.values(), *correctness.as_tuple(outputs)])
    # What no call reads, such as rows that no index names, pushes nothing out of the cache.
    set_bytes = min(held_bytes, op.cost(job.workload, job.mode).minimal_bytes)
    quality = op.quality(outputs) if op.quality and job.mode == "forward" else None
    del outputs
    if not verdict.right:
        raise RefusedError(verdict)
    with bench.channel.spent("warm"):
        call_ns = 0.0 if job.check else bench.clock.estimate_ns(thunk)
        peak_memory_bytes = peak_memory(bench, thunk)
    return Built(
        op=op,
        implementation=implementation,
        job=job,
        builder=builder,
        thunk=thunk,
        call_ns=call_ns,
        set_bytes=set_bytes,
        verdict=verdict,
        quality=quality,
        compile_seconds=round(seconds, 3),
        code=compiled_code(bench, implementation, thunk),
        peak_memory_bytes=peak_memory_bytes,
        graph_nodes=bench.clock.graph_nodes(thunk),
    )


def compiled_code(
    bench: Bench, implementation: Implementation, thunk: Thunk
) -> list[KernelCode] | None:
    """Describe the Triton kernels of an implementation; None where there are none to read."""
    functions = implementation.kernels()
    if bench.where != "cuda" or not functions:
        return None
    with bench.channel.spent("compile"):
        return codegen.launched_kernels(thunk, functions)


def peak_memory(bench: Bench, thunk: Thunk) -> int | None:
    """Return the most memory that one call holds beyond what was there before."""
    if bench.where != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    thunk()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated()) - int(before)


def graphs() -> int:
    """Return how many graphs torch.compile has made in this process.

    What compiles takes a second to import: who only times eager code and kernels does without it.
    """
    compiler = sys.modules.get("torch._dynamo.utils")
    return int(compiler.counters["stats"]["unique_graphs"]) if compiler else 0


def time_series(bench: Bench, built: Built, method: Method) -> tuple[Timing, str]:
    """Time one series and check its outputs again; returns the timing and what was checked."""
    before = graphs()
    checked = "before-and-after"
    if method.timer == "graph":
        timing = time_graph(bench, built, method)
    elif method.timer == "call":
        with bench.channel.spent("time"):
            timing = bench.clock.call(method, built.thunk)
        recheck(bench, built, [built.thunk()], 1)
    else:
        checked = "before"
        with bench.channel.spent("time"):
            timing = bench.clock.submit(method, built.thunk)
    if graphs() != before:
        raise ContaminatedError("torch.compile recompiled in the timed part")
    return timing, checked


def time_graph(bench: Bench, built: Built, method: Method) -> Timing:
    """Time the replay of a graph, then poison all its outputs, replay and check each."""
    planned = bench.clock.plan(method, built.set_bytes, built.call_ns)
    sets = bench.prepare(built.op, built.job.mode, built.job.workload, planned.sets)
    with bench.channel.spent("time"):
        thunks = [built.thunk, *(built.builder(inputs) for inputs in sets[1:])]
        timing, graph, outputs = bench.clock.graph(method, thunks, planned)
    correctness.poison(outputs)
    graph.replay()
    bench.clock.synchronize()
    recheck(bench, built, outputs, planned.sets)
    return timing


def recheck(bench: Bench, built: Built, outputs: list[Outputs], count: int) -> None:
    """Judge every output after timing; RefusedError when one is wrong."""
    with bench.channel.spent("check"):
        job = built.job
        truths = bench.truth(built.op, job.mode, count)
        bounds = built.op.bounds(job.mode, job.workload.dtype)
        verdict = bench.agreed(correctness.judge_all(outputs, truths, bounds))
    if not verdict.right:
        reason = f"after timing: {verdict.reason}"
        raise RefusedError(correctness.Verdict(reason, verdict.errors))
