"""SIGReg, synchronisation: the sums of cosines and sines of all ranks, added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from kernels import ranks
from kernels.sigreg import over_ranks, problem
from kernels.spec import Cost, Implementation, Mode, Op, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk


def _added(x: torch.Tensor) -> torch.Tensor:
    total = x.clone()
    if ranks.is_shared():
        dist.all_reduce(total)
    return total


def _packed(inputs: Inputs) -> Thunk:
    sums = inputs["sums"][ranks.own()]

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        total = _added(sums)
        return total[0], total[1]

    return call


def _two_calls(inputs: Inputs) -> Thunk:
    cosines, sines = inputs["sums"][ranks.own()]
    return lambda: (_added(cosines), _added(sines))


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw the sums of every rank, the same on each: the truth then needs no communication."""
    shape = [workload[name] for name in ("ranks", "points", "slices")]
    shape.insert(1, 2)
    return {"sums": torch.randn(shape, generator=generator, device=device)}


def oracle(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the sums of all ranks in float64, from the last to the first."""
    ones = inputs["sums"].new_ones(inputs["sums"].shape[0], dtype=torch.float64)
    total = torch.einsum("rcps,r->cps", inputs["sums"].double().flip(0), ones)
    return total[0], total[1]


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count a sum for each element of every other rank; the ring sends 4 (W - 1) / W S P q."""
    payload, others = over_ranks.payload_bytes(workload), workload["ranks"] - 1
    return Cost(
        flops=others * payload // over_ranks.SUM_BYTES,
        minimal_bytes=2 * payload,
        link_bytes=ranks.ring_bytes(workload["ranks"], payload),
    )


def _workloads() -> tuple[Workload, ...]:
    def row(count: int, slices: int, points: int, *tags: str):
        return {"ranks": count, "slices": slices, "points": points}, "float32", tags

    slices = (64, 256, 1024, 4096, 16384)
    return problem.tagged(
        *(row(n, s, 17, "default") for n in over_ranks.COUNTS for s in slices),
        *(row(n, 1024, points, "full") for n in over_ranks.COUNTS for points in (9, 16, 33)),
        *(row(n, 256, 17, "cpu") for n in over_ranks.COUNTS),
        row(1, 40, 17, "smoke"),
        row(1, 3, 2, "edge"),
    )


def _implementation(name: str, build, summary: str) -> Implementation:
    return Implementation(
        name=name, kind="eager", build=build, summary=summary, unsupported=ranks.not_here
    )


OP = Op(
    name="sigreg_sync",
    title="SIGReg: synchronisation",
    summary="The sums of cosines and sines of every rank's rows, added over all ranks.",
    formula="total[c, p, s] = sum over ranks r of sums[r, c, p, s]",
    axis="slices",
    inputs="sums ~ N(0, 1), float32",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        _implementation("packed", _packed, "Cosines and sines in one buffer: one all-reduce."),
        _implementation("two-calls", _two_calls, "An all-reduce of cosines and one of sines."),
    ),
    baseline="two-calls",
    oracle=oracle,
    # Seven additions of 2^-24 each, of partial sums that stay below 16.
    tolerance={"float32": Tolerance(absolute=8e-6, relative=0.0, norm=1e-6)},
    cost=cost,
)
