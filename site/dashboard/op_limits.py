"""Limits that lie elsewhere for each op: special functions, and the start of instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from collector.history.model import Ceilings, Point
from collector.history.roof import pipe_flops_per_s
from collector.record import CostRecord, Device
from dashboard.figures import Scene

Place = tuple[int, Point, float, float]  # size, point, FLOP per byte, TFLOP/s
Found = Mapping[str, Sequence[tuple[Scene, Place]]]  # by op

LANES = 128  # of a multiprocessor: four schedulers start an instruction of 32 lanes a cycle each
ISSUE_SHARE = 0.6  # of all lanes at the highest clock; half of them means half as many fp32 units
FAR = 100.0  # times the best point: a limit out of sight
NEAR = 0.95  # of the pipe's own rate: a limit that would only repeat it


@dataclass(frozen=True, slots=True)
class OpLimit:
    """The highest rate of flops that a limit allows an op, at the intensities of its points."""

    name: str
    op: str
    x: tuple[float, ...]
    tflop_per_s: tuple[float, ...]


def op_limits(found: Found) -> list[OpLimit]:
    """Return the limits of each op that are in sight, the lowest last.

    The start of instructions is left out where several ops share a chart.
    """
    made = [_limit("special functions", op, places, _special) for op, places in found.items()]
    if len(found) == 1:
        made += [_limit("instruction issue", op, places, _issue) for op, places in found.items()]
    return sorted(filter(None, made), key=lambda limit: -limit.tflop_per_s[-1])


def _limit(
    name: str,
    op: str,
    places: Sequence[tuple[Scene, Place]],
    way: Callable[[Scene, CostRecord], float | None],
) -> OpLimit | None:
    rates = {
        across: rate / 1e12
        for scene, (_, point, across, _) in places
        if point.cost and (rate := way(scene, point.cost))
    }
    best = max((up for _, (_, _, _, up) in places), default=0.0)
    if not rates or min(rates.values()) >= FAR * best:
        return None
    x = tuple(sorted(rates))
    return OpLimit(name, op, x, tuple(rates[across] for across in x))


def _special(scene: Scene, cost: CostRecord) -> float | None:
    """Return the flops a second while special functions come at their highest rate."""
    rate = scene.ceilings.special_ops_per_s if scene.ceilings else None
    return cost.flops / cost.special_ops * rate if rate and cost.special_ops else None


def _issue(scene: Scene, cost: CostRecord) -> float | None:
    """Return the same for instructions, where that is not the rate of the pipe itself."""
    rate = issue_flops_per_s(scene, cost)
    pipe = pipe_flops_per_s(scene.ceilings, cost.pipe) if scene.ceilings else None
    return rate if rate and pipe and rate < NEAR * pipe else None


def issue_flops_per_s(scene: Scene, cost: CostRecord, fused: bool = True) -> float | None:
    """Return the flops a second while instructions start at their highest rate.

    Each special function takes an instruction, and so do two flops when fused, else each flop.
    """
    rate = issue_per_s(scene.ceilings, scene.curves.run.device)
    if rate is None or cost.pipe != "fp32" or not cost.flops:
        return None
    return cost.flops / (cost.flops / (1 + fused) + cost.special_ops) * rate


def issue_per_s(ceilings: Ceilings | None, device: Device) -> float | None:
    """Return the instructions that all lanes start a second, by the multiply-add sentinel.

    None where that sentinel ends at another limit: on cards with fewer fp32 units than lanes.
    """
    lanes = LANES * device.multiprocessors * (device.sm_clock_max_mhz or 0.0) * 1e6
    rate = (ceilings.fp32_flops_per_s or 0.0) / 2 if ceilings else 0.0
    return rate if lanes and rate > ISSUE_SHARE * lanes else None
