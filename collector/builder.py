"""A process that compiles ahead: it builds jobs and leaves nothing but the compilers' caches.

It writes a line to the descriptor that its argument names when it is ready for a job, and reads the
job from standard input. It times nothing and tells no fault: who measures a job meets its fault.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, NoReturn

import torch

from collector import device, plan
from collector.bench import Bench, Channel, compiled_code
from collector.timing import Clock
from collector.worker import impossible, job_of
from kernels.registry import load_op


def build(bench: Bench, job: plan.Job) -> None:
    """Compile what a job needs, call it once and read its code; a fault of it is ignored."""
    with suppress(Exception):
        op = load_op(job.op)
        implementation = op.implementation(job.implementation)
        builder = implementation.builder(job.mode)
        if builder is None or impossible(bench, op, job):
            return
        thunk = builder(bench.prepare(op, job.mode, job.workload, 1)[0])
        thunk()
        compiled_code(bench, implementation, thunk)


def receive(stream: IO[str], jobs: SimpleQueue[str]) -> None:
    """Take jobs; end at once when the process that sends them is gone, however it went."""
    for line in stream:
        jobs.put(line)
    os._exit(70)


def main() -> NoReturn:
    """Build one job after another until this process is ended."""
    jobs: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=receive, args=(sys.stdin, jobs), daemon=True).start()
    # What is chosen by time while others use the card is not kept for those who measure.
    os.environ.pop("TRITON_CACHE_AUTOTUNING", None)
    # As the process that measures does.
    torch.cuda.set_stream(torch.cuda.Stream())
    watcher = device.Watcher(None)
    with (
        open(int(sys.argv[1]), "w", encoding="utf-8", buffering=1) as ask,  # noqa: PTH123
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
    ):
        bench = Bench(Channel(nowhere, 0.0), Clock("cuda", 0, watcher), watcher, "cuda", 0)
        while True:
            ask.write("next\n")
            build(bench, job_of(json.loads(jobs.get())))
            # A context that is lost raises here; another process goes on.
            torch.cuda.synchronize()
            bench.forget()


if __name__ == "__main__":
    main()
