"""The only file that touches events, graphs and clocks."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from collector.method import Method, Rotation, rotation
from collector.record import Latency, encode_samples

if TYPE_CHECKING:
    from kernels.spec import Outputs, Thunk

Stop = Literal["settled", "budget", "limit"]
# CU_GRAPH_NODE_TYPE_KERNEL, _MEMCPY and _MEMSET.
KERNEL_COPY_FILL = (0, 1, 2)


class Watch(Protocol):
    """Something that looks at the card while it works."""

    def sample(self) -> None:
        """Take one look."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of one series, each in whole ns for `calls` calls."""

    samples_ns: list[int]
    calls: int
    sets: int
    stopped: Stop

    def latency(self) -> Latency:
        """Summarise the samples to the time of one call."""
        per_call = sorted(sample / self.calls for sample in self.samples_ns)
        low, high = median_interval(per_call)
        return Latency(
            median_ns=seven(statistics.median(per_call)),
            q01_ns=seven(quantile(per_call, 0.01)),
            q25_ns=seven(quantile(per_call, 0.25)),
            q75_ns=seven(quantile(per_call, 0.75)),
            q99_ns=seven(quantile(per_call, 0.99)),
            min_ns=seven(per_call[0]),
            max_ns=seven(per_call[-1]),
            ci_low_ns=seven(low),
            ci_high_ns=seven(high),
            samples=len(per_call),
            calls=self.calls,
            sets=self.sets,
            stopped=self.stopped,
            encoded=encode_samples(self.samples_ns),
        )

    def unsteady(self) -> bool:
        """Tell whether the first and last third lie apart, by more than 1 % and their spread."""
        third = max(len(self.samples_ns) // 3, 1)
        first, last = sorted(self.samples_ns[:third]), sorted(self.samples_ns[-third:])
        moved = abs(statistics.median(last) / statistics.median(first) - 1)
        apart = quantile(first, 0.9) < quantile(last, 0.1) or quantile(last, 0.9) < quantile(
            first, 0.1
        )
        return moved > 0.01 and apart


def seven(value: float) -> float:
    """Keep seven significant digits; the samples themselves are kept whole."""
    return float(f"{value:.7g}")


def quantile(ordered: Sequence[float], q: float) -> float:
    """Interpolate a quantile linearly at (n - 1) q."""
    at = (len(ordered) - 1) * q
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the order statistics that hold the median with at least 95 %.

    With fewer than six samples no pair does; the smallest and the largest are returned then.
    """
    n = len(ordered)
    below, rank = 0.5**n, 0
    while rank + 1 < n / 2 and below + math.comb(n, rank + 1) * 0.5**n <= 0.025:
        rank += 1
        below += math.comb(n, rank) * 0.5**n
    return ordered[rank], ordered[n - 1 - rank]


def settled(samples_ns: Sequence[int], half_width: float) -> bool:
    """Tell whether the interval of the median is narrow enough."""
    low, high = median_interval(sorted(samples_ns))
    return (high - low) / 2 <= half_width * statistics.median(samples_ns)


def sample(
    method: Method,
    block: Callable[[], list[int]],
    now_ns: Callable[[], int] = time.perf_counter_ns,
) -> tuple[list[int], Stop]:
    """Call a block of samples until the median is settled, the budget ends or enough is had."""
    warm_until = now_ns() + method.warm_ns
    block()
    while now_ns() < warm_until:
        block()
    samples: list[int] = []
    end = now_ns() + method.budget_ns
    while True:
        samples += block()
        if len(samples) >= method.samples_min and settled(samples, method.settled_half_width):
            return samples, "settled"
        if now_ns() > end and len(samples) >= 3:
            return samples, "budget"
        if len(samples) >= method.samples_max:
            return samples, "limit"


class Clock:
    """Time thunks on one device; `watch` looks at the card while it is busy."""

    capture_mode = "global"

    def __init__(self, device: str, l2_bytes: int, watch: Watch) -> None:
        """Prepare; the flush buffer is allocated once, at first use."""
        self.cuda = device == "cuda"
        self.l2_bytes = l2_bytes
        self.watch = watch
        self._flush: tuple[torch.Tensor, torch.Tensor] | None = None

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.cuda:
            torch.cuda.synchronize()

    def now_ns(self) -> int:
        """Return the time by which sampling ends."""
        return time.perf_counter_ns()

    def first_call(self, thunk: Thunk) -> tuple[Outputs, float]:
        """Call once, compilation included; returns the outputs and the seconds it took."""
        start = time.perf_counter()
        outputs = thunk()
        self.synchronize()
        return outputs, time.perf_counter() - start

    def estimate_ns(self, thunk: Thunk) -> float:
        """Return roughly the device time of one call; wall time on a CPU."""
        wall_ns = float(self._wall(thunk, 1))
        if not self.cuda or wall_ns > 20_000_000:
            return wall_ns
        call_ns = self._device_ns(thunk, 5)
        return self._device_ns(thunk, 100) if call_ns < 100_000 else call_ns

    def _device_ns(self, thunk: Thunk, calls: int) -> float:
        """Return the device time of one call in a graph of that many, roughly."""
        graph, outputs = self.capture([thunk], calls)
        self._replays(graph, False, 2)
        total_ns = self._replays(graph, False, 1)[0]
        del outputs
        return max(total_ns / calls, 200.0)

    def plan(self, method: Method, set_bytes: int, call_ns: float) -> Rotation:
        """Plan the samples of a series; see `rotation`."""
        return rotation(method, set_bytes, call_ns, self.l2_bytes, self._spare_bytes())

    def _spare_bytes(self) -> float:
        """Return a share of the device's memory that leaves room for the truths of all sets."""
        return torch.cuda.mem_get_info()[1] / 16 if self.cuda else math.inf

    def capture(
        self, thunks: Sequence[Thunk], calls: int
    ) -> tuple[torch.cuda.CUDAGraph, list[Outputs]]:
        """Capture calls that take turns over the thunks; returns the graph and each one's outputs.

        Outputs are dropped just before their set is used again, so that as many distinct ones
        exist as there are sets.
        """
        outputs: list[Any] = [None] * len(thunks)
        graph = torch.cuda.CUDAGraph()
        gc.disable()
        try:
            with torch.cuda.graph(
                graph, stream=capture_stream(), capture_error_mode=self.capture_mode
            ):
                for call in range(calls):
                    outputs[call % len(thunks)] = None
                    outputs[call % len(thunks)] = thunks[call % len(thunks)]()
        finally:
            gc.enable()
        return graph, outputs

    def graph_nodes(self, thunk: Thunk) -> int | None:
        """Return how many kernels, copies and fills one call starts; None on a CPU."""
        if not self.cuda:
            return None
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, stream=capture_stream()):
            thunk()
        return working_nodes(graph.raw_cuda_graph())

    def graph(
        self, method: Method, thunks: Sequence[Thunk], plan: Rotation
    ) -> tuple[Timing, torch.cuda.CUDAGraph, list[Outputs]]:
        """Time the replay of a graph: device time of `calls` calls."""
        graph, outputs = self.capture(thunks, plan.calls)
        count = replays(self._replays(graph, plan.flush, 1)[0])

        def block() -> list[int]:
            return self._replays(graph, plan.flush, count)

        samples, stopped = sample(method, block, self.now_ns)
        return Timing(samples, plan.calls, plan.sets, stopped), graph, outputs

    def call(self, method: Method, thunk: Thunk) -> Timing:
        """Time calls from Python, one after another, until the device is done."""
        calls = calls_of_wall(method, self._usual_wall(method, thunk))
        return self._host(method, calls, lambda: self._wall(thunk, calls))

    def submit(self, method: Method, thunk: Thunk) -> Timing:
        """Time what the host needs to enqueue calls, with an empty queue before each sample.

        Few calls a sample: a full queue would make the host wait for the device.
        """
        calls = 4 if self._wall(thunk, 1) < method.target_ns else 1
        return self._host(method, calls, lambda: self._submit(thunk, calls))

    def _host(self, method: Method, calls: int, once: Callable[[], int]) -> Timing:
        """Sample a wall-clock timer."""
        count = replays(once())

        def block() -> list[int]:
            self.watch.sample()
            return [once() for _ in range(count)]

        gc.disable()
        try:
            samples, stopped = sample(method, block, self.now_ns)
        finally:
            gc.enable()
        return Timing(samples, calls, 1, stopped)

    def _wall(self, thunk: Thunk, calls: int) -> int:
        """Return the wall time of some calls in ns."""
        self.synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            thunk()
        self.synchronize()
        return time.perf_counter_ns() - start

    def _usual_wall(self, method: Method, thunk: Thunk) -> int:
        """Return the wall time of one call; one slow call must not shorten all samples."""
        first_ns = self._wall(thunk, 1)
        if first_ns > 10 * method.target_ns:
            return first_ns
        return min(first_ns, *(self._wall(thunk, 1) for _ in range(3)))

    def _submit(self, thunk: Thunk, calls: int) -> int:
        """Return the time to enqueue some calls in ns."""
        self.synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            thunk()
        return time.perf_counter_ns() - start

    def _replays(self, graph: torch.cuda.CUDAGraph, flush: bool, count: int) -> list[int]:
        """Replay some times without waiting between them; returns each replay's ns."""
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for start, end in pairs:
            if flush:
                self.flush()
            start.record()
            graph.replay()
            end.record()
        self.watch.sample()
        torch.cuda.synchronize()
        return [round(start.elapsed_time(end) * 1e6) for start, end in pairs]

    def flush(self) -> None:
        """Push everything out of the last-level cache by reading: that leaves no dirty lines."""
        if self._flush is None:
            buffer = torch.ones(3 * self.l2_bytes // 4, device="cuda")
            self._flush = buffer, torch.empty((), device="cuda")
        torch.sum(self._flush[0], dim=0, out=self._flush[1])


def capture_stream() -> torch.cuda.Stream | None:
    """Return the stream in use, or None, for one of torch's own, where that is the default one."""
    stream = torch.cuda.current_stream()
    return None if stream == torch.cuda.default_stream() else stream


def working_nodes(graph: int) -> int:
    """Count the kernels, copies and fills of a captured graph, given as its CUgraph handle."""
    cuda = ctypes.CDLL("libcuda.so.1")
    handle, count = ctypes.c_void_p(graph), ctypes.c_size_t()
    cuda.cuGraphGetNodes(handle, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    cuda.cuGraphGetNodes(handle, nodes, ctypes.byref(count))
    kinds = [ctypes.c_int() for _ in nodes]
    for node, kind in zip(nodes, kinds, strict=True):
        cuda.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
    return sum(kind.value in KERNEL_COPY_FILL for kind in kinds)


def replays(sample_ns: float) -> int:
    """Return how many samples make a block: five, fewer where one takes long."""
    return min(max(int(100_000_000 / max(sample_ns, 1)), 1), 5)


def calls_of_wall(method: Method, wall_ns: float) -> int:
    """Return how many calls fill one sample of a wall-clock timer."""
    return min(max(math.ceil(method.target_ns / max(wall_ns, 1)), 1), method.calls_max)
