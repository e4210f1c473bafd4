"""What a run on a GPU does before it measures: start workers, and compile in several processes."""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collector.crew import START_TIMEOUT_S, Pool, Worker

# None of these makes a CUDA context when it is imported.
IMPORTS = ("triton", "kernels.sentinels", "torch._inductor.compile_fx")
WORTH_IT_JOBS = 8
POLL_S = 0.5


def hands() -> int:
    """Return how many processes may work at a time while nothing is measured."""
    return max(min(8, (os.cpu_count() or 1) // 2), 1)


def worth_it(jobs: int) -> bool:
    """Tell whether that many jobs are worth a phase of compilation of their own."""
    return jobs >= WORTH_IT_JOBS and hands() > 1


def settings() -> dict[str, str]:
    """Return what all processes of a run on a GPU have in common, so that they share caches.

    Inductor would move Triton's cache at its first use.
    """
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    return {"TRITON_CACHE_DIR": str(home / ".triton" / "cache")}


def pool(cuda: bool, tasks: int) -> Pool:
    """Make the pool of workers; on a CPU none is started ahead, where it would disturb."""
    imports, common = (IMPORTS, settings()) if cuda else ((), {})

    def start(interpret: bool) -> Worker:
        return Worker("collector.worker", interpret, imports, common)

    return Pool(start, hands() if cuda else 1, tasks)


def builder() -> Worker:
    """Start a process that builds what it is told to."""
    return Worker("collector.builder", settings=settings())


def build_all(
    rows: Sequence[Mapping[str, Any]], start: Callable[[], Worker], processes: int,
    limit_s: float, stop: Callable[[], bool], told: Callable[[int], None],
) -> None:  # fmt: skip
    """Let several processes build jobs, each job once, and tell how many are left.

    What fails, dies or takes longer than `limit_s` is left to the worker that measures it.
    """
    builders: list[Worker] = []
    try:
        builders += [start() for _ in range(processes)]
        hand_out(deque(rows), builders, limit_s, stop, told)
    finally:
        for one in builders:
            one.end()


def hand_out(
    rows: deque[Mapping[str, Any]], builders: Sequence[Worker], limit_s: float,
    stop: Callable[[], bool], told: Callable[[int], None],
) -> None:  # fmt: skip
    """Give a job to each builder that asks; end those that are silent, or ask when none is left."""
    limits = dict.fromkeys(builders, time.monotonic() + START_TIMEOUT_S)
    with selectors.DefaultSelector() as selector:
        for one in builders:
            selector.register(one.read, selectors.EVENT_READ, one)
        while limits and not stop():
            for key, _ in selector.select(POLL_S):
                limits[key.data] = 0.0
                if os.read(key.fd, 1 << 16) and rows:
                    key.data.tell(rows.popleft())
                    limits[key.data] = time.monotonic() + limit_s
                    told(len(rows))
            for one in [one for one, limit in limits.items() if limit < time.monotonic()]:
                selector.unregister(one.read)
                one.end()
                del limits[one]
