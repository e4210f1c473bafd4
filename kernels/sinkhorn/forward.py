"""Sinkhorn forward: kernels from the teaching stages to the limit, and what launches them."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sinkhorn.parts import (
    first_columns,
    half_steps,
    joined,
    load_row,
    reciprocal,
    start_row,
    start_tile,
    total,
)
from kernels.sizes import cdiv, next_power_of_2

EPS = 1e-6
ROWS_PER_BLOCK = 256
WIDEST_IN_REGISTERS = 64
MOST_UNROLLED = 32
LATENCY_BOUND = 65536
CACHED = 2**19
FEW_PROGRAMS = 256


@triton.jit(do_not_specialize=["n_iter"])
def _global(m_ptr, out_ptr, n_iter, eps, N: tl.constexpr, BLOCK_N: tl.constexpr):
    """Scale one matrix that stays in memory and is read by rows, twice an iteration."""
    matrix = tl.program_id(0).to(tl.int64) * (N * N)
    index = tl.arange(0, BLOCK_N)
    mask = index < N
    u = tl.full([BLOCK_N], 1.0, tl.float32)
    v = tl.full([BLOCK_N], 1.0, tl.float32)
    for _ in range(n_iter):
        for i in range(N):
            row = tl.load(m_ptr + matrix + i * N + index, mask=mask, other=0.0)
            u = tl.where(index == i, 1.0 / (tl.sum(row * v) + eps), u)
        # Columns are summed row by row, so that reads stay contiguous.
        columns = tl.zeros([BLOCK_N], tl.float32)
        for i in range(N):
            row = tl.load(m_ptr + matrix + i * N + index, mask=mask, other=0.0)
            columns += row * tl.sum(tl.where(index == i, u, 0.0))
        v = 1.0 / (columns + eps)
    for i in range(N):
        row = tl.load(m_ptr + matrix + i * N + index, mask=mask, other=0.0)
        scaled = tl.sum(tl.where(index == i, u, 0.0)) * row * v
        tl.store(out_ptr + matrix + i * N + index, scaled, mask=mask)


@triton.jit(do_not_specialize=["batch", "n_iter"])
def _tile(
    logits_ptr,
    out_ptr,
    us_ptr,
    vs_ptr,
    batch,
    n_iter,
    eps,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK: tl.constexpr,
    FORM: tl.constexpr,
    KEEP: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """Scale BLOCK matrices that stay in registers, as one tile of BLOCK x n x n."""
    matrix = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None, None]
    i = tl.arange(0, BLOCK_N)[None, :, None]
    j = tl.arange(0, BLOCK_N)[None, None, :]
    mask = (matrix < batch) & (i < N) & (j < N)
    offsets = matrix.to(tl.int64) * (N * N) + (i * N + j)
    x = tl.load(logits_ptr + offsets, mask=mask, other=float("-inf")).to(tl.float32)
    m, row_eps, u = start_tile(x, mask, eps, FORM)
    v = tl.full([BLOCK, 1, BLOCK_N], 1.0, tl.float32)
    u_at = matrix.to(tl.int64) * N + i
    v_at = matrix.to(tl.int64) * N + j
    u_mask = (matrix < batch) & (i < N)
    v_mask = (matrix < batch) & (j < N)
    if FORM == "softmax":
        # Padding is divided by one: its factors would grow without end.
        row_eps = tl.where(u_mask, row_eps, 1.0)
        column_eps = tl.where(v_mask, eps, 1.0)
    for step in range(n_iter):
        if FORM == "softmax":
            if step > 0:
                u = u * reciprocal(u * tl.sum(m * v, axis=2, keep_dims=True) + row_eps, ASSEMBLY)
            v = v * reciprocal(v * tl.sum(m * u, axis=1, keep_dims=True) + column_eps, ASSEMBLY)
        else:
            u = reciprocal(tl.sum(m * v, axis=2, keep_dims=True) + row_eps, ASSEMBLY)
            v = reciprocal(tl.sum(m * u, axis=1, keep_dims=True) + eps, ASSEMBLY)
        if KEEP:
            level = step * (tl.full([], N, tl.int64) * batch)
            tl.store(vs_ptr + level + v_at, v, mask=v_mask)
            if FORM == "softmax":
                tl.store(us_ptr + level + u_at, u, mask=u_mask)
    tl.store(out_ptr + offsets, u * m * v, mask=mask)


@triton.jit
def _iterate(
    a,
    b,
    c,
    d,
    u,
    v,
    n_iter,
    row_eps,
    eps,
    N_ITER: tl.constexpr,
    FORM: tl.constexpr,
    PAIRS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """Scale the matrix of the rows a, b, c, d; return its row and column factors.

    N_ITER is the number of iterations where it is compiled in, -1 where `n_iter` is.
    """
    if N_ITER >= 0:
        if FORM == "softmax" and N_ITER > 0:
            v = first_columns(a, b, c, d, u, v, eps, PAIRS, ASSEMBLY)
        for _ in tl.static_range(N_ITER - 1 if FORM == "softmax" else N_ITER):
            u, v = half_steps(a, b, c, d, u, v, row_eps, eps, FORM, PAIRS, ASSEMBLY)
    else:
        if FORM == "softmax":
            v = first_columns(a, b, c, d, u, v, eps, PAIRS, ASSEMBLY)
        for _ in range(n_iter - 1 if FORM == "softmax" else n_iter):
            u, v = half_steps(a, b, c, d, u, v, row_eps, eps, FORM, PAIRS, ASSEMBLY)
    return u, v


@triton.jit(do_not_specialize=["batch", "n_iter"])
def _scalars(
    logits_ptr,
    out_ptr,
    batch,
    n_iter,
    eps,
    N_ITER: tl.constexpr,
    BLOCK: tl.constexpr,
    FORM: tl.constexpr,
    PAIRS: tl.constexpr,
    WIDE_STORE: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Scale 4 x 4 matrices, each by one thread: no exchange between threads."""
    matrix = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    mask = (matrix < batch) & (tl.arange(0, 4)[None, :] < 4)
    offsets = matrix.to(tl.int64) * 16 + tl.arange(0, 4)[None, :]
    wait_for_previous(PDL)
    x0 = load_row(logits_ptr, offsets, mask, 0.0, BLOCK)
    x1 = load_row(logits_ptr, offsets + 4, mask, 0.0, BLOCK)
    x2 = load_row(logits_ptr, offsets + 8, mask, 0.0, BLOCK)
    x3 = load_row(logits_ptr, offsets + 12, mask, 0.0, BLOCK)
    let_next_in(PDL)
    a, e0, u0 = start_row(x0, eps, FORM, ASSEMBLY)
    b, e1, u1 = start_row(x1, eps, FORM, ASSEMBLY)
    c, e2, u2 = start_row(x2, eps, FORM, ASSEMBLY)
    d, e3, u3 = start_row(x3, eps, FORM, ASSEMBLY)
    row_eps = (e0, e1, e2, e3)
    u = (u0, u1, u2, u3)
    one = tl.full(a[0].shape, 1.0, tl.float32)
    v = (one, one, one, one)
    if PAIRS > 0 and FORM == "plain":
        # Factors are at most 1 / eps: below this limit no product of two sums overflows. A matrix
        # with NaN or infinity is never below it.
        sums = (total(a) + total(b)) + (total(c) + total(d))
        if tl.sum((sums < 1e9).to(tl.int32)) == BLOCK:
            u, v = _iterate(a, b, c, d, u, v, n_iter, row_eps, eps, N_ITER, FORM, PAIRS, ASSEMBLY)
        else:
            u, v = _iterate(a, b, c, d, u, v, n_iter, row_eps, eps, -1, FORM, 0, ASSEMBLY)
    else:
        u, v = _iterate(a, b, c, d, u, v, n_iter, row_eps, eps, N_ITER, FORM, PAIRS, ASSEMBLY)
    y0 = joined(
        (u[0] * a[0] * v[0], u[0] * a[1] * v[1], u[0] * a[2] * v[2], u[0] * a[3] * v[3]), BLOCK
    )
    y1 = joined(
        (u[1] * b[0] * v[0], u[1] * b[1] * v[1], u[1] * b[2] * v[2], u[1] * b[3] * v[3]), BLOCK
    )
    y2 = joined(
        (u[2] * c[0] * v[0], u[2] * c[1] * v[1], u[2] * c[2] * v[2], u[2] * c[3] * v[3]), BLOCK
    )
    y3 = joined(
        (u[3] * d[0] * v[0], u[3] * d[1] * v[1], u[3] * d[2] * v[2], u[3] * d[3] * v[3]), BLOCK
    )
    if WIDE_STORE:
        # A thread's own row is half a sector: exchanged first, rows leave as whole lines.
        rows = tl.join(tl.join(y0, y2), tl.join(y1, y3))
        tile = tl.reshape(tl.permute(rows, (0, 2, 3, 1)), [BLOCK, 16])
        wide = matrix.to(tl.int64) * 16 + tl.arange(0, 16)[None, :]
        tl.store(out_ptr + wide, tile, mask=(matrix < batch) & (tl.arange(0, 16)[None, :] < 16))
    else:
        tl.store(out_ptr + offsets, y0, mask=mask)
        tl.store(out_ptr + offsets + 4, y1, mask=mask)
        tl.store(out_ptr + offsets + 8, y2, mask=mask)
        tl.store(out_ptr + offsets + 12, y3, mask=mask)


def scale_global(logits: torch.Tensor, n_iter: int, eps: float = EPS) -> torch.Tensor:
    """Exponentiate in PyTorch, then scale with the matrices left in memory."""
    m = torch.exp(logits.float()).contiguous()
    out = torch.empty_like(m, dtype=logits.dtype)
    batch, n, _ = m.shape
    if out.numel():
        block_n = next_power_of_2(n)
        _global[(batch,)](
            m, out, n_iter, eps, N=n, BLOCK_N=block_n, num_warps=1, enable_fp_fusion=True
        )
    return out


def scale_registers(logits: torch.Tensor, n_iter: int, eps: float = EPS) -> torch.Tensor:
    """Scale one matrix a program, held in registers."""
    return launch_tile(logits, n_iter, eps, "plain", block=1)


def scale_packed(
    logits: torch.Tensor, n_iter: int, eps: float = EPS, form: str = "plain"
) -> torch.Tensor:
    """Scale many matrices a program, held in registers."""
    return launch_tile(logits, n_iter, eps, form, packed_block(logits.shape[0], logits.shape[1]))


def packed_block(batch: int, n: int) -> int:
    """Return how many matrices of a batch are packed into one program."""
    return min(
        next_power_of_2(max(1, batch)),
        max(1, ROWS_PER_BLOCK // next_power_of_2(n)),
    )


def launch_tile(
    logits: torch.Tensor,
    n_iter: int,
    eps: float,
    form: str,
    block: int,
    kept: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Launch the tile kernel; `kept` receives all row and column factors, n_iter x batch x n."""
    logits = logits.contiguous()
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    batch, n, _ = logits.shape
    if out.numel():
        block_n = next_power_of_2(n)
        us, vs = kept or (out, out)
        _tile[(cdiv(batch, block),)](
            logits, out, us, vs, batch, n_iter, eps,
            N=n, BLOCK_N=block_n, BLOCK=block, FORM=form, KEEP=kept is not None,
            ASSEMBLY=logits.is_cuda, num_warps=tile_warps(block, block_n), enable_fp_fusion=True,
        )  # fmt: skip
    return out


def tile_warps(block: int, block_n: int) -> int:
    """Return warps for sixteen elements a thread: a 4 x 4 matrix then needs no exchange."""
    return min(32, max(1, block * block_n**2 // 512))


class Launch(NamedTuple):
    """How many matrices a warp takes, how many reciprocals are paired, how results are stored."""

    block: int
    pairs: int
    wide_store: bool


def scalars_launch(batch: int, n_iter: int) -> Launch:
    """Choose by what binds: latency, then instructions, then memory.

    Alone in its program a matrix waits for every reciprocal, and products for pairs are more
    steps. While results stay in cache, half sectors cost less than exchanging them first.
    """
    if batch <= LATENCY_BOUND:
        return Launch(block=32, pairs=0, wide_store=True)
    if batch <= CACHED:
        return Launch(block=32, pairs=2, wide_store=n_iter < 16)
    return Launch(block=64, pairs=1, wide_store=True)


def scale_scalars(
    logits: torch.Tensor, n_iter: int, eps: float = EPS, form: str = "plain", pdl: bool = False
) -> torch.Tensor:
    """Scale one 4 x 4 matrix a thread.

    With `pdl` (Hopper and newer) the next kernel of the stream may be brought onto the card before
    this one ends; it still waits for this one's results. A grid of many waves does not call it
    early: it would take the place of blocks that are still to come.
    """
    logits = logits.contiguous()
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    batch = logits.shape[0]
    launch = scalars_launch(batch, n_iter)
    programs = cdiv(batch, launch.block)
    if batch:
        _scalars[(programs,)](
            logits, out, batch, n_iter, eps,
            N_ITER=n_iter if n_iter <= MOST_UNROLLED else -1, FORM=form,
            BLOCK=launch.block, PAIRS=launch.pairs, WIDE_STORE=launch.wide_store,
            ASSEMBLY=logits.is_cuda, num_warps=1, enable_fp_fusion=True,
            **launch_options(pdl, programs, FEW_PROGRAMS),
        )  # fmt: skip
    return out
