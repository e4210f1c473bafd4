"""What the compiler makes of the kernels for a Hopper GPU: seen without one."""

from collections import Counter
from pathlib import Path

import pytest

from collector.machine_code import sass_opcodes
from collector.static_code import compile_ops
from kernels.registry import load_ops

triton = pytest.importorskip("triton")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
MAIN = [(1024, "float16"), (4096, "float16"), (8192, "float16")]

pytestmark = pytest.mark.skipif(
    not (TOOLS / "cuobjdump").exists(), reason="this Triton brings no CUDA tools"
)


@pytest.fixture(scope="module")
def compiled():
    return compile_ops((), ("sm_90",), tags=("default",))


@pytest.fixture(scope="module")
def found(compiled):
    """Return the kernel of a workload and its opcodes."""

    def of(op, implementation, workload):
        (line,) = [
            line
            for line in compiled.file.lines
            for use in line.used_by
            if line.op == op and use.implementation == implementation and workload in use.workloads
        ]
        return line.code, sass_opcodes(compiled.texts[line.code.sass_hash])

    return of


def count(opcodes, *prefixes):
    return sum(n for name, n in opcodes.items() if name.startswith(prefixes))


def sinkhorn(implementation, found):
    return found("sinkhorn", f"triton-{implementation}", "batch=262144,n=4,n_iter=20,float32")


def test_every_kernel_compiles_without_spills(compiled):
    assert len(compiled.file.lines) > 50
    for line in compiled.file.lines:
        assert line.code is not None, line.reason
        assert line.code.spills == line.code.instructions.local == 0
        # A tile that tensor cores add to stays in registers.
        most = 255 if line.code.instructions.tensor else 128
        assert 0 < line.code.registers <= most


def test_no_call_is_more_kernels_than_its_implementation_says(compiled):
    kernels = Counter(
        (x.op, u.implementation, w)
        for x in compiled.file.lines
        for u in x.used_by
        for w in u.workloads
    )
    ops = load_ops()
    workloads = {(name, w.key): w for name, op in ops.items() for w in op.workloads}
    for (op, implementation, key), count in kernels.items():
        launches = ops[op].implementation(implementation).launches
        assert count <= (launches(workloads[op, key]) if launches else 1)


@pytest.mark.parametrize(("hidden", "dtype"), MAIN)
def test_rms_norm_moves_16_bytes_at_a_time_and_reads_once(found, hidden, dtype):
    rows = {1024: 128, 4096: 2048, 8192: 16384}[hidden]
    code, _ = found("rms_norm", "triton", f"rows={rows},hidden={hidden},{dtype}")
    counts = code.instructions
    assert counts.narrow_loads == counts.narrow_stores == 0
    # As many loads of the weight as of the row, as many stores as loads of the row.
    assert counts.wide_loads == 2 * counts.wide_stores > 0


@pytest.mark.parametrize(("rows", "hidden"), [(16384, 8192), (2048, 4096)])
def test_weight_is_kept_and_rows_are_streamed_out(found, rows, hidden):
    _, opcodes = found("rms_norm", "triton", f"rows={rows},hidden={hidden},float16")
    # Within the cache rows leave it early when they were read; beyond it they are kept.
    early = 0 if rows * hidden >= 2**25 else 1 / 2
    assert count(opcodes, "LDG.E.EF.128") == early * count(opcodes, "LDG")
    assert count(opcodes, "LDG.E.EL.128") == (1 - early) * count(opcodes, "LDG")
    assert count(opcodes, "STG.E.EF.128") == count(opcodes, "STG") > 0


@pytest.mark.parametrize(
    ("rows", "hidden", "dtype"),
    [(16384, 4096, "bfloat16"), (4, 1536, "bfloat16")],
)
def test_residual_rms_norm_reads_once_and_streams_in_and_out(found, rows, hidden, dtype):
    code, opcodes = found("residual_rms_norm", "triton", f"rows={rows},hidden={hidden},{dtype}")
    assert code.instructions.narrow_loads == code.instructions.narrow_stores == 0
    # Two inputs and the weight in, two outputs out.
    assert count(opcodes, "LDG") // 3 == count(opcodes, "STG") // 2 > 0
    # Within the cache what is read and written leaves it early; beyond it reads are kept.
    early = 2 / 3 if rows < 1024 else 0
    assert count(opcodes, "LDG.E.EF.128") == early * count(opcodes, "LDG")
    assert count(opcodes, "STG.E.EF.128") == bool(early) * count(opcodes, "STG")


def test_scores_of_pairs_read_16_bytes_at_a_time(found):
    _, opcodes = found("qk_dot", "triton", "rows=1048576,hidden=128,float16")
    # 16 elements a thread of each side, and a score for each row.
    assert count(opcodes, "LDG.E.128") == count(opcodes, "LDG") == 4
    assert count(opcodes, "STG") == 1


def test_scores_of_groups_use_tensor_cores_and_move_16_bytes_at_a_time(found):
    workload = "rows=1048576,hidden=128,queries=8,keys=4096,bfloat16"
    code, opcodes = found("qk_dot", "triton", workload)
    assert code.instructions.tensor == count(opcodes, "HMMA.16816.F32.BF16") > 0
    assert code.instructions.narrow_loads == code.instructions.narrow_stores == 0
    # A tile of 64 keys of 256 bytes: 8 loads a thread; queries once.
    assert count(opcodes, "LDG.E.128") == 8 and count(opcodes, "LDG.E.EL.128") == 1


def test_swiglu_streams_16_bytes_at_a_time_in_and_out(found):
    _, opcodes = found("swiglu", "triton", "rows=16384,hidden=8192,float16")
    # Twice, for full tiles and for the last one: a load of gate and of up, a store.
    assert count(opcodes, "LDG.E.EL.128") == count(opcodes, "LDG") == 4
    assert count(opcodes, "STG.E.EF.128") == count(opcodes, "STG") == 2


def test_swiglu_reads_full_tiles_of_an_odd_width_in_whole_vectors():
    odd = compile_ops(("swiglu",), ("sm_90",), tags=("edge",))
    workload = "rows=3,hidden=1023,float16"
    (code,) = (
        x.code
        for x in odd.file.lines
        for use in x.used_by
        if use.implementation == "triton" and workload in use.workloads
    )
    opcodes = sass_opcodes(odd.texts[code.sass_hash])
    # A small matrix leaves 4 elements of each tensor to a thread.
    assert count(opcodes, "LDG.E.EL.64") == 2 and count(opcodes, "STG.E.EF.64") == 1


def test_scalars_exchange_nothing_and_take_reciprocals_in_pairs(found):
    code, opcodes = sinkhorn("scalars", found)
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


def test_packed_tile_moves_16_bytes_at_a_time(found):
    code, _ = sinkhorn("packed", found)
    assert code.instructions.narrow_loads == code.instructions.narrow_stores == 0
    assert code.instructions.wide_loads == code.instructions.wide_stores > 0


@pytest.mark.parametrize(
    "workload",
    [
        "rows=1048576,hidden=128,page_size=1,caches=1,bfloat16",
        "rows=131072,hidden=1024,page_size=16,caches=2,bfloat16",
    ],
)
def test_gather_moves_16_bytes_at_a_time_and_reads_a_page_number_once(found, workload):
    code, opcodes = found("paged_kv_gather", "triton", workload)
    counts = code.instructions
    assert counts.wide_loads == counts.wide_stores == count(opcodes, "LDG.E.128") >= 4
    assert counts.narrow_loads == 4
    assert counts.narrow_stores == counts.shared == counts.barrier == 0


def test_attention_streams_keys_and_values_past_the_registers(found):
    workload = "sequences=64,kv_heads=8,queries=8,selected=2048,head_dim=128,bfloat16"
    _, opcodes = found("selected_attention", "triton", workload)
    # 64 keys and 64 values of 256 bytes by 128 threads, in the loop and before it.
    assert count(opcodes, "LDGSTS.E.BYPASS.128") == 2 * 16
    assert count(opcodes, "HMMA.16816.F32.BF16") == 32


def test_weights_of_four_bits_stay_in_registers_until_they_are_multiplied(found):
    code, opcodes = found("int4_gemv", "triton", "n=8192,k=8192,group=128,m=1,bfloat16")
    # In two steps, a lane loads 8 times 32 weights and 32 numbers of x; a word of eight weights
    # takes four products of pairs, and 16 by 16 weights one product of matrices.
    assert count(opcodes, "LDG.E.EF.128") == 2 * 8 and count(opcodes, "LDG.E.128") == 2 * 4
    assert count(opcodes, "HFMA2") == 2 * 8 * 16
    assert count(opcodes, "HMMA.16816.F32") == 2 * 8 * 4
    # Shared memory serves the scales and the sum over the warps; the weights would need 16 KiB.
    assert code.shared_bytes <= 1024
    assert code.instructions.shared < 32


@pytest.mark.parametrize(("k", "group", "weights"), [(1536, 1536, 4), (8192, 128, 8)])
def test_a_step_asks_for_all_that_it_needs_before_it_waits(compiled, found, k, group, weights):
    code, _ = found("int4_gemv", "triton", f"n={k},k={k},group={group},m=1,bfloat16")
    before, barrier, after = compiled.texts[code.sass_hash].partition("BAR.RED")
    assert barrier and "HMMA" in after and "HMMA" not in before
    assert before.count("LDG.E.EF.128") == weights and before.count("LDG.E.128") == 4
    # Scales are loaded with them.
    assert before.count("LDG") > weights + 4


def forms(compiled, op, kernel):
    """Return the code and the opcodes of every form of a kernel."""
    lines = [x for x in compiled.file.lines if (x.op, x.kernel) == (op, kernel)]
    assert lines
    return [(x.code, sass_opcodes(compiled.texts[x.code.sass_hash])) for x in lines]


def test_trig_reduction_takes_three_special_functions_for_two_elements(compiled):
    for _, opcodes in forms(compiled, "sigreg_trig", "_even"):
        pairs = count(opcodes, "MUFU.COS")
        assert count(opcodes, "MUFU.SIN") == 2 * pairs > 0
        # A pair takes two additions a point, and three numbers the recurrence from point 3 on.
        assert pairs * (2 * 16 + 3 * 14) <= count(opcodes, "FFMA") <= pairs * 95


def test_sums_of_products_go_on_in_registers_from_tile_to_tile(compiled):
    for code, opcodes in forms(compiled, "sigreg", "_gemm_trig"):
        assert code.instructions.tensor == count(opcodes, "HGMMA") > 0
        # Two slices of a thread have 32 sums each, which meet those of three other threads at the
        # end, in two steps.
        assert count(opcodes, "SHFL.BFLY") == 2 * 2 * 32
        assert count(opcodes, "LDGSTS.E.BYPASS.128") > 0


def test_directions_are_written_16_bytes_at_a_time(compiled):
    for code, _ in forms(compiled, "sigreg", "_project"):
        assert code.instructions.narrow_stores == 0 < code.instructions.wide_stores


def test_sums_of_warps_change_hands_without_shuffles(compiled):
    for _, opcodes in forms(compiled, "sigreg_trig", "_even"):
        assert count(opcodes, "SHFL") == 0
        assert count(opcodes, "BAR") <= 4
