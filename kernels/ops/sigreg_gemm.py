"""SIGReg, projection: embeddings times directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.compiled import compiled
from kernels.sigreg import problem
from kernels.sigreg.gemm import _add_splits, _gemm, gemm, gemm_launch
from kernels.spec import Implementation, Op, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk


def reference(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Multiply as torch does, in float32 as torch is set."""
    return x @ a


def _torch(inputs: Inputs) -> Thunk:
    x, a = inputs["x"], inputs["a"]
    return lambda: reference(x, a)


def _torch_compile(inputs: Inputs) -> Thunk:
    x, a = inputs["x"], inputs["a"]
    function = compiled(reference, inputs)
    return lambda: function(x, a)


def _triton(inputs: Inputs) -> Thunk:
    x, a = inputs["x"], inputs["a"]
    return lambda: gemm(x, a)


def _triton_pdl(inputs: Inputs) -> Thunk:
    x, a = inputs["x"], inputs["a"]
    return lambda: gemm(x, a, pdl=True)


def _launches(workload: Workload) -> int:
    launch = gemm_launch(workload["batch"], workload["dim"], problem.dtype_of(workload))
    return 2 if launch.splits > 1 else 1


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw embeddings and directions, whose columns lie together in memory."""
    a = torch.randn(
        (workload["slices"], workload["dim"]), generator=generator, device=device
    )  # fmt: skip
    a = torch.nn.functional.normalize(a, dim=1).to(problem.dtype_of(workload)).T
    return {"x": problem.normal(workload, generator, device, "batch", "dim"), "a": a}


def oracle(inputs: Inputs) -> torch.Tensor:
    """Multiply in float64."""
    return torch.einsum("bd,ds->bs", inputs["x"].double(), inputs["a"].double())


def _workloads() -> tuple[Workload, ...]:
    def row(batch: int, dim: int, slices: int, dtype: str, *tags: str):
        return {"batch": batch, "dim": dim, "slices": slices}, dtype, tags

    return problem.tagged(
        *(row(b, 2048, 1024, "bfloat16", "default") for b in (32, 256, 2048, 8192, 16384)),
        *(row(8192, dim, 1024, "bfloat16", "full") for dim in (512, 1024, 4096)),
        row(2048, 2048, 1024, "float32", "full"),
        row(128, 256, 256, "float32", "cpu"),
        *(row(17, 80, 24, dtype, "smoke") for dtype in ("bfloat16", "float16", "float32")),
        row(140, 40, 70, "bfloat16", "edge"),
        *(row(5, dim, 20, "bfloat16", "edge") for dim in (1, 17, 1030)),
        row(0, 64, 8, "bfloat16", "edge"),
        row(1, 64, 1, "float32", "edge"),
    )


OP = Op(
    name="sigreg_gemm",
    title="SIGReg: projection",
    summary="Multiplies embeddings by random directions.",
    formula="z = x A",
    axis="batch",
    inputs="x ~ N(0, 1), columns of A of length one, rounded to the dtype",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="torch.matmul.",
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            summary="The same through torch.compile, compiled for each shape.",
        ),
        Implementation(
            name="triton",
            kind="triton",
            build=_triton,
            summary="Tiles on tensor cores; small batches share out the rows of A and add the "
            "parts in a second kernel.",
            kernels=lambda: (_gemm, _add_splits),
            launches=_launches,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            summary="The same kernels with programmatic dependent launch.",
            least_sm=90,
            kernels=lambda: (_gemm, _add_splits),
            launches=_launches,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    # Half a unit in the last place, twice that where the interpreter cuts bfloat16 off; sums of
    # float32 products of length one.
    tolerance={
        "float16": Tolerance(absolute=1e-3, relative=1e-3, norm=1e-3),
        "bfloat16": Tolerance(absolute=1e-3, relative=8e-3, norm=5e-3),
        "float32": Tolerance(absolute=1e-5, relative=1e-5, norm=2e-6),
    },
    cost=problem.gemm_cost,
)
