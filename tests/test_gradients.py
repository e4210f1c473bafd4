"""Gradients of the norms and SwiGLU, and the functions that bring them to models."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import functions, rms_norm_backward
from kernels.ops import residual_rms_norm, rms_norm, swiglu
from kernels.rms_norm_backward import Launch, launch_for, rms_norm_gradient
from kernels.spec import Workload

OPS = {m.OP.name: m.OP for m in (rms_norm, residual_rms_norm, swiglu)}
IN = {"rms_norm": "x w", "residual_rms_norm": "x w", "swiglu": "gate up"}
UP = {"rms_norm": "grad", "residual_rms_norm": "grad grad_sum", "swiglu": "grad"}
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
each_op = pytest.mark.parametrize("op", [pytest.param(op, id=name) for name, op in OPS.items()])


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def drawn(op, rows, hidden, dtype="float32"):
    workload = Workload({"rows": rows, "hidden": hidden}, dtype)
    return op.draw("backward", workload, torch.Generator().manual_seed(0), "cpu")


def as_tuple(outputs):
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


def close(made, true, atol=4e-6):
    for one, other in zip(as_tuple(made), as_tuple(true), strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=atol, rtol=1e-5)


def equal(made, expected):
    return all(map(torch.equal, as_tuple(made), as_tuple(expected)))


@each_op
def test_oracle_gradient_matches_finite_differences(op):
    inputs = {name: t.double() for name, t in drawn(op, 3, 7).items()}

    def loss(name, moved):
        outs = as_tuple(op.oracle({**inputs, name: inputs[name] + moved}))
        upstream = [inputs[n] for n in UP[op.name].split()]
        return sum((o * g).sum() for o, g in zip(outs, upstream, strict=True)).item()

    for name, gradient in zip(IN[op.name].split(), op.gradient.oracle(inputs), strict=True):
        way = normal(*inputs[name].shape, dtype=torch.float64, seed=3)
        step = 1e-4
        slope = (loss(name, step * way) - loss(name, -step * way)) / (2 * step)
        assert (gradient * way).sum().item() == pytest.approx(slope, rel=1e-6)


@each_op
def test_costs_of_both_passes_add_up_and_read_what_was_kept(op):
    workload = Workload({"rows": 3, "hidden": 5}, "float32")
    costs = {mode: op.cost(workload, mode) for mode in ("forward", "backward", "full")}
    for figure in ("flops", "minimal_bytes", "special_ops"):
        one, other, both = (getattr(cost, figure) for cost in costs.values())
        assert both == one + other
    rows, weights = {"swiglu": (5, 0), "rms_norm": (3, 2), "residual_rms_norm": (4, 2)}[op.name]
    assert costs["backward"].minimal_bytes == 4 * (rows * 3 * 5 + weights * 5)


def test_backward_flops_are_those_of_its_steps():
    # By hand, a row of one element. SwiGLU: 1 + e, g s, its product with grad; 1 - s, times g s,
    # plus s, times up, times grad. Norm: x^2 and its sum, g w, x g w and its sum, a mean each, eps,
    # scale^2 and its product with the mean, x times that, the difference, times the scale; x scale,
    # times g, its sum. The residual adds a gradient.
    workload = Workload({"rows": 1, "hidden": 1}, "float32")
    flops = {name: op.cost(workload, "backward").flops for name, op in OPS.items()}
    assert flops == {"swiglu": 3 + 5, "rms_norm": 16, "residual_rms_norm": 17}


@pytest.mark.parametrize("hidden", [1, 17, 64, 1000, 4097])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("added", [False, True])
def test_rows_in_registers_and_rows_read_twice_give_the_true_gradient(
    rows, hidden, added, monkeypatch
):
    op = OPS["residual_rms_norm" if added else "rms_norm"]
    inputs = drawn(op, rows, hidden)
    x = inputs["x"] + (inputs["residual"] if added else 0)
    grads = (inputs["grad"], inputs["grad_sum"] if added else None)
    true = OPS["rms_norm"].gradient.oracle({**inputs, "x": x})
    true = (true[0] + (inputs["grad_sum"].double() if added else 0), true[1])
    close(rms_norm_gradient(x, inputs["w"], *grads), true, atol=2e-5 if hidden == 1 else 4e-6)
    monkeypatch.setattr(rms_norm_backward, "WIDEST_IN_REGISTERS", 0)
    close(rms_norm_gradient(x, inputs["w"], *grads), true, atol=2e-5 if hidden == 1 else 4e-6)


@pytest.mark.parametrize("programs", [1, 2, 7])
@pytest.mark.parametrize("block_rows", [1, 4])
def test_programs_share_the_rows_out_without_loss(programs, block_rows, monkeypatch):
    inputs = drawn(OPS["rms_norm"], 23, 40)
    launch = Launch(block_rows, 64, 1, programs, 1)
    monkeypatch.setattr(rms_norm_backward, "launch_for", lambda hidden: launch)
    made = rms_norm_gradient(inputs["x"], inputs["w"], inputs["grad"])
    close(made, OPS["rms_norm"].gradient.oracle(inputs))


@pytest.mark.parametrize("narrow", [True, False])
def test_gradient_has_the_same_bits_each_time(narrow, monkeypatch):
    monkeypatch.setattr(rms_norm_backward, "WIDEST_IN_REGISTERS", 8192 if narrow else 0)
    inputs = drawn(OPS["rms_norm"], 100, 64, "float16")
    first, second = (rms_norm_gradient(inputs["x"], inputs["w"], inputs["grad"]) for _ in "ab")
    assert equal(first, second)


@settings(max_examples=10)
@given(st.integers(1, 5), st.integers(2, 100))
def test_a_row_does_not_gain_from_being_longer(rows, hidden):
    # Without eps, the norm ignores the scale of a row: its gradient is at right angles to it.
    x, w, grad = normal(rows, hidden), normal(hidden, seed=1), normal(rows, hidden, seed=2)
    dx, _ = rms_norm_gradient(x, w, grad, eps=1e-12)
    along = (dx.double() * x).sum(dim=1).abs()
    assert (along <= 1e-5 * hidden**0.5 * (grad * w).norm(dim=1)).all()


def test_a_second_gradient_is_added_before_rounding():
    inputs = drawn(OPS["residual_rms_norm"], 4, 200, "float16")
    x, w, grad, added = (inputs[n] for n in ("x", "w", "grad", "grad_sum"))
    wide = rms_norm_gradient(x.float(), w.float(), grad.float(), added.float())[0]
    once = rms_norm_gradient(x, w, grad, added)[0]
    twice = rms_norm_gradient(x, w, grad)[0] + added
    assert (once - wide).norm() < (twice - wide).norm()
    torch.testing.assert_close(once.float(), wide, rtol=2**-11, atol=2**-25)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_non_finite_element_spoils_the_gradient_of_its_own_row_and_weights(
    value, narrow, monkeypatch
):
    monkeypatch.setattr(rms_norm_backward, "WIDEST_IN_REGISTERS", 8192 if narrow else 0)
    inputs = drawn(OPS["rms_norm"], 3, 64)
    inputs["grad"][1, 5] = value
    dx, dw = rms_norm_gradient(inputs["x"], inputs["w"], inputs["grad"])
    assert dx[[0, 2]].isfinite().all() and not dx[1].isfinite().any()
    assert (~dw.isfinite()).nonzero().tolist() == [[5]]


LAYOUTS = {
    "every other column": lambda x: x[:, ::2],
    "shifted by one element": lambda x: x[:, 1:],
    "columns side by side": lambda x: x.t().contiguous().t(),
    "columns of a wider matrix": lambda x: x[:, 4:12],
    "one row repeated": lambda x: x[:1].expand(5, -1),
    "one number repeated": lambda x: x[:1, :1].expand(5, 16),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_of_the_tensors_does_not_matter(layout):
    made = [layout(normal(6, 24, dtype=torch.float16, seed=s)) for s in range(3)]
    packed = [t.contiguous() for t in made]
    w = normal(made[0].shape[1], dtype=torch.float16, seed=4)
    assert equal(
        rms_norm_gradient(made[0], w, *made[1:]), rms_norm_gradient(packed[0], w, *packed[1:])
    )
    assert equal(swiglu.swiglu_gradient(*made), swiglu.swiglu_gradient(*packed))


def test_row_offsets_beyond_32_bits_are_reached():
    stride = 2**30 + 8
    # Pages that nobody touches cost nothing.
    storage = torch.empty(2 * stride + 64, dtype=torch.float16)
    far = storage.as_strided((3, 64), (stride, 1))
    x, grad, w = (normal(3, 64, dtype=torch.float16, seed=s) for s in range(3))
    far.copy_(x)
    assert equal(
        rms_norm_gradient(far, w[0], grad, far), rms_norm_gradient(x, w[0], grad, x.clone())
    )
    assert equal(rms_norm_gradient(grad, w[0], far), rms_norm_gradient(grad, w[0], x))
    assert equal(swiglu.swiglu_gradient(far, grad, far), swiglu.swiglu_gradient(x, grad, x))


def test_no_rows_give_no_gradient_to_the_weight():
    dx, dw = rms_norm_gradient(torch.empty(0, 8), torch.ones(8), torch.empty(0, 8))
    assert dx.shape == (0, 8) and torch.equal(dw, torch.zeros(8))
    assert [t.shape for t in swiglu.swiglu_gradient(*(torch.empty(0, 8),) * 3)] == [(0, 8)] * 2


@given(st.integers(1, rms_norm_backward.WIDEST_IN_REGISTERS))
def test_launch_leaves_16_elements_of_each_tensor_to_a_thread(hidden):
    launch = launch_for(hidden)
    assert launch.block_rows * launch.block_hidden <= 16 * 32 * launch.num_warps
    assert hidden <= launch.block_hidden < 2 * hidden


def test_known_slopes_of_swiglu():
    # silu' = s + g s (1 - s): at 0 one half; sigmoid(ln 3) = 3 / 4, so 3/4 + ln 3 * 3/16.
    gate = torch.tensor([[0.0, math.log(3)]])
    up, grad = torch.tensor([[4.0, 2.0]]), torch.tensor([[3.0, 1.0]])
    dgate, dup = swiglu.swiglu_gradient(gate, up, grad)
    assert dgate[0].tolist() == pytest.approx([6.0, 2 * (0.75 + math.log(3) * 3 / 16)])
    assert dup[0].tolist() == pytest.approx([0.0, 0.75 * math.log(3)])


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_far_gates_pass_or_block_the_gradient(dtype):
    gate = torch.tensor([[-6e4, -1000, -200, 200, 1000, 6e4]], dtype=dtype)
    grad = torch.full_like(gate, 0.5)
    dgate, dup = swiglu.swiglu_gradient(gate, torch.ones_like(gate), grad)
    assert torch.equal(dgate, grad * (gate > 0))
    assert torch.equal(dup, grad * gate.clamp(min=0))


FUNCTIONS = {
    "rms_norm": lambda i: functions.rms_norm(i["x"], i["w"]),
    "residual_rms_norm": lambda i: functions.residual_rms_norm(i["x"], i["residual"], i["w"]),
    "swiglu": lambda i: functions.swiglu(i["gate"], i["up"]),
}


def lifted(op, inputs):
    """Give the rows of all matrices two leading dimensions, and leaves a gradient."""
    made = {n: t.view(2, 3, -1) if t.dim() == 2 else t for n, t in inputs.items()}
    return {n: t.clone().requires_grad_(n not in UP[op.name].split()) for n, t in made.items()}


@each_op
def test_function_for_models_has_the_oracles_gradient(op):
    inputs = drawn(op, 6, 40)
    leaves = lifted(op, inputs)
    outs = as_tuple(FUNCTIONS[op.name](leaves))
    close([o.view(6, 40) for o in outs], op.oracle(inputs))
    torch.autograd.backward(outs, [leaves[n] for n in UP[op.name].split()])
    true = op.gradient.oracle(inputs)
    made = [leaves[n].grad for n in IN[op.name].split()]
    close([m.view_as(t) for m, t in zip(made, true, strict=True)], true)
    if op.name == "residual_rms_norm":
        assert torch.equal(leaves["residual"].grad, leaves["x"].grad)


@each_op
def test_function_for_models_passes_the_checks_of_custom_operators(op):
    inputs = {n: t.requires_grad_() for n, t in drawn(op, 3, 8).items()}
    arguments = [t for n, t in inputs.items() if n not in UP[op.name].split()]
    eps = [] if op.name == "swiglu" else [1e-6]
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    operator = getattr(torch.ops.kernel_almanac, op.name)
    torch.library.opcheck(operator, (*arguments, *eps), test_utils=checks)


def test_functions_for_models_take_views_vectors_and_nothing():
    gate, up = normal(2, 5, 16).chunk(2, dim=-1)
    assert torch.equal(functions.swiglu(gate, up), functions.swiglu(gate.clone(), up.clone()))
    assert functions.rms_norm(normal(8), torch.ones(8)).shape == (8,)
    assert functions.rms_norm(torch.empty(0, 3, 8), torch.ones(8)).shape == (0, 3, 8)


def test_gradient_of_one_output_alone_is_enough():
    x, residual, w = normal(3, 8).requires_grad_(), normal(3, 8, seed=1), torch.ones(8)
    functions.residual_rms_norm(x, residual, w)[1].sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 8))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: functions.rms_norm(x, w[:4]),
        lambda x, w: functions.rms_norm(x, w.half()),
        lambda x, w: functions.residual_rms_norm(x, x[:2], w),
        lambda x, w: functions.swiglu(x, w),
        lambda x, w: functions.swiglu(x, x.half()),
    ],
)
def test_functions_for_models_refuse_what_does_not_fit(call):
    with pytest.raises(ValueError, match="must be"):
        call(torch.ones(3, 8), torch.ones(8))
