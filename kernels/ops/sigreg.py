"""SIGReg: how far random projections of embeddings are from a normal distribution."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from kernels.compiled import compiled
from kernels.gradients import by_autograd, by_passes, of_oracle
from kernels.sigreg import backward, finish, gemm, pipeline, problem, projection, small, trig
from kernels.spec import Gradient, Implementation, Op, Workload

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs, Thunk

SHARED = (projection._project, trig._even, trig._direct, gemm._gemm, gemm._add_splits)
LOSS = (finish._finish, small._draw_multiply, small._finish_small)
PULL = (finish._finish_back, backward._pull_even, backward._pull_direct)


def _torch(inputs: Inputs) -> Thunk:
    x, rest = inputs["x"], problem.loss_arguments(inputs)
    return lambda: problem.loss_reference(x, *rest)


def _differentiable(inputs: Inputs) -> torch.Tensor:
    return problem.loss_reference(inputs["x"], *problem.loss_arguments(inputs))


def _compiled_loss(inputs: Inputs):
    sizes = int(inputs["slices"]), int(inputs["points"])
    function = compiled(problem.loss_reference, inputs, *sizes)
    rest = problem.loss_arguments(inputs)
    return lambda x: function(x, *rest)


def _torch_compile(inputs: Inputs) -> Thunk:
    x, function = inputs["x"], _compiled_loss(inputs)
    return lambda: function(x)


def _triton(fused: bool = False, pdl: bool = False) -> dict[str, Builder]:
    """Return the builders of the kernels, directions and points set up before."""

    def arguments(inputs: Inputs):
        x, slices = inputs["x"].unsqueeze(0), int(inputs["slices"])
        return x, inputs["key"], slices, problem.test_of(inputs)

    def build(inputs: Inputs) -> Thunk:
        call = partial(pipeline.loss, *arguments(inputs), fused=fused, pdl=pdl)
        return lambda: call()[0]

    def forward(inputs: Inputs):
        made = arguments(inputs)
        return made, pipeline.loss(*made, fused=fused, keep=True, pdl=pdl)[1]

    def pull(inputs: Inputs, kept) -> torch.Tensor:
        made, sums = kept
        return pipeline.pull_loss(inputs["grad"], *made, sums, pdl=pdl).squeeze(0)

    to_x, both = by_passes(forward, pull)
    return {"build": build, "backward": to_x, "full": both}


def _eager(function) -> dict[str, Builder]:
    to_x, both = by_autograd(function, ["x"])
    return {"backward": to_x, "full": both}


def _launches(workload: Workload) -> int:
    if workload["batch"] <= small.LARGEST_BATCH:
        return 2
    own = workload["batch"] <= pipeline.OWN_PRODUCT
    return 5 if own else 4


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw embeddings, a seed and a step; numbers of slices and points are on the host."""
    return {
        "x": problem.normal(workload, generator, device, "batch", "dim"),
        "key": problem.drawn_key(generator, device),
        "slices": torch.tensor(workload["slices"]),
        "points": torch.tensor(workload["points"]),
    }


def make_gradient(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw the gradient of the loss, of a size that makes those of embeddings about one."""
    size = (workload["batch"] * workload["dim"] * workload["slices"]) ** 0.5
    return {"grad": size * (1 + torch.rand((), generator=generator, device=device))}


def _workloads() -> tuple[Workload, ...]:
    def row(batch: int, dim: int, slices: int, points: int, dtype: str, *tags: str):
        sizes = {"batch": batch, "dim": dim, "slices": slices, "points": points}
        return sizes, dtype, tags

    return problem.tagged(
        *(row(b, 2048, 1024, 17, "bfloat16", "default") for b in (32, 256, 2048, 8192, 16384)),
        *(row(b, 1024, 1024, 17, "bfloat16", "full", "gradient") for b in (256, 8192)),
        *(row(2048, dim, 1024, 17, "bfloat16", "full") for dim in (512, 4096)),
        *(row(2048, 2048, slices, 17, "bfloat16", "full") for slices in (256, 4096)),
        *(row(2048, 2048, 1024, points, "bfloat16", "full") for points in (9, 33)),
        row(2048, 1024, 1024, 17, "float32", "full"),
        row(128, 256, 256, 17, "float32", "cpu"),
        row(33, 48, 40, 17, "float32", "smoke"),
        row(70, 40, 8, 9, "float32", "smoke", "gradient"),
        row(70, 40, 16, 9, "float16", "smoke", "gradient"),
        *(row(8, 20, 36, points, "float32", "edge") for points in (2, 3, 40)),
        row(1, 5, 3, 17, "float32", "edge", "gradient"),
        row(17, 1, 4, 17, "float32", "edge"),
    )


OP = Op(
    name="sigreg",
    title="SIGReg",
    summary="The regulariser of LeJEPA: embeddings are projected on random directions, and each "
    "projection is tested for a normal distribution by its characteristic function.",
    formula="mean over s of n * sum over p of w_p |mean over b of exp(i t_p (x A)[b, s]) - "
    "phi_p|^2",
    axis="batch",
    inputs="x ~ N(0, 1), rounded to the dtype; a random seed and step; points evenly spaced on "
    "[0, 3]",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="The formula in PyTorch, operator by operator, the generator of the directions "
            "included.",
            traffic_bytes=problem.loss_traffic,
            **_eager(_differentiable),
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            summary="The same through torch.compile, compiled for each shape.",
            **_eager(lambda inputs: _compiled_loss(inputs)(inputs["x"])),
        ),
        Implementation(
            name="triton",
            kind="triton",
            summary="Directions, product (of large batches by torch), sums of cosines and sines, "
            "and the rest to the loss in one kernel; small batches in two kernels, without "
            "directions in memory. Backward computes directions and products again.",
            kernels=lambda: (*SHARED, *LOSS, *PULL),
            launches=_launches,
            **_triton(),
        ),
        Implementation(
            name="triton-fused",
            kind="triton",
            summary="The same, but sums are taken where products are made, which are never "
            "written.",
            kernels=lambda: (*SHARED, gemm._gemm_trig, *LOSS, *PULL),
            launches=lambda workload: min(3, _launches(workload)),
            **_triton(fused=True),
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            summary="The kernels of triton with programmatic dependent launch.",
            least_sm=90,
            kernels=lambda: (*SHARED, *LOSS, *PULL),
            launches=_launches,
            **_triton(pdl=True),
        ),
    ),
    baseline="torch.compile",
    oracle=problem.loss_oracle,
    # Products in half precision change the loss by some 1e-3 where slices are few; those of 1024
    # slices average out.
    tolerance=problem.bounds((1e-6, 2e-5, 2e-5), (1e-6, 1e-2, 1e-2)),
    gradient=Gradient(
        make_inputs=make_gradient,
        oracle=of_oracle(problem.loss_oracle, ["x"]),
        # Directions and products rounded to 8 bits, 1.1e-3 each, are an error of 1.6e-3 in an
        # angle of up to three times that, which the weights let through nearly whole. Of 1e8
        # gradients of up to 4 the worst lies six such deviations away.
        tolerance=problem.bounds((1e-4, 1e-4, 2e-5), (2e-1, 2e-2, 2e-2)),
    ),
    regions=("sigreg_projection", "sigreg_gemm", "sigreg_trig", "sigreg_epilogue"),
    cost=problem.loss_cost,
    params={"t_max": problem.T_MAX},
)
