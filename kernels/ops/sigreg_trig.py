"""SIGReg, trig reduction: means over the batch of cosines and sines at all points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.compiled import compiled
from kernels.sigreg import problem, reference
from kernels.sigreg.trig import _direct, _even, _reduce, launch_for, trig_means
from kernels.spec import Implementation, Op, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk


def _torch(inputs: Inputs) -> Thunk:
    x, t = inputs["x_projected"], inputs["integration_points"]
    return lambda: reference.trig_means(x, t)


def _torch_compile(inputs: Inputs) -> Thunk:
    x, t = inputs["x_projected"], inputs["integration_points"]
    function = compiled(reference.trig_means, inputs)
    return lambda: function(x, t)


def _triton(inputs: Inputs, even: bool = True, pdl: bool = False) -> Thunk:
    x, t = inputs["x_projected"], inputs["integration_points"]
    return lambda: trig_means(x, t, even, pdl)


def _triton_pdl(inputs: Inputs) -> Thunk:
    return _triton(inputs, pdl=True)


def _triton_direct(inputs: Inputs) -> Thunk:
    return _triton(inputs, even=False)


def _launches(workload: Workload) -> int:
    one = launch_for(workload["batch"], workload["slices"]).blocks == 1
    return 1 if one and 1 < workload["points"] <= 33 else 2


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw projected embeddings; points are evenly spaced."""
    return {
        "x_projected": problem.normal(workload, generator, device, "batch", "slices"),
        "integration_points": reference.integration(workload["points"], device=device)[0],
    }


def oracle(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the means in float64."""
    return reference.true_means(inputs["x_projected"], inputs["integration_points"])


def _workloads() -> tuple[Workload, ...]:
    def row(batch: int, slices: int, points: int, dtype: str, *tags: str):
        return {"batch": batch, "slices": slices, "points": points}, dtype, tags

    return problem.tagged(
        *(row(b, 1024, 17, "bfloat16", "default") for b in (32, 256, 2048, 8192, 16384)),
        *(row(2048, 1024, points, "bfloat16", "full") for points in (5, 9, 33, 65)),
        *(row(2048, slices, 17, "bfloat16", "full") for slices in (256, 4096)),
        *(row(batch, 1024, 17, "float32", "full") for batch in (32, 16384)),
        row(131072, 1024, 17, "bfloat16", "full"),
        row(128, 256, 17, "float32", "cpu"),
        *(row(33, 8, 17, dtype, "smoke") for dtype in ("bfloat16", "float16", "float32")),
        row(1, 35, 17, "bfloat16", "edge"),
        row(300, 3, 4, "float32", "edge"),
        *(row(6, 5, points, "float32", "edge") for points in (2, 3, 33, 40)),
        row(5, 0, 17, "float32", "edge"),
    )


OP = Op(
    name="sigreg_trig",
    title="SIGReg: trig reduction",
    summary="Means over the batch of cos(t x) and sin(t x): the characteristic function of each "
    "projection at the points of integration.",
    formula="c[s, p] = mean over b of cos(t_p x[b, s]), s[s, p] = mean over b of sin(t_p x[b, s])",
    axis="batch",
    inputs="x ~ N(0, 1), rounded to the dtype; points evenly spaced on [0, 3]",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="Operator by operator, by way of [batch, slices, points].",
            traffic_bytes=problem.trig_traffic,
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            summary="The same through torch.compile, compiled for each shape.",
        ),
        Implementation(
            name="triton-direct",
            kind="triton",
            build=_triton_direct,
            summary="A sine and a cosine for every point, wherever it lies; a slice a thread.",
            kernels=lambda: (_direct, _reduce),
            launches=lambda workload: 2,
        ),
        Implementation(
            name="triton",
            kind="triton",
            build=_triton,
            summary="Two sines and a cosine for two elements; multiples of their angles by "
            "recurrence, a slice a thread; sums over blocks of rows are added in a second kernel.",
            kernels=lambda: (_even, _direct, _reduce),
            launches=_launches,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            summary="The same kernels with programmatic dependent launch.",
            least_sm=90,
            kernels=lambda: (_even, _direct, _reduce),
            launches=_launches,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    # The recurrence enlarges an error near zero by up to (points / 4)^2: 1e-5 for one element.
    tolerance=problem.bounds((3e-5, 0.0, 2e-4), (3e-5, 0.0, 2e-4)),
    cost=problem.trig_cost,
    params={"t_max": problem.T_MAX},
)
