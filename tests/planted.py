"""A folder with small ops, whose kernels can be given another name, width or block size."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent

OP = """
import torch
import triton
import triton.language as tl

from kernels.spec import Cost, Implementation, Op, Tolerance, Workload


@triton.jit(do_not_specialize=["rows"])
def {name}(x_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x * tl.sum(x, axis=0))


def build(inputs):
    x = inputs["x"]

    def call():
        out = torch.empty_like(x)
        {name}[(x.shape[0],)](x, out, x.shape[0], BLOCK={block}, num_warps=1)
        return out

    return call


def make_inputs(workload, generator, device):
    return {{"x": torch.randn((workload["rows"], {width}), generator=generator, device=device)}}


OP = Op(
    name="{op}", title="Planted", summary="", formula="", axis="rows", inputs="",
    workloads=tuple(
        Workload({{"rows": n}}, "float32", frozenset({{"smoke", "default"}})) for n in (1, 16)
    ),
    make_inputs=make_inputs,
    implementations=(Implementation(name="triton", kind="triton", build=build),),
    baseline="triton",
    oracle=lambda inputs: inputs["x"],
    tolerance={{"float32": Tolerance(absolute=1.0, relative=1.0, norm=1.0)}},
    cost=lambda workload, mode: Cost(flops=0, minimal_bytes=0),
)
"""


def plant(folder: Path, **ops: dict[str, str]) -> Path:
    """Write a folder with these ops, by default one; return it."""
    made = folder / "kernels" / "ops"
    made.mkdir(parents=True)
    for module in ("__init__", "spec", "registry"):
        shutil.copy(ROOT / "kernels" / f"{module}.py", made.parent)
    shutil.copy(ROOT / "kernels" / "ops" / "__init__.py", made)
    for op, changes in (ops or {"planted": {}}).items():
        kernel = {"name": "_scale", "width": "512"} | changes
        kernel = {"block": kernel["width"]} | kernel
        (made / f"{op}.py").write_text(OP.format(op=op, **kernel), encoding="utf-8")
    return folder
