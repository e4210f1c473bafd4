"""Selected attention: each query attends to the keys and values that a list of positions names."""

from __future__ import annotations

import math
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

PROGRAMS = 264
LEAST_A_SPLIT = 256
BLOCK = 64
WARPS = 4
STAGES = 2


@triton.jit(do_not_specialize=["context", "selected", "a_split", "scale"])
def _attend(
    q_ptr,
    k_ptr,
    v_ptr,
    index_ptr,
    out_ptr,
    state_ptr,
    k_sequence_stride,
    k_head_stride,
    k_stride,
    v_sequence_stride,
    v_head_stride,
    v_stride,
    context,
    selected,
    a_split,
    scale,
    KV_HEADS: tl.constexpr,
    QUERIES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    INTERPRETED: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attend to one stretch of the positions of one head; `scale` is for powers of two.

    Unless the stretch is WHOLE, the result stays unscaled, with its maximum and sum beside it.
    """
    wait_for_previous(PDL)
    let_next_in(PDL)
    pair = tl.program_id(0)
    part = tl.program_id(1)
    sequence, head = (pair // KV_HEADS).to(tl.int64), (pair % KV_HEADS).to(tl.int64)
    k_ptr += sequence * k_sequence_stride + head * k_head_stride
    v_ptr += sequence * v_sequence_stride + head * v_head_stride
    index_ptr += pair.to(tl.int64) * selected
    query = tl.arange(0, BLOCK_QUERIES)
    dim = tl.arange(0, BLOCK_DIM)
    cell = query[:, None] * HEAD_DIM + dim[None, :]
    inside = (query < QUERIES)[:, None] & (dim < HEAD_DIM)[None, :]
    q = tl.load(q_ptr + pair.to(tl.int64) * (QUERIES * HEAD_DIM) + cell, mask=inside, other=0.0)
    dtype: tl.constexpr = tl.float32 if INTERPRETED else q.dtype
    q = q.to(dtype)
    largest = tl.full([BLOCK_QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_QUERIES], tl.float32)
    acc = tl.zeros([BLOCK_QUERIES, BLOCK_DIM], tl.float32)
    stop = tl.minimum((part + 1) * a_split, selected)
    for start in tl.range(part * a_split, stop, BLOCK, num_stages=STAGES):
        place = start + tl.arange(0, BLOCK)
        position = tl.load(index_ptr + place, mask=place < stop, other=-1)
        # A position that does not exist is not read and has no weight.
        held = (position >= 0) & (position < context)
        mask = held[:, None] & (dim < HEAD_DIM)[None, :]
        row = position.to(tl.int64)[:, None]
        k = tl.load(k_ptr + row * k_stride + dim[None, :], mask=mask, other=0.0)
        v = tl.load(v_ptr + row * v_stride + dim[None, :], mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k.to(dtype)), input_precision="ieee") * scale
        scores = tl.where(held[None, :], scores, float("-inf"))
        above = tl.maximum(largest, tl.max(scores, axis=1))
        shift = tl.where(above == float("-inf"), 0.0, above)
        # The sum takes weights as rounded as the product does: then their errors mostly cancel.
        weights = tl.exp2(scores - shift[:, None]).to(v.dtype)
        fading = tl.exp2(largest - shift)
        total = total * fading + tl.sum(weights.to(tl.float32), axis=1)
        acc = tl.dot(weights.to(dtype), v.to(dtype), acc * fading[:, None], input_precision="ieee")
        largest = above
    if WHOLE:
        out = acc / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(out_ptr + pair.to(tl.int64) * (QUERIES * HEAD_DIM) + cell, out, mask=inside)
    else:
        at = pair.to(tl.int64) * tl.num_programs(1) + part
        tl.store(out_ptr + at * (QUERIES * HEAD_DIM) + cell, acc, mask=inside)
        state_ptr += at * (2 * QUERIES) + query
        tl.store(state_ptr, largest, mask=query < QUERIES)
        tl.store(state_ptr + QUERIES, total, mask=query < QUERIES)


@triton.jit(do_not_specialize=["splits"])
def _combine(
    part_ptr,
    state_ptr,
    out_ptr,
    splits,
    QUERIES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    PDL: tl.constexpr,
):
    """Weigh the parts of one query by their maxima and add them up, in their order."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    pair = (tl.program_id(0) // QUERIES).to(tl.int64)
    query = tl.program_id(0) % QUERIES
    dim = tl.arange(0, BLOCK_DIM)
    state_ptr += pair * splits * (2 * QUERIES) + query
    part_ptr += pair * splits * (QUERIES * HEAD_DIM) + query * HEAD_DIM + dim
    largest = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    acc = tl.zeros([BLOCK_DIM], tl.float32)
    for _ in range(splits):
        top = tl.load(state_ptr)
        above = tl.maximum(largest, top)
        shift = tl.where(above == float("-inf"), 0.0, above)
        fading, weight = tl.exp2(largest - shift), tl.exp2(top - shift)
        total = total * fading + tl.load(state_ptr + QUERIES) * weight
        acc = acc * fading + tl.load(part_ptr, mask=dim < HEAD_DIM, other=0.0) * weight
        largest = above
        state_ptr += 2 * QUERIES
        part_ptr += QUERIES * HEAD_DIM
    out = acc / tl.where(total == 0.0, 1.0, total)
    out_ptr += tl.program_id(0).to(tl.int64) * HEAD_DIM
    tl.store(out_ptr + dim, out, mask=dim < HEAD_DIM)


class Launch(NamedTuple):
    """How the positions of each head are shared out; both only set the grid."""

    splits: int
    a_split: int


def launch_for(heads: int, selected: int) -> Launch:
    """Split long selections where heads alone are too few to fill the device."""
    wanted = min(PROGRAMS // max(heads, 1), selected // LEAST_A_SPLIT)
    a_split = cdiv(selected, max(wanted, 1))
    a_split = max(BLOCK, cdiv(a_split, BLOCK) * BLOCK)
    return Launch(max(1, cdiv(selected, a_split)), a_split)


def selected_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
    pdl: bool = False,
) -> torch.Tensor:
    """Attend to the selected positions with the Triton kernels.

    `q` is (sequences, kv_heads, queries, head_dim), `k` and `v` (sequences, kv_heads, context,
    head_dim) of any strides, `positions` (sequences, kv_heads, selected) in int32 or int64. The
    queries of a head share its positions. A position below 0 or beyond the context is not read and
    has no weight; a query with no position left gives zeros; a position named twice counts twice.
    With `pdl` (Hopper and newer) kernels may come onto the card before those before them end.
    """
    sequences, kv_heads, queries, head_dim = q.shape
    selected = positions.shape[2]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if out.numel() == 0:
        return out
    q, positions = q.contiguous(), positions.contiguous()
    k, v = (t if t.stride(3) == 1 or head_dim == 1 else t.contiguous() for t in (k, v))
    heads = sequences * kv_heads
    splits, a_split = launch_for(heads, selected)
    part = state = out
    if splits > 1:
        part = torch.empty((heads, splits, queries, head_dim), device=q.device)
        state = torch.empty((heads, splits, 2, queries), device=q.device)
    block_queries = max(16, next_power_of_2(queries))
    block_dim = max(16, next_power_of_2(head_dim))
    block = BLOCK * 2 // q.element_size() // (2 if block_queries > 16 else 1)
    warps = 2 * WARPS if block_dim * q.element_size() > 256 else WARPS
    _attend[(heads, splits)](
        q, k, v, positions, part, state, *k.stride()[:3], *v.stride()[:3],
        k.shape[2], selected, a_split, math.log2(math.e) / math.sqrt(head_dim),
        KV_HEADS=kv_heads, QUERIES=queries, HEAD_DIM=head_dim,
        BLOCK_QUERIES=block_queries, BLOCK_DIM=block_dim,
        BLOCK=block, WHOLE=splits == 1, STAGES=STAGES,
        INTERPRETED=not q.is_cuda, num_warps=warps, enable_fp_fusion=True,
        **launch_options(pdl, heads * splits),
    )  # fmt: skip
    if splits > 1:
        _combine[(heads * queries,)](
            part, state, out, splits,
            QUERIES=queries, HEAD_DIM=head_dim, BLOCK_DIM=block_dim, num_warps=1,
            enable_fp_fusion=True, **launch_options(pdl, heads * queries),
        )  # fmt: skip
    return out


def gathered(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Gather the rows of each head at its positions."""
    return x.gather(2, positions.long()[..., None].expand(-1, -1, -1, x.shape[3]))


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Gather, score, weigh and add up operator by operator, in float32."""
    keys, values = gathered(k, positions).float(), gathered(v, positions).float()
    scores = q.float() @ keys.transpose(2, 3) / math.sqrt(q.shape[3])
    return (torch.softmax(scores, dim=3) @ values).to(q.dtype)


def with_sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Gather, then attend by PyTorch's fused attention in the dtype of the inputs."""
    keys, values = gathered(k, positions), gathered(v, positions)
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values)


def _arguments(
    inputs: Inputs,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return inputs["q"], inputs["k"], inputs["v"], inputs["positions"]


def _torch(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    return lambda: reference(*arguments)


def _torch_sdpa(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    return lambda: with_sdpa(*arguments)


def _torch_compile(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    function = compiled(reference, inputs)
    return lambda: function(*arguments)


def _triton(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    return lambda: selected_attention(*arguments)


def _triton_pdl(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    return lambda: selected_attention(*arguments, pdl=True)


def _flashinfer(inputs: Inputs) -> Thunk:
    import flashinfer

    q, k, v, positions = _arguments(inputs)
    sequences, kv_heads, queries, head_dim = q.shape
    context, selected, heads = k.shape[2], positions.shape[2], sequences * kv_heads
    # Each head is a request of its own, of pages of one position.
    first = torch.arange(heads, dtype=torch.int32, device=q.device)
    pages = (positions.flatten(0, 1) + context * first[:, None]).flatten()
    begins = torch.arange(heads + 1, dtype=torch.int32, device=q.device) * selected
    workspace = torch.empty(2**27, dtype=torch.uint8, device=q.device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace, "NHD", use_tensor_cores=queries > 1
    )
    wrapper.plan(
        begins, pages, torch.ones_like(first), queries, 1, head_dim, 1,
        q_data_type=q.dtype, kv_data_type=k.dtype,
    )  # fmt: skip
    rows = q.reshape(heads, queries, head_dim)
    cache = tuple(t.reshape(-1, 1, 1, head_dim) for t in (k, v))
    return lambda: wrapper.run(rows, cache).view(q.shape)


def _flashinfer_unsupported(workload: Workload) -> str | None:
    if workload["head_dim"] not in (64, 128, 256) or workload.dtype == "float32":
        return "takes heads of 64, 128 or 256 values of 16 bits"
    return None if workload["selected"] and workload["sequences"] else "takes no empty request"


def _sdpa_unsupported(workload: Workload) -> str | None:
    return None if workload["sequences"] else "returns None on a GPU where there is no sequence"


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw one set of inputs: a quarter of each head's context, in random order, each once."""
    names = ("sequences", "kv_heads", "queries", "selected", "head_dim")
    sequences, kv_heads, queries, selected, head_dim = (workload[name] for name in names)
    context = max(4 * selected, selected + 1)
    dtype = getattr(torch, workload.dtype)

    def normal(rows: int) -> torch.Tensor:
        shape = (sequences, kv_heads, rows, head_dim)
        return torch.randn(shape, generator=generator, device=device, dtype=dtype)

    order = torch.rand((sequences, kv_heads, context), generator=generator, device=device)
    positions = order.argsort(dim=2).narrow(2, 0, selected).to(torch.int32)
    return {
        "q": normal(queries), "k": normal(context), "v": normal(context), "positions": positions
    }  # fmt: skip


def oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the truth in float64, one head at a time, with the maximum taken off."""
    q, k, v, positions = _arguments(inputs)
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for sequence in range(q.shape[0]):
        for head in range(q.shape[1]):
            at = positions[sequence, head].long()
            keys, values = (t[sequence, head].index_select(0, at).double() for t in (k, v))
            scores = torch.einsum("qd,nd->qn", q[sequence, head].double(), keys)
            scores /= q.shape[3] ** 0.5
            weights = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
            weighed = torch.einsum("qn,nd->qd", weights, values)
            out[sequence, head] = weighed / weights.sum(dim=1, keepdim=True)
    return out


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count two products and sums a key and value element and five operations a score."""
    heads = workload["sequences"] * workload["kv_heads"]
    queries, selected, head_dim = (workload[n] for n in ("queries", "selected", "head_dim"))
    element_bytes = getattr(torch, workload.dtype).itemsize
    pipes: dict[str, Pipe] = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
    moved = 2 * (selected + queries) * head_dim * element_bytes + 4 * selected
    return Cost(
        flops=heads * queries * selected * (4 * head_dim + 5),
        minimal_bytes=heads * moved,
        special_ops=heads * queries * (selected + 1),
        pipe=pipes[workload.dtype],
    )


def _launches(workload: Workload) -> int:
    heads = workload["sequences"] * workload["kv_heads"]
    return 1 if launch_for(heads, workload["selected"]).splits == 1 else 2


def _workloads() -> tuple[Workload, ...]:
    tags: dict[tuple[int, int, int, int, int, str], set[str]] = {}

    def add(*sizes_and_dtype: int | str, tag: str) -> None:
        tags.setdefault(sizes_and_dtype, set()).add(tag)  # type: ignore[arg-type]

    for sequences, selected in ((64, 2048), (64, 512), (4, 2048), (4, 8192)):
        add(sequences, 8, 8, selected, 128, "bfloat16", tag="default")
    for selected in (64, 256):
        for tag in ("default", "cpu"):
            add(1, 1, 1, selected, 128, "bfloat16", tag=tag)
    add(2, 8, 8, 256, 128, "bfloat16", tag="cpu")
    for sequences in (1, 2, 8, 16, 32, 128):
        add(sequences, 8, 8, 2048, 128, "bfloat16", tag="full")
    for selected in (128, 1024, 8192):
        add(16, 8, 8, selected, 128, "bfloat16", tag="full")
    for queries in (1, 4, 16):
        add(64, 8, queries, 2048, 128, "bfloat16", tag="full")
    for head_dim in (64, 256):
        add(64, 8, 8, 2048, head_dim, "bfloat16", tag="full")
    for dtype in ("float16", "float32"):
        add(64, 8, 8, 2048, 128, dtype, tag="full")
    for dtype in ("float16", "bfloat16", "float32"):
        add(2, 1, 1, 40, 32, dtype, tag="smoke")
        add(2, 2, 3, 70, 64, dtype, tag="smoke")
        add(1, 2, 2, 600, 80, dtype, tag="edge")
        add(2, 1, 17, 33, 17, dtype, tag="edge")
    for sizes in ((0, 2, 1, 8, 16), (3, 1, 1, 1, 1), (1, 1, 2, 1025, 128), (1, 2, 8, 65, 256)):
        add(*sizes, "bfloat16", tag="edge")
    names = ("sequences", "kv_heads", "queries", "selected", "head_dim")
    return tuple(
        Workload(dict(zip(names, sizes, strict=True)), dtype, frozenset(chosen))
        for (*sizes, dtype), chosen in tags.items()
    )


OP = Op(
    name="selected_attention",
    title="Selected attention",
    summary="Attends to the positions that were selected for each head: the decoding step of "
    "sparse attention, with queries that share keys and values.",
    formula="y = softmax(q K[positions]^T / sqrt(head_dim)) V[positions], in float32",
    axis="selected",
    inputs="q, k, v ~ N(0, 1), rounded to the dtype; positions: a quarter of the context of each "
    "head, in random order, each once",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="Gather, score, weigh and add up in PyTorch, in float32.",
        ),
        Implementation(
            name="torch-sdpa",
            kind="eager",
            build=_torch_sdpa,
            summary="Gather, then torch.nn.functional.scaled_dot_product_attention.",
            unsupported=_sdpa_unsupported,
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            summary="The first through torch.compile, compiled for each shape.",
        ),
        Implementation(
            name="triton",
            kind="triton",
            build=_triton,
            summary="Keys and values are gathered as they are used; few heads are split and "
            "combined by a second kernel.",
            kernels=lambda: (_attend, _combine),
            launches=_launches,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            summary="The same kernels with programmatic dependent launch.",
            least_sm=90,
            kernels=lambda: (_attend, _combine),
            launches=_launches,
        ),
        Implementation(
            name="flashinfer",
            kind="library",
            build=_flashinfer,
            summary="FlashInfer's paged decoding, with pages of one position.",
            packages=("flashinfer",),
            unsupported=_flashinfer_unsupported,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    tolerance={
        # Weights and results are rounded to 2^-11 and 2^-8 at most, weights by chance either way;
        # values are about one, so that errors of weights add up to less than twice that.
        "float16": Tolerance(absolute=5e-4, relative=1e-3, norm=1e-3),
        "bfloat16": Tolerance(absolute=4e-3, relative=8e-3, norm=8e-3),
        "float32": Tolerance(absolute=2e-6, relative=1e-5, norm=5e-6),
    },
    cost=cost,
)
