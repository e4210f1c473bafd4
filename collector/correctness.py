"""A case against its oracle: poisoned outputs, untouched inputs, bounds of its dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from collector.record import Correctness
from kernels.numerics import Errors, compare
from kernels.spec import Tolerance

if TYPE_CHECKING:
    from kernels.spec import Inputs, Outputs, Thunk

STACKED_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a result is right, why not, and how far it is from the truth."""

    reason: str | None
    errors: Errors | None

    @property
    def right(self) -> bool:
        """Tell whether nothing was wrong."""
        return self.reason is None

    def record(self, checked: str) -> Correctness | None:
        """Return the record of it; None when there was no result to compare."""
        if self.errors is None:
            return None
        return Correctness.model_validate(
            {
                "max_abs_error": self.errors.max_abs_error,
                "norm_error": self.errors.norm_error,
                "bound_ratio": self.errors.bound_ratio,
                "checked": checked,
            }
        )


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill new tensors with NaN or the largest integer, so that unwritten elements show."""
    before = torch.get_deterministic_debug_mode()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    # The other function that sets it imports Inductor, which takes longer than most checks.
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
        torch.utils.deterministic.fill_uninitialized_memory = filled


def gate(
    truth: Outputs, tolerance: Tolerance, thunk: Thunk, inputs: Inputs, poison: bool
) -> tuple[Verdict, Outputs]:
    """Run a thunk once and judge it; returns the verdict and its outputs.

    A compiled function is not poisoned here: changing the allocator's mode would recompile it. Its
    outputs are poisoned in the graph after timing instead.
    """
    saved = {name: tensor.clone() for name, tensor in inputs.items()}
    if poison:
        with poisoned():
            outputs = thunk()
    else:
        outputs = thunk()
    verdict = judge(outputs, truth, tolerance)
    for name, tensor in inputs.items():
        if not same(tensor, saved[name]):
            return Verdict(f"input {name!r} was changed by the call", verdict.errors), outputs
    return verdict, outputs


def judge(outputs: Outputs, truth: Outputs, tolerance: Tolerance) -> Verdict:
    """Compare a result with the truth; the reason names the bound that is broken."""
    try:
        errors = compare(outputs, truth, tolerance)
    except ValueError as error:
        return Verdict(str(error), None)
    if errors.bound_ratio is None:
        return Verdict("result is not finite where the oracle is, or the other way round", errors)
    if errors.bound_ratio > 1:
        return Verdict(
            f"error is {errors.bound_ratio:.3g} times its bound "
            f"(largest absolute error {errors.max_abs_error:.3g})",
            errors,
        )
    return Verdict(None, errors)


def judge_all(
    outputs: Sequence[Outputs], truths: Sequence[Outputs], tolerance: Tolerance
) -> Verdict:
    """Judge the outputs of every set; small ones together, to need few launches."""
    worst = Verdict(None, None)
    for made, true in batches(outputs, truths):
        verdict = judge(made, true, tolerance)
        if not verdict.right:
            return verdict
        if worst.errors is None or ratio(verdict) > ratio(worst):
            worst = verdict
    return worst


def batches(
    outputs: Sequence[Outputs], truths: Sequence[Outputs]
) -> Iterator[tuple[Outputs, Outputs]]:
    """Pair outputs with truths, as many sets stacked into one pair as stay small together."""
    made, true = [as_tuple(o) for o in outputs], [as_tuple(t) for t in truths]
    size_bytes = max((sum(t.nbytes for t in row) for row in made), default=0)
    count = max(STACKED_BYTES // max(size_bytes, 1), 1)
    for at in range(0, len(made), count):
        yield stack(made[at : at + count]), stack(true[at : at + count])


def stack(rows: Sequence[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    """Stack the n-th tensors of all rows; one row is left as it is."""
    if len(rows) == 1:
        return rows[0]
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def poison(outputs: Sequence[Outputs]) -> None:
    """Overwrite outputs with NaN or the largest integer, those of inference mode too."""
    with torch.inference_mode():
        for tensor in (tensor for row in outputs for tensor in as_tuple(row)):
            value = float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).max
            tensor.fill_(value)


def as_tuple(outputs: Outputs) -> tuple[torch.Tensor, ...]:
    """Return outputs as a tuple."""
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


def ratio(verdict: Verdict) -> float:
    """Return the worst error over its bound, 0 when nothing was compared."""
    return (verdict.errors and verdict.errors.bound_ratio) or 0.0


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare bit for bit, NaN equal to NaN."""
    return bool(torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))
