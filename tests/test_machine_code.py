from collector import machine_code as m
from collector.codegen import normalised

SASS = """Function:_kernel
--:-:-:-:8\tLDC R1, c[0x0][0x28];
--:-:0:-:1\t@!P0 LDG.E.EF.128 R4, desc[UR4][R2.64];
--:-:0:-:1\t@P1 LDG.E.U16 R4, desc[UR4][R2.64];
--:-:0:-:1\tLDGSTS.E.BYPASS.128 [R9], [R2.64];
--:-:0:-:1\tLDG.E.ENL2.256 R8, R4, desc[UR4][R2.64];
--:-:-:-:1\tHFMA2.MMA R5, -RZ, RZ, 0, 0;
--:-:-:-:1\tHGMMA.64x64x16.F32 R24, gdesc[UR8], R24;
--:-:-:-:1\tHMMA.16816.F32 R4, R8, R12, R4;
--:-:-:-:1\tUTCHMMA gdesc[UR8], gdesc[UR10], tmem[UR4];
--:-:-:-:1\tMUFU.RSQ R3, R3;
--:-:-:-:1\tSHFL.BFLY PT, R3, R4, 0x10, 0x1f;
--:-:-:-:1\tLDS.128 R4, [R2];
--:-:-:-:1\tLDL R4, [R1+0x8];
--:-:-:-:1\tSTL.64 [R1+0x8], R4;
--:-:-:-:1\tBAR.SYNC.DEFER_BLOCKING 0x0;
--:-:-:-:1\tRED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5;
--:-:-:-:1\tUTMALDG.2D [UR8], [UR4];
--:-:-:-:1\tSTG.E.64 desc[UR4][R2.64], R4;
--:-:-:-:5\tEXIT;
LBB0:
--:-:-:-:0\tBRA LBB0;
--:-:-:-:0\tNOP;
"""

GCN = """\t.text
_kernel:                              ; @_kernel
.Lfunc_begin0:
\t.loc\t1 23 0 prologue_end             ; f.py:23:0
\ts_load_dwordx2 s[2:3], s[0:1], 0x0
.LBB0_0:
\tbuffer_load_dwordx4 v[2:5], v18, s[4:7], 0 offen
\tglobal_load_dwordx2 v[2:3], v18, s[4:5]
.Ltmp1:
\tv_add_f32_dpp v8, v8, v8 row_shr:8 row_mask:0xf
\tds_bpermute_b32 v1, v2, v3
\tds_write_b32 v1, v2
\tv_exp_f32_e32 v1, v2
\tv_mfma_f32_32x32x8_f16 v[0:15], v[0:1], v[2:3], v[0:15]
\tscratch_store_dword off, v1, s32
\ts_barrier
\ts_nop 1
\tglobal_atomic_add_f32 v1, v2, s[0:1]
\tbuffer_store_short v0, v18, s[4:7], 0 offen
\ts_endpgm
\t.section\t.rodata,"a",@progbits
\t\t.amdhsa_next_free_vgpr 21
; codeLenInByte = 880
; TotalNumVgprs: 21
    .private_segment_fixed_size: 24
    .vgpr_spill_count: 6
"""


def test_nvidia_instructions_are_counted_by_kind() -> None:
    counts = m.sass_instructions(m.sass_opcodes(SASS)).model_dump()
    assert counts.pop("total") == 20  # the padding is no instruction
    assert (counts.pop("wide_loads"), counts.pop("narrow_loads")) == (3, 1)
    assert (counts.pop("wide_stores"), counts.pop("narrow_stores")) == (0, 1)
    assert counts.pop("tensor") == 3  # HFMA2.MMA is a move of the plain pipe
    assert counts.pop("local") == 2
    assert set(counts.values()) == {1}


def test_kinds_survive_normalisation() -> None:
    assert m.sass_opcodes(normalised(SASS, "_kernel")) == m.sass_opcodes(SASS)


def test_nvidia_resources_are_read_from_the_tool() -> None:
    usage = " Function k:\n  REG:36 STACK:16 SHARED:0 LOCAL:0 CONSTANT[0]:408\n"
    assert m.sass_resources(usage, SASS) == (36, 4, 16, 16 * 21)


def test_amd_instructions_are_counted_by_kind() -> None:
    counts = m.gcn_instructions(m.gcn_opcodes(m.gcn_code(GCN))).model_dump()
    assert counts.pop("total") == 13
    assert counts.pop("shuffle") == 2
    assert counts.pop("bulk_copies") == counts.pop("wide_stores") == 0
    assert set(counts.values()) == {1}
    assert m.gcn_resources(GCN) == (21, 6, 24, 880)


def test_source_lines_and_names_leave_no_trace() -> None:
    moved = (
        GCN.replace("\t1 23 0", "\t1 99 0")
        .replace("f.py:23", "g.py:99")
        .replace(".Ltmp1", ".Ltmp7")
    )
    assert m.gcn_code(moved) == m.gcn_code(GCN)
    renamed = normalised(SASS.replace("_kernel", "k"), "k")
    assert renamed == normalised(SASS, "_kernel")
