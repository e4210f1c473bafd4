"""Sinkhorn: exp of small matrices, scaled until rows and columns sum to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.compiled import compiled
from kernels.sinkhorn import backward, forward, problem
from kernels.spec import Implementation, Mark, Op, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk

COMPILED_BATCHES = (32768, 2**21)


def _compiled_scalars(inputs: Inputs) -> Thunk:
    options = (("max_fusion_size", 1024),)
    fast = compiled(problem.by_scalars, inputs, int(inputs["n_iter"]), options=options)
    return problem.with_logits(torch.inference_mode()(fast))(inputs)


def _slow_to_compile(workload: Workload) -> str | None:
    if problem.not_four(workload) or workload["batch"] not in COMPILED_BATCHES:
        return (
            "measured at two batch sizes of n = 4 beyond the usual ones: each takes long to compile"
        )
    return None


def _too_wide(workload: Workload) -> str | None:
    if workload["n"] > forward.WIDEST_IN_REGISTERS:
        return f"a matrix wider than {forward.WIDEST_IN_REGISTERS} does not fit in registers"
    return None


def _workloads() -> tuple[Workload, ...]:
    rows = problem.rows
    return problem.tagged(
        *(rows(4**k, 4, 20, "default") for k in range(13)),
        *(rows(batch, 4, 20, "gradient") for batch in problem.GRADIENT_BATCHES),
        *(rows(4**k, 4, 20, "cpu") for k in (0, 3, 6)),
        *(rows(batch, 4, 20, "smoke") for batch in (1, 4)),
        rows(5, 4, 1, "smoke", "gradient"),
        *(rows(5, 4, 3, "smoke", "gradient", dtype=d) for d in ("float16", "bfloat16")),
        *(rows(3, n, 5, "edge") for n in (1, 2, 5, 16)),
        *(rows(3, 4, n_iter, "edge", "gradient") for n_iter in (0, 1)),
        *(rows(3, n, 3, "edge", "gradient") for n in (3, 8)),
        *(rows(batch, 4, 20, "edge") for batch in (0, 67)),
        *(rows(batch, 4, 1, "edge") for batch in (255, 1025)),
        *(rows(4**10, 4, n_iter, "full") for n_iter in (1, 5, 10, 50)),
        *(rows(batch, 4, 20, "full") for batch in COMPILED_BATCHES),
        rows(4**12, 4, 1, "full"),
        *(rows(4**8, n, n_iter, "full") for n in (2, 8, 16, 32) for n_iter in (1, 5, 10, 20, 50)),
        *(rows(4**10, 4, 20, "full", dtype=d) for d in ("float16", "bfloat16")),
    )  # fmt: skip


OP = Op(
    name="sinkhorn",
    title="Sinkhorn",
    summary="Scales the rows and columns of many small positive matrices until both sum to one: "
    "the projection of manifold-constrained hyper-connections.",
    formula="M = exp(L); n_iter times u = 1 / (M v + eps), v = 1 / (M^T u + eps); y = u M v^T",
    axis="batch",
    unit="matrices",
    marks=(Mark("training, 4Ki to 16Ki tokens", 4096, 16384),),
    inputs="logits ~ N(0, 1)",
    workloads=_workloads(),
    make_inputs=problem.make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            summary="Batched products in PyTorch, operator by operator.",
            traffic_bytes=problem.from_memory,
            **problem.eager(problem.plain),
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            summary="The same through torch.compile, in inference mode, compiled for each shape.",
            traffic_bytes=problem.from_memory,
            **problem.through_compile(problem.plain),
        ),
        Implementation(
            name="torch.compile-scalars",
            kind="compiled",
            build=_compiled_scalars,
            summary="The 4 x 4 matrix as sixteen one-dimensional tensors through torch.compile.",
            unsupported=_slow_to_compile,
        ),
        Implementation(
            name="triton-global",
            kind="triton",
            build=problem.with_logits(forward.scale_global),
            summary="One program a matrix, which is read by rows twice an iteration.",
            kernels=lambda: (forward._global,),
            traffic_bytes=problem.from_memory,
            launches=lambda workload: 2,
        ),
        Implementation(
            name="triton-registers",
            kind="triton",
            build=problem.with_logits(forward.scale_registers),
            summary="One program a matrix, held in registers.",
            kernels=lambda: (forward._tile,),
            unsupported=_too_wide,
            traffic_bytes=problem.from_registers,
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-packed",
            kind="triton",
            summary="Many matrices a program, as one tile in registers; the factors of all "
            "iterations are written for the backward pass.",
            kernels=lambda: (forward._tile, backward._scalars_backward, backward._tile_backward),
            unsupported=_too_wide,
            traffic_bytes=problem.from_registers,
            launches=lambda workload: 1,
            **problem.storing("plain"),
        ),
        Implementation(
            name="triton-scalars",
            kind="triton",
            summary="One 4 x 4 matrix a thread, two reciprocals for the price of one; backward "
            "computes the factors again.",
            kernels=lambda: (forward._scalars, backward._scalars_backward),
            unsupported=problem.not_four,
            traffic_bytes=problem.from_registers,
            launches=lambda workload: 1,
            **problem.recomputing("plain"),
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            summary="The same kernel with programmatic dependent launch: it is brought onto the "
            "card while the one before it ends, and waits for it before it reads.",
            kernels=lambda: (forward._scalars, backward._scalars_backward),
            unsupported=problem.not_four,
            least_sm=90,
            traffic_bytes=problem.from_registers,
            launches=lambda workload: 1,
            **problem.recomputing("plain", pdl=True),
        ),
    ),
    baseline="torch.compile",
    oracle=problem.plain_oracle,
    # Values are at most 1 and each half step forgets the error of the one before: some sixteen
    # roundings of 2^-24 are left, 1e-6. The relative part is for n_iter = 0: exp itself.
    tolerance=problem.bounds(1e-6),
    gradient=problem.gradient(problem.plain_oracle, 2e-6),
    cost=problem.cost,
    quality=problem.residuals,
    params={"eps": forward.EPS},
)
