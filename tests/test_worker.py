from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from collector import crew, worker
from collector.bench import Bench, Channel, ContaminatedError, gap_bytes, time_series
from collector.crew import chunks, environment, last_words
from collector.method import Method
from collector.timing import Clock, Timing
from kernels.spec import Implementation


class Blind:
    def sample(self):
        pass

    def summary(self):
        return None


class Wire:
    def __init__(self):
        self.events = []

    def write(self, text):
        self.events.append(json.loads(text))

    def flush(self):
        pass


def bench():
    return Bench(Channel(Wire(), 0.0), Clock("cpu", 1 << 20, Blind()), Blind(), "cpu", 0)


def op_with(implementation):
    return SimpleNamespace(implementation=lambda name: implementation)


def refusal(implementation, workload=None):
    job = SimpleNamespace(implementation="x", workload=workload)
    return worker.impossible(bench(), op_with(implementation), job)


def made(kind="eager", **fields):
    return Implementation(name="x", kind=kind, build=lambda inputs: lambda: None, **fields)


def test_torch_compile_without_a_compiler_is_unavailable_and_no_error(monkeypatch):
    monkeypatch.setattr(worker, "which", lambda name: None)
    status, reason = refusal(made("compiled"))
    assert status == "unavailable"
    assert "install g++" in reason


def test_a_gpu_too_old_or_none_makes_an_implementation_unavailable():
    status, reason = refusal(made("triton", least_sm=90))
    assert status == "unavailable"
    assert "compute capability 9.0" in reason


def test_a_compiler_named_by_cxx_counts(monkeypatch):
    monkeypatch.setenv("CXX", "my-compiler")
    monkeypatch.setattr(worker, "which", lambda name: name if name == "my-compiler" else None)
    assert refusal(made("compiled")) is None


def test_a_missing_package_is_named():
    assert refusal(made(packages=("absent_one", "json"))) == (
        "unavailable",
        "package absent_one is not installed",
    )


def test_an_unsupported_workload_is_skipped_with_its_reason():
    assert refusal(made(unsupported=lambda workload: "too wide")) == ("skipped", "too wide")


def test_a_recompilation_in_the_timed_part_is_refused(monkeypatch):
    stats = torch._dynamo.utils.counters["stats"]

    def call(self, method, thunk):
        stats["unique_graphs"] += 1
        return Timing([1000], 1, 1, "limit")

    monkeypatch.setattr(Clock, "call", call)
    monkeypatch.setattr("collector.bench.recheck", lambda *args: None)
    built = SimpleNamespace(thunk=lambda: torch.zeros(1))
    with pytest.raises(ContaminatedError, match="recompiled"):
        time_series(bench(), built, Method("call", "hot"))


@pytest.mark.parametrize("elements", [0, 1, 300_000, 10 * 1024**2 - 1])
def test_gaps_between_small_sets_are_of_many_sizes_up_to_that_of_a_set(elements):
    drawn = [gap_bytes({"x": torch.empty(elements, dtype=torch.uint8)}) for _ in range(50)]
    for found, most in zip(
        zip(*drawn, strict=True), (min(elements, 1024**2), elements), strict=True
    ):
        assert max(found) <= most
        assert len(set(found)) >= min(elements, 40)


def test_gaps_between_large_sets_are_segments_of_their_own_and_small_ones_part_of_one():
    large = {"x": torch.empty(8 * 1024**2, dtype=torch.uint8)}
    drawn = [gap_bytes(large | {"y": large["x"]}) for _ in range(100)]
    small, own = ({sizes[i] for sizes in drawn} for i in (0, 1))
    assert len(own) > 8
    assert all(size >= 10 * 1024**2 and size % (2 * 1024**2) == 0 for size in own)
    assert len(small) > 80
    assert max(small) <= 1024**2


def test_gaps_are_held_as_long_as_their_sets():
    made = bench()
    made.sets.append({"x": torch.zeros(1000)})
    made.leave_gap()
    assert len(made.gaps) == 2 and all(gap.nbytes <= 4000 for gap in made.gaps)
    made.forget()
    assert (made.sets, made.gaps) == ([], [])


def test_sets_are_the_same_for_every_implementation_and_differ_from_one_another():
    from kernels.registry import load_op

    op = load_op("rms_norm")
    workload = op.select("smoke")[0]
    first = [t["x"].clone() for t in bench().prepare(op, "forward", workload, 3)]
    again = bench().prepare(op, "forward", workload, 3)
    assert all(torch.equal(a, b["x"]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])


def test_only_a_check_runs_in_the_interpreter(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" not in environment(interpret=False)
    assert environment(interpret=True)["TRITON_INTERPRET"] == "1"


def test_silence_ends_the_reading_of_a_pipe():
    import os

    read, write = os.pipe()
    os.write(write, b"hello")
    assert list(chunks(read, lambda: 0.05)) == [b"hello", None]
    os.close(write)
    assert list(chunks(read, lambda: 5.0)) == []
    os.close(read)


def test_the_last_words_of_a_worker_are_its_last_line(tmp_path):
    path = tmp_path / "errors"
    path.write_text("Traceback\n  file\nValueError: boom\n\n")
    with path.open(encoding="utf-8") as stream:
        assert last_words(stream) == ": ValueError: boom"


def test_a_device_that_cannot_be_probed_is_told(monkeypatch):
    monkeypatch.setattr(crew, "environment", lambda interpret: {"PATH": "/nowhere"})
    monkeypatch.setattr(crew.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="cannot be probed"):
        crew.probe()


def test_a_lost_context_is_told_for_every_series_left_before_the_process_ends(monkeypatch):
    sent = []

    def ended(code):
        raise SystemExit(code)

    def free_of_a_lost_context():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(worker, "send_failures", lambda bench, op, job, todo, *_: sent.extend(todo))
    monkeypatch.setattr(worker, "context_is_lost", lambda bench: True)
    monkeypatch.setattr(worker.os, "_exit", ended)
    place = bench()
    monkeypatch.setattr(place, "forget", free_of_a_lost_context)
    cold, hot = ("graph", "cold"), ("graph", "hot")
    with pytest.raises(SystemExit, match="75"):
        worker.send_fault(
            place, None, SimpleNamespace(check=False), [cold], RuntimeError("x"), rest=[hot]
        )
    assert sent == [cold, hot]
    assert place.channel.stream.events[-1]["event"] == "done"
