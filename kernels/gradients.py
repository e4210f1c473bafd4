"""Backward passes by autograd, for implementations without a kernel of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs, Outputs, Thunk


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
