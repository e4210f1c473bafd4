"""SIGReg over ranks as a problem: each rank holds its rows, sums are added in one all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from kernels import ranks
from kernels.gradients import by_autograd, of_oracle
from kernels.sigreg import problem, reference
from kernels.sigreg.function import SIGReg, added_over_ranks
from kernels.spec import Cost, Gradient, Implementation, Mode, Op, Workload

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs, Thunk

COUNTS = (1, 2, 4, 8)
SUM_BYTES = 4


def payload_bytes(workload: Workload) -> int:
    """Return the size of the sums of cosines and of sines, which are float32."""
    return 2 * workload["slices"] * workload["points"] * SUM_BYTES


def eager_loss(inputs: Inputs) -> torch.Tensor:
    """Compute the loss of the rows of all ranks from those of this one, operator by operator."""
    x = inputs["x"]
    key, groups, columns, t, phi, weights = problem.loss_arguments(inputs)
    a = reference.projection(key, groups, columns, x.shape[1], x.dtype)
    angles = (x @ a).float().unsqueeze(-1) * t
    sums = torch.stack([torch.cos(angles).sum(dim=0), torch.sin(angles).sum(dim=0)])
    if ranks.is_shared():
        sums, _ = added_over_ranks(sums, x.shape[0])
    size = x.shape[0] * ranks.count()
    return reference.epilogue_stats(*(sums / size), phi, weights, size).mean()


def module_of(inputs: Inputs) -> SIGReg:
    """Return the module as models use it, with the directions of these inputs."""
    module = SIGReg(int(inputs["slices"]), int(inputs["points"]), (0.0, problem.T_MAX))
    module = module.to(inputs["x"].device).eval()
    module.key.copy_(inputs["key"])
    return module


def builders(function: Callable[[Inputs], torch.Tensor]) -> dict[str, Builder]:
    """Return the builders of all modes of a loss, on the rows of this rank."""

    def build(inputs: Inputs) -> Thunk:
        return lambda: function(inputs)

    backward, full = by_autograd(function, ["x"])
    made = {"build": build, "backward": backward, "full": full}
    return {name: ranks.on_own_rows(builder) for name, builder in made.items()}


def through_module() -> dict[str, Builder]:
    """Return the builders of the module, which is made before anything is timed."""

    def prepared(name: str) -> Builder:
        def build(inputs: Inputs) -> Thunk:
            module = module_of(inputs)
            return builders(lambda given: module(given["x"]))[name](inputs)

        return build

    return {name: prepared(name) for name in ("build", "backward", "full")}


def own_gradient(inputs: Inputs) -> torch.Tensor:
    """Compute the gradient of this rank's rows; the mean over ranks is that of the global loss."""
    whole = of_oracle(problem.loss_oracle, ["x"])(inputs)
    return ranks.own_rows(whole) * ranks.count()


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw the rows of all ranks, the same on each, a seed and a step."""
    rows = Workload({**workload.sizes, "batch": all_rows(workload)}, workload.dtype)
    return {
        "x": problem.normal(rows, generator, device, "batch", "dim"),
        "key": problem.drawn_key(generator, device),
        "slices": torch.tensor(workload["slices"]),
        "points": torch.tensor(workload["points"]),
    }


def make_gradient(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw the gradient of the loss, of a size that makes those of a rank's rows about one."""
    size = (all_rows(workload) * workload["dim"] * workload["slices"]) ** 0.5 / workload["ranks"]
    return {"grad": size * (1 + torch.rand((), generator=generator, device=device))}


def all_rows(workload: Workload) -> int:
    """Return the rows of all ranks: in `batch`, or `rows_per_rank` of each."""
    if "batch" in workload.sizes:
        return workload["batch"]
    return workload["rows_per_rank"] * workload["ranks"]


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count the work of one rank, and what it sends in one all-reduce each way."""
    rows = {"batch": all_rows(workload) // workload["ranks"]}
    alone = problem.loss_cost(Workload({**workload.sizes, **rows}, workload.dtype), mode)
    # At t = 0 there is nothing to add up: a cosine is one, a sine zero.
    points = 2 * (workload["points"] - 1) * workload["slices"]
    sent = ranks.ring_bytes(workload["ranks"], points * SUM_BYTES)
    return replace(alone, link_bytes=sent * (2 if mode == "full" else 1))


def workloads(axis: str, rows: Sequence[int]) -> tuple[Workload, ...]:
    """Return the workloads along a number of rows, each on 1, 2, 4 and 8 ranks."""

    def row(ranks_: int, size: int, dim: int, slices: int, points: int, dtype: str, *tags: str):
        sizes = {"ranks": ranks_, axis: size, "dim": dim, "slices": slices, "points": points}
        return sizes, dtype, tags

    usual = 2048, 1024, 17, "bfloat16", "default"
    return problem.tagged(
        *(row(n, size, *usual) for n in COUNTS for size in rows),
        # The truth of a gradient holds every angle of all ranks in float64.
        *(row(n, rows[len(rows) // 2], *usual, "gradient") for n in COUNTS),
        *(row(n, 64, 48, 16, 9, "float32", "cpu", "gradient") for n in COUNTS),
        row(1, 64, 48, 16, 9, "float32", "smoke", "gradient"),
    )


def op(name: str, title: str, summary: str, axis: str, rows: Sequence[int]) -> Op:
    """Describe SIGReg over ranks, with `axis` rows: of all ranks, or of each."""
    gradient = problem.bounds((1e-4, 1e-4, 2e-5), (2e-1, 2e-2, 2e-2))
    return Op(
        name=name,
        title=title,
        summary=summary,
        formula="mean over s of n * sum over p of w_p |mean over ranks and b of "
        "exp(i t_p (x A)[b, s]) - phi_p|^2",
        axis=axis,
        inputs="x ~ N(0, 1), rounded to the dtype, drawn whole and shared out; a random seed and "
        "step; points evenly spaced on [0, 3]",
        workloads=workloads(axis, rows),
        make_inputs=make_inputs,
        implementations=(
            Implementation(
                name="torch",
                kind="eager",
                summary="The formula in PyTorch, operator by operator, and one all-reduce.",
                unsupported=ranks.not_here,
                **builders(eager_loss),
            ),
            Implementation(
                name="triton",
                kind="triton",
                summary="The module for models: sums by the kernels, one all-reduce of them with "
                "the number of rows, the statistic; alone, the kernels of one GPU.",
                kernels=kernels,
                unsupported=ranks.not_here,
                **through_module(),
            ),
        ),
        baseline="torch",
        oracle=problem.loss_oracle,
        tolerance=problem.bounds((1e-6, 2e-5, 2e-5), (1e-6, 1e-2, 1e-2)),
        gradient=Gradient(make_inputs=make_gradient, oracle=own_gradient, tolerance=gradient),
        cost=cost,
        params={"t_max": problem.T_MAX},
    )


def kernels() -> tuple[object, ...]:
    """Return the Triton functions that the module launches."""
    from kernels.sigreg import backward, finish, gemm, projection, small, trig

    forward = projection._project, trig._even, gemm._gemm, gemm._add_splits, finish._finish
    alone = small._draw_multiply, small._finish_small
    return (*forward, *alone, finish._finish_back, backward._pull_even)
