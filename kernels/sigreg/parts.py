"""What the SIGReg kernels are made of: sines and cosines, of one angle and of its multiples."""

import triton
import triton.language as tl

TURN = tl.constexpr(0.15915494309189535)
# What float32 leaves of 1 / (2 pi).
TURN_REST = tl.constexpr(6.4206164e-10)
TWO_PI = tl.constexpr(6.283185307179586)
# Added and taken away again, it leaves the nearest integer.
TO_INTEGER = tl.constexpr(12582912.0)


@triton.jit
def sine(x, ASSEMBLY: tl.constexpr):
    """Take the sine by one instruction after a product; interpreted, accurately."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "sin.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.sin(x)


@triton.jit
def cosine(x, ASSEMBLY: tl.constexpr):
    """Do the same for the cosine."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "cos.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.cos(x)


@triton.jit
def turns(step):
    """Return a step in turns, as a float32 and what it lacks."""
    high = step * TURN
    return high, tl.fma(step, TURN, -high) + step * TURN_REST


@triton.jit
def angle(x, high, low):
    """Return x times a step given in turns, as an angle between -pi and pi, for large x too."""
    whole = tl.fma(x, high, TO_INTEGER) - TO_INTEGER
    return ((x * high - whole) + x * low) * TWO_PI


@triton.jit
def add_pair(a, b, high, low, cosines, sines, N: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Add half of cos k t a + cos k t b, and of the sines, for k = 1 to N; the step is t / 4.

    cos p + cos q = 2 cos((p + q) / 2) cos((p - q) / 2) halves the additions. Multiples of an angle
    come from those two and four before: f(k + 2) = 2 cos(2) f(k) - f(k - 2), where errors grow with
    (k / 2)^2 near zero. For the same reason cosines begin as 1 - 2 sin^2.
    """
    middle = angle(a + b, high, low)
    half = angle(a - b, high, low)
    m = sine(middle, ASSEMBLY)
    n = sine(half, ASSEMBLY)
    mm = m + m
    q = n * n
    c = 1.0 - mm * m
    s = mm * cosine(middle, ASSEMBLY)
    d = tl.fma(q, -2.0, 1.0)
    new_cosines = (c * d + cosines[0],)
    new_sines = (s * d + sines[0],)
    if N > 1:
        ss = s + s
        q4 = 4.0 * q
        c2 = 1.0 - ss * s
        s2 = ss * c
        d2 = tl.fma(q4 - q4 * q, -2.0, 1.0)
        cc = c2 + c2
        dd = d2 + d2
        one = tl.zeros_like(c) + 1.0
        # Three before the second multiple: of -1, 0 and 1 times the angle.
        c_third, s_third, d_third = c, s, d
        c_second, s_second, d_second = one, one - one, one
        c_first, s_first, d_first = c, s, d
        c, s, d = c2, s2, d2
        for k in tl.static_range(1, N):
            if k > 1:
                c_next = cc * c_first - c_third
                # The sine of -1 times the angle is minus that of the angle, which s_third holds.
                s_next = cc * s_first + s_third if k == 2 else cc * s_first - s_third
                d_next = dd * d_first - d_third
                c_third, s_third, d_third = c_second, s_second, d_second
                c_second, s_second, d_second = c_first, s_first, d_first
                c_first, s_first, d_first = c, s, d
                c, s, d = c_next, s_next, d_next
            new_cosines = new_cosines + (c * d + cosines[k],)  # noqa: RUF005 - no unpacking
            new_sines = new_sines + (s * d + sines[k],)  # noqa: RUF005
    return new_cosines, new_sines


@triton.jit
def zeros(LEVELS: tl.constexpr, ROWS: tl.constexpr, SLICES: tl.constexpr):
    """Return that many zero tiles."""
    some = (tl.zeros([ROWS, SLICES], tl.float32),)
    for _ in tl.static_range(1, LEVELS):
        some = some + (tl.zeros([ROWS, SLICES], tl.float32),)  # noqa: RUF005
    return some


@triton.jit
def joined(xs, COUNT: tl.constexpr):
    """Make one tile of a power of two of them, along a new last axis of COUNT."""
    if COUNT == 1:
        return xs[0]
    else:
        half: tl.constexpr = COUNT // 2
        ys = (tl.join(xs[0], xs[half]),)
        for i in tl.static_range(1, half):
            ys = ys + (tl.join(xs[i], xs[i + half]),)  # noqa: RUF005
        return joined(ys, half)


@triton.jit
def sums_of_rows(
    cosines,
    sines,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    SLICES: tl.constexpr,
    AXIS: tl.constexpr = 0,
):
    """Add all tiles along an axis at once: [what is left, 2 * WIDTH], cosines before sines."""
    xs = (cosines[0],)
    for k in tl.static_range(1, WIDTH):
        xs = xs + (cosines[k] if k < N else tl.zeros_like(cosines[0]),)  # noqa: RUF005
    for k in tl.static_range(WIDTH):
        xs = xs + (sines[k] if k < N else tl.zeros_like(sines[0]),)  # noqa: RUF005
    tile = tl.reshape(joined(xs, 2 * WIDTH), [ROWS, SLICES, 2 * WIDTH])
    return tl.sum(tile, axis=AXIS)


@triton.jit
def halved(x, ROWS: tl.constexpr, SLICES: tl.constexpr, WIDTH: tl.constexpr):
    """Add up the last axis of [SLICES, WIDTH, ROWS], a power of two, by halves: [SLICES, WIDTH]."""
    if ROWS == 1:
        return tl.reshape(x, [SLICES, WIDTH])
    else:
        first, second = tl.split(tl.reshape(x, [SLICES, WIDTH, ROWS // 2, 2]))
        return halved(first + second, ROWS // 2, SLICES, WIDTH)


@triton.jit
def added_rows(xs, N: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, SLICES: tl.constexpr):
    """Add up the rows of N tiles of [ROWS, SLICES] at once: [SLICES, WIDTH], the rest zeros.

    Tiles change hands once, as a transpose: a reduction would exchange every one of them.
    """
    padded = (xs[0],)
    for k in tl.static_range(1, WIDTH):
        padded = padded + (xs[k] if k < N else tl.zeros_like(xs[0]),)  # noqa: RUF005
    tile = tl.reshape(joined(padded, WIDTH), [ROWS, SLICES, WIDTH])
    return halved(tl.permute(tile, (1, 2, 0)), ROWS, SLICES, WIDTH)


@triton.jit
def product(a, b, acc, ASSEMBLY: tl.constexpr):
    """Add the product of two tiles; the interpreter takes bits of bfloat16 for integers."""
    if ASSEMBLY:
        return tl.dot(a, b, acc, input_precision="ieee")
    else:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
