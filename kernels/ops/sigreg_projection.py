"""SIGReg, random directions: normal numbers from a counter, divided by the norm of their column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.compiled import compiled
from kernels.sigreg import problem, reference
from kernels.sigreg.projection import _project, projection
from kernels.spec import Implementation, Op, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk


def _arguments(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.dtype]:
    key, dim, slices = inputs["key"], int(inputs["dim"]), int(inputs["slices"])
    return key, *reference.counters(dim, slices, key.device), dim, inputs["one"].dtype


def _torch(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    return lambda: reference.projection(*arguments)


def _torch_compile(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    sizes = int(inputs["dim"]), int(inputs["slices"])
    function = compiled(reference.projection, inputs, *sizes)
    return lambda: function(*arguments)


def _triton(inputs: Inputs, pdl: bool = False) -> Thunk:
    key, dtype = inputs["key"], inputs["one"].dtype
    dim, slices = int(inputs["dim"]), int(inputs["slices"])
    return lambda: projection(key, dim, slices, dtype, pdl)


def _triton_pdl(inputs: Inputs) -> Thunk:
    return _triton(inputs, pdl=True)


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw a seed and a step; sizes and the dtype are tensors on the host."""
    return {
        "key": problem.drawn_key(generator, device),
        "dim": torch.tensor(workload["dim"]),
        "slices": torch.tensor(workload["slices"]),
        "one": torch.ones((), dtype=problem.dtype_of(workload)),
    }


def oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the directions in float64."""
    return reference.true_projection(inputs["key"], int(inputs["dim"]), int(inputs["slices"]))


def _workloads() -> tuple[Workload, ...]:
    def row(dim: int, slices: int, dtype: str, *tags: str):
        return {"dim": dim, "slices": slices}, dtype, tags

    return problem.tagged(
        *(row(dim, 1024, "bfloat16", "default") for dim in (512, 1024, 2048, 4096, 8192)),
        row(2048, 1024, "float32", "full"),
        *(row(2048, slices, "bfloat16", "full") for slices in (256, 4096)),
        row(65536, 256, "bfloat16", "full"),
        row(256, 256, "float32", "cpu"),
        *(row(48, 12, dtype, "smoke") for dtype in ("bfloat16", "float16", "float32")),
        *(row(dim, 5, "float32", "edge") for dim in (1, 3, 17, 4097)),
        row(20000, 2, "float32", "edge"),
        row(64, 1, "float32", "edge"),
        row(64, 0, "float32", "edge"),
    )


OP = Op(
    name="sigreg_projection",
    title="SIGReg: random directions",
    summary="Draws normal numbers and divides each column by its norm: the directions that "
    "embeddings are projected on, anew at every step.",
    formula="A[d, s] = n[d, s] / ||n[:, s]||, n from Philox 4x32-10 of seed, step, row and column",
    axis="dim",
    inputs="a random seed and step",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="The counter-based generator in PyTorch, operator by operator: torch.randn "
            "gives other numbers on another model of GPU.",
            traffic_bytes=problem.projection_traffic,
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
            summary="One kernel: four numbers a counter, whole columns in registers, one write.",
            kernels=lambda: (_project,),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            summary="The same kernel with programmatic dependent launch.",
            least_sm=90,
            kernels=lambda: (_project,),
            launches=lambda workload: 1,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    # Half a unit in the last place, 2^-11 and 2^-8; interpreted, bfloat16 is cut off: twice that. A
    # logarithm just below one is off by 2e-7, the root of it by up to 5e-4 of a normal number.
    tolerance={
        "float16": Tolerance(absolute=2e-5, relative=1e-3, norm=1e-3),
        "bfloat16": Tolerance(absolute=2e-5, relative=8e-3, norm=5e-3),
        "float32": Tolerance(absolute=2e-5, relative=1e-5, norm=1e-5),
    },
    cost=problem.projection_cost,
)
