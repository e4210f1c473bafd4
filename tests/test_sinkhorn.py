import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.ops.sinkhorn import OP
from kernels.sinkhorn.forward import (
    EPS,
    packed_block,
    scale_global,
    scale_packed,
    scale_registers,
    scale_scalars,
)
from kernels.sinkhorn.problem import plain as reference
from kernels.spec import Workload

KERNELS = {
    "global": scale_global,
    "registers": scale_registers,
    "packed": scale_packed,
    "scalars": scale_scalars,
}
each_kernel = pytest.mark.parametrize("scale", KERNELS.values(), ids=KERNELS)
each_wide = pytest.mark.parametrize("scale", list(KERNELS.values())[:3], ids=list(KERNELS)[:3])
packed_kernels = pytest.mark.parametrize("scale", [scale_packed, scale_scalars])
odd_arithmetic = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def logits(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def workload(batch, n=4, n_iter=20):
    return Workload({"batch": batch, "n": n, "n_iter": n_iter}, "float32")


def traffic(name, of):
    return OP.implementation(name).traffic_bytes(of)


def test_cost_reproduces_the_published_counts_of_one_matrix():
    cost = OP.cost(workload(1), "forward")
    assert cost.flops == 1472
    assert cost.minimal_bytes == 128
    assert cost.special_ops == 16 + 20 * 8
    assert cost.flops / cost.minimal_bytes == 11.5


@pytest.mark.parametrize("name", ["torch", "torch.compile", "triton-global"])
def test_traffic_from_memory_reproduces_the_published_intensity(name):
    assert traffic(name, workload(1)) == 2816
    assert 1472 / traffic(name, workload(1)) == pytest.approx(0.523, abs=5e-4)


@pytest.mark.parametrize("name", ["triton-registers", "triton-packed", "triton-scalars"])
def test_traffic_from_registers_is_minimal(name):
    assert traffic(name, workload(7)) == 7 * 128


def test_cost_of_no_iterations_is_exp_and_the_final_product():
    cost = OP.cost(workload(3, n=5, n_iter=0), "forward")
    assert (cost.flops, cost.special_ops) == (3 * 2 * 25, 3 * 25)


@each_kernel
def test_no_iterations_give_exp(scale):
    x = logits(3, 4, 4)
    torch.testing.assert_close(scale(x, 0), x.exp())


@each_wide
def test_two_by_two_converges_to_its_closed_form(scale):
    x = logits(3, 2, 2)
    a, b, c, d = x.double().exp().reshape(3, 4).unbind(1)
    corner = 1 / (1 + (b * c / (a * d)).sqrt())
    expected = torch.stack([corner, 1 - corner, 1 - corner, corner], dim=1).reshape(3, 2, 2)
    torch.testing.assert_close(scale(x, 60).double(), expected, atol=2e-5, rtol=0)


@each_kernel
def test_equal_logits_give_equal_shares(scale):
    out = scale(torch.full((2, 4, 4), 0.7), 3)
    torch.testing.assert_close(out, torch.full((2, 4, 4), 0.25), atol=1e-5, rtol=0)


@each_kernel
def test_columns_sum_to_one_but_for_eps(scale):
    x = logits(4, 4, 4)
    sums = scale(x, 5).sum(dim=1)
    assert (sums - 1).abs().max() < 1e-5
    assert (scale(x, 5).sum(dim=2) - 1).abs().max() < 0.2


@each_kernel
def test_permuting_rows_and_columns_permutes_the_result(scale):
    x = logits(2, 4, 4)
    rows, columns = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 3, 0, 2])
    permuted = scale(x[:, rows][:, :, columns], 4)
    torch.testing.assert_close(permuted, scale(x, 4)[:, rows][:, :, columns], atol=1e-6, rtol=0)


@each_kernel
def test_shifting_a_row_of_logits_changes_nothing_beyond_eps(scale):
    x = logits(2, 4, 4)
    shifts = torch.tensor([-1.0, 0.5, 2.0, 0.0])[:, None]
    torch.testing.assert_close(scale(x + shifts, 6), scale(x, 6), atol=2e-5, rtol=0)


@each_kernel
def test_eps_enters_both_halves(scale):
    x = torch.zeros(1, 4, 4)
    u = 1 / (4 + 0.5)
    v = 1 / (4 * u + 0.5)
    torch.testing.assert_close(scale(x, 1, 0.5), torch.full((1, 4, 4), u * v))


@each_wide
def test_one_by_one_follows_the_scalar_recursion(scale):
    m, u, v = math.exp(0.3), 1.0, 1.0
    for _ in range(3):
        u = 1 / (m * v + EPS)
        v = 1 / (m * u + EPS)
    assert scale(torch.full((1, 1, 1), 0.3), 3).item() == pytest.approx(u * m * v, abs=1e-6)


@packed_kernels
@pytest.mark.parametrize("batch", [1, 31, 33, 65])
def test_matrices_do_not_know_each_other(scale, batch):
    x = logits(batch, 4, 4)
    picked = sorted({0, batch // 2, batch - 1})
    alone = torch.cat([scale(x[i : i + 1], 3) for i in picked])
    assert torch.equal(scale(x, 3)[picked], alone)


@odd_arithmetic
@packed_kernels
@pytest.mark.parametrize("value", [math.inf, math.nan, 100.0])
def test_matrix_beyond_float32_spoils_itself_alone(scale, value):
    x = logits(5, 4, 4)
    x[2, 1, 3] = value
    out = scale(x, 3)
    torch.testing.assert_close(out, reference(x, 3), equal_nan=True, atol=1e-6, rtol=0)
    assert out[2].isnan().any()
    assert out[[0, 1, 3, 4]].isfinite().all()


@odd_arithmetic
@each_kernel
def test_first_iteration_of_an_infinite_entry_is_that_of_torch(scale):
    x = logits(2, 4, 4)
    x[1, 0, 0] = math.inf
    expected = reference(x, 1)
    torch.testing.assert_close(scale(x, 1), expected, equal_nan=True, atol=1e-6, rtol=1e-6)


@each_kernel
def test_forbidden_entries_and_rows_are_zero_and_not_nan(scale):
    x = logits(3, 4, 4)
    x[0, 1, 2] = x[0, 3] = -math.inf
    x[2, :, 1] = -math.inf
    out = scale(x, 4)
    torch.testing.assert_close(out, reference(x, 4), atol=1e-6, rtol=1e-6)
    assert out[0, 1, 2] == 0
    assert out[0, 3].tolist() == [0.0] * 4
    assert out[2, :, 1].tolist() == [0.0] * 4


@each_kernel
@pytest.mark.parametrize("shift", [-60.0, -20.0, 20.0, 60.0, 85.0])
def test_large_logits_follow_the_formula_and_stay_finite(scale, shift):
    x = logits(3, 4, 4) + shift
    truth = OP.oracle({"logits": x, "n_iter": torch.tensor(3)})
    assert truth.isfinite().all()
    torch.testing.assert_close(scale(x, 3).double(), truth, atol=1e-6, rtol=1e-5)


@each_kernel
def test_widely_spread_logits_stay_finite(scale):
    x = 15 * logits(3, 4, 4)
    out = scale(x, 10)
    assert out.isfinite().all()
    torch.testing.assert_close(out, reference(x, 10), atol=1e-4, rtol=1e-3)


@each_kernel
@pytest.mark.parametrize(
    "layout",
    [lambda x: x.transpose(1, 2), lambda x: x[::2], lambda x: x[:1].expand(3, -1, -1)],
    ids=["transposed", "every other matrix", "one matrix repeated"],
)
def test_layout_of_the_input_does_not_matter(scale, layout):
    x = layout(logits(4, 4, 4))
    assert torch.equal(scale(x, 2), scale(x.contiguous(), 2))


@each_kernel
def test_empty_batch_gives_an_empty_result(scale):
    assert scale(torch.empty(0, 4, 4), 20).shape == (0, 4, 4)


@given(st.integers(0, 2**30), st.integers(1, 64))
def test_packed_block_is_a_power_of_two_that_fits(batch, n):
    block = packed_block(batch, n)
    assert block & (block - 1) == 0
    assert block * n <= 256
    assert block < 2 * max(1, batch)


def test_packed_block_is_the_published_one():
    assert packed_block(2**20, 4) == 64


def test_scalars_refuse_other_sizes_and_registers_refuse_wide_ones():
    def unsupported(name, n):
        return OP.implementation(name).unsupported(workload(1, n=n))

    assert unsupported("triton-scalars", 4) is None
    assert "n = 4" in unsupported("triton-scalars", 5)
    assert unsupported("triton-packed", 64) is None
    assert "registers" in unsupported("triton-packed", 65)
