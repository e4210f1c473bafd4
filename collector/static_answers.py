"""What compiling ops answers; an op whose sources did not change is answered without torch.

Reads one task as JSON from stdin and writes one JSON object a line to stdout: first what was used,
then a record and its machine code for each kernel, target and configuration. The kernels are those
of the folder that it is started in.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import triton

from collector import machine_code

Answer = dict[str, Any]
HERE = Path(__file__).parent
ANALYSIS = (
    "codegen",
    "disassembly",
    "launches",
    "machine_code",
    "occupancy",
    "record",
    "static_worker",
)
CHOICE = ("static_answers", "suite")


def versions() -> dict[str, str]:
    """Return what the machine code and its text depend on, the sources aside."""
    tools = {
        "ptxas": triton.knobs.nvidia.ptxas,
        "ptxas-blackwell": getattr(triton.knobs.nvidia, "ptxas_blackwell", None),
        "nvdisasm": triton.knobs.nvidia.nvdisasm,
    }
    found = {"triton": triton.__version__}
    return found | {name: tool_version(tool.path) for name, tool in tools.items() if tool}


def tool_version(path: str) -> str:
    """Return the version that a CUDA tool states."""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    return machine_code.named(r"V(\d+[\d.]*)", said)


@cache
def analysis() -> list[str]:
    """Return the sources of what reads machine code: outcomes depend on them."""
    return sources(HERE / f"{name}.py" for name in ANALYSIS)


def sources(paths: Iterable[Path]) -> list[str]:
    """Return what is in files."""
    return [path.read_text(encoding="utf-8") for path in paths]


@cache
def surroundings() -> list[str]:
    """Return what the answers of all ops depend on: settings, packages, and what ops share."""
    settings = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if "TRITON" in name]
    packages = {path.name for folder in sys.path for path in Path(folder).glob("*.dist-info")}
    shared = [path for path in sorted(Path("kernels").rglob("*.py")) if path.parent.name != "ops"]
    mine = [HERE / f"{name}.py" for name in CHOICE]
    return [sys.version, *settings, *sorted(packages), *map(str, shared), *sources(shared + mine)]


def path_of(task: dict[str, Any], used: dict[str, str], op: str, target: str) -> Path:
    """Return where the answers for an op and a target are kept."""
    own = sources([Path("kernels", "ops", f"{op}.py")])
    asked = op, target, task["tags"], task["everything"]
    parts = repr((asked, used, own, analysis(), surroundings()))
    return Path(task["cache"], "ops", f"{hashlib.sha256(parts.encode()).hexdigest()[:24]}.json")


def answers(task: dict[str, Any]) -> Iterator[Answer]:
    """Yield first what is used and how much there is to do, then the outcome of every job."""
    used, wanted = versions(), task["targets"]
    paths = {(op, one): path_of(task, used, op, one) for op in task["ops"] for one in wanted}
    changed = [op for op in task["ops"] if not all(paths[op, one].exists() for one in wanted)]
    known = [path for (op, _), path in paths.items() if op not in changed]
    kept = [one for path in known for one in json.loads(path.read_text(encoding="utf-8"))]
    head = {"versions": used, "targets": wanted, "unsupported": {}, "jobs": 0, "new": 0}
    fresh: Iterator[Answer] = iter(())
    if changed:
        from collector.static_worker import compile_task

        fresh = compile_task(task | {"ops": changed}, used)
        head = next(fresh)
    yield head | {"jobs": head["jobs"] + len(kept)}
    yield from kept
    made = list(fresh)
    yield from made
    for op in changed:
        for target in head["targets"]:
            keep(paths[op, target], [one for one in made if about(one) == (op, target)])


def about(answer: Answer) -> tuple[str, str]:
    """Return the op and the target of an answer."""
    return answer["line"]["op"], answer["line"]["target"]


def keep(path: Path, made: list[Answer]) -> None:
    """Keep answers; a failure may be the machine's, and is tried again."""
    if all(one["line"]["code"] for one in made):
        path.parent.mkdir(exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(made), encoding="utf-8")
        draft.replace(path)


def main() -> None:
    """Do the task on stdin."""
    for answer in answers(json.load(sys.stdin)):
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
