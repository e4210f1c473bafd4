"""Sinkhorn backward, exact: the iterations in reverse, from factors recomputed or stored."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sinkhorn.forward import (
    EPS,
    FEW_PROGRAMS,
    LATENCY_BOUND,
    MOST_UNROLLED,
    launch_tile,
    packed_block,
    tile_warps,
)
from kernels.sinkhorn.parts import (
    first_columns,
    half_steps,
    joined,
    load_row,
    product,
    reciprocal,
    reciprocals,
    start_row,
    start_tile,
    times_columns,
    times_rows,
    total,
)
from kernels.sizes import cdiv, next_power_of_2


@triton.jit
def _minus_times_square(g, x):
    """Pull a gradient back through x = 1 / s."""
    return -g[0] * x[0] * x[0], -g[1] * x[1] * x[1], -g[2] * x[2] * x[2], -g[3] * x[3] * x[3]


@triton.jit
def _carried(g, new, old, eps, ASSEMBLY: tl.constexpr):
    """Pull a gradient back through new = old / (old s + eps), to old."""
    ratio = product(new, reciprocals(old, 2, ASSEMBLY))
    kept = product(g, product(ratio, ratio))
    return kept[0] * eps, kept[1] * eps, kept[2] * eps, kept[3] * eps


@triton.jit
def _outer(row, factor, v):
    """Add factor * v to a row of the gradient."""
    return (
        row[0] + factor * v[0],
        row[1] + factor * v[1],
        row[2] + factor * v[2],
        row[3] + factor * v[3],
    )


@triton.jit
def _columns_back(a, b, c, d, da, db, dc, dd, u, v, du, dv):
    """Undo one scaling of the columns; return the rows of the gradient and that of u."""
    t = _minus_times_square(dv, v)
    du = times_rows(a, b, c, d, t, du)
    return _outer(da, u[0], t), _outer(db, u[1], t), _outer(dc, u[2], t), _outer(dd, u[3], t), du


@triton.jit
def _rows_back(a, b, c, d, da, db, dc, dd, u, v, du, dv):
    """Undo one scaling of the rows, by the v before it; the rows of the gradient, that of v."""
    s = _minus_times_square(du, u)
    dv = times_columns(a, b, c, d, s, dv)
    return _outer(da, s[0], v), _outer(db, s[1], v), _outer(dc, s[2], v), _outer(dd, s[3], v), dv


@triton.jit
def _gradient_row(m, dm, eps, FORM: tl.constexpr):
    """Pull the gradient of a row of the matrix back to its logits."""
    if FORM == "softmax":
        s = (m[0] - eps, m[1] - eps, m[2] - eps, m[3] - eps)
        mean = total(product(s, dm))
        return (
            s[0] * (dm[0] - mean),
            s[1] * (dm[1] - mean),
            s[2] * (dm[2] - mean),
            s[3] * (dm[3] - mean),
        )
    else:
        return product(m, dm)


@triton.jit(do_not_specialize=["batch", "n_iter"])
def _scalars_backward(
    logits_ptr,
    grad_ptr,
    us_ptr,
    vs_ptr,
    out_ptr,
    batch,
    n_iter,
    eps,
    N_ITER: tl.constexpr,
    BLOCK: tl.constexpr,
    FORM: tl.constexpr,
    STORED: tl.constexpr,
    PAIRS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Differentiate 4 x 4 matrices, each by one thread.

    The factors of all iterations are kept in registers, or with STORED read from memory.
    """
    matrix = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    mask = (matrix < batch) & (tl.arange(0, 4)[None, :] < 4)
    offsets = matrix.to(tl.int64) * 16 + tl.arange(0, 4)[None, :]
    factors = matrix.to(tl.int64) * 4 + tl.arange(0, 4)[None, :]
    wait_for_previous(PDL)
    x0 = load_row(logits_ptr, offsets, mask, 0.0, BLOCK)
    x1 = load_row(logits_ptr, offsets + 4, mask, 0.0, BLOCK)
    x2 = load_row(logits_ptr, offsets + 8, mask, 0.0, BLOCK)
    x3 = load_row(logits_ptr, offsets + 12, mask, 0.0, BLOCK)
    g0 = load_row(grad_ptr, offsets, mask, 0.0, BLOCK)
    g1 = load_row(grad_ptr, offsets + 4, mask, 0.0, BLOCK)
    g2 = load_row(grad_ptr, offsets + 8, mask, 0.0, BLOCK)
    g3 = load_row(grad_ptr, offsets + 12, mask, 0.0, BLOCK)
    let_next_in(PDL)
    a, e0, u0 = start_row(x0, eps, FORM, ASSEMBLY)
    b, e1, u1 = start_row(x1, eps, FORM, ASSEMBLY)
    c, e2, u2 = start_row(x2, eps, FORM, ASSEMBLY)
    d, e3, u3 = start_row(x3, eps, FORM, ASSEMBLY)
    row_eps = (e0, e1, e2, e3)
    u = (u0, u1, u2, u3)
    one = tl.full(a[0].shape, 1.0, tl.float32)
    ones = (one, one, one, one)
    zero = tl.full(a[0].shape, 0.0, tl.float32)
    zeros = (zero, zero, zero, zero)
    v = ones
    us = (u,)
    vs = (v,)
    v_old = ones
    level = tl.full([], 4, tl.int64) * batch
    if STORED:
        last = tl.zeros_like(matrix) + n_iter
        v = load_row(vs_ptr, (n_iter - 1) * level + factors, mask & (last > 0), 1.0, BLOCK)
        v_old = load_row(vs_ptr, (n_iter - 2) * level + factors, mask & (last > 1), 1.0, BLOCK)
        if n_iter > 0:
            if FORM == "softmax":
                u = load_row(us_ptr, (n_iter - 1) * level + factors, mask, 1.0, BLOCK)
            else:
                u = reciprocals(times_rows(a, b, c, d, v_old, row_eps), PAIRS, ASSEMBLY)
    else:
        for step in tl.static_range(N_ITER):
            if FORM == "softmax" and step == 0:
                v = first_columns(a, b, c, d, u, v, eps, PAIRS, ASSEMBLY)
            else:
                u, v = half_steps(a, b, c, d, u, v, row_eps, eps, FORM, PAIRS, ASSEMBLY)
            us = us + (u,)  # noqa: RUF005 - Triton knows no unpacking
            vs = vs + (v,)  # noqa: RUF005
    # y = u M v: what its gradient is for each of the three.
    da = (u[0] * g0[0] * v[0], u[0] * g0[1] * v[1], u[0] * g0[2] * v[2], u[0] * g0[3] * v[3])
    db = (u[1] * g1[0] * v[0], u[1] * g1[1] * v[1], u[1] * g1[2] * v[2], u[1] * g1[3] * v[3])
    dc = (u[2] * g2[0] * v[0], u[2] * g2[1] * v[1], u[2] * g2[2] * v[2], u[2] * g2[3] * v[3])
    dd = (u[3] * g3[0] * v[0], u[3] * g3[1] * v[1], u[3] * g3[2] * v[2], u[3] * g3[3] * v[3])
    ga = product(g0, a)
    gb = product(g1, b)
    gc = product(g2, c)
    gd = product(g3, d)
    du = times_rows(ga, gb, gc, gd, v, zeros)
    dv = times_columns(ga, gb, gc, gd, u, zeros)
    if STORED:
        for back in range(n_iter):
            step = n_iter - 1 - back
            left = tl.zeros_like(matrix) + step
            da, db, dc, dd, du = _columns_back(a, b, c, d, da, db, dc, dd, u, v, du, dv)
            if FORM == "softmax":
                if step > 0:
                    u_old = load_row(us_ptr, (step - 1) * level + factors, mask, 1.0, BLOCK)
                    dv = _carried(dv, v, v_old, eps, ASSEMBLY)
                    da, db, dc, dd, dv = _rows_back(a, b, c, d, da, db, dc, dd, u, v_old, du, dv)
                    du = _carried(du, u, u_old, eps, ASSEMBLY)
                    u = u_old
            else:
                da, db, dc, dd, dv = _rows_back(a, b, c, d, da, db, dc, dd, u, v_old, du, zeros)
                du = zeros
            v = v_old
            v_old = load_row(vs_ptr, (step - 2) * level + factors, mask & (left > 1), 1.0, BLOCK)
            if FORM != "softmax":
                u = reciprocals(times_rows(a, b, c, d, v_old, row_eps), PAIRS, ASSEMBLY)
    else:
        for back in tl.static_range(N_ITER):
            v = vs[N_ITER - back]
            v_old = vs[N_ITER - 1 - back]
            if FORM == "softmax":
                u = us[N_ITER - back]
                u_old = us[N_ITER - 1 - back]
                da, db, dc, dd, du = _columns_back(a, b, c, d, da, db, dc, dd, u, v, du, dv)
                if back < N_ITER - 1:
                    dv = _carried(dv, v, v_old, eps, ASSEMBLY)
                    da, db, dc, dd, dv = _rows_back(a, b, c, d, da, db, dc, dd, u, v_old, du, dv)
                    du = _carried(du, u, u_old, eps, ASSEMBLY)
            else:
                # Cheaper to compute again than to keep.
                u = reciprocals(times_rows(a, b, c, d, v_old, row_eps), PAIRS, ASSEMBLY)
                da, db, dc, dd, du = _columns_back(a, b, c, d, da, db, dc, dd, u, v, du, dv)
                da, db, dc, dd, dv = _rows_back(a, b, c, d, da, db, dc, dd, u, v_old, du, zeros)
                du = zeros
    y0 = joined(_gradient_row(a, da, eps, FORM), BLOCK)
    y1 = joined(_gradient_row(b, db, eps, FORM), BLOCK)
    y2 = joined(_gradient_row(c, dc, eps, FORM), BLOCK)
    y3 = joined(_gradient_row(d, dd, eps, FORM), BLOCK)
    rows = tl.join(tl.join(y0, y2), tl.join(y1, y3))
    tile = tl.reshape(tl.permute(rows, (0, 2, 3, 1)), [BLOCK, 16])
    wide = matrix.to(tl.int64) * 16 + tl.arange(0, 16)[None, :]
    tl.store(out_ptr + wide, tile, mask=(matrix < batch) & (tl.arange(0, 16)[None, :] < 16))


@triton.jit(do_not_specialize=["batch", "n_iter"])
def _tile_backward(
    logits_ptr,
    grad_ptr,
    us_ptr,
    vs_ptr,
    out_ptr,
    batch,
    n_iter,
    eps,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK: tl.constexpr,
    FORM: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """Differentiate a tile of BLOCK matrices from stored factors."""
    matrix = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None, None]
    i = tl.arange(0, BLOCK_N)[None, :, None]
    j = tl.arange(0, BLOCK_N)[None, None, :]
    mask = (matrix < batch) & (i < N) & (j < N)
    offsets = matrix.to(tl.int64) * (N * N) + (i * N + j)
    u_at = matrix.to(tl.int64) * N + i
    v_at = matrix.to(tl.int64) * N + j
    u_mask = (matrix < batch) & (i < N)
    v_mask = (matrix < batch) & (j < N)
    x = tl.load(logits_ptr + offsets, mask=mask, other=float("-inf")).to(tl.float32)
    g = tl.load(grad_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    m, row_eps, u = start_tile(x, mask, eps, FORM)
    v = tl.full([BLOCK, 1, BLOCK_N], 1.0, tl.float32)
    level = tl.full([], N, tl.int64) * batch
    if n_iter > 0:
        v = tl.load(vs_ptr + (n_iter - 1) * level + v_at, mask=v_mask, other=1.0)
        if FORM == "softmax":
            u = tl.load(us_ptr + (n_iter - 1) * level + u_at, mask=u_mask, other=1.0)
    later = tl.zeros_like(matrix) + n_iter > 1
    v_old = tl.load(vs_ptr + (n_iter - 2) * level + v_at, mask=v_mask & later, other=1.0)
    if FORM != "softmax":  # noqa: SIM102 - one is known when this is compiled
        if n_iter > 0:
            u = reciprocal(tl.sum(m * v_old, axis=2, keep_dims=True) + row_eps, ASSEMBLY)
    dm = u * g * v
    du = tl.sum(g * m * v, axis=2, keep_dims=True)
    dv = tl.sum(g * m * u, axis=1, keep_dims=True)
    for back in range(n_iter):
        step = n_iter - 1 - back
        left = tl.zeros_like(matrix) + step
        t = -dv * v * v
        dm += u * t
        du += tl.sum(m * t, axis=2, keep_dims=True)
        if FORM == "softmax":
            u_old = tl.load(us_ptr + (step - 1) * level + u_at, mask=u_mask & (left > 0), other=1.0)
            s = tl.where(left > 0, -du * u * u, 0.0)
            ratio = v * reciprocal(v_old, ASSEMBLY)
            dv = dv * eps * ratio * ratio + tl.sum(m * s, axis=1, keep_dims=True)
            ratio = u * reciprocal(u_old, ASSEMBLY)
            du = du * eps * ratio * ratio
        else:
            s = -du * u * u
            dv = tl.sum(m * s, axis=1, keep_dims=True)
            du = du * 0.0
        dm += s * v_old
        v = v_old
        v_old = tl.load(vs_ptr + (step - 2) * level + v_at, mask=v_mask & (left > 1), other=1.0)
        if FORM == "softmax":
            u = u_old
        else:
            u = reciprocal(tl.sum(m * v_old, axis=2, keep_dims=True) + row_eps, ASSEMBLY)
    if FORM == "softmax":
        share = tl.where(mask, m - eps, 0.0)
        y = share * (dm - tl.sum(share * dm, axis=2, keep_dims=True))
    else:
        y = m * dm
    tl.store(out_ptr + offsets, y, mask=mask)


def kept_factors(
    logits: torch.Tensor, n_iter: int, form: str = "plain"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return memory for the factors of all iterations, rows' and columns', n_iter x batch x n.

    Row factors follow from the columns' except in the softmax form; elsewhere they take no memory.
    """
    shape = (n_iter, *logits.shape[:2])
    vs = logits.new_empty(shape, dtype=torch.float32)
    return torch.empty_like(vs) if form == "softmax" else vs, vs


def gradient_stored(
    logits: torch.Tensor,
    grad: torch.Tensor,
    kept: tuple[torch.Tensor, torch.Tensor],
    eps: float = EPS,
    form: str = "plain",
) -> torch.Tensor:
    """Differentiate from the factors that the forward pass stored, n_iter x batch x n each."""
    us, vs = kept
    if logits.shape[1] == 4:
        return _launch_scalars(logits, grad, us, vs, us.shape[0], eps, form, True, False)
    return _launch_tile_backward(logits, grad, us, vs, eps, form)


def gradient_recomputed(
    logits: torch.Tensor, grad: torch.Tensor, n_iter: int, eps: float = EPS, form: str = "plain",
    pdl: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Differentiate with nothing stored: the factors are computed again first."""
    if logits.shape[1] == 4 and n_iter <= MOST_UNROLLED:
        return _launch_scalars(logits, grad, logits, logits, n_iter, eps, form, False, pdl)
    kept = kept_factors(logits, n_iter, form)
    launch_tile(logits, n_iter, eps, form, packed_block(*logits.shape[:2]), kept)
    return gradient_stored(logits, grad, kept, eps, form)


def _launch_scalars(
    logits: torch.Tensor, grad: torch.Tensor, us: torch.Tensor, vs: torch.Tensor, n_iter: int,
    eps: float, form: str, stored: bool, pdl: bool,
) -> torch.Tensor:  # fmt: skip
    logits, grad = logits.contiguous(), grad.contiguous()
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    batch = logits.shape[0]
    # A third fewer registers than it would take lets a third more warps share the card.
    limit = {"maxnreg": 168} if batch > LATENCY_BOUND and logits.is_cuda and not stored else {}
    programs = cdiv(batch, 32)
    if batch:
        _scalars_backward[(programs,)](
            logits, grad, us, vs, out, batch, n_iter, eps,
            N_ITER=0 if stored else n_iter, BLOCK=32, FORM=form, STORED=stored, PAIRS=0,
            ASSEMBLY=logits.is_cuda, num_warps=1, enable_fp_fusion=True, **limit,
            **launch_options(pdl, programs, FEW_PROGRAMS),
        )  # fmt: skip
    return out


def _launch_tile_backward(
    logits: torch.Tensor, grad: torch.Tensor, us: torch.Tensor, vs: torch.Tensor, eps: float,
    form: str,
) -> torch.Tensor:  # fmt: skip
    logits, grad = logits.contiguous(), grad.contiguous()
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    batch, n, _ = logits.shape
    if out.numel():
        block, block_n = packed_block(batch, n), next_power_of_2(n)
        _tile_backward[(cdiv(batch, block),)](
            logits, grad, us, vs, out, batch, us.shape[0], eps,
            N=n, BLOCK_N=block_n, BLOCK=block, FORM=form, ASSEMBLY=logits.is_cuda,
            num_warps=tile_warps(block, block_n), enable_fp_fusion=True,
        )  # fmt: skip
    return out
