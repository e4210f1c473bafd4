"""Compile every kernel for GPUs that are not there, in processes apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.code_files import CodeFile, ordered
from collector.code_record import Codegen, Toolchain
from collector.device import ROOT, git, probe_source
from collector.record import SCHEMA_VERSION, Source

# Not in build/cache, which other commands empty when their code changes.
CACHE = ROOT / "build" / "codegen"
TIMED = ("default", "full")


class CompileError(RuntimeError):
    """Nothing could be compiled; the message says why."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What was compiled just now; `texts` holds machine code by its hash."""

    file: CodeFile
    texts: dict[str, str]


def compile_ops(
    ops: tuple[str, ...],
    targets: tuple[str, ...],
    commit: str | None = None,
    tell: Callable[[str], None] = lambda message: None,
    cache: Path = CACHE,
    tags: tuple[str, ...] = TIMED,
    everything: bool = False,
) -> Compiled:
    """Compile the kernels of these ops, by default all, as they are or as they were at a commit.

    `tags` name the workloads, by default those that GPUs are timed on; unless `everything` is
    asked for, some calls stand for the others (`suite`).
    """
    with sources(commit) as (tree, source):
        return compile_tree(tree, source, ops, targets, tell, cache, tags, everything)


def compile_tree(
    tree: Path,
    source: Source,
    ops: tuple[str, ...],
    targets: tuple[str, ...],
    tell: Callable[[str], None],
    cache: Path,
    tags: tuple[str, ...] = TIMED,
    everything: bool = False,
) -> Compiled:
    """Compile the kernels of a folder that holds `kernels/`."""
    known = op_names(tree)
    if unknown := [name for name in ops if name not in known]:
        raise CompileError(f"unknown op {unknown[0]!r}; there are: {', '.join(known)}")
    chosen = [name for name in known if not ops or name in ops]
    task = {
        "ops": chosen, "targets": targets, "tags": tags, "everything": everything,
        "cache": str(cache), "workers": cores(),
    }  # fmt: skip
    head, *answers = asked(tree, task, tell)
    lines = [Codegen.model_validate(one["line"]) for one in answers]
    toolchain = Toolchain(
        schema_version=SCHEMA_VERSION,
        source=source,
        versions=head["versions"],
        targets=head["targets"],
        unsupported=head["unsupported"],
        ops=chosen,
    )
    texts = {one["line"]["code"]["sass_hash"]: one["text"] for one in answers if one["text"]}
    return Compiled(ordered(toolchain, lines), texts)


@contextmanager
def sources(commit: str | None) -> Iterator[tuple[Path, Source]]:
    """Give the folder that holds `kernels/`, of this tree or of a commit, and its description."""
    source = probe_source(commit)
    if commit is None:
        status = git("status", "--porcelain", "--", "kernels")
        yield ROOT, source.model_copy(update={"dirty": None if status is None else bool(status)})
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "kernels.tar"
        if git("archive", "--output", str(archive), str(source.commit), "kernels") is None:
            raise CompileError(f"--commit {commit}: git cannot give its kernels; fetch the commit")
        subprocess.run(["tar", "-xf", str(archive), "-C", folder], check=True)
        yield Path(folder), source.model_copy(update={"dirty": False})


def op_names(tree: Path) -> list[str]:
    """Return the ops of a source tree, in alphabetical order."""
    found = sorted(path.stem for path in (tree / "kernels" / "ops").glob("*.py"))
    return [name for name in found if not name.startswith("_")]


def asked(
    tree: Path, task: dict[str, Any], tell: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Yield what the compiling process answers: what it used, then every outcome."""
    # Interpreted kernels are not compiled; other settings of Triton are the user's own.
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    env |= {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "collector.static_answers"]
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
        command, cwd=tree, env=env, stdin=-1, stdout=-1, stderr=errors, text=True
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(task))
        process.stdin.close()
        head = json.loads(process.stdout.readline() or "null")
        if head is not None:
            tell(f"{head['jobs']} compilations for {', '.join(head['targets'])}, {head['new']} new")
            yield head
            yield from map(json.loads, process.stdout)
        if process.wait():
            errors.seek(0)
            raise CompileError(f"the kernels cannot be compiled: {last_line(errors.read())}")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def last_line(text: str) -> str:
    """Return the last line that says something."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no reason given")
