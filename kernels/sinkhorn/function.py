"""Sinkhorn for use in models: differentiable, compilable, and capturable in a CUDA graph."""

from __future__ import annotations

from typing import Any

import torch

from kernels.sinkhorn.backward import gradient_recomputed
from kernels.sinkhorn.forward import EPS, WIDEST_IN_REGISTERS, scale_packed, scale_scalars

FORMS = ("stable", "plain", "softmax")


def sinkhorn(
    logits: torch.Tensor, n_iter: int = 20, eps: float = EPS, form: str = "stable"
) -> torch.Tensor:
    """Scale matrices until rows and columns sum to one.

    logits: [..., n, n] of float32, bfloat16 or float16, any strides, n up to 64; the result has
    the same shape and dtype. `form` is `stable`, `plain` or `softmax`, told in the module `parts`.
    Gradients are exact, of the iterations as they were run; the factors are computed again for
    them, so that only the logits are kept. Needs a CUDA GPU. ValueError for another shape, form or
    number of iterations.
    """
    n = logits.shape[-1] if logits.dim() >= 2 else 0
    if not 1 <= n <= WIDEST_IN_REGISTERS or logits.shape[-2] != n:
        raise ValueError(f"logits must be [..., n, n] with n up to 64, not {tuple(logits.shape)}")
    if form not in FORMS or n_iter < 0:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, n_iter at least 0")
    out = torch.ops.kernel_almanac.sinkhorn(logits.reshape(-1, n, n), n_iter, eps, form)
    return out.reshape(logits.shape)


@torch.library.custom_op("kernel_almanac::sinkhorn", mutates_args=())
def _sinkhorn(logits: torch.Tensor, n_iter: int, eps: float, form: str) -> torch.Tensor:
    scale = scale_scalars if logits.shape[1] == 4 else scale_packed
    return scale(logits, n_iter, eps, form)


@torch.library.custom_op("kernel_almanac::sinkhorn_backward", mutates_args=())
def _sinkhorn_backward(
    logits: torch.Tensor, grad: torch.Tensor, n_iter: int, eps: float, form: str
) -> torch.Tensor:
    return gradient_recomputed(logits, grad, n_iter, eps, form)


@_sinkhorn.register_fake
def _(logits: torch.Tensor, n_iter: int, eps: float, form: str) -> torch.Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@_sinkhorn_backward.register_fake
def _(logits: torch.Tensor, grad: torch.Tensor, n_iter: int, eps: float, form: str) -> torch.Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    logits, *ctx.rest = inputs
    ctx.save_for_backward(logits)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (logits,) = ctx.saved_tensors
    pulled = torch.ops.kernel_almanac.sinkhorn_backward(logits, grad, *ctx.rest)
    return pulled, None, None, None


_sinkhorn.register_autograd(_backward, setup_context=_keep)
