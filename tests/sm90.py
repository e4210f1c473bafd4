"""Compile what ops launch on a Hopper GPU, without one; print the machine code's counts as JSON.

Run as `python -m tests.sm90 OP:IMPLEMENTATION:size=1,size=2,dtype ...`, without TRITON_INTERPRET.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import torch
import triton
from torch._subclasses import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.registry import load_op
from kernels.spec import Workload

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
HOPPER = GPUTarget("cuda", 90, 32)
TYPES = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,6}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)")


class Recorder:
    """Stands in for a Triton function and keeps its launches."""

    def __init__(self, function, launches):
        self.function, self.launches = function, launches

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.launches.append((self.function, args, kwargs))


def launches(op_name, implementation_name, workload):
    """Return the Triton launches of one call, made with tensors that have no memory."""
    op = load_op(op_name)
    implementation = op.implementation(implementation_name)
    module = sys.modules[f"kernels.ops.{op_name}"]
    made: list = []
    kernels = {
        name: Recorder(value, made)
        for name, value in vars(module).items()
        if any(value is kernel for kernel in implementation.kernels())
    }
    with patch.multiple(module, **kernels), FakeTensorMode():
        implementation.build(op.make_inputs(workload, torch.Generator(), "cuda"))()
    return made


def kind(value):
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def compiled(function, args, kwargs):
    """Compile a launch as the run-time would; whole numbers divide by 16 where they do."""
    options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
    given = dict(zip(function.arg_names, args, strict=False))
    plain = {parameter.name for parameter in function.params if parameter.do_not_specialize}
    aligned = [
        name
        for name, value in given.items()
        if name not in plain and (isinstance(value, torch.Tensor) or value % 16 == 0)
    ]
    source = ASTSource(
        fn=function,
        signature={n: "constexpr" if n in kwargs else kind(given[n]) for n in function.arg_names},
        constexprs=kwargs,
        attrs={(function.arg_names.index(n),): [["tt.divisibility", 16]] for n in aligned},
    )
    return triton.compile(source, target=HOPPER, options=options)


def machine_code(cubin):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return [
            subprocess.run(
                [str(TOOLS / "cuobjdump"), what, file.name],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            for what in ("-sass", "-res-usage")
        ]


def described(case):
    op_name, implementation, key = case.split(":")
    *sizes, dtype = key.split(",")
    workload = Workload({k: int(v) for k, v in (s.split("=") for s in sizes)}, dtype)
    found = []
    for function, args, kwargs in launches(op_name, implementation, workload):
        sass, usage = machine_code(compiled(function, args, kwargs).asm["cubin"])
        found.append(
            {
                "kernel": function.__name__,
                "registers": int(re.search(r"REG:(\d+)", usage)[1]),
                "stack_bytes": int(re.search(r"STACK:(\d+)", usage)[1]),
                "instructions": dict(Counter(INSTRUCTION.findall(sass))),
            }
        )
    return found


if __name__ == "__main__":
    json.dump({case: described(case) for case in sys.argv[1:]}, sys.stdout)
