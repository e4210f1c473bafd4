"""Ranks that share a case: with gloo on a CPU, started as they are on a machine with GPUs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from collector import collect as collecting
from collector import crew, links, ranks
from collector.device import cpu_device
from collector.history.load import load_history
from collector.method import method_of
from collector.plan import CollectOptions, PlanError, plan
from collector.record import Measurement, Run, Sentinel, decode_samples, parse
from collector.timing import quantile
from dashboard.figures import Scene
from dashboard.rows import columns, rows
from dashboard.views import curves_of
from kernels.ranks import ring_bytes
from kernels.registry import load_ops
from tests.conftest import measure_little

ROOT = Path(__file__).resolve().parent.parent
OPS = load_ops()
OVER_RANKS = ("sigreg_strong", "sigreg_sync", "sigreg_weak")
MARK = "KERNEL_ALMANAC_TEST"


tasks = collecting.tasks


def without_the_last_look(*arguments):
    """Leave out what would start ranks once more, after those that hang."""
    return [(steps[:-1], interpret) for steps, interpret in tasks(*arguments)]


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    """What a run over two ranks wrote, some of whose cases kill or hold up one of them."""
    project, output = (tmp_path_factory.mktemp(name) for name in ("project", "data"))
    for name in ("kernels", "collector"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    measure_little(project)
    shutil.copy(ROOT / "tests" / "ranked_op.py", project / "kernels" / "ops" / "torn.py")
    spec = importlib.util.spec_from_file_location("torn", ROOT / "tests" / "ranked_op.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALMANAC_COMMIT", "c" * 40)
        patch.setenv(MARK, "torn")
        found = {"device": cpu_device().model_dump(), "versions": {}, "why_no_gpu": ""}
        patch.setattr(collecting, "probe", lambda: found)
        patch.setattr(collecting, "tasks", without_the_last_look)
        patch.setattr(collecting, "load_ops", lambda: {"torn": module.OP})
        patch.setattr(crew, "ROOT", project)
        options = CollectOptions(output=output, ranks=(2,), timeout_s=10.0)
        code = collecting.collect(options)
    left = lasting(f"{MARK}=torn")
    (path,) = (output / "runs").rglob("*.jsonl")
    records = [parse(line) for line in path.read_text(encoding="utf-8").splitlines()]
    cases = {r.case.implementation: r for r in records if isinstance(r, Measurement)}
    return SimpleNamespace(code=code, records=records, cases=cases, data=output, left=left)


@pytest.mark.parametrize(
    ("implementation", "status", "told"),
    [
        ("killed", "error", "rank 1 (SIGKILL)"),
        ("hangs", "timeout", "no answer within 10 s"),
        ("wrong", "incorrect", "rank 0: error is"),
    ],
)
def test_a_rank_that_fails_makes_its_case_red_and_no_other(torn, implementation, status, told):
    record = torn.cases[implementation]
    assert (record.status, record.latency, record.ranks) == (status, None, None)
    assert told in record.reason
    assert torn.cases["good"].status == "passed"
    assert torn.code == 4


REPORT = """
rank 0: RuntimeError: Connection closed by peer [127.0.0.1]:1234
rank 1: ValueError: this rank refuses
Failures:
[1]:
  time      : 2026-01-01_00:00:00
  host      : host
  rank      : 2 (local_rank: 2)
  exitcode  : -11 (pid: 13)
  error_file: <N/A>
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : host
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 12)
  error_file: <N/A>
"""


def test_ranks_that_failed_are_told_with_their_last_words_those_ended_by_a_signal_first():
    assert ranks.failures(REPORT) == [
        "rank 2 (SIGSEGV)",
        "rank 1 (exit code 1): ValueError: this rank refuses",
    ]


def test_no_process_outlives_its_run(torn):
    assert torn.cases
    assert torn.left == []


def test_processes_are_found_by_their_mark_in_sessions_of_their_own():
    mark = f"{MARK}={os.getpid()}"
    command = ["sleep", "600"]
    env = os.environ | {MARK: str(os.getpid())}
    process = subprocess.Popen(command, env=env, start_new_session=True)
    try:
        # Until it runs its own program it has the environment of this one.
        wait_until(lambda: process.pid in ranks.marked(mark))
        assert list(ranks.marked(mark)) == [process.pid]
    finally:
        process.kill()
        process.wait()
    assert list(ranks.marked(mark)) == []


def lasting(mark):
    """Return the processes with a mark that a minute after their end was asked for are there."""
    end = time.monotonic() + 60
    while (found := list(ranks.marked(mark))) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def wait_until(done):
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_time_over_ranks_is_that_of_the_slowest(torn):
    record = torn.cases["good"]
    medians = record.ranks.median_ns
    assert len(medians) == 2
    assert record.ranks.slowest == medians.index(max(medians))
    samples = sorted(decode_samples(record.latency.encoded))
    assert quantile(samples, 0.5) / record.latency.calls == pytest.approx(max(medians), rel=1e-6)
    assert max(medians) > 1e6


def test_a_run_says_how_ranks_reach_each_other_and_what_that_costs(torn):
    run = next(r for r in torn.records if isinstance(r, Run))
    assert run.ranks.backend == "gloo"
    assert run.ranks.environment == {"NCCL_NVLS_ENABLE": "0"}
    assert {method.get("nvlink_multicast") for method in run.methods.values()} == {None, False}
    links_ = {r.name: r for r in torn.records if isinstance(r, Sentinel) and "link" in r.name}
    assert {name: one.bytes for name, one in links_.items()} == {
        "link-2": 1024**2 // 4, "link-floor-2": 4,
    }  # fmt: skip
    assert all(one.latency.median_ns > 0 for one in links_.values())
    limits = load_history(torn.data).ceilings[run.run_id]
    assert limits.link_floor_ns["call"].keys() == limits.link_bytes_per_s.keys() == {2}
    # Measured anew by each start of the ranks.
    times_s = [r.latency.median_ns / 1e9 for r in torn.records if r.kind == "sentinel"
               and r.name == "link-2"]  # fmt: skip
    assert 1 / max(times_s) <= limits.link_bytes_per_s[2] / (1024**2 / 4) <= 1 / min(times_s)


# What is planned --------------------------------------------------------------------------------


def test_without_ranks_nothing_that_needs_them_is_planned():
    for device in ("cuda", "cpu"):
        assert not {job.op for job in plan(OPS, CollectOptions(), device)} & set(OVER_RANKS)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_with_ranks_only_ops_over_that_many_are_planned(device):
    jobs = plan(OPS, CollectOptions(ranks=(2, 4)), device)
    assert {job.op for job in jobs} == set(OVER_RANKS)
    assert {job.ranks for job in jobs} == {2, 4}


def test_calls_are_timed_before_graphs_so_that_they_are_kept():
    jobs = plan(OPS, CollectOptions(ranks=(2,)), "cuda")
    assert {job.series for job in jobs} == {(("call", "hot"), ("graph", "hot"))}
    assert method_of("call", "hot", ranked=True).id != method_of("call", "hot").id


def test_ranks_that_no_op_has_are_told_those_that_there_are():
    with pytest.raises(PlanError, match="sigreg_strong, sigreg_sync, sigreg_weak, on 1, 2, 4, 8"):
        plan(OPS, CollectOptions(ranks=(3,)), "cpu")


def test_more_ranks_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(ranks, "asked", lambda *_: {"gpus": 2, "nccl": "2.27.5", "topology": None})
    with pytest.raises(RuntimeError, match="--ranks 4 needs 4 GPUs; this machine shows 2"):
        ranks.probe((1, 4), "cuda")
    info, versions = ranks.probe((1, 2), "cuda")
    assert (info.backend, versions) == ("nccl", {"nccl": "2.27.5"})


# Links ------------------------------------------------------------------------------------------

HEAD = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"


@pytest.mark.parametrize(
    ("matrix", "found"),
    [
        ("GPU0\t X \tNV18\tPIX\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \tSYS\t0-31\t0\t\tN/A\n",
         "NVLink (NV18)"),
        ("GPU0\t X \tPHB\tPIX\t0-31\t0\t\tN/A\nGPU1\tPHB\t X \tSYS\t0-31\t0\t\tN/A\n",
         "PCIe (PHB)"),
        ("GPU0\t X \tPIX\t0-31\t0\t\tN/A\n", None),
    ],
)  # fmt: skip
def test_links_between_gpus_are_read_and_others_are_not(matrix, found):
    assert links.topology(HEAD + matrix + LEGEND) == found


def test_mixed_links_are_named_both():
    lines = ["X NV4 SYS", "NV4 X SYS", "SYS SYS X"]
    matrix = "\n".join(f"GPU{i} {line} 0-7 0 N/A" for i, line in enumerate(lines))
    assert links.topology(matrix) == "NVLink (NV4) and PCIe (SYS)"


def sent_in_a_ring(count, elements):
    """Add numbers over a ring, part by part, and count those that each rank sends."""
    held = [[rank + place for place in range(elements)] for rank in range(count)]
    size, sent = elements // count, [0] * count
    for step in range(2 * (count - 1)):
        moves = []
        for rank in range(count):
            part = (
                (rank - step) % count if step < count - 1 else (rank + 1 - step + count - 1) % count
            )
            moves.append((rank, part, held[rank][part * size : (part + 1) * size]))
        for rank, part, values in moves:
            other = held[(rank + 1) % count]
            for i, value in enumerate(values, part * size):
                other[i] = other[i] + value if step < count - 1 else value
            sent[rank] += len(values)
    expected = [sum(rank + place for rank in range(count)) for place in range(elements)]
    assert held == [expected] * count
    return sent


@pytest.mark.parametrize("count", [2, 4, 8])
def test_the_model_counts_what_a_ring_sends(count):
    slices, points = 8, 3
    sent = sent_in_a_ring(count, 2 * slices * points)
    assert {ring_bytes(count, 2 * slices * points * 4)} == {4 * numbers for numbers in sent}
    op = OPS["sigreg_sync"]
    for workload in op.workloads:
        w, s, p = (workload[name] for name in ("ranks", "slices", "points"))
        assert op.cost(workload, "forward").link_bytes * w == 4 * (w - 1) * s * p * 4


def test_the_page_tells_what_ranks_send_beside_their_times(torn):
    history = load_history(torn.data)
    op = next(run for run in torn.records if isinstance(run, Run)).ops[0]
    curves = next(iter(curves_of(history, op).values()))
    found = rows(Scene(history, curves, {}))
    row = next(one for one in found if one.key.implementation == "good")
    limits = history.ceilings[row.point.run_id]
    assert columns(found).sent
    assert row.sent_bytes == 32
    assert row.limit_ns("link") == pytest.approx(32 / limits.link_bytes_per_s[2] * 1e9)
    assert row.limit_ns("latency") == limits.link_floor_ns["call"][2]
    assert row.command.endswith("--ranks 2")
