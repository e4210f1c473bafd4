"""Residual RMSNorm: a residual is added, the sum is kept and normalised."""

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
WIDEST_ONE_PASS = 32768
LARGE_ELEMENTS = 2**25


@triton.jit(do_not_specialize=["rows"])
def _one_pass(
    x_ptr,
    residual_ptr,
    w_ptr,
    out_ptr,
    sum_ptr,
    x_stride,
    residual_stride,
    rows,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    LOADS: tl.constexpr,
    STORES: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col = tl.arange(0, BLOCK_HIDDEN)[None, :]
    mask = (row < rows) & (col < HIDDEN) if BLOCK_ROWS > 1 else col < HIDDEN
    row = row.to(tl.int64)
    # The weight is asked for first: it then arrives while the rows are still being summed.
    w = tl.load(w_ptr + col, mask=col < HIDDEN, other=0.0, eviction_policy="evict_last")
    x_ptr += row * x_stride + col
    residual_ptr += row * residual_stride + col
    x = tl.load(x_ptr, mask=mask, other=0.0, eviction_policy=LOADS)
    residual = tl.load(residual_ptr, mask=mask, other=0.0, eviction_policy=LOADS)
    let_next_in(PDL)
    s = x.to(tl.float32) + residual.to(tl.float32)
    scale = tl.rsqrt(tl.sum(s * s, axis=1, keep_dims=True) / HIDDEN + eps)
    y = s * scale * w.to(tl.float32)
    tl.store(sum_ptr + row * HIDDEN + col, s, mask=mask, cache_modifier=STORES)
    tl.store(out_ptr + row * HIDDEN + col, y, mask=mask, cache_modifier=STORES)


@triton.jit
def _two_passes(
    x_ptr,
    residual_ptr,
    w_ptr,
    out_ptr,
    sum_ptr,
    x_stride,
    residual_stride,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    let_next_in(PDL)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    residual_ptr += row * residual_stride
    out_ptr += row * HIDDEN
    sum_ptr += row * HIDDEN
    squares = tl.zeros([BLOCK_HIDDEN], tl.float32)
    for start in range(0, HIDDEN, BLOCK_HIDDEN):
        col = start + tl.arange(0, BLOCK_HIDDEN)
        mask = col < HIDDEN
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        residual = tl.load(residual_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        s = x.to(tl.float32) + residual.to(tl.float32)
        tl.store(sum_ptr + col, s, mask=mask, cache_modifier=".cs")
        squares += s * s
    scale = tl.rsqrt(tl.sum(squares, axis=0) / HIDDEN + eps)
    # Backwards: what was read last is surely still in a cache. The sum that was stored is rounded.
    for done in range(0, HIDDEN, BLOCK_HIDDEN):
        col = (HIDDEN - 1) // BLOCK_HIDDEN * BLOCK_HIDDEN - done + tl.arange(0, BLOCK_HIDDEN)
        mask = col < HIDDEN
        w = tl.load(w_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first")
        residual = tl.load(residual_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first")
        s = x.to(tl.float32) + residual.to(tl.float32)
        tl.store(out_ptr + col, s * scale * w.to(tl.float32), mask=mask, cache_modifier=".cs")


class Launch(NamedTuple):
    """Launch parameters of one width; the number of rows only sets the grid."""

    one_pass: bool
    block_rows: int
    block_hidden: int
    num_warps: int


@cache
def launch_for(hidden: int, element_bytes: int) -> Launch:
    """Choose how rows of that width are worked on, for 32 elements a thread or less."""
    width = next_power_of_2(hidden)
    if width > WIDEST_ONE_PASS or (width == WIDEST_ONE_PASS and element_bytes > 2):
        return Launch(one_pass=False, block_rows=1, block_hidden=16384, num_warps=32)
    narrow, wide = max(1, width // 512), 16 if width <= 16384 else 32
    return Launch(
        one_pass=True,
        block_rows=min(16, max(1, 1024 // width)),
        block_hidden=width,
        num_warps=narrow if width < 4096 else wide,
    )


def hints(elements: int, hidden: int) -> tuple[str, str]:
    """Return the hints of loads and stores, as an H200 was measured.

    Beyond the cache the four streams go fastest when reads are kept and writes are not hurried;
    within it, and at the widest rows, when both leave early.
    """
    large = elements >= LARGE_ELEMENTS and hidden <= 16384
    return ("evict_last", "") if large else ("evict_first", ".cs")


def residual_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, eps: float = EPS, pdl: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normalised sum and the sum, rounded, of two matrices of any row strides.

    The sum is normalised as it is in float32, before it is rounded to the dtype. With `pdl` (Hopper
    and newer) the kernel may come onto the card before the one before it ends.
    """
    rows, hidden = x.shape
    out = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    total = torch.empty_like(out)
    if out.numel() == 0:
        return out, total
    x, residual = (t if t.stride(1) == 1 or hidden == 1 else t.contiguous() for t in (x, residual))
    w = w.contiguous()
    launch = launch_for(hidden, x.element_size())
    strides = x.stride(0), residual.stride(0)
    programs = cdiv(rows, launch.block_rows)
    if launch.one_pass:
        loads, stores = hints(rows * hidden, hidden)
        _one_pass[(programs,)](
            x, residual, w, out, total, *strides, rows, eps, LOADS=loads, STORES=stores,
            HIDDEN=hidden, BLOCK_ROWS=launch.block_rows, BLOCK_HIDDEN=launch.block_hidden,
            num_warps=launch.num_warps, enable_fp_fusion=True, **launch_options(pdl, programs),
        )  # fmt: skip
    else:
        _two_passes[(programs,)](
            x, residual, w, out, total, *strides, eps,
            HIDDEN=hidden, BLOCK_HIDDEN=launch.block_hidden,
            num_warps=launch.num_warps, enable_fp_fusion=True, **launch_options(pdl, programs),
        )  # fmt: skip
    return out, total


def reference(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the formula operator by operator, in float32."""
    s = x.float() + residual.float()
    scale = torch.rsqrt(s.square().mean(dim=-1, keepdim=True) + EPS)
    return (s * scale * w.float()).to(x.dtype), s.to(x.dtype)


def native(
    x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add in the dtype, then call torch's own RMSNorm."""
    s = x + residual
    return torch.nn.functional.rms_norm(s, (s.shape[1],), w, EPS), s


def _torch(inputs: Inputs) -> Thunk:
    x, residual, w = inputs["x"], inputs["residual"], inputs["w"]
    return lambda: reference(x, residual, w)


def _torch_native(inputs: Inputs) -> Thunk:
    x, residual, w = inputs["x"], inputs["residual"], inputs["w"]
    return lambda: native(x, residual, w)


def _torch_compile(inputs: Inputs) -> Thunk:
    x, residual, w = inputs["x"], inputs["residual"], inputs["w"]
    function = compiled(reference, inputs)
    return lambda: function(x, residual, w)


def _triton(inputs: Inputs) -> Thunk:
    x, residual, w = inputs["x"], inputs["residual"], inputs["w"]
    return lambda: residual_rms_norm(x, residual, w)


def _triton_pdl(inputs: Inputs) -> Thunk:
    x, residual, w = inputs["x"], inputs["residual"], inputs["w"]
    return lambda: residual_rms_norm(x, residual, w, pdl=True)


def _with_gradient(pdl: bool) -> tuple[Builder, Builder]:
    def forward(inputs: Inputs) -> torch.Tensor:
        return residual_rms_norm(inputs["x"], inputs["residual"], inputs["w"], EPS, pdl)[1]

    def pull(inputs: Inputs, total: torch.Tensor) -> Outputs:
        return rms_norm_gradient(total, inputs["w"], inputs["grad"], inputs["grad_sum"], EPS, pdl)

    return by_passes(forward, pull)


def _eager_gradient(inputs: Inputs) -> Outputs:
    return reference(inputs["x"], inputs["residual"], inputs["w"])


def _native_gradient(inputs: Inputs) -> Outputs:
    return native(inputs["x"], inputs["residual"], inputs["w"])


def _compiled_gradient(inputs: Inputs) -> Outputs:
    some = {name: inputs[name] for name in ("x", "residual", "w")}
    return compiled(reference, some)(**some)


def _liger_forward(inputs: Inputs) -> tuple[Any, ...]:
    from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward

    x, residual, w = inputs["x"], inputs["residual"], inputs["w"]
    # "gemma" is Liger's word for float32 from the rounded sum to the last operation.
    return tuple(fused_add_rms_norm_forward(x, residual, w, EPS, 0.0, "gemma"))


def _liger(inputs: Inputs) -> Thunk:
    return lambda: _liger_forward(inputs)[:2]


def _liger_pull(inputs: Inputs, kept: tuple[Any, ...]) -> Outputs:
    from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_backward

    _, total, scale, block, num_warps, stages, casting = kept
    dx, _, dw = fused_add_rms_norm_backward(
        inputs["grad"], inputs["grad_sum"], total, inputs["w"], scale, 0.0, casting, block,
        num_warps, stages, False,
    )  # fmt: skip
    return dx, dw


def _liger_unsupported(workload: Workload) -> str | None:
    return "Liger takes rows of 65536 elements at most" if workload["hidden"] > 65536 else None


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw one set of inputs."""
    dtype = getattr(torch, workload.dtype)
    shape = (workload["rows"], workload["hidden"])
    x, residual = (
        torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(2)
    )
    noise = torch.randn(shape[1], generator=generator, device=device, dtype=torch.float32)
    return {"x": x, "residual": residual, "w": (1.0 + 0.25 * noise).to(dtype)}


def make_gradient(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw the gradients of both results, so small that the weight's is about 1 for all rows."""
    shape, dtype = (workload["rows"], workload["hidden"]), getattr(torch, workload.dtype)
    scale = max(1, shape[0]) ** -0.5
    grad, grad_sum = (
        (scale * torch.randn(shape, generator=generator, device=device)).to(dtype) for _ in range(2)
    )
    return {"grad": grad, "grad_sum": grad_sum}


def oracle(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the truth in float64, by the norm of each row of the sum."""
    s, w = inputs["x"].double() + inputs["residual"].double(), inputs["w"].double()
    norm = torch.linalg.vector_norm(s, dim=1, keepdim=True)
    return w * s / torch.sqrt(norm**2 / s.shape[1] + EPS), s


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count per element two sums, a square and two products, per row a mean and the sum with eps.

    Bytes: x, the residual and the weight in; the normalised sum and the sum out. Backward, from
    the sum that was kept: the square and its sum, g w, its product with the sum and their sum, a
    product and a difference, the scale, the gradient of the sum, and g s scale in three steps; the
    sum, both gradients and the weight in; the gradient of x, which is the residual's, and that of
    the weight out. Full, both passes.
    """
    rows, hidden = workload["rows"], workload["hidden"]
    element_bytes = getattr(torch, workload.dtype).itemsize
    flops = {"forward": 5 * rows * hidden + 2 * rows, "backward": 12 * rows * hidden + 5 * rows}
    elements = {"forward": 4 * rows * hidden + hidden, "backward": 4 * rows * hidden + 2 * hidden}
    passes = ("forward", "backward") if mode == "full" else (mode,)
    return Cost(
        flops=sum(flops[one] for one in passes),
        minimal_bytes=sum(elements[one] for one in passes) * element_bytes,
        special_ops=len(passes) * rows,
    )


def _workloads() -> tuple[Workload, ...]:
    tags: dict[tuple[int, int, str], set[str]] = {}

    def add(rows: int, hidden: int, dtype: str, *names: str) -> None:
        tags.setdefault((rows, hidden, dtype), set()).update(names)

    for rows in (16384, 64):
        add(rows, 4096, "bfloat16", "default")
    add(4, 1536, "bfloat16", "default", "cpu")
    add(1, 1536, "bfloat16", "default")
    for rows in (16, 1024):
        add(rows, 4096, "bfloat16", "default", "cpu")
    for rows in (1, 4, 256, 4096):
        add(rows, 4096, "bfloat16", "full")
    for rows in (1, 64, 1024, 16384):
        add(rows, 4096, "float16", "full")
    for hidden in (64, 256, 1024, 3584, 8192, 16384, 32768, 65536, 131072):
        add(4096, hidden, "bfloat16", "full")
    add(2048, 8192, "float32", "full")
    for dtype in ("float16", "bfloat16", "float32"):
        add(5, 64, dtype, "smoke")
        add(3, 1000, dtype, "smoke")
        for hidden in (17, 1023, 12980, 65537, 131072):
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
    return tuple(
        Workload({"rows": rows, "hidden": hidden}, dtype, frozenset(names))
        for (rows, hidden, dtype), names in tags.items()
    )


# The gradient of the residual is that of x: it is neither computed nor written a second time.
IN_X_AND_W = ("x", "w")
UPSTREAM = ("grad", "grad_sum")
EAGER = by_autograd(_eager_gradient, IN_X_AND_W, UPSTREAM)
NATIVE = by_autograd(_native_gradient, IN_X_AND_W, UPSTREAM)
COMPILED = by_autograd(_compiled_gradient, IN_X_AND_W, UPSTREAM)
TRITON, TRITON_PDL = _with_gradient(pdl=False), _with_gradient(pdl=True)
LIGER = by_passes(_liger_forward, _liger_pull)

OP = Op(
    name="residual_rms_norm",
    title="Residual RMSNorm",
    summary="Adds a residual, keeps the sum and normalises it: what stands before every attention "
    "and feed-forward block of most large language models.",
    formula="s = x + residual; y = s * rsqrt(mean(s^2) + eps) * w, in float32; returns y and s",
    axis="rows",
    inputs="x ~ N(0, 1), residual ~ N(0, 1), w ~ N(1, 1/16), rounded to the dtype",
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
            summary="A sum, rounded to the dtype, and torch.nn.functional.rms_norm.",
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
            summary="Liger Kernel's Triton kernels; normalises the rounded sum.",
            packages=("liger_kernel",),
            unsupported=_liger_unsupported,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    tolerance={
        # Two roundings to the dtype, sum and result, of half a unit in the last place each, 2^-10
        # and 2^-7 together, and a tenth more for what rounding the sum does to the mean.
        "float16": Tolerance(absolute=1e-6, relative=1.1e-3, norm=5e-4),
        "bfloat16": Tolerance(absolute=1e-6, relative=8.6e-3, norm=5e-3),
        "float32": Tolerance(absolute=1e-6, relative=1e-5, norm=1e-6),
    },
    # The sum is kept rounded, by half a unit in the last place of the dtype; so are the terms that
    # add up to the weight's gradient. It may be near zero where three terms of up to 8 cancel: four
    # units in the last place of 1.
    gradient=Gradient(
        make_inputs=make_gradient,
        oracle=of_oracle(oracle, IN_X_AND_W, UPSTREAM),
        tolerance={
            "float16": Tolerance(absolute=4e-3, relative=1.1e-3, norm=5e-4),
            "bfloat16": Tolerance(absolute=3.2e-2, relative=8.6e-3, norm=5e-3),
            "float32": Tolerance(absolute=4e-6, relative=1e-5, norm=1e-6),
        },
    ),
    cost=cost,
    params={"eps": EPS},
)
