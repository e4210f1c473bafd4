import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernels import ops
from kernels.registry import checked, load_op, load_ops, op_names
from kernels.spec import OpError, Workload

NEW_OP = """
import torch

from kernels.spec import Cost, Implementation, Op, Tolerance, Workload


def cost(workload, mode):
    return Cost(flops=workload["rows"], minimal_bytes=8 * workload["rows"])


def make_inputs(workload, generator, device):
    return {"x": torch.randn(workload["rows"], generator=generator, device=device)}


OP = Op(
    name="doubling",
    title="Doubling",
    summary="Doubles a vector.",
    formula="y = 2 x",
    axis="rows",
    inputs="x ~ N(0, 1)",
    workloads=(Workload({"rows": 3}, "float32", {"smoke"}),),
    make_inputs=make_inputs,
    implementations=(
        Implementation(name="torch", kind="eager", build=lambda i: lambda: i["x"] * 2),
    ),
    baseline="torch",
    oracle=lambda inputs: inputs["x"].double() * 2,
    tolerance={"float32": Tolerance(absolute=0.0, relative=0.0, norm=0.0)},
    cost=cost,
)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules are ops as well, until the test ends."""
    monkeypatch.setattr(ops, "__path__", [*ops.__path__, str(tmp_path)])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("kernels.ops."):
            del sys.modules[name]
            delattr(ops, name.rpartition(".")[2])


def test_names_are_the_files_of_the_folder():
    files = sorted(p.stem for p in Path(ops.__file__).parent.glob("[!_]*.py"))
    assert list(op_names()) == files
    assert {"rms_norm", "sinkhorn"} <= set(files)


def test_every_op_keeps_the_contract():
    loaded = load_ops()
    assert list(loaded) == list(op_names())
    assert all(op.name == name for name, op in loaded.items())


def test_one_file_makes_an_op(folder):
    (folder / "doubling.py").write_text(NEW_OP)
    assert "doubling" in op_names()
    assert load_ops()["doubling"].title == "Doubling"


def test_hidden_files_are_not_ops(folder):
    (folder / "_shared.py").write_text("raise RuntimeError")
    assert "_shared" not in op_names()
    with pytest.raises(OpError, match="unknown op '_shared'"):
        load_op("_shared")


def test_unknown_op_is_told_what_there_is():
    with pytest.raises(OpError, match=r"unknown op 'rmsnorm'; there are: .*rms_norm"):
        load_op("rmsnorm")


def test_module_without_an_op_is_named(folder):
    (folder / "nothing.py").write_text("")
    with pytest.raises(OpError, match=r"kernels/ops/nothing\.py: define OP = Op"):
        load_op("nothing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda op: {"name": "other"}, "name must be 'sinkhorn'"),
        (lambda op: {"baseline": "numpy"}, "baseline 'numpy' must be one of"),
        (lambda op: {"implementations": op.implementations[:1] * 2}, "must differ"),
        (lambda op: {"workloads": op.select("default")[3:]}, "'smoke'"),
        (lambda op: {"axis": "rows"}, "axis 'rows' must be a size"),
        (lambda op: {"tolerance": {}}, "tolerance"),
        (lambda op: {"workloads": op.workloads * 2}, "workloads must differ"),
    ],
)
def test_broken_rule_is_named(change, message):
    op = load_op("sinkhorn")
    with pytest.raises(OpError, match=f"kernels/ops/sinkhorn.py: .*{message}"):
        checked(replace(op, **change(op)), "sinkhorn")


def test_key_names_sizes_in_their_order_and_dtype():
    workload = Workload({"rows": 128, "hidden": 1024}, "float16")
    assert workload.key == "rows=128,hidden=1024,float16"
    assert workload["hidden"] == 1024


def test_select_takes_any_of_the_tags():
    op = load_op("sinkhorn")
    both = op.select("cpu", "edge")
    assert set(both) == set(op.select("cpu")) | set(op.select("edge"))
    assert len(both) < len(op.workloads)


def test_implementation_is_found_by_name_alone():
    op = load_op("sinkhorn")
    assert op.implementation("triton-packed").name == "triton-packed"
    with pytest.raises(KeyError):
        op.implementation("triton")
