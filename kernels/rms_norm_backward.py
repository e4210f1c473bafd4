"""Backward of RMSNorm, with or without a residual: exact, in float32, in a fixed order of sums.

Of y = x * s * w with s = rsqrt(mean(x^2) + eps), from the gradient g of y:
dx = s * (g * w - x * s^2 * mean(x * g * w)), and dw is the sum over rows of g * x * s.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sizes import cdiv, next_power_of_2

# Sums over rows have one order, whatever the card: two programs of 8 warps for each SM of an H200.
SMS = 132
# Of wider rows a program cannot hold one of each tensor, the weight and their sums.
WIDEST_IN_REGISTERS = 8192
WIDE_TILE = 8192
WEIGHT_TILE = 1024
WEIGHT_PROGRAMS = 1024


@triton.jit(do_not_specialize=["rows"])
def _rows_and_weight(
    x_ptr,
    w_ptr,
    grad_ptr,
    added_ptr,
    dx_ptr,
    parts_ptr,
    x_stride,
    grad_stride,
    added_stride,
    rows,
    eps,
    HIDDEN: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Differentiate tiles of rows in turn and keep what they add to the weight's gradient."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    col = tl.arange(0, BLOCK_HIDDEN)[None, :]
    known = col < HIDDEN
    w = tl.load(w_ptr + col, mask=known, other=0.0, eviction_policy="evict_last").to(tl.float32)
    dw = tl.zeros([BLOCK_ROWS, BLOCK_HIDDEN], tl.float32)
    first, step = tl.program_id(0) * BLOCK_ROWS, tl.num_programs(0) * BLOCK_ROWS
    for start in tl.range(first, rows, step, num_stages=STAGES):
        row = start + tl.arange(0, BLOCK_ROWS)[:, None]
        mask = (row < rows) & known if BLOCK_ROWS > 1 else known
        row = row.to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + col, mask=mask, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + row * grad_stride + col, mask=mask, other=0.0).to(tl.float32)
        weighted = grad * w
        squares = tl.sum(x * x, axis=1, keep_dims=True)
        products = tl.sum(x * weighted, axis=1, keep_dims=True)
        scale = tl.rsqrt(squares / HIDDEN + eps)
        dx = scale * (weighted - x * (scale * scale * (products / HIDDEN)))
        if ADD:
            added = tl.load(added_ptr + row * added_stride + col, mask=mask, other=0.0)
            dx += added.to(tl.float32)
        tl.store(dx_ptr + row * HIDDEN + col, dx, mask=mask, cache_modifier=".cs")
        dw += grad * (x * scale)
    part = parts_ptr + tl.program_id(0).to(tl.int64) * HIDDEN + col
    tl.store(part, tl.sum(dw, axis=0, keep_dims=True), mask=known)


@triton.jit
def _wide_rows(
    x_ptr,
    w_ptr,
    grad_ptr,
    added_ptr,
    dx_ptr,
    scale_ptr,
    x_stride,
    grad_stride,
    added_stride,
    eps,
    HIDDEN: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    PDL: tl.constexpr,
):
    """Differentiate one row that is read twice; keep its scale for the weight's gradient."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    grad_ptr += row * grad_stride
    added_ptr += row * added_stride
    dx_ptr += row * HIDDEN
    squares = tl.zeros([BLOCK_HIDDEN], tl.float32)
    products = tl.zeros([BLOCK_HIDDEN], tl.float32)
    for start in range(0, HIDDEN, BLOCK_HIDDEN):
        col = start + tl.arange(0, BLOCK_HIDDEN)
        mask = col < HIDDEN
        w = tl.load(w_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        grad = tl.load(grad_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        squares += x * x
        products += x * (grad.to(tl.float32) * w.to(tl.float32))
    scale = tl.rsqrt(tl.sum(squares, axis=0) / HIDDEN + eps)
    tl.store(scale_ptr + row, scale)
    factor = scale * scale * (tl.sum(products, axis=0) / HIDDEN)
    # Backwards: what was read last is surely still in a cache.
    for done in range(0, HIDDEN, BLOCK_HIDDEN):
        col = (HIDDEN - 1) // BLOCK_HIDDEN * BLOCK_HIDDEN - done + tl.arange(0, BLOCK_HIDDEN)
        mask = col < HIDDEN
        w = tl.load(w_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        x = tl.load(x_ptr + col, mask=mask, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dx = scale * (grad * w.to(tl.float32) - x * factor)
        if ADD:
            dx += tl.load(added_ptr + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + col, dx, mask=mask, cache_modifier=".cs")


@triton.jit(do_not_specialize=["rows", "parts"])
def _wide_weight(
    x_ptr,
    grad_ptr,
    scale_ptr,
    parts_ptr,
    x_stride,
    grad_stride,
    rows,
    parts,
    HIDDEN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    PDL: tl.constexpr,
):
    """Sum a tile of columns over a part of the rows."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    part = tl.program_id(0) % parts
    col = tl.program_id(0) // parts * BLOCK_HIDDEN + tl.arange(0, BLOCK_HIDDEN)[None, :]
    dw = tl.zeros([BLOCK_ROWS, BLOCK_HIDDEN], tl.float32)
    for start in range(part * BLOCK_ROWS, rows, parts * BLOCK_ROWS):
        row = start + tl.arange(0, BLOCK_ROWS)[:, None]
        mask = (row < rows) & (col < HIDDEN)
        scale = tl.load(scale_ptr + row, mask=row < rows, other=0.0)
        row = row.to(tl.int64)
        x = tl.load(x_ptr + row * x_stride + col, mask=mask, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + row * grad_stride + col, mask=mask, other=0.0).to(tl.float32)
        dw += grad * (x * scale)
    out = parts_ptr + part.to(tl.int64) * HIDDEN + col
    tl.store(out, tl.sum(dw, axis=0, keep_dims=True), mask=col < HIDDEN)


@triton.jit(do_not_specialize=["parts"])
def _sum_parts(
    parts_ptr,
    dw_ptr,
    parts,
    HIDDEN: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    PDL: tl.constexpr,
):
    """Sum the parts of the weight's gradient, from the first to the last."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    col = tl.program_id(0) * BLOCK_HIDDEN + tl.arange(0, BLOCK_HIDDEN)[None, :]
    total = tl.zeros([BLOCK_PARTS, BLOCK_HIDDEN], tl.float32)
    for start in range(0, parts, BLOCK_PARTS):
        part = start + tl.arange(0, BLOCK_PARTS)[:, None]
        at = parts_ptr + part.to(tl.int64) * HIDDEN + col
        total += tl.load(at, mask=(part < parts) & (col < HIDDEN), other=0.0)
    tl.store(dw_ptr + col, tl.sum(total, axis=0, keep_dims=True), mask=col < HIDDEN)


KERNELS = (_rows_and_weight, _wide_rows, _wide_weight, _sum_parts)


class Launch(NamedTuple):
    """Launch parameters of one width, for rows that fit in registers."""

    block_rows: int
    block_hidden: int
    num_warps: int
    programs: int
    stages: int


@cache
def launch_for(hidden: int) -> Launch:
    """Choose how narrow rows are worked on, for 16 elements of each tensor a thread."""
    width = next_power_of_2(hidden)
    block_rows = max(1, 2048 // width)
    num_warps = max(1, min(16, block_rows * width // 512))
    return Launch(block_rows, width, num_warps, SMS * max(1, 16 // num_warps), stages=2)


def rms_norm_gradient(
    x: torch.Tensor,
    w: torch.Tensor,
    grad: torch.Tensor,
    added: torch.Tensor | None = None,
    eps: float = 1e-6,
    pdl: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of the rows of x and of the weight, from that of the result.

    x, grad and added are [rows, hidden], w [hidden]. `added` is a gradient that reaches x by
    another way: it is added to that of x before that is rounded.
    """
    rows, hidden = x.shape
    dx = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    if dx.numel() == 0:
        return dx, torch.zeros_like(w)
    x, grad = _readable(x), _readable(grad)
    added = None if added is None else _readable(added)
    if hidden <= WIDEST_IN_REGISTERS:
        parts = _launch_narrow(x, w.contiguous(), grad, added, dx, eps, pdl)
    else:
        parts = _launch_wide(x, w.contiguous(), grad, added, dx, eps, pdl)
    return dx, _launch_sum(parts, w, pdl)


def _readable(t: torch.Tensor) -> torch.Tensor:
    return t if t.stride(1) == 1 or t.shape[1] == 1 else t.contiguous()


def _launch_narrow(
    x: torch.Tensor, w: torch.Tensor, grad: torch.Tensor, added: torch.Tensor | None,
    dx: torch.Tensor, eps: float, pdl: bool,
) -> torch.Tensor:  # fmt: skip
    rows, hidden = x.shape
    launch = launch_for(hidden)
    programs = min(launch.programs, cdiv(rows, launch.block_rows))
    parts = torch.empty((programs, hidden), dtype=torch.float32, device=x.device)
    extra = x if added is None else added
    _rows_and_weight[(programs,)](
        x, w, grad, extra, dx, parts, x.stride(0), grad.stride(0), extra.stride(0), rows, eps,
        HIDDEN=hidden, ADD=added is not None, BLOCK_ROWS=launch.block_rows,
        BLOCK_HIDDEN=launch.block_hidden, STAGES=launch.stages, num_warps=launch.num_warps,
        enable_fp_fusion=True, **launch_options(pdl, programs),
    )  # fmt: skip
    return parts


def _launch_wide(
    x: torch.Tensor, w: torch.Tensor, grad: torch.Tensor, added: torch.Tensor | None,
    dx: torch.Tensor, eps: float, pdl: bool,
) -> torch.Tensor:  # fmt: skip
    rows, hidden = x.shape
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    extra = x if added is None else added
    _wide_rows[(rows,)](
        x, w, grad, extra, dx, scale, x.stride(0), grad.stride(0), extra.stride(0), eps,
        HIDDEN=hidden, ADD=added is not None, BLOCK_HIDDEN=WIDE_TILE, num_warps=32,
        enable_fp_fusion=True, **launch_options(pdl, rows),
    )  # fmt: skip
    tiles = cdiv(hidden, WEIGHT_TILE)
    count = min(cdiv(rows, 4), max(1, WEIGHT_PROGRAMS // tiles))
    parts = torch.empty((count, hidden), dtype=torch.float32, device=x.device)
    _wide_weight[(tiles * count,)](
        x, grad, scale, parts, x.stride(0), grad.stride(0), rows, count,
        HIDDEN=hidden, BLOCK_ROWS=4, BLOCK_HIDDEN=WEIGHT_TILE, num_warps=8,
        enable_fp_fusion=True, **launch_options(pdl, tiles * count),
    )  # fmt: skip
    return parts


def _launch_sum(parts: torch.Tensor, w: torch.Tensor, pdl: bool) -> torch.Tensor:
    count, hidden = parts.shape
    dw = torch.empty(hidden, dtype=w.dtype, device=w.device)
    block = 32 if hidden <= WIDEST_IN_REGISTERS else 128
    programs = cdiv(hidden, block)
    _sum_parts[(programs,)](
        parts, dw, count, HIDDEN=hidden, BLOCK_PARTS=min(64, next_power_of_2(count)),
        BLOCK_HIDDEN=block, num_warps=4, enable_fp_fusion=True, **launch_options(pdl, programs),
    )  # fmt: skip
    return dw
