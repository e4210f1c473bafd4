"""Means over the batch of cos(t x) and sin(t x): nothing of batch x slices x points is written."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sigreg.parts import add_pair, added_rows, angle, cosine, sine, turns, zeros
from kernels.sizes import cdiv, next_power_of_2

MOST_EVEN = 32
DIRECT_POINTS = 8
# Blocks for each multiprocessor to have several; a constant, for sums of one order on every GPU.
PROGRAMS = 528
MOST_IN_ONE_BLOCK = 128


@triton.jit
def column_offset(column, slices, view_stride, APART: tl.constexpr):
    """Return where a column begins; columns are the slices of one view after the other."""
    if APART:
        return (column // slices).to(tl.int64) * view_stride + column % slices
    else:
        return column


@triton.jit
def _load(x_ptr, mask, WHOLE: tl.constexpr):
    if WHOLE:
        return tl.load(x_ptr)
    else:
        return tl.load(x_ptr, mask=mask, other=0.0)


@triton.jit
def _tiles(x_ptr, stride, mask, ROWS: tl.constexpr, PAIRS: tl.constexpr, WHOLE: tl.constexpr):
    """Ask for PAIRS pairs of tiles of ROWS rows."""
    xs = (_load(x_ptr, mask, WHOLE),)
    for i in tl.static_range(1, 2 * PAIRS):
        xs = xs + (_load(x_ptr + i * ROWS * stride, mask, WHOLE),)  # noqa: RUF005
    return xs


@triton.jit
def _add_tiles(xs, high, low, cosines, sines, N: tl.constexpr, PAIRS: tl.constexpr,
               ASSEMBLY: tl.constexpr):  # fmt: skip
    for i in tl.static_range(PAIRS):
        a = xs[2 * i].to(tl.float32)
        b = xs[2 * i + 1].to(tl.float32)
        cosines, sines = add_pair(a, b, high, low, cosines, sines, N, ASSEMBLY)
    return cosines, sines


@triton.jit(do_not_specialize=["batch", "rows"])
def _even(
    x_ptr,
    t_ptr,
    cos_ptr,
    sin_ptr,
    ticket_ptr,
    stride,
    view_stride,
    batch,
    rows,
    slices,
    columns,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    SLICES: tl.constexpr,
    ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
    WHOLE: tl.constexpr,
    APART: tl.constexpr,
    FINAL: tl.constexpr,
    TICKET: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Sum over `rows` rows of SLICES columns, a column a thread; points are k t[1], k = 0 to N.

    Columns are the slices of one view after the other, `view_stride` elements apart.

    With FINAL, there is one block of rows and means are written, [slices, N + 1]; else partial
    sums, [blocks, 2, N, slices].
    """
    wait_for_previous(PDL)
    let_next_in(PDL)
    block = tl.program_id(1)
    if TICKET and block + tl.program_id(0) == 0:
        tl.store(ticket_ptr, 0)
    begin = block * rows
    count = tl.minimum(batch - begin, rows)
    high, low = turns(tl.load(t_ptr + 1) * 0.25)
    row = tl.arange(0, ROWS)[:, None]
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[None, :]
    at = x_ptr + (begin + row).to(tl.int64) * stride + column_offset(s, slices, view_stride, APART)
    fits = (s < columns) & (row >= 0)
    cosines = zeros(N, ROWS, SLICES)
    sines = zeros(N, ROWS, SLICES)
    tile: tl.constexpr = 2 * PAIRS * ROWS
    whole = count // tile
    if whole > 0:
        xs = _tiles(at, stride, fits, ROWS, PAIRS, WHOLE)
        for _ in range(whole - 1):
            at += tile * stride
            # The next tiles are on their way while these are worked on.
            next_xs = _tiles(at, stride, fits, ROWS, PAIRS, WHOLE)
            cosines, sines = _add_tiles(xs, high, low, cosines, sines, N, PAIRS, ASSEMBLY)
            xs = next_xs
        cosines, sines = _add_tiles(xs, high, low, cosines, sines, N, PAIRS, ASSEMBLY)
        at += tile * stride
    # What is left goes by two tiles at a time; rows that are not there add a cosine of one.
    left = count % tile
    steps = tl.cdiv(left, 2 * ROWS)
    for i in range(steps):
        first = 2 * i * ROWS + row
        a = tl.load(at, mask=(s < columns) & (first < left), other=0.0).to(tl.float32)
        b = tl.load(at + ROWS * stride, mask=(s < columns) & (first + ROWS < left), other=0.0).to(
            tl.float32
        )
        cosines, sines = add_pair(a, b, high, low, cosines, sines, N, ASSEMBLY)
        at += 2 * ROWS * stride
    absent = (2 * ROWS * steps - left).to(tl.float32)
    c = 2.0 * added_rows(cosines, N, WIDTH, ROWS, SLICES) - absent
    v = 2.0 * added_rows(sines, N, WIDTH, ROWS, SLICES)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[:, None]
    k = tl.arange(0, WIDTH)[None, :]
    mask = (s < columns) & (k < N)
    if FINAL:
        at_out = s.to(tl.int64) * (N + 1) + k
        share = 1.0 / batch
        tl.store(cos_ptr + at_out + 1, c * share, mask=mask)
        tl.store(sin_ptr + at_out + 1, v * share, mask=mask)
        tl.store(cos_ptr + at_out, c * 0.0 + 1.0, mask=mask & (k == 0))
        tl.store(sin_ptr + at_out, v * 0.0, mask=mask & (k == 0))
    else:
        at_out = (block.to(tl.int64) * (2 * N) + k) * columns + s
        tl.store(cos_ptr + at_out, c, mask=mask)
        tl.store(cos_ptr + at_out + tl.cast(columns, tl.int64) * N, v, mask=mask)


@triton.jit(do_not_specialize=["batch", "rows"])
def _direct(
    x_ptr,
    t_ptr,
    sums_ptr,
    ticket_ptr,
    stride,
    view_stride,
    batch,
    rows,
    slices,
    columns,
    points,
    POINTS: tl.constexpr,
    SLICES: tl.constexpr,
    WARPS: tl.constexpr,
    APART: tl.constexpr,
    TICKET: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Sum over `rows` rows of SLICES columns at POINTS points, wherever they lie."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    block = tl.program_id(1)
    if TICKET and block + tl.program_id(0) + tl.program_id(2) == 0:
        tl.store(ticket_ptr, 0)
    begin = block * rows
    end = tl.minimum(batch, begin + rows)
    first = tl.program_id(2) * POINTS
    row = tl.arange(0, WARPS)[:, None]
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[None, :]
    column = x_ptr + column_offset(s, slices, view_stride, APART)
    cosines = zeros(POINTS, WARPS, SLICES)
    sines = zeros(POINTS, WARPS, SLICES)
    steps = (turns(tl.load(t_ptr + first)),)
    for k in tl.static_range(1, POINTS):
        t = tl.load(t_ptr + first + k, mask=first + k < points, other=0.0)
        steps = steps + (turns(t),)  # noqa: RUF005
    for start in range(begin, end, WARPS):
        there = (start + row < end) & (s < columns)
        x = tl.load(column + (start + row).to(tl.int64) * stride, mask=there, other=0.0)
        x = x.to(tl.float32)
        new_cosines = (cosines[0],)
        new_sines = (sines[0],)
        for k in tl.static_range(POINTS):
            turned = angle(x, steps[k][0], steps[k][1])
            c = cosines[k] + tl.where(there, cosine(turned, ASSEMBLY), 0.0)
            v = sines[k] + sine(turned, ASSEMBLY)
            if k == 0:
                new_cosines = (c,)
                new_sines = (v,)
            else:
                new_cosines = new_cosines + (c,)  # noqa: RUF005
                new_sines = new_sines + (v,)  # noqa: RUF005
        cosines = new_cosines
        sines = new_sines
    c = added_rows(cosines, POINTS, POINTS, WARPS, SLICES)
    v = added_rows(sines, POINTS, POINTS, WARPS, SLICES)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[:, None]
    k = first + tl.arange(0, POINTS)[None, :]
    mask = (s < columns) & (k < points)
    at_out = sums_ptr + (block.to(tl.int64) * (2 * points) + k) * columns + s
    tl.store(at_out, c, mask=mask)
    tl.store(at_out + tl.cast(points, tl.int64) * columns, v, mask=mask)


@triton.jit(do_not_specialize=["batch"])
def _reduce(
    sums_ptr,
    cos_ptr,
    sin_ptr,
    batch,
    slices,
    BLOCKS: tl.constexpr,
    N: tl.constexpr,
    ZERO: tl.constexpr,
    SLICES: tl.constexpr,
    POINTS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Add partial sums in their order and divide them by the batch; ZERO puts t = 0 in front."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    s = tl.program_id(0) * SLICES + tl.arange(0, SLICES)[None, :]
    k = tl.program_id(1) * POINTS + tl.arange(0, POINTS)[:, None]
    half = tl.program_id(2)
    mask = (s < slices) & (k < N)
    at = sums_ptr + (half * N + k).to(tl.int64) * slices + s
    total = tl.zeros([POINTS, SLICES], tl.float32)
    for block in tl.static_range(BLOCKS):
        total += tl.load(at + block * (2 * N) * tl.cast(slices, tl.int64), mask=mask, other=0.0)
    mean = total / batch
    out = cos_ptr
    if half == 1:
        out = sin_ptr
    at_out = s.to(tl.int64) * (N + ZERO) + k
    tl.store(out + at_out + ZERO, mean, mask=mask)
    if ZERO:
        first = mask & (k == 0)
        tl.store(out + at_out, tl.where(half == 0, 1.0, 0.0) + 0.0 * mean, mask=first)


class Launch(NamedTuple):
    """Columns and warps of a program, pairs of rows in flight, rows of a block, and blocks."""

    columns: int
    warps: int
    pairs: int
    rows: int
    blocks: int

    @property
    def tile_rows(self) -> int:
        """Rows that a program works on at once: an element a thread."""
        return self.warps * 32 // self.columns


def launch_for(batch: int, columns: int) -> Launch:
    """Choose how the rows are shared out, the same on every GPU."""
    if batch <= MOST_IN_ONE_BLOCK:
        return Launch(8, 4, 1, max(batch, 1), 1)
    return block_launch(batch, columns)


def block_launch(batch: int, columns: int) -> Launch:
    """Choose how the rows are shared out where sums of several blocks are welcome."""
    pairs = 1 if batch <= 512 else 2 if batch <= 4096 else 4
    return shared_out(batch, columns, 32, 4, pairs)


def shared_out(
    batch: int, columns: int, width: int, warps: int, pairs: int, programs: int = PROGRAMS
) -> Launch:
    """Return blocks of rows for about that many programs, each of whole tiles but the last."""
    tile = 2 * pairs * warps
    wanted = max(1, programs // cdiv(columns, width))
    rows = cdiv(cdiv(max(batch, 1), wanted), tile) * tile
    return Launch(width, warps, pairs, rows, max(1, cdiv(batch, rows)))


def trig_means(
    x_projected: torch.Tensor,
    integration_points: torch.Tensor,
    even: bool = False,
    pdl: bool = False,
    launch: Launch | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the means over the batch of cos(t x) and sin(t x).

    x_projected: [batch, slices] of float32, bfloat16 or float16, any strides; integration_points:
    [points] of float32. Returns two [slices, points] of float32; NaN for an empty batch. `even`
    says that the points are k t[1], k = 0, 1, ...: then an angle of each element is enough.
    """
    batch, slices = x_projected.shape
    t = integration_points.contiguous()
    cos_mean = torch.empty((slices, t.shape[0]), dtype=torch.float32, device=x_projected.device)
    sin_mean = torch.empty_like(cos_mean)
    if batch == 0 or cos_mean.numel() == 0:
        return cos_mean.fill_(torch.nan), sin_mean.fill_(torch.nan)
    x = rows_together(x_projected).unsqueeze(0)
    even = even and 1 < t.shape[0] <= MOST_EVEN + 1
    launch = launch or launch_for(batch, slices)
    if even and launch.blocks == 1:
        launch_even(x, t, cos_mean, sin_mean, launch, final=True, pdl=pdl)
    else:
        reduce_sums(sums_of(x, t, even, launch, pdl=pdl), cos_mean, sin_mean, batch, pdl)
    return cos_mean, sin_mean


def rows_together(x: torch.Tensor) -> torch.Tensor:
    """Return a matrix whose rows are contiguous, the same one where they are."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def sums_of(
    x: torch.Tensor,
    t: torch.Tensor,
    even: bool,
    launch: Launch | None = None,
    ticket: torch.Tensor | None = None,
    pdl: bool = False,
) -> torch.Tensor:
    """Return sums over blocks of rows of cos(t x) and sin(t x), [blocks, 2, n, columns].

    x: [views, batch, slices]; columns are the slices of one view after the other. n is the number
    of points; with `even`, that of points without t = 0. `ticket` is set to zero.
    """
    views, batch, slices = x.shape
    columns = views * slices
    launch = launch or block_launch(batch, columns)
    n = t.shape[0] - 1 if even else t.shape[0]
    sums = torch.empty((launch.blocks, 2, n, columns), dtype=torch.float32, device=x.device)
    if even:
        launch_even(x, t, sums, sums, launch, ticket=ticket, pdl=pdl)
    else:
        launch_direct(x, t, sums, launch, ticket=ticket, pdl=pdl)
    return sums


def launch_even(
    x: torch.Tensor, t: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, launch: Launch,
    final: bool = False, ticket: torch.Tensor | None = None, pdl: bool = False,
) -> None:  # fmt: skip
    """Launch the kernel of evenly spaced points."""
    views, batch, slices = x.shape
    n, columns = t.shape[0] - 1, views * slices
    grid = cdiv(columns, launch.columns), launch.blocks
    _even[grid](
        x, t, cos, sin, cos if ticket is None else ticket, x.stride(1), x.stride(0), batch,
        launch.rows, slices, columns,
        N=n, WIDTH=next_power_of_2(n), SLICES=launch.columns, ROWS=launch.tile_rows,
        PAIRS=launch.pairs, WHOLE=columns % launch.columns == 0, APART=views > 1, FINAL=final,
        TICKET=ticket is not None, ASSEMBLY=x.is_cuda, num_warps=launch.warps,
        enable_fp_fusion=True, **launch_options(pdl, grid[0] * grid[1]),
    )  # fmt: skip


def launch_direct(
    x: torch.Tensor, t: torch.Tensor, sums: torch.Tensor, launch: Launch,
    ticket: torch.Tensor | None = None, pdl: bool = False,
) -> None:  # fmt: skip
    """Launch the kernel of points wherever they lie."""
    views, batch, slices = x.shape
    points, columns = t.shape[0], views * slices
    grid = (
        cdiv(columns, launch.columns), launch.blocks, cdiv(points, DIRECT_POINTS)
    )  # fmt: skip
    _direct[grid](
        x, t, sums, sums if ticket is None else ticket, x.stride(1), x.stride(0), batch,
        launch.rows, slices, columns, points,
        POINTS=DIRECT_POINTS, SLICES=launch.columns, WARPS=launch.warps, APART=views > 1,
        TICKET=ticket is not None, ASSEMBLY=x.is_cuda, num_warps=launch.warps,
        enable_fp_fusion=True, **launch_options(pdl, grid[0] * grid[1] * grid[2]),
    )  # fmt: skip


def reduce_sums(
    sums: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, batch: int, pdl: bool = False
) -> None:
    """Write the means; t = 0 comes first where the sums lack it."""
    blocks, _, n, slices = sums.shape
    grid = cdiv(slices, 64), cdiv(n, 8), 2
    _reduce[grid](
        sums, cos, sin, batch, slices,
        BLOCKS=blocks, N=n, ZERO=cos.shape[1] - n, SLICES=64, POINTS=8, num_warps=4,
        enable_fp_fusion=True, **launch_options(pdl, grid[0] * grid[1] * grid[2]),
    )  # fmt: skip
