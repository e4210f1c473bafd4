"""The record of compiled kernels: the lines of files under `data/codegen`. No torch here."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from collector.record import Count, Hash, Source, Strict


class Instructions(Strict):
    """Instructions in the machine code of a kernel by kind; each is counted once, loops included.

    What is none of the kinds, arithmetic for instance, is in `total` alone.
    """

    total: Count
    """All, without the padding at the end."""
    wide_loads: Count
    """Loads from global memory of 128 bits or more a thread."""
    narrow_loads: Count
    """Loads from global memory of less than 128 bits a thread."""
    wide_stores: Count
    """Stores to global memory of 128 bits or more a thread."""
    narrow_stores: Count
    """Stores to global memory of less than 128 bits a thread."""
    bulk_copies: Count
    """Copies of whole tiles between global and shared memory (TMA)."""
    atomics: Count
    """Atomic operations and reductions in global memory."""
    tensor: Count
    """Tensor-core (matrix) operations."""
    special: Count
    """Special-function operations: exponentials, reciprocals, roots, sines (MUFU)."""
    shuffle: Count
    """Exchanges between the threads of a warp, and reductions over them."""
    shared: Count
    """Loads, stores and atomics in shared memory."""
    local: Count
    """Loads and stores in local memory: spilled registers and arrays on the stack."""
    barrier: Count
    """Barriers of a block or a cluster."""


class MachineCode(Strict):
    """What the compiler made of one kernel for one target, before any GPU sees it."""

    registers: Count
    """Registers of a thread."""
    spills: Count
    """Spilled registers of a thread, as the loaded kernel would report them."""
    stack_bytes: Count
    """Stack of a thread in local memory."""
    shared_bytes: Count
    """Shared memory of a block."""
    occupancy: Annotated[float, Field(ge=0, le=1)]
    """Theoretical occupancy: resident warps over the most that a multiprocessor holds."""
    resident_blocks: Count
    """Blocks that a multiprocessor holds at once; 0 when not even one fits."""
    limited_by: Literal["warps", "blocks", "registers", "shared"]
    """What limits the resident blocks."""
    code_bytes: Count
    """Size of the machine code, padding included."""
    sass_hash: Hash
    """Hash of the machine code with addresses and names normalised."""
    instructions: Instructions
    """Instructions by kind."""


class CodeUse(Strict):
    """Workloads of one implementation that launch a kernel."""

    implementation: str
    """The implementation."""
    workloads: list[str]
    """Workloads, as `rows=128,hidden=1024,float16`."""


class Codegen(Strict):
    """One kernel, as it is launched by some workloads, compiled for one target."""

    kind: Literal["codegen"] = "codegen"
    target: str
    """Architecture, for example `sm_90`."""
    op: str
    """The op."""
    kernel: str
    """Name of the function."""
    used_by: list[CodeUse]
    """Who launches it so: all of these share one compilation."""
    signature: str
    """Type of each argument; `/16` where the compiler may count on a multiple of 16."""
    constants: str
    """Compile-time constants, as `BLOCK=256,N=4`."""
    options: str
    """Launch options, as `num_warps=8,enable_fp_fusion=True`."""
    source_hash: Hash
    """Hash of the source of the kernel and of the functions that it calls."""
    code: MachineCode | None = None
    """What came out; null when it does not compile for this target."""
    reason: str | None = None
    """Why it does not compile."""

    @model_validator(mode="after")
    def code_or_reason(self) -> Self:
        """Refuse a line with both or neither."""
        if (self.code is None) != (self.reason is not None):
            raise ValueError("reason: is given exactly when there is no code")
        return self


class Toolchain(Strict):
    """First line of a file of `codegen` lines: what was compiled, and by what."""

    kind: Literal["toolchain"] = "toolchain"
    schema_version: Literal[1]
    """Structure of the lines of this file."""
    source: Source
    """The source that was compiled; `dirty` looks at `kernels/` alone."""
    versions: dict[str, str]
    """Versions of triton and of the assemblers that it brings."""
    targets: list[str]
    """Architectures that were compiled for."""
    unsupported: dict[str, str]
    """Architectures that this toolchain cannot compile for, and why."""
    ops: list[str]
    """Ops that were compiled."""


CodeLine = Annotated[Toolchain | Codegen, Field(discriminator="kind")]
CODE_LINE: TypeAdapter[Toolchain | Codegen] = TypeAdapter(CodeLine)


def parse_code(line: str | bytes) -> Toolchain | Codegen:
    """Read one line of a file under `data/codegen`, as `record.parse` does those of runs."""
    return CODE_LINE.validate_json(line)
