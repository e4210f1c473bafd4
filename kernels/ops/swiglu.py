"""SwiGLU: one half of a projection, times the sigmoid-weighted other half."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.compiled import compiled
from kernels.dependent_launch import launch_options, let_next_in, wait_for_previous
from kernels.gradients import by_autograd, by_passes, of_oracle
from kernels.sizes import cdiv, next_power_of_2
from kernels.spec import Cost, Gradient, Implementation, Mode, Op, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs, Outputs, Thunk

BLOCK = 1024
NUM_WARPS = 4
# Up to here smaller tiles bring work to more of the SMs.
FEW_ELEMENTS = 2**17


@triton.jit
def _tile(gate_ptr, up_ptr, out_ptr, mask):
    gate = tl.load(gate_ptr, mask=mask, eviction_policy="evict_last").to(tl.float32)
    up = tl.load(up_ptr, mask=mask, eviction_policy="evict_last").to(tl.float32)
    # Streaming stores let written lines leave L2 first, so that reads seldom wait for a write-back.
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr, y, mask=mask, cache_modifier=".cs")


@triton.jit(do_not_specialize=["tiles"])
def _swiglu(
    gate_ptr,
    up_ptr,
    out_ptr,
    gate_stride,
    up_stride,
    width,
    tiles,
    FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    let_next_in(PDL)
    col = tl.arange(0, BLOCK)
    # Flat, the matrix is one row that a grid of tiles covers.
    row = 0 if FLAT else (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) if FLAT else tl.program_id(0) % tiles
    start = tile.to(tl.int64) * BLOCK
    gate_ptr += row * gate_stride + start
    up_ptr += row * up_stride + start
    out_ptr += row * width + start
    left = width - start
    # A full tile needs no mask: it is read in 16 bytes whatever the width.
    if left >= BLOCK:
        _tile(gate_ptr + col, up_ptr + col, out_ptr + col, None)
    else:
        _tile(gate_ptr + col, up_ptr + col, out_ptr + col, col < left)


@triton.jit
def _tile_backward(gate_ptr, up_ptr, grad_ptr, dgate_ptr, dup_ptr, mask):
    gate = tl.load(gate_ptr, mask=mask).to(tl.float32)
    up = tl.load(up_ptr, mask=mask).to(tl.float32)
    grad = tl.load(grad_ptr, mask=mask).to(tl.float32)
    sigmoid = 1.0 / (1.0 + tl.exp(-gate))
    silu = gate * sigmoid
    dgate = grad * up * (sigmoid + silu * (1.0 - sigmoid))
    tl.store(dgate_ptr, dgate, mask=mask, cache_modifier=".cs")
    tl.store(dup_ptr, grad * silu, mask=mask, cache_modifier=".cs")


@triton.jit(do_not_specialize=["tiles"])
def _swiglu_backward(
    gate_ptr,
    up_ptr,
    grad_ptr,
    dgate_ptr,
    dup_ptr,
    gate_stride,
    up_stride,
    grad_stride,
    width,
    tiles,
    FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_previous(PDL)
    let_next_in(PDL)
    col = tl.arange(0, BLOCK)
    row = 0 if FLAT else (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) if FLAT else tl.program_id(0) % tiles
    start = tile.to(tl.int64) * BLOCK
    gate_ptr += row * gate_stride + start + col
    up_ptr += row * up_stride + start + col
    grad_ptr += row * grad_stride + start + col
    dgate_ptr += row * width + start + col
    dup_ptr += row * width + start + col
    left = width - start
    if left >= BLOCK:
        _tile_backward(gate_ptr, up_ptr, grad_ptr, dgate_ptr, dup_ptr, None)
    else:
        _tile_backward(gate_ptr, up_ptr, grad_ptr, dgate_ptr, dup_ptr, col < left)


class Launch(NamedTuple):
    """Launch parameters of rows of one width; the number of rows only sets the grid."""

    block: int
    num_warps: int


@cache
def launch_for(width: int) -> Launch:
    """Choose the tile of rows that lie apart, for 8 elements a thread as far as a row has them."""
    block = min(BLOCK, next_power_of_2(width))
    return Launch(block, max(1, block * NUM_WARPS // BLOCK))


def flat_launch_for(elements: int) -> Launch:
    """Choose the tile of a matrix without gaps."""
    return Launch(BLOCK // 2 if elements <= FEW_ELEMENTS else BLOCK, NUM_WARPS)


def swiglu(gate: torch.Tensor, up: torch.Tensor, pdl: bool = False) -> torch.Tensor:
    """Compute silu(gate) * up with the Triton kernel, for matrices of any row strides.

    With `pdl` (Hopper and newer) it may come onto the card before the kernel before it ends.
    """
    rows, hidden = gate.shape
    out = torch.empty((rows, hidden), dtype=gate.dtype, device=gate.device)
    if out.numel() == 0:
        return out
    flat = gate.is_contiguous() and up.is_contiguous()
    gate, up = (t if t.stride(1) == 1 or hidden == 1 else t.contiguous() for t in (gate, up))
    width = rows * hidden if flat else hidden
    launch = flat_launch_for(width) if flat else launch_for(hidden)
    tiles = cdiv(width, launch.block)
    programs = tiles if flat else rows * tiles
    _swiglu[(programs,)](
        gate, up, out, 0 if flat else gate.stride(0), 0 if flat else up.stride(0), width, tiles,
        FLAT=flat, BLOCK=launch.block, num_warps=launch.num_warps, enable_fp_fusion=True,
        **launch_options(pdl, programs),
    )  # fmt: skip
    return out


def swiglu_gradient(
    gate: torch.Tensor, up: torch.Tensor, grad: torch.Tensor, pdl: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of gate and up from that of the result, all of any row strides."""
    rows, hidden = gate.shape
    dgate = torch.empty((rows, hidden), dtype=gate.dtype, device=gate.device)
    dup = torch.empty_like(dgate)
    if dgate.numel() == 0:
        return dgate, dup
    tensors = gate, up, grad
    flat = all(t.is_contiguous() for t in tensors)
    gate, up, grad = (t if t.stride(1) == 1 or hidden == 1 else t.contiguous() for t in tensors)
    width = rows * hidden if flat else hidden
    launch = flat_launch_for(width) if flat else launch_for(hidden)
    tiles = cdiv(width, launch.block)
    programs = tiles if flat else rows * tiles
    strides = (0, 0, 0) if flat else (gate.stride(0), up.stride(0), grad.stride(0))
    _swiglu_backward[(programs,)](
        gate, up, grad, dgate, dup, *strides, width, tiles,
        FLAT=flat, BLOCK=launch.block, num_warps=launch.num_warps, enable_fp_fusion=True,
        **launch_options(pdl, programs),
    )  # fmt: skip
    return dgate, dup


def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Compute the formula operator by operator, in float32."""
    gate32 = gate.float()
    return (gate32 * torch.sigmoid(gate32) * up.float()).to(gate.dtype)


def _torch(inputs: Inputs) -> Thunk:
    gate, up = inputs["gate"], inputs["up"]
    return lambda: reference(gate, up)


def _torch_native(inputs: Inputs) -> Thunk:
    gate, up = inputs["gate"], inputs["up"]
    return lambda: torch.nn.functional.silu(gate) * up


def _torch_compile(inputs: Inputs) -> Thunk:
    gate, up = inputs["gate"], inputs["up"]
    function = compiled(reference, inputs)
    return lambda: function(gate, up)


def _triton(inputs: Inputs) -> Thunk:
    gate, up = inputs["gate"], inputs["up"]
    return lambda: swiglu(gate, up)


def _triton_pdl(inputs: Inputs) -> Thunk:
    gate, up = inputs["gate"], inputs["up"]
    return lambda: swiglu(gate, up, pdl=True)


def _with_gradient(pdl: bool) -> tuple[Builder, Builder]:
    def forward(inputs: Inputs) -> torch.Tensor:
        return swiglu(inputs["gate"], inputs["up"], pdl)

    def pull(inputs: Inputs, out: torch.Tensor) -> Outputs:
        return swiglu_gradient(inputs["gate"], inputs["up"], inputs["grad"], pdl)

    return by_passes(forward, pull)


def _eager_gradient(inputs: Inputs) -> torch.Tensor:
    return reference(inputs["gate"], inputs["up"])


def _native_gradient(inputs: Inputs) -> torch.Tensor:
    return torch.nn.functional.silu(inputs["gate"]) * inputs["up"]


def _compiled_gradient(inputs: Inputs) -> torch.Tensor:
    gate, up = inputs["gate"], inputs["up"]
    return compiled(reference, {"gate": gate, "up": up})(gate, up)


def _liger(inputs: Inputs) -> Thunk:
    from liger_kernel.ops.swiglu import swiglu_forward

    gate, up = inputs["gate"], inputs["up"]
    return lambda: swiglu_forward(gate, up)[2]


def _liger_unsupported(workload: Workload) -> str | None:
    return "Liger takes rows of 65536 elements at most" if workload["hidden"] > 65536 else None


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw one set of inputs."""
    dtype = getattr(torch, workload.dtype)
    shape = (workload["rows"], workload["hidden"])
    names = ("gate", "up")
    return {n: torch.randn(shape, generator=generator, device=device, dtype=dtype) for n in names}


def make_gradient(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw the gradient of the result."""
    shape, dtype = (workload["rows"], workload["hidden"]), getattr(torch, workload.dtype)
    return {"grad": torch.randn(shape, generator=generator, device=device, dtype=dtype)}


def oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the truth in float64, by the hyperbolic tangent of half the gate."""
    gate, up = inputs["gate"].double(), inputs["up"].double()
    # 1 + tanh cancels for negative gates: 1e-16 / sigmoid(-6), far below the bounds.
    return 0.5 * gate * (1.0 + torch.tanh(0.5 * gate)) * up


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count per element a sum, two products, an exponential and a reciprocal.

    Backward, from the sigmoid s and gate * s: grad * gate * s, and in five steps grad * up *
    (s + gate * s * (1 - s)); three tensors in, two out. Full, both passes.
    """
    elements = workload["rows"] * workload["hidden"]
    element_bytes = getattr(torch, workload.dtype).itemsize
    flops = {"forward": 3, "backward": 8, "full": 11}[mode]
    tensors = {"forward": 3, "backward": 5, "full": 8}[mode]
    return Cost(
        flops=flops * elements,
        minimal_bytes=tensors * elements * element_bytes,
        special_ops=(4 if mode == "full" else 2) * elements,
    )


def _workloads() -> tuple[Workload, ...]:
    tags: dict[tuple[int, int, str], set[str]] = {}

    def add(rows: int, hidden: int, dtype: str, *names: str) -> None:
        tags.setdefault((rows, hidden, dtype), set()).update(names)

    add(16384, 8192, "float16", "default")
    for rows, hidden in ((2048, 4096), (128, 1024), (512, 4096)):
        add(rows, hidden, "float16", "default", "cpu")
        add(rows, hidden, "bfloat16", "full")
    add(8192, 14336, "bfloat16", "default")
    add(16, 14336, "bfloat16", "default")
    for rows in (1, 64, 256, 1024, 4096, 16384):
        add(rows, 14336, "bfloat16", "full")
    for rows in (1, 16, 128, 512, 4096, 16384):
        add(rows, 4096, "float16", "full")
    for hidden in (512, 2048, 8192, 28672, 131072):
        add(4096, hidden, "bfloat16", "full")
    add(4096, 8192, "float32", "full")
    for dtype in ("float16", "bfloat16", "float32"):
        add(5, 64, dtype, "smoke")
        add(3, 1000, dtype, "smoke")
        for hidden in (17, 1023, 12980, 131072):
            add(3, hidden, dtype, "edge")
    for rows, hidden in ((2048, 4096), (16384, 8192)):
        add(rows, hidden, "bfloat16", "full", "gradient")
    for dtype in ("float16", "bfloat16", "float32"):
        add(3, 1000, dtype, "gradient")
    for rows, hidden in ((0, 64), (1, 1025)):
        add(rows, hidden, "float16", "edge", "gradient")
    for rows, hidden in ((0, 64), (1, 1), (33, 1), (1, 1025), (257, 63), (9, 8192)):
        add(rows, hidden, "float16", "edge")
    return tuple(
        Workload({"rows": rows, "hidden": hidden}, dtype, frozenset(names))
        for (rows, hidden, dtype), names in tags.items()
    )


IN_BOTH = ("gate", "up")
EAGER = by_autograd(_eager_gradient, IN_BOTH)
NATIVE = by_autograd(_native_gradient, IN_BOTH)
COMPILED = by_autograd(_compiled_gradient, IN_BOTH)
TRITON, TRITON_PDL = _with_gradient(pdl=False), _with_gradient(pdl=True)

OP = Op(
    name="swiglu",
    title="SwiGLU",
    summary="Multiplies one projection by the sigmoid-weighted other one: the activation between "
    "the matrices of most large language models' feed-forward blocks.",
    formula="y = gate * sigmoid(gate) * up, in float32",
    axis="rows",
    inputs="gate ~ N(0, 1), up ~ N(0, 1), rounded to the dtype",
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
            summary="torch.nn.functional.silu, rounded to the dtype, times up.",
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
            summary="One kernel, tiles of 1024 elements; halves of one buffer are read in place.",
            kernels=lambda: (_swiglu, _swiglu_backward),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-pdl",
            kind="triton",
            build=_triton_pdl,
            backward=TRITON_PDL[0],
            full=TRITON_PDL[1],
            summary="The same kernel with programmatic dependent launch: it is brought onto the "
            "card while the one before it ends, and waits for it before it reads.",
            least_sm=90,
            kernels=lambda: (_swiglu, _swiglu_backward),
            launches=lambda workload: 1,
        ),
        Implementation(
            name="liger",
            kind="library",
            build=_liger,
            summary="Liger Kernel's Triton kernel, forward only; rounds silu(gate) to the dtype.",
            packages=("liger_kernel",),
            unsupported=_liger_unsupported,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    tolerance={
        # Two roundings to the dtype, silu and product, of half a unit in the last place each:
        # 2^-10 and 2^-7 together; 2^-25 is half a subnormal step of float16, times |up| below 6.
        "float16": Tolerance(absolute=2e-7, relative=1e-3, norm=5e-4),
        "bfloat16": Tolerance(absolute=2e-7, relative=8e-3, norm=5e-3),
        # 17 units of 2^-24: |gate| below 6 times log2(e) is rounded, the exponential and the
        # quotient are right to 2 units in the last place, a sum and two products follow.
        "float32": Tolerance(absolute=1e-8, relative=2e-6, norm=5e-7),
    },
    # As forward. Where the derivative of silu is zero, at -1.28, its terms of 0.2 cancel: ten
    # roundings of 2^-24, times |grad * up| below 20, leave 2e-6; half of it in practice.
    gradient=Gradient(
        make_inputs=make_gradient,
        oracle=of_oracle(oracle, IN_BOTH),
        tolerance={
            "float16": Tolerance(absolute=2e-6, relative=1e-3, norm=5e-4),
            "bfloat16": Tolerance(absolute=2e-6, relative=8e-3, norm=5e-3),
            "float32": Tolerance(absolute=2e-6, relative=2e-6, norm=5e-7),
        },
    ),
    cost=cost,
)
