"""torch.compile as a baseline that stays comparable over a sweep of shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


@cache
def compiled(function: Callable[P, R], backend: str = "inductor") -> Callable[P, R]:
    """Compile a plain function for the shapes of its first call alone.

    Nothing is compiled before that call. A later call with other shapes compiles again. The same
    function gives the same result, so that all sets of inputs share one compilation.
    """
    return torch.compile(_unseen(function), dynamic=False, fullgraph=True, backend=backend)


def _unseen(function: Callable[P, R]) -> Callable[P, R]:
    """Copy a function with a code object of its own.

    Dynamo counts recompilations by code object: with a shared one, a sweep of more shapes than
    its limit would fail, and its guards would be walked on each call.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"a plain function is needed, not {function!r}")
    copy = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
