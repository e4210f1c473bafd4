"""torch.compile as a baseline that stays comparable over a sweep of shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

import torch

if TYPE_CHECKING:
    from kernels.spec import Inputs

P = ParamSpec("P")
R = TypeVar("R")
Options: TypeAlias = tuple[tuple[str, int], ...]


def compiled(
    function: Callable[P, R], inputs: Inputs, *constants: int, options: Options = ()
) -> Callable[P, R]:
    """Return a function compiled at its first call, for inputs and constants like these alone.

    Sets of inputs that agree in shape, stride, dtype, device and need of a gradient share it.
    `options` are Inductor's, as pairs.
    """
    layout = [
        (n, t.shape, t.stride(), t.dtype, t.device, t.requires_grad)
        for n, t in sorted(inputs.items())
    ]
    return _compiled(function, (*layout, *constants), options)


@cache
def _compiled(
    function: Callable[P, R], alike: tuple[object, ...], options: Options
) -> Callable[P, R]:
    return torch.compile(unseen(function), dynamic=False, fullgraph=True, options=dict(options))


def unseen(function: Callable[P, R]) -> Callable[P, R]:
    """Copy a function with a code object of its own.

    Dynamo counts recompilations by code object: with a shared one, a sweep over more shapes than
    its limit would fail, and each call would walk the guards of all of them.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"expected a plain function, not {function!r}")
    copy = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
