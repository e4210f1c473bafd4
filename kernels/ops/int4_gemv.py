"""INT4 GEMV: one or a few vectors times packed signed 4-bit weights with a scale for each group."""

from __future__ import annotations

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

SLICE = 128
MOST_WARPS = 4


@triton.jit
def _after_loads(value, never_negative):
    """Return the value behind a barrier, which keeps the loads before it before what uses it.

    Left alone, the assembler saves registers by putting loads off, and waits for each in turn.
    """
    return tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .pred q; setp.lt.s32 q, $2, 0; "
        "barrier.cta.red.or.pred p, 0, q; selp.b32 $0, 0, $1, p; }",
        "=r,r,r",
        [value, never_negative],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _pair(word, magic, SHIFT: tl.constexpr, HALF: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Turn two nibbles of each word, 16 bits apart, into two 16-bit floats.

    An exclusive or puts nibble n, with its sign bit flipped, into the mantissa of 128 (bfloat16) or
    1024 (HALF): that is n + 136 or n + 1032. In assembly, the offset is taken off as well.
    """
    word = word >> SHIFT
    if ASSEMBLY:
        one: tl.constexpr = 0x3C003C00 if HALF else 0x3F803F80
        offset: tl.constexpr = -0x1BF71BF8 if HALF else -0x3CF73CF8
        code: tl.constexpr = (
            "{ .reg .b32 t; lop3.b32 t, $1, $2, $3, 0x6a; fma.rn.f16x2 $0, t, $4, $5; }"
            if HALF
            else "{ .reg .b32 t; lop3.b32 t, $1, $2, $3, 0x6a; fma.rn.bf16x2 $0, t, $4, $5; }"
        )
        return tl.inline_asm_elementwise(
            code,
            "=r,r,r,r,r,r",
            [
                word,
                tl.full(word.shape, 0x000F000F, tl.int32),
                tl.zeros(word.shape, tl.int32) + magic,
                tl.full(word.shape, one, tl.int32),
                tl.full(word.shape, offset, tl.int32),
            ],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        return (word & 0x000F000F) ^ magic


@triton.jit
def _weights(
    words, never_negative, TILES: tl.constexpr, HALF: tl.constexpr, ASSEMBLY: tl.constexpr
):
    """Unpack [octet, tile, row, thread, word] to [tile, row, k], k in the order of `_vectors`."""
    magic = tl.full([], 0x64086408 if HALF else 0x43084308, tl.int32)
    if ASSEMBLY:
        magic = _after_loads(magic, never_negative)
    low = tl.join(_pair(words, magic, 0, HALF, ASSEMBLY), _pair(words, magic, 4, HALF, ASSEMBLY))
    high = tl.join(_pair(words, magic, 8, HALF, ASSEMBLY), _pair(words, magic, 12, HALF, ASSEMBLY))
    pairs = tl.join(low, high)
    halves = tl.join(pairs.to(tl.int16), (pairs >> 16).to(tl.int16))
    w = tl.permute(halves, (1, 0, 2, 4, 6, 3, 5, 7))
    w = tl.reshape(w, [TILES, words.shape[0] * 8, 128])
    w = w.to(tl.float16 if HALF else tl.bfloat16, bitcast=True)
    if not ASSEMBLY:
        w = w.to(tl.float32) - (1032.0 if HALF else 136.0)
    return w


@triton.jit
def _part(x, part):
    """Cut float32 into three bfloat16 that add up to it; return the one asked for, or zero."""
    rest = x
    out = tl.zeros(x.shape, tl.float32)
    for index in tl.static_range(3):
        cut = (rest.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
        out = tl.where(part == index, cut, out)
        # Infinity has no rest; it would be NaN.
        rest = tl.where(tl.abs(rest) == float("inf"), 0.0, rest - cut)
    return out.to(tl.bfloat16)


@triton.jit
def _vectors(x, TILES: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr):
    """Lay x out as [tile, k, column]; the order of k makes each thread use what it has loaded."""
    if WIDE:
        x = tl.reshape(x, [COLUMNS // 8, 2, 4, TILES, 8, 4, 2, 2])
        x = tl.permute(x, (3, 2, 6, 5, 7, 1, 0, 4))
    else:
        x = tl.reshape(x, [COLUMNS // 8, 4, TILES, 8, 4, 2, 2, 2])
        x = tl.permute(x, (2, 1, 6, 4, 7, 5, 0, 3))
    return tl.reshape(x, [TILES, 128, COLUMNS])


@triton.jit(do_not_specialize=["n", "k", "m"])
def _tensor_cores(
    w_ptr,
    scale_ptr,
    x_ptr,
    out_ptr,
    n,
    k,
    m,
    w_stride_quads,
    scale_stride,
    x_stride,
    SLICES_A_GROUP: tl.constexpr,
    SLICES: tl.constexpr,
    COLUMNS: tl.constexpr,
    OCTETS: tl.constexpr,
    TILES: tl.constexpr,
    STEPS: tl.constexpr,
    UNROLL: tl.constexpr,
    EVEN: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply some rows by tensor cores; each warp takes tiles of SLICES slices of 128 of k.

    A lane loads 32 weights of one row, 16 bytes, and unpacks them to operands in place: since k may
    be summed in any order, x is ordered to match instead. Few vectors leave columns of the right
    operand free: these take other slices of k, as do rows of the left operand, and the products of
    a slice with itself are added up.
    """
    HALF: tl.constexpr = x_ptr.dtype.element_ty == tl.float16
    WIDE: tl.constexpr = x_ptr.dtype.element_ty == tl.float32
    PARTS: tl.constexpr = 4 if WIDE else 1
    VECTOR: tl.constexpr = 4 if WIDE else 8
    ROWS: tl.constexpr = OCTETS * 8 // SLICES
    VECTORS: tl.constexpr = COLUMNS // PARTS // SLICES
    first = tl.program_id(0) * ROWS
    first_vector = tl.program_id(1) * VECTORS

    # One lane: thread of four, slice, row. Then warps, then what one lane holds.
    lane = tl.arange(0, OCTETS * TILES * 32)
    eighth, tile = (lane // 4) % 8, (lane // 32) % TILES
    w_row = lane // (32 * TILES) * (8 // SLICES) + eighth // SLICES
    w_k = ((tile * SLICES + eighth % SLICES) * 4 + lane % 4) * 32
    w_row = tl.minimum(first + w_row, n - 1).to(tl.int64) * w_stride_quads * 4 + w_k // 8
    w_ptrs = w_ptr + w_row[:, None] + tl.arange(0, 4)[None, :]

    lane = tl.arange(0, COLUMNS // 8 * (32 // VECTOR) * TILES * 32)
    tile, upper = (lane // 32) % TILES, lane // (32 * TILES)
    word = upper % 4 * 8 + upper // 4 % (8 // VECTOR) * VECTOR
    column = upper // (32 // VECTOR) * 8 + (lane // 4) % 8
    x_k = ((tile * SLICES + column % SLICES) * 4 + lane % 4) * 32
    x_row = tl.minimum(first_vector + column // SLICES % VECTORS, m - 1).to(tl.int64) * x_stride
    x_ptrs = x_ptr + (x_row + x_k + word)[:, None] + tl.arange(0, VECTOR)[None, :]

    place = tl.arange(0, OCTETS * 8)[None, :]
    slice = tl.arange(0, TILES)[:, None] * SLICES + place % SLICES
    scale_row = tl.minimum(first + place // SLICES, n - 1).to(tl.int64) * scale_stride
    acc = tl.zeros([TILES, OCTETS * 8, COLUMNS], tl.float32)
    for step in tl.range(0, STEPS, num_stages=1, loop_unroll_factor=UNROLL):
        start = step * TILES * SLICES * 128
        scale_ptrs = scale_ptr + scale_row + (start // 128 + slice) // SLICES_A_GROUP
        if EVEN:
            words = tl.load(w_ptrs + start // 8, eviction_policy="evict_first")
            scale = tl.load(scale_ptrs)
            wait_for_previous(PDL)
            x = tl.load(x_ptrs + start)
        else:
            inside = (start + w_k < k)[:, None]
            words = tl.load(w_ptrs + start // 8, inside, other=0, eviction_policy="evict_first")
            scale = tl.load(scale_ptrs, mask=start + slice * 128 < k, other=0.0)
            wait_for_previous(PDL)
            x = tl.load(x_ptrs + start, mask=(start + x_k < k)[:, None], other=0.0)
        let_next_in(PDL)
        w = _weights(tl.reshape(words, [OCTETS, TILES, 8, 4, 4]), n, TILES, HALF, ASSEMBLY)
        if WIDE:
            x = _part(x, (column // (SLICES * VECTORS))[:, None])
        x = _vectors(x, TILES, COLUMNS, WIDE)
        if not ASSEMBLY:
            # Triton's interpreter takes the bits of bfloat16 operands for integers.
            x = x.to(tl.float32)
        acc += tl.dot(w, x) * scale.to(tl.float32)[:, :, None]
    own = tl.trans(place) % SLICES == tl.arange(0, COLUMNS)[None, :] % SLICES
    y = tl.where(own[None, :, :], acc, 0.0)
    y = tl.reshape(y, [TILES, ROWS, SLICES, PARTS, VECTORS, SLICES])
    # One axis at a time: Triton 3.6 adds up the wrong lanes where they are not side by side.
    y = tl.sum(tl.sum(tl.sum(tl.sum(y, axis=5), axis=3), axis=2), axis=0)
    row = first + tl.arange(0, ROWS)[:, None]
    column = first_vector + tl.arange(0, VECTORS)[None, :]
    tl.store(out_ptr + column.to(tl.int64) * n + row, y, mask=(row < n) & (column < m))


@triton.jit(do_not_specialize=["n", "k", "group"])
def _any_size(
    w_ptr,
    scale_ptr,
    x_ptr,
    out_ptr,
    n,
    k,
    group,
    w_stride,
    scale_stride,
    x_stride,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_BYTES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply one vector by some rows byte by byte, in float32, for any even k and any group."""
    wait_for_previous(PDL)
    let_next_in(PDL)
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    vector = tl.program_id(1).to(tl.int64)
    w_ptr += tl.minimum(row, n - 1).to(tl.int64) * w_stride
    scale_ptr += tl.minimum(row, n - 1).to(tl.int64) * scale_stride
    x_ptr += vector * x_stride
    acc = tl.zeros([BLOCK_ROWS, BLOCK_BYTES], tl.float32)
    for start in range(0, k // 2, BLOCK_BYTES):
        byte = start + tl.arange(0, BLOCK_BYTES)[None, :]
        inside = byte < k // 2
        packed = tl.load(w_ptr + byte, mask=inside, other=0).to(tl.int32)
        for nibble in tl.static_range(2):
            w = (((packed >> (4 * nibble)) & 15) ^ 8) - 8
            x = tl.load(x_ptr + 2 * byte + nibble, mask=inside, other=0.0)
            scale = tl.load(scale_ptr + (2 * byte + nibble) // group, mask=inside, other=0.0)
            acc += w.to(tl.float32) * x.to(tl.float32) * scale.to(tl.float32)
    y = tl.sum(acc, axis=1, keep_dims=True)
    tl.store(out_ptr + vector * n + row, y, mask=row < n)


class Launch(NamedTuple):
    """Launch parameters of one k; the number of rows only sets the grid."""

    slices: int
    octets: int
    tiles: int
    steps: int
    unroll: int


def launch_for(k: int, columns: int, pdl: bool = False) -> Launch:
    """Choose how k is cut, for so many columns of x in 16 bits: parts of float32 count each.

    Two steps of eight slices, unrolled, just fit the registers of four programs on a processor.
    Longer loops do best as many small programs, each with a quarter of their loads in flight. A
    single step does too, unless its loads are asked for while the kernel before it still works.
    """
    slices = max(1, 8 // columns)
    while slices > 1 and k % (SLICE * slices):
        slices //= 2
    a_tile = SLICE * slices
    tiles = min(MOST_WARPS, next_power_of_2(cdiv(k, a_tile)))
    steps = cdiv(k, a_tile * tiles)
    if steps == 2 and slices == 8:
        return Launch(slices, octets=8, tiles=tiles, steps=steps, unroll=2)
    if steps == 1 and pdl:
        return Launch(slices, octets=8, tiles=tiles, steps=1, unroll=1)
    tiles = tiles if steps == 1 else min(tiles, 16 // slices)
    return Launch(slices, octets=4, tiles=tiles, steps=cdiv(k, a_tile * tiles), unroll=1)


def fits_tensor_cores(w: torch.Tensor, group: int, k: int) -> bool:
    """Tell whether rows are whole runs of 16 bytes and groups whole tiles."""
    aligned = w.stride(1) == 1 and w.stride(0) % 16 == 0 and w.storage_offset() % 4 == 0
    return aligned and k % 32 == 0 and (group % SLICE == 0 or group >= k)


def int4_gemv(
    w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor, group: int, pdl: bool = False
) -> torch.Tensor:
    """Multiply packed weights by a few vectors with the Triton kernels.

    `w` is uint8 (n, k / 2): the low nibble is the even column, in two's complement. `scale` is
    (n, ceil(k / group)), `x` (m, k) in float16, bfloat16 or float32. Returns float32 (m, n):
    exact products, summed in float32 in an order that does not change from call to call. With
    `pdl` (Hopper and newer) the kernel may come onto the card before the one before it ends, and
    reads weights and scales at once: these must not be what that kernel writes.
    """
    n, m, k = w.shape[0], *x.shape
    if k != 2 * w.shape[1]:
        raise ValueError(f"weights {tuple(w.shape)} and vectors {tuple(x.shape)} do not fit")
    if scale.shape != (n, cdiv(k, group)):
        raise ValueError(f"scale is {tuple(scale.shape)}, expected {(n, cdiv(k, group))}")
    out = torch.empty((m, n), dtype=torch.float32, device=w.device)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    x = x if x.stride(1) == 1 else x.contiguous()
    copied = scale.stride(1) != 1
    scale = scale.contiguous() if copied else scale
    if fits_tensor_cores(w, group, k):
        _launch_tensor_cores(w, scale, x, out, group, pdl and not copied)
    else:
        w = w if w.stride(1) == 1 else w.contiguous()
        grid = (cdiv(n, 8), m)
        _any_size[grid](
            w, scale, x, out, n, k, group, w.stride(0), scale.stride(0), x.stride(0),
            BLOCK_ROWS=8, BLOCK_BYTES=128, num_warps=4, enable_fp_fusion=True,
            **launch_options(pdl, grid[0] * grid[1]),
        )  # fmt: skip
    return out


def _launch_tensor_cores(
    w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor, out: torch.Tensor, group: int, pdl: bool
) -> None:
    n, m, k = w.shape[0], *x.shape
    used = (4 if x.dtype == torch.float32 else 1) * next_power_of_2(m)
    columns = min(16, max(8, used))
    launch = launch_for(k, used, pdl)
    rows = 8 * launch.octets // launch.slices
    grid = (cdiv(n, rows), cdiv(used * launch.slices, columns))
    _tensor_cores[grid](
        w.view(torch.int32), scale, x, out, n, k, m,
        w.stride(0) // 16, scale.stride(0), x.stride(0),
        SLICES_A_GROUP=cdiv(min(group, k), SLICE), COLUMNS=columns,
        SLICES=launch.slices, OCTETS=launch.octets, TILES=launch.tiles, STEPS=launch.steps,
        UNROLL=launch.unroll, EVEN=k == SLICE * launch.slices * launch.tiles * launch.steps,
        ASSEMBLY=w.is_cuda, num_warps=launch.tiles, enable_fp_fusion=True,
        **launch_options(pdl, grid[0] * grid[1]),
    )  # fmt: skip


def unpacked(w: torch.Tensor) -> torch.Tensor:
    """Unpack to int8 (n, k) by arithmetic shifts."""
    signed = w.view(torch.int8)
    return torch.stack([(signed << 4) >> 4, signed >> 4], dim=-1).flatten(1)


def reference(w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor, group: int) -> torch.Tensor:
    """Unpack, scale and multiply operator by operator, in float32."""
    k = x.shape[1]
    groups = torch.arange(k, device=w.device) // group
    weights = unpacked(w).float() * scale.float()[:, groups]
    if len(x) == 1:
        return (weights * x.float()).sum(dim=1)[None]
    return x.float() @ weights.T


def _arguments(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    return inputs["w"], inputs["scale"], inputs["x"], int(inputs["group"])


def _torch(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    return lambda: reference(*arguments)


def _torch_compile(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    function = compiled(reference, inputs, arguments[3])
    return lambda: function(*arguments)


def _triton(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    return lambda: int4_gemv(*arguments)


def _triton_pdl(inputs: Inputs) -> Thunk:
    arguments = _arguments(inputs)
    return lambda: int4_gemv(*arguments, pdl=True)


def _tinygemm(inputs: Inputs) -> Thunk:
    w, scale, x, group = _arguments(inputs)
    # It takes unsigned nibbles with a zero of 8, the even column first, and a scale of bfloat16.
    biased = (((w & 15) << 4) | (w >> 4)) ^ 0x88
    packed = torch.ops.aten._convert_weight_to_int4pack(biased, 8)
    repeat = 1 if group < x.shape[1] else x.shape[1] // SLICE
    scales = scale.to(x.dtype).repeat(1, repeat).T
    scales_and_zeros = torch.stack([scales, torch.zeros_like(scales)], dim=-1).contiguous()
    size = min(group, SLICE) if repeat > 1 else group
    return lambda: torch.ops.aten._weight_int4pack_mm(x, packed, size, scales_and_zeros)


def _gemlite(inputs: Inputs) -> Thunk:
    from gemlite import DType, GemLiteLinear, set_native_atomic_bfp16

    # Left on, it adds partial sums up in bfloat16: 5.8 times the bound at 8192 x 8192 on an H200.
    set_native_atomic_bfp16(False)
    w, scale, x, group = _arguments(inputs)
    layer = GemLiteLinear(
        4, group_size=group, in_features=x.shape[1], out_features=len(w),
        input_dtype=DType.BF16, output_dtype=DType.BF16,
    )  # fmt: skip
    # It takes unsigned nibbles and their zero.
    layer.pack((unpacked(w) + 8).to(torch.uint8), scale.to(x.dtype), 8, None)
    return lambda: layer(x)


def _gemlite_unsupported(workload: Workload) -> str | None:
    n, k, group = workload["n"], workload["k"], workload["group"]
    if workload.dtype != "bfloat16":
        return "its results of 16 bits miss the bounds of float32 sums"
    if not n or not workload["m"] or k % 32 or group % 32 or k % group or group == k:
        return "takes whole groups of a multiple of 32, and more than one"
    return None


def _tinygemm_unsupported(workload: Workload) -> str | None:
    n, k, group = workload["n"], workload["k"], workload["group"]
    if workload.dtype != "bfloat16":
        return "takes bfloat16 alone"
    if n % 16 or k % SLICE or not n or not workload["m"]:
        return "takes rows in sixteens and columns in tiles of 128"
    return None if group in (32, 64, 128, 256) or group >= k else "takes groups of 32 to 256"


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw one set of inputs; the group is a tensor on the host.

    A scale for each row is float32, scales for groups have the dtype of x. They make results of
    about one, whatever k is.
    """
    n, k, m, group = (workload[name] for name in ("n", "k", "m", "group"))
    dtype = getattr(torch, workload.dtype)
    w = torch.randint(0, 256, (n, k // 2), generator=generator, device=device, dtype=torch.uint8)
    x = torch.randn((m, k), generator=generator, device=device, dtype=dtype)
    shape = (n, cdiv(k, group))
    spread = 0.5 + torch.rand(shape, generator=generator, device=device, dtype=torch.float32)
    scale = spread / (4.6 * max(k, 1) ** 0.5)
    scale = scale if group >= k else scale.to(dtype)
    return {"w": w, "scale": scale, "x": x, "group": torch.tensor(group)}


def oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the truth in float64: weights looked up in a table, groups summed one by one."""
    w, scale, x, group = _arguments(inputs)
    table = torch.tensor([*range(8), *range(-8, 0)], dtype=torch.float64, device=w.device)
    out = torch.zeros((len(x), len(w)), dtype=torch.float64, device=w.device)
    even, odd = x.double()[:, ::2], x.double()[:, 1::2]
    for index in range(scale.shape[1]):
        first, last = index * group, min((index + 1) * group, x.shape[1])
        evens, odds = slice((first + 1) // 2, (last + 1) // 2), slice(first // 2, last // 2)
        dot = even[:, evens] @ table[(w[:, evens] % 16).long()].T
        dot += odd[:, odds] @ table[(w[:, odds] // 16).long()].T
        out += dot * scale[:, index].double()
    return out


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count a product and a sum a weight and vector; float32 results, packed weights."""
    n, k, m, group = (workload[name] for name in ("n", "k", "m", "group"))
    element_bytes = getattr(torch, workload.dtype).itemsize
    scale_bytes = 4 if group >= k else element_bytes
    pipes: dict[str, Pipe] = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
    return Cost(
        flops=2 * m * n * k,
        minimal_bytes=m * k * element_bytes
        + n * k // 2
        + n * cdiv(k, group) * scale_bytes
        + 4 * m * n,
        pipe=pipes[workload.dtype],
    )


def _workloads() -> tuple[Workload, ...]:
    tags: dict[tuple[int, int, int, int, str], set[str]] = {}

    def add(n: int, k: int, group: int, m: int, dtype: str, *names: str) -> None:
        tags.setdefault((n, k, group, m, dtype), set()).update(names)

    add(8192, 8192, 128, 1, "bfloat16", "default")
    add(28672, 8192, 128, 1, "bfloat16", "default")
    add(4096, 14336, 128, 1, "bfloat16", "default")
    for n in (8960, 1536):
        add(n, 1536, 1536, 1, "bfloat16", "default", "cpu")
        add(n, 1536, 128, 1, "bfloat16", "full")
    add(8192, 8192, 128, 16, "bfloat16", "default")
    add(1024, 1024, 128, 1, "bfloat16", "cpu")
    for n, k in ((4096, 4096), (1024, 4096), (8192, 28672), (8192, 81920), (131072, 4096)):
        add(n, k, 128, 1, "bfloat16", "full")
    for m in (2, 4, 8):
        add(8192, 8192, 128, m, "bfloat16", "full")
    for dtype in ("float16", "float32"):
        add(8192, 8192, 128, 1, dtype, "full")
    for dtype in ("float16", "bfloat16", "float32"):
        add(24, 256, 128, 2, dtype, "smoke")
        add(40, 96, 96, 3, dtype, "smoke")
        add(33, 512, 256, 16, dtype, "edge")
        add(17, 1568, 128, 5, dtype, "edge")
        add(7, 34, 32, 2, dtype, "edge")
    for sizes in (
        (1, 128, 128, 1),
        (5, 2, 128, 1),
        (9, 4304, 32, 1),
        (6, 30, 7, 2),
        (0, 64, 32, 1),
    ):
        add(*sizes, "bfloat16", "edge")
    add(4, 64, 32, 0, "float16", "edge")
    names = ("n", "k", "group", "m")
    return tuple(
        Workload(dict(zip(names, sizes, strict=True)), dtype, frozenset(chosen))
        for (*sizes, dtype), chosen in tags.items()
    )


SUMMED = Tolerance(absolute=5e-5, relative=1e-5, norm=1e-5)

OP = Op(
    name="int4_gemv",
    title="INT4 GEMV",
    summary="Multiplies weights of four bits, two a byte, with a scale a group, by one to sixteen "
    "vectors: the projections of a quantised language model while it writes.",
    formula="y[m, n] = sum over k of scale[n, k // group] * w[n, k] * x[m, k], in float32",
    axis="n",
    inputs="w uniform in -8 to 7; x ~ N(0, 1); scale ~ U(0.5, 1.5) / (4.6 sqrt(k)), float32 for "
    "whole rows, else in the dtype of x",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            summary="Unpack, scale and multiply in PyTorch, operator by operator, in float32.",
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            summary="The same through torch.compile, compiled for each shape.",
        ),
        Implementation(
            name="triton",
            kind="triton",
            build=_triton,
            summary="One kernel: weights unpacked in registers to operands of the tensor cores.",
            kernels=lambda: (_tensor_cores, _any_size),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            summary="The same kernels with programmatic dependent launch: weights and scales are "
            "asked for while the kernel before still runs, x when it has ended.",
            least_sm=90,
            kernels=lambda: (_tensor_cores, _any_size),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="torch-int4pack",
            kind="library",
            build=_tinygemm,
            summary="PyTorch's own _weight_int4pack_mm: weights repacked beforehand, bfloat16 "
            "weights, scales and results.",
            unsupported=_tinygemm_unsupported,
        ),
        Implementation(
            name="gemlite",
            kind="library",
            build=_gemlite,
            summary="GemLite's Triton kernels, tuned by it for the shape, bfloat16 results.",
            packages=("gemlite",),
            unsupported=_gemlite_unsupported,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    tolerance={
        # Results are about one. Products are exact; some hundred sums of float32 stay below 1e-5.
        "float16": SUMMED,
        "float32": SUMMED,
        # PyTorch's own kernel rounds weights and results to bfloat16: 2^-9 each, not one way.
        "bfloat16": Tolerance(absolute=1e-2, relative=8e-3, norm=4e-3),
    },
    cost=cost,
)
