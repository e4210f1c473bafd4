"""SIGReg in PyTorch, operator by operator, and the truth in float64."""

from __future__ import annotations

import math

import torch

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEYS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF


def integration(
    points: int, t_max: float = 3.0, device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return points of [0, t_max], phi and the weights of the trapezoid rule over both halves.

    Errors are even in t, so that one half of the line counts twice: inner points weigh 2 dt, ends
    dt, times phi, the window and the characteristic function of a normal distribution.
    """
    t = torch.linspace(0, t_max, points, dtype=torch.float64, device=device)
    phi = torch.exp(-0.5 * t.square())
    inner = torch.linspace(-1, 1, points, dtype=torch.float64, device=device).abs() < 1
    weights = (1 + inner.double()) * (t_max / (points - 1))
    return t.float(), phi.float(), (weights * phi).float()


def philox(counter: list[torch.Tensor], key: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run ten rounds of Philox 4x32 on int64 tensors that hold 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first_high, first_low = _product(PHILOX_MULTIPLIERS[0], c0)
        second_high, second_low = _product(PHILOX_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = second_high ^ c1 ^ k0, second_low, first_high ^ c3 ^ k1, first_low
        k0, k1 = k0 + PHILOX_KEYS[0] & WORD, k1 + PHILOX_KEYS[1] & WORD
    return [c0, c1, c2, c3]


def _product(constant: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Multiply 32-bit words, by halves since int64 has a sign; the upper and the lower word."""
    lower, upper = (word & 0xFFFF) * constant, (word >> 16) * constant
    middle = upper + (lower >> 16)
    return middle >> 16, (middle & 0xFFFF) << 16 | lower & 0xFFFF


def counters(
    dim: int, slices: int, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what words are counted by: groups of four rows, and columns.

    Tensors, since TorchInductor computes products of its own indices in 32 bits.
    """
    groups = torch.arange(-(-dim // 4), device=device)[:, None]
    return groups, torch.arange(slices, device=device)[None, :]


def normals(
    key: torch.Tensor, groups: torch.Tensor, columns: torch.Tensor, dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """Draw [dim, slices] normal numbers from the words of a counter of row and column."""
    seed, step = key[0], key[1]
    zero = groups * 0 + columns * 0
    counter = [groups + zero, columns + zero, (step & WORD) + zero, (step >> 32 & WORD) + zero]
    words = philox(counter, [seed & WORD, seed >> 32 & WORD])
    rows = [*_pair(words[0], words[1], dtype), *_pair(words[2], words[3], dtype)]
    return torch.stack(rows, dim=1).flatten(0, 1)[:dim]


def _pair(
    first: torch.Tensor, second: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    u = ((first >> 9).to(dtype) + 0.5) * 2.0**-23
    signed = torch.where(second < 2**31, second, second - 2**32).to(dtype)
    radius, turn = torch.sqrt(-2 * torch.log(u)), signed * (math.pi * 2.0**-31)
    return radius * torch.cos(turn), radius * torch.sin(turn)


def projection(
    key: torch.Tensor, groups: torch.Tensor, columns: torch.Tensor, dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """Draw and normalise the columns of a projection in float32."""
    drawn = normals(key, groups, columns, dim, torch.float32)
    return torch.nn.functional.normalize(drawn, p=2, dim=0).to(dtype)


def trig_means(
    x_projected: torch.Tensor, integration_points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the means of cosine and sine over the batch, by way of [batch, slices, points]."""
    args = x_projected.float().unsqueeze(-1) * integration_points.float()
    return torch.cos(args).mean(dim=0), torch.sin(args).mean(dim=0)


def epilogue_stats(
    cos_mean: torch.Tensor,
    sin_mean: torch.Tensor,
    phi: torch.Tensor,
    weights: torch.Tensor,
    global_batch_size: float,
    do_clip: bool = False,
    clip_value: float = 0.0,
) -> torch.Tensor:
    """Compute a statistic for each slice, in float32."""
    away = cos_mean.float() - phi.float()
    squared_error = away.square() + sin_mean.float().square()
    stats = torch.matmul(squared_error, weights.float()) * float(global_batch_size)
    return torch.clamp(stats, min=float(clip_value)) if do_clip else stats


def true_projection(key: torch.Tensor, dim: int, slices: int) -> torch.Tensor:
    """Compute a projection in float64."""
    drawn = normals(key, *counters(dim, slices, key.device), dim, torch.float64)
    return drawn / torch.einsum("ds,ds->s", drawn, drawn).sqrt().clamp(min=1e-12)


def true_means(x: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the characteristic function of each column in float64, point by point."""
    z, t = x.double(), t.double()
    values = [torch.exp(1j * (z * point)).mean(dim=0) for point in t]
    made = (
        torch.stack(values, dim=1)
        if values
        else z.new_zeros((z.shape[1], 0), dtype=torch.complex128)
    )
    return made.real, made.imag


def true_stats(
    cos_mean: torch.Tensor, sin_mean: torch.Tensor, phi: torch.Tensor, weights: torch.Tensor,
    size: float,
) -> torch.Tensor:  # fmt: skip
    """Compute the statistics in float64, as squared distances in the complex plane."""
    away = torch.complex(cos_mean.double() - phi.double(), sin_mean.double())
    return size * torch.einsum("sp,p->s", (away * away.conj()).real, weights.double())
