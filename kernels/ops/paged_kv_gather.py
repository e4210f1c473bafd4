"""Paged gather: rows of a key-value cache, found through a table of pages, laid side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.compiled import compiled
from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sizes import cdiv, next_power_of_2
from kernels.spec import Cost, Implementation, Mode, Op, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk

BLOCK_BYTES = 4096
WIDEST_SEGMENT_BYTES = 4096
BYTES_A_THREAD = 32


@triton.jit(do_not_specialize=["rows", "pages"])
def _gather(
    cache_ptr,
    table_ptr,
    out_ptr,
    cache_stride,
    page_stride,
    slot_stride,
    out_stride,
    rows,
    pages,
    HIDDEN: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    CACHES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    let_next_in(PDL)
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    col = tl.program_id(1) * BLOCK_HIDDEN + tl.arange(0, BLOCK_HIDDEN)[None, :]
    page = tl.load(table_ptr + row // PAGE_SIZE, mask=row < rows, other=-1)
    held = ((page >= 0) & (page < pages))[:, None] & (col < HIDDEN)
    written = (row < rows)[:, None] & (col < HIDDEN)
    source = page.to(tl.int64) * page_stride + (row % PAGE_SIZE).to(tl.int64) * slot_stride
    source = cache_ptr + source[:, None] + col
    target = out_ptr + row.to(tl.int64)[:, None] * HIDDEN + col
    for _ in tl.static_range(CACHES):
        # A page that does not exist is not read: its rows are zero.
        x = tl.load(source, mask=held, other=0.0)
        tl.store(target, x, mask=written)
        source += cache_stride
        target += out_stride


class Launch(NamedTuple):
    """Launch parameters of one row width; the number of rows only sets the grid."""

    block_rows: int
    block_hidden: int
    num_warps: int


def launch_for(hidden: int, element_bytes: int) -> Launch:
    """Choose tiles of about BLOCK_BYTES, BYTES_A_THREAD of them for each thread."""
    width = min(next_power_of_2(hidden), WIDEST_SEGMENT_BYTES // element_bytes)
    block_rows = max(1, BLOCK_BYTES // (width * element_bytes))
    block_bytes = block_rows * width * element_bytes
    return Launch(block_rows, width, num_warps=max(1, block_bytes // (32 * BYTES_A_THREAD)))


def gather_pages(
    cache: torch.Tensor, table: torch.Tensor, rows: int, pdl: bool = False
) -> torch.Tensor:
    """Gather the first rows of the pages of a table with the Triton kernel.

    `cache` is (caches, pages, page_size, hidden) of any strides, keys and values for example;
    `table` holds int32 or int64 page numbers, one for each page_size rows. Returns (caches, rows,
    hidden). Rows of a page number below 0 or beyond the cache are zero, and nothing is read there.
    With `pdl` (Hopper and newer) the kernel may come onto the card before the one before it ends.
    """
    caches, pages, page_size, hidden = cache.shape
    if table.numel() * page_size < rows:
        raise ValueError(f"{table.numel()} pages of {page_size} rows do not hold {rows} rows")
    out = torch.empty((caches, rows, hidden), dtype=cache.dtype, device=cache.device)
    if out.numel() == 0:
        return out
    cache = cache if cache.stride(3) == 1 or hidden == 1 else cache.contiguous()
    launch = launch_for(hidden, cache.element_size())
    grid = (cdiv(rows, launch.block_rows), cdiv(hidden, launch.block_hidden))
    _gather[grid](
        cache, table.contiguous(), out,
        cache.stride(0), cache.stride(1), cache.stride(2), out.stride(0), rows, pages,
        HIDDEN=hidden, PAGE_SIZE=page_size, CACHES=caches,
        BLOCK_ROWS=launch.block_rows, BLOCK_HIDDEN=launch.block_hidden,
        num_warps=launch.num_warps, **launch_options(pdl, grid[0] * grid[1]),
    )  # fmt: skip
    return out


def gather_rows(source: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Gather rows of a (rows, hidden) matrix by their numbers: a page is then one row."""
    return gather_pages(source[None, :, None, :], indices, indices.numel())[0]


def reference(cache: torch.Tensor, table: torch.Tensor, rows: int) -> torch.Tensor:
    """Index the pages as PyTorch does: a page that does not exist is an error there."""
    return cache[:, table].flatten(1, 2)[:, :rows]


def selected(cache: torch.Tensor, table: torch.Tensor, rows: int) -> torch.Tensor:
    """Select pages along the first dimension that has more than one entry."""
    if cache.shape[0] == 1:
        return torch.index_select(cache[0], 0, table).flatten(0, 1)[None, :rows]
    return torch.index_select(cache, 1, table).flatten(1, 2)[:, :rows]


def _rows(inputs: Inputs) -> int:
    return int(inputs["rows"])


def _torch(inputs: Inputs) -> Thunk:
    cache, table, rows = inputs["cache"], inputs["table"], _rows(inputs)
    return lambda: reference(cache, table, rows)


def _torch_index_select(inputs: Inputs) -> Thunk:
    cache, table, rows = inputs["cache"], inputs["table"], _rows(inputs)
    return lambda: selected(cache, table, rows)


def _torch_compile(inputs: Inputs) -> Thunk:
    cache, table, rows = inputs["cache"], inputs["table"], _rows(inputs)
    function = compiled(reference, inputs, rows)
    return lambda: function(cache, table, rows)


def _triton(inputs: Inputs) -> Thunk:
    cache, table, rows = inputs["cache"], inputs["table"], _rows(inputs)
    return lambda: gather_pages(cache, table, rows)


def _triton_pdl(inputs: Inputs) -> Thunk:
    cache, table, rows = inputs["cache"], inputs["table"], _rows(inputs)
    return lambda: gather_pages(cache, table, rows, pdl=True)


def pages_held(workload: Workload) -> int:
    """Return the pages of a cache: four times as many as are gathered, one more at least."""
    gathered = cdiv(workload["rows"], workload["page_size"])
    return max(4 * gathered, gathered + 1)


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw a cache and distinct pages of it; the number of rows is a tensor on the host."""
    pages = pages_held(workload)
    shape = (workload["caches"], pages, workload["page_size"], workload["hidden"])
    dtype = getattr(torch, workload.dtype)
    cache = torch.randn(shape, generator=generator, device=device, dtype=dtype)
    order = torch.randperm(pages, generator=generator, device=device, dtype=torch.int32)
    gathered = cdiv(workload["rows"], workload["page_size"])
    return {
        "cache": cache,
        "table": order.narrow(0, 0, gathered).clone(),
        "rows": torch.tensor(workload["rows"]),
    }


def oracle(inputs: Inputs) -> torch.Tensor:
    """Address every row by itself, in float64."""
    cache, table = inputs["cache"], inputs["table"].long()
    row = torch.arange(_rows(inputs), device=cache.device)
    page_size = cache.shape[2]
    address = table[row // page_size] * page_size + row % page_size
    lines = cache.flatten(1, 2)
    return lines.gather(1, address[None, :, None].expand(len(lines), -1, lines.shape[2])).double()


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count each gathered row read and written, and the table read; nothing is computed."""
    rows = workload["rows"]
    moved = 2 * workload["caches"] * rows * workload["hidden"]
    element_bytes = getattr(torch, workload.dtype).itemsize
    table_bytes = 4 * cdiv(rows, workload["page_size"])
    return Cost(flops=0, minimal_bytes=moved * element_bytes + table_bytes)


def _workloads() -> tuple[Workload, ...]:
    tags: dict[tuple[int, int, int, int, str], set[str]] = {}

    def add(rows: int, hidden: int, page: int, caches: int, dtype: str, *names: str) -> None:
        tags.setdefault((rows, hidden, page, caches, dtype), set()).update(names)

    add(2**20, 128, 1, 1, "bfloat16", "default")
    add(2**17, 1024, 16, 2, "bfloat16", "default")
    for rows in (128, 512):
        add(rows, 128, 1, 1, "float16", "default", "cpu")
    for rows in (2**13, 2**16):
        add(rows, 128, 1, 1, "float16", "default")
    add(2**13, 1024, 16, 2, "bfloat16", "cpu")
    for exponent in (10, 12, 14, 16, 18, 22):
        add(2**exponent, 128, 1, 1, "bfloat16", "full")
    for hidden in (64, 256, 1024, 4096):
        add(2**27 // hidden, hidden, 1, 1, "bfloat16", "full")
    for page in (1, 8, 16, 64, 256):
        add(2**15, 1024, page, 2, "bfloat16", "full")
    for dtype in ("float16", "bfloat16", "float32"):
        add(5, 24, 2, 2, dtype, "smoke")
        add(7, 128, 1, 1, dtype, "smoke")
        add(33, 80, 16, 2, dtype, "edge")
        add(65, 17, 1, 1, dtype, "edge")
        add(3, 4104, 1, 1, dtype, "edge")
    for sizes in ((0, 64, 1, 1), (0, 64, 16, 2), (1, 1, 1, 1), (257, 64, 3, 2)):
        add(*sizes, "float16", "edge")
    names = ("rows", "hidden", "page_size", "caches")
    return tuple(
        Workload(dict(zip(names, sizes, strict=True)), dtype, frozenset(chosen))
        for (*sizes, dtype), chosen in tags.items()
    )


EXACT = Tolerance(absolute=0.0, relative=0.0, norm=0.0)

OP = Op(
    name="paged_kv_gather",
    title="Paged KV gather",
    summary="Lays rows of a key-value cache side by side that lie in scattered pages; with pages "
    "of one row it gathers rows by their numbers.",
    formula="y[c, r] = cache[c, table[r // page_size], r % page_size]",
    axis="rows",
    inputs="cache ~ N(0, 1), rounded to the dtype; a quarter of its pages, in random order, each "
    "once",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="PyTorch's advanced indexing.",
        ),
        Implementation(
            name="torch-index-select",
            kind="eager",
            build=_torch_index_select,
            summary="torch.index_select.",
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            summary="Advanced indexing through torch.compile, compiled for each shape.",
        ),
        Implementation(
            name="triton",
            kind="triton",
            build=_triton,
            summary="One kernel, a page number read once for all caches; pages that do not exist "
            "give zeros.",
            kernels=lambda: (_gather,),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            summary="The same kernel with programmatic dependent launch.",
            least_sm=90,
            kernels=lambda: (_gather,),
            launches=lambda workload: 1,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    # A copy: not one bit may differ.
    tolerance={"float16": EXACT, "bfloat16": EXACT, "float32": EXACT},
    cost=cost,
)
