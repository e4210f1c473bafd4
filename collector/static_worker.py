"""Compile every kernel of the ops for targets that are not there: the work of `static_answers`."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import pickle
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from collector import codegen, machine_code, suite
from collector.code_reading import code_hash
from collector.code_record import Codegen, CodeUse, Instructions, MachineCode
from collector.disassembly import disassembled
from collector.launches import Form, Launch, Pointer, compiled, forms, op_launches
from collector.occupancy import occupancy
from collector.static_answers import analysis
from kernels.registry import load_op

Outcome = dict[str, Any]
Running: TypeAlias = dict[Any, tuple[Any, tuple[Any, ...]]]
FORK = multiprocessing.get_context("fork")


@triton.jit  # type: ignore[untyped-decorator]
def _probe(out_ptr, VALUE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    tl.store(out_ptr, VALUE)


@dataclass(frozen=True, slots=True)
class Job:
    """One form to compile for one target, and where its outcome is kept."""

    target: str
    form: Form
    path: Path


Task: TypeAlias = tuple[Job, Path]


def gpu_target(name: str) -> GPUTarget:
    """Return Triton's description of an architecture."""
    if name.startswith("sm_"):
        return GPUTarget("cuda", int(name.removeprefix("sm_")), 32)
    return GPUTarget("hip", name, 64)


def key_of(form: Form, target: str, used: dict[str, str]) -> str:
    """Hash everything that an outcome depends on."""
    function = form.launch.function
    parts = (function.cache_key, form.specialization, sorted(form.options.items()), target, used)
    return hashlib.sha256(repr((parts, analysis())).encode()).hexdigest()[:24]


class Built(NamedTuple):
    """What is kept of a compilation until its machine code is read."""

    name: str
    shared_bytes: int
    num_warps: int
    assembly: str | None
    cubin: bytes | None


def built(form: Form, target: str) -> Built:
    """Compile a form."""
    kernel = compiled(form, gpu_target(target))
    names, asm = kernel.metadata, kernel.asm
    return Built(kernel.name, names.shared, names.num_warps, asm.get("amdgcn"), asm.get("cubin"))


def described(target: str, made: Built, code: str) -> Outcome:
    """Say what came out, as a record's `code` and as text."""
    read = read_gcn if made.cubin is None else read_sass
    needs, instructions = read(made, code)
    text = codegen.normalised(code, made.name)
    fits = occupancy(target, needs.registers, made.shared_bytes, made.num_warps)
    record = MachineCode(
        **needs._asdict(),
        **fits._asdict(),
        shared_bytes=made.shared_bytes,
        sass_hash=code_hash(text),
        instructions=instructions,
    )
    return {"code": record.model_dump(mode="json"), "text": text}


def read_sass(made: Built, sass: str) -> tuple[machine_code.Resources, Instructions]:
    """Read the resources and count the instructions of an NVIDIA kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.cubin or b"")
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counted = machine_code.sass_instructions(machine_code.sass_opcodes(sass))
    return machine_code.sass_resources(usage, sass), counted


def read_gcn(made: Built, code: str) -> tuple[machine_code.Resources, Instructions]:
    """Read the resources and count the instructions of an AMD kernel."""
    counted = machine_code.gcn_instructions(machine_code.gcn_opcodes(code))
    return machine_code.gcn_resources(made.assembly or ""), counted


def compile_left(tasks: list[Task], taken: Any) -> None:
    """Compile jobs that no other process took, until none is left; logs hold what they print."""
    for job, log in iter(lambda: next_of(tasks, taken), None):
        taken_by(os.getpid(), log).touch()
        speak_into(log)
        write(log.with_suffix(".built"), pickle.dumps(built(job.form, job.target)))


def next_of(tasks: list[Task], taken: Any) -> Task | None:
    """Take the last task that is left; None when all are taken."""
    # Backward passes come last and take longest: begun first, they keep no other process waiting.
    with taken.get_lock():
        taken.value += 1
        return tasks[-taken.value] if taken.value <= len(tasks) else None


def taken_by(process: int, log: Path) -> Path:
    """Return the file that says which process took a task."""
    return log.with_suffix(f".{process}")


def read_out(tasks: list[Task]) -> None:
    """Read what came out of jobs; the tools that do it start once for all kernels of a target."""
    for target in dict.fromkeys(job.target for job, _ in tasks):
        here = [log for job, log in tasks if job.target == target]
        made = [pickle.loads(log.with_suffix(".built").read_bytes()) for log in here]
        for log, one, code in zip(here, made, codes(made), strict=True):
            speak_into(log)
            outcome = json.dumps(described(target, one, code))
            write(log.with_suffix(".json"), outcome.encode())


def codes(made: list[Built]) -> list[str]:
    """Return the machine code of kernels of one target as text."""
    cubins = [one.cubin for one in made if one.cubin is not None]
    if cubins:
        return disassembled(cubins)
    return [machine_code.gcn_code(one.assembly or "") for one in made]


def speak_into(log: Path) -> None:
    """Let all that this process prints from here on be added to a file."""
    with log.open("ab") as handle:
        os.dup2(handle.fileno(), 1)
        os.dup2(handle.fileno(), 2)


def write(path: Path, content: bytes) -> None:
    """Write a file that either is there whole or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    draft.replace(path)


def run_all(jobs: Iterable[Job], scratch: Path, workers: int) -> Iterator[tuple[Job, str | None]]:
    """Compile jobs in forks of this process, as many as there are workers.

    Yields why each failed, or None; what has not failed is in the cache from then on. A compiler
    that dies takes only its own job with it.
    """
    folder = Path(tempfile.mkdtemp(dir=scratch))
    tasks = [(job, folder / f"{place}.log") for place, job in enumerate(jobs)]
    lost = compile_all(tasks, workers)
    lost |= read_all([task for task in tasks if task[1] not in lost], workers)
    yield from (collected(job, log, lost.get(log, 0)) for job, log in tasks)


def compile_all(tasks: list[Task], workers: int) -> dict[Path, int]:
    """Compile; return the logs of the jobs that a process died of, and how it ended."""
    taken = FORK.Value("i", 0)
    lost: dict[Path, int] = {}
    running: Running = {}
    while running or taken.value < len(tasks):
        while len(running) < min(workers, len(tasks)) and taken.value < len(tasks):
            start(running, compile_left, tasks, taken)
        for process, _ in ended(running):
            if process.exitcode:
                mine = [log for _, log in tasks if taken_by(process.pid, log).exists()]
                unfinished = [log for log in mine if not log.with_suffix(".built").exists()]
                lost |= dict.fromkeys(unfinished, process.exitcode)
    return lost


def read_all(tasks: list[Task], workers: int) -> dict[Path, int]:
    """Read what was compiled; return the logs of those that a process died of, and how it ended."""
    lost: dict[Path, int] = {}
    running: Running = {}
    for first in range(min(workers, len(tasks))):
        start(running, read_out, tasks[first::workers])
    while running:
        for process, (share, *_) in ended(running):
            left = [task for task in share if not task[1].with_suffix(".json").exists()]
            if process.exitcode and left:
                lost[left[0][1]] = process.exitcode
                start(running, read_out, left[1:])
    return lost


def start(running: Running, work: Callable[..., None], *arguments: Any) -> None:
    """Let a fork of this process do some work."""
    process = FORK.Process(target=work, args=arguments)
    process.start()
    running[process.sentinel] = process, arguments


def ended(running: Running) -> list[tuple[Any, tuple[Any, ...]]]:
    """Wait until forks have ended; return them, and what each was to do."""
    found = [running.pop(one) for one in multiprocessing.connection.wait(list(running))]
    for process, _ in found:
        process.join()
    return found


def collected(job: Job, log: Path, exit_code: int) -> tuple[Job, str | None]:
    """Move an outcome into the cache, or say why there is none."""
    reason = failure(exit_code, log.read_text(encoding="utf-8", errors="replace"))
    if reason is None:
        log.with_suffix(".json").replace(job.path)
    return job, reason


def failure(exit_code: int, log: str) -> str | None:
    """Return why a compilation failed, in one line without paths; None when it did not.

    LLVM reports some errors and goes on.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    if exit_code == 0 and not errors:
        return None
    said = (errors or lines or [""])[0 if errors else -1]
    told = re.sub(r"(/[^\s:'\"]+)+", "...", said)[:200]
    return told if exit_code >= 0 else f"the compiler died of signal {-exit_code}: {told}"


def line_of(job: Job, code: Any, reason: str | None) -> Codegen:
    """Write one record."""
    launch, names = job.form.launch, job.form.launch.function.arg_names
    given = list(zip(names, job.form.specialization, strict=True))
    return Codegen(
        target=job.target,
        op=launch.op,
        kernel=launch.function.__name__,
        used_by=users(job.form.users),
        signature=",".join(argument(name, what) for name, what in given if not name.isupper()),
        constants=",".join(f"{name}={what[1]}" for name, what in given if name.isupper()),
        options=",".join(f"{name}={value}" for name, value in job.form.options.items()),
        source_hash=codegen.source_hash(launch.function),
        code=code,
        reason=reason,
    )


def argument(name: str, what: tuple[str, Any]) -> str:
    """Write the type of an argument; a number that Triton compiles in is written as its value."""
    kind, known = what
    if kind == "constexpr":
        return f"{name}={known}"
    return f"{name}:{kind}{'/16' if 'D' in (known or '') else ''}"


def users(launches: Iterable[Launch]) -> list[CodeUse]:
    """Say who launches a form, each workload once."""
    found: dict[str, dict[str, None]] = {}
    for launch in launches:
        found.setdefault(launch.implementation, {})[launch.workload] = None
    return [CodeUse(implementation=name, workloads=list(keys)) for name, keys in found.items()]


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiles jobs, or finds their outcomes in the cache."""

    cache: Path
    scratch: Path
    workers: int
    used: dict[str, str]
    everything: bool = False

    def jobs(self, target: str, launches: Iterable[Launch]) -> list[Job]:
        """Return what has to be compiled for these launches on a target."""
        found = forms(launches, gpu_target(target))
        if not self.everything:
            found = suite.without_twins(found)
        return [Job(target, form, self.path(form, target)) for form in found]

    def path(self, form: Form, target: str) -> Path:
        """Return where an outcome is kept."""
        return self.cache / f"{key_of(form, target, self.used)}.json"

    def failures(self, jobs: list[Job]) -> dict[Path, str]:
        """Compile what the cache lacks; return why some failed, by their path."""
        new = {job.path: job for job in jobs if not job.path.exists()}
        done = run_all(new.values(), self.scratch, self.workers)
        return {job.path: reason for job, reason in done if reason is not None}

    def unsupported(self, targets: Iterable[str]) -> dict[str, str]:
        """Return the targets that not even a store can be compiled for, and why."""
        launch = Launch("", "", "", _probe, (Pointer(torch.float32, 0),), {"VALUE": 1.0})
        probes = [job for target in targets for job in self.jobs(target, [launch])]
        reasons = self.failures(probes)
        return {job.target: reasons[job.path] for job in probes if job.path in reasons}


def answers(
    compiler: Compiler, ops: list[str], wanted: list[str], tags: list[str]
) -> Iterator[Outcome]:
    """Yield first what is used and how much there is to do, then the outcome of every job."""
    unsupported = compiler.unsupported(wanted)
    targets = [target for target in wanted if target not in unsupported]
    made = [list(op_launches(load_op(name), tags)) for name in ops]
    if not compiler.everything:
        made = [suite.usual(some) for some in made]
    jobs = [job for target in targets for some in made for job in compiler.jobs(target, some)]
    new = len({job.path for job in jobs if not job.path.exists()})
    used = {"versions": compiler.used, "targets": targets, "unsupported": unsupported}
    yield {**used, "jobs": len(jobs), "new": new}
    reasons = compiler.failures(jobs)
    for job in jobs:
        yield answer(job, reasons.get(job.path))


def answer(job: Job, reason: str | None) -> Outcome:
    """Return the record of a job and the text of its machine code."""
    outcome: Outcome = {"code": None, "text": None}
    if reason is None:
        outcome = json.loads(job.path.read_text(encoding="utf-8"))
    line = line_of(job, outcome["code"], reason)
    return {"line": line.model_dump(mode="json"), "text": outcome["text"]}


def compile_task(task: Outcome, used: dict[str, str]) -> Iterator[Outcome]:
    """Yield what `answers` does for a task, from the folder that this process was started in."""
    cache = Path(task["cache"])
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        triton.knobs.cache.dir = str(Path(folder) / "triton")
        compiler = Compiler(cache, Path(folder), task["workers"], used, task["everything"])
        yield from answers(compiler, task["ops"], task["targets"], task["tags"])
