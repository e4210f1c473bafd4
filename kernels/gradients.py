"""Backward passes by autograd: of implementations without a kernel of their own, of oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
import torch._functorch.config

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs, Outputs, Thunk

Kept = TypeVar("Kept")


def by_autograd(
    function: Callable[[Inputs], Outputs], wrt: Sequence[str], upstream: Sequence[str] = ("grad",)
) -> tuple[Builder, Builder]:
    """Return the builders of backward and full mode of a differentiable function of the inputs.

    `wrt` names the inputs whose gradients are returned, `upstream` those that hold the gradients
    of the outputs.
    """

    def forward(inputs: Inputs) -> tuple[Outputs, tuple[torch.Tensor, ...]]:
        leaves = {name: inputs[name].detach().requires_grad_() for name in wrt}
        return function({**inputs, **leaves}), tuple(leaves.values())

    def pull(inputs: Inputs, out: Outputs, leaves: tuple[torch.Tensor, ...], keep: bool) -> Outputs:
        outs = (out,) if isinstance(out, torch.Tensor) else out
        grads = torch.autograd.grad(outs, leaves, [inputs[n] for n in upstream], retain_graph=keep)
        return grads[0] if len(grads) == 1 else grads

    def backward(inputs: Inputs) -> Thunk:
        # A compiled backward pass may reuse saved tensors, which one that is repeated still needs.
        with torch._functorch.config.patch(donated_buffer=False):
            out, leaves = forward(inputs)
            pull(inputs, out, leaves, True)
        return lambda: pull(inputs, out, leaves, True)

    def full(inputs: Inputs) -> Thunk:
        return lambda: pull(inputs, *forward(inputs), False)

    return backward, full


def by_passes(
    forward: Callable[[Inputs], Kept], pull: Callable[[Inputs, Kept], Outputs]
) -> tuple[Builder, Builder]:
    """Return the same of a forward pass and of a backward pass that uses what it returned."""

    def backward(inputs: Inputs) -> Thunk:
        kept = forward(inputs)
        return lambda: pull(inputs, kept)

    def full(inputs: Inputs) -> Thunk:
        return lambda: pull(inputs, forward(inputs))

    return backward, full


def of_oracle(
    oracle: Callable[[Inputs], Outputs], wrt: Sequence[str], upstream: Sequence[str] = ("grad",)
) -> Callable[[Inputs], Outputs]:
    """Return the derivative of an oracle, in float64; names are as above."""

    def truth(inputs: Inputs) -> Outputs:
        with torch.enable_grad(), torch.inference_mode(False):
            leaves = {name: inputs[name].double().requires_grad_() for name in wrt}
            out = oracle({**inputs, **leaves})
            outs = (out,) if isinstance(out, torch.Tensor) else out
            grads = [inputs[name].double() for name in upstream]
            pulled = torch.autograd.grad(outs, tuple(leaves.values()), grads)
        return pulled[0] if len(pulled) == 1 else pulled

    return truth
