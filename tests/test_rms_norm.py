import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ops.rms_norm import EPS, OP, WIDEST_ONE_PASS, launch_for, reference, rms_norm
from kernels.spec import Workload

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
WIDTHS = (1, 17, 64, 1000)


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize(
    ("rows", "hidden", "seconds", "printed_gb_per_s"),
    [(128, 1024, 5.8e-6, 90.7), (512, 4096, 13.5e-6, 622), (2048, 4096, 42.7e-6, 786)],
)
def test_minimal_bytes_reproduce_published_bandwidths(rows, hidden, seconds, printed_gb_per_s):
    cost = OP.cost(Workload({"rows": rows, "hidden": hidden}, "float16"), "forward")
    assert cost.minimal_bytes / seconds / 1e9 == pytest.approx(printed_gb_per_s, rel=1e-3)


def test_cost_counts_the_operations_of_the_formula():
    rows, hidden = 3, 5
    squares, sums, scaled, weighted = (rows * hidden,) * 4
    means, eps_added = rows, rows
    cost = OP.cost(Workload({"rows": rows, "hidden": hidden}, "float32"), "forward")
    assert cost.flops == squares + sums + scaled + weighted + means + eps_added
    assert cost.special_ops == rows
    assert cost.minimal_bytes == 4 * (rows * hidden + hidden + rows * hidden)


def test_known_row_gives_known_values():
    out = rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), 1e-30)
    scale = 1 / math.sqrt(12.5)
    assert out[0].tolist() == pytest.approx([3 * scale, 8 * scale])


def test_eps_is_added_to_the_mean_of_squares():
    out = rms_norm(torch.tensor([[3.0, 4.0]]), torch.ones(2), 3.5)
    assert out[0].tolist() == pytest.approx([0.75, 1.0])


@pytest.mark.parametrize("hidden", WIDTHS)
def test_unit_weight_gives_a_mean_square_of_one(hidden):
    out = rms_norm(normal(4, hidden), torch.ones(hidden))
    assert out.square().mean(dim=1).tolist() == pytest.approx([1.0] * 4, rel=1e-4)


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 5), st.integers(1, 200), st.integers(-3, 8))
def test_scale_of_a_row_does_not_matter_beyond_eps(rows, hidden, exponent):
    x, w = normal(rows, hidden) + 0.1, normal(hidden, seed=1)
    factor = 2.0**exponent
    allowed = EPS / x.square().mean(dim=1).min().item() * max(1.0, factor**-2) + 1e-6
    torch.testing.assert_close(rms_norm(x * factor, w), rms_norm(x, w), rtol=allowed, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_doubling_the_weight_doubles_the_result(dtype):
    x, w = normal(3, 100, dtype=dtype), normal(100, dtype=dtype, seed=1)
    assert torch.equal(rms_norm(x, 2 * w), 2 * rms_norm(x, w))


@pytest.mark.parametrize("hidden", WIDTHS)
def test_rows_do_not_know_each_other(hidden):
    x, w = normal(5, hidden), normal(hidden, seed=1)
    alone = torch.cat([rms_norm(row[None], w) for row in x])
    assert torch.equal(rms_norm(x, w), alone)


def test_permuting_columns_of_both_permutes_the_result():
    x, w = normal(3, 64), normal(64, seed=1)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(rms_norm(x[:, order], w[order]), rms_norm(x, w)[:, order])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("hidden", [64, WIDEST_ONE_PASS + 1])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_non_finite_value_spoils_its_own_row_as_in_torch(value, hidden):
    x, w = normal(3, hidden), normal(hidden, seed=1)
    x[1, hidden // 2] = value
    out = rms_norm(x, w)
    torch.testing.assert_close(out, reference(x, w), equal_nan=True)
    assert out[1].isnan().any()
    assert out[[0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_row_stays_zero(dtype):
    out = rms_norm(torch.zeros(2, 40, dtype=dtype), torch.ones(40, dtype=dtype))
    assert torch.equal(out, torch.zeros_like(out))


def test_large_half_values_do_not_overflow():
    x = torch.full((1, 64), 6e4, dtype=torch.float16)
    assert rms_norm(x, torch.ones(64, dtype=torch.float16)).tolist() == [[1.0] * 64]


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
def test_layout_of_the_input_does_not_matter(layout, hidden):
    x = layout(normal(6, hidden, dtype=torch.float16))
    w = normal(x.shape[1], dtype=torch.float16, seed=1)
    assert torch.equal(rms_norm(x, w), rms_norm(x.contiguous(), w))


def test_strided_weight_is_read_in_its_order():
    x, w = normal(3, 50), normal(100, seed=1)[::2]
    assert torch.equal(rms_norm(x, w), rms_norm(x, w.contiguous()))


def test_row_offsets_beyond_32_bits_are_reached():
    stride = 2**30 + 8
    # Pages that nobody touches cost nothing.
    storage = torch.empty(2 * stride + 64, dtype=torch.float16)
    x = storage.as_strided((3, 64), (stride, 1))
    x.copy_(normal(3, 64, dtype=torch.float16))
    w = torch.ones(64, dtype=torch.float16)
    assert torch.equal(rms_norm(x, w), rms_norm(x.clone(), w))


@pytest.mark.parametrize("shape", [(0, 64), (0, WIDEST_ONE_PASS + 1), (3, 0)])
def test_empty_input_gives_empty_output(shape):
    out = rms_norm(torch.empty(shape), torch.empty(shape[1]))
    assert out.shape == shape


@given(st.integers(1, 200_000))
def test_launch_covers_a_row_with_few_elements_a_thread(hidden):
    launch = launch_for(hidden)
    assert launch.num_warps in (1, 2, 4, 8, 16, 32)
    tile = launch.block_rows * launch.block_hidden
    assert tile & (tile - 1) == 0
    assert tile <= 32 * 32 * launch.num_warps
    if launch.one_pass:
        assert hidden <= launch.block_hidden < 2 * hidden
