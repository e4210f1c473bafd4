"""Error of a result against the float64 oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from kernels.spec import Outputs, Tolerance

CHUNK_ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class Errors:
    """Distance of a result from the truth.

    `norm_error` is ||out - truth|| / ||truth||, absolute where the truth is zero. `bound_ratio` is
    the worst error over its bound, of elements and norms alike: right when at most 1. All three
    are None where one side is NaN or infinite and the other is not.
    """

    max_abs_error: float | None
    norm_error: float | None
    bound_ratio: float | None


WRONG = Errors(None, None, None)
EXACT = Errors(0.0, 0.0, 0.0)


def compare(outputs: Outputs, truth: Outputs, tolerance: Tolerance) -> Errors:
    """Compare all outputs of a call with the truth; ValueError when they differ in kind."""
    pairs = paired(outputs, truth)
    results = [_tensor_errors(out, true, tolerance) for out, true in pairs]
    return _worst(results)


def paired(outputs: Outputs, truth: Outputs) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pair outputs with truths; ValueError when number, shape or kind of dtype differ."""
    outs = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    trues = (truth,) if isinstance(truth, torch.Tensor) else tuple(truth)
    if len(outs) != len(trues):
        raise ValueError(f"{len(outs)} outputs where the oracle has {len(trues)}")
    for index, (out, true) in enumerate(zip(outs, trues, strict=True)):
        if out.shape != true.shape:
            raise ValueError(
                f"output {index} has shape {tuple(out.shape)}, the oracle {tuple(true.shape)}"
            )
        if out.is_floating_point() != true.is_floating_point():
            raise ValueError(f"output {index} is {out.dtype}, the oracle {true.dtype}")
    return list(zip(outs, trues, strict=True))


def _tensor_errors(out: torch.Tensor, true: torch.Tensor, tolerance: Tolerance) -> Errors:
    worst = EXACT
    squares = torch.zeros(2, dtype=torch.float64, device=true.device)
    for out_chunk, true_chunk in _chunks(out, true):
        if not _same_non_finite(out_chunk, true_chunk):
            return WRONG
        errors, chunk_squares = _element_errors(out_chunk, true_chunk, tolerance)
        worst = _worst([worst, errors])
        squares += chunk_squares
    return _worst([worst, _norm_errors(squares, tolerance)])


def _chunks(out: torch.Tensor, true: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Cut both into float64 pieces, so that large outputs need little memory beside them."""
    flat_out, flat_true = out.reshape(-1), true.reshape(-1)
    for start in range(0, flat_true.numel(), CHUNK_ELEMENTS):
        piece = slice(start, start + CHUNK_ELEMENTS)
        # A truth beyond the range of the dtype is infinite there.
        overflow = flat_true[piece].to(out.dtype).isinf()
        made = flat_out[piece].to(device=true.device, dtype=torch.float64)
        exact = flat_true[piece].double()
        yield made, torch.where(overflow, exact.sign() * torch.inf, exact)


def _same_non_finite(out: torch.Tensor, true: torch.Tensor) -> bool:
    odd = ~true.isfinite()
    same = (out == true) | (out.isnan() & true.isnan())
    return bool(((odd & same) | (~odd & out.isfinite())).all())


def _element_errors(
    out: torch.Tensor, true: torch.Tensor, tolerance: Tolerance
) -> tuple[Errors, torch.Tensor]:
    """Return the worst error of a piece, and the squared norms of the difference and the truth."""
    finite = true.isfinite()
    exact = torch.where(finite, true, 0.0)
    error = torch.where(finite, out - true, 0.0).abs()
    bound = tolerance.absolute + tolerance.relative * exact.abs()
    largest, worst = torch.stack([error.max(), _ratio(error, bound).max()]).tolist()
    squares = torch.stack([error.square().sum(), exact.square().sum()])
    return Errors(largest, 0.0, worst), squares


def _norm_errors(squares: torch.Tensor, tolerance: Tolerance) -> Errors:
    difference, norm = squares.sqrt()
    error = torch.where(norm > 0, difference / norm, difference)
    bound = torch.full_like(error, tolerance.norm)
    return Errors(0.0, float(error), float(_ratio(error, bound)))


def _ratio(error: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Divide errors by bounds; finite also where the bound is zero, as records need it."""
    return torch.where(error == 0, 0.0, error / bound).clamp(max=torch.finfo(error.dtype).max)


def _worst(results: list[Errors]) -> Errors:
    if WRONG in results:
        return WRONG
    return Errors(
        max((r.max_abs_error or 0.0 for r in results), default=0.0),
        max((r.norm_error or 0.0 for r in results), default=0.0),
        max((r.bound_ratio or 0.0 for r in results), default=0.0),
    )
