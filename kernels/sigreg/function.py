"""SIGReg for use in models: differentiable, compilable, capturable, and the same on all ranks."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.distributed

from kernels import ranks
from kernels.sigreg import pipeline
from kernels.sigreg.finish import finish, finish_back
from kernels.sigreg.pipeline import Clip, Test

Window = Literal["normal", "uniform"]


def integration_rule(
    points: int, t_range: tuple[float, float] = (0.0, 3.0), window: Window = "normal"
) -> Test:
    """Return points, phi and weights of the trapezoid rule, on the CPU.

    Errors are even in t: on [0, T] weights count twice, for both halves of the line, and [-T, T] is
    folded to that. Any other range is integrated as it is. `window` multiplies the weights by phi,
    the characteristic function of a normal distribution, or by one.
    """
    low, high = t_range
    if points < 2 or not low < high:
        raise ValueError(f"needs two points or more and low < high, not {points} on {t_range}")
    t = torch.linspace(low, high, points, dtype=torch.float64)
    weights = torch.full_like(t, (high - low) / (points - 1))
    weights[0] *= 0.5
    weights[-1] *= 0.5
    if low == -high:
        t, weights = t[points // 2 :], weights[points // 2 :] * 2
        if points % 2:
            t[0] = 0
    elif low == 0:
        weights = weights * 2
    phi = torch.exp(-0.5 * t.square())
    weights = weights * phi if window == "normal" else weights
    even = low == 0 or (low == -high and points % 2 == 1)
    return Test(t.float(), phi.float(), weights.float(), even=even)


class SIGReg(torch.nn.Module):
    """How far random projections of embeddings are from a normal distribution.

    Takes embeddings [..., batch, dim] of float32, bfloat16 or float16 and returns a scalar. Leading
    dimensions are views: with `views="apart"` each is tested on its own and the mean is returned,
    with `"pooled"` all rows are one batch. `slices` random directions are drawn on the device from
    `seed` and a step, which a call in training mode counts, and change every `refresh` steps; they
    are the same on all ranks and GPU models. Statistics below `clip_value` are raised to it
    (`clip="clamp"`) or count for nothing (`"zero"`). Where a process group is initialised, sums and
    numbers of rows are added over `group` in one all-reduce, so that ranks may hold batches of
    different sizes; gradients are those of the global loss once ranks average them, as
    DistributedDataParallel does. Nothing is copied to the host. Gradients are exact; directions and
    products are computed again for them. `fused` keeps products out of memory in the forward pass.
    Needs a CUDA GPU.
    """

    def __init__(
        self,
        slices: int = 1024,
        points: int = 17,
        t_range: tuple[float, float] = (0.0, 3.0),
        window: Window = "normal",
        weights: torch.Tensor | None = None,
        clip: Clip = "none",
        clip_value: float = 0.0,
        views: Literal["apart", "pooled"] = "apart",
        refresh: int = 1,
        seed: int = 0,
        sync: bool = True,
        group: torch.distributed.ProcessGroup | None = None,
        fused: bool = False,
    ) -> None:
        super().__init__()
        if clip not in ("none", "clamp", "zero") or views not in ("apart", "pooled"):
            raise ValueError("clip must be none, clamp or zero, and views apart or pooled")
        if slices < 1 or refresh < 1:
            raise ValueError("slices and refresh must be at least 1")
        rule = integration_rule(points, t_range, window)
        if weights is not None and weights.shape != rule.t.shape:
            raise ValueError(f"weights must be {tuple(rule.t.shape)}, not {tuple(weights.shape)}")
        self.slices, self.even, self.refresh, self.fused = slices, rule.even, refresh, fused
        self.clip, self.clip_value, self.pooled = clip, clip_value, views == "pooled"
        self.sync, self.group = sync, group
        self.register_buffer("t", rule.t, persistent=False)
        self.register_buffer("phi", rule.phi, persistent=False)
        chosen = rule.weights if weights is None else weights.float()
        self.register_buffer("weights", chosen, persistent=False)
        self.register_buffer("key", torch.tensor([seed, 0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss of embeddings [..., batch, dim]."""
        if x.dim() < 2:
            raise ValueError(f"embeddings must be [..., batch, dim], not {tuple(x.shape)}")
        rows = x.shape[:-1].numel() if self.pooled else x.shape[-2]
        x = x.reshape(-1, rows, x.shape[-1])
        key = self.next_key()
        test = self.t, self.phi, self.weights
        rest = self.clip, float(self.clip_value)
        ops = torch.ops.kernel_almanac
        if not self.is_shared():
            keep = torch.is_grad_enabled() and x.requires_grad
            how = self.even, *rest, self.fused, keep
            return ops.sigreg_loss(x, key, self.slices, *test, *how)[0]
        sums = ops.sigreg_sums(x, key, self.slices, *test, self.even, self.fused)
        sums, size = added_over_ranks(sums, rows, self.group)
        return ops.sigreg_statistic(sums, size, self.phi, self.weights, *rest)

    def next_key(self) -> torch.Tensor:
        """Return the seed and the step of the directions, and count a step in training mode."""
        key = self.key.clone()
        if self.training:
            self.key[1].add_(1)
        if self.refresh > 1:
            key[1].div_(self.refresh, rounding_mode="floor")
        return key

    def is_shared(self) -> bool:
        """Tell whether sums are to be added over ranks."""
        there = self.sync and ranks.is_shared()
        return there and torch.distributed.get_world_size(self.group) > 1


class _AllReduce(torch.autograd.Function):
    """A sum over ranks; its gradient is the sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        x = x.clone()
        torch.distributed.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        grad = grad.clone()
        torch.distributed.all_reduce(grad, group=ctx.group)
        return grad, None


def added_over_ranks(
    sums: torch.Tensor, rows: int, group: torch.distributed.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add sums and numbers of rows of all ranks, in one all-reduce; both stay on the device."""
    packed = torch.cat([sums.flatten(), sums.new_full((1,), rows)])
    packed = _AllReduce.apply(packed, group)
    return packed[:-1].view(sums.shape), packed[-1:].detach()


@torch.library.custom_op("kernel_almanac::sigreg_loss", mutates_args=())
def _loss(
    x: torch.Tensor, key: torch.Tensor, slices: int, t: torch.Tensor, phi: torch.Tensor,
    weights: torch.Tensor, even: bool, clip: str, clip_value: float, fused: bool, keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    test = Test(t, phi, weights, even, clip, clip_value)
    loss, sums = pipeline.loss(x, key, slices, test, fused, keep)
    return loss, sums if keep else x.new_empty(0, dtype=torch.float32)


@_loss.register_fake
def _(x, key, slices, t, phi, weights, even, clip, clip_value, fused, keep):
    n = Test(t, phi, weights, even).summed
    shape = (2, n, x.shape[0] * slices) if keep else (0,)
    made = {"dtype": torch.float32}
    return x.new_empty((), **made), x.new_empty(shape, **made)


@torch.library.custom_op("kernel_almanac::sigreg_loss_backward", mutates_args=())
def _loss_backward(
    grad: torch.Tensor, x: torch.Tensor, key: torch.Tensor, slices: int, t: torch.Tensor,
    phi: torch.Tensor, weights: torch.Tensor, even: bool, clip: str, clip_value: float,
    sums: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    test = Test(t, phi, weights, even, clip, clip_value)
    return pipeline.pull_loss(grad, x, key, slices, test, sums)


@_loss_backward.register_fake
def _(grad, x, *rest):
    return x.new_empty(x.shape)


def _keep_loss(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, key, ctx.slices, t, phi, weights, ctx.even, ctx.clip, ctx.clip_value, _, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(x, key, t, phi, weights, output[1])


def _pull_loss(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    x, key, t, phi, weights, sums = ctx.saved_tensors
    how = ctx.slices, t, phi, weights, ctx.even, ctx.clip, ctx.clip_value
    pulled = torch.ops.kernel_almanac.sigreg_loss_backward(grad, x, key, *how, sums)
    return pulled, *[None] * 10


_loss.register_autograd(_pull_loss, setup_context=_keep_loss)


@torch.library.custom_op("kernel_almanac::sigreg_sums", mutates_args=())
def _sums(
    x: torch.Tensor, key: torch.Tensor, slices: int, t: torch.Tensor, phi: torch.Tensor,
    weights: torch.Tensor, even: bool, fused: bool,
) -> torch.Tensor:  # fmt: skip
    ticket = torch.empty(1, dtype=torch.int32, device=x.device)
    blocks = pipeline.sums(x, key, slices, Test(t, phi, weights, even), ticket, fused)
    return blocks.sum(dim=0)


@_sums.register_fake
def _(x, key, slices, t, phi, weights, even, fused):
    n = Test(t, phi, weights, even).summed
    return x.new_empty((2, n, x.shape[0] * slices), dtype=torch.float32)


@torch.library.custom_op("kernel_almanac::sigreg_sums_backward", mutates_args=())
def _sums_backward(
    grad: torch.Tensor, x: torch.Tensor, key: torch.Tensor, slices: int, t: torch.Tensor,
    phi: torch.Tensor, weights: torch.Tensor, even: bool,
) -> torch.Tensor:  # fmt: skip
    test = Test(t, phi, weights, even)
    return pipeline.pull_sums(x, key, slices, test, grad.contiguous())


@_sums_backward.register_fake
def _(grad, x, *rest):
    return x.new_empty(x.shape)


def _keep_sums(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, key, ctx.slices, t, phi, weights, ctx.even, _ = inputs
    ctx.save_for_backward(x, key, t, phi, weights)


def _pull_sums(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, key, *rule = ctx.saved_tensors
    how = key, ctx.slices, *rule, ctx.even
    return torch.ops.kernel_almanac.sigreg_sums_backward(grad, x, *how), *[None] * 7


_sums.register_autograd(_pull_sums, setup_context=_keep_sums)


@torch.library.custom_op("kernel_almanac::sigreg_statistic", mutates_args=())
def _statistic(
    sums: torch.Tensor, size: torch.Tensor, phi: torch.Tensor, weights: torch.Tensor, clip: str,
    clip_value: float,
) -> torch.Tensor:  # fmt: skip
    ticket = torch.zeros(1, dtype=torch.int32, device=sums.device)
    return finish(sums.unsqueeze(0), size, phi, weights, ticket, clip, clip_value)[0]


@_statistic.register_fake
def _(sums, size, phi, weights, clip, clip_value):
    return sums.new_empty(())


@torch.library.custom_op("kernel_almanac::sigreg_statistic_backward", mutates_args=())
def _statistic_backward(
    grad: torch.Tensor, sums: torch.Tensor, size: torch.Tensor, phi: torch.Tensor,
    weights: torch.Tensor, clip: str, clip_value: float,
) -> torch.Tensor:  # fmt: skip
    return finish_back(grad, sums, size, phi, weights, clip, clip_value)


@_statistic_backward.register_fake
def _(grad, sums, *rest):
    return torch.empty_like(sums)


def _keep_statistic(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    sums, size, phi, weights, ctx.clip, ctx.clip_value = inputs
    ctx.save_for_backward(sums, size, phi, weights)


def _pull_statistic(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    how = *ctx.saved_tensors, ctx.clip, ctx.clip_value
    return torch.ops.kernel_almanac.sigreg_statistic_backward(grad, *how), *[None] * 5


_statistic.register_autograd(_pull_statistic, setup_context=_keep_statistic)
