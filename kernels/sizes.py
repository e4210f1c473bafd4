"""Arithmetic of sizes on the host; Triton's own takes as long as a tenth of a launch."""


def cdiv(a: int, b: int) -> int:
    """Divide, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """Return the least power of two that is not below n; 1 for n = 0."""
    return 1 << max(n - 1, 0).bit_length()
