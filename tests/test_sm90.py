"""What the compiler makes of the kernels for a Hopper GPU: seen without one."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from collector.code_record import Codegen, MachineCode
from collector.machine_code import sass_opcodes
from kernels.ops.paged_kv_gather import BYTES_A_THREAD
from kernels.registry import load_ops

triton = pytest.importorskip("triton")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
UNCOMPILED = "not compiled"

pytestmark = pytest.mark.skipif(
    not (TOOLS / "cuobjdump").exists(), reason="this Triton brings no CUDA tools"
)


class Made(NamedTuple):
    """What came out of a compilation."""

    code: MachineCode
    text: str

    @property
    def opcodes(self):
        return sass_opcodes(self.text)


class Form(NamedTuple):
    """One form of a kernel, and what was made of it."""

    line: Codegen
    made: Made | None

    def serves(self, op, implementation, workload):
        """Tell whether a use launches it."""
        uses = {(use.implementation, name) for use in self.line.used_by for name in use.workloads}
        return self.line.op == op and (implementation, workload) in uses


BATCHES = (32, 8192)
USES = [("sigreg_trig", "triton", f"batch={n},slices=1024,points=17,bfloat16") for n in BATCHES]


def looks_at(*uses, **others):
    """Hand a test the one kernel of each use, with values of its own for each."""
    USES.extend(uses)
    names = ("kernel", *others)
    values = list(zip(uses, *others.values(), strict=True))
    ids = ["-".join(use) for use in uses]
    return pytest.mark.parametrize(names, values, indirect=["kernel"], ids=ids)


@pytest.fixture(scope="module")
def forms():
    """Return all forms; those are compiled that these tests look at, and one of each kernel."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.hopper"], env=env, input=json.dumps(USES),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [read(json.loads(line)) for line in done.stdout.splitlines()]


def read(outcome):
    line = Codegen.model_validate(outcome["line"])
    return Form(line, Made(line.code, outcome["text"]) if line.code else None)


@pytest.fixture
def kernel(forms, request):
    (form,) = [form for form in forms if form.serves(*request.param)]
    assert form.made, form.line.reason
    return form.made


def compiled(forms, op, kernel):
    """Return what was made of the forms of a kernel that were compiled."""
    named = [form for form in forms if (form.line.op, form.line.kernel) == (op, kernel)]
    return [form.made for form in named if form.line.reason != UNCOMPILED]


def count(opcodes, *prefixes):
    return sum(n for name, n in opcodes.items() if name.startswith(prefixes))


def sinkhorn(implementation):
    return "sinkhorn", f"triton-{implementation}", "batch=262144,n=4,n_iter=20,float32"


def test_every_kernel_compiles_without_spills(forms):
    assert {form.line.reason for form in forms} == {None, UNCOMPILED}
    kernels = {(form.line.op, form.line.kernel) for form in forms}
    assert len(kernels) > 20
    for kernel in kernels:
        assert compiled(forms, *kernel)
        for code, _ in compiled(forms, *kernel):
            assert code.spills == code.instructions.local == 0
            # A tile that tensor cores add to stays in registers.
            most = 255 if code.instructions.tensor else 128
            assert 0 < code.registers <= most


def test_no_call_is_more_kernels_than_its_implementation_says(forms):
    kernels = Counter(
        (form.line.op, use.implementation, workload)
        for form in forms
        for use in form.line.used_by
        for workload in use.workloads
    )
    assert len(kernels) > 100
    ops = load_ops()
    workloads = {(name, w.key): w for name, op in ops.items() for w in op.workloads}
    for (op, implementation, key), count in kernels.items():
        launches = ops[op].implementation(implementation).launches
        assert count <= (launches(workloads[op, key]) if launches else 1)


@looks_at(
    ("rms_norm", "triton", "rows=128,hidden=1024,float16"),
    ("rms_norm", "triton", "rows=2048,hidden=4096,float16"),
    ("rms_norm", "triton", "rows=16384,hidden=8192,float16"),
)
def test_rms_norm_moves_16_bytes_at_a_time_and_reads_once(kernel):
    counts = kernel.code.instructions
    assert counts.narrow_loads == counts.narrow_stores == 0
    # As many loads of the weight as of the row, as many stores as loads of the row.
    assert counts.wide_loads == 2 * counts.wide_stores > 0


@looks_at(
    ("rms_norm", "triton", "rows=16384,hidden=8192,float16"),
    ("rms_norm", "triton", "rows=2048,hidden=4096,float16"),
    # Within the cache rows leave it early when they were read; beyond it they are kept.
    early=(0, 1 / 2),
)
def test_weight_is_kept_and_rows_are_streamed_out(kernel, early):
    opcodes = kernel.opcodes
    assert count(opcodes, "LDG.E.EF.128") == early * count(opcodes, "LDG")
    assert count(opcodes, "LDG.E.EL.128") == (1 - early) * count(opcodes, "LDG")
    assert count(opcodes, "STG.E.EF.128") == count(opcodes, "STG") > 0


@looks_at(
    ("residual_rms_norm", "triton", "rows=16384,hidden=4096,bfloat16"),
    ("residual_rms_norm", "triton", "rows=4,hidden=1536,bfloat16"),
    # Within the cache what is read and written leaves it early; beyond it reads are kept.
    early=(0, 2 / 3),
)
def test_residual_rms_norm_reads_once_and_streams_in_and_out(kernel, early):
    code, opcodes = kernel.code, kernel.opcodes
    assert code.instructions.narrow_loads == code.instructions.narrow_stores == 0
    # Two inputs and the weight in, two outputs out.
    assert count(opcodes, "LDG") // 3 == count(opcodes, "STG") // 2 > 0
    assert count(opcodes, "LDG.E.EF.128") == early * count(opcodes, "LDG")
    assert count(opcodes, "STG.E.EF.128") == bool(early) * count(opcodes, "STG")


@looks_at(("qk_dot", "triton", "rows=1048576,hidden=128,float16"))
def test_scores_of_pairs_read_16_bytes_at_a_time(kernel):
    opcodes = kernel.opcodes
    # 16 elements a thread of each side, and a score for each row.
    assert count(opcodes, "LDG.E.128") == count(opcodes, "LDG") == 4
    assert count(opcodes, "STG") == 1


@looks_at(("qk_dot", "triton", "rows=1048576,hidden=128,queries=8,keys=4096,bfloat16"))
def test_scores_of_groups_use_tensor_cores_and_move_16_bytes_at_a_time(kernel):
    code, opcodes = kernel.code, kernel.opcodes
    assert code.instructions.tensor == count(opcodes, "HMMA.16816.F32.BF16") > 0
    assert code.instructions.narrow_loads == code.instructions.narrow_stores == 0
    # A tile of 64 keys of 256 bytes: 8 loads a thread; queries once.
    assert count(opcodes, "LDG.E.128") == 8 and count(opcodes, "LDG.E.EL.128") == 1


@looks_at(("swiglu", "triton", "rows=16384,hidden=8192,float16"))
def test_swiglu_streams_16_bytes_at_a_time_in_and_out(kernel):
    opcodes = kernel.opcodes
    # Twice, for full tiles and for the last one: a load of gate and of up, a store.
    assert count(opcodes, "LDG.E.EL.128") == count(opcodes, "LDG") == 4
    assert count(opcodes, "STG.E.EF.128") == count(opcodes, "STG") == 2


@looks_at(("swiglu", "triton", "rows=3,hidden=1023,float16"))
def test_swiglu_reads_full_tiles_of_an_odd_width_in_whole_vectors(kernel):
    opcodes = kernel.opcodes
    # A small matrix leaves 4 elements of each tensor to a thread.
    assert count(opcodes, "LDG.E.EL.64") == 2 and count(opcodes, "STG.E.EF.64") == 1


@looks_at(sinkhorn("scalars"))
def test_scalars_exchange_nothing_and_take_reciprocals_in_pairs(kernel):
    code, opcodes = kernel.code, kernel.opcodes
    counts = code.instructions
    assert count(opcodes, "SHFL") == counts.shared == counts.barrier == 0
    # One reduction in the warp: whether any of its matrices is in range for pairs.
    assert counts.shuffle == count(opcodes, "REDUX") == 1
    assert counts.wide_loads == counts.wide_stores == 4
    assert counts.narrow_loads == counts.narrow_stores == 0
    assert count(opcodes, "MUFU.EX2") == 16
    # 32 fused products an iteration: twenty in a row, whose first sums of rows need none, and a
    # loop of one for matrices out of range. Four pairs of reciprocals, or eight single ones.
    assert count(opcodes, "FFMA") == 20 * 32 - 16 + 32
    assert count(opcodes, "MUFU.RCP") == 20 * 4 + 8


@looks_at(sinkhorn("packed"))
def test_packed_tile_moves_16_bytes_at_a_time(kernel):
    counts = kernel.code.instructions
    assert counts.narrow_loads == counts.narrow_stores == 0
    assert counts.wide_loads == counts.wide_stores > 0


@looks_at(
    ("paged_kv_gather", "triton", "rows=1048576,hidden=128,page_size=1,caches=1,bfloat16"),
    ("paged_kv_gather", "triton", "rows=131072,hidden=1024,page_size=16,caches=2,bfloat16"),
)
def test_gather_moves_16_bytes_at_a_time_and_reads_a_page_number_once(kernel):
    counts, pieces = kernel.code.instructions, BYTES_A_THREAD // 16
    assert counts.wide_loads == counts.wide_stores == count(kernel.opcodes, "LDG.E.128")
    assert counts.wide_loads in (pieces, 2 * pieces)  # of one cache or of two
    assert counts.narrow_loads == pieces
    assert counts.narrow_stores == counts.shared == counts.barrier == 0


@looks_at(
    (
        "selected_attention",
        "triton",
        "sequences=64,kv_heads=8,queries=8,selected=2048,head_dim=128,bfloat16",
    )
)
def test_attention_streams_keys_and_values_past_the_registers(kernel):
    opcodes = kernel.opcodes
    # 64 keys and 64 values of 256 bytes by 128 threads, in the loop and before it.
    assert count(opcodes, "LDGSTS.E.BYPASS.128") == 2 * 16
    assert count(opcodes, "HMMA.16816.F32.BF16") == 32


@looks_at(("int4_gemv", "triton", "n=8192,k=8192,group=128,m=1,bfloat16"))
def test_weights_of_four_bits_stay_in_registers_until_they_are_multiplied(kernel):
    code, opcodes = kernel.code, kernel.opcodes
    # In two steps, a lane loads 8 times 32 weights and 32 numbers of x; a word of eight weights
    # takes four products of pairs, and 16 by 16 weights one product of matrices.
    assert count(opcodes, "LDG.E.EF.128") == 2 * 8 and count(opcodes, "LDG.E.128") == 2 * 4
    assert count(opcodes, "HFMA2") == 2 * 8 * 16
    assert count(opcodes, "HMMA.16816.F32") == 2 * 8 * 4
    # Shared memory serves the scales and the sum over the warps; the weights would need 16 KiB.
    assert code.shared_bytes <= 1024
    assert code.instructions.shared < 32


@looks_at(
    ("int4_gemv", "triton", "n=1536,k=1536,group=1536,m=1,bfloat16"),
    ("int4_gemv", "triton", "n=8192,k=8192,group=128,m=1,bfloat16"),
    weights=(4, 8),
)
def test_a_step_asks_for_all_that_it_needs_before_it_waits(kernel, weights):
    before, barrier, after = kernel.text.partition("BAR.RED")
    assert barrier and "HMMA" in after and "HMMA" not in before
    assert before.count("LDG.E.EF.128") == weights and before.count("LDG.E.128") == 4
    # Scales are loaded with them.
    assert before.count("LDG") > weights + 4


def test_trig_reduction_takes_three_special_functions_for_two_elements(forms):
    for opcodes in [made.opcodes for made in compiled(forms, "sigreg_trig", "_even")]:
        pairs = count(opcodes, "MUFU.COS")
        assert count(opcodes, "MUFU.SIN") == 2 * pairs > 0
        # A pair takes two additions a point, and three numbers the recurrence from point 3 on.
        assert pairs * (2 * 16 + 3 * 14) <= count(opcodes, "FFMA") <= pairs * 95


def test_sums_of_products_go_on_in_registers_from_tile_to_tile(forms):
    for code, text in compiled(forms, "sigreg", "_gemm_trig"):
        opcodes = sass_opcodes(text)
        assert code.instructions.tensor == count(opcodes, "HGMMA") > 0
        # Two slices of a thread have 32 sums each, which meet those of three other threads at the
        # end, in two steps.
        assert count(opcodes, "SHFL.BFLY") == 2 * 2 * 32
        assert count(opcodes, "LDGSTS.E.BYPASS.128") > 0


def test_directions_are_written_16_bytes_at_a_time(forms):
    for code, _ in compiled(forms, "sigreg", "_project"):
        assert code.instructions.narrow_stores == 0 < code.instructions.wide_stores


def test_sums_of_warps_change_hands_without_shuffles(forms):
    for opcodes in [made.opcodes for made in compiled(forms, "sigreg_trig", "_even")]:
        assert count(opcodes, "SHFL") == 0
        assert count(opcodes, "BAR") <= 4
