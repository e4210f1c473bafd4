import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ops.residual_rms_norm import (
    EPS,
    OP,
    WIDEST_ONE_PASS,
    launch_for,
    native,
    oracle,
    reference,
    residual_rms_norm,
)
from kernels.spec import Workload

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDTHS = (1, 17, 64, 1000)


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def three(rows, hidden, dtype=torch.float32):
    """Return x, the residual and the weight."""
    return (
        normal(rows, hidden, dtype=dtype),
        normal(rows, hidden, dtype=dtype, seed=1),
        normal(hidden, dtype=dtype, seed=2),
    )


def assert_equal(made, expected):
    for one, other in zip(made, expected, strict=True):
        assert torch.equal(one, other)


def test_minimal_bytes_reproduce_the_published_bandwidth():
    # Printed with a time of 5.1 us, rounded from less: 10.24 GB/s at least, 10.34 at most.
    cost = OP.cost(Workload({"rows": 4, "hidden": 1536}, "bfloat16"), "forward")
    assert cost.minimal_bytes / 5.15e-6 / 1e9 < 10.3 < cost.minimal_bytes / 5.05e-6 / 1e9


def test_cost_counts_the_operations_of_the_formula():
    rows, hidden = 3, 5
    added, squares, sums, scaled, weighted = (rows * hidden,) * 5
    means, eps_added = rows, rows
    cost = OP.cost(Workload({"rows": rows, "hidden": hidden}, "float32"), "forward")
    assert cost.flops == added + squares + sums + scaled + weighted + means + eps_added
    assert cost.special_ops == rows
    x, residual, normalised, total = (rows * hidden,) * 4
    assert cost.minimal_bytes == 4 * (x + residual + hidden + normalised + total)


def test_known_row_gives_known_values():
    x, residual = torch.tensor([[1.0, 6.0]]), torch.tensor([[2.0, -2.0]])
    out, total = residual_rms_norm(x, residual, torch.tensor([1.0, 2.0]), 1e-30)
    scale = 1 / math.sqrt(12.5)
    assert out[0].tolist() == pytest.approx([3 * scale, 8 * scale])
    assert total.tolist() == [[3.0, 4.0]]


def test_eps_is_added_to_the_mean_of_squares():
    x = torch.tensor([[3.0, 4.0]])
    out, _ = residual_rms_norm(x, torch.zeros(1, 2), torch.ones(2), 3.5)
    assert out[0].tolist() == pytest.approx([0.75, 1.0])


def units_in_the_last_place(out, exact):
    """Return the worst distance in steps of float16 at the exact value."""
    step = torch.exp2(exact.abs().log2().floor().clamp(min=-14) - 10)
    return ((out.double() - exact).abs() / step).max().item()


@pytest.mark.parametrize("hidden", [1000, WIDEST_ONE_PASS + 1])
def test_sum_is_normalised_before_it_is_rounded(hidden):
    x, residual, w = three(4, hidden, torch.float16)
    exact, _ = oracle({"x": x, "residual": residual, "w": w})
    out, _ = residual_rms_norm(x, residual, w)
    # One rounding, half a unit; adding in the dtype is a second one.
    assert units_in_the_last_place(out, exact) < 0.51
    assert units_in_the_last_place(native(x, residual, w)[0], exact) > 0.8


@settings(max_examples=15)
@given(st.integers(1, 5), st.integers(1, 200), st.integers(-3, 8))
def test_scale_of_a_row_does_not_matter_beyond_eps(rows, hidden, exponent):
    x, residual, w = three(rows, hidden)
    x = x.abs() + 0.1
    residual = residual.abs()
    factor = 2.0**exponent
    out, _ = residual_rms_norm(x, residual, w)
    scaled, _ = residual_rms_norm(x * factor, residual * factor, w)
    allowed = EPS / (x + residual).square().mean(dim=1).min().item() * max(1.0, factor**-2) + 1e-6
    torch.testing.assert_close(scaled, out, rtol=allowed, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_x_and_residual_play_the_same_part(dtype):
    x, residual, w = three(3, 100, dtype)
    assert_equal(residual_rms_norm(x, residual, w), residual_rms_norm(residual, x, w))


@pytest.mark.parametrize("dtype", DTYPES)
def test_x_may_be_the_residual_and_neither_is_changed(dtype):
    x, _, w = three(3, 100, dtype)
    before = x.clone()
    out, total = residual_rms_norm(x, x, w)
    assert torch.equal(x, before)
    assert torch.equal(total, 2 * x)
    assert_equal((out, total), residual_rms_norm(x, x.clone(), w))


@pytest.mark.parametrize("dtype", DTYPES)
def test_doubling_the_weight_doubles_the_normalised_sum_alone(dtype):
    x, residual, w = three(3, 100, dtype)
    out, total = residual_rms_norm(x, residual, w)
    assert_equal(residual_rms_norm(x, residual, 2 * w), (2 * out, total))


@pytest.mark.parametrize("hidden", WIDTHS)
def test_rows_do_not_know_each_other(hidden):
    x, residual, w = three(5, hidden)
    alone = [residual_rms_norm(x[i : i + 1], residual[i : i + 1], w) for i in range(5)]
    expected = tuple(map(torch.cat, zip(*alone, strict=True)))
    assert_equal(residual_rms_norm(x, residual, w), expected)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("hidden", [64, WIDEST_ONE_PASS + 1])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("side", [0, 1], ids=["x", "residual"])
def test_non_finite_value_spoils_its_own_row_as_in_torch(value, hidden, side):
    inputs = three(3, hidden)
    inputs[side][1, hidden // 2] = value
    out, total = residual_rms_norm(*inputs)
    torch.testing.assert_close((out, total), reference(*inputs), equal_nan=True)
    assert out[1].isnan().any()
    assert (~total[1].isfinite()).sum() == 1
    assert out[[0, 2]].isfinite().all() and total[[0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_cancel_give_zeros(dtype):
    x, _, w = three(2, 40, dtype)
    assert_equal(residual_rms_norm(x, -x, w), (torch.zeros_like(x), torch.zeros_like(x)))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("hidden", [64, WIDEST_ONE_PASS + 1])
def test_sum_may_overflow_where_the_normalised_sum_does_not(hidden):
    x = torch.full((1, hidden), 6e4, dtype=torch.float16)
    out, total = residual_rms_norm(x, x, torch.ones(hidden, dtype=torch.float16))
    assert total.isinf().all()
    assert torch.equal(out, torch.ones_like(out))


LAYOUTS = {
    "every other column": lambda x: x[:, ::2],
    "shifted by one element": lambda x: x[:, 1:],
    "columns side by side": lambda x: x.t().contiguous().t(),
    "columns of a wider matrix": lambda x: x[:, 4:12],
    "every other row": lambda x: x[::2],
    "one row repeated": lambda x: x[:1].expand(5, -1),
}


@pytest.mark.parametrize("hidden", [24, WIDEST_ONE_PASS + 8])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_of_either_input_does_not_matter(layout, hidden):
    x = layout(normal(6, hidden, dtype=torch.float16))
    residual, w = normal(*x.shape, dtype=x.dtype, seed=1), normal(x.shape[1], dtype=x.dtype, seed=2)
    expected = residual_rms_norm(x.contiguous(), residual, w)
    assert_equal(residual_rms_norm(x, residual, w), expected)
    assert_equal(residual_rms_norm(residual, x, w), expected)


def test_strided_weight_is_read_in_its_order():
    x, residual, _ = three(3, 50)
    w = normal(100, seed=2)[::2]
    expected = residual_rms_norm(x, residual, w.contiguous())
    assert_equal(residual_rms_norm(x, residual, w), expected)


def test_row_offsets_beyond_32_bits_are_reached():
    stride = 2**30 + 8
    # Pages that nobody touches cost nothing.
    storage = torch.empty(2 * stride + 128, dtype=torch.float16)
    x, residual = (storage[at:].as_strided((3, 64), (stride, 1)) for at in (0, 64))
    made_x, made_residual, w = three(3, 64, torch.float16)
    x.copy_(made_x)
    residual.copy_(made_residual)
    assert_equal(residual_rms_norm(x, residual, w), residual_rms_norm(made_x, made_residual, w))


@pytest.mark.parametrize("shape", [(0, 64), (0, WIDEST_ONE_PASS + 1), (3, 0)])
def test_empty_input_gives_empty_output(shape):
    made = residual_rms_norm(torch.empty(shape), torch.empty(shape), torch.empty(shape[1]))
    assert [t.shape for t in made] == [shape, shape]


def test_oracle_is_not_the_formula_of_the_kernels():
    x, residual, w = three(2, 300, torch.float64)
    out, total = oracle({"x": x, "residual": residual, "w": w})
    s = x + residual
    torch.testing.assert_close(out, s / (s.pow(2).sum(1, True) / 300 + EPS).sqrt() * w)
    assert torch.equal(total, s)


@given(st.integers(1, 200_000), st.sampled_from((2, 4)))
def test_launch_covers_a_row_with_few_elements_a_thread(hidden, element_bytes):
    launch = launch_for(hidden, element_bytes)
    assert launch.num_warps in (1, 2, 4, 8, 16, 32)
    tile = launch.block_rows * launch.block_hidden
    assert tile & (tile - 1) == 0
    assert tile <= 32 * 32 * launch.num_warps
    if launch.one_pass:
        assert hidden <= launch.block_hidden < 2 * hidden
