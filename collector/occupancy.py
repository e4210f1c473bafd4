"""How many warps of a kernel a multiprocessor can hold: from the limits of each architecture."""

from __future__ import annotations

from typing import Literal, NamedTuple

KIB = 1024


class Limits(NamedTuple):
    """What a multiprocessor (a compute unit on AMD) holds at once.

    NVIDIA: the table of technical specifications in the CUDA programming guide, and the allocation
    units of the occupancy calculator. AMD: the CDNA3 instruction set guide.
    """

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int
    """Shared memory that the system takes of each block."""
    shared_unit_bytes: int
    """Shared memory is handed out in multiples of this."""
    warp_registers: int
    """Registers of one of the four partitions, over the lanes of a warp."""
    register_unit: int
    """Registers of a thread are handed out in multiples of this."""


def nvidia(warps: int, blocks: int, shared_kib: int) -> Limits:
    """Return the limits of an NVIDIA architecture: 16384 registers a partition, 32 lanes a warp."""
    return Limits(warps, blocks, shared_kib * KIB, KIB, 128, 512, 8)


LIMITS = {
    "sm_80": nvidia(64, 32, 164),
    "sm_89": nvidia(48, 24, 100),
    "sm_90": nvidia(64, 32, 228),
    "sm_100": nvidia(64, 32, 228),
    "sm_120": nvidia(48, 24, 100),
    "gfx942": Limits(32, 32, 64 * KIB, 0, 512, 512, 8),
}
PARTITIONS = 4


class Occupancy(NamedTuple):
    """Resident blocks, their share of the warps that fit, and what limits them."""

    resident_blocks: int
    occupancy: float
    limited_by: Literal["warps", "blocks", "registers", "shared"]


def occupancy(target: str, registers: int, shared_bytes: int, num_warps: int) -> Occupancy:
    """Return the theoretical occupancy of a kernel on a target."""
    limits = LIMITS[target]
    fits: dict[Literal["warps", "blocks", "registers", "shared"], int] = {
        "warps": limits.warps // num_warps,
        "blocks": limits.blocks,
        "registers": warps_by_registers(limits, registers) // num_warps,
        "shared": limits.shared_bytes // shared_of_a_block(limits, shared_bytes),
    }
    limited_by = min(fits, key=lambda name: fits[name])
    blocks = fits[limited_by]
    return Occupancy(blocks, blocks * num_warps / limits.warps, limited_by)


def warps_by_registers(limits: Limits, registers: int) -> int:
    """Return for how many warps the registers suffice: each partition hands out its own."""
    handed_out = rounded_up(max(registers, 1), limits.register_unit)
    return PARTITIONS * (limits.warp_registers // handed_out)


def shared_of_a_block(limits: Limits, shared_bytes: int) -> int:
    """Return the shared memory that a block takes, at least one unit."""
    unit = limits.shared_unit_bytes
    return max(unit, rounded_up(shared_bytes + limits.reserved_bytes, unit))


def rounded_up(value: int, unit: int) -> int:
    """Round up to a multiple."""
    return -(-value // unit) * unit
