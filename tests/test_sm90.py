"""What the compiler makes of the kernels for a Hopper GPU: seen without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

ROOT = Path(__file__).parent.parent
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
WIDE = [(64, "float16"), (1023, "float16"), (1024, "bfloat16"), (3584, "float16")]
WIDE += [(4096, "float16"), (8192, "float16"), (16384, "float32"), (131072, "float16")]
RMS_NORM = [f"rms_norm:triton:rows=2048,hidden={h},{dtype}" for h, dtype in WIDE]
MAIN = RMS_NORM[2:6]
SINKHORN = {
    name: f"sinkhorn:triton-{name}:batch=262144,n=4,n_iter=20,float32"
    for name in ("global", "registers", "packed", "scalars")
}
WIDE_TILES = [f"sinkhorn:triton-packed:batch=4096,n={n},n_iter=20,float32" for n in (16, 64)]

pytestmark = pytest.mark.skipif(
    not (TOOLS / "cuobjdump").exists(), reason="this Triton brings no CUDA tools"
)


@pytest.fixture(scope="module")
def machine_code():
    """Compile everything in a process of its own, where kernels are not interpreted."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.sm90", *RMS_NORM, *SINKHORN.values(), *WIDE_TILES]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {case: kernels for case, [*kernels] in json.loads(done.stdout).items()}


def count(kernel, *prefixes):
    return sum(n for name, n in kernel["instructions"].items() if name.startswith(prefixes))


@pytest.mark.parametrize("case", [*RMS_NORM, *SINKHORN.values(), *WIDE_TILES])
def test_a_call_is_one_kernel_without_spills(machine_code, case):
    (kernel,) = machine_code[case]
    assert kernel["stack_bytes"] == 0
    assert count(kernel, "LDL", "STL") == 0
    assert 0 < kernel["registers"] <= 128


@pytest.mark.parametrize("case", MAIN)
def test_rms_norm_moves_16_bytes_at_a_time_and_reads_once(machine_code, case):
    (kernel,) = machine_code[case]
    moves = [name for name in kernel["instructions"] if name.startswith(("LDG", "STG"))]
    assert all(name.endswith(".128") for name in moves)
    # As many loads of the weight as of the row, as many stores as loads of the row.
    assert count(kernel, "LDG") == 2 * count(kernel, "STG") > 0


def test_weight_is_kept_and_rows_are_streamed_in_and_out(machine_code):
    (kernel,) = machine_code[MAIN[-1]]
    assert count(kernel, "LDG.E.EL.128") == count(kernel, "LDG.E.EF.128")
    assert count(kernel, "STG.E.EF.128") == count(kernel, "STG") > 0


def test_scalars_exchange_nothing_and_take_reciprocals_in_pairs(machine_code):
    (kernel,) = machine_code[SINKHORN["scalars"]]
    assert count(kernel, "SHFL", "LDS", "STS", "BAR") == 0
    assert kernel["instructions"]["LDG.E.128"] == count(kernel, "LDG") == 4
    assert kernel["instructions"]["STG.E.128"] == count(kernel, "STG") == 4
    assert count(kernel, "MUFU.EX2") == 16
    # 32 fused products an iteration, in the paired and in the plain loop.
    assert count(kernel, "FFMA") % 32 == 0


def test_packed_tile_moves_16_bytes_at_a_time(machine_code):
    (kernel,) = machine_code[SINKHORN["packed"]]
    assert kernel["instructions"]["LDG.E.128"] == count(kernel, "LDG")
    assert kernel["instructions"]["STG.E.128"] == count(kernel, "STG")
