"""What only a CUDA GPU can show: `make test-gpu`."""

import pytest
import torch

from collector.correctness import as_tuple
from kernels.numerics import compare
from kernels.ops.qk_dot import grouped_qk_dot, qk_dot
from kernels.ops.residual_rms_norm import residual_rms_norm
from kernels.ops.rms_norm import rms_norm
from kernels.ops.swiglu import swiglu
from kernels.registry import load_ops
from kernels.sinkhorn.forward import scale_packed, scale_registers, scale_scalars
from kernels.sinkhorn.function import sinkhorn

pytestmark = pytest.mark.gpu

OPS = load_ops()
LARGE_BYTES = 20 * 1024**3


def on_gpu(op, workload, seed=0):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return op.make_inputs(workload, generator, "cuda")


def missing(implementation):
    for package in implementation.packages:
        try:
            __import__(package)
        except ImportError:
            return package
    return None


def pairs(*kinds):
    return [
        pytest.param(op, i, id=f"{op.name}-{i.name}")
        for op in OPS.values()
        for i in op.implementations
        if i.kind in kinds
    ]


def runnable(op, implementation, *tags):
    package = missing(implementation)
    if package:
        pytest.skip(f"{package} is not installed")
    found = [w for w in op.select(*tags) if implementation.unsupported(w) is None]
    return found or pytest.skip("nothing of it runs in one process")


def middle(workloads):
    return workloads[len(workloads) // 2]


def copied(outputs):
    return [tensor.clone() for tensor in as_tuple(outputs)]


def equal(outputs, expected):
    return all(map(torch.equal, as_tuple(outputs), as_tuple(expected)))


def needs_memory(size_bytes):
    free, _ = torch.cuda.mem_get_info()
    if free < size_bytes:
        pytest.skip(f"needs {size_bytes >> 30} GiB of free GPU memory")


@pytest.fixture
def poisoned_memory():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("op", "implementation"), pairs("eager", "triton", "library"))
def test_results_are_within_their_bounds(op, implementation, poisoned_memory):
    ratios = {}
    for workload in runnable(op, implementation, "smoke", "edge", "cpu"):
        inputs = on_gpu(op, workload)
        outputs = implementation.build(inputs)()
        errors = compare(outputs, op.oracle(inputs), op.tolerance[workload.dtype])
        ratios[workload.key] = errors.bound_ratio
    assert all(ratio is not None and ratio <= 1 for ratio in ratios.values()), ratios


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", ["backward", "full"])
@pytest.mark.parametrize(("op", "implementation"), pairs("eager", "triton", "library"))
def test_gradients_are_within_their_bounds(op, implementation, mode, poisoned_memory):
    builder = implementation.builder(mode)
    if builder is None:
        pytest.skip("has no backward pass")
    ratios = {}
    for workload in runnable(op, implementation, "smoke", "edge"):
        if mode in op.modes(workload):
            generator = torch.Generator(device="cuda").manual_seed(0)
            inputs = op.draw(mode, workload, generator, "cuda")
            errors = compare(
                builder(inputs)(), op.truth(mode, inputs), op.bounds(mode, workload.dtype)
            )
            ratios[workload.key] = errors.bound_ratio
    assert ratios
    assert all(ratio is not None and ratio <= 1 for ratio in ratios.values()), ratios


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "implementation"), pairs("compiled"))
def test_compiled_results_are_within_their_bounds(op, implementation):
    for workload in runnable(op, implementation, "smoke"):
        inputs = on_gpu(op, workload)
        outputs = implementation.build(inputs)()
        tolerance = op.tolerance[workload.dtype]
        assert compare(outputs, op.oracle(inputs), tolerance).bound_ratio <= 1


@pytest.mark.parametrize(("op", "implementation"), pairs("triton"))
def test_large_default_workload_is_within_its_bounds(op, implementation):
    needs_memory(LARGE_BYTES)
    workload = max(runnable(op, implementation, "default"), key=lambda w: w.sizes[op.axis])
    inputs = on_gpu(op, workload)
    outputs = implementation.build(inputs)()
    tolerance = op.tolerance[workload.dtype]
    assert compare(outputs, op.oracle(inputs), tolerance).bound_ratio <= 1


@pytest.mark.parametrize(("op", "implementation"), pairs("eager", "triton"))
def test_graph_replays_write_what_a_call_returns(op, implementation):
    workload = runnable(op, implementation, "smoke")[0]
    thunk = implementation.build(on_gpu(op, workload))
    expected = copied(thunk())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = thunk()
    for tensor in as_tuple(outputs):
        tensor.fill_(float("nan"))
    graph.replay()
    assert equal(outputs, tuple(expected))


@pytest.mark.parametrize(("op", "implementation"), pairs("triton"))
def test_twenty_calls_give_the_same_bits(op, implementation):
    workload = middle(runnable(op, implementation, "default"))
    thunk = implementation.build(on_gpu(op, workload))
    first = tuple(copied(thunk()))
    assert all(equal(thunk(), first) for _ in range(20))


@pytest.mark.parametrize(("op", "implementation"), pairs("triton"))
def test_work_goes_to_the_current_stream(op, implementation):
    workload = middle(runnable(op, implementation, "default"))
    inputs = on_gpu(op, workload)
    expected = implementation.build(inputs)()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        out = implementation.build(inputs)()
        done = torch.cuda.Event()
        done.record()
    assert not done.query()
    done.synchronize()
    assert equal(out, expected)


def compilations(kernel):
    return sum(len(cache[0]) for cache in kernel.device_caches.values())


@pytest.mark.parametrize("hidden", [64, 4096, 65536])
def test_new_row_counts_do_not_recompile(hidden):
    kernels = OPS["rms_norm"].implementation("triton").kernels()
    w = torch.ones(hidden, device="cuda", dtype=torch.float16)
    rms_norm(torch.ones(8, hidden, device="cuda", dtype=torch.float16), w)
    before = [compilations(kernel) for kernel in kernels]
    for rows in (1, 2, 3, 16, 17, 1000):
        rms_norm(torch.ones(rows, hidden, device="cuda", dtype=torch.float16), w)
    assert [compilations(kernel) for kernel in kernels] == before


def test_rows_beyond_two_to_the_31_elements_are_normalised():
    needs_memory(LARGE_BYTES)
    rows, hidden = 2**23 + 16, 256
    x = torch.full((rows, hidden), float("nan"), device="cuda", dtype=torch.bfloat16)
    x[-4:] = torch.randn(4, hidden, device="cuda")
    w = torch.ones(hidden, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(rms_norm(x, w)[-4:], rms_norm(x[-4:].clone(), w))


def with_a_tail(rows, columns):
    """Return a matrix that is NaN but for its last four rows."""
    x = torch.full((rows, columns), float("nan"), device="cuda", dtype=torch.bfloat16)
    x[-4:] = torch.randn(4, columns, device="cuda")
    return x


def test_rows_beyond_two_to_the_31_elements_are_gated():
    needs_memory(LARGE_BYTES)
    gate = with_a_tail(2**23 + 16, 256)
    assert torch.equal(swiglu(gate, gate)[-4:], swiglu(gate[-4:], gate[-4:]))


def test_halves_beyond_two_to_the_31_elements_are_gated():
    needs_memory(LARGE_BYTES)
    gate, up = with_a_tail(2**23 + 16, 512).chunk(2, dim=1)
    expected = swiglu(gate[-4:].contiguous(), up[-4:].contiguous())
    assert torch.equal(swiglu(gate, up)[-4:], expected)


def test_sums_beyond_two_to_the_31_elements_are_normalised():
    needs_memory(LARGE_BYTES)
    x, w = with_a_tail(2**23 + 16, 256), torch.ones(256, device="cuda", dtype=torch.bfloat16)
    made = residual_rms_norm(x, x, w)
    assert equal(tuple(t[-4:] for t in made), residual_rms_norm(x[-4:], x[-4:], w))


def test_keys_beyond_two_to_the_31_elements_are_scored():
    needs_memory(LARGE_BYTES)
    k = with_a_tail(2**24 + 16, 128)
    assert torch.equal(qk_dot(k, k)[-4:], qk_dot(k[-4:], k[-4:]))
    q = torch.randn(1, 8, 128, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(grouped_qk_dot(q, k[None])[..., -4:], grouped_qk_dot(q, k[None, -4:]))


@pytest.mark.parametrize("scale", [scale_registers, scale_packed, scale_scalars])
def test_matrices_beyond_two_to_the_31_elements_are_scaled(scale):
    needs_memory(LARGE_BYTES)
    x = torch.zeros(2**27 + 8, 4, 4, device="cuda")
    x[-4:] = torch.randn(4, 4, 4, device="cuda")
    # Another batch size is another launch, and may round otherwise.
    torch.testing.assert_close(scale(x, 2)[-4:], scale(x[-4:].clone(), 2), atol=1e-6, rtol=0)


def pulled(function, x, grad):
    leaf = x.clone().requires_grad_()
    out = function(leaf)
    out.backward(grad)
    return out.detach(), leaf.grad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["plain", "stable", "softmax"])
def test_sinkhorn_for_models_is_the_same_compiled(form):
    x, grad = torch.randn(2, 3, 100, 4, 4, device="cuda").unbind()
    expected = pulled(lambda logits: sinkhorn(logits, 20, form=form), x, grad)
    compiled = torch.compile(lambda logits: sinkhorn(logits, 20, form=form), fullgraph=True)
    for made, true in zip(pulled(compiled, x, grad), expected, strict=True):
        torch.testing.assert_close(made, true, atol=1e-6, rtol=0)


def test_sinkhorn_for_models_is_differentiated_in_a_graph():
    x, grad = torch.randn(2, 1000, 4, 4, device="cuda").unbind()
    expected = pulled(sinkhorn, x, grad)[1]
    leaf, graph = x.clone().requires_grad_(), torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.autograd.grad(sinkhorn(leaf), leaf, grad)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            (made,) = torch.autograd.grad(sinkhorn(leaf), leaf, grad)
    made.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(made, expected)


@pytest.mark.parametrize("name", sorted(OPS))
def test_dependent_launches_see_what_the_kernel_before_wrote(name):
    op = OPS[name]
    if "triton-pdl" not in [i.name for i in op.implementations]:
        pytest.skip("has no dependent launch")
    implementation = op.implementation("triton-pdl")
    workload = middle(runnable(op, implementation, "default"))
    inputs, other = on_gpu(op, workload, 0), on_gpu(op, workload, 1)
    expected = tuple(copied(implementation.build(other)()))
    thunk = implementation.build(inputs)
    saved = {name: tensor.clone() for name, tensor in inputs.items()}
    for _ in range(20):
        for given in (saved, other):
            for key, tensor in inputs.items():
                tensor.copy_(given[key])
            made = thunk()
        assert equal(made, expected)
