"""SIGReg whole: directions, product, means, statistics, loss; its gradient, by recomputation."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from kernels.sigreg.backward import pull
from kernels.sigreg.finish import finish, finish_back
from kernels.sigreg.gemm import gemm, gemm_sums
from kernels.sigreg.projection import projection
from kernels.sigreg.small import LARGEST_BATCH, small_loss
from kernels.sigreg.trig import MOST_EVEN, sums_of

Clip = Literal["none", "clamp", "zero"]
OWN_PRODUCT = 512


class Test(NamedTuple):
    """What projections are compared with, and how.

    t, phi, weights: [points] of float32. `even` says that t is k t[1], k = 0, 1, ... Statistics
    below `clip_value` are raised to it (`clamp`) or count for nothing (`zero`).
    """

    t: torch.Tensor
    phi: torch.Tensor
    weights: torch.Tensor
    even: bool
    clip: Clip = "none"
    clip_value: float = 0.0

    @property
    def one_angle(self) -> bool:
        """Tell whether multiples of one angle are enough."""
        return self.even and 1 < self.t.shape[0] <= MOST_EVEN + 1

    @property
    def summed(self) -> int:
        """Count the points whose sums are taken: t = 0 is left out where it can be."""
        return self.t.shape[0] - self.one_angle


def multiply(x: torch.Tensor, a: torch.Tensor, pdl: bool = False) -> torch.Tensor:
    """Project embeddings, [views, batch, dim]: the products are [views, batch, slices]."""
    views, batch, dim = x.shape
    flat = x.reshape(views * batch, dim)
    own = flat.shape[0] <= OWN_PRODUCT
    z = gemm(flat, a, pdl) if own else torch.mm(flat, a)
    return z.view(views, batch, a.shape[1])


def sums(
    x: torch.Tensor,
    key: torch.Tensor,
    slices: int,
    test: Test,
    ticket: torch.Tensor,
    fused: bool = False,
    pdl: bool = False,
) -> torch.Tensor:
    """Return sums over blocks of the batch of cosines and sines, [blocks, 2, n, columns].

    x: [views, batch, dim]; columns are the slices of one view after the other. `fused` keeps even
    the products out of memory.
    """
    a = projection(key, x.shape[2], slices, x.dtype, pdl)
    if fused and test.one_angle and x.shape[0] == 1:
        return gemm_sums(x.squeeze(0), a, test.t, ticket, pdl)
    return sums_of(multiply(x, a, pdl), test.t, test.one_angle, ticket=ticket, pdl=pdl)


def loss(
    x: torch.Tensor,
    key: torch.Tensor,
    slices: int,
    test: Test,
    fused: bool = False,
    keep: bool = False,
    pdl: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the loss and, with `keep`, the sums that its gradient needs.

    x: [views, batch, dim] of float32, bfloat16 or float16; key: two int64 on the device, seed and
    step. Small batches that need no gradient take two launches.
    """
    views, batch, _ = x.shape
    if views == 1 and 0 < batch <= LARGEST_BATCH and not keep and test.one_angle:
        rest = test.t, test.phi, test.weights, test.clip, test.clip_value
        return small_loss(x.squeeze(0), key, slices, *rest, pdl=pdl), None
    ticket = torch.empty(1, dtype=torch.int32, device=x.device)
    made = sums(x, key, slices, test, ticket, fused, pdl)
    rest = test.phi, test.weights, ticket, test.clip, test.clip_value
    return finish(made, batch, *rest, keep=keep, pdl=pdl)


def pull_sums(
    x: torch.Tensor,
    key: torch.Tensor,
    slices: int,
    test: Test,
    grad: torch.Tensor,
    pdl: bool = False,
) -> torch.Tensor:
    """Return the gradient of x from that of the sums, [2, n, columns].

    Directions are drawn and products taken again; gradients of products take their place.
    """
    a = projection(key, x.shape[2], slices, x.dtype, pdl)
    z = multiply(x, a, pdl)
    g = pull(z, test.t, grad, test.one_angle, out=z, pdl=pdl)
    views, batch, _ = x.shape
    return torch.mm(g.view(views * batch, slices), a.T).view(x.shape)


def pull_loss(
    grad: torch.Tensor,
    x: torch.Tensor,
    key: torch.Tensor,
    slices: int,
    test: Test,
    kept: torch.Tensor,
    pdl: bool = False,
) -> torch.Tensor:
    """Return the gradient of x from that of the loss, a scalar; `kept` are the sums."""
    rest = test.phi, test.weights, test.clip, test.clip_value
    of_sums = finish_back(grad, kept, x.shape[1], *rest, pdl=pdl)
    return pull_sums(x, key, slices, test, of_sums, pdl)
