"""The product of embeddings and directions, alone or with the trig reduction at its end."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sigreg.parts import add_pair, product, sums_of_rows, turns, zeros
from kernels.sigreg.trig import rows_together
from kernels.sizes import cdiv, next_power_of_2

# Batch tiles that follow each other share a tile of directions in the second-level cache.
GROUP = 8


@triton.jit(do_not_specialize=["batch"])
def _gemm(
    x_ptr,
    a_ptr,
    out_ptr,
    batch,
    dim,
    slices,
    x_stride,
    a_row_stride,
    a_column_stride,
    rows_of_split,
    BLOCK_B: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WHOLE: tl.constexpr,
    SPLITS: tl.constexpr,
    GROUPED: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply a tile of embeddings by a tile of directions; with SPLITS, by a part of the rows."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    program = tl.program_id(0)
    down = tl.cdiv(batch, BLOCK_B)
    across = tl.cdiv(slices, BLOCK_S)
    first = program // (GROUPED * across) * GROUPED
    height = tl.minimum(down - first, GROUPED)
    b_block = first + program % (GROUPED * across) % height
    s_block = program % (GROUPED * across) // height
    split = tl.program_id(1)
    b = b_block * BLOCK_B + tl.arange(0, BLOCK_B)
    s = s_block * BLOCK_S + tl.arange(0, BLOCK_S)
    d = tl.arange(0, BLOCK_D)
    # Rows and columns that are not there are read as others, whose products are not written.
    x_at = x_ptr + tl.minimum(b, batch - 1).to(tl.int64)[:, None] * x_stride
    a_at = a_ptr + tl.minimum(s, slices - 1).to(tl.int64)[None, :] * a_column_stride
    begin = split * rows_of_split
    acc = tl.zeros([BLOCK_B, BLOCK_S], tl.float32)
    for k in range(begin, tl.minimum(begin + rows_of_split, dim), BLOCK_D):
        row = k + d
        if WHOLE:
            x = tl.load(x_at + row[None, :])
            a = tl.load(a_at + row[:, None] * a_row_stride)
        else:
            x = tl.load(x_at + row[None, :], mask=row[None, :] < dim, other=0.0)
            a = tl.load(a_at + row[:, None] * a_row_stride, mask=row[:, None] < dim, other=0.0)
        acc = product(x, a, acc, ASSEMBLY)
    at = (split * tl.cast(batch, tl.int64) + b[:, None]) * slices + s[None, :]
    tl.store(out_ptr + at, acc, mask=(b[:, None] < batch) & (s[None, :] < slices))


@triton.jit
def _add_splits(parts_ptr, out_ptr, count, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
                PDL: tl.constexpr):  # fmt: skip
    """Add the parts of a product in their order."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    total = tl.load(parts_ptr + at, mask=mask, other=0.0)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(parts_ptr + split * tl.cast(count, tl.int64) + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, total, mask=mask)


class Launch(NamedTuple):
    """Sizes of a tile, parts of the rows, warps, and stages of the pipeline."""

    batch: int
    slices: int
    dim: int
    splits: int
    warps: int
    stages: int


def gemm_launch(batch: int, dim: int, dtype: torch.dtype) -> Launch:
    """Choose a tile for a batch; small batches share the rows out to fill the card."""
    if dtype == torch.float32:
        return Launch(32, 64, 32, 1, 4, 2)
    if batch <= 128:
        return Launch(64, 64, 128, max(1, min(8, dim // 256)), 4, 3)
    if batch <= 512:
        return Launch(64, 64, 128, max(1, min(2, dim // 256)), 4, 4)
    if batch <= 4096:
        return Launch(128, 128, 64, 1, 8, 4)
    return Launch(128, 256, 64, 1, 8, 4)


def gemm(
    x: torch.Tensor, a: torch.Tensor, pdl: bool = False, launch: Launch | None = None
) -> torch.Tensor:
    """Multiply x, [batch, dim], by a, [dim, slices]; sums in float32, the result as x."""
    (batch, dim), slices = x.shape, a.shape[1]
    out = torch.empty((batch, slices), dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    x = rows_together(x)
    launch = launch or gemm_launch(batch, dim, x.dtype)
    rows = cdiv(cdiv(dim, launch.splits), launch.dim) * launch.dim
    splits = max(1, cdiv(dim, rows))
    parts = out
    if splits > 1:
        parts = torch.empty((splits, batch, slices), dtype=torch.float32, device=x.device)
    tiles = cdiv(batch, launch.batch) * cdiv(slices, launch.slices)
    _gemm[(tiles, splits)](
        x, a, parts, batch, dim, slices, x.stride(0), a.stride(0), a.stride(1), max(rows, 1),
        BLOCK_B=launch.batch, BLOCK_S=launch.slices, BLOCK_D=launch.dim,
        WHOLE=dim % launch.dim == 0, SPLITS=splits, GROUPED=GROUP, ASSEMBLY=x.is_cuda,
        num_warps=launch.warps, num_stages=launch.stages, enable_fp_fusion=True,
        **launch_options(pdl, tiles * splits),
    )  # fmt: skip
    if splits > 1:
        programs = cdiv(out.numel(), 512)
        _add_splits[(programs,)](
            parts, out, out.numel(), SPLITS=splits, BLOCK=512, num_warps=4,
            enable_fp_fusion=True, **launch_options(pdl, programs),
        )  # fmt: skip
    return out


@triton.jit
def _pieces(z, SLICES: tl.constexpr, COUNT: tl.constexpr):
    """Cut [SLICES, COUNT, 4, 2] into pairs of [SLICES, 4], each element where it is held."""
    if COUNT == 1:
        a, b = tl.split(tl.reshape(z, [SLICES, 4, 2]))
        return (a, b)
    else:
        y = tl.reshape(z, [SLICES, 2, COUNT // 2, 4, 2])
        first, second = tl.split(tl.permute(y, (0, 2, 3, 4, 1)))
        return _pieces(first, SLICES, COUNT // 2) + _pieces(second, SLICES, COUNT // 2)


@triton.jit(do_not_specialize=["batch", "rows"])
def _gemm_trig(
    x_ptr,
    a_ptr,
    t_ptr,
    sums_ptr,
    ticket_ptr,
    batch,
    rows,
    dim,
    slices,
    x_stride,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_B: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WHOLE: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply and sum cosines and sines of the products, which are never written.

    Slices lie along the rows of a tile, so that a thread holds two of them and adds up in its
    registers, from one tile of the batch to the next.
    """
    wait_for_previous(PDL)
    let_next_in(PDL)
    block = tl.program_id(1)
    if block + tl.program_id(0) == 0:
        tl.store(ticket_ptr, 0)
    begin = block * rows
    count = tl.minimum(batch - begin, rows)
    high, low = turns(tl.load(t_ptr + 1) * 0.25)
    s = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S)
    d = tl.arange(0, BLOCK_D)
    a_at = a_ptr + tl.minimum(s, slices - 1).to(tl.int64)[:, None] * dim
    cosines = zeros(N, BLOCK_S, 4)
    sines = zeros(N, BLOCK_S, 4)
    steps = tl.cdiv(count, BLOCK_B)
    for step in range(steps):
        b = step * BLOCK_B + tl.arange(0, BLOCK_B)
        x_at = x_ptr + (begin + tl.minimum(b, count - 1)).to(tl.int64)[None, :] * x_stride
        acc = tl.zeros([BLOCK_S, BLOCK_B], tl.float32)
        for k in range(0, dim, BLOCK_D):
            row = k + d
            if WHOLE:
                a = tl.load(a_at + row[None, :])
                x = tl.load(x_at + row[:, None])
            else:
                a = tl.load(a_at + row[None, :], mask=row[None, :] < dim, other=0.0)
                x = tl.load(x_at + row[:, None], mask=row[:, None] < dim, other=0.0)
            acc = product(a, x, acc, ASSEMBLY)
        if step == steps - 1:
            acc = tl.where(b[None, :] < count, acc, 0.0)
        zs = _pieces(tl.reshape(acc, [BLOCK_S, BLOCK_B // 8, 4, 2]), BLOCK_S, BLOCK_B // 8)
        for i in tl.static_range(BLOCK_B // 8):
            cosines, sines = add_pair(
                zs[2 * i], zs[2 * i + 1], high, low, cosines, sines, N, ASSEMBLY
            )
    # Products that are not there are zeros, and their cosines ones.
    absent = (steps * BLOCK_B - count).to(tl.float32)
    sums = 2.0 * sums_of_rows(cosines, sines, N, WIDTH, BLOCK_S, 4, 1)
    s = s[:, None]
    column = tl.arange(0, 2 * WIDTH)[None, :]
    k = column % WIDTH
    is_cosine = column < WIDTH
    sums = tl.where(is_cosine, sums - absent, sums)
    level = block.to(tl.int64) * 2 + tl.where(is_cosine, 0, 1)
    tl.store(sums_ptr + (level * N + k) * slices + s, sums, mask=(s < slices) & (k < N))


class FusedLaunch(NamedTuple):
    """Sizes of a tile, warps, stages, and how many programs share the batch out."""

    batch: int
    slices: int
    dim: int
    warps: int
    stages: int
    programs: int


def fused_launch(dtype: torch.dtype, n: int) -> FusedLaunch:
    """Choose a tile that leaves registers for the sums at n points."""
    if dtype == torch.float32:
        return FusedLaunch(32, 32, 32, 4, 2, 128)
    return FusedLaunch(128 if n <= 16 else 64, 128, 64, 8, 4, 128)


def gemm_sums(
    x: torch.Tensor,
    a: torch.Tensor,
    t: torch.Tensor,
    ticket: torch.Tensor,
    pdl: bool = False,
    launch: FusedLaunch | None = None,
) -> torch.Tensor:
    """Return sums over blocks of the batch of cos(k t[1] x a) and the sines, as `sums_of` does.

    x: [batch, dim]; a: [dim, slices], the transpose of a contiguous tensor.
    """
    (batch, dim), slices = x.shape, a.shape[1]
    n = t.shape[0] - 1
    launch = launch or fused_launch(x.dtype, n)
    across = cdiv(slices, launch.slices)
    wanted = max(1, launch.programs // across)
    rows = cdiv(cdiv(batch, wanted), launch.batch) * launch.batch
    blocks = max(1, cdiv(batch, rows))
    sums = torch.empty((blocks, 2, n, slices), dtype=torch.float32, device=x.device)
    x, a = rows_together(x), a.T.contiguous()
    _gemm_trig[(across, blocks)](
        x, a, t, sums, ticket, batch, rows, dim, slices, x.stride(0),
        N=n, WIDTH=next_power_of_2(n), BLOCK_B=launch.batch, BLOCK_S=launch.slices,
        BLOCK_D=launch.dim, WHOLE=dim % launch.dim == 0, ASSEMBLY=x.is_cuda,
        num_warps=launch.warps, num_stages=launch.stages, enable_fp_fusion=True,
        **launch_options(pdl, across * blocks),
    )  # fmt: skip
    return sums
