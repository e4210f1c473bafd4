from __future__ import annotations

import pytest
import torch

from collector import correctness
from collector.correctness import gate, judge, judge_all, poison, poisoned
from kernels.spec import Tolerance

TIGHT = Tolerance(absolute=1e-6, relative=1e-6, norm=1e-6)
TRUTH = torch.arange(1.0, 9.0, dtype=torch.float64) * 2


def inputs():
    return {"x": torch.arange(1.0, 9.0)}


def test_a_right_result_passes_the_gate_with_its_error():
    x = inputs()
    verdict, outputs = gate(TRUTH, TIGHT, lambda: x["x"] * 2, x, poison=True)
    assert verdict.right
    assert verdict.record("before").bound_ratio == 0
    assert torch.equal(outputs, x["x"] * 2)


def test_an_element_that_is_never_written_is_seen():
    x = inputs()

    def half():
        out = torch.empty_like(x["x"])
        out[:4] = x["x"][:4] * 2
        return out

    assert not gate(TRUTH, TIGHT, half, x, poison=True)[0].right


def test_a_call_that_changes_its_input_is_refused_even_when_its_result_is_right():
    x = inputs()

    def mutating():
        out = x["x"] * 2
        x["x"][0] = 7
        return out

    verdict, _ = gate(TRUTH, TIGHT, mutating, x, poison=True)
    assert "input 'x' was changed" in verdict.reason


def test_small_results_are_checked_too():
    truth = torch.full((8,), 1e-3, dtype=torch.float64)
    assert not judge(truth.float() * 1.01, truth, TIGHT).right


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_result_must_be_finite_where_the_oracle_is(bad):
    truth = torch.ones(4, dtype=torch.float64)
    out = torch.ones(4)
    out[2] = bad
    verdict = judge(out, truth, TIGHT)
    assert not verdict.right
    assert verdict.errors.bound_ratio is None


def test_non_finite_truth_must_be_matched():
    truth = torch.tensor([1.0, float("nan"), float("inf")], dtype=torch.float64)
    assert judge(truth.float(), truth, TIGHT).right
    assert not judge(torch.tensor([1.0, float("nan"), 5.0]), truth, TIGHT).right


@pytest.mark.parametrize("at", [0, 25, 49])
@pytest.mark.parametrize("stacked_bytes", [0, 100, 1 << 30])
def test_one_wrong_output_of_fifty_is_found_wherever_it_is(at, stacked_bytes, monkeypatch):
    monkeypatch.setattr(correctness, "STACKED_BYTES", stacked_bytes)
    truths = [torch.full((4,), float(i + 1), dtype=torch.float64) for i in range(50)]
    outputs = [truth.float() for truth in truths]
    assert judge_all(outputs, truths, TIGHT).right
    outputs[at] = outputs[at] * 1.001
    assert not judge_all(outputs, truths, TIGHT).right


@pytest.mark.parametrize(("stacked_bytes", "comparisons"), [(16, 50), (160, 5), (176, 5), (800, 1)])
def test_outputs_are_compared_as_many_at_a_time_as_stay_small(
    stacked_bytes, comparisons, monkeypatch
):
    seen = []

    def noted(out, true, tolerance):
        seen.append(out)
        return judge(out, true, tolerance)

    monkeypatch.setattr(correctness, "STACKED_BYTES", stacked_bytes)
    monkeypatch.setattr(correctness, "judge", noted)
    outputs = [torch.ones(4) for _ in range(50)]
    assert judge_all(outputs, [out.double() for out in outputs], TIGHT).right
    assert len(seen) == comparisons


def test_poison_reaches_every_output_also_those_of_inference_mode():
    with torch.inference_mode():
        frozen = torch.ones(3)
    outputs = [(torch.ones(2), torch.ones(2, dtype=torch.int32)), (frozen, torch.ones(1))]
    poison(outputs)
    assert all(t.isnan().all() for row in outputs for t in row if t.is_floating_point())
    assert (outputs[0][1] == 2**31 - 1).all()


def test_poisoning_ends_with_its_block():
    with poisoned():
        assert torch.empty(100).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.isnan(torch.zeros(100)).any()
