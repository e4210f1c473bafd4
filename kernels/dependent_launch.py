"""Programmatic dependent launch: a kernel comes onto the card while the one before it ends."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# About as many programs as a card holds at once. A larger grid would give its own places away.
MOST_AT_ONCE = 1024
WAITS, LETS_NEXT_IN = 1, 2


def launch_options(pdl: bool, programs: int, most: int = MOST_AT_ONCE) -> dict[str, Any]:
    """Return launch arguments: the constant PDL, and the attribute where it is asked for.

    Grids of more than `most` programs let nothing in before they end.
    """
    if not pdl:
        return {"PDL": 0}
    return {"PDL": LETS_NEXT_IN if programs <= most else WAITS, "launch_pdl": True}


@triton.jit
def wait_for_previous(PDL: tl.constexpr):
    """Wait until the kernel before has ended and its results can be seen."""
    if PDL > 0:
        gdc_wait()


@triton.jit
def let_next_in(PDL: tl.constexpr):
    """Allow the next kernel onto the card as soon as all programs of a small grid are here."""
    if PDL > 1:
        gdc_launch_dependents()
