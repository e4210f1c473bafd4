"""The end of SIGReg: how far the means are from those of a normal distribution, slice by slice."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sizes import cdiv, next_power_of_2


@triton.jit
def clipped(stats, clip, CLIP: tl.constexpr):
    """Raise what is below `clip` to it, or let it count for nothing; NaN stays."""
    if CLIP == "clamp":
        return tl.where(stats < clip, clip, stats)
    elif CLIP == "zero":
        return tl.where(stats < clip, 0.0, stats)
    else:
        return stats


@triton.jit(do_not_specialize=["slices", "size", "clip"])
def _stats(
    cos_ptr,
    sin_ptr,
    phi_ptr,
    weights_ptr,
    out_ptr,
    slices,
    size,
    clip,
    POINTS: tl.constexpr,
    SLICES: tl.constexpr,
    BLOCK: tl.constexpr,
    CLIP: tl.constexpr,
    PDL: tl.constexpr,
):
    """Weigh the squared errors of SLICES slices, a row of the tile each."""
    wait_for_previous(PDL)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[:, None]
    k = tl.arange(0, BLOCK)[None, :]
    mask = (s < slices) & (k < POINTS)
    at = s.to(tl.int64) * POINTS + k
    phi = tl.load(phi_ptr + k, mask=k < POINTS, other=0.0).to(tl.float32)
    weights = tl.load(weights_ptr + k, mask=k < POINTS, other=0.0).to(tl.float32)
    c = tl.load(cos_ptr + at, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(sin_ptr + at, mask=mask, other=0.0).to(tl.float32)
    let_next_in(PDL)
    away = c - phi
    stats = tl.sum((away * away + v * v) * weights, axis=1, keep_dims=True) * size
    tl.store(out_ptr + s, clipped(stats, clip, CLIP), mask=s < slices)


class Launch(NamedTuple):
    """Slices a program, and the warps that share them."""

    slices: int
    num_warps: int


MANY_SLICES = 8192
FEW, MANY = Launch(8, 1), Launch(32, 4)


def epilogue_stats(
    cos_mean: torch.Tensor,
    sin_mean: torch.Tensor,
    phi: torch.Tensor,
    weights: torch.Tensor,
    global_batch_size: float,
    do_clip: bool = False,
    clip_value: float = 0.0,
    zero: bool = False,
    pdl: bool = False,
) -> torch.Tensor:
    """Compute one statistic a slice.

    cos_mean, sin_mean: [slices, points]; phi, weights: [points]; all of float32, bfloat16 or
    float16. Returns [slices] of float32: global_batch_size times the weighted sum of
    (cos_mean - phi)^2 + sin_mean^2. With `do_clip`, what is below `clip_value` is raised to it or,
    with `zero`, set to zero.
    """
    slices, points = cos_mean.shape
    out = torch.empty(slices, dtype=torch.float32, device=cos_mean.device)
    if slices:
        launch = MANY if slices >= MANY_SLICES else FEW
        programs = cdiv(slices, launch.slices)
        _stats[(programs,)](
            cos_mean.contiguous(), sin_mean.contiguous(), phi.contiguous(), weights.contiguous(),
            out, slices, float(global_batch_size), float(clip_value),
            POINTS=points, SLICES=launch.slices, BLOCK=next_power_of_2(max(points, 1)),
            CLIP=("zero" if zero else "clamp") if do_clip else "none",
            num_warps=launch.num_warps, enable_fp_fusion=True, **launch_options(pdl, programs),
        )  # fmt: skip
    return out
