"""INT4 GEMV: one or a few vectors times packed signed 4-bit weights with a scale for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.compiled import compiled
from kernels.spec import Cost, Implementation, Mode, Op, Pipe, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk

TILE_K = 128
OCTETS = 2
WARPS = 4
TILES_IN_FLIGHT = 4
STAGES = 1
AHEAD = False


@triton.jit
def _pair(word, SHIFT: tl.constexpr, HALF: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Turn two nibbles of each word, 16 bits apart, into two 16-bit floats.

    An exclusive or puts nibble n, with its sign bit flipped, into the mantissa of 128 (bfloat16) or
    1024 (HALF): that is n + 136 or n + 1032. In assembly, the offset is taken off as well.
    """
    word = word >> SHIFT
    magic: tl.constexpr = 0x64086408 if HALF else 0x43084308
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
                tl.full(word.shape, magic, tl.int32),
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
    words, ROWS: tl.constexpr, TILES: tl.constexpr, HALF: tl.constexpr, ASSEMBLY: tl.constexpr
):
    """Unpack [octet, tile, row, thread, word] to [tile, row, k], k in the order of `_vectors`."""
    low = tl.join(_pair(words, 0, HALF, ASSEMBLY), _pair(words, 4, HALF, ASSEMBLY))
    high = tl.join(_pair(words, 8, HALF, ASSEMBLY), _pair(words, 12, HALF, ASSEMBLY))
    pairs = tl.join(low, high)
    halves = tl.join(pairs.to(tl.int16), (pairs >> 16).to(tl.int16))
    w = tl.reshape(tl.permute(halves, (1, 0, 2, 4, 6, 3, 5, 7)), [TILES, ROWS, 128])
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
    TILES_A_GROUP: tl.constexpr,
    COLUMNS: tl.constexpr,
    OCTETS: tl.constexpr,
    WARPS: tl.constexpr,
    TILES: tl.constexpr,
    EVEN: tl.constexpr,
    AHEAD: tl.constexpr,
    STAGES: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """Multiply 8 * OCTETS rows by tensor cores; each warp takes every WARPS-th tile of 128 of k.

    A lane loads 32 weights of one row, 16 bytes, and unpacks them to operands in place: since k may
    be summed in any order, x is ordered to match instead. TILES tiles are loaded at once, AHEAD
    while the ones before are multiplied.
    """
    HALF: tl.constexpr = x_ptr.dtype.element_ty == tl.float16
    WIDE: tl.constexpr = x_ptr.dtype.element_ty == tl.float32
    PARTS: tl.constexpr = 4 if WIDE else 1
    VECTOR: tl.constexpr = 4 if WIDE else 8
    ROWS: tl.constexpr = 8 * OCTETS
    VECTORS: tl.constexpr = COLUMNS // PARTS
    first = tl.program_id(0) * ROWS
    first_vector = tl.program_id(1) * VECTORS

    # One lane: thread of four, row of eight. Then warps, then what one lane holds.
    lane = tl.arange(0, OCTETS * TILES * 32)
    thread, tile = lane % 4, (lane // 32) % TILES
    row = tl.minimum(first + lane // (32 * TILES) * 8 + (lane // 4) % 8, n - 1)
    w_k = tile * 128 + thread * 32
    w_row = row.to(tl.int64) * w_stride_quads * 4 + tile * 16 + thread * 4
    w_ptrs = w_ptr + w_row[:, None] + tl.arange(0, 4)[None, :]

    lane = tl.arange(0, COLUMNS // 8 * (32 // VECTOR) * TILES * 32)
    thread, tile = lane % 4, (lane // 32) % TILES
    upper = lane // (32 * TILES)
    if WIDE:
        word, half = upper % 4, (upper // 4) % 2
    else:
        word, half = upper % 4, 0
    column = upper // (32 // VECTOR) * 8 + (lane // 4) % 8
    x_k = tile * 128 + thread * 32
    x_row = tl.minimum(first_vector + column % VECTORS, m - 1).to(tl.int64) * x_stride
    x_row += x_k + word * 8 + half * 4
    x_ptrs = x_ptr + x_row[:, None] + tl.arange(0, VECTOR)[None, :]

    tile = tl.arange(0, TILES)[:, None]
    scale_row = tl.minimum(first + tl.arange(0, ROWS), n - 1).to(tl.int64) * scale_stride
    scale_ptrs = scale_ptr + scale_row[None, :]
    acc = tl.zeros([TILES, ROWS, COLUMNS], tl.float32)
    if AHEAD:
        coming = tl.load(w_ptrs, mask=(w_k < k)[:, None], other=0)
    for start in tl.range(0, k, TILES * 128, num_stages=STAGES):
        if AHEAD:
            words = coming
            later = start + TILES * 128 + w_k < k
            coming = tl.load(w_ptrs + TILES * 16, mask=later[:, None], other=0)
        elif EVEN:
            words = tl.load(w_ptrs)
        else:
            words = tl.load(w_ptrs, mask=(start + w_k < k)[:, None], other=0)
        inside = (start + x_k < k)[:, None]
        x = tl.load(x_ptrs) if EVEN else tl.load(x_ptrs, mask=inside, other=0.0)
        if WIDE:
            x = _part(x, (column // VECTORS)[:, None])
        words = tl.reshape(words, [OCTETS, TILES, 8, 4, 4])
        w = _weights(words, ROWS, TILES, HALF, ASSEMBLY)
        x = _vectors(x, TILES, COLUMNS, WIDE)
        if not ASSEMBLY:
            # Triton's interpreter takes the bits of bfloat16 operands for integers.
            x = x.to(tl.float32)
        if TILES_A_GROUP == 0:
            acc = tl.dot(w, x, acc)
        else:
            exists = start + tile * 128 < k
            group = (start // 128 + tile) // TILES_A_GROUP
            scale = tl.load(scale_ptrs + group, mask=exists, other=0.0)
            acc += tl.dot(w, x) * scale.to(tl.float32)[:, :, None]
        w_ptrs += TILES * 16
        x_ptrs += TILES * 128
    y = tl.sum(acc, axis=0)
    if PARTS > 1:
        y = tl.sum(tl.reshape(y, [ROWS, PARTS, VECTORS]), axis=1)
    row = first + tl.arange(0, ROWS)[:, None]
    column = first_vector + tl.arange(0, VECTORS)[None, :]
    if TILES_A_GROUP == 0:
        y *= tl.load(scale_ptr + row.to(tl.int64) * scale_stride, mask=row < n, other=0.0)
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
):
    """Multiply one vector by some rows byte by byte, in float32, for any even k and any group."""
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

    octets: int
    warps: int
    tiles: int
    stages: int


def launch_for(k: int, x_columns: int) -> Launch:
    """Choose rows, warps and tiles of k that one program works on at once.

    More than eight columns of x, in units of 16 bits, leave registers for fewer tiles.
    """
    tiles = max(WARPS, min(WARPS * TILES_IN_FLIGHT, triton.next_power_of_2(triton.cdiv(k, TILE_K))))
    return Launch(OCTETS, WARPS, max(WARPS, tiles * 8 // x_columns), STAGES)


def fits_tensor_cores(w: torch.Tensor, group: int, k: int) -> bool:
    """Tell whether rows are whole runs of 16 bytes and groups whole tiles."""
    aligned = w.stride(1) == 1 and w.stride(0) % 16 == 0 and w.storage_offset() % 4 == 0
    return aligned and k % 32 == 0 and (group % TILE_K == 0 or group >= k)


def int4_gemv(w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor, group: int) -> torch.Tensor:
    """Multiply packed weights by a few vectors with the Triton kernels.

    `w` is uint8 (n, k / 2): the low nibble is the even column, in two's complement. `scale` is
    (n, ceil(k / group)), `x` (m, k) in float16, bfloat16 or float32. Returns float32 (m, n):
    exact products, summed in float32 in an order that does not change from call to call.
    """
    n, m, k = w.shape[0], *x.shape
    if k != 2 * w.shape[1]:
        raise ValueError(f"weights {tuple(w.shape)} and vectors {tuple(x.shape)} do not fit")
    if scale.shape != (n, triton.cdiv(k, group)):
        raise ValueError(f"scale is {tuple(scale.shape)}, expected {(n, triton.cdiv(k, group))}")
    out = torch.empty((m, n), dtype=torch.float32, device=w.device)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    x = x if x.stride(1) == 1 else x.contiguous()
    scale = scale if scale.stride(1) == 1 else scale.contiguous()
    if fits_tensor_cores(w, group, k):
        _launch_tensor_cores(w, scale, x, out, group)
    else:
        w = w if w.stride(1) == 1 else w.contiguous()
        _any_size[(triton.cdiv(n, 8), m)](
            w, scale, x, out, n, k, group, w.stride(0), scale.stride(0), x.stride(0),
            BLOCK_ROWS=8, BLOCK_BYTES=128, num_warps=4, enable_fp_fusion=True,
        )  # fmt: skip
    return out


def _launch_tensor_cores(
    w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor, out: torch.Tensor, group: int
) -> None:
    n, m, k = w.shape[0], *x.shape
    parts = 4 if x.dtype == torch.float32 else 1
    columns = min(16, max(8, parts * triton.next_power_of_2(m)))
    launch = launch_for(k, columns * x.element_size() // 2)
    grid = (triton.cdiv(n, 8 * launch.octets), triton.cdiv(m * parts, columns))
    _tensor_cores[grid](
        w.view(torch.int32), scale, x, out, n, k, m,
        w.stride(0) // 16, scale.stride(0), x.stride(0),
        TILES_A_GROUP=0 if group >= k else group // TILE_K,
        COLUMNS=columns, OCTETS=launch.octets, WARPS=launch.warps, TILES=launch.tiles,
        EVEN=k % (TILE_K * launch.tiles) == 0, AHEAD=AHEAD, STAGES=launch.stages,
        ASSEMBLY=w.is_cuda, num_warps=launch.warps, enable_fp_fusion=True,
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


def _tinygemm(inputs: Inputs) -> Thunk:
    w, scale, x, group = _arguments(inputs)
    # It takes unsigned nibbles with a zero of 8, the even column first, and a scale of bfloat16.
    biased = (((w & 15) << 4) | (w >> 4)) ^ 0x88
    packed = torch.ops.aten._convert_weight_to_int4pack(biased, 8)
    repeat = 1 if group < x.shape[1] else x.shape[1] // TILE_K
    scales = scale.to(x.dtype).repeat(1, repeat).T
    scales_and_zeros = torch.stack([scales, torch.zeros_like(scales)], dim=-1).contiguous()
    size = min(group, TILE_K) if repeat > 1 else group
    return lambda: torch.ops.aten._weight_int4pack_mm(x, packed, size, scales_and_zeros)


def _gemlite(inputs: Inputs) -> Thunk:
    from gemlite import DType, GemLiteLinear

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
    if n % 16 or k % TILE_K or not n or not workload["m"]:
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
    shape = (n, triton.cdiv(k, group))
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
        + n * triton.cdiv(k, group) * scale_bytes
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
