"""From sums over the batch to the loss, and from its gradient back to that of the sums."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sigreg.epilogue import clipped
from kernels.sizes import cdiv, next_power_of_2


@triton.jit
def add_up(value, parts_ptr, ticket_ptr, loss_ptr, share, PROGRAMS: tl.constexpr,
           BLOCK: tl.constexpr):  # fmt: skip
    """Add one number of each program, in the order of the programs: the last to come does it.

    The ticket, zero before, is one more than all programs use at the end.
    """
    program = tl.program_id(0)
    if PROGRAMS == 1:
        tl.store(loss_ptr, value * share)
    else:
        tl.store(parts_ptr + program, value)
        tl.debug_barrier()
        before = tl.atomic_add(ticket_ptr, 1, sem="acq_rel", scope="gpu")
        if before == PROGRAMS - 1:
            at = tl.arange(0, BLOCK)
            parts = tl.load(parts_ptr + at, mask=at < PROGRAMS, other=0.0, cache_modifier=".cg")
            tl.store(loss_ptr, tl.sum(parts, axis=0) * share)


@triton.jit(do_not_specialize=["size", "clip"])
def _finish(
    sums_ptr,
    count_ptr,
    phi_ptr,
    weights_ptr,
    total_ptr,
    parts_ptr,
    ticket_ptr,
    loss_ptr,
    size,
    columns,
    clip,
    BLOCKS: tl.constexpr,
    N: tl.constexpr,
    ZERO: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    COUNTED: tl.constexpr,
    KEEP: tl.constexpr,
    CLIP: tl.constexpr,
    PDL: tl.constexpr,
):
    """Add the blocks of sums, weigh the squared errors of the means, take the mean over columns.

    With ZERO, sums lack the point t = 0, whose error is zero. With COUNTED, the number of rows
    behind a sum is read from memory. With KEEP, the sums of all blocks are written.
    """
    wait_for_previous(PDL)
    let_next_in(PDL)
    if COUNTED:
        size = tl.load(count_ptr)
    s = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    k = tl.arange(0, WIDTH)[:, None]
    mask = (s < columns) & (k < N)
    at = k.to(tl.int64) * columns + s
    half = tl.cast(columns, tl.int64) * N
    phi = tl.load(phi_ptr + ZERO + k, mask=k < N, other=0.0)
    weights = tl.load(weights_ptr + ZERO + k, mask=k < N, other=0.0)
    c = tl.load(sums_ptr + at, mask=mask, other=0.0)
    v = tl.load(sums_ptr + half + at, mask=mask, other=0.0)
    for block in tl.static_range(1, BLOCKS):
        c += tl.load(sums_ptr + 2 * block * half + at, mask=mask, other=0.0)
        v += tl.load(sums_ptr + (2 * block + 1) * half + at, mask=mask, other=0.0)
    if KEEP:
        tl.store(total_ptr + at, c, mask=mask)
        tl.store(total_ptr + half + at, v, mask=mask)
    away = tl.where(mask, c / size - phi, 0.0)
    v = v / size
    stats = clipped(
        tl.sum((away * away + v * v) * weights, axis=0, keep_dims=True) * size, clip, CLIP
    )
    stats = tl.sum(tl.where(s < columns, stats, 0.0))
    add_up(stats, parts_ptr, ticket_ptr, loss_ptr, 1.0 / columns, PROGRAMS, BLOCK)


@triton.jit(do_not_specialize=["size", "clip"])
def _finish_back(
    sums_ptr,
    count_ptr,
    phi_ptr,
    weights_ptr,
    grad_ptr,
    out_ptr,
    size,
    columns,
    clip,
    N: tl.constexpr,
    ZERO: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    COUNTED: tl.constexpr,
    CLIP: tl.constexpr,
    PDL: tl.constexpr,
):
    """Pull the gradient of the loss back to the sums."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    if COUNTED:
        size = tl.load(count_ptr)
    s = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    k = tl.arange(0, WIDTH)[:, None]
    mask = (s < columns) & (k < N)
    at = k.to(tl.int64) * columns + s
    half = tl.cast(columns, tl.int64) * N
    phi = tl.load(phi_ptr + ZERO + k, mask=k < N, other=0.0)
    weights = tl.load(weights_ptr + ZERO + k, mask=k < N, other=0.0)
    grad = tl.load(grad_ptr).to(tl.float32) * 2.0 / columns
    away = tl.load(sums_ptr + at, mask=mask, other=0.0) / size - phi
    v = tl.load(sums_ptr + half + at, mask=mask, other=0.0) / size
    if CLIP != "none":
        error = tl.where(mask, away * away + v * v, 0.0)
        stats = tl.sum(error * weights, axis=0, keep_dims=True) * size
        grad = tl.where(stats < clip, 0.0, grad)
    tl.store(out_ptr + at, grad * weights * away, mask=mask)
    tl.store(out_ptr + half + at, grad * weights * v, mask=mask)


def finish(
    sums: torch.Tensor,
    size: float | torch.Tensor,
    phi: torch.Tensor,
    weights: torch.Tensor,
    ticket: torch.Tensor,
    clip: str = "none",
    clip_value: float = 0.0,
    keep: bool = False,
    pdl: bool = False,
    block_columns: int = 32,
    num_warps: int = 4,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss, a scalar, and with `keep` the sums over all blocks, [2, n, columns].

    sums: [blocks, 2, n, columns]; `size` is the number of rows behind them, on the device where it
    is a tensor; ticket: one int32 that is zero. phi and weights may have one point more than sums,
    t = 0, in front.
    """
    blocks, _, n, columns = sums.shape
    loss = torch.empty((), dtype=torch.float32, device=sums.device)
    programs = cdiv(columns, block_columns)
    total = torch.empty(sums.shape[1:], dtype=torch.float32, device=sums.device) if keep else sums
    parts = torch.empty(programs, dtype=torch.float32, device=sums.device)
    counted = isinstance(size, torch.Tensor)
    _finish[(programs,)](
        sums, size if counted else sums, phi, weights, total, parts, ticket, loss,
        0.0 if counted else float(size), columns, float(clip_value),
        BLOCKS=blocks, N=n, ZERO=phi.shape[0] - n, WIDTH=next_power_of_2(n),
        COLUMNS=block_columns, PROGRAMS=programs, BLOCK=next_power_of_2(programs),
        COUNTED=counted, KEEP=keep, CLIP=clip, num_warps=num_warps, enable_fp_fusion=True,
        **launch_options(pdl, programs),
    )  # fmt: skip
    return loss, total


def finish_back(
    grad: torch.Tensor,
    sums: torch.Tensor,
    size: float | torch.Tensor,
    phi: torch.Tensor,
    weights: torch.Tensor,
    clip: str = "none",
    clip_value: float = 0.0,
    pdl: bool = False,
) -> torch.Tensor:
    """Return the gradient of the sums, [2, n, columns], from that of the loss, a scalar."""
    _, n, columns = sums.shape
    out = torch.empty_like(sums)
    counted = isinstance(size, torch.Tensor)
    programs = cdiv(columns, 32)
    _finish_back[(programs,)](
        sums, size if counted else sums, phi, weights, grad, out,
        0.0 if counted else float(size), columns, float(clip_value),
        N=n, ZERO=phi.shape[0] - n, WIDTH=next_power_of_2(n), COLUMNS=32,
        COUNTED=counted, CLIP=clip, num_warps=4, enable_fp_fusion=True,
        **launch_options(pdl, programs),
    )  # fmt: skip
    return out
