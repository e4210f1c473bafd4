"""Sinkhorn: exp of small matrices, scaled until rows and columns sum to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from kernels.compiled import compiled
from kernels.spec import Cost, Implementation, Mark, Mode, Op, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs, Thunk

EPS = 1e-6
ROWS_PER_BLOCK = 256
WIDEST_IN_REGISTERS = 64


@triton.jit(do_not_specialize=["n_iter"])
def _global(m_ptr, out_ptr, n_iter, eps, N: tl.constexpr, BLOCK_N: tl.constexpr):
    """Scale one matrix that stays in memory and is read by rows, twice an iteration."""
    matrix = tl.program_id(0).to(tl.int64) * (N * N)
    index = tl.arange(0, BLOCK_N)
    mask = index < N
    u = tl.full([BLOCK_N], 1.0, tl.float32)
    v = tl.full([BLOCK_N], 1.0, tl.float32)
    for _ in range(n_iter):
        for i in range(N):
            row = tl.load(m_ptr + matrix + i * N + index, mask=mask, other=0.0)
            u = tl.where(index == i, 1.0 / (tl.sum(row * v) + eps), u)
        # Columns are summed row by row, so that reads stay contiguous.
        columns = tl.zeros([BLOCK_N], tl.float32)
        for i in range(N):
            row = tl.load(m_ptr + matrix + i * N + index, mask=mask, other=0.0)
            columns += row * tl.sum(tl.where(index == i, u, 0.0))
        v = 1.0 / (columns + eps)
    for i in range(N):
        row = tl.load(m_ptr + matrix + i * N + index, mask=mask, other=0.0)
        scaled = tl.sum(tl.where(index == i, u, 0.0)) * row * v
        tl.store(out_ptr + matrix + i * N + index, scaled, mask=mask)


@triton.jit
def _reciprocal(x, ASSEMBLY: tl.constexpr):
    """Take one over x by one instruction; a division takes eight. Interpreted, it divides."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit(do_not_specialize=["batch", "n_iter"])
def _registers(
    logits_ptr,
    out_ptr,
    batch,
    n_iter,
    eps,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """Scale BLOCK matrices that stay in registers, as one tile of BLOCK x n x n."""
    matrix = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None, None]
    i = tl.arange(0, BLOCK_N)[None, :, None]
    j = tl.arange(0, BLOCK_N)[None, None, :]
    mask = (matrix < batch) & (i < N) & (j < N)
    offsets = matrix.to(tl.int64) * (N * N) + (i * N + j)
    m = tl.exp(tl.load(logits_ptr + offsets, mask=mask, other=float("-inf")))
    u = tl.full([BLOCK, BLOCK_N, 1], 1.0, tl.float32)
    v = tl.full([BLOCK, 1, BLOCK_N], 1.0, tl.float32)
    for _ in range(n_iter):
        u = _reciprocal(tl.sum(m * v, axis=2, keep_dims=True) + eps, ASSEMBLY)
        v = _reciprocal(tl.sum(m * u, axis=1, keep_dims=True) + eps, ASSEMBLY)
    tl.store(out_ptr + offsets, u * m * v, mask=mask)


@triton.jit
def _reciprocals(x, PAIRED: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Take four reciprocals; in pairs, two cost one reciprocal and three products."""
    if PAIRED:
        p = _reciprocal(x[0] * x[1], ASSEMBLY)
        q = _reciprocal(x[2] * x[3], ASSEMBLY)
        return p * x[1], p * x[0], q * x[3], q * x[2]
    else:
        return (
            _reciprocal(x[0], ASSEMBLY),
            _reciprocal(x[1], ASSEMBLY),
            _reciprocal(x[2], ASSEMBLY),
            _reciprocal(x[3], ASSEMBLY),
        )


@triton.jit
def _dot(a0, a1, a2, a3, b, start):
    return a3 * b[3] + (a2 * b[2] + (a1 * b[1] + (a0 * b[0] + start)))


@triton.jit
def _iterate(a, b, c, d, n_iter, eps, PAIRED: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Scale the matrix of the rows a, b, c, d; return its row and column factors."""
    one = tl.full(a[0].shape, 1.0, tl.float32)
    u = (one, one, one, one)
    v = (one, one, one, one)
    for _ in range(n_iter):
        rows = (
            _dot(a[0], a[1], a[2], a[3], v, eps),
            _dot(b[0], b[1], b[2], b[3], v, eps),
            _dot(c[0], c[1], c[2], c[3], v, eps),
            _dot(d[0], d[1], d[2], d[3], v, eps),
        )
        u = _reciprocals(rows, PAIRED, ASSEMBLY)
        columns = (
            _dot(a[0], b[0], c[0], d[0], u, eps),
            _dot(a[1], b[1], c[1], d[1], u, eps),
            _dot(a[2], b[2], c[2], d[2], u, eps),
            _dot(a[3], b[3], c[3], d[3], u, eps),
        )
        v = _reciprocals(columns, PAIRED, ASSEMBLY)
    return u, v


@triton.jit
def _load_row(ptr, offsets, mask, BLOCK: tl.constexpr):
    """Load one row of four of each matrix, as four values a lane."""
    row = tl.exp(tl.load(ptr + offsets, mask=mask, other=float("-inf")))
    even, odd = tl.split(tl.reshape(row, [BLOCK, 2, 2]))
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def _store_row(ptr, offsets, mask, row, factor, v, BLOCK: tl.constexpr):
    """Store one scaled row of four of each matrix."""
    even = tl.join(factor * row[0] * v[0], factor * row[2] * v[2])
    odd = tl.join(factor * row[1] * v[1], factor * row[3] * v[3])
    tl.store(ptr + offsets, tl.reshape(tl.join(even, odd), [BLOCK, 4]), mask=mask)


@triton.jit(do_not_specialize=["batch", "n_iter"])
def _scalars(logits_ptr, out_ptr, batch, n_iter, eps, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Scale 4 x 4 matrices, each by one thread: no exchange between threads."""
    matrix = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    mask = (matrix < batch) & (tl.arange(0, 4)[None, :] < 4)
    offsets = matrix.to(tl.int64) * 16 + tl.arange(0, 4)[None, :]
    a = _load_row(logits_ptr, offsets, mask, BLOCK)
    b = _load_row(logits_ptr, offsets + 4, mask, BLOCK)
    c = _load_row(logits_ptr, offsets + 8, mask, BLOCK)
    d = _load_row(logits_ptr, offsets + 12, mask, BLOCK)
    # Factors are at most 1 / eps: below this limit no product of two sums overflows. A matrix
    # with NaN or infinity is never below it.
    total = (
        (a[0] + a[1] + a[2] + a[3])
        + (b[0] + b[1] + b[2] + b[3])
        + (c[0] + c[1] + c[2] + c[3])
        + (d[0] + d[1] + d[2] + d[3])
    )
    if tl.sum((total < 1e9).to(tl.int32)) == BLOCK:
        u, v = _iterate(a, b, c, d, n_iter, eps, True, ASSEMBLY)
    else:
        u, v = _iterate(a, b, c, d, n_iter, eps, False, ASSEMBLY)
    _store_row(out_ptr, offsets, mask, a, u[0], v, BLOCK)
    _store_row(out_ptr, offsets + 4, mask, b, u[1], v, BLOCK)
    _store_row(out_ptr, offsets + 8, mask, c, u[2], v, BLOCK)
    _store_row(out_ptr, offsets + 12, mask, d, u[3], v, BLOCK)


def scale_global(logits: torch.Tensor, n_iter: int, eps: float = EPS) -> torch.Tensor:
    """Exponentiate in PyTorch, then scale with the matrices left in memory."""
    m = torch.exp(logits).contiguous()
    out = torch.empty_like(m)
    batch, n, _ = m.shape
    if out.numel():
        block_n = triton.next_power_of_2(n)
        _global[(batch,)](
            m, out, n_iter, eps, N=n, BLOCK_N=block_n, num_warps=1, enable_fp_fusion=True
        )
    return out


def scale_registers(logits: torch.Tensor, n_iter: int, eps: float = EPS) -> torch.Tensor:
    """Scale one matrix a program, held in registers."""
    return _launch_registers(logits, n_iter, eps, block=1)


def scale_packed(logits: torch.Tensor, n_iter: int, eps: float = EPS) -> torch.Tensor:
    """Scale many matrices a program, held in registers."""
    block = packed_block(logits.shape[0], logits.shape[1])
    return _launch_registers(logits, n_iter, eps, block=block)


def packed_block(batch: int, n: int) -> int:
    """Return how many matrices of a batch are packed into one program."""
    return min(
        triton.next_power_of_2(max(1, batch)),
        max(1, ROWS_PER_BLOCK // triton.next_power_of_2(n)),
    )


def _launch_registers(logits: torch.Tensor, n_iter: int, eps: float, block: int) -> torch.Tensor:
    logits = logits.contiguous()
    out = torch.empty_like(logits)
    batch, n, _ = logits.shape
    if out.numel():
        block_n = triton.next_power_of_2(n)
        # Sixteen elements a thread: a 4 x 4 matrix then needs no exchange between threads.
        num_warps = min(32, max(1, block * block_n**2 // 512))
        _registers[(triton.cdiv(batch, block),)](
            logits, out, batch, n_iter, eps,
            N=n, BLOCK_N=block_n, BLOCK=block, ASSEMBLY=logits.is_cuda,
            num_warps=num_warps, enable_fp_fusion=True,
        )  # fmt: skip
    return out


def scale_scalars(logits: torch.Tensor, n_iter: int, eps: float = EPS) -> torch.Tensor:
    """Scale one 4 x 4 matrix a thread."""
    logits = logits.contiguous()
    out = torch.empty_like(logits)
    batch = logits.shape[0]
    if batch:
        _scalars[(triton.cdiv(batch, 32),)](
            logits, out, batch, n_iter, eps,
            BLOCK=32, ASSEMBLY=logits.is_cuda, num_warps=1, enable_fp_fusion=True,
        )  # fmt: skip
    return out


def reference(logits: torch.Tensor, n_iter: int) -> torch.Tensor:
    """Iterate by batched products, in float32 as torch is set: TF32 would miss the tolerance."""
    m = torch.exp(logits)
    transposed = m.transpose(-1, -2)
    u = torch.ones(m.shape[0], m.shape[1], 1, device=m.device)
    v = torch.ones_like(u)
    for _ in range(n_iter):
        u = 1.0 / (m @ v + EPS)
        v = 1.0 / (transposed @ u + EPS)
    return u * m * v.transpose(-1, -2)


def _with(function: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[[Inputs], Thunk]:
    def build(inputs: Inputs) -> Thunk:
        logits, n_iter = inputs["logits"], int(inputs["n_iter"])
        return lambda: function(logits, n_iter)

    return build


def _compiled(inputs: Inputs) -> Thunk:
    function = compiled(reference, inputs, int(inputs["n_iter"]))
    return _with(torch.inference_mode()(function))(inputs)


def make_inputs(workload: Workload, generator: torch.Generator, device: str) -> Inputs:
    """Draw one set of inputs; the number of iterations is a tensor on the host."""
    shape = (workload["batch"], workload["n"], workload["n"])
    logits = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    return {"logits": logits, "n_iter": torch.tensor(workload["n_iter"])}


def oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the truth in float64, as sums over indices."""
    m = inputs["logits"].double().exp()
    u = torch.ones(m.shape[:2], dtype=m.dtype, device=m.device)
    v = torch.ones_like(u)
    for _ in range(int(inputs["n_iter"])):
        u = (torch.einsum("bij,bj->bi", m, v) + EPS).reciprocal()
        v = (torch.einsum("bij,bi->bj", m, u) + EPS).reciprocal()
    return torch.einsum("bi,bij,bj->bij", u, m, v)


def cost(workload: Workload, mode: Mode) -> Cost:
    """Count two products of a matrix and a vector with eps and 2 n divisions an iteration.

    Each half needs n^2 products, n (n - 1) sums, n additions of eps, n divisions; the end 2 n^2.
    """
    batch, n, n_iter = workload["batch"], workload["n"], workload["n_iter"]
    return Cost(
        flops=batch * ((4 * n * n + 2 * n) * n_iter + 2 * n * n),
        minimal_bytes=4 * batch * 2 * n * n,
        special_ops=batch * (n * n + 2 * n * n_iter),
    )


def _bytes_from_memory(workload: Workload) -> int:
    """Count exp once, two reads an iteration, and the end; vectors are left out."""
    batch, n, n_iter = workload["batch"], workload["n"], workload["n_iter"]
    return 4 * batch * (4 * n * n + 2 * n * n * n_iter)


def _bytes_from_registers(workload: Workload) -> int:
    return 4 * workload["batch"] * 2 * workload["n"] ** 2


def _too_wide(workload: Workload) -> str | None:
    if workload["n"] > WIDEST_IN_REGISTERS:
        return f"a matrix wider than {WIDEST_IN_REGISTERS} does not fit in registers"
    return None


def _not_four(workload: Workload) -> str | None:
    return None if workload["n"] == 4 else "written for n = 4 alone"


def _workloads() -> tuple[Workload, ...]:
    tags: dict[tuple[int, int, int], set[str]] = {}

    def add(batch: int, n: int, n_iter: int, *names: str) -> None:
        tags.setdefault((batch, n, n_iter), set()).update(names)

    for exponent in range(13):
        add(4**exponent, 4, 20, "default")
    for exponent in (0, 3, 6):
        add(4**exponent, 4, 20, "cpu")
    for batch in (1, 4):
        add(batch, 4, 20, "smoke")
    add(5, 4, 1, "smoke")
    for n in (1, 2, 3, 5, 8, 16):
        add(3, n, 5, "edge")
    for n_iter in (0, 1, 5):
        add(3, 4, n_iter, "edge")
    add(0, 4, 20, "edge")
    add(67, 4, 20, "edge")
    add(255, 4, 1, "edge")
    add(1025, 4, 1, "edge")
    for n_iter in (1, 5, 10, 50):
        add(4**10, 4, n_iter, "full")
    for n in (2, 8, 16):
        add(4**8, n, 20, "full")
    return tuple(
        Workload({"batch": batch, "n": n, "n_iter": n_iter}, "float32", frozenset(names))
        for (batch, n, n_iter), names in tags.items()
    )


OP = Op(
    name="sinkhorn",
    title="Sinkhorn",
    summary="Scales the rows and columns of many small positive matrices until both sum to one: "
    "the projection of manifold-constrained hyper-connections.",
    formula="M = exp(L); n_iter times u = 1 / (M v + eps), v = 1 / (M^T u + eps); y = u M v^T",
    axis="batch",
    marks=(Mark("training, 4Ki to 16Ki tokens", 4096, 16384),),
    inputs="logits ~ N(0, 1)",
    workloads=_workloads(),
    make_inputs=make_inputs,
    implementations=(
        Implementation(
            name="torch",
            kind="eager",
            build=_with(reference),
            summary="Batched products in PyTorch, operator by operator.",
            traffic_bytes=_bytes_from_memory,
        ),
        Implementation(
            name="torch.compile",
            kind="compiled",
            build=_compiled,
            summary="The same through torch.compile, in inference mode, compiled for each shape.",
            traffic_bytes=_bytes_from_memory,
        ),
        Implementation(
            name="triton-global",
            kind="triton",
            build=_with(scale_global),
            summary="One program a matrix, which is read by rows twice an iteration.",
            kernels=lambda: (_global,),
            traffic_bytes=_bytes_from_memory,
            launches=lambda workload: 2,
        ),
        Implementation(
            name="triton-registers",
            kind="triton",
            build=_with(scale_registers),
            summary="One program a matrix, held in registers.",
            kernels=lambda: (_registers,),
            unsupported=_too_wide,
            traffic_bytes=_bytes_from_registers,
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-packed",
            kind="triton",
            build=_with(scale_packed),
            summary="Many matrices a program, as one tile in registers.",
            kernels=lambda: (_registers,),
            unsupported=_too_wide,
            traffic_bytes=_bytes_from_registers,
            launches=lambda workload: 1,
        ),
        Implementation(
            name="triton-scalars",
            kind="triton",
            build=_with(scale_scalars),
            summary="One 4 x 4 matrix a thread, two reciprocals for the price of one.",
            kernels=lambda: (_scalars,),
            unsupported=_not_four,
            traffic_bytes=_bytes_from_registers,
            launches=lambda workload: 1,
        ),
    ),
    baseline="torch.compile",
    oracle=oracle,
    # Values are at most 1 and each half step forgets the error of the one before: some sixteen
    # roundings of 2^-24 are left, 1e-6. The relative part is for n_iter = 0: exp itself.
    tolerance={"float32": Tolerance(absolute=1e-6, relative=1e-6, norm=1e-6)},
    cost=cost,
    params={"eps": EPS},
)
