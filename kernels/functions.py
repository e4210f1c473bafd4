"""Ops for use in models: differentiable, compilable, and capturable in a CUDA graph.

Inputs are float32, bfloat16 or float16 of any leading dimensions and strides, all of one dtype,
on a CUDA GPU. Arithmetic is float32, and gradients are exact and the same bits each time.
`kernels.sinkhorn.function` holds Sinkhorn.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.ops import residual_rms_norm as residual_rms_norm_op
from kernels.ops import rms_norm as rms_norm_op
from kernels.ops import swiglu as swiglu_op
from kernels.rms_norm_backward import rms_norm_gradient

EPS = rms_norm_op.EPS


def rms_norm(x: torch.Tensor, w: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """Normalise the last dimension: x * rsqrt(mean(x^2) + eps) * w.

    x: [..., hidden], w: [hidden]. Keeps x and w for the backward pass. ValueError where shapes or
    dtypes do not fit.
    """
    _agree(x, w)
    return torch.ops.kernel_almanac.rms_norm(_matrix(x), w, eps).reshape(x.shape)


def residual_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, eps: float = EPS
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normalised sum of x and the residual, and the sum.

    x, residual: [..., hidden], w: [hidden]. Keeps the sum, rounded to the dtype, and w for the
    backward pass. ValueError where shapes or dtypes do not fit.
    """
    _agree(x, w, residual)
    made = torch.ops.kernel_almanac.residual_rms_norm(_matrix(x), _matrix(residual), w, eps)
    return made[0].reshape(x.shape), made[1].reshape(x.shape)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up of two tensors [..., hidden], for example halves of a projection.

    Keeps both for the backward pass. ValueError where shapes or dtypes differ.
    """
    if gate.dim() == 0 or gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError(f"gate {_word(gate)} and up {_word(up)} must be alike, [..., hidden]")
    return torch.ops.kernel_almanac.swiglu(_matrix(gate), _matrix(up)).reshape(gate.shape)


def _matrix(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(t.shape[:-1].numel(), t.shape[-1])


def _word(t: torch.Tensor) -> str:
    return f"{tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}"


def _agree(x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor | None = None) -> None:
    if x.dim() == 0 or w.shape != x.shape[-1:] or w.dtype != x.dtype:
        raise ValueError(f"w {_word(w)} must be one row of x {_word(x)}")
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise ValueError(f"residual {_word(residual)} must be like x {_word(x)}")


def _like(t: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(t, memory_format=torch.contiguous_format)


@torch.library.custom_op("kernel_almanac::rms_norm", mutates_args=())
def _rms_norm(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm_op.rms_norm(x, w, eps)


@torch.library.custom_op("kernel_almanac::residual_rms_norm", mutates_args=())
def _residual_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return residual_rms_norm_op.residual_rms_norm(x, residual, w, eps)


@torch.library.custom_op("kernel_almanac::rms_norm_backward", mutates_args=())
def _rms_norm_backward(
    x: torch.Tensor, w: torch.Tensor, grad: torch.Tensor, added: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return rms_norm_gradient(x, w, grad, added, eps)


@torch.library.custom_op("kernel_almanac::swiglu", mutates_args=())
def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return swiglu_op.swiglu(gate, up)


@torch.library.custom_op("kernel_almanac::swiglu_backward", mutates_args=())
def _swiglu_backward(
    gate: torch.Tensor, up: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return swiglu_op.swiglu_gradient(gate, up, grad)


@_rms_norm.register_fake
def _(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return _like(x)


@_residual_rms_norm.register_fake
def _(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(x), _like(x)


@_rms_norm_backward.register_fake
def _(
    x: torch.Tensor, w: torch.Tensor, grad: torch.Tensor, added: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(x), _like(w)


@_swiglu.register_fake
def _(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return _like(gate)


@_swiglu_backward.register_fake
def _(
    gate: torch.Tensor, up: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(gate), _like(gate)


def _keep_rms_norm(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, w, ctx.eps = inputs
    ctx.save_for_backward(x, w)


def _pull_rms_norm(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    made = torch.ops.kernel_almanac.rms_norm_backward(*ctx.saved_tensors, grad, None, ctx.eps)
    return (*made, None)


def _keep_residual_rms_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    _, _, w, ctx.eps = inputs
    ctx.save_for_backward(output[1], w)


def _pull_residual_rms_norm(
    ctx: Any, grad: torch.Tensor, grad_sum: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    back = torch.ops.kernel_almanac.rms_norm_backward
    dx, dw = back(*ctx.saved_tensors, grad, grad_sum, ctx.eps)
    return dx, dx, dw, None


def _keep_swiglu(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pull_swiglu(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.ops.kernel_almanac.swiglu_backward(*ctx.saved_tensors, grad))


_rms_norm.register_autograd(_pull_rms_norm, setup_context=_keep_rms_norm)
_residual_rms_norm.register_autograd(_pull_residual_rms_norm, setup_context=_keep_residual_rms_norm)
_swiglu.register_autograd(_pull_swiglu, setup_context=_keep_swiglu)
