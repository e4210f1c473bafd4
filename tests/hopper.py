"""Compile kernels for Hopper, in a process without Triton's interpreter: those that tests look at.

It reads uses from standard input, each an op, an implementation and a workload, and writes a line
for each form of a kernel: compiled where a use needs it. Of a kernel that no use needs the last is
compiled, for the largest workload as a rule. `python -m collector codegen --all` compiles them all.
"""

import json
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import triton

from collector.launches import op_launches
from collector.static_answers import versions
from collector.static_code import CACHE, cores
from collector.static_worker import Compiler, Job, answer
from kernels.registry import load_ops

Uses = set[tuple[str, str, str]]
TAGS = {"swiglu": ("default", "edge")}


def all_jobs(compiler: Compiler) -> list[Job]:
    """Return every form of every kernel that is timed."""
    launches = (op_launches(op, TAGS.get(name, ("default",))) for name, op in load_ops().items())
    return list(chain.from_iterable(compiler.jobs("sm_90", some) for some in launches))


def kernel(job: Job) -> tuple[str, str]:
    """Name a kernel."""
    return job.form.launch.op, job.form.launch.function.__name__


def chosen(jobs: list[Job], uses: Uses) -> list[Job]:
    """Leave those that are compiled."""
    used = [
        job
        for job in jobs
        if any((user.op, user.implementation, user.workload) in uses for user in job.form.users)
    ]
    last = {kernel(job): job for job in jobs}
    return used + [last[name] for name in last.keys() - set(map(kernel, used))]


def answers(compiler: Compiler, uses: Uses) -> list[dict[str, Any]]:
    """Return the outcome of every form, without code where it is not compiled."""
    jobs = all_jobs(compiler)
    wanted = chosen(jobs, uses)
    reasons = compiler.failures(wanted)
    left = {job.path for job in jobs} - {job.path for job in wanted}
    reasons |= dict.fromkeys(left, "not compiled")
    return [answer(job, reasons.get(job.path)) for job in jobs]


def main() -> None:
    """Compile, or find what `make codegen` compiled before."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        triton.knobs.cache.dir = str(Path(folder) / "triton")
        compiler = Compiler(CACHE, Path(folder), cores(), versions())
        for outcome in answers(compiler, {tuple(use) for use in json.load(sys.stdin)}):
            sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main()
