"""What every op must keep; each op has its own file for its own mathematics."""

import math
import shutil
import time
from collections import Counter
from contextlib import contextmanager

import pytest
import torch

from collector.correctness import as_tuple
from kernels.numerics import compare
from kernels.registry import load_ops

OPS = load_ops()
IMPLEMENTATIONS = [(op, i) for op in OPS.values() for i in op.implementations]
# Interpreted, one program a matrix takes a tenth of a second: larger batches run on GPUs alone.
MOST_INTERPRETED = {("sinkhorn", "triton-global"): 5, ("sinkhorn", "triton-registers"): 5}

# Of these inputs only the rows that another input names are read.
READ_IN_PART = {
    ("paged_kv_gather", "cache"),
    ("selected_attention", "k"),
    ("selected_attention", "v"),
}


# What one op may add to every run of the tests: CPU time of its cases in the interpreter.
MOST_INTERPRETED_S = 20.0
spent_s = Counter()


@contextmanager
def interpreted_within_seconds(op):
    """Fail the case with which an op exceeds its share."""
    began = time.process_time()
    yield
    spent_s[op.name] += time.process_time() - began
    remedy = "make smoke and edge workloads smaller, or bound them by MOST_INTERPRETED"
    assert spent_s[op.name] <= MOST_INTERPRETED_S, f"{op.name} is slow in the interpreter: {remedy}"


@contextmanager
def poisoned_memory():
    """Give out new memory full of NaN, so that elements nobody writes are seen."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def drawn(op, workload, seed=0):
    return op.make_inputs(workload, torch.Generator().manual_seed(seed), "cpu")


def runs_here(op, implementation, workload):
    most = MOST_INTERPRETED.get((op.name, implementation.name), math.inf)
    return (
        implementation.kind in ("eager", "triton")
        and not implementation.least_sm
        and workload.sizes[op.axis] <= most
        and implementation.unsupported(workload) is None
    )


def eager(op):
    return next(i for i in op.implementations if i.kind == "eager")


def dtypes(outputs):
    return [tensor.dtype for tensor in as_tuple(outputs)]


def small(op):
    return min(op.select("smoke"), key=lambda w: math.prod(w.sizes.values()))


def cases():
    for op, implementation in IMPLEMENTATIONS:
        for workload in op.select("smoke", "edge"):
            if runs_here(op, implementation, workload):
                name = f"{op.name}-{implementation.name}-{workload.key}"
                yield pytest.param(op, implementation, workload, id=name)


def implementations(*kinds):
    return [
        pytest.param(op, i, id=f"{op.name}-{i.name}")
        for op, i in IMPLEMENTATIONS
        if i.kind in kinds and not i.least_sm
    ]


each_op = pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in OPS.values()])
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="torch.compile needs a compiler"
)


@pytest.mark.parametrize(("op", "implementation", "workload"), list(cases()))
def test_result_is_within_its_bounds_of_the_baselines_dtype_and_inputs_stay(
    op, implementation, workload
):
    inputs = drawn(op, workload)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    with poisoned_memory(), interpreted_within_seconds(op):
        outputs = implementation.build(inputs)()
    assert compare(outputs, op.oracle(before), op.tolerance[workload.dtype]).bound_ratio <= 1
    assert dtypes(outputs) == dtypes(eager(op).build(before)())
    assert all(torch.equal(inputs[name], tensor) for name, tensor in before.items())


def gradient_cases():
    for op, implementation in IMPLEMENTATIONS:
        for mode in ("backward", "full"):
            for workload in op.select("smoke", "edge"):
                if (
                    implementation.builder(mode)
                    and mode in op.modes(workload)
                    and runs_here(op, implementation, workload)
                ):
                    name = f"{op.name}-{implementation.name}-{mode}-{workload.key}"
                    yield pytest.param(op, implementation, mode, workload, id=name)


@pytest.mark.parametrize(("op", "implementation", "mode", "workload"), list(gradient_cases()))
def test_gradient_is_within_its_bounds_and_inputs_stay(op, implementation, mode, workload):
    inputs = op.draw(mode, workload, torch.Generator().manual_seed(0), "cpu")
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    thunk = implementation.builder(mode)(inputs)
    with poisoned_memory(), interpreted_within_seconds(op):
        gradients = thunk()
    errors = compare(gradients, op.truth(mode, before), op.bounds(mode, workload.dtype))
    assert errors.bound_ratio <= 1
    assert all(torch.equal(inputs[name], tensor) for name, tensor in before.items())


@needs_compiler
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "implementation"), implementations("compiled"))
def test_compiled_result_is_within_its_bounds(op, implementation):
    inputs = drawn(op, small(op))
    outputs = implementation.build(inputs)()
    tolerance = op.tolerance[small(op).dtype]
    assert compare(outputs, op.oracle(inputs), tolerance).bound_ratio <= 1


@pytest.mark.parametrize(("op", "implementation"), implementations("eager", "triton"))
def test_same_inputs_give_the_same_bits(op, implementation):
    thunk = implementation.build(drawn(op, small(op)))
    for first, second in zip(as_tuple(thunk()), as_tuple(thunk()), strict=True):
        assert torch.equal(first, second)
        assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize(("op", "implementation"), implementations("triton"))
def test_triton_implementation_names_its_kernels(op, implementation):
    assert implementation.kernels()
    assert all(hasattr(kernel, "arg_names") for kernel in implementation.kernels())


@each_op
def test_a_wrong_result_is_outside_the_bounds(op):
    truth = as_tuple(op.oracle(drawn(op, small(op))))
    tolerance = op.tolerance[small(op).dtype]
    for index, true in enumerate(truth):
        rolled = (true.roll(1, dims=0),) if true.dim() else ()
        for wrong in (true * 1.02, *rolled):
            made = (*truth[:index], wrong, *truth[index + 1 :])
            assert compare(made, truth, tolerance).bound_ratio > 1


@each_op
def test_inputs_depend_on_the_seed_alone_and_are_not_zero(op):
    for workload in op.select("smoke"):
        first, again, other = (drawn(op, workload, seed) for seed in (1, 1, 2))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], other[name]) for name in first)
        assert all(tensor.count_nonzero() for tensor in first.values())


@each_op
def test_minimal_bytes_are_at_least_inputs_and_outputs(op):
    for workload in op.select("smoke", "edge"):
        inputs = drawn(op, workload)
        outputs = eager(op).build(inputs)()
        whole = [t for n, t in inputs.items() if t.dim() and (op.name, n) not in READ_IN_PART]
        tensors = [*whole, *as_tuple(outputs)]
        assert op.cost(workload, "forward").minimal_bytes >= sum(t.nbytes for t in tensors)


@each_op
def test_cost_grows_along_the_axis(op):
    curves = {}
    for workload in op.workloads:
        rest = tuple((k, v) for k, v in workload.sizes.items() if k != op.axis)
        curves.setdefault((workload.dtype, rest), []).append(workload)
    for curve in curves.values():
        curve.sort(key=lambda w: w.sizes[op.axis])
        costs = [op.cost(w, "forward") for w in curve]
        for field in ("flops", "minimal_bytes", "special_ops"):
            counts = [getattr(c, field) for c in costs]
            assert counts == sorted(counts)
            assert all(isinstance(count, int) and count >= 0 for count in counts)


@each_op
def test_modelled_traffic_is_at_least_minimal(op):
    for implementation in op.implementations:
        for workload in op.workloads:
            if implementation.traffic_bytes is not None:
                minimal = op.cost(workload, "forward").minimal_bytes
                assert implementation.traffic_bytes(workload) >= minimal


@each_op
def test_default_workloads_make_a_curve(op):
    points = {w.sizes[op.axis] for w in op.select("default")}
    assert len(points) >= 5


def test_importing_and_building_leave_torch_as_it_was():
    before = torch.get_float32_matmul_precision(), torch.is_grad_enabled()
    for op, implementation in IMPLEMENTATIONS:
        if implementation.kind in ("eager", "triton") and not implementation.least_sm:
            implementation.build(drawn(op, small(op)))()
    assert (torch.get_float32_matmul_precision(), torch.is_grad_enabled()) == before
    assert before == ("highest", True)
