"""Sinkhorn for any finite logits: the plain formula's function, computed with shifted rows."""

from __future__ import annotations

from functools import partial

from kernels.sinkhorn import forward, problem
from kernels.spec import Implementation, Mark, Op

SPREAD = 10.0


def _workloads():
    rows = problem.rows
    return problem.tagged(
        *(rows(batch, 4, 20, "default") for batch in (1, 4**5, 4**7, 4**9, 4**11)),
        *(rows(batch, 4, 20, "full", "gradient") for batch in problem.GRADIENT_BATCHES),
        rows(64, 4, 20, "cpu"),
        rows(5, 4, 5, "smoke"),
        rows(5, 4, 3, "smoke", "gradient"),
        *(rows(5, 4, 3, "edge", "gradient", dtype=d) for d in ("float16", "bfloat16")),
        *(rows(3, n, 5, "edge", "gradient") for n in (3, 8)),
        *(rows(3, n, 5, "edge") for n in (1, 5)),
        *(rows(batch, 4, 1, "edge") for batch in (0, 255)),
    )


OP = Op(
    name="sinkhorn_stable",
    title="Sinkhorn, any logits",
    summary="The function of Sinkhorn for any finite logits: rows are shifted by their maximum, "
    "and eps with them. The plain formula overflows beyond 88 and loses small rows.",
    formula="m = row maximum; M = exp(L - m); n_iter times u = 1 / (M v + eps exp(-m)), "
    "v = 1 / (M^T u + eps); y = u M v^T",
    axis="batch",
    unit="matrices",
    marks=(Mark("training, 4Ki to 16Ki tokens", 4096, 16384),),
    inputs="logits ~ N(0, 10^2)",
    workloads=_workloads(),
    make_inputs=partial(problem.make_inputs, spread=SPREAD),
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            summary="Batched products in PyTorch, operator by operator.",
            **problem.eager(problem.stable),
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            summary="The same through torch.compile, in inference mode, compiled for each shape.",
            **problem.through_compile(problem.stable),
        ),
        *problem.fused("stable"),
    ),
    baseline="torch.compile",
    oracle=problem.stable_oracle,
    # Exponents of some tens carry a relative error of as many roundings, 1e-6 and a few more.
    tolerance=problem.bounds(5e-6, 5e-6),
    gradient=problem.gradient(problem.stable_oracle, 1e-5),
    cost=problem.cost,
    quality=problem.residuals,
    params={"eps": forward.EPS, "spread": SPREAD},
)
