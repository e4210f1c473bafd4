"""QK dot: attention scores, a query times a key."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.compiled import compiled
from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.sizes import cdiv, next_power_of_2
from kernels.spec import Cost, Implementation, Mode, Op, Pipe, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk

PAIRED_TILE = 2048


@triton.jit(do_not_specialize=["rows"])
def _paired(
    q_ptr,
    k_ptr,
    out_ptr,
    q_stride,
    k_stride,
    rows,
    HIDDEN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    let_next_in(PDL)
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    q_ptr += row[:, None] * q_stride
    k_ptr += row[:, None] * k_stride
    products = tl.zeros([BLOCK_ROWS, BLOCK_HIDDEN], tl.float32)
    for start in range(0, HIDDEN, BLOCK_HIDDEN):
        col = start + tl.arange(0, BLOCK_HIDDEN)[None, :]
        mask = (row[:, None] < rows) & (col < HIDDEN)
        # No hint that lines are read once: measured on an H200, it costs 2 % of the bandwidth.
        q = tl.load(q_ptr + col, mask=mask, other=0.0)
        k = tl.load(k_ptr + col, mask=mask, other=0.0)
        products += q.to(tl.float32) * k.to(tl.float32)
    tl.store(out_ptr + row, tl.sum(products, axis=1), mask=row < rows)


@triton.jit(do_not_specialize=["heads"])
def _grouped(
    q_ptr,
    k_ptr,
    out_ptr,
    q_batch,
    q_head,
    q_stride,
    k_batch,
    k_head,
    k_stride,
    heads,
    keys,
    QUERIES: tl.constexpr,
    HIDDEN: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    WIDEN: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    let_next_in(PDL)
    # Tiles of queries take turns first: they find the keys in L2.
    QUERY_TILES: tl.constexpr = (QUERIES + BLOCK_QUERIES - 1) // BLOCK_QUERIES
    tile = tl.program_id(0) // QUERY_TILES
    key_tiles = tl.cdiv(keys, BLOCK_KEYS)
    group = (tile // key_tiles).to(tl.int64)
    key = (tile % key_tiles).to(tl.int64) * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
    query = tl.program_id(0) % QUERY_TILES * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    q_ptr += group // heads * q_batch + group % heads * q_head
    k_ptr += group // heads * k_batch + group % heads * k_head
    q_ptr += query[:, None].to(tl.int64) * q_stride
    k_ptr += key[:, None] * k_stride
    known_query, known_key = query[:, None] < QUERIES, key[:, None] < keys
    scores = tl.zeros([BLOCK_QUERIES, BLOCK_KEYS], tl.float32)
    for start in range(0, HIDDEN, BLOCK_HIDDEN):
        col = start + tl.arange(0, BLOCK_HIDDEN)[None, :]
        known = col < HIDDEN
        q = tl.load(q_ptr + col, known_query & known, other=0.0, eviction_policy="evict_last")
        k = tl.load(k_ptr + col, known_key & known, other=0.0)
        if WIDEN:
            q, k = q.to(tl.float32), k.to(tl.float32)
        scores = tl.dot(q, k.T, scores, input_precision="ieee")
    out_ptr += (group * QUERIES + query[:, None]) * keys + key[None, :]
    mask = known_query & (key[None, :] < keys)
    tl.store(out_ptr, scores, mask=mask, cache_modifier=".cs")


class PairedLaunch(NamedTuple):
    """Launch parameters of one width; the number of rows only sets the grid."""

    block_rows: int
    block_hidden: int
    num_warps: int


class GroupedLaunch(NamedTuple):
    """Launch parameters of one width, number of queries and dtype."""

    block_queries: int
    block_keys: int
    block_hidden: int
    num_warps: int


@cache
def paired_launch(hidden: int) -> PairedLaunch:
    """Choose the tile of rows of that width, for 16 elements of each side a thread."""
    block_hidden = min(PAIRED_TILE, next_power_of_2(hidden))
    block_rows = min(64, PAIRED_TILE // block_hidden)
    return PairedLaunch(block_rows, block_hidden, num_warps=4)


@cache
def grouped_launch(queries: int, hidden: int, dtype: torch.dtype) -> GroupedLaunch:
    """Choose the tile of scores: on tensor cores, which want 16 queries, or in float32 without."""
    width = max(16, next_power_of_2(hidden))
    if dtype == torch.float32:
        return GroupedLaunch(16, 32, min(32, width), num_warps=4)
    wide = min(64, max(16, next_power_of_2(queries)))
    return GroupedLaunch(wide, 64, min(128, width), num_warps=4)


def qk_dot(q: torch.Tensor, k: torch.Tensor, pdl: bool = False) -> torch.Tensor:
    """Return the float32 dot product of each row of q with the same row of k.

    Both are matrices of any row strides, for example views of one buffer of queries, keys, values.
    With `pdl` (Hopper and newer) the kernel may come onto the card before the one before it ends.
    """
    rows, hidden = q.shape
    out = torch.empty(rows, dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return out.zero_()
    q, k = (t if t.stride(1) == 1 or hidden == 1 else t.contiguous() for t in (q, k))
    launch = paired_launch(hidden)
    programs = cdiv(rows, launch.block_rows)
    _paired[(programs,)](
        q, k, out, q.stride(0), k.stride(0), rows,
        HIDDEN=hidden, BLOCK_ROWS=launch.block_rows, BLOCK_HIDDEN=launch.block_hidden,
        num_warps=launch.num_warps, enable_fp_fusion=True, **launch_options(pdl, programs),
    )  # fmt: skip
    return out


def grouped_qk_dot(q: torch.Tensor, k: torch.Tensor, pdl: bool = False) -> torch.Tensor:
    """Return the float32 scores of decoding: the queries of a group times each key of the group.

    q is [..., queries, hidden], k [..., keys, hidden] of any strides, with one or two dimensions
    before, say batch and key-value head; the scores are [..., queries, keys]. `pdl` is as above.
    """
    (queries, hidden), keys = q.shape[-2:], k.shape[-2]
    out = torch.empty((*q.shape[:-1], keys), dtype=torch.float32, device=q.device)
    if q.numel() == 0 or k.numel() == 0:
        return out.zero_()
    q, k = (t if t.stride(-1) == 1 or hidden == 1 else t.contiguous() for t in (q, k))
    q, k = (t if t.dim() == 4 else t.unsqueeze(0) for t in (q, k))
    launch = grouped_launch(queries, hidden, q.dtype)
    tiles = cdiv(keys, launch.block_keys) * cdiv(queries, launch.block_queries)
    programs = q.shape[0] * q.shape[1] * tiles
    _grouped[(programs,)](
        q, k, out, *q.stride()[:3], *k.stride()[:3], q.shape[1], keys,
        QUERIES=queries, HIDDEN=hidden, BLOCK_QUERIES=launch.block_queries,
        BLOCK_KEYS=launch.block_keys, BLOCK_HIDDEN=launch.block_hidden,
        # Triton's interpreter cannot multiply matrices of bfloat16.
        WIDEN=q.device.type == "cpu",
        num_warps=launch.num_warps, enable_fp_fusion=True, **launch_options(pdl, programs),
    )  # fmt: skip
    return out


def reference(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Compute the formula operator by operator, in float32; groups share their keys."""
    if q.dim() == 2:
        return (q.float() * k.float()).sum(dim=-1)
    return (q.float()[:, :, None] * k.float()[:, None]).sum(dim=-1)


def _torch(inputs: Inputs) -> Thunk:
    q, k = inputs["q"], inputs["k"]
    return lambda: reference(q, k)


def _torch_matmul(inputs: Inputs) -> Thunk:
    q, k = inputs["q"], inputs["k"].mT
    if q.dim() == 2:
        q, k = q[:, None], inputs["k"][:, :, None]
    shape = q.shape[:1] if inputs["q"].dim() == 2 else (*q.shape[:2], k.shape[2])
    if q.is_cuda and q.dtype != torch.float32:
        return lambda: torch.bmm(q, k, out_dtype=torch.float32).view(shape)
    return lambda: torch.bmm(q.float(), k.float()).view(shape)


def _matmul_unsupported(workload: Workload) -> str | None:
    return None if "queries" in workload.sizes else "pairs of rows are no matrix product"


def _torch_compile(inputs: Inputs) -> Thunk:
    q, k = inputs["q"], inputs["k"]
    function = compiled(reference, inputs)
    return lambda: function(q, k)


def _triton(inputs: Inputs) -> Thunk:
    q, k = inputs["q"], inputs["k"]
    function = qk_dot if q.dim() == 2 else grouped_qk_dot
    return lambda: function(q, k)


def _triton_pdl(inputs: Inputs) -> Thunk:
    q, k = inputs["q"], inputs["k"]
    function = qk_dot if q.dim() == 2 else grouped_qk_dot
    return lambda: function(q, k, pdl=True)


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw one set of inputs, of pairs of rows or of groups that share their keys."""
    dtype = getattr(torch, workload.dtype)
    rows, hidden = workload["rows"], workload["hidden"]
    q_shape, k_shape = (rows, hidden), (rows, hidden)
    if "queries" in workload.sizes:
        groups = rows // workload["keys"]
        q_shape = (groups, workload["queries"], hidden)
        k_shape = (groups, workload["keys"], hidden)
    q = torch.randn(q_shape, generator=generator, device=device, dtype=torch.float32)
    k = torch.randn(k_shape, generator=generator, device=device, dtype=dtype)
    return {"q": (q * hidden**-0.5).to(dtype), "k": k}


def oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the truth in float64, by matrix products and the trace of pairs."""
    q, k = inputs["q"].double(), inputs["k"].double()
    if q.dim() == 2:
        return torch.einsum("rh,rh->r", q, k)
    return torch.einsum("gqh,gkh->gqk", q, k)


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count a product and a sum for each query, key and element."""
    rows, hidden = workload["rows"], workload["hidden"]
    queries, keys = workload.sizes.get("queries", 1), workload.sizes.get("keys", 1)
    query_rows = rows // keys * queries
    element_bytes = getattr(torch, workload.dtype).itemsize
    return Cost(
        flops=2 * rows * queries * hidden,
        minimal_bytes=(rows + query_rows) * hidden * element_bytes + 4 * rows * queries,
        pipe=_pipe(workload),
    )


def _pipe(workload: Workload) -> Pipe:
    """Say where the products run: those of groups are matrix products."""
    halves: dict[str, Pipe] = {"float16": "fp16", "bfloat16": "bf16"}
    return halves.get(workload.dtype, "fp32") if "queries" in workload.sizes else "fp32"


def _workloads() -> tuple[Workload, ...]:
    tags: dict[tuple[tuple[tuple[str, int], ...], str], set[str]] = {}

    def add(sizes: dict[str, int], dtype: str, *names: str) -> None:
        tags.setdefault((tuple(sizes.items()), dtype), set()).update(names)

    def pairs(rows: int, hidden: int, dtype: str, *names: str) -> None:
        add({"rows": rows, "hidden": hidden}, dtype, *names)

    def groups(count: int, queries: int, keys: int, hidden: int, dtype: str, *names: str) -> None:
        sizes = {"rows": count * keys, "hidden": hidden, "queries": queries, "keys": keys}
        add(sizes, dtype, *names)

    pairs(2**20, 128, "float16", "default")
    for rows in (512, 2048):
        pairs(rows, 128, "float16", "default", "cpu")
    for rows in (2**15, 2**18):
        pairs(rows, 128, "float16", "default")
    groups(256, 8, 4096, 128, "bfloat16", "default")
    groups(8, 8, 4096, 128, "bfloat16", "full", "cpu")
    for queries in (1, 4, 16):
        groups(256, queries, 4096, 128, "bfloat16", "full")
    groups(256, 8, 4096, 128, "float32", "full")
    for rows in (128, 8192, 2**22):
        pairs(rows, 128, "float16", "full")
    for dtype in ("bfloat16", "float32"):
        pairs(512, 128, dtype, "full")
        pairs(2**20, 128, dtype, "full")
    for hidden in (64, 256, 1024, 4096):
        pairs(2**27 // hidden, hidden, "bfloat16", "full")
    for dtype in ("float16", "bfloat16", "float32"):
        pairs(5, 64, dtype, "smoke")
        groups(2, 3, 40, 32, dtype, "smoke")
        for hidden in (17, 80, 1023, 131072):
            pairs(3, hidden, dtype, "edge")
        groups(3, 17, 65, 80, dtype, "edge")
    for rows, hidden in ((0, 64), (1, 1), (1023, 1), (257, 128), (33, 192)):
        pairs(rows, hidden, "float16", "edge")
    groups(2, 1, 1, 300, "float16", "edge")
    groups(1, 65, 3, 17, "float16", "edge")
    return tuple(
        Workload(dict(sizes), dtype, frozenset(names)) for (sizes, dtype), names in tags.items()
    )


OP = Op(
    name="qk_dot",
    title="QK dot",
    summary="Attention scores: each query times its key, or in decoding the queries of a group "
    "times all keys that the group shares.",
    formula="s = sum over hidden of q * k, in float32; of queries and keys, all pairs of a group",
    axis="rows",
    inputs="q ~ N(0, 1/hidden), k ~ N(0, 1), rounded to the dtype",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="The formula in PyTorch, operator by operator, in float32.",
        ),
        Implementation(
            name="torch-matmul",
            kind="eager",
            build=_torch_matmul,
            summary="torch.bmm with float32 results; on a CPU all in float32.",
            unsupported=_matmul_unsupported,
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            summary="The formula through torch.compile, compiled for each shape.",
        ),
        Implementation(
            name="triton",
            kind="triton",
            build=_triton,
            summary="One kernel, every key read once; groups go to the tensor cores.",
            kernels=lambda: (_paired, _grouped),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            summary="The same kernels with programmatic dependent launch: they are brought onto "
            "the card while the kernel before them ends, and wait for it before they read.",
            least_sm=90,
            kernels=lambda: (_paired, _grouped),
            launches=lambda workload: 1,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    # Products of halves are exact in float32. Scores are about 1 whatever the width, and so are the
    # sums on the way, each rounded by 2^-24 at most: 64 such roundings in a row reach 4e-6.
    tolerance={
        name: Tolerance(absolute=4e-6, relative=1e-6, norm=1e-6)
        for name in ("float16", "bfloat16", "float32")
    },
    cost=cost,
)
