"""The gradient of the sums over the batch, back to the projected embeddings."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sigreg.parts import angle, cosine, sine, turns
from kernels.sigreg.trig import Launch, column_offset, shared_out
from kernels.sizes import cdiv

# Nothing is added over blocks, so that they may be small.
MOST_PROGRAMS = 2112


@triton.jit
def _replaced(xs, INDEX: tl.constexpr, x, COUNT: tl.constexpr):
    """Return a tuple with another element."""
    ys = (x if INDEX == 0 else xs[0],)
    for i in tl.static_range(1, COUNT):
        ys = ys + (x if i == INDEX else xs[i],)  # noqa: RUF005
    return ys


@triton.jit
def _folded(for_cosines, for_sines, N: tl.constexpr, GROUPS: tl.constexpr):
    """Turn coefficients of cos k and sin k, k = 0 to N, into those of products.

    cos(q + j) = 2 cos q cos j - cos(q - j) and sin(q + j) = 2 sin q cos j - sin(q - j), for q = 4,
    8, ... and j = 1 to 4: what is left belongs to k = 0 to 4, the rest to cos q cos j and
    sin q cos j, and takes a third less work than the recurrence of sums.
    """
    for q in tl.static_range(4 * GROUPS - 4, 0, -4):
        for j in tl.static_range(1, 5):
            if q + j <= N:
                c = for_cosines[q + j]
                s = for_sines[q + j]
                for_cosines = _replaced(for_cosines, q - j, for_cosines[q - j] - c, N + 1)
                for_sines = _replaced(for_sines, q - j, for_sines[q - j] - s, N + 1)
                for_cosines = _replaced(for_cosines, q + j, c + c, N + 1)
                for_sines = _replaced(for_sines, q + j, s + s, N + 1)
    return for_cosines, for_sines


@triton.jit
def _series(x, high, low, for_cosines, for_sines, N: tl.constexpr, GROUPS: tl.constexpr,
            ASSEMBLY: tl.constexpr):  # fmt: skip
    """Evaluate the folded series at an angle of x times a step."""
    turned = angle(x, high, low)
    s1 = sine(turned, ASSEMBLY)
    c1 = cosine(turned, ASSEMBLY)
    total = for_sines[1] * s1 + (for_cosines[1] * c1 + for_cosines[0])
    cs = (c1,)
    if N > 1:
        twice = s1 + s1
        c2 = tl.fma(-twice, s1, 1.0)
        s2 = twice * c1
        total = for_sines[2] * s2 + (for_cosines[2] * c2 + total)
        cs = cs + (c2,)  # noqa: RUF005
    if N > 2:
        double = c1 + c1
        c3 = double * c2 - c1
        s3 = double * s2 - s1
        total = for_sines[3] * s3 + (for_cosines[3] * c3 + total)
        cs = cs + (c3,)  # noqa: RUF005
    if N > 3:
        s4 = sine(turned * 4.0, ASSEMBLY)
        c4 = cosine(turned * 4.0, ASSEMBLY)
        total = for_sines[4] * s4 + (for_cosines[4] * c4 + total)
        cs = cs + (c4,)  # noqa: RUF005
        double4 = c4 + c4
        c_old = tl.zeros_like(c4) + 1.0
        s_old = tl.zeros_like(c4)
        cq = c4
        sq = s4
        for q in tl.static_range(4, 4 * GROUPS, 4):
            along_c = for_cosines[q + 1] * cs[0]
            along_s = for_sines[q + 1] * cs[0]
            for j in tl.static_range(2, 5):
                if q + j <= N:
                    along_c += for_cosines[q + j] * cs[j - 1]
                    along_s += for_sines[q + j] * cs[j - 1]
            total = sq * along_s + (cq * along_c + total)
            if q < 4 * GROUPS - 4:
                c_next = double4 * cq - c_old
                s_next = double4 * sq - s_old
                c_old = cq
                s_old = sq
                cq = c_next
                sq = s_next
    return total


@triton.jit(do_not_specialize=["batch", "rows"])
def _pull_even(
    x_ptr,
    t_ptr,
    grad_ptr,
    out_ptr,
    stride,
    view_stride,
    batch,
    rows,
    slices,
    columns,
    N: tl.constexpr,
    GROUPS: tl.constexpr,
    SLICES: tl.constexpr,
    WARPS: tl.constexpr,
    UNROLLED: tl.constexpr,
    APART: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Write the gradient of each element, a column a thread; grad is [2, N, columns]."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    begin = tl.program_id(1) * rows
    count = tl.minimum(batch - begin, rows)
    step = tl.load(t_ptr + 1)
    high, low = turns(step)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[None, :]
    known = s < columns
    grad_at = grad_ptr + s
    zero = tl.zeros([1, SLICES], tl.float32)
    for_cosines = (zero,)
    for_sines = (zero,)
    # d/dx cos(k t x) = -k t sin(k t x), d/dx sin(k t x) = k t cos(k t x).
    for k in tl.static_range(1, N + 1):
        dc = tl.load(grad_at + tl.cast(columns, tl.int64) * (k - 1), mask=known, other=0.0)
        ds = tl.load(grad_at + tl.cast(columns, tl.int64) * (N + k - 1), mask=known, other=0.0)
        for_cosines = for_cosines + (ds * (k * step),)  # noqa: RUF005
        for_sines = for_sines + (dc * (-k * step),)  # noqa: RUF005
    for_cosines, for_sines = _folded(for_cosines, for_sines, N, GROUPS)
    row = tl.arange(0, WARPS)[:, None]
    offset = column_offset(s, slices, view_stride, APART)
    at = (begin + row).to(tl.int64) * stride + offset
    for start in range(0, count, UNROLLED * WARPS):
        there = known & (start + row < count)
        xs = (tl.load(x_ptr + at, mask=there, other=0.0),)
        for i in tl.static_range(1, UNROLLED):
            mask = known & (start + i * WARPS + row < count)
            xs = xs + (tl.load(x_ptr + at + i * WARPS * stride, mask=mask, other=0.0),)  # noqa: RUF005
        for i in tl.static_range(UNROLLED):
            mask = known & (start + i * WARPS + row < count)
            x = xs[i].to(tl.float32)
            g = _series(x, high, low, for_cosines, for_sines, N, GROUPS, ASSEMBLY)
            tl.store(out_ptr + at + i * WARPS * stride, g, mask=mask)
        at += UNROLLED * WARPS * stride


@triton.jit(do_not_specialize=["batch", "rows"])
def _pull_direct(
    x_ptr,
    t_ptr,
    grad_ptr,
    out_ptr,
    stride,
    view_stride,
    batch,
    rows,
    slices,
    columns,
    points,
    SLICES: tl.constexpr,
    ROWS: tl.constexpr,
    APART: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Do the same at points wherever they lie; grad is [2, points, columns]."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    begin = tl.program_id(1) * rows
    end = tl.minimum(batch, begin + rows)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[None, :]
    known = s < columns
    offset = column_offset(s, slices, view_stride, APART)
    half = tl.cast(columns, tl.int64) * points
    for start in range(begin, end, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        mask = known & (row < end)
        at = row.to(tl.int64) * stride + offset
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.zeros([ROWS, SLICES], tl.float32)
        for k in range(points):
            t = tl.load(t_ptr + k)
            high, low = turns(t)
            dc = tl.load(grad_ptr + k * tl.cast(columns, tl.int64) + s, mask=known, other=0.0)
            ds = tl.load(
                grad_ptr + half + k * tl.cast(columns, tl.int64) + s, mask=known, other=0.0
            )
            turned = angle(x, high, low)
            g += t * (ds * cosine(turned, ASSEMBLY) - dc * sine(turned, ASSEMBLY))
        tl.store(out_ptr + at, g, mask=mask)


def pull_launch(batch: int, columns: int) -> Launch:
    """Choose how the rows are shared out."""
    return shared_out(batch, columns, 32, 4, 2, MOST_PROGRAMS)


def pull(
    x: torch.Tensor,
    t: torch.Tensor,
    grad: torch.Tensor,
    even: bool,
    out: torch.Tensor | None = None,
    launch: Launch | None = None,
    pdl: bool = False,
) -> torch.Tensor:
    """Return the gradient of x, [views, batch, slices], from that of its sums, [2, n, columns].

    `out` may be x itself.
    """
    views, batch, slices = x.shape
    out = torch.empty_like(x) if out is None else out
    if out.numel() == 0:
        return out
    columns = views * slices
    launch = launch or pull_launch(batch, columns)
    grid = cdiv(columns, launch.columns), launch.blocks
    options = {"num_warps": launch.warps, "enable_fp_fusion": True}
    options |= launch_options(pdl, grid[0] * grid[1])
    sizes = x.stride(1), x.stride(0), batch, launch.rows, slices, columns
    n = grad.shape[1]
    if even:
        _pull_even[grid](
            x, t, grad, out, *sizes, N=n, GROUPS=cdiv(n, 4), SLICES=launch.columns,
            WARPS=launch.warps, UNROLLED=2 * launch.pairs, APART=views > 1, ASSEMBLY=x.is_cuda,
            **options,
        )  # fmt: skip
    else:
        _pull_direct[grid](
            x, t, grad, out, *sizes, n, SLICES=launch.columns, ROWS=2 * launch.warps,
            APART=views > 1, ASSEMBLY=x.is_cuda, **options,
        )  # fmt: skip
    return out
