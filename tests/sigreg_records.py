"""Invented runs of SIGReg and its regions for tests: real catalogue, sizes and costs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from collector import record as r
from collector.run_head import catalogue
from kernels.registry import load_op
from tests import synthetic

REGIONS = ("sigreg_projection", "sigreg_gemm", "sigreg_trig", "sigreg_epilogue")
PIPELINE = "sigreg"
PLAN = synthetic.Plan(commits=2, replicates=1, ops=(), samples=8)
SLOWNESS = {"torch": 6.0, "torch.compile": 3.0, "triton": 1.5, "triton-fused": 1.2}
# Seconds of each region of the seed's first table; the pipeline takes 0.3853 ms.
SEED_MS = dict(zip(REGIONS, (0.1382, 0.0407, 0.0476, 0.0928), strict=True)) | {PIPELINE: 0.3853}
Time = Callable[[str, str, Mapping[str, int]], float | None]


def model_ns(op: str, implementation: str, sizes: Mapping[str, int]) -> float:
    """Return an invented time: a floor and a share of the work, whoever does it."""
    work = sizes.get("batch", 1) * sizes.get("dim", 64) * 1e-3
    return 1000.0 + work * SLOWNESS.get(implementation, 1.3) + 10.0 * len(op)


def seed_ns(op: str, implementation: str, sizes: Mapping[str, int]) -> float:
    """Return the times of the seed's first table, at whatever size."""
    return SEED_MS[op] * 1e6


def build(
    data: Path,
    ops: tuple[str, ...] = (*REGIONS, PIPELINE),
    time: Time = model_ns,
    card: synthetic.Card = synthetic.H200,
    index: int = 0,
    seed: int = 0,
    tags: tuple[str, ...] = ("default",),
) -> Path:
    """Write one run of some ops at one commit; a time of None is a case out of memory."""
    return synthetic.write(data, list(records(ops, time, card, index, seed, tags)))


def records(
    ops: tuple[str, ...], time: Time, card: synthetic.Card, index: int, seed: int,
    tags: tuple[str, ...],
) -> Iterator[Any]:  # fmt: skip
    """Return the lines of a run: device time, cold, one replicate."""
    chance = random.Random(f"{seed}/{card.slug}/{index}")
    run = synthetic.run_line(PLAN, card, index)
    known = [catalogue(load_op(name)) for name in (*REGIONS, PIPELINE)]
    run_id = synthetic.hashlib.sha256(f"{seed}/{card.slug}/{index}/{ops}".encode()).hexdigest()[:16]
    yield run.model_copy(update={"ops": known, "run_id": run_id})
    yield from synthetic.sentinels(PLAN, card, index, 0, chance)
    for name in ops:
        yield from measurements(name, time, card, tags, chance)
    yield r.End(ended_at=run.started_at, outcome="complete", counts={}, seconds={})


def measurements(
    name: str, time: Time, card: synthetic.Card, tags: tuple[str, ...], chance: random.Random
) -> Iterator[r.Measurement]:
    """Return every implementation at every workload of an op, forward."""
    op = load_op(name)
    for info in op.implementations:
        if card.kind == "cpu" and info.kind == "triton":
            continue
        for workload in op.select(*tags):
            key = r.WorkloadKey(sizes=dict(workload.sizes), dtype=workload.dtype)
            time_ns = time(name, info.name, workload.sizes)
            yield r.Measurement(
                case=r.Case(
                    op=name, implementation=info.name, mode="forward", workload=key,
                    timer="call" if card.kind == "cpu" else "graph", cache="cold",
                ),
                workload_hash=r.identity(name, key.sizes, key.dtype), method_id="a1a1a1a1a1a1",
                replicate=0, at_s=2.0, flags=[], cost=cost(op, info, workload),
                status="oom" if time_ns is None else "passed",
                reason=None if time_ns is not None else "asked for 32 GiB",
                latency=exact(time_ns) if time_ns is not None else None,
            )  # fmt: skip


def cost(op: Any, info: Any, workload: Any) -> r.CostRecord:
    """Return the cost as the collector records it."""
    made, traffic = op.cost(workload, "forward"), info.traffic_bytes
    return r.CostRecord(
        flops=made.flops, minimal_bytes=made.minimal_bytes, special_ops=made.special_ops,
        pipe=made.pipe, traffic_bytes=traffic(workload) if traffic else None,
    )  # fmt: skip


def exact(time_ns: float) -> r.Latency:
    """Return samples whose median is a given time."""
    calls = max(1, math.ceil(1e7 / time_ns))
    return synthetic.summary([round(time_ns * calls)] * 8, calls, 8)
