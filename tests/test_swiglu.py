import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ops.swiglu import (
    BLOCK,
    FEW_ELEMENTS,
    OP,
    flat_launch_for,
    launch_for,
    oracle,
    reference,
    swiglu,
)
from kernels.spec import Workload

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDTHS = (1, 17, 64, 1000, BLOCK, BLOCK + 1)


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def halves(rows, hidden, dtype=torch.float16):
    """Return gate and up as one projection makes them: halves of each row of one buffer."""
    return normal(rows, 2 * hidden, dtype=dtype).chunk(2, dim=1)


@pytest.mark.parametrize(
    ("rows", "hidden", "seconds", "printed_gb_per_s"),
    [(128, 1024, 6.1e-6, 128.9), (512, 4096, 18.4e-6, 684), (2048, 4096, 67.8e-6, 742)],
)
def test_minimal_bytes_reproduce_published_bandwidths(rows, hidden, seconds, printed_gb_per_s):
    cost = OP.cost(Workload({"rows": rows, "hidden": hidden}, "float16"), "forward")
    assert cost.minimal_bytes / seconds / 1e9 == pytest.approx(printed_gb_per_s, rel=1e-3)


def test_cost_counts_the_operations_of_the_formula():
    rows, hidden = 3, 5
    sums, weighted, gated, exponentials, reciprocals = (rows * hidden,) * 5
    cost = OP.cost(Workload({"rows": rows, "hidden": hidden}, "float32"), "forward")
    assert cost.flops == sums + weighted + gated
    assert cost.special_ops == exponentials + reciprocals
    assert cost.minimal_bytes == 4 * 3 * rows * hidden


def test_known_values():
    # sigmoid(ln 3) = 3 / 4, sigmoid(-ln 3) = 1 / 4
    gate = torch.tensor([[0.0, math.log(3), -math.log(3)]])
    up = torch.tensor([[5.0, 4.0, 8.0]])
    expected = [0.0, 3 * math.log(3), -2 * math.log(3)]
    assert swiglu(gate, up)[0].tolist() == pytest.approx(expected, rel=1e-6)


@settings(max_examples=25)
@given(st.floats(-80, 80, width=32))
def test_gate_and_its_negative_add_up_to_gate_times_their_difference(gate):
    # silu(a) - silu(-a) = a, whatever a: sigmoid(a) + sigmoid(-a) = 1
    both = swiglu(torch.tensor([[gate, -gate]]), torch.ones(1, 2))[0].double()
    assert (both[0] - both[1]).item() == pytest.approx(gate, rel=1e-6, abs=1e-30)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_far_gates_pass_or_block(dtype):
    gate = torch.tensor([[-6e4, -1000, -200, 200, 1000, 6e4]], dtype=dtype)
    out = swiglu(gate, torch.ones_like(gate))
    assert torch.equal(out, gate.clamp(min=0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_result_is_linear_in_up(dtype):
    gate, up = normal(3, 100, dtype=dtype), normal(3, 100, dtype=dtype, seed=1)
    assert torch.equal(swiglu(gate, 2 * up), 2 * swiglu(gate, up))
    assert torch.equal(swiglu(gate, -up), -swiglu(gate, up))


@pytest.mark.parametrize("hidden", WIDTHS)
def test_elements_do_not_know_each_other(hidden):
    gate, up = normal(3, hidden), normal(3, hidden, seed=1)
    alone = torch.cat([swiglu(g[None], u[None]) for g, u in zip(gate, up, strict=True)])
    assert torch.equal(swiglu(gate, up), alone)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("side", ["gate", "up"])
def test_non_finite_value_spoils_its_own_element_as_in_torch(value, side):
    inputs = {"gate": normal(3, 64), "up": normal(3, 64, seed=1)}
    inputs[side][1, 32] = value
    out = swiglu(**inputs)
    torch.testing.assert_close(out, reference(**inputs), equal_nan=True)
    torch.testing.assert_close(out.double(), oracle(inputs), equal_nan=True, rtol=2e-6, atol=0)
    assert (~out.isfinite()).sum() == 1


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_large_half_values_overflow_only_in_the_product():
    gate = torch.full((1, 8), 300.0, dtype=torch.float16)
    assert swiglu(gate, gate).isinf().all()
    assert torch.equal(swiglu(gate, gate / 512), gate * (gate / 512))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", WIDTHS)
def test_halves_of_one_buffer_are_read_where_they_lie(hidden, dtype):
    gate, up = halves(4, hidden, dtype)
    assert not up.is_contiguous()
    assert torch.equal(swiglu(gate, up), swiglu(gate.contiguous(), up.contiguous()))


LAYOUTS = {
    "every other column": lambda x: x[:, ::2],
    "shifted by one element": lambda x: x[:, 1:],
    "columns side by side": lambda x: x.t().contiguous().t(),
    "columns of a wider matrix": lambda x: x[:, 4:12],
    "every other row": lambda x: x[::2],
    "one row repeated": lambda x: x[:1].expand(5, -1),
}


@pytest.mark.parametrize("hidden", [24, 2 * BLOCK + 16])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_of_either_input_does_not_matter(layout, hidden):
    gate = layout(normal(6, hidden, dtype=torch.float16))
    up = normal(*gate.shape, dtype=torch.float16, seed=1)
    expected = swiglu(gate.contiguous(), up)
    assert torch.equal(swiglu(gate, up), expected)
    assert torch.equal(swiglu(up, gate), swiglu(up, gate.contiguous()))


def test_row_offsets_beyond_32_bits_are_reached():
    stride = 2**30 + 8
    # Pages that nobody touches cost nothing.
    storage = torch.empty(2 * stride + 128, dtype=torch.float16)
    gate, up = (storage[at:].as_strided((3, 64), (stride, 1)) for at in (0, 64))
    for seed, half in enumerate((gate, up)):
        half.copy_(normal(3, 64, dtype=torch.float16, seed=seed))
    assert torch.equal(swiglu(gate, up), swiglu(gate.clone(), up.clone()))


@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (0, 0)])
def test_empty_input_gives_empty_output(shape):
    assert swiglu(torch.empty(shape), torch.empty(shape)).shape == shape


@given(st.integers(1, 200_000))
def test_launch_leaves_at_most_8_elements_to_a_thread(hidden):
    launch = launch_for(hidden)
    assert launch.num_warps in (1, 2, 4)
    assert launch.block <= 8 * 32 * launch.num_warps
    assert launch.block == BLOCK or hidden <= launch.block < 2 * hidden


@pytest.mark.parametrize(("elements", "block"), [(FEW_ELEMENTS, BLOCK // 2), (2**27, BLOCK)])
def test_few_elements_go_to_twice_as_many_programs(elements, block):
    assert flat_launch_for(elements).block == block
