"""Frozen kernels that measure the device itself: ceilings, floor, drift. Do not tune them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from kernels.sizes import cdiv

if TYPE_CHECKING:
    from kernels.spec import Outputs, Thunk

MIB = 1024**2


@triton.jit
def _empty_kernel(x_ptr):
    pass


@triton.jit
def _copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def _read_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    pid = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        offs = (pid.to(tl.int64) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + pid, tl.sum(total))


@triton.jit
def _write_kernel(y_ptr, n, value, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.zeros((BLOCK,), tl.float32) + value, mask=offs < n)


@triton.jit
def _fma_kernel(out_ptr, scale, shift, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = offs.to(tl.float32)
    b, c, d = a + 1, a + 2, a + 3
    e, f, g, h = a + 4, a + 5, a + 6, a + 7
    for _ in range(STEPS):
        for _ in tl.static_range(16):
            a = a * scale + shift
            b = b * scale + shift
            c = c * scale + shift
            d = d * scale + shift
            e = e * scale + shift
            f = f * scale + shift
            g = g * scale + shift
            h = h * scale + shift
    tl.store(out_ptr + offs, a + b + c + d + e + f + g + h)


@triton.jit
def _rsqrt(x):
    return tl.inline_asm_elementwise(
        "rsqrt.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _special_kernel(out_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = offs.to(tl.float32) + 1.5
    b, c, d = a + 1, a + 2, a + 3
    for _ in range(STEPS):
        for _ in tl.static_range(16):
            a = _rsqrt(a)
            b = _rsqrt(b)
            c = _rsqrt(c)
            d = _rsqrt(d)
    tl.store(out_ptr + offs, a + b + c + d)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
    """One frozen kernel: `build` returns thunks on distinct buffers, `timer` says how it is timed.

    `bytes`, `flops` and `special_ops` count one call. `drift` marks the cheap ones that also run
    between workloads.
    """

    name: str
    build: Callable[[], list[Thunk]]
    timer: str = "graph"
    bytes: int = 0
    flops: int = 0
    special_ops: int = 0
    drift: bool = False


def programs(per_multiprocessor: int) -> int:
    """Return a grid that fills the card evenly."""
    seen = torch.cuda.get_device_properties(torch.cuda.current_device())
    return seen.multi_processor_count * per_multiprocessor


def empty_thunks() -> list[Thunk]:
    """Launch a kernel that does nothing."""
    x = torch.zeros(1, device="cuda")
    return [lambda: launched(_empty_kernel[(1,)](x), x)]


def launched(_: object, outputs: Outputs) -> Outputs:
    """Return the outputs of a launch."""
    return outputs


def copy_thunks(size_bytes: int, sets: int) -> list[Thunk]:
    """Copy half of `size_bytes` into the other half."""
    n = size_bytes // 8

    def thunk() -> Thunk:
        x, y = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
        grid = (cdiv(n, 4096),)
        return lambda: launched(_copy_kernel[grid](x, y, n, BLOCK=4096, num_warps=8), y)

    return [thunk() for _ in range(sets)]


def torch_copy_thunks(size_bytes: int) -> list[Thunk]:
    """Copy half of `size_bytes` into the other half as torch does."""
    n = size_bytes // 8

    def thunk() -> Thunk:
        x, y = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
        return lambda: y.copy_(x)

    return [thunk() for _ in range(2)]


def read_thunks(size_bytes: int) -> list[Thunk]:
    """Sum a buffer to one number a program."""
    n, block, steps = size_bytes // 4, 4096, 8

    def thunk() -> Thunk:
        x = torch.randn(n, device="cuda")
        grid = (cdiv(n, block * steps),)
        out = torch.empty(grid[0], device="cuda")
        return lambda: launched(_read_kernel[grid](x, out, n, BLOCK=block, STEPS=steps), out)

    return [thunk() for _ in range(2)]


def write_thunks(size_bytes: int) -> list[Thunk]:
    """Fill a buffer."""
    n = size_bytes // 4

    def thunk() -> Thunk:
        y = torch.empty(n, device="cuda")
        grid = (cdiv(n, 4096),)
        return lambda: launched(_write_kernel[grid](y, n, 1.5, BLOCK=4096, num_warps=8), y)

    return [thunk() for _ in range(2)]


def fma_thunks(steps: int) -> list[Thunk]:
    """Run chains of fused multiply-adds, eight a thread."""
    grid = (programs(8),)
    out = torch.empty(grid[0] * 256, device="cuda")
    return [
        lambda: launched(
            _fma_kernel[grid](out, 0.999, 0.001, STEPS=steps, BLOCK=256, num_warps=8), out
        )
    ]


def special_thunks(steps: int) -> list[Thunk]:
    """Run chains of approximate reciprocal square roots, four a thread."""
    grid = (programs(8),)
    out = torch.empty(grid[0] * 256, device="cuda")
    return [lambda: launched(_special_kernel[grid](out, STEPS=steps, BLOCK=256, num_warps=8), out)]


def gemm_thunks(size: int, dtype: torch.dtype, device: str, tf32: bool = False) -> list[Thunk]:
    """Multiply two square random matrices."""

    def thunk() -> Thunk:
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        return lambda: multiplied(a, b, out, tf32)

    return [thunk() for _ in range(2)]


def multiplied(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, tf32: bool) -> torch.Tensor:
    """Multiply with TF32 allowed or not, whatever the process has set."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return torch.mm(a, b, out=out)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def cuda_sentinels() -> tuple[Sentinel, ...]:
    """Return the sentinels of the current GPU."""
    big, l2 = 1024 * MIB, 16 * MIB
    fma = programs(8) * 256 * 8 * 16 * 2
    special = programs(8) * 256 * 4 * 16
    gemm = 2 * 8192**3
    empty = Sentinel(name="empty", build=empty_thunks, drift=True)
    return (
        empty,
        replace(empty, name="empty-call", timer="call", drift=False),
        replace(empty, name="empty-submit", timer="submit", drift=False),
        Sentinel(name="copy", build=lambda: copy_thunks(big, 2), bytes=big, drift=True),
        Sentinel(name="copy-torch", build=lambda: torch_copy_thunks(big), bytes=big),
        Sentinel(name="read", build=lambda: read_thunks(big), bytes=big),
        Sentinel(name="write", build=lambda: write_thunks(big), bytes=big),
        Sentinel(name="l2-copy", build=lambda: copy_thunks(l2, 1), bytes=l2),
        Sentinel(name="fma-fp32", build=lambda: fma_thunks(256), flops=256 * fma, drift=True),
        Sentinel(name="special", build=lambda: special_thunks(64), special_ops=64 * special),
        Sentinel(
            name="gemm-bf16",
            build=lambda: gemm_thunks(8192, torch.bfloat16, "cuda"),
            flops=gemm,
        ),
        Sentinel(
            name="gemm-fp16",
            build=lambda: gemm_thunks(8192, torch.float16, "cuda"),
            flops=gemm,
        ),
        Sentinel(
            name="gemm-tf32",
            build=lambda: gemm_thunks(8192, torch.float32, "cuda", tf32=True),
            flops=gemm,
        ),
    )


def cpu_sentinels() -> tuple[Sentinel, ...]:
    """Return the sentinels of a CPU: copy, fp32 GEMM, and the cost of one call."""
    size, n = 256 * MIB, 1024
    return (
        Sentinel(name="empty-call", build=cpu_empty_thunks, timer="call", drift=True),
        Sentinel(
            name="copy", build=lambda: cpu_copy_thunks(size), timer="call", bytes=size, drift=True
        ),
        Sentinel(
            name="gemm-fp32",
            build=lambda: gemm_thunks(n, torch.float32, "cpu"),
            timer="call",
            flops=2 * n**3,
        ),
    )


def cpu_empty_thunks() -> list[Thunk]:
    """Make a view: the least that a call into torch can do."""
    x = torch.zeros(1)
    return [lambda: x.view(1)]


def cpu_copy_thunks(size_bytes: int) -> list[Thunk]:
    """Copy half of `size_bytes` into the other half."""
    x = torch.randn(size_bytes // 8)
    y = torch.empty_like(x)
    return [lambda: y.copy_(x)]


def sentinels(device: str) -> tuple[Sentinel, ...]:
    """Return the sentinels of `cuda` or `cpu`."""
    return cuda_sentinels() if device == "cuda" else cpu_sentinels()
