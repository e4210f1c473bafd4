"""Random directions from a counter: column s of step n is the same on every rank and every GPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sigreg.parts import cosine, sine
from kernels.sizes import cdiv, next_power_of_2

WIDEST_AT_ONCE = 16384
# Triton 3.6 takes minutes to compile loops over wider tiles.
GROUPS_IN_TURN = 256


@triton.jit
def uniform(word):
    """Return the middle of one of 2^23 equal parts of (0, 1): exact, and never 0 or 1."""
    return ((word >> 9).to(tl.int32).to(tl.float32) + 0.5) * 1.1920928955078125e-07


@triton.jit
def squared_radius(word, ASSEMBLY: tl.constexpr):
    """Return -2 ln u."""
    u = uniform(word)
    if ASSEMBLY:
        log2 = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1
        )
        # Just below one the error of the instruction may exceed the logarithm.
        return tl.maximum(log2 * -1.3862943611198906, 0.0)
    else:
        return -2.0 * tl.log(u)


@triton.jit
def root(x, ASSEMBLY: tl.constexpr):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.sqrt(x)


@triton.jit
def two_normals(first, second, ASSEMBLY: tl.constexpr):
    """Turn two words into two independent normal numbers by Box and Muller's formula."""
    radius = root(squared_radius(first, ASSEMBLY), ASSEMBLY)
    # Its sign bit makes the angle run from -pi to pi.
    turn = second.to(tl.int32, bitcast=True).to(tl.float32) * 1.4629180792671596e-09
    return radius * cosine(turn, ASSEMBLY), radius * sine(turn, ASSEMBLY)


@triton.jit
def four_normals(key_ptr, group, s, ASSEMBLY: tl.constexpr):
    """Return rows 4 * group to 4 * group + 3 of column s; key_ptr holds the seed and the step."""
    seed = tl.load(key_ptr)
    step = tl.load(key_ptr + 1)
    low = (step & 0xFFFFFFFF).to(tl.uint32)
    high = ((step >> 32) & 0xFFFFFFFF).to(tl.uint32)
    zero = (group * 0 + s * 0).to(tl.uint32)
    w0, w1, w2, w3 = tl.philox(
        seed, zero + group.to(tl.uint32), zero + s.to(tl.uint32), zero + low, zero + high
    )
    n0, n1 = two_normals(w0, w1, ASSEMBLY)
    n2, n3 = two_normals(w2, w3, ASSEMBLY)
    return n0, n1, n2, n3


@triton.jit
def normal_tile(key_ptr, first_group, s, GROUPS: tl.constexpr, SLICES: tl.constexpr,
                ASSEMBLY: tl.constexpr):  # fmt: skip
    """Return rows of columns s as a tile, [SLICES, 4 * GROUPS]; s is [SLICES, 1]."""
    group = first_group + tl.arange(0, GROUPS)[None, :]
    n0, n1, n2, n3 = four_normals(key_ptr, group, s, ASSEMBLY)
    pairs = tl.join(tl.join(n0, n2), tl.join(n1, n3))
    return tl.reshape(pairs, [SLICES, 4 * GROUPS])


@triton.jit(do_not_specialize=["slices"])
def _project(
    key_ptr,
    out_ptr,
    dim,
    slices,
    GROUPS: tl.constexpr,
    SLICES: tl.constexpr,
    WHOLE: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Draw SLICES columns and divide them by their norms; out is [slices, dim].

    WHOLE columns stay in registers; others are drawn twice.
    """
    wait_for_previous(PDL)
    let_next_in(PDL)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[:, None]
    d = tl.arange(0, 4 * GROUPS)[None, :]
    at = out_ptr + s.to(tl.int64) * dim + d
    if WHOLE:
        tile = normal_tile(key_ptr, 0, s, GROUPS, SLICES, ASSEMBLY)
        tile = tl.where(d < dim, tile, 0.0)
        squares = tl.sum(tile * tile, axis=1, keep_dims=True)
        share = 1.0 / tl.maximum(tl.sqrt(squares), 1e-12)
        tl.store(at, tile * share, mask=(s < slices) & (d < dim))
    else:
        squares = tl.zeros([SLICES, 1], tl.float32)
        for start in range(0, dim, 4 * GROUPS):
            tile = normal_tile(key_ptr, start // 4, s, GROUPS, SLICES, ASSEMBLY)
            tile = tl.where(start + d < dim, tile, 0.0)
            squares += tl.sum(tile * tile, axis=1, keep_dims=True)
        share = 1.0 / tl.maximum(tl.sqrt(squares), 1e-12)
        for start in range(0, dim, 4 * GROUPS):
            tile = normal_tile(key_ptr, start // 4, s, GROUPS, SLICES, ASSEMBLY)
            tl.store(at + start, tile * share, mask=(s < slices) & (start + d < dim))


class Launch(NamedTuple):
    """Groups of four rows and columns of a tile, its warps, whether a column fits in it."""

    groups: int
    slices: int
    warps: int
    whole: bool


def project_launch(dim: int) -> Launch:
    """Choose a tile of sixteen numbers a thread."""
    width = next_power_of_2(max(dim, 4))
    if width > WIDEST_AT_ONCE:
        return Launch(GROUPS_IN_TURN, 1, 4, False)
    columns = max(1, 512 // width)
    return Launch(width // 4, columns, min(32, max(1, width * columns // 512)), True)


def projection(
    key: torch.Tensor,
    dim: int,
    slices: int,
    dtype: torch.dtype = torch.float32,
    pdl: bool = False,
    launch: Launch | None = None,
) -> torch.Tensor:
    """Draw random directions, normal numbers divided by the norm of their column.

    key: two int64 on the device, the seed and the step; nothing is copied to the host. Returns
    [dim, slices] of `dtype`, as the transpose of a contiguous tensor. An element depends on key,
    row and column alone, its norm on dim.
    """
    out = torch.empty((slices, dim), dtype=dtype, device=key.device)
    if out.numel():
        launch = launch or project_launch(dim)
        programs = cdiv(slices, launch.slices)
        _project[(programs,)](
            key, out, dim, slices,
            GROUPS=launch.groups, SLICES=launch.slices, WHOLE=launch.whole,
            ASSEMBLY=key.is_cuda, num_warps=launch.warps, enable_fp_fusion=True,
            **launch_options(pdl, programs),
        )  # fmt: skip
    return out.T
