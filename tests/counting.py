"""Invented hardware counters for tests, as `python -m collector counters` would keep them."""

from pathlib import Path
from typing import Any

from collector import record as r
from collector.store import RunFile


def kernel(**changed: Any) -> r.KernelCounters:
    values: dict[str, Any] = {
        "name": "_rms_norm", "blocks": 16384, "threads_per_block": 128, "duration_ns": 131456.0,
        "dram_read_bytes": 3000, "dram_write_bytes": 1500,
        "fp32_adds": 10, "fp32_multiplies": 20, "fp32_fused": 30,
    }  # fmt: skip
    return r.KernelCounters(**(values | changed))


def counters(case: r.Case, cost: r.CostRecord, **changed: Any) -> r.Counters:
    work = case.model_dump(exclude={"timer", "cache"})
    values: dict[str, Any] = {
        "case": r.CaseWork(**work), "workload_hash": "a1b2c3d4e5f6", "method_id": "00c0ffee",
        "at_s": 0.5, "cost": cost, "kernels": [kernel(), kernel(name="_second")],
        "correctness": r.Correctness(bound_ratio=0.5, checked="before"),
        "written_back_bytes": 1000,
    }  # fmt: skip
    return r.Counters(**(values | changed))


def written(data: Path, run: r.Run, lines: list[r.Counters], **changed: Any) -> Path:
    """Write counters of the device of a run to a file of their own."""
    other = {"purpose": "count", "run_id": "c0c0c0c0c0c0", **changed}
    with RunFile.create(data, run.model_copy(update=other)) as file:
        for line in lines:
            file.append(line)
        return file.path
