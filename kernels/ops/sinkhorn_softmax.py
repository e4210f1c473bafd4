"""Sinkhorn as mHC models deploy it: a softmax first, then columns and rows in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.sinkhorn import forward, problem
from kernels.spec import Implementation, Mark, Op

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk


def _liger(inputs: Inputs) -> Thunk:
    from liger_kernel.ops.mhc import mhc_split_sinkhorn_fwd

    coefficients, rest, n_iter = _liger_inputs(inputs)
    return lambda: mhc_split_sinkhorn_fwd(
        coefficients, *rest, tmax=n_iter, pre_eps=0.0, sinkhorn_eps=forward.EPS, post_mult=2.0
    )[2]


def _liger_backward(inputs: Inputs) -> Thunk:
    from liger_kernel.ops.mhc import mhc_sinkhorn_bwd

    coefficients, (bias, one, _, _), n_iter = _liger_inputs(inputs)
    return lambda: mhc_sinkhorn_bwd(
        coefficients, bias, one, inputs["grad"], tmax=n_iter, sinkhorn_eps=forward.EPS
    )


def _liger_full(inputs: Inputs) -> Thunk:
    first, second = _liger(inputs), _liger_backward(inputs)

    def thunk() -> torch.Tensor:
        first()
        return second()

    return thunk


def _liger_inputs(inputs: Inputs) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], int]:
    """Return coefficients whose last n * n columns are the logits, as Liger takes them."""
    logits = inputs["logits"]
    batch, n, _ = logits.shape
    coefficients = torch.cat([logits.new_zeros(batch, 2 * n), logits.reshape(batch, n * n)], dim=1)
    one = logits.new_ones(1)
    return coefficients, (logits.new_zeros(n * n + 2 * n), one, one, one), int(inputs["n_iter"])


def _liger_unsupported(workload) -> str | None:
    if workload.dtype != "float32" or workload["n_iter"] < 1 or workload["n"] & (workload["n"] - 1):
        return "Liger takes float32, one iteration or more, and n a power of two"
    return None


def _workloads():
    rows = problem.rows
    return problem.tagged(
        *(rows(batch, 4, 20, "default") for batch in (1, 4**5, 4**7, 32768, 4**11)),
        rows(4**9, 4, 20, "full"),
        *(rows(batch, 4, 20, "full", "gradient") for batch in problem.GRADIENT_BATCHES),
        rows(64, 4, 20, "cpu"),
        rows(5, 4, 5, "smoke"),
        rows(5, 4, 3, "smoke", "gradient"),
        *(rows(5, 4, 3, "edge", "gradient", dtype=d) for d in ("float16", "bfloat16")),
        *(rows(3, 4, n_iter, "edge", "gradient") for n_iter in (0, 1)),
        *(rows(3, n, 5, "edge", "gradient") for n in (3, 8)),
        *(rows(3, n, 5, "edge") for n in (1, 5)),
        *(rows(batch, 4, 1, "edge") for batch in (0, 255)),
    )


OP = Op(
    name="sinkhorn_softmax",
    title="Sinkhorn after a softmax",
    summary="The projection of manifold-constrained hyper-connections as models deploy it: a "
    "softmax of each row, then columns and rows divided by their sums in turn.",
    formula="x = softmax(L) + eps; x / (column sums + eps); n_iter - 1 times "
    "x / (row sums + eps), x / (column sums + eps)",
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
            summary="Sums and divisions in PyTorch, operator by operator.",
            **problem.eager(problem.softmax),
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            summary="The same through torch.compile, in inference mode, compiled for each shape.",
            **problem.through_compile(problem.softmax),
        ),
        *problem.fused("softmax"),
        Implementation(
            name="liger",
            kind="library",
            build=_liger,
            backward=_liger_backward,
            full=_liger_full,
            summary="Liger Kernel's Triton kernel, one program a matrix; it also computes the "
            "eight sigmoids of the hyper-connection, whose inputs lie beside the logits.",
            packages=("liger_kernel",),
            unsupported=_liger_unsupported,
        ),
    ),
    baseline="torch.compile",
    oracle=problem.softmax_oracle,
    tolerance=problem.bounds(1e-6, 2e-6),
    gradient=problem.gradient(problem.softmax_oracle, 2e-6),
    cost=problem.cost,
    quality=problem.residuals,
    params={"eps": forward.EPS},
)
