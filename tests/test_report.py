import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic

from collector import record as r
from collector import report
from collector.report import Selection
from collector.runs import OneRun, Request, RunsError, chosen, elsewhere, read

ROOT = Path(__file__).parent.parent
COLD = Selection(timer="graph", cache="cold")
Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    synthetic.build(folder, cards=(synthetic.H200, synthetic.CPU), commits=2, replicates=2, sweep=3)
    return folder


@pytest.fixture(scope="module")
def file(data: Path) -> Path:
    return max((data / "runs" / "nvidia-h200").glob("*.jsonl"))


@pytest.fixture(scope="module")
def run(file: Path) -> OneRun:
    return read(file)


def lines(file: Path) -> list[Any]:
    return [r.parse(line) for line in file.read_text(encoding="utf-8").splitlines()]


def measured(file: Path, key: Any) -> list[r.Latency]:
    """Return the times of a series as the file holds them."""
    return [
        line.latency
        for line in lines(file)
        if line.kind == "measurement" and line.latency
        and (line.case.op, line.case.implementation) == (key.op, key.implementation)
        and line.case.workload.sizes == dict(key.sizes) and line.case.workload.dtype == key.dtype
        and (line.case.mode, line.case.timer, line.case.cache) == (key.mode, key.timer, key.cache)
    ]  # fmt: skip


def test_percentiles_are_those_of_all_samples_of_all_replicates(run: OneRun, file: Path) -> None:
    for one in report.rows(run, COLD):
        latencies = measured(file, one.key)
        if one.samples is None:
            assert one.point.median_ns is None
            continue
        pooled = [s / t.calls for t in latencies for s in r.decode_samples(t.encoded)]
        expected = np.percentile(pooled, [0, 50, 95, 99, 100])
        found = one.samples
        assert [found.min_ns, found.p50_ns, found.p95_ns, found.p99_ns, found.max_ns] == (
            pytest.approx(list(expected), rel=1e-12)
        )
        assert list(found.samples_ns) == pytest.approx(sorted(pooled))


def rewritten(file: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    made = []
    for line in file.read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        if value.get("latency"):
            change(value["latency"])
        made.append(json.dumps(value))
    path = folder / file.name
    path.write_text("\n".join(made) + "\n", encoding="utf-8")
    return path


def test_percentiles_do_not_come_from_the_summaries_of_the_record(
    run: OneRun, file: Path, tmp_path: Path
) -> None:
    def change(latency: dict[str, Any]) -> None:
        latency["q99_ns"] = latency["max_ns"] = latency["max_ns"] * 10

    other = read(rewritten(file, tmp_path, change))
    assert other.samples_ns == run.samples_ns


def test_damaged_samples_give_no_percentiles(file: Path, tmp_path: Path) -> None:
    found = read(rewritten(file, tmp_path, lambda latency: latency.update(encoded="AAAA")))
    rows = report.rows(found, COLD)
    assert any(one.point.median_ns for one in rows)
    assert all(one.samples is None for one in rows)


def test_speed_ups_divide_the_medians_of_the_same_case(run: OneRun) -> None:
    rows = report.rows(run, COLD)
    times = {(one.key.op, one.key.dtype, one.key.sizes, one.key.implementation): one.point.median_ns
             for one in rows if one.point.median_ns}  # fmt: skip
    checked = 0
    for one in rows:
        if one.point.median_ns is None:
            continue
        case = (one.key.op, one.key.dtype, one.key.sizes)
        others = {name: t for (*rest, name), t in times.items()
                  if tuple(rest) == case and name != one.key.implementation}  # fmt: skip
        mine = one.point.median_ns
        for name, ratio in (("torch.compile", one.over_compiled), ("torch", one.over_eager)):
            expected = others[name] / mine if name in others else None
            assert ratio == (None if expected is None else pytest.approx(expected))
        assert one.over_best == pytest.approx(min(others.values()) / mine)
        assert one.best_other == min(others, key=lambda name: others[name])
        checked += 1
    assert checked > 15


def test_bandwidth_is_least_bytes_over_the_median(run: OneRun) -> None:
    for one in report.rows(run, COLD):
        if one.point.median_ns and one.point.cost:
            expected = one.point.cost.minimal_bytes / one.point.median_ns
            assert one.gb_per_s == pytest.approx(expected)
            size = dict(one.key.sizes)[run.op(one.key.op).axis]
            assert one.units_per_s == pytest.approx(size / one.point.median_ns * 1e9)


def test_a_case_without_a_time_is_listed_with_its_status(run: OneRun) -> None:
    failed = [one for one in report.rows(run, COLD) if one.point.median_ns is None]
    assert failed
    for one in failed:
        made = report.row_json(one)
        assert made["status"] != "passed" and made["samples"] is None and made["gb_per_s"] is None


def test_the_usual_series_is_device_time_from_memory_and_calls_on_a_cpu() -> None:
    assert Selection().usual("cuda") == Selection(timer="graph", cache="cold")
    assert Selection().usual("cpu") == Selection(timer="call", cache="hot")
    assert Selection(timer="call").usual("cuda") == Selection(timer="call", cache="hot")
    assert Selection(cache="hot").usual("cuda") == Selection(timer="graph", cache="hot")


def test_the_newest_run_of_each_device_is_taken(data: Path, file: Path) -> None:
    found = chosen(Request(data))
    newest = {max((data / "runs" / name).glob("*.jsonl")).name
              for name in ("nvidia-h200", "cpu-2-cores")}  # fmt: skip
    assert {Path(one.info.file).name for one in found} == newest
    (alone,) = chosen(Request(data, device="nvidia-h200"))
    assert alone.info.file == str(file)


def test_an_op_is_looked_for_in_the_newest_run_that_measured_it(tmp_path: Path) -> None:
    synthetic.build(tmp_path, commits=1, replicates=1, sweep=2)
    (both,) = (tmp_path / "runs").rglob("*.jsonl")
    head, *rest = both.read_text(encoding="utf-8").splitlines()
    value = json.loads(head)
    value["ops"] = [op for op in value["ops"] if op["name"] == "sinkhorn"]
    value |= {"run_id": "ffffffffffff", "started_at": "2026-12-31T00:00:00Z"}
    kept = [line for line in rest if '"rms_norm"' not in line]
    newer = both.with_name("newer.jsonl")
    newer.write_text("\n".join([json.dumps(value), *kept]) + "\n", encoding="utf-8")
    (usual,) = chosen(Request(tmp_path))
    assert usual.info.file == str(newer)
    assert elsewhere(Request(tmp_path), [usual]) == ["rms_norm"]
    (older,) = chosen(Request(tmp_path, ops=("rms_norm",)))
    assert older.info.file == str(both)


def test_a_commit_is_found_by_the_beginning_of_its_hash(data: Path, run: OneRun) -> None:
    sha = run.info.source.commit or ""
    found = chosen(Request(data, commit=sha[:8]))
    assert len(found) == 2 and {one.info.source.commit for one in found} == {sha}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ops": ("rms-norm",)}, "no op 'rms-norm' was measured; there are: rms_norm, sinkhorn"),
        ({"device": "h200"}, "no device 'h200' was measured; there are: cpu-2-cores, nvidia-h200"),
        ({"commit": "0123456789"}, "no run of 0123456789 fits; measured were, newest last: "),
        ({"commit": "xyz"}, "xyz: no commit"),
    ],
)
def test_what_was_not_measured_is_told_with_what_was(
    data: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(RunsError, match=told):
        chosen(Request(data, **changes))


def test_the_command_prints_tables_and_writes_every_sample(
    cli: Cli, data: Path, file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    done = cli("report", "--run", file, "--op", "rms_norm", "--json", path)
    assert done.returncode == 0
    assert "over torch.compile" in done.stdout and "p99 µs" in done.stdout
    assert "rms_norm, forward, float16, graph, cold" in done.stdout
    assert "sinkhorn" not in done.stdout
    (one,) = json.loads(path.read_text(encoding="utf-8"))["runs"]
    case = next(case for case in one["cases"] if case["status"] == "passed")
    assert len(case["samples"]["samples_ns"]) == case["samples"]["count"] == 60
    assert case["case"]["timer"] == "graph" and one["device"]["slug"] == "nvidia-h200"


@pytest.mark.parametrize("command", ["report", "roofline"])
@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--op", "softmax"], 1, "no op 'softmax' was measured; there are: "),
        (["--timer", "wall"], 64, "'wall' is none of graph, call, submit"),
        (["--cache", "warm"], 64, "'warm' is none of cold, hot"),
        (["--run", "x.jsonl"], 1, "cannot read x.jsonl"),
        (["--run", "x.jsonl", "--commit", "abcd"], 64, "leave out --commit"),
        (["--timer", "submit"], 1, "no case fits"),
        (["--json", "/no/such/folder/x.json"], 1, "cannot write /no/such/folder/x.json"),
    ],
)
def test_what_cannot_be_done_is_told(
    cli: Cli, data: Path, command: str, options: list[str], code: int, told: str
) -> None:
    done = cli(command, "--data", data, *options)
    assert done.returncode == code and told in " ".join(done.stderr.replace("│", "").split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["report", "roofline"])
def test_a_folder_without_runs_is_told(cli: Cli, tmp_path: Path, command: str) -> None:
    done = cli(command, "--data", tmp_path)
    assert done.returncode == 1 and "no runs yet: `make collect` makes one" in done.stderr


def blocked(module: str, *arguments: str | Path) -> Any:
    """Run a command in a process that lacks a package."""
    words = ["collector", *map(str, arguments)]
    code = f"import sys, runpy; sys.modules[{module!r}] = None; sys.argv = {words!r}; "
    code += "runpy.run_module('collector', run_name='__main__', alter_sys=False)"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_report_needs_no_torch(file: Path) -> None:
    done = blocked("torch", "report", "--run", file, "--op", "rms_norm")
    assert done.returncode == 0 and "triton" in done.stdout, done.stderr


def test_a_package_that_is_missing_is_told_with_a_remedy(file: Path) -> None:
    done = blocked("scipy", "roofline", "--run", file)
    assert done.returncode == 1 and "make install" in done.stderr
    assert "scipy" in done.stderr and "Traceback" not in done.stderr
