import math

import pytest
import torch
import triton
from hypothesis import given
from hypothesis import strategies as st

from kernels import numerics
from kernels.numerics import compare
from kernels.sizes import cdiv, next_power_of_2
from kernels.spec import Tolerance

LOOSE = Tolerance(absolute=0.1, relative=0.1, norm=1.0)
EXACT = Tolerance(absolute=0.0, relative=0.0, norm=0.0)
NAN, INF = math.nan, math.inf
FLOATS = st.floats(-(2**20), 2**20, width=32)


def f64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_errors_are_those_computed_by_hand():
    errors = compare(torch.tensor([1.0, 2.0, 4.0]), f64(1, 2, 5), LOOSE)
    assert errors.max_abs_error == 1
    assert errors.norm_error == pytest.approx(1 / math.sqrt(30))
    assert errors.bound_ratio == pytest.approx(1 / (0.1 + 0.1 * 5))


def test_norm_bound_counts_where_every_element_is_within_its_own():
    tolerance = Tolerance(absolute=1.0, relative=0.0, norm=0.01)
    errors = compare(torch.tensor([1.5, 2.5]), f64(1, 2), tolerance)
    assert errors.bound_ratio == pytest.approx(math.sqrt(0.5 / 5) / 0.01)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=20))
def test_errors_match_plain_arithmetic(pairs):
    out, true = (list(side) for side in zip(*pairs, strict=True))
    errors = compare(torch.tensor(out, dtype=torch.float64), f64(*true), LOOSE)
    differences = [abs(o - t) for o, t in pairs]
    bounds = [0.1 + 0.1 * abs(t) for t in true]
    norm = math.hypot(*differences) / (math.hypot(*true) or 1.0)
    elements = max(d / b for d, b in zip(differences, bounds, strict=True))
    assert errors.max_abs_error == max(differences)
    assert errors.norm_error == pytest.approx(norm, rel=1e-9, abs=1e-150)
    assert errors.bound_ratio == pytest.approx(max(elements, norm), rel=1e-9, abs=1e-150)


@given(st.lists(FLOATS, min_size=2, max_size=20), st.integers(1, 7))
def test_pieces_give_what_the_whole_gives(values, chunk):
    true = f64(*values)
    out = true + torch.arange(len(values))
    whole = compare(out, true, LOOSE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "CHUNK_ELEMENTS", chunk)
        pieces = compare(out, true, LOOSE)
    assert pieces.max_abs_error == whole.max_abs_error
    assert pieces.norm_error == pytest.approx(whole.norm_error)
    assert pieces.bound_ratio == pytest.approx(whole.bound_ratio)


@pytest.mark.parametrize(
    ("out", "true"),
    [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (1.0, INF), (INF, -INF), (NAN, INF), (INF, NAN)],
)
def test_non_finite_must_match_in_kind_and_sign(out, true):
    errors = compare(torch.tensor([0.0, out]), f64(0.0, true), LOOSE)
    assert (errors.max_abs_error, errors.norm_error, errors.bound_ratio) == (None, None, None)


def test_matching_non_finite_values_leave_the_others_judged():
    errors = compare(torch.tensor([NAN, INF, -INF, 2.0]), f64(NAN, INF, -INF, 1.0), LOOSE)
    assert errors.max_abs_error == 1
    assert errors.bound_ratio == pytest.approx(1 / 0.2)


def test_truth_beyond_the_range_of_the_dtype_is_infinite():
    assert compare(torch.tensor([INF], dtype=torch.float16), f64(70000), EXACT).bound_ratio == 0
    assert compare(torch.tensor([-INF], dtype=torch.float16), f64(70000), LOOSE).bound_ratio is None
    assert compare(torch.tensor([INF], dtype=torch.bfloat16), f64(70000), LOOSE).bound_ratio is None


def test_non_finite_mismatch_in_any_output_wins():
    outputs = (torch.tensor([1.0]), torch.tensor([NAN]))
    assert compare(outputs, (f64(1), f64(1)), LOOSE).bound_ratio is None


def test_worst_output_decides():
    outputs = (torch.tensor([1.0]), torch.tensor([1.5]))
    assert compare(outputs, (f64(1), f64(1)), LOOSE).bound_ratio == pytest.approx(0.5 / 0.2)


@pytest.mark.parametrize(
    ("out", "true", "message"),
    [
        (torch.zeros(3), f64(1, 2), r"shape \(3,\), the oracle \(2,\)"),
        (torch.zeros(1, 2), f64(1, 2), r"shape \(1, 2\)"),
        ((torch.zeros(2), torch.zeros(2)), f64(1, 2), "2 outputs where the oracle has 1"),
        (torch.zeros(2, dtype=torch.int32), f64(1, 2), "int32"),
    ],
)
def test_outputs_of_another_kind_are_refused(out, true, message):
    with pytest.raises(ValueError, match=message):
        compare(out, true, LOOSE)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)])
def test_empty_outputs_are_right(shape):
    true = torch.zeros(shape, dtype=torch.float64)
    assert compare(torch.zeros(shape), true, EXACT).bound_ratio == 0


def test_exact_bounds_allow_equality_alone_and_stay_finite():
    assert compare(torch.tensor([1, 2]), torch.tensor([1, 2]), EXACT).bound_ratio == 0
    ratio = compare(torch.tensor([1, 3]), torch.tensor([1, 2]), EXACT).bound_ratio
    assert 1 < ratio < INF


def test_error_of_a_zero_truth_is_absolute():
    errors = compare(torch.tensor([0.0, 0.05]), f64(0, 0), LOOSE)
    assert errors.norm_error == pytest.approx(0.05)
    assert errors.bound_ratio == pytest.approx(0.5)


def test_strided_outputs_are_compared_in_their_order():
    true = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    out = true.float().t().contiguous().t()
    assert not out.is_contiguous()
    assert compare(out, true, EXACT).bound_ratio == 0


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_sizes_are_rounded_up_as_triton_does(a, b):
    assert cdiv(a, b) == triton.cdiv(a, b)
    assert next_power_of_2(a) == max(triton.next_power_of_2(a), 1)
