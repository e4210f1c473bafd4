import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.occupancy import LIMITS, occupancy


# From the CUDA best practices guide, for a multiprocessor of 64 warps and 65536 registers: with 37
# registers a thread 12 blocks of 128 threads are resident (75 %), and 4 of 320 threads (63 %).
@pytest.mark.parametrize(("num_warps", "blocks", "share"), [(4, 12, 0.75), (10, 4, 0.625)])
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_registers_limit_as_in_the_guide(
    target: str, num_warps: int, blocks: int, share: float
) -> None:
    assert occupancy(target, 37, 0, num_warps) == (blocks, share, "registers")


def test_32_registers_or_less_fill_a_multiprocessor() -> None:
    assert occupancy("sm_90", 32, 0, 4).occupancy == 1.0
    assert occupancy("sm_90", 33, 0, 4).occupancy < 1.0


# 1536 threads a multiprocessor: 48 warps, which 40 registers fill.
@pytest.mark.parametrize("target", ["sm_89", "sm_120"])
def test_smaller_multiprocessors_hold_48_warps(target: str) -> None:
    assert occupancy(target, 40, 0, 8) == (6, 1.0, "warps")


def test_blocks_of_one_warp_are_limited_by_their_number() -> None:
    assert occupancy("sm_90", 16, 0, 1) == (32, 0.5, "blocks")
    assert occupancy("sm_89", 16, 0, 1) == (24, 0.5, "blocks")


# A block may use 227 of 228 KiB: one is the system's. Two of 113 KiB fit.
def test_shared_memory_limits_with_what_the_system_takes() -> None:
    assert occupancy("sm_90", 32, 227 * 1024, 4) == (1, 4 / 64, "shared")
    assert occupancy("sm_90", 32, 113 * 1024, 4).resident_blocks == 2
    assert occupancy("sm_90", 32, 113 * 1024 + 1, 4).resident_blocks == 1
    assert occupancy("sm_90", 32, 228 * 1024, 4) == (0, 0.0, "shared")
    assert occupancy("sm_80", 32, 163 * 1024, 4).resident_blocks == 1


def test_a_block_of_1024_threads_has_64_registers_a_thread() -> None:
    assert occupancy("sm_90", 64, 0, 32).resident_blocks == 1
    assert occupancy("sm_90", 65, 0, 32).resident_blocks == 0


# As LLVM prints them for gfx942: waves of a SIMD by vector registers.
@pytest.mark.parametrize(("registers", "waves"), [(64, 8), (65, 7), (96, 5), (128, 4), (256, 2)])
def test_amd_waves_are_those_of_llvm(registers: int, waves: int) -> None:
    assert occupancy("gfx942", registers, 0, 4).occupancy == waves / 8


@given(
    st.sampled_from(sorted(LIMITS)),
    st.integers(1, 254),
    st.integers(0, 10**5),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
)
def test_more_of_anything_never_gives_more_occupancy(
    target: str, registers: int, shared_bytes: int, num_warps: int
) -> None:
    here = occupancy(target, registers, shared_bytes, num_warps)
    assert 0 <= here.occupancy <= 1
    assert occupancy(target, registers + 1, shared_bytes, num_warps).occupancy <= here.occupancy
    assert occupancy(target, registers, shared_bytes + 999, num_warps).occupancy <= here.occupancy
