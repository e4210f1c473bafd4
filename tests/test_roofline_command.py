import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import counting
import pytest
import synthetic

from collector import record as r
from collector import roofline
from collector.history.counted import AllCounted, read_counted
from collector.report import Selection
from collector.runs import OneRun, read

COLD = Selection(timer="graph", cache="cold")
NONE = AllCounted({}, ())
Cli = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (path,) = synthetic.build(tmp_path, commits=1, replicates=1, sweep=6)
    return path


@pytest.fixture
def run(file: Path) -> OneRun:
    return read(file)


def head_and_measurements(file: Path) -> tuple[r.Run, list[r.Measurement]]:
    lines = [r.parse(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert isinstance(lines[0], r.Run)
    return lines[0], [line for line in lines if isinstance(line, r.Measurement)]


def largest(rows: list[roofline.Row]) -> roofline.Row:
    found = [one for one in rows if one.key.op == "rms_norm" and one.key.implementation == "triton"]
    return max(found, key=lambda one: one.point.cost.minimal_bytes if one.point.cost else 0)


def test_the_share_is_the_least_time_by_the_measured_memory_over_the_median(run: OneRun) -> None:
    one = largest(roofline.rows(run, COLD, roofline.peaks(), NONE))
    cost, time_ns = one.point.cost, one.point.median_ns
    assert cost and time_ns and one.roof.regime == "memory"
    copies = [point for points in run.history.sentinels.values() for point in points
              if point.name in ("copy", "read")]  # fmt: skip
    bytes_per_ns = max(point.bytes / point.best_ns for point in copies)
    assert one.roof.fraction == pytest.approx(cost.minimal_bytes / bytes_per_ns / time_ns)
    assert one.gb_per_s == pytest.approx(cost.minimal_bytes / time_ns)
    assert one.tflop_per_s == pytest.approx(cost.flops / time_ns / 1e3)
    assert one.intensity_flops_per_byte == pytest.approx(cost.flops / cost.minimal_bytes)


def test_peaks_of_a_datasheet_replace_what_was_measured(run: OneRun) -> None:
    chosen = roofline.peaks("h200-sxm")
    one = largest(roofline.rows(run, COLD, chosen, NONE))
    assert one.point.cost and one.point.median_ns
    least_ns = one.point.cost.minimal_bytes / 4.8e12 * 1e9
    assert one.roof.fraction == pytest.approx(least_ns / one.point.median_ns)
    assert "specifications, not measured" in chosen.words and "H200" in chosen.words


def test_explicit_peaks_win_over_those_of_a_card(run: OneRun) -> None:
    limits = roofline.limits_json(run, roofline.peaks("h200-sxm", 896.0, 43.9))
    assert limits["memory_gb_per_s"] == pytest.approx(896)
    assert set(map(float, limits["tflop_per_s"].values())) == {43.9}
    assert not limits["measured"]


def test_a_tiny_case_is_bound_by_latency_under_any_peaks(run: OneRun) -> None:
    for chosen in (roofline.peaks(), roofline.peaks("h200-sxm")):
        rows = roofline.rows(run, COLD, chosen, NONE)
        tiny = min(rows, key=lambda one: one.point.cost.minimal_bytes if one.point.cost else 0)
        assert tiny.roof.regime == "latency"


def test_a_peak_of_memory_alone_names_no_other_limit(run: OneRun) -> None:
    for one in roofline.rows(run, COLD, roofline.peaks(gb_per_s=4800.0), NONE):
        assert set(one.roof.limits_ns) <= {"latency", "memory"}


def test_counters_stand_beside_the_logical_figures(file: Path, run: OneRun, tmp_path: Path) -> None:
    head, measurements = head_and_measurements(file)
    line = next(one for one in measurements if one.cost and one.case.op == "rms_norm")
    assert line.cost
    counting.written(tmp_path, head, [counting.counters(line.case, line.cost)])
    rows = roofline.rows(run, COLD, roofline.peaks(), read_counted(tmp_path))
    counted = [one for one in rows if one.counted]
    assert [one.key.implementation for one in counted] == [line.case.implementation]
    made = roofline.row_json(counted[0])["counted"]
    moved = 2 * (3000 + 1500) + 1000
    assert made["dram_bytes"] == moved
    assert made["amplification"] is None  # too few bytes to tell
    assert made["intensity_flops_per_byte"] == pytest.approx(line.cost.flops / moved)
    assert made["fp32_flops"] == 2 * (10 + 20 + 2 * 30)


def test_amplification_is_told_of_what_outweighs_the_profiler(file: Path, tmp_path: Path) -> None:
    head, measurements = head_and_measurements(file)
    line = next(one for one in measurements if one.cost and one.case.op == "rms_norm")
    assert line.cost
    for least, told in ((10_000_000, None), (100_000_000, 10_000 / 100_000_000)):
        cost = line.cost.model_copy(update={"minimal_bytes": least})
        data = tmp_path / str(least)
        counting.written(data, head, [counting.counters(line.case, cost)])
        (found,) = read_counted(data).newest.values()
        assert found.dram_bytes == 10_000
        assert found.amplification == told


def test_the_newest_counters_of_a_case_count(file: Path, tmp_path: Path) -> None:
    head, measurements = head_and_measurements(file)
    line = next(one for one in measurements if one.cost)
    assert line.cost
    for run_id, start, extra in (("a" * 12, "2026-05-02", 7), ("b" * 12, "2026-05-01", 9)):
        lines = [counting.counters(line.case, line.cost, written_back_bytes=extra)]
        counting.written(tmp_path, head, lines, run_id=run_id, started_at=f"{start}T00:00:00Z")
    found = read_counted(tmp_path)
    assert [one.record.written_back_bytes for one in found.newest.values()] == [7]
    assert found.problems == ()


def test_operations_that_were_not_counted_are_not_zero(file: Path, tmp_path: Path) -> None:
    head, measurements = head_and_measurements(file)
    line = next(one for one in measurements if one.cost)
    assert line.cost
    kernels = [counting.kernel(), counting.kernel(fp32_fused=None)]
    counting.written(tmp_path, head, [counting.counters(line.case, line.cost, kernels=kernels)])
    (one,) = read_counted(tmp_path).newest.values()
    assert one.fp32_flops is None


def test_a_bad_line_of_counters_is_named_and_the_rest_is_read(file: Path, tmp_path: Path) -> None:
    head, measurements = head_and_measurements(file)
    line = next(one for one in measurements if one.cost)
    assert line.cost
    path = counting.written(tmp_path, head, [counting.counters(line.case, line.cost)] * 2)
    first, one, _ = path.read_text(encoding="utf-8").splitlines()
    broken = one.replace('"dram_read_bytes":3000', '"dram_read_bytes":-1', 1)
    path.write_text("\n".join([first, broken, one]) + "\n", encoding="utf-8")
    found = read_counted(tmp_path)
    assert len(found.newest) == 1
    assert [(p.line, p.field) for p in found.problems] == [(2, "kernels.0.dram_read_bytes")]


def test_the_command_says_where_limits_come_from(cli: Cli, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "roofline.json"
    measured = cli("roofline", "--data", tmp_path, "--op", "rms_norm", "--json", path)
    assert measured.returncode == 0 and "From: limits measured in the same run." in measured.stdout
    (one,) = json.loads(path.read_text(encoding="utf-8"))["runs"]
    assert one["limits"]["measured"] and {case["roof"] for case in one["cases"]} >= {"memory"}
    spec = cli("roofline", "--data", tmp_path, "--peaks", "rtx-5070-ti")
    assert "memory 896.0 GB/s" in spec.stdout and "not measured" in spec.stdout


def test_the_table_shows_counters_where_there_are_some(
    cli: Cli, file: Path, tmp_path: Path
) -> None:
    head, measurements = head_and_measurements(file)
    line = next(one for one in measurements if one.cost and one.case.op == "rms_norm")
    assert line.cost
    assert "amplification" not in cli("roofline", "--data", tmp_path).stdout.split("Least")[0]
    counting.written(tmp_path, head, [counting.counters(line.case, line.cost)])
    shown = cli("roofline", "--data", tmp_path)
    assert "amplification" in shown.stdout.split("Least")[0] and "10,000" in shown.stdout
    assert f"Counted by ncu unknown at commit {(head.source.commit or '')[:8]}." in shown.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--peaks", "h300"], "'h300' is none of b200, h200-sxm"),
        (["--peak-gb-per-s", "0"], "give a number above 0"),
        (["--peak-tflop-per-s", "inf"], "give a number above 0"),
    ],
)
def test_peaks_that_are_none_are_refused(
    cli: Cli, tmp_path: Path, options: list[str], told: str
) -> None:
    done = cli("roofline", "--data", tmp_path, *options)
    assert done.returncode == 64 and told in " ".join(done.stderr.replace("│", "").split())
