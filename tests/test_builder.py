from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from collector import builder
from collector.bench import Bench, Channel
from collector.plan import Job
from collector.timing import Clock
from kernels.spec import Implementation, Workload


class Nothing:
    def sample(self):
        pass

    def write(self, text):
        pass

    def flush(self):
        pass


def bench():
    return Bench(Channel(Nothing(), 0.0), Clock("cpu", 1, Nothing()), Nothing(), "cpu", 0)


def built(monkeypatch, call, **fields):
    """Build a job of an op whose only implementation calls that; returns its inputs."""
    seen = []

    def build(inputs):
        seen.append(inputs)
        return call

    made = Implementation(name="x", kind="triton", build=build, **fields)
    op = SimpleNamespace(
        name="op",
        implementation=lambda name: made,
        draw=lambda mode, workload, generator, device: {"x": torch.zeros(workload["rows"])},
    )
    monkeypatch.setattr(builder, "load_op", lambda name: op)
    job = Job("op", "x", "forward", Workload({"rows": 3}, "float32"), ())
    builder.build(bench(), job)
    return seen


def test_a_job_is_built_on_inputs_of_its_size_and_called_once(monkeypatch):
    calls = []
    (inputs,) = built(monkeypatch, lambda: calls.append(1))
    assert inputs["x"].shape == (3,)
    assert calls == [1]


def test_a_fault_is_left_to_the_process_that_measures(monkeypatch):
    def call():
        raise torch.OutOfMemoryError("no memory")

    assert len(built(monkeypatch, call)) == 1


@pytest.mark.parametrize(
    "fields",
    [{"unsupported": lambda workload: "too wide"}, {"packages": ("absent_one",)}, {"least_sm": 90}],
)
def test_what_cannot_run_here_is_not_built(monkeypatch, fields):
    assert not built(monkeypatch, lambda: None, **fields)
