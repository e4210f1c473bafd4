"""What machine code consists of: counts by kind and resources, from what the tools print. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from collector.code_record import Instructions

SASS = re.compile(r"^\S+[\t ](?:@!?U?P\w+ +)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
GCN = re.compile(r"^\s+([a-z]\w+)", re.MULTILINE)
WIDE_SASS = re.compile(r"\.(128|256|ENL2)(\.|$)")
TENSOR_SASS = re.compile(r"([HIDQBO]|HG|IG|QG|BG|UTC[A-Z]*?)MMA(\.|$)")
SASS_KINDS = {
    "loads": ("LDG.", "LDGSTS.", "LD."),
    "stores": ("STG.", "ST."),
    "bulk_copies": ("UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UBLKCP", "UBLKRED", "UBLKPF"),
    "atomics": ("ATOMG", "ATOM.", "REDG", "RED."),
    "special": ("MUFU",),
    "shuffle": ("SHFL", "REDUX", "CREDUX"),
    "shared": ("LDS", "STS", "ATOMS", "STAS"),
    "local": ("LDL", "STL"),
    "barrier": ("BAR.", "UCGABAR", "SYNCS"),
}
GCN_SPECIAL = ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos")
GCN_LANES = ("ds_bpermute", "ds_permute", "ds_swizzle", "v_permlane")


class Resources(NamedTuple):
    """What a thread and a block need."""

    registers: int
    spills: int
    stack_bytes: int
    code_bytes: int


def sass_opcodes(sass: str) -> Counter[str]:
    """Count the opcodes of disassembled NVIDIA code, without the padding."""
    found = Counter(SASS.findall(sass))
    del found["NOP"]
    return found


def sass_instructions(opcodes: Counter[str]) -> Instructions:
    """Count by kind."""

    def count(kind: str, wide: bool | None = None) -> int:
        return sum(
            number
            for opcode, number in opcodes.items()
            if f"{opcode}.".startswith(SASS_KINDS[kind])
            and (wide is None or bool(WIDE_SASS.search(opcode)) == wide)
        )

    plain = ("bulk_copies", "atomics", "special", "shuffle", "shared", "local", "barrier")
    return Instructions(
        total=opcodes.total(),
        wide_loads=count("loads", wide=True),
        narrow_loads=count("loads", wide=False),
        wide_stores=count("stores", wide=True),
        narrow_stores=count("stores", wide=False),
        tensor=sum(n for opcode, n in opcodes.items() if TENSOR_SASS.match(opcode)),
        **{kind: count(kind) for kind in plain},
    )


def sass_resources(usage: str, sass: str) -> Resources:
    """Read what `cuobjdump -res-usage` prints; every instruction takes 16 bytes.

    Spilled registers are counted as Triton counts those of a loaded kernel: by its stack.
    """
    stack_bytes = int(named(r"STACK:(\d+)", usage))
    code_bytes = 16 * len(SASS.findall(sass))
    return Resources(int(named(r"REG:(\d+)", usage)), stack_bytes // 4, stack_bytes, code_bytes)


def gcn_opcodes(code: str) -> Counter[str]:
    """Count the opcodes of AMD code, without waits for the pipeline."""
    found = Counter(GCN.findall(code))
    del found["s_nop"], found["s_code_end"]
    return found


def gcn_instructions(opcodes: Counter[str]) -> Instructions:
    """Count by kind."""
    kinds = dict.fromkeys(Instructions.model_fields, 0)
    for opcode, number in opcodes.items():
        for kind in ("total", gcn_kind(opcode)):
            kinds[kind] = kinds.get(kind, 0) + number
    return Instructions(**{kind: kinds[kind] for kind in Instructions.model_fields})


def gcn_kind(opcode: str) -> str:
    """Return the kind of an AMD instruction; empty when it is none of them."""
    memory = re.match(r"(global|buffer|flat)_(load|store|atomic)", opcode)
    if memory and memory[2] == "atomic":
        return "atomics"
    if memory:
        return f"{'wide' if opcode.endswith('x4') else 'narrow'}_{memory[2]}s"
    if opcode.startswith(GCN_LANES) or opcode.endswith("_dpp"):
        return "shuffle"
    if opcode.startswith(("v_mfma", "v_smfmac")):
        return "tensor"
    if opcode.startswith(tuple(f"v_{name}_" for name in GCN_SPECIAL)):
        return "special"
    prefixes = {"ds_": "shared", "scratch_": "local", "s_barrier": "barrier"}
    return next((kind for prefix, kind in prefixes.items() if opcode.startswith(prefix)), "")


def gcn_resources(assembly: str) -> Resources:
    """Read the metadata that the compiler writes below the code."""
    return Resources(
        registers=int(named(r"; TotalNumVgprs: (\d+)", assembly)),
        spills=int(named(r"\.vgpr_spill_count: +(\d+)", assembly)),
        stack_bytes=int(named(r"\.private_segment_fixed_size: +(\d+)", assembly)),
        code_bytes=int(named(r"; codeLenInByte = (\d+)", assembly)),
    )


def gcn_code(assembly: str) -> str:
    """Leave instructions and labels: no directives, no comments, nothing about source lines."""
    code = re.sub(r";.*", "", assembly.split("\t.section\t.rodata")[0])
    other = re.compile(r"\s*(\.(?!LBB)|$)")
    return "\n".join(line.rstrip() for line in code.splitlines() if not other.match(line))


def named(pattern: str, text: str) -> str:
    """Return what a pattern finds; ValueError when the tool printed something else."""
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"the tools print no {pattern!r}")
    return found[1]
