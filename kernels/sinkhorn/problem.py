"""Sinkhorn as a problem: references, oracles, inputs, costs, and bounds, for its three forms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch

from kernels.compiled import compiled
from kernels.gradients import by_autograd, by_passes, of_oracle
from kernels.sinkhorn.backward import (
    _scalars_backward,
    _tile_backward,
    gradient_recomputed,
    gradient_stored,
    kept_factors,
)
from kernels.sinkhorn.forward import (
    EPS,
    _scalars,
    _tile,
    launch_tile,
    packed_block,
    scale_packed,
    scale_scalars,
)
from kernels.spec import Cost, Gradient, Implementation, Mode, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs, Thunk

Scale = Callable[[torch.Tensor, int], torch.Tensor]
GRADIENT_BATCHES = (4**6, 4**8, 4**10)


def plain(logits: torch.Tensor, n_iter: int) -> torch.Tensor:
    """Iterate by batched products, in float32 as torch is set: TF32 would miss the tolerance."""
    m = torch.exp(logits.float())
    u, v = _by_products(m, torch.ones_like(m[:, :, :1]), EPS, n_iter)
    return (u * m * v.transpose(-1, -2)).to(logits.dtype)


def stable(logits: torch.Tensor, n_iter: int) -> torch.Tensor:
    """Iterate the same with rows shifted by their maximum, and eps with them."""
    x = logits.float()
    largest = x.amax(dim=-1, keepdim=True)
    m = torch.exp(x - largest)
    row_eps = (EPS * torch.exp(-largest)).clamp(max=1e18)
    u, v = _by_products(m, torch.exp(largest), row_eps, n_iter)
    return (u * m * v.transpose(-1, -2)).to(logits.dtype)


def _by_products(
    m: torch.Tensor, u: torch.Tensor, row_eps: float | torch.Tensor, n_iter: int
) -> tuple[torch.Tensor, torch.Tensor]:
    transposed = m.transpose(-1, -2)
    v = torch.ones_like(m[:, :, :1])
    for _ in range(n_iter):
        u = 1.0 / (m @ v + row_eps)
        v = 1.0 / (transposed @ u + EPS)
    return u, v


def softmax(logits: torch.Tensor, n_iter: int) -> torch.Tensor:
    """Divide columns and rows in turn by their sums, after a softmax of the rows."""
    x = torch.softmax(logits.float(), dim=-1) + EPS
    for step in range(n_iter):
        if step:
            x = x / (x.sum(dim=-1, keepdim=True) + EPS)
        x = x / (x.sum(dim=-2, keepdim=True) + EPS)
    return x.to(logits.dtype)


def by_scalars(logits: torch.Tensor, n_iter: int) -> torch.Tensor:
    """Iterate the plain formula on n * n one-dimensional tensors, for one compiled kernel."""
    n = logits.shape[1]
    rows = [[torch.exp(logits[:, i, j].float()) for j in range(n)] for i in range(n)]
    columns = list(zip(*rows, strict=True))
    ones = [torch.ones_like(rows[0][0])] * n
    u, v = ones, ones
    for _ in range(n_iter):
        u = [1.0 / (_dot(row, v) + EPS) for row in rows]
        v = [1.0 / (_dot(column, u) + EPS) for column in columns]
    scaled = [u[i] * rows[i][j] * v[j] for i in range(n) for j in range(n)]
    return torch.stack(scaled).view(n, n, -1).permute(2, 0, 1).to(logits.dtype)


def _dot(x: list[torch.Tensor], y: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([a * b for a, b in zip(x, y, strict=True)]).sum(dim=0)


def plain_oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the plain formula in float64, as sums over indices."""
    m = inputs["logits"].double().exp()
    u = torch.ones_like(m[:, :, 0])
    v = torch.ones_like(u)
    for _ in range(int(inputs["n_iter"])):
        u = (torch.einsum("bij,bj->bi", m, v) + EPS).reciprocal()
        v = (torch.einsum("bij,bi->bj", m, u) + EPS).reciprocal()
    return torch.einsum("bi,bij,bj->bij", u, m, v)


def stable_oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the same function in float64 by logarithms: no logit is too large or too small."""
    x = inputs["logits"].double()
    log_eps = torch.full_like(x[:, :, :1], EPS).log()
    f = torch.zeros_like(x[:, :, :1])
    g = torch.zeros_like(f)
    for _ in range(int(inputs["n_iter"])):
        f = -_log_sum(x + g.transpose(1, 2), log_eps)
        g = -_log_sum(x.transpose(1, 2) + f.transpose(1, 2), log_eps)
    return torch.exp(x + f + g.transpose(1, 2))


def _log_sum(x: torch.Tensor, log_eps: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(torch.cat([x, log_eps], dim=-1), dim=-1, keepdim=True)


def softmax_oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the softmax form in float64, as divisions by sums over indices."""
    x = inputs["logits"].double()
    m = torch.exp(x - torch.logsumexp(x, dim=-1, keepdim=True)) + EPS
    for step in range(int(inputs["n_iter"])):
        if step:
            m = torch.einsum("bij,bi->bij", m, (torch.einsum("bij->bi", m) + EPS).reciprocal())
        m = torch.einsum("bij,bj->bij", m, (torch.einsum("bij->bj", m) + EPS).reciprocal())
    return m


def gradient(oracle: Callable[[Inputs], torch.Tensor], absolute: float) -> Gradient:
    """Return how a form is differentiated: its oracle's own derivative, in float64."""
    truth = of_oracle(oracle, ["logits"])
    return Gradient(make_inputs=make_gradient, oracle=truth, tolerance=bounds(absolute, 5e-6))


def make_inputs(
    workload: Workload, generator: torch.Generator, device: str, spread: float = 1.0
) -> Inputs:
    """Draw one set of inputs; the number of iterations is a tensor on the host."""
    shape = (workload["batch"], workload["n"], workload["n"])
    logits = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    dtype = getattr(torch, workload.dtype)
    return {"logits": (spread * logits).to(dtype), "n_iter": torch.tensor(workload["n_iter"])}


def make_gradient(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw the gradient of the output."""
    shape = (workload["batch"], workload["n"], workload["n"])
    dtype = getattr(torch, workload.dtype)
    return {"grad": torch.randn(shape, generator=generator, device=device).to(dtype)}


def bounds(absolute: float, norm: float = 1e-6) -> dict[str, Tolerance]:
    """Return the bounds of each dtype: an absolute error in float32, and half an ulp of the dtype.

    Triton's interpreter cuts bfloat16 off where hardware rounds, hence a whole ulp.
    """
    return {
        "float32": Tolerance(absolute=absolute, relative=1e-6, norm=norm),
        "float16": Tolerance(absolute=absolute, relative=1e-3, norm=5e-4),
        "bfloat16": Tolerance(absolute=absolute, relative=8e-3, norm=5e-3),
    }


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count two products of a matrix and a vector with eps and 2 n divisions an iteration.

    Each half needs n^2 products, n (n - 1) sums, n additions of eps, n divisions; the end 2 n^2.
    Backward, the iterations come first; then n (4 n + 3) products and sums undo each half, 5 n^2
    - n begin and n^2 end. Full, both passes.
    """
    batch, n, n_iter = workload["batch"], workload["n"], workload["n_iter"]
    forward = (4 * n * n + 2 * n) * n_iter
    reverse = forward + 2 * n * (4 * n + 3) * n_iter + 8 * n * n
    flops = {"forward": forward + 2 * n * n, "backward": reverse}
    flops["full"] = forward + 2 * n * n + reverse
    tensors = {"forward": 2, "backward": 3, "full": 5}[mode]
    passes = 2 if mode == "full" else 1
    return Cost(
        flops=batch * flops[mode],
        minimal_bytes=getattr(torch, workload.dtype).itemsize * batch * tensors * n * n,
        special_ops=passes * batch * (n * n + 2 * n * n_iter),
    )


def residuals(out: torch.Tensor) -> dict[str, float]:
    """Return how far the sums of rows and columns are from one; empty where there are none."""
    if out.numel() == 0 or not out.isfinite().all():
        return {}
    figures: dict[str, float] = {}
    for name, dim in (("row", 2), ("column", 1)):
        error = (out.double().sum(dim=dim) - 1).abs()
        figures[f"{name}_residual_max"] = float(f"{error.max().item():.4g}")
        figures[f"{name}_residual_mean"] = float(f"{error.mean().item():.4g}")
    return figures


def from_memory(workload: Workload) -> int:
    """Count exp once, two reads an iteration, and the end; vectors are left out."""
    batch, n, n_iter = workload["batch"], workload["n"], workload["n_iter"]
    return getattr(torch, workload.dtype).itemsize * batch * (4 * n * n + 2 * n * n * n_iter)


def from_registers(workload: Workload) -> int:
    """Count the logits once and the result once."""
    return cost(workload, "forward").minimal_bytes


def with_logits(function: Scale) -> Builder:
    """Return a builder of a function of logits and a number of iterations."""

    def build(inputs: Inputs) -> Thunk:
        logits, n_iter = inputs["logits"], int(inputs["n_iter"])
        return lambda: function(logits, n_iter)

    return build


def eager(function: Scale) -> dict[str, Builder]:
    """Return the builders of a PyTorch function, differentiated by autograd."""
    backward, full = by_autograd(lambda i: function(i["logits"], int(i["n_iter"])), ["logits"])
    return {"build": with_logits(function), "backward": backward, "full": full}


def through_compile(function: Scale) -> dict[str, Builder]:
    """Return the builders of the same through torch.compile; forward in inference mode."""

    def build(inputs: Inputs) -> Thunk:
        fast = compiled(function, inputs, int(inputs["n_iter"]))
        return with_logits(torch.inference_mode()(fast))(inputs)

    def differentiable(inputs: Inputs) -> torch.Tensor:
        n_iter = int(inputs["n_iter"])
        return compiled(function, inputs, n_iter)(inputs["logits"], n_iter)

    backward, full = by_autograd(differentiable, ["logits"])
    return {"build": build, "backward": backward, "full": full}


def recomputing(form: str, pdl: bool = False) -> dict[str, Builder]:
    """Return the builders of one thread a matrix, with nothing kept for the backward pass."""
    scale = partial(scale_scalars, form=form, pdl=pdl)

    def backward(inputs: Inputs) -> Thunk:
        logits, grad, n_iter = inputs["logits"], inputs["grad"], int(inputs["n_iter"])
        return lambda: gradient_recomputed(logits, grad, n_iter, EPS, form, pdl)

    def full(inputs: Inputs) -> Thunk:
        logits, n_iter, pull = inputs["logits"], int(inputs["n_iter"]), backward(inputs)

        def thunk() -> torch.Tensor:
            scale(logits, n_iter)
            return pull()

        return thunk

    return {"build": with_logits(scale), "backward": backward, "full": full}


def storing(form: str) -> dict[str, Builder]:
    """Return the builders of packed tiles whose factors are all kept for the backward pass."""

    def kept_by(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        logits, n_iter = inputs["logits"], int(inputs["n_iter"])
        kept = kept_factors(logits, n_iter, form)
        launch_tile(logits, n_iter, EPS, form, packed_block(*logits.shape[:2]), kept)
        return kept

    def pull(inputs: Inputs, kept: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return gradient_stored(inputs["logits"], inputs["grad"], kept, EPS, form)

    backward, full = by_passes(kept_by, pull)
    build = with_logits(partial(scale_packed, form=form))
    return {"build": build, "backward": backward, "full": full}


def not_four(workload: Workload) -> str | None:
    """Say that a kernel has 4 x 4 matrices only."""
    return None if workload["n"] == 4 else "written for n = 4 alone"


def rows(
    batch: int, n: int, n_iter: int, *tags: str, dtype: str = "float32"
) -> tuple[tuple[int, int, int, str], tuple[str, ...]]:
    """Return one workload and its tags, as `tagged` takes them."""
    return (batch, n, n_iter, dtype), tags


def tagged(*chosen: tuple[tuple[int, int, int, str], tuple[str, ...]]) -> tuple[Workload, ...]:
    """Return workloads of (batch, n, n_iter, dtype), whose tags add up where they repeat."""
    tags: dict[tuple[int, int, int, str], set[str]] = {}
    for key, names in chosen:
        tags.setdefault(key, set()).update(names)
    return tuple(
        Workload({"batch": batch, "n": n, "n_iter": n_iter}, dtype, frozenset(names))
        for (batch, n, n_iter, dtype), names in tags.items()
    )


def fused(form: str) -> tuple[Implementation, ...]:
    """Return the implementations of a form that are one kernel a pass."""
    scalars = (_scalars, _scalars_backward)
    return (
        Implementation(
            name="triton-packed",
            kind="triton",
            summary="Many matrices a program, as one tile in registers; the factors of all "
            "iterations are written for the backward pass.",
            kernels=lambda: (_tile, _scalars_backward, _tile_backward),
            **storing(form),
        ),
        Implementation(
            name="triton-scalars",
            kind="triton",
            summary="One 4 x 4 matrix a thread; backward computes the factors again.",
            kernels=lambda: scalars,
            unsupported=not_four,
            launches=lambda workload: 1,
            **recomputing(form),
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            summary="The same kernel with programmatic dependent launch.",
            kernels=lambda: scalars,
            unsupported=not_four,
            least_sm=90,
            launches=lambda workload: 1,
            **recomputing(form, pdl=True),
        ),
    )
