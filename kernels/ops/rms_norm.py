"""RMSNorm: each row divided by its root mean square, times a weight."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.compiled import compiled
from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.gradients import by_autograd, by_passes, of_oracle
from kernels.rms_norm_backward import KERNELS, rms_norm_gradient
from kernels.sizes import cdiv, next_power_of_2
from kernels.spec import Cost, Gradient, Implementation, Mode, Op, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs, Outputs, Thunk

EPS = 1e-6
WIDEST_ONE_PASS = 16384
WIDEST_BLOCK = 32768
LARGE_ELEMENTS = 2**25


@triton.jit(do_not_specialize=["rows"])
def _one_pass(
    x_ptr,
    w_ptr,
    out_ptr,
    x_stride,
    rows,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    LOADS: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col = tl.arange(0, BLOCK_HIDDEN)[None, :]
    mask = (row < rows) & (col < HIDDEN) if BLOCK_ROWS > 1 else col < HIDDEN
    row = row.to(tl.int64)
    # The weight is asked for first: it then arrives while the rows are still being summed.
    w = tl.load(w_ptr + col, mask=col < HIDDEN, other=0.0, eviction_policy="evict_last")
    x = tl.load(x_ptr + row * x_stride + col, mask=mask, other=0.0, eviction_policy=LOADS)
    x = x.to(tl.float32)
    let_next_in(PDL)
    scale = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / HIDDEN + eps)
    # Streaming stores let written lines leave L2 first, so that reads seldom wait for a write-back.
    y = x * scale * w.to(tl.float32)
    tl.store(out_ptr + row * HIDDEN + col, y, mask=mask, cache_modifier=".cs")


@triton.jit
def _two_passes(
    x_ptr,
    w_ptr,
    out_ptr,
    x_stride,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    KEPT: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    let_next_in(PDL)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    out_ptr += row * HIDDEN
    read_twice: tl.constexpr = (HIDDEN + BLOCK_HIDDEN - 1) // BLOCK_HIDDEN - KEPT
    last = read_twice * BLOCK_HIDDEN + tl.arange(0, BLOCK_HIDDEN)
    squares = tl.zeros([BLOCK_HIDDEN], tl.float32)
    # The first pass leaves the row in L2, but for a last block that stays in registers.
    for block in range(read_twice):
        col = block * BLOCK_HIDDEN + tl.arange(0, BLOCK_HIDDEN)
        x = tl.load(x_ptr + col, mask=col < HIDDEN, other=0.0, eviction_policy="evict_last")
        squares += x.to(tl.float32) * x.to(tl.float32)
    if KEPT:
        kept = tl.load(x_ptr + last, mask=last < HIDDEN, other=0.0, eviction_policy="evict_first")
        squares += kept.to(tl.float32) * kept.to(tl.float32)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / HIDDEN + eps)
    if KEPT:
        w = tl.load(w_ptr + last, mask=last < HIDDEN, other=0.0, eviction_policy="evict_last")
        y = kept.to(tl.float32) * scale * w.to(tl.float32)
        tl.store(out_ptr + last, y, mask=last < HIDDEN, cache_modifier=".cs")
    # Backwards: what was read last is surely still in a cache.
    for block in range(read_twice):
        col = (read_twice - 1 - block) * BLOCK_HIDDEN + tl.arange(0, BLOCK_HIDDEN)
        mask = col < HIDDEN
        w = tl.load(w_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first")
        y = x.to(tl.float32) * scale * w.to(tl.float32)
        tl.store(out_ptr + col, y, mask=mask, cache_modifier=".cs")


class Launch(NamedTuple):
    """Launch parameters of one width; the number of rows sets the grid and whether it is large."""

    one_pass: bool
    block_rows: int
    block_hidden: int
    num_warps: int
    loads: str = "evict_first"
    kept: bool = False


@cache
def launch_for(hidden: int, large: bool = False) -> Launch:
    """Choose how rows of that width are worked on, for 32 elements a thread or less.

    Where a matrix streams past the cache, an H200 is fastest when reads are kept in it and written
    lines leave first, with few warps a row. The widest rows are worked on one at a time by a
    multiprocessor, with a block of each kept in registers.
    """
    width = next_power_of_2(hidden)
    if width > WIDEST_ONE_PASS:
        block = min(width // 2, WIDEST_BLOCK)
        return Launch(False, 1, block, num_warps=32, kept=block == WIDEST_BLOCK)
    streams = large and width <= 8192
    return Launch(
        one_pass=True,
        block_rows=min(16, max(1, 1024 // width)),
        block_hidden=width,
        num_warps=min(8 if streams else 16, max(1, width // 512)),
        loads="evict_last" if streams else "evict_first",
    )


def rms_norm(x: torch.Tensor, w: torch.Tensor, eps: float = EPS, pdl: bool = False) -> torch.Tensor:
    """Normalise the rows of a matrix of any row stride with the Triton kernels.

    With `pdl` (Hopper and newer) the next kernel of the stream may be brought onto the card before
    this one ends; it still waits for this one's results.
    """
    rows, hidden = x.shape
    out = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    x = x if x.stride(1) == 1 or hidden == 1 else x.contiguous()
    w = w.contiguous()
    launch = launch_for(hidden, out.numel() >= LARGE_ELEMENTS)
    programs = cdiv(rows, launch.block_rows)
    if launch.one_pass:
        _one_pass[(programs,)](
            x, w, out, x.stride(0), rows, eps,
            HIDDEN=hidden, BLOCK_ROWS=launch.block_rows, BLOCK_HIDDEN=launch.block_hidden,
            LOADS=launch.loads, num_warps=launch.num_warps, enable_fp_fusion=True,
            **launch_options(pdl, programs),
        )  # fmt: skip
    else:
        _two_passes[(programs,)](
            x, w, out, x.stride(0), eps,
            HIDDEN=hidden, BLOCK_HIDDEN=launch.block_hidden, KEPT=int(launch.kept),
            num_warps=launch.num_warps, enable_fp_fusion=True, **launch_options(pdl, programs),
        )  # fmt: skip
    return out


def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute the formula operator by operator, in float32."""
    x32 = x.float()
    scale = torch.rsqrt(x32.square().mean(dim=-1, keepdim=True) + EPS)
    return (x32 * scale * w.float()).to(x.dtype)


def _torch(inputs: Inputs) -> Thunk:
    x, w = inputs["x"], inputs["w"]
    return lambda: reference(x, w)


def _torch_native(inputs: Inputs) -> Thunk:
    x, w = inputs["x"], inputs["w"]
    return lambda: torch.nn.functional.rms_norm(x, (x.shape[1],), w, EPS)


def _torch_compile(inputs: Inputs) -> Thunk:
    x, w = inputs["x"], inputs["w"]
    function = compiled(reference, inputs)
    return lambda: function(x, w)


def _triton(inputs: Inputs) -> Thunk:
    x, w = inputs["x"], inputs["w"]
    return lambda: rms_norm(x, w)


def _triton_pdl(inputs: Inputs) -> Thunk:
    x, w = inputs["x"], inputs["w"]
    return lambda: rms_norm(x, w, pdl=True)


def _with_gradient(pdl: bool) -> tuple[Builder, Builder]:
    def forward(inputs: Inputs) -> torch.Tensor:
        return rms_norm(inputs["x"], inputs["w"], pdl=pdl)

    def pull(inputs: Inputs, out: torch.Tensor) -> Outputs:
        return rms_norm_gradient(inputs["x"], inputs["w"], inputs["grad"], pdl=pdl)

    return by_passes(forward, pull)


def _eager_gradient(inputs: Inputs) -> torch.Tensor:
    return reference(inputs["x"], inputs["w"])


def _native_gradient(inputs: Inputs) -> torch.Tensor:
    return torch.nn.functional.rms_norm(inputs["x"], inputs["w"].shape, inputs["w"], EPS)


def _compiled_gradient(inputs: Inputs) -> torch.Tensor:
    x, w = inputs["x"], inputs["w"]
    return compiled(reference, {"x": x, "w": w})(x, w)


def _liger_forward(inputs: Inputs) -> tuple[Any, ...]:
    from liger_kernel.ops.rms_norm import rms_norm_forward

    # "gemma" is Liger's word for float32 from the first operation to the last, as here.
    return tuple(rms_norm_forward(inputs["x"], inputs["w"], EPS, 0.0, "gemma", None))


def _liger(inputs: Inputs) -> Thunk:
    return lambda: _liger_forward(inputs)[0]


def _liger_pull(inputs: Inputs, kept: tuple[Any, ...]) -> Outputs:
    from liger_kernel.ops.rms_norm import rms_norm_backward

    _, x, scale, block, num_warps, casting = kept
    return tuple(
        rms_norm_backward(
            inputs["grad"], x, inputs["w"], scale, 0.0, casting, block, num_warps, False, None
        )
    )


def _liger_unsupported(workload: Workload) -> str | None:
    return "Liger takes rows of 65536 elements at most" if workload["hidden"] > 65536 else None


def _flashinfer(inputs: Inputs) -> Thunk:
    from flashinfer.norm import rmsnorm

    return lambda: rmsnorm(inputs["x"], inputs["w"], EPS)


def _flashinfer_unsupported(workload: Workload) -> str | None:
    if workload.dtype == "float32" or not workload["rows"]:
        return "FlashInfer takes values of 16 bits, and at least one row"
    return None


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw one set of inputs."""
    dtype = getattr(torch, workload.dtype)
    shape = (workload["rows"], workload["hidden"])
    x = torch.randn(shape, generator=generator, device=device, dtype=dtype)
    noise = torch.randn(shape[1], generator=generator, device=device, dtype=torch.float32)
    return {"x": x, "w": (1.0 + 0.25 * noise).to(dtype)}


def make_gradient(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw the gradient of the result, so small that the weight's is about 1 for all rows."""
    shape = (workload["rows"], workload["hidden"])
    grad = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    return {"grad": (grad * max(1, shape[0]) ** -0.5).to(getattr(torch, workload.dtype))}


def oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the truth in float64, by the norm of each row."""
    x, w = inputs["x"].double(), inputs["w"].double()
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return w * x / torch.sqrt(norm**2 / x.shape[1] + EPS)


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count per element a square, a sum and two products, per row a mean, an addition of eps.

    Backward, from x, w and the gradient g: the square and its sum again, g w, its product with x
    and their sum, a product and a difference with x, the scale, and g x scale in three steps.
    Full, both passes.
    """
    rows, hidden = workload["rows"], workload["hidden"]
    element_bytes = getattr(torch, workload.dtype).itemsize
    flops = {"forward": 4 * rows * hidden + 2 * rows, "backward": 11 * rows * hidden + 5 * rows}
    elements = {"forward": 2 * rows * hidden + hidden, "backward": 3 * rows * hidden + 2 * hidden}
    passes = ("forward", "backward") if mode == "full" else (mode,)
    return Cost(
        flops=sum(flops[one] for one in passes),
        minimal_bytes=sum(elements[one] for one in passes) * element_bytes,
        special_ops=len(passes) * rows,
    )


def _workload(rows: int, hidden: int, dtype: str, *tags: str) -> Workload:
    return Workload({"rows": rows, "hidden": hidden}, dtype, frozenset(tags))


def _workloads() -> tuple[Workload, ...]:
    tags: dict[tuple[int, int, str], set[str]] = {}

    def add(rows: int, hidden: int, dtype: str, *names: str) -> None:
        tags.setdefault((rows, hidden, dtype), set()).update(names)

    for rows in (1, 16, 256, 1024, 4096, 16384):
        add(rows, 4096, "float16", "default")
    for rows in (4, 64):
        add(rows, 4096, "float16", "full")
    for rows in (1, 4, 16, 64, 256, 1024, 4096, 16384):
        add(rows, 4096, "bfloat16", "full")
    for rows, hidden in ((128, 1024), (512, 4096), (2048, 4096)):
        add(rows, hidden, "float16", "default", "cpu")
        add(rows, hidden, "bfloat16", "full")
    add(16384, 8192, "float16", "default")
    add(16384, 8192, "bfloat16", "full")
    for hidden in (64, 256, 1024, 3584, 16384, 32768, 65536, 131072):
        add(4096, hidden, "bfloat16", "full")
    for rows in (1, 256):
        add(rows, 4096, "float16", "cpu")
    for dtype in ("float16", "bfloat16", "float32"):
        add(5, 64, dtype, "smoke")
        add(3, 1000, dtype, "smoke")
    for hidden in (17, 1023, 3584, 12980, 65537, 131072):
        for dtype in ("float16", "bfloat16", "float32"):
            add(3, hidden, dtype, "edge")
    for rows, hidden in ((2048, 4096), (16384, 8192), (512, 131072)):
        add(rows, hidden, "bfloat16", "full", "gradient")
    for dtype in ("float16", "bfloat16", "float32"):
        add(3, 1000, dtype, "gradient")
    for hidden, dtype in ((17, "float16"), (1023, "bfloat16"), (20000, "float16")):
        add(3, hidden, dtype, "edge", "gradient")
    for rows, hidden in ((0, 64), (257, 64)):
        add(rows, hidden, "float16", "gradient")
    for rows, hidden in ((0, 64), (0, 65537), (1, 1023), (33, 1), (257, 64), (9, 8192)):
        add(rows, hidden, "float16", "edge")
    return tuple(_workload(*key, *sorted(names)) for key, names in tags.items())


IN_X_AND_W = ("x", "w")
EAGER = by_autograd(_eager_gradient, IN_X_AND_W)
NATIVE = by_autograd(_native_gradient, IN_X_AND_W)
COMPILED = by_autograd(_compiled_gradient, IN_X_AND_W)
TRITON, TRITON_PDL = _with_gradient(pdl=False), _with_gradient(pdl=True)
LIGER = by_passes(_liger_forward, _liger_pull)

OP = Op(
    name="rms_norm",
    title="RMSNorm",
    summary="Divides each row by its root mean square and multiplies by a weight: the "
    "normalisation of most large language models.",
    formula="y = x * rsqrt(mean(x^2) + eps) * w, in float32",
    axis="rows",
    inputs="x ~ N(0, 1), w ~ N(1, 1/16), rounded to the dtype",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_torch,
            backward=EAGER[0],
            full=EAGER[1],
            summary="The formula in PyTorch, operator by operator, in float32.",
        ),
        Implementation(
            name="torch-native",
            kind="eager",
            build=_torch_native,
            backward=NATIVE[0],
            full=NATIVE[1],
            summary="torch.nn.functional.rms_norm.",
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_torch_compile,
            backward=COMPILED[0],
            full=COMPILED[1],
            summary="The formula through torch.compile, compiled for each shape.",
        ),
        Implementation(
            name="triton",
            kind="triton",
            build=_triton,
            backward=TRITON[0],
            full=TRITON[1],
            summary="One kernel, rows in registers, one read; very wide rows are read twice.",
            kernels=lambda: (_one_pass, _two_passes, *KERNELS),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            backward=TRITON_PDL[0],
            full=TRITON_PDL[1],
            summary="The same kernels with programmatic dependent launch: they are brought onto "
            "the card while the kernel before them ends, and wait for it before they read.",
            least_sm=90,
            kernels=lambda: (_one_pass, _two_passes, *KERNELS),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="liger",
            kind="library",
            build=_liger,
            backward=LIGER[0],
            full=LIGER[1],
            summary="Liger Kernel's Triton kernels, float32 arithmetic.",
            packages=("liger_kernel",),
            unsupported=_liger_unsupported,
        ),
        Implementation(
            name="flashinfer",
            kind="library",
            build=_flashinfer,
            summary="FlashInfer's CUDA kernel, forward only, launched dependently as it is by "
            "default on Hopper.",
            packages=("flashinfer",),
            unsupported=_flashinfer_unsupported,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    tolerance={
        # A unit in the last place of the dtype, 2^-10 and 2^-7: Triton's interpreter cuts bfloat16
        # off where hardware rounds to within half a unit.
        "float16": Tolerance(absolute=1e-6, relative=1e-3, norm=5e-4),
        "bfloat16": Tolerance(absolute=1e-6, relative=8e-3, norm=5e-3),
        "float32": Tolerance(absolute=1e-6, relative=1e-5, norm=1e-6),
    },
    # Sums over rows are about 1 like the weight's gradient itself, and so are those on the way: a
    # few hundred roundings of 2^-24 reach 2e-6.
    gradient=Gradient(
        make_inputs=make_gradient,
        oracle=of_oracle(oracle, IN_X_AND_W),
        tolerance={
            "float16": Tolerance(absolute=4e-6, relative=1e-3, norm=5e-4),
            "bfloat16": Tolerance(absolute=4e-6, relative=8e-3, norm=5e-3),
            "float32": Tolerance(absolute=4e-6, relative=1e-5, norm=1e-6),
        },
    ),
    cost=cost,
    params={"eps": EPS},
)
