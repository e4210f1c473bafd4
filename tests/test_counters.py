import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import synthetic
import torch

from collector import counted, counters, ncu, store
from collector import record as r
from collector.crew import environment
from collector.history.counted import read_counted
from collector.history.reading import run_paths
from collector.ncu import KernelRow, NcuError
from collector.plan import CollectOptions

CASE = {"ops": ("rms_norm",), "implementations": ("triton",),
        "workloads": ("rows=128,hidden=1024",), "dtypes": ("float16",),
        "modes": ("forward",)}  # fmt: skip
DEVICE = synthetic.device(synthetic.H200, "abcdef012345")
PASSED = {
    "status": "passed", "workload_hash": "a1b2c3d4e5f6",
    "cost": {"flops": 524544, "minimal_bytes": 526336, "special_ops": 128, "pipe": "fp32"},
    "correctness": {"bound_ratio": 0.4, "checked": "before"},
}  # fmt: skip
VALUES = {
    "gpu__time_duration.sum": ("ns", "1,500"),
    "dram__bytes_read.sum": ("byte", "264,192"),
    "dram__bytes_write.sum": ("byte", "2,048"),
    "launch__grid_size": ("", "128"),
    "launch__block_size": ("", "256"),
    "smsp__cycles_elapsed.avg.per_second": ("hz", "1,755,000,000"),
    "lts__t_sector_hit_rate.pct": ("%", "100.02"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "61.5"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("%", "12.25"),
}

# A stand-in for ncu: it writes what the files beside it say for each call, one call after another.
FAKE = """\
#!{python}
import json, sys
from pathlib import Path
here, words = Path(__file__).parent, sys.argv[1:]
if words == ["--version"]:
    print("Version 2025.3.1.0 (build 1)")
    raise SystemExit
call = len(list(here.glob("call-*")))
(here / f"call-{{call}}").write_text(json.dumps(words))
metrics = words[words.index("--metrics") + 1].split(",")
log = Path(words[words.index("--log-file") + 1])
task = json.loads(words[-1])
plan = json.loads((here / "plan.json").read_text())
refused = [name for name in plan["unknown"] if name in metrics]
if refused:
    log.write_text("".join(f"==ERROR== Failed to find metric {{name}}\\n" for name in refused))
    raise SystemExit(1)
if plan["answer"]:
    answers = plan["answer"] if isinstance(plan["answer"], list) else [plan["answer"]]
    Path(task["answer"]).write_text(json.dumps(answers * (len(task["jobs"]) // len(answers))))
if plan["log"] is not None:
    log.write_text(plan["log"])
    raise SystemExit(1)
head = ["ID", "Kernel Name", *metrics]
values = plan["values"]
rows = [head, ["", ""] + [values.get(m, ["inst", ""])[0] for m in metrics]]
for number, kernel in enumerate(plan["kernels"][call % 2]):
    rows.append([str(number), kernel] + [values.get(m, ["", "7"])[1] for m in metrics])
lines = [",".join('"' + cell + '"' for cell in row) for row in rows]
log.write_text("==PROF== Connected to process 1\\n" + "\\n".join(lines) + "\\n")
"""

Machine = Callable[..., Path]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Stand in for a host with a GPU and for its ncu; the folder of the latter is returned."""

    def make(kernels: Any = None, **plan: Any) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        fake = folder / "ncu"
        fake.write_text(FAKE.format(python=sys.executable))
        fake.chmod(0o755)
        named = kernels or [["_rms_norm", "_read_kernel"]] * 2
        usual = {"kernels": named, "values": VALUES, "answer": PASSED, "log": None, "unknown": []}
        (folder / "plan.json").write_text(json.dumps(usual | plan))
        found = {"device": DEVICE.model_dump(mode="json"), "versions": {}, "why_no_gpu": None}
        monkeypatch.setattr(counters, "probe", lambda: found)
        monkeypatch.setattr(ncu.shutil, "which", lambda name: str(fake))
        monkeypatch.setattr(sys, "argv", ["collector", "counters", "--op", "rms_norm"])
        return folder

    return make


def count(output: Path, **changed: Any) -> tuple[int, list[str]]:
    told: list[str] = []
    options = CollectOptions(**(CASE | changed), output=output)
    return counters.counters(options, told.append), told


def records(data: Path) -> list[store.Record]:
    (path,) = store.run_files(data)
    return store.sound_records(path, path.read_bytes())


def test_a_case_is_kept_with_its_kernels_environment_and_profiler(
    machine: Machine, tmp_path: Path
) -> None:
    machine()
    code, told = count(tmp_path / "data")
    assert code == 0, told
    run, line, end = records(tmp_path / "data")
    assert isinstance(run, r.Run) and isinstance(line, r.Counters) and isinstance(end, r.End)
    assert run.purpose == "count" and run.versions["ncu"] == "2025.3.1.0"
    assert run.device == DEVICE and [op.name for op in run.ops] == ["rms_norm"]
    assert line.method_id in run.methods
    assert line.case.workload.sizes == {"rows": 128, "hidden": 1024}
    assert line.cost.minimal_bytes == 526336 and line.correctness.bound_ratio == 0.4
    (kernel,) = line.kernels
    assert (kernel.name, kernel.blocks, kernel.threads_per_block) == ("_rms_norm", 128, 256)
    assert (kernel.duration_ns, kernel.sm_clock_mhz) == (1500, 1755)
    assert (kernel.dram_read_bytes, kernel.dram_write_bytes) == (264_192, 2_048)
    assert (kernel.l2_hit_percent, kernel.occupancy_percent) == (100, 61.5)
    assert kernel.fp32_fused == 7
    assert end.outcome == "complete" and end.counts == {"passed": 1}


def test_what_the_last_kernel_pushes_out_of_the_cache_belongs_to_the_call(
    machine: Machine, tmp_path: Path
) -> None:
    machine()
    count(tmp_path / "data")
    (found,) = read_counted(tmp_path / "data").newest.values()
    assert found.record.written_back_bytes == 2_048
    assert found.dram_bytes == 264_192 + 2_048 + 2_048


def test_counters_are_a_folder_of_their_own_that_is_validated_and_added(
    machine: Machine, tmp_path: Path
) -> None:
    machine()
    count(tmp_path / "data")
    (path,) = (tmp_path / "data" / "counters" / "nvidia-h200").iterdir()
    assert run_paths(tmp_path / "data") == []
    assert store.validate([tmp_path / "data"]) == (3, [])
    (added,) = store.add([path], tmp_path / "other")
    assert added.path == tmp_path / "other" / path.relative_to(tmp_path / "data")


def test_traffic_is_counted_without_touching_the_cache_and_instructions_from_an_empty_one(
    machine: Machine, tmp_path: Path
) -> None:
    folder = machine()
    count(tmp_path / "data")
    calls = [" ".join(json.loads((folder / f"call-{n}").read_text())) for n in (0, 1)]
    assert "--replay-mode application --cache-control none" in calls[0]
    assert "dram__bytes_read.sum" in calls[0] and "sm__inst_executed.sum" not in calls[0]
    assert "--replay-mode kernel --cache-control all" in calls[1]
    for call in calls:
        assert "--profile-from-start off" in call and "--clock-control none" in call
        assert f"{sys.executable} -m collector.counted" in call


def test_a_metric_that_the_gpu_lacks_is_left_out_and_the_rest_is_kept(
    machine: Machine, tmp_path: Path
) -> None:
    machine(unknown=["smsp__inst_executed_pipe_xu.sum"], kernels=[["_k", "_read_kernel"]] * 2)
    code, told = count(tmp_path / "data")
    assert code == 0, told
    line = records(tmp_path / "data")[1]
    assert isinstance(line, r.Counters)
    assert line.kernels[0].special_instructions is None and line.kernels[0].instructions == 7


def test_cases_share_a_process_and_are_told_apart_by_the_kernel_that_drains_the_cache(
    machine: Machine, tmp_path: Path
) -> None:
    kernels = ["_a", "_read_kernel", "_b", "_c", "_read_kernel"]
    folder = machine(kernels=[kernels] * 2)
    code, told = count(tmp_path / "data", implementations=("triton", "torch"))
    assert code == 0, told
    assert len(list(folder.glob("call-*"))) == 2
    _, *lines, _ = records(tmp_path / "data")
    assert [[k.name for k in line.kernels] for line in lines] == [["_a"], ["_b", "_c"]]  # type: ignore[union-attr]
    assert len({line.case.implementation for line in lines}) == 2  # type: ignore[union-attr]


def test_a_case_that_is_wrong_leaves_those_beside_it_right(
    machine: Machine, tmp_path: Path
) -> None:
    machine(answer=[{"status": "incorrect", "reason": "3 wrong"}, PASSED])
    code, told = count(tmp_path / "data", implementations=("triton", "torch"))
    assert code == 4 and any("3 wrong" in line for line in told)
    _, line, end = records(tmp_path / "data")
    assert isinstance(line, r.Counters) and line.kernels[0].name == "_rms_norm"
    assert isinstance(end, r.End) and end.counts == {"incorrect": 1, "passed": 1}


def test_a_process_that_fails_is_started_once_more_for_each_of_its_cases(
    machine: Machine, tmp_path: Path
) -> None:
    folder = machine(kernels=[["_a", "_b", "_read_kernel"]] * 2)
    code, told = count(tmp_path / "data", implementations=("triton", "torch"))
    assert code == 0, told
    tasks = [json.loads(json.loads(p.read_text())[-1]) for p in sorted(folder.glob("call-*"))]
    assert [len(task["jobs"]) for task in tasks] == [2, 2, 1, 1, 1, 1]
    assert len(records(tmp_path / "data")) == 4


FORBIDDEN = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"


@pytest.mark.parametrize(
    ("plan", "code", "said"),
    [
        ({"log": FORBIDDEN}, 1, "run as root"),
        ({"log": "==WARNING== No kernels were profiled."}, 1, "No kernels were profiled"),
        ({"log": "", "answer": None}, 1, "ncu printed no counters"),
        ({"kernels": [["_read_kernel"]] * 2}, 1, "launched no kernel"),
        ({"kernels": [["_a", "_read_kernel"], ["_b", "_read_kernel"]]}, 1, "other kernels"),
        ({"unknown": ["dram__bytes_read.sum"]}, 1, "dram__bytes_read.sum"),
        ({"answer": {"status": "incorrect", "reason": "3 wrong"}, "log": ""}, 4, "3 wrong"),
        ({"answer": {"status": "unavailable", "reason": "no liger"}, "log": ""}, 1, "no liger"),
    ],
)
def test_what_was_not_counted_leaves_no_file(
    machine: Machine, tmp_path: Path, plan: dict[str, Any], code: int, said: str
) -> None:
    machine(**plan)
    ended, told = count(tmp_path / "data")
    assert ended == code and said in "\n".join(told)
    assert told[-1] == "nothing was counted" and store.run_files(tmp_path / "data") == []


def test_a_missing_permission_ends_all_cases_at_once(machine: Machine, tmp_path: Path) -> None:
    folder = machine(log=FORBIDDEN)
    count(tmp_path / "data", implementations=("triton", "torch"))
    assert len(list(folder.glob("call-*"))) == 1


def test_without_a_gpu_it_says_what_is_missing(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine()
    cpu = synthetic.device(synthetic.CPU, "").model_dump(mode="json")
    found = {"device": cpu, "versions": {}, "why_no_gpu": "torch is a CPU build"}
    monkeypatch.setattr(counters, "probe", lambda: found)
    with pytest.raises(NcuError, match="need an NVIDIA GPU: torch is a CPU build"):
        count(tmp_path / "data")


def test_shares_never_exceed_all_of_it() -> None:
    values = {"blocks": 1.0, "threads_per_block": 32.0, "duration_ns": 1.5, "dram_read_bytes": 0.0,
              "dram_write_bytes": 0.0, "occupancy_percent": 100.4}  # fmt: skip
    made = counters.kernel_counters("_k", values)
    assert made.occupancy_percent == 100 and made.duration_ns == 1.5 and made.blocks == 1


def test_the_last_kernel_is_dropped_even_where_an_op_has_one_of_its_name() -> None:
    row = KernelRow("_read_kernel", {"blocks": 1, "threads_per_block": 1, "duration_ns": 1,
                                     "dram_read_bytes": 5, "dram_write_bytes": 6})  # fmt: skip
    kernels, written_back = counters.merged([row, row], [KernelRow("_read_kernel", {})] * 2)
    assert len(kernels) == 1 and written_back == 6


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 64, "Missing option '--op'"),
        (["--op", "rms-norm"], 64, "unknown op 'rms-norm'; there are: "),
        (
            ["--op", "rms_norm", "--workload", "rows=5555"],
            64,
            "no workload of rms_norm has rows=5555",
        ),
        (["--op", "rms_norm", "--mode", "both"], 64, "unknown mode 'both'"),
    ],
)
def test_a_mistyped_case_is_told_with_what_there_is(
    cli: Callable[..., Any], options: list[str], code: int, said: str
) -> None:
    done = cli("counters", *options)
    assert done.returncode == code and said in done.stderr


def test_between_start_and_stop_stand_the_call_and_what_drains_the_cache_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    def step(name: str) -> Callable[[], None]:
        return lambda: steps.append(name)

    monkeypatch.setattr(counted, "drained_by", lambda l2_bytes: step("drain"))
    monkeypatch.setattr(counted.torch.cuda, "synchronize", step("wait"))
    monkeypatch.setattr(counted.torch.cuda.profiler, "start", step("start"))
    monkeypatch.setattr(counted.torch.cuda.profiler, "stop", step("stop"))
    clock = SimpleNamespace(l2_bytes=1, flush=step("flush"))
    counted.profile(step("call"), clock)
    start, stop = steps.index("start"), steps.index("stop")
    assert steps[start + 1 : stop] == ["call", "drain", "wait"]
    assert steps[start - 2 : start] == ["flush", "wait"] and steps.count("call") > 1


def child(tmp_path: Path) -> dict[str, Any]:
    """Run the counted process by itself; what it asks of the profiler then does nothing."""
    sizes = {"rows": 128, "hidden": 1024}
    job = {"op": "rms_norm", "implementation": "triton", "mode": "forward", "sizes": sizes,
           "dtype": "float16", "series": [["graph", "cold"]], "check": False}  # fmt: skip
    task = {"jobs": [job], "l2_bytes": 60_000_000, "answer": str(tmp_path / "answer")}
    command = [sys.executable, "-m", "collector.counted", json.dumps(task)]
    env = environment(interpret=False)
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any]
    (answer,) = json.loads((tmp_path / "answer").read_text(encoding="utf-8"))
    return answer


def test_a_case_that_cannot_run_is_an_answer_and_no_crash(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("it can run here")
    answer = child(tmp_path)
    assert answer["status"] == "error" and answer["reason"]


@pytest.mark.gpu
def test_a_case_is_checked_and_called_under_the_profiler(tmp_path: Path) -> None:
    answer = child(tmp_path)
    assert answer["status"] == "passed", answer
    assert answer["cost"]["minimal_bytes"] == 526336
    assert answer["correctness"]["bound_ratio"] <= 1


@pytest.mark.gpu
def test_a_large_norm_moves_little_more_than_the_least(tmp_path: Path) -> None:
    try:
        code, told = count(tmp_path / "data", workloads=("rows=16384,hidden=8192",))
    except NcuError as error:
        pytest.skip(str(error))
    if "ERR_NVGPUCTRPERM" in "\n".join(told):
        pytest.skip("hardware counters are not permitted here")
    assert code == 0, told
    (found,) = read_counted(tmp_path / "data").newest.values()
    assert 0.98 < (found.amplification or 0) < 1.15
