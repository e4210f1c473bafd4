"""Small batches, in two launches: directions are drawn where they are multiplied, and not kept."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sigreg.epilogue import clipped
from kernels.sigreg.finish import add_up
from kernels.sigreg.parts import add_pair, product, sums_of_rows, turns, zeros
from kernels.sigreg.projection import normal_tile
from kernels.sigreg.trig import rows_together
from kernels.sizes import cdiv, next_power_of_2

LARGEST_BATCH = 64


@triton.jit(do_not_specialize=["batch", "slices"])
def _draw_multiply(
    x_ptr,
    key_ptr,
    parts_ptr,
    squares_ptr,
    ticket_ptr,
    batch,
    dim,
    slices,
    x_stride,
    rows,
    BLOCK_B: tl.constexpr,
    SLICES: tl.constexpr,
    GROUPS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply all embeddings by some rows of directions that are drawn here.

    Writes the part of the products, [parts, slices, BLOCK_B], and of the squared norms.
    """
    wait_for_previous(PDL)
    let_next_in(PDL)
    part = tl.program_id(1)
    if part + tl.program_id(0) == 0:
        tl.store(ticket_ptr, 0)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)
    b = tl.arange(0, BLOCK_B)
    d = tl.arange(0, 4 * GROUPS)
    x_at = x_ptr + tl.minimum(b, batch - 1).to(tl.int64)[None, :] * x_stride
    begin = part * rows
    acc = tl.zeros([SLICES, BLOCK_B], tl.float32)
    squares = tl.zeros([SLICES, GROUPS], tl.float32)
    for start in range(begin, tl.minimum(begin + rows, dim), 4 * GROUPS):
        row = start + d
        x = tl.load(x_at + row[:, None], mask=row[:, None] < dim, other=0.0)
        a = normal_tile(key_ptr, start // 4, s[:, None], GROUPS, SLICES, ASSEMBLY)
        a = tl.where(row[None, :] < dim, a, 0.0)
        squares += tl.sum(tl.reshape(a * a, [SLICES, GROUPS, 4]), axis=2)
        acc = product(a.to(x.dtype), x, acc, ASSEMBLY)
    out = part * tl.cast(slices, tl.int64) + s
    tl.store(parts_ptr + out[:, None] * BLOCK_B + b[None, :], acc, mask=s[:, None] < slices)
    tl.store(squares_ptr + out, tl.sum(squares, axis=1), mask=s < slices)


@triton.jit(do_not_specialize=["batch", "slices", "clip"])
def _finish_small(
    parts_ptr,
    squares_ptr,
    t_ptr,
    phi_ptr,
    weights_ptr,
    shares_ptr,
    ticket_ptr,
    loss_ptr,
    batch,
    slices,
    clip,
    PARTS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    SLICES: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    CLIP: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Add the parts, then take means, statistics and the loss."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[:, None]
    b = tl.arange(0, BLOCK_B)[None, :]
    mask = s < slices
    z = tl.zeros([SLICES, BLOCK_B], tl.float32)
    squares = tl.zeros([SLICES, 1], tl.float32)
    for part in tl.static_range(PARTS):
        at = part * tl.cast(slices, tl.int64) + s
        z += tl.load(parts_ptr + at * BLOCK_B + b, mask=mask, other=0.0)
        squares += tl.load(squares_ptr + at, mask=mask, other=0.0)
    z = tl.where(b < batch, z / tl.maximum(tl.sqrt(squares), 1e-12), 0.0)
    x, y = tl.split(tl.reshape(z, [SLICES, BLOCK_B // 2, 2]))
    high, low = turns(tl.load(t_ptr + 1) * 0.25)
    cosines, sines = add_pair(
        x, y, high, low, zeros(N, SLICES, BLOCK_B // 2), zeros(N, SLICES, BLOCK_B // 2), N, ASSEMBLY
    )
    sums = 2.0 * sums_of_rows(cosines, sines, N, WIDTH, SLICES, BLOCK_B // 2, 1)
    column = tl.arange(0, 2 * WIDTH)[None, :]
    k = column % WIDTH
    known = k < N
    is_cosine = column < WIDTH
    phi = tl.load(phi_ptr + 1 + k, mask=known & is_cosine, other=0.0)
    weights = tl.load(weights_ptr + 1 + k, mask=known, other=0.0)
    absent = tl.where(is_cosine, BLOCK_B - batch, 0)
    away = (sums - absent) / batch - phi
    stats = tl.sum(away * away * weights, axis=1, keep_dims=True) * batch
    stats = tl.sum(tl.where(mask, clipped(stats, clip, CLIP), 0.0))
    add_up(stats, shares_ptr, ticket_ptr, loss_ptr, 1.0 / slices, PROGRAMS, BLOCK)


class Launch(NamedTuple):
    """Columns and groups of four rows of a tile, parts of the rows, warps; then of the end."""

    slices: int = 32
    groups: int = 16
    parts: int = 16
    warps: int = 4
    end_slices: int = 8
    end_warps: int = 4


def small_loss(
    x: torch.Tensor,
    key: torch.Tensor,
    slices: int,
    t: torch.Tensor,
    phi: torch.Tensor,
    weights: torch.Tensor,
    clip: str = "none",
    clip_value: float = 0.0,
    pdl: bool = False,
    launch: Launch = Launch(),  # noqa: B008 - it cannot change
) -> torch.Tensor:
    """Return the loss of a batch of at most 64 at evenly spaced points, t = 0 first."""
    batch, dim = x.shape
    block_b = max(16, next_power_of_2(batch))
    tile = 4 * launch.groups
    rows = cdiv(cdiv(dim, launch.parts), tile) * tile
    parts = cdiv(dim, rows)
    made = {"dtype": torch.float32, "device": x.device}
    products = torch.empty((parts, slices, block_b), **made)
    squares = torch.empty((parts, slices), **made)
    programs = cdiv(slices, launch.end_slices)
    shares, loss = torch.empty(programs, **made), torch.empty((), **made)
    ticket = torch.empty(1, dtype=torch.int32, device=x.device)
    x = rows_together(x)
    grid = cdiv(slices, launch.slices), parts
    _draw_multiply[grid](
        x, key, products, squares, ticket, batch, dim, slices, x.stride(0), rows,
        BLOCK_B=block_b, SLICES=launch.slices, GROUPS=launch.groups, ASSEMBLY=x.is_cuda,
        num_warps=launch.warps, num_stages=2, enable_fp_fusion=True,
        **launch_options(pdl, grid[0] * grid[1]),
    )  # fmt: skip
    _finish_small[(programs,)](
        products, squares, t, phi, weights, shares, ticket, loss, batch, slices, float(clip_value),
        PARTS=parts, BLOCK_B=block_b, SLICES=launch.end_slices, N=t.shape[0] - 1,
        WIDTH=next_power_of_2(t.shape[0] - 1), PROGRAMS=programs,
        BLOCK=next_power_of_2(programs), CLIP=clip, ASSEMBLY=x.is_cuda,
        num_warps=launch.end_warps, enable_fp_fusion=True, **launch_options(pdl, programs),
    )  # fmt: skip
    return loss
