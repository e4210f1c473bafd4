"""Invented records of what the compiler made, for tests; their numbers never reach `data/`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collector.code_files import file_name
from collector.code_record import Codegen, CodeUse, Instructions, MachineCode, Toolchain
from collector.record import Source, dump
from tests import synthetic

NONE = dict.fromkeys(Instructions.model_fields, 0)
VERSIONS = {"triton": "3.6.0", "ptxas": "12.9.86"}
WORKLOADS = ("rows=1,hidden=4096,float16", "rows=4,hidden=4096,float16")


def code(**changed: Any) -> MachineCode:
    """Return machine code like that of the loaded kernels of synthetic runs."""
    counts = {name: changed.pop(name) for name in NONE if name in changed}
    base = {
        "registers": 40, "spills": 0, "stack_bytes": 0, "shared_bytes": 512, "occupancy": 0.75,
        "resident_blocks": 6, "limited_by": "registers", "code_bytes": 160, "sass_hash": "a" * 12,
    }  # fmt: skip
    instructions = Instructions(**(NONE | {"total": 90, "wide_loads": 4} | counts))
    return MachineCode(**(base | changed), instructions=instructions)


def line(
    made: MachineCode | None = None, op: str = "rms_norm", name: str = "triton",
    workloads: Iterable[str] = WORKLOADS, **more: Any,
) -> Codegen:  # fmt: skip
    """Return one kernel as it is launched by some workloads."""
    base = {
        "target": "sm_90", "kernel": f"{op}_kernel", "signature": "", "constants": "BLOCK=256",
        "options": "num_warps=4,enable_fp_fusion=True", "source_hash": "0" * 12, "reason": None,
    }  # fmt: skip
    use = CodeUse(implementation=name, workloads=list(workloads))
    made = code() if made is None and not more.get("reason") else made
    return Codegen(**(base | more), op=op, used_by=[use], code=made)


def write(
    data: Path, commit: str | None, lines: list[Codegen], versions: dict[str, str] | None = None,
    dirty: bool = False, day: int = 1, subject: str = "A change", ops: tuple[str, ...] = (),
) -> Path:  # fmt: skip
    """Write the record of one commit and compiler."""
    head = Toolchain(
        schema_version=1,
        source=Source(
            commit=commit, dirty=dirty, parents=[], subject=subject,
            committed_at=f"2026-01-{day:02}T00:00:00Z",
        ),
        versions=versions or VERSIONS,
        targets=sorted({one.target for one in lines}),
        unsupported={},
        ops=list(ops or dict.fromkeys(one.op for one in lines)),
    )  # fmt: skip
    path = data / "codegen" / file_name(head)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{dump(one)}\n" for one in (head, *lines)), encoding="utf-8")
    return path


def run_plan(**changes: Any) -> synthetic.Plan:
    """Return a small plan whose kernels the records above describe."""
    base = {"ops": ("rms_norm",), "sweep": 2, "failures": False, "samples": 9, "noise": 5e-4,
            "replicates": 4, "timers": ("graph",), "caches": ("cold",)}  # fmt: skip
    return synthetic.Plan(**(base | changes))
