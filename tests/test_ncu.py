import os
from pathlib import Path

import pytest

from collector import ncu
from collector.ncu import ForbiddenError, Metric, NcuError

READ = Metric("dram_read_bytes", "dram__bytes_read.sum", "bytes", needed=True)
TIME = Metric("duration_ns", "gpu__time_duration.sum", "ns", needed=True)
HITS = Metric("l2_hit_percent", "lts__t_sector_hit_rate.pct", "percent")
CLOCK = Metric("sm_clock_mhz", "smsp__cycles_elapsed.avg.per_second", "mhz")
XU = Metric("special_instructions", "smsp__inst_executed_pipe_xu.sum")
ALL = (READ, TIME, HITS, CLOCK, XU)

# As ncu writes it with --csv --page raw --log-file.
LOG = """\
==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "_rms_norm" - 0: 0%....50%....100% - 2 passes
==PROF== Profiling "_read_kernel" - 1: 0%....50%....100% - 2 passes
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","dram__bytes_read.sum","gpu__time_duration.sum",\
"lts__t_sector_hit_rate.pct","smsp__cycles_elapsed.avg.per_second","smsp__inst_executed_pipe_xu.sum"
"","","","","","","","","","","","byte","ns","%","hz","inst"
"0","4711","python3.12","127.0.0.1","_rms_norm","1","7","(128, 1, 1)","(16384, 1, 1)","0","9.0",\
"268,452,864","131,456","33.41","1,755,123,456.78","16,384"
"1","4711","python3.12","127.0.0.1","void at::native::reduce_kernel<512, 1>(T3)","1","7",\
"(1024, 1, 1)","(5493, 1, 1)","0","9.0","180,000,000","50,112","n/a","1,760,000,000","0"
"""
FORBIDDEN = """\
==PROF== Connected to process 9012 (/usr/bin/python3.12)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance \
Counters on the target device 0.
==PROF== Disconnected from process 9012
"""


def test_every_kernel_is_read_in_the_units_of_the_record() -> None:
    first, second = ncu.read(LOG, ALL)
    assert first.kernel == "_rms_norm"
    assert first.values == {
        "dram_read_bytes": 268_452_864,
        "duration_ns": 131_456,
        "l2_hit_percent": 33.41,
        "sm_clock_mhz": pytest.approx(1755.12345678),
        "special_instructions": 16_384,
    }
    assert second.kernel == "void at::native::reduce_kernel<512, 1>(T3)"
    assert second.values["special_instructions"] == 0


def test_what_could_not_be_counted_is_left_out_and_not_zero() -> None:
    assert "l2_hit_percent" not in ncu.read(LOG, ALL)[1].values


@pytest.mark.parametrize(
    ("unit", "factor"), [("nsecond", 1), ("us", 1e3), ("msecond", 1e6), ("second", 1e9)]
)
def test_times_in_other_units_are_converted(unit: str, factor: float) -> None:
    rows = ncu.read(LOG.replace('"ns"', f'"{unit}"'), ALL)
    assert rows[0].values["duration_ns"] == pytest.approx(131_456 * factor)


def test_a_unit_that_is_not_known_is_refused() -> None:
    with pytest.raises(NcuError, match=r"dram__bytes_read\.sum in 'sector'"):
        ncu.read(LOG.replace('"byte"', '"sector"'), ALL)


def test_a_needed_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(NcuError, match=r"'n/a' as dram__bytes_read\.sum of _rms_norm"):
        ncu.read(LOG.replace('"268,452,864"', '"n/a"'), ALL)


def test_a_needed_metric_that_is_not_there_is_refused() -> None:
    needed = Metric("dram_write_bytes", "dram__bytes_write.sum", "bytes", needed=True)
    with pytest.raises(NcuError, match=r"did not count dram__bytes_write\.sum"):
        ncu.read(LOG, (*ALL, needed))


@pytest.mark.parametrize("place", ["log", "printed"])
def test_a_missing_permission_is_named_with_its_remedies(place: str) -> None:
    log, printed = (FORBIDDEN, "") if place == "log" else ("", FORBIDDEN)
    with pytest.raises(ForbiddenError, match=r"root.*SYS_ADMIN.*nothing was counted"):
        ncu.read(log, ALL, printed)


@pytest.mark.parametrize(
    ("log", "printed", "told"),
    [
        ("==ERROR== The application returned an error code (9).\n", "", "error code"),
        ("==WARNING== No kernels were profiled.\n", "", "No kernels were profiled"),
        ("", "Segmentation fault\n", "Segmentation fault"),
        (
            "==ERROR== The application returned an error code (1).\n",
            "KeyError: 'x'\n",
            r"error code \(1\)\.; KeyError: 'x'",
        ),
        (LOG + '"2","4711"\n', "", "torn row"),
        ("", "", "no output"),
        ("\n".join(LOG.splitlines()[:5]), "", "no counters"),
    ],
)
def test_output_without_counters_is_refused_with_what_ncu_said(
    log: str, printed: str, told: str
) -> None:
    with pytest.raises(NcuError, match=told):
        ncu.read(log, ALL, printed)


@pytest.mark.parametrize(
    "line",
    [
        r"==ERROR== Failed to find metric regex:^smsp__inst_executed_pipe_xu\.sum$",
        "==ERROR== Failed to find metric smsp__inst_executed_pipe_xu.sum",
        "==ERROR== Failed to access the following 1 metrics: smsp__inst_executed_pipe_xu.sum",
    ],
)
def test_a_metric_that_ncu_does_not_know_is_recognised(line: str) -> None:
    assert ncu.unknown_metrics(f"==PROF== Connected\n{line}\n", ALL) == [XU]
    assert ncu.unknown_metrics(LOG, ALL) == []


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_ncu_of_the_path_comes_first_and_the_newest_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = script(tmp_path / "nsight-compute" / "2024.9.1" / "ncu", "")
    new = script(tmp_path / "nsight-compute" / "2024.10.0" / "ncu", "")
    monkeypatch.setattr(ncu, "PLACES", (f"{tmp_path}/nsight-compute/*/ncu",))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ncu.find() == new
    new.chmod(0o644)
    if os.access(new, os.X_OK):
        pytest.skip("this user may run everything")
    assert ncu.find() == old
    mine = script(tmp_path / "ncu", "")
    assert ncu.find() == mine


def test_a_missing_ncu_is_told_with_where_it_was_sought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "PLACES", (f"{tmp_path}/*/ncu",))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NcuError, match=r"/opt/nvidia/nsight-compute.*install"):
        ncu.find()


def test_the_version_is_what_ncu_says(tmp_path: Path) -> None:
    said = "echo 'NVIDIA (R) Nsight Compute Command Line Profiler'; echo 'Version 2025.3.1.0 (x)'"
    assert ncu.version(script(tmp_path / "ncu", said)) == "2025.3.1.0"
    with pytest.raises(NcuError, match="names no version"):
        ncu.version(script(tmp_path / "other", "echo hello"))


def test_a_profiler_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "TIMEOUT_S", 0.3)
    with pytest.raises(NcuError, match="did not end"):
        ncu.run(["/bin/sh", "-c", "sleep 60 & sleep 60"], os.environ)
