"""Apply an oracle to many sets of inputs: small ones together, as each operator is a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from collector.correctness import as_tuple

if TYPE_CHECKING:
    from kernels.spec import Inputs, Outputs

    Oracle = Callable[[Inputs], Outputs]

FEW_SETS = 8
GROUP_BYTES = 16 * 1024**2


def truths(oracle: Oracle, sets: Sequence[Inputs]) -> list[Outputs]:
    """Return the oracle's results of each set; the sets are alike in shapes and dtypes."""
    if len(sets) < FEW_SETS or not one_for_all(sets):
        return [oracle(inputs) for inputs in sets]
    one_set_bytes = sum(tensor.nbytes for tensor in sets[0].values())
    size = max(1, GROUP_BYTES // max(one_set_bytes, 1))
    found: list[Outputs] = []
    for first in range(0, len(sets), size):
        found += group(oracle, sets[first : first + size])
    return found


def one_for_all(sets: Sequence[Inputs]) -> bool:
    """Tell whether what has no axis, such as a number of iterations, is the same in all sets."""
    first = sets[0]
    scalars = [name for name, tensor in first.items() if tensor.ndim == 0]
    return all(
        first[name].device.type == "cpu" and torch.equal(first[name], inputs[name])
        for name in scalars
        for inputs in sets
    )


def group(oracle: Oracle, sets: Sequence[Inputs]) -> list[Outputs]:
    """Apply the oracle to a group at once; one by one where torch cannot."""
    first = sets[0]
    axes = {name: 0 if tensor.ndim else None for name, tensor in first.items()}
    stacked = {
        name: torch.stack([inputs[name] for inputs in sets]) if axes[name] == 0 else first[name]
        for name in first
    }
    try:
        made = torch.vmap(oracle, in_dims=(axes,))(stacked)
    except (RuntimeError, ValueError, NotImplementedError, IndexError):
        return [oracle(inputs) for inputs in sets]
    if isinstance(made, torch.Tensor):
        return list(made)
    return list(zip(*as_tuple(made), strict=True))
