"""An oracle says the same of sets together as of each alone."""

import pytest
import torch

from collector import truths as room
from collector.correctness import as_tuple
from collector.truths import truths
from kernels.registry import load_ops

OPS = load_ops()


def drawn(op, count):
    workload = op.select("smoke")[0]
    generator = torch.Generator().manual_seed(4)
    return [op.make_inputs(workload, generator, "cpu") for _ in range(count)]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", sorted(OPS))
def test_together_is_as_one_by_one(name, monkeypatch):
    op = OPS[name]
    sets = drawn(op, 10)
    monkeypatch.setattr(room, "GROUP_BYTES", 4 * sum(t.nbytes for t in sets[0].values()))
    found = truths(op.oracle, sets)
    assert len(found) == 10
    for made, inputs in zip(found, sets, strict=True):
        for a, b in zip(as_tuple(made), as_tuple(op.oracle(inputs)), strict=True):
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13, equal_nan=True)


def test_small_sets_go_through_the_oracle_at_once():
    calls = []

    def oracle(inputs):
        calls.append(inputs)
        return inputs["logits"].double() * 2, inputs["logits"].double() + 1

    sets = [{"logits": torch.full((2, 3), float(i)), "n_iter": torch.tensor(4)} for i in range(20)]
    found = truths(oracle, sets)
    assert len(calls) == 1
    assert [float(double[0, 0]) for double, _ in found] == [2.0 * i for i in range(20)]


def test_sets_of_different_numbers_are_taken_one_by_one():
    sets = [{"x": torch.ones(2), "n_iter": torch.tensor(i)} for i in range(10)]
    found = truths(lambda inputs: inputs["x"] * int(inputs["n_iter"]), sets)
    assert [float(x[0]) for x in found] == [float(i) for i in range(10)]


def test_an_oracle_that_looks_at_values_is_asked_one_by_one():
    def oracle(inputs):
        return inputs["x"] if float(inputs["x"][0]) > 3 else -inputs["x"]

    sets = [{"x": torch.full((2,), float(i))} for i in range(10)]
    assert [float(x[0]) for x in truths(oracle, sets)] == [-0.0, -1, -2, -3, 4, 5, 6, 7, 8, 9]
