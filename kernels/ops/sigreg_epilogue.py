"""SIGReg, epilogue: the statistic of each slice from its means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.compiled import compiled
from kernels.sigreg import problem, reference
from kernels.sigreg.epilogue import _stats, epilogue_stats
from kernels.spec import Implementation, Op, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk

MEANS = ("cos_mean", "sin_mean", "phi", "weights")


def _torch(inputs: Inputs) -> Thunk:
    tensors, numbers = [inputs[name] for name in MEANS], _numbers(inputs)
    return lambda: reference.epilogue_stats(*tensors, *numbers)


def _torch_compile(inputs: Inputs) -> Thunk:
    tensors, numbers = [inputs[name] for name in MEANS], _numbers(inputs)
    function = compiled(reference.epilogue_stats, inputs)
    return lambda: function(*tensors, *numbers)


def _triton(inputs: Inputs, pdl: bool = False) -> Thunk:
    tensors, numbers = [inputs[name] for name in MEANS], _numbers(inputs)
    return lambda: epilogue_stats(*tensors, *numbers, pdl=pdl)


def _triton_pdl(inputs: Inputs) -> Thunk:
    return _triton(inputs, pdl=True)


def _numbers(inputs: Inputs) -> tuple[float, bool, float]:
    return float(inputs["global_batch_size"]), True, float(inputs["clip_value"])


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw means as of a normal sample; sizes and the clip are tensors on the host."""
    _, phi, weights = reference.integration(workload["points"], device=device)
    noise = [
        torch.randn((workload["slices"], workload["points"]), generator=generator, device=device)
        * (2 * workload["batch"]) ** -0.5
        for _ in range(2)
    ]
    dtype = problem.dtype_of(workload)
    return {
        "cos_mean": (phi + noise[0]).to(dtype),
        "sin_mean": noise[1].to(dtype),
        "phi": phi,
        "weights": weights,
        "global_batch_size": torch.tensor(float(workload["batch"])),
        "clip_value": torch.tensor(problem.CLIP_VALUE),
    }


def oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the statistics in float64, as squared distances in the complex plane."""
    size, _, clip_value = _numbers(inputs)
    stats = reference.true_stats(*(inputs[name] for name in MEANS), size)
    return torch.where(stats < clip_value, clip_value, stats)


def _workloads() -> tuple[Workload, ...]:
    def row(slices: int, points: int, dtype: str, *tags: str, batch: int = 32):
        return {"batch": batch, "slices": slices, "points": points}, dtype, tags

    return problem.tagged(
        *(row(4**k, 17, "bfloat16", "default") for k in (4, 5, 6, 7, 8)),
        *(row(1024, points, "bfloat16", "full") for points in (5, 33, 65)),
        *(row(4**k, 17, "float32", "full") for k in (5, 8)),
        row(256, 17, "float32", "cpu", batch=128),
        *(row(12, 17, dtype, "smoke") for dtype in ("bfloat16", "float16", "float32")),
        *(row(5, points, "float32", "edge") for points in (2, 3, 33, 100)),
        row(1, 17, "bfloat16", "edge", batch=1),
        row(0, 17, "bfloat16", "edge"),
        row(1001, 17, "bfloat16", "edge", batch=100_000),
    )


OP = Op(
    name="sigreg_epilogue",
    title="SIGReg: epilogue",
    summary="How far the means of each slice are from those of a normal distribution.",
    formula="stats[s] = max(clip, n * sum over p of w_p ((c[s, p] - phi_p)^2 + s[s, p]^2))",
    axis="slices",
    inputs="cos_mean ~ N(phi, 1 / (2 batch)), sin_mean ~ N(0, 1 / (2 batch)), rounded to the dtype",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="The formula in PyTorch, operator by operator, in float32.",
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            summary="The formula through torch.compile, compiled for each shape.",
        ),
        Implementation(
            name="triton",
            kind="triton",
            build=_triton,
            summary="One kernel, a point a lane.",
            kernels=lambda: (_stats,),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            summary="The same kernel with programmatic dependent launch.",
            least_sm=90,
            kernels=lambda: (_stats,),
            launches=lambda workload: 1,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    # Some ten roundings of 2^-24 of a sum of positive terms; results are float32 for all dtypes.
    tolerance=problem.bounds((1e-6, 3e-6, 1e-6), (1e-6, 3e-6, 1e-6)),
    cost=problem.epilogue_cost,
    params={"t_max": problem.T_MAX, "clip_value": problem.CLIP_VALUE},
)
