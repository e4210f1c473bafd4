"""What the Sinkhorn kernels are made of: exponentials, reciprocals, and one 4 x 4 matrix a thread.

Three forms are told apart, since they are three functions:

- `plain`: M = exp(L); u = 1 / (M v + eps), v = 1 / (M^T u + eps).
- `stable`: the same function for any finite logits. With M = exp(L - row maximum) the rows' eps
  becomes eps * exp(-row maximum).
- `softmax`: A = softmax(L) + eps; then columns and rows in turn, each divided by its sum + eps,
  beginning and ending with the columns.
"""

import triton
import triton.language as tl

# Beyond it a row's eps hides all of the row: its share is under 1e-12 either way.
LARGEST_ROW_EPS = tl.constexpr(1e18)


@triton.jit
def reciprocal(x, ASSEMBLY: tl.constexpr):
    """Take one over x by one instruction; a division takes eight. Interpreted, it divides."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def exponential(x, ASSEMBLY: tl.constexpr):
    """Exponentiate by one instruction after a product; small results become zero."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;",
            "=f,f",
            [x * 1.4426950408889634],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return tl.exp(x)


@triton.jit
def pair(x, y, ASSEMBLY: tl.constexpr):
    """Take two reciprocals by one and three products."""
    p = reciprocal(x * y, ASSEMBLY)
    return p * y, p * x


@triton.jit
def reciprocals(x, PAIRS: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Take four reciprocals, PAIRS of them two by two: 0, 1 or 2."""
    if PAIRS == 2:
        r0, r1 = pair(x[0], x[1], ASSEMBLY)
        r2, r3 = pair(x[2], x[3], ASSEMBLY)
        return r0, r1, r2, r3
    elif PAIRS == 1:
        r0, r1 = pair(x[0], x[1], ASSEMBLY)
        return r0, r1, reciprocal(x[2], ASSEMBLY), reciprocal(x[3], ASSEMBLY)
    else:
        return (
            reciprocal(x[0], ASSEMBLY),
            reciprocal(x[1], ASSEMBLY),
            reciprocal(x[2], ASSEMBLY),
            reciprocal(x[3], ASSEMBLY),
        )


@triton.jit
def dot(a0, a1, a2, a3, b, start):
    return a3 * b[3] + (a2 * b[2] + (a1 * b[1] + (a0 * b[0] + start)))


@triton.jit
def times_rows(a, b, c, d, v, start):
    """Multiply the matrix of the rows a, b, c, d with v and add `start`."""
    return (
        dot(a[0], a[1], a[2], a[3], v, start[0]),
        dot(b[0], b[1], b[2], b[3], v, start[1]),
        dot(c[0], c[1], c[2], c[3], v, start[2]),
        dot(d[0], d[1], d[2], d[3], v, start[3]),
    )


@triton.jit
def times_columns(a, b, c, d, u, start):
    """Multiply the transposed matrix with u and add `start`."""
    return (
        dot(a[0], b[0], c[0], d[0], u, start[0]),
        dot(a[1], b[1], c[1], d[1], u, start[1]),
        dot(a[2], b[2], c[2], d[2], u, start[2]),
        dot(a[3], b[3], c[3], d[3], u, start[3]),
    )


@triton.jit
def product(x, y):
    return x[0] * y[0], x[1] * y[1], x[2] * y[2], x[3] * y[3]


@triton.jit
def plus(x, number):
    return x[0] + number, x[1] + number, x[2] + number, x[3] + number


@triton.jit
def total(x):
    return (x[0] + x[1]) + (x[2] + x[3])


@triton.jit
def update(old, sums, eps, PAIRS: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Divide factors by their own share plus eps: the softmax form."""
    shares = product(old, sums)
    return product(old, reciprocals(plus(shares, eps), PAIRS, ASSEMBLY))


@triton.jit
def half_steps(
    a, b, c, d, u, v, row_eps, eps, FORM: tl.constexpr, PAIRS: tl.constexpr, ASSEMBLY: tl.constexpr
):
    """Scale rows, then columns; return both factors."""
    if FORM == "softmax":
        zero = (0.0, 0.0, 0.0, 0.0)
        u = update(u, times_rows(a, b, c, d, v, zero), eps, PAIRS, ASSEMBLY)
        v = update(v, times_columns(a, b, c, d, u, zero), eps, PAIRS, ASSEMBLY)
    else:
        u = reciprocals(times_rows(a, b, c, d, v, row_eps), PAIRS, ASSEMBLY)
        v = reciprocals(times_columns(a, b, c, d, u, (eps, eps, eps, eps)), PAIRS, ASSEMBLY)
    return u, v


@triton.jit
def first_columns(a, b, c, d, u, v, eps, PAIRS: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Scale the columns alone: how the softmax form begins."""
    zero = (0.0, 0.0, 0.0, 0.0)
    return update(v, times_columns(a, b, c, d, u, zero), eps, PAIRS, ASSEMBLY)


@triton.jit
def load_row(ptr, offsets, mask, other, BLOCK: tl.constexpr):
    """Load one row of four of each matrix, as four float32 values a lane."""
    row = tl.load(ptr + offsets, mask=mask, other=other).to(tl.float32)
    even, odd = tl.split(tl.reshape(row, [BLOCK, 2, 2]))
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def joined(row, BLOCK: tl.constexpr):
    """Put four values a lane next to one another, as one row."""
    return tl.reshape(tl.join(tl.join(row[0], row[2]), tl.join(row[1], row[3])), [BLOCK, 4])


@triton.jit
def start_row(x, eps, FORM: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Return a row of the matrix that is scaled, the row's eps, and its factor before any step."""
    if FORM == "plain":
        one = tl.full(x[0].shape, 1.0, tl.float32)
        row = (
            exponential(x[0], ASSEMBLY),
            exponential(x[1], ASSEMBLY),
            exponential(x[2], ASSEMBLY),
            exponential(x[3], ASSEMBLY),
        )
        return row, one * eps, one
    else:
        largest = tl.maximum(tl.maximum(x[0], x[1]), tl.maximum(x[2], x[3]))
        largest = tl.where(largest == float("-inf"), 0.0, largest)
        row = (
            exponential(x[0] - largest, ASSEMBLY),
            exponential(x[1] - largest, ASSEMBLY),
            exponential(x[2] - largest, ASSEMBLY),
            exponential(x[3] - largest, ASSEMBLY),
        )
        if FORM == "stable":
            row_eps = tl.minimum(eps * exponential(-largest, ASSEMBLY), LARGEST_ROW_EPS)
            return row, row_eps, exponential(largest, ASSEMBLY)
        else:
            share = reciprocal(total(row), ASSEMBLY)
            row = plus((row[0] * share, row[1] * share, row[2] * share, row[3] * share), eps)
            one = tl.full(x[0].shape, 1.0, tl.float32)
            return row, one * eps, one


@triton.jit
def start_tile(x, valid, eps, FORM: tl.constexpr):
    """Do the same for a tile of matrices along its last axis; padding becomes zero."""
    if FORM == "plain":
        m = tl.exp(x)
        one = tl.sum(tl.zeros_like(m), axis=2, keep_dims=True) + 1.0
        return m, one * eps, one
    else:
        largest = tl.max(x, axis=2, keep_dims=True)
        largest = tl.where(largest == float("-inf"), 0.0, largest)
        m = tl.exp(x - largest)
        if FORM == "stable":
            row_eps = tl.minimum(eps * tl.exp(-largest), LARGEST_ROW_EPS)
            return m, row_eps, tl.exp(largest)
        else:
            sums = tl.sum(m, axis=2, keep_dims=True)
            m = tl.where(valid, m / tl.where(sums == 0, 1.0, sums) + eps, 0.0)
            one = largest * 0.0 + 1.0
            return m, one * eps, one
