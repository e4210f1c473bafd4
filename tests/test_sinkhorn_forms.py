"""What the forms of Sinkhorn, their gradients and the function for models must keep."""

import math

import pytest
import torch

from kernels.registry import load_ops
from kernels.sinkhorn import problem
from kernels.sinkhorn.backward import gradient_recomputed, gradient_stored, kept_factors
from kernels.sinkhorn.forward import (
    MOST_UNROLLED,
    Launch,
    launch_tile,
    packed_block,
    scalars_launch,
    scale_packed,
    scale_scalars,
)
from kernels.sinkhorn.function import sinkhorn

ORACLES = {
    "plain": problem.plain_oracle,
    "stable": problem.stable_oracle,
    "softmax": problem.softmax_oracle,
}
REFERENCES = {"plain": problem.plain, "stable": problem.stable, "softmax": problem.softmax}
each_form = pytest.mark.parametrize("form", list(ORACLES))
# The exponential of a row maximum may be infinite: nothing but no iterations at all uses it.
overflow_is_meant = pytest.mark.filterwarnings("ignore:overflow encountered in exp")
each_scale = pytest.mark.parametrize("scale", [scale_packed, scale_scalars])


def drawn(*shape, seed=0, spread=1.0):
    return spread * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def truth(form, logits, n_iter):
    return ORACLES[form]({"logits": logits, "n_iter": torch.tensor(n_iter)})


def true_gradient(form, logits, grad, n_iter):
    inputs = {"logits": logits, "grad": grad, "n_iter": torch.tensor(n_iter)}
    return problem.gradient(ORACLES[form], 1e-6).oracle(inputs)


def close(made, true, atol=2e-6):
    torch.testing.assert_close(made.double(), true, atol=atol, rtol=1e-5)


@each_form
def test_oracle_gradient_matches_finite_differences(form):
    x = drawn(2, 3, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda logits: truth(form, logits, 4), (x,), atol=1e-7)


@each_form
def test_reference_in_float64_is_the_oracle(form):
    x = drawn(3, 5, 5)
    close(REFERENCES[form](x, 6), truth(form, x, 6))


def test_plain_and_stable_are_one_function_where_nothing_overflows():
    x = drawn(4, 4, 4, spread=3.0)
    torch.testing.assert_close(truth("plain", x, 7), truth("stable", x, 7), atol=1e-12, rtol=1e-12)


@overflow_is_meant
@each_scale
@pytest.mark.parametrize("shift", [-1e4, -104.0, -88.0, -40.0, 40.0, 88.0, 104.0, 1e4])
def test_stable_form_is_right_wherever_the_logits_lie(scale, shift):
    x = drawn(3, 4, 4) + shift
    close(scale(x, 5, form="stable"), truth("stable", x, 5), atol=5e-6)


@overflow_is_meant
@each_scale
def test_stable_form_takes_rows_that_lie_far_apart(scale):
    x = drawn(3, 4, 4) + torch.tensor([-200.0, 0.0, 60.0, 300.0])[:, None]
    close(scale(x, 5, form="stable"), truth("stable", x, 5), atol=5e-6)


@each_scale
@pytest.mark.parametrize("form", ["plain", "stable"])
def test_a_row_of_minus_infinity_stays_zero_and_hurts_no_other_matrix(scale, form):
    x = drawn(3, 4, 4)
    x[1, 2] = -math.inf
    out = scale(x, 3, form=form)
    assert (out[1, 2] == 0).all()
    assert out.isfinite().all()
    close(out[::2], truth(form, x[::2], 3))


@each_scale
@each_form
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_not_a_number_spoils_its_own_matrix_alone(scale, form):
    x = drawn(3, 4, 4)
    x[1, 0, 2] = math.nan
    out = scale(x, 3, form=form)
    assert out[1].isnan().any()
    close(out[::2], truth(form, x[::2], 3))


@each_form
def test_more_iterations_than_are_unrolled_are_run(form):
    x = drawn(2, 4, 4)
    close(scale_scalars(x, MOST_UNROLLED + 1, form=form), truth(form, x, MOST_UNROLLED + 1))


@each_form
@pytest.mark.parametrize("launch", [Launch(32, 2, False), Launch(64, 1, True)])
def test_no_choice_of_launch_changes_more_than_rounding(form, launch, monkeypatch):
    x = drawn(65, 4, 4)
    monkeypatch.setattr("kernels.sinkhorn.forward.scalars_launch", lambda *_: launch)
    close(scale_scalars(x, 2, form=form), truth(form, x, 2))


def test_launch_depends_on_the_batch_by_three_classes_alone():
    launches = {scalars_launch(2**k, 20) for k in range(28)}
    assert len(launches) == 3


@each_form
@pytest.mark.parametrize("n_iter", [1, 12])
def test_rows_that_leave_as_whole_lines_are_the_same_rows(form, n_iter):
    x = drawn(35, 4, 4)
    close(scale_scalars(x, n_iter, form=form), truth(form, x, n_iter))


@each_form
@pytest.mark.parametrize("n", [3, 4])
def test_stored_and_recomputed_factors_give_the_same_gradient(form, n):
    x, g = drawn(3, n, n), drawn(3, n, n, seed=1)
    kept = kept_factors(x, 3, form)
    launch_tile(x, 3, 1e-6, form, packed_block(3, n), kept)
    expected = true_gradient(form, x, g, 3)
    close(gradient_stored(x, g, kept, form=form), expected)
    close(gradient_recomputed(x, g, 3, form=form), expected)


@each_form
def test_gradient_of_shifted_rows_sums_to_zero_where_the_result_ignores_the_shift(form):
    x, g = drawn(4, 4, 4), drawn(4, 4, 4, seed=1)
    sums = gradient_recomputed(x, g, 8, form=form).sum(dim=2)
    # The softmax ignores shifts of rows outright; elsewhere only eps sees them.
    assert sums.abs().max() < (1e-6 if form == "softmax" else 1e-4)


@each_form
@pytest.mark.parametrize("n", [3, 4])
def test_function_for_models_has_the_oracles_gradient(form, n):
    x, g = drawn(2, 3, n, n), drawn(2, 3, n, n, seed=1)
    leaf = x.clone().requires_grad_()
    out = sinkhorn(leaf, 3, form=form)
    close(out.detach(), truth(form, x.view(-1, n, n), 3).view_as(x))
    out.backward(g)
    expected = true_gradient(form, x.view(-1, n, n), g.view(-1, n, n), 3)
    close(leaf.grad, expected.view_as(x))


def test_function_for_models_takes_strides_leading_dimensions_and_nothing():
    x = drawn(4, 4, 6).permute(2, 1, 0)
    close(sinkhorn(x, 2), truth("stable", x.contiguous(), 2))
    assert sinkhorn(drawn(0, 7, 4, 4)).shape == (0, 7, 4, 4)
    assert sinkhorn(drawn(4, 4)).shape == (4, 4)


def test_function_for_models_passes_the_checks_of_custom_operators():
    x = drawn(3, 4, 4).requires_grad_()
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(
        torch.ops.kernel_almanac.sinkhorn, (x, 2, 1e-6, "stable"), test_utils=checks
    )


@pytest.mark.parametrize(
    ("shape", "options"),
    [((4,), {}), ((3, 4), {}), ((65, 65), {}), ((4, 4), {"form": "log"}), ((4, 4), {"n_iter": -1})],
)
def test_function_for_models_refuses_what_it_cannot_do(shape, options):
    with pytest.raises(ValueError, match="must be"):
        sinkhorn(drawn(*shape), **options)


def test_sixteen_tensors_compute_the_same_matrix():
    x = drawn(3, 4, 4)
    close(problem.by_scalars(x, 3), truth("plain", x, 3))


def test_backward_costs_what_its_steps_cost():
    # By hand for n = 1: forward half u = 1 / (m v + eps) is a product, a sum and a division. Each
    # half in reverse: -g x x (2), one product and one sum into the gradient of the other factor
    # (2), one of each into that of the matrix (2), and a negation: 7.
    op = load_ops()["sinkhorn"]
    workload = problem.tagged(((1, 1, 3, "float32"), ("smoke",)))[0]
    assert op.cost(workload, "forward").flops == 3 * 6 + 2
    assert op.cost(workload, "backward").flops == 3 * 6 + 3 * 14 + 8
    both = op.cost(workload, "forward").flops + op.cost(workload, "backward").flops
    assert op.cost(workload, "full").flops == both


def test_residuals_after_twenty_iterations_are_what_the_mathematics_leaves():
    # Exact arithmetic leaves up to 5e-4 to 8e-3 in the rows of 2e4 normal matrices; columns come
    # last and keep eps alone.
    left = problem.residuals(truth("plain", drawn(20_000, 4, 4), 20))
    assert 5e-4 < left["row_residual_max"] < 8e-3
    assert left["row_residual_mean"] < left["row_residual_max"] / 10
    assert left["column_residual_max"] < 1e-4
    assert problem.residuals(torch.full((1, 4, 4), 0.25)) == dict.fromkeys(left, 0.0)
    assert problem.residuals(torch.full((1, 4, 4), math.nan)) == {}
