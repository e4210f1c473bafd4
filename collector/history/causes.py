"""Why did it change? What two points and their runs say about the cause, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from collector.history.model import Point, RunInfo
from collector.record import KernelCode
from collector.verdict import Drift

Kind = Literal[
    "not-kernel", "source", "toolchain", "launch", "machine", "clocks", "host", "card", "not-ours"
]  # fmt: skip

CLOCK_MOVED = 0.005
DRIFT_TOLD = 0.002


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that the records say about a change."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing of the environment in which two runs differ."""

    name: str
    before: str
    after: str


def environment_difference(before: RunInfo, after: RunInfo) -> tuple[Difference, ...]:
    """Return what differs between the environments of two runs."""
    a, b = environment_of(before), environment_of(after)
    names = [*a, *(name for name in b if name not in a)]
    return tuple(
        Difference(name, a.get(name, "none"), b.get(name, "none"))
        for name in names
        if a.get(name) != b.get(name)
    )


def environment_of(run: RunInfo) -> Mapping[str, str]:
    """Return everything about card, driver and versions that two runs may differ in."""
    device = run.device
    facts = {
        "device": device.name,
        "card": device.uuid_hash,
        "driver": device.driver,
        "power limit (W)": device.power_limit_w,
        "highest SM clock (MHz)": device.sm_clock_max_mhz,
        "highest memory clock (MHz)": device.memory_clock_max_mhz,
        "partitioned (MIG)": device.mig,
        "processes of others": device.other_processes,
    }
    told = {name: str(value) for name, value in facts.items() if value is not None}
    return told | dict(sorted(run.versions.items()))


def same_code(before: Point, after: Point) -> bool:
    """Tell whether both sides ran the same machine code, launched with the same constants."""
    a, b = _machine_code(before.codegen), _machine_code(after.codegen)
    return a is not None and a == b


def _machine_code(kernels: Sequence[KernelCode]) -> list[tuple[str, str, int]] | None:
    """Return what identifies the machine code of all kernels; None when it is not known of all."""
    found = [(k.sass_hash, k.constants, k.num_warps) for k in kernels if k.sass_hash]
    return sorted(found) if found and len(found) == len(kernels) else None


def causes(
    before: Point,
    after: Point,
    *,
    log_ratio: float,
    drift: Drift,
    drift_name: str,
    differences: Sequence[Difference] = (),
) -> tuple[Cause, ...]:
    """Return what the records say about the cause of a change of log ratio `log_ratio`."""
    found = [
        _code(before, after, differences),
        _machine(drift, drift_name),
        _clocks(before, after, log_ratio),
    ]
    return tuple(cause for cause in found if cause is not None)


def _code(before: Point, after: Point, differences: Sequence[Difference]) -> Cause | None:
    a, b = _machine_code(before.codegen), _machine_code(after.codegen)
    if a is None or b is None:
        return None
    if a == b:
        return Cause("not-kernel", "The machine code is the same: not the kernel.")
    detail = _resources(before.codegen, after.codegen)
    if {k.source_hash for k in before.codegen} != {k.source_hash for k in after.codegen}:
        return Cause("source", f"The source of the kernel changed{detail}.")
    if {k.constants for k in before.codegen} != {k.constants for k in after.codegen}:
        return Cause("launch", f"The same source was launched with other constants{detail}.")
    tools = [d for d in differences if d.name in ("triton", "torch", "cuda", "driver")]
    told = ", ".join(f"{d.name} {d.before} to {d.after}" for d in tools) or "toolchain unknown"
    return Cause("toolchain", f"The same source became other machine code ({told}){detail}.")


def _resources(before: Sequence[KernelCode], after: Sequence[KernelCode]) -> str:
    """Say how registers, spills and shared memory moved."""
    words = []
    for name, unit in (("registers", "registers"), ("spills", "spills"), ("shared_bytes", "B")):
        a, b = (max((getattr(k, name) for k in side), default=0) for side in (before, after))
        if a != b:
            label = "shared memory" if name == "shared_bytes" else ""
            words.append(f"{label} {a} to {b} {unit}".strip())
    return f": {', '.join(words)}" if words else ""


def _machine(drift: Drift, name: str) -> Cause | None:
    size = abs(drift.log_ratio)
    if size < max(DRIFT_TOLD, 2 * drift.standard_error):
        return None
    word = "slower" if drift.log_ratio > 0 else "faster"
    share = f"{abs(math.expm1(drift.log_ratio)):.1%}"
    return Cause(
        "machine", f"The machine itself became {share} {word} (sentinel {name}), taken off."
    )


def _clocks(before: Point, after: Point, log_ratio: float) -> Cause | None:
    """Say when time moved and cycles did not."""
    a, b = before.sm_clock_mhz, after.sm_clock_mhz
    if not a or not b or abs(b / a - 1) < CLOCK_MOVED:
        return None
    cycles = log_ratio + math.log(b / a)
    if abs(cycles) > abs(log_ratio) / 2:
        return None
    return Cause("clocks", f"Time moved and cycles did not: SM clock {a:.0f} to {b:.0f} MHz.")


def host_cause(device_change: float) -> Cause:
    """Say that a call moved and its device time did not."""
    share = f"{device_change:+.1%}"
    return Cause("host", f"The call moved and its device time did not ({share}): the host.")
