from __future__ import annotations

import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import SimpleNamespace

import pytest

from collector import collect as collecting
from collector import crew
from collector.plan import CollectOptions
from collector.record import End, Measurement, Run, Sentinel, parse
from collector.run_head import repeatable
from tests.conftest import measure_little

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project that holds the faulty op alone."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("kernels", "collector"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "kernels" / "ops").glob("[a-z]*.py"):
        path.unlink()
    shutil.copy(ROOT / "tests" / "faulty_op.py", folder / "kernels" / "ops" / "faulty.py")
    # For as long as this process, which goes on with a run of the copy, would measure.
    measure_little(folder, "kernels/sentinels.py")
    return folder


@contextmanager
def started(project, output, *args):
    """Start the command line, which ends at the latest with the test."""
    env = os.environ | {"PYTHONPATH": str(project), "ALMANAC_COMMIT": "c" * 40, "COLUMNS": "200"}
    env.pop("TRITON_INTERPRET", None)
    words = [sys.executable, "-m", "collector", "collect", "--output", str(output), *args]
    with subprocess.Popen(words, cwd=project, env=env, text=True, stdout=-3, stderr=-1) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def here(project):
    """Collect in this process: torch is imported and the device is probed once for all of them."""
    path = project / "kernels" / "ops" / "faulty.py"
    spec = importlib.util.spec_from_file_location("faulty", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = crew.probe()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALMANAC_COMMIT", "c" * 40)
        patch.setenv("COLUMNS", "200")
        patch.setattr(collecting, "load_ops", lambda: {"faulty": module.OP})
        patch.setattr(collecting, "probe", lambda: found)
        # Workers are processes of the copy, as they are for its own command line.
        patch.setattr(crew, "ROOT", project)
        yield lambda output, **options: collecting.collect(
            CollectOptions(output=output, **{"implementations": ("good",)} | options)
        )


def lines_of(output):
    (path,) = (output / "runs").rglob("*.jsonl")
    return [parse(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def faulty(here, tmp_path_factory):
    """A run of all faults: its exit code, what was told, its records and those of cases."""
    output, told = tmp_path_factory.mktemp("faulty"), io.StringIO()
    with redirect_stderr(told):
        code = here(output, implementations=(), timeout_s=10.0)
    records = lines_of(output)
    cases = {r.case.implementation: r for r in records if isinstance(r, Measurement)}
    return SimpleNamespace(code=code, told=told.getvalue(), records=records, cases=cases)


@pytest.mark.parametrize(
    ("implementation", "status", "told"),
    [
        ("wrong", "incorrect", "times its bound"),
        ("wrong-later", "incorrect", "after timing: "),
        ("not-a-number", "incorrect", "not finite"),
        ("wrong-shape", "incorrect", "shape"),
        ("mutates", "incorrect", "input 'x' was changed"),
        ("half-written", "incorrect", "not finite"),
        ("raises", "error", "ValueError: this kernel refuses | <script>"),
        ("out-of-memory", "oom", "memory"),
        ("segfault", "error", "SIGSEGV"),
        ("exits", "error", "exit code 3"),
        ("hangs", "timeout", "no answer within 10 s"),
        ("absent", "unavailable", "no_such is not installed"),
        ("too-big", "skipped", "64 is too big"),
    ],
)
def test_a_fault_is_named_and_has_no_time(faulty, implementation, status, told):
    record = faulty.cases[implementation]
    assert record.status == status
    assert told in record.reason
    assert record.latency is None


def test_a_fault_costs_its_own_case_only(faulty):
    assert faulty.cases["good"].status == "passed"
    assert len(faulty.cases) == 14


def test_a_wrong_result_decides_the_exit_code_and_is_told(faulty):
    assert faulty.code == 4
    assert "incorrect: faulty wrong" in faulty.told
    assert "Where the time went" in faulty.told


def test_a_run_begins_with_its_run_line_and_is_closed(faulty):
    first, *rest, last = faulty.records
    assert isinstance(first, Run)
    assert isinstance(last, End)
    assert last.outcome == "complete"
    assert {type(r) for r in rest} == {Measurement, Sentinel}
    assert first.source.commit == "c" * 40


def test_the_whole_machine_is_measured_at_the_start_and_its_drift_at_the_end(faulty):
    phases = {"before": [], "between": [], "after": []}
    for record in faulty.records:
        if isinstance(record, Sentinel):
            phases[record.phase].append(record.name)
    assert phases["before"] == ["empty-call", "copy", "gemm-fp32"]
    assert phases["after"] == ["empty-call", "copy"]


def test_correctness_is_checked_before_and_after_timing(faulty):
    good = faulty.cases["good"].correctness
    assert good.checked == "before-and-after"
    assert good.bound_ratio <= 1


def test_replicates_are_fresh_processes_with_their_own_lines(here, tmp_path, monkeypatch):
    workers, start = [], crew.Pool.take

    def noted(*args):
        workers.append(start(*args))
        return workers[-1]

    monkeypatch.setattr(crew.Pool, "take", noted)
    assert here(tmp_path, replicates=2) == 0
    records = [r for r in lines_of(tmp_path) if isinstance(r, Measurement)]
    assert [r.replicate for r in records] == [0, 1]
    assert len({worker.process.pid for worker in workers}) == 2


def test_a_killed_run_keeps_what_was_measured_and_goes_on_where_it_stopped(
    project, here, tmp_path, capsys
):
    args = ("--implementation", "good", "--implementation", "hangs", "--timeout", "60")
    with started(project, tmp_path, *args) as process:
        path = _wait_for(process, tmp_path)
        process.kill()
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"kind":"measurement","ca')
    here(tmp_path, implementations=("good", "hangs"), timeout_s=3.0, resume=path)
    records = lines_of(tmp_path)
    assert "cut off" in capsys.readouterr().err
    assert [r.status for r in records if isinstance(r, Measurement)] == ["passed", "timeout"]
    assert isinstance(records[-1], End)


def test_ctrl_c_closes_the_run_and_says_how_to_go_on(project, tmp_path):
    args = ("--implementation", "good", "--implementation", "hangs", "--timeout", "60")
    with started(project, tmp_path, *args) as process:
        _wait_for(process, tmp_path)
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
    assert process.returncode == 1
    assert "--resume" in told
    records = lines_of(tmp_path)
    assert records[-1].outcome == "interrupted"
    assert [r.status for r in records if isinstance(r, Measurement)] == ["passed"]


def test_a_compilation_ahead_that_is_interrupted_is_in_where_the_time_went(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(collecting.ahead, "build_all", interrupted)
    session = SimpleNamespace(
        options=CollectOptions(), out_of_budget=lambda: False, seconds={"build": 0.0}
    )
    with pytest.raises(KeyboardInterrupt):
        collecting.compile_ahead(session, [])
    assert session.seconds["build"] > 0


def _wait_for(process, output):
    """Wait until the good case is in the file; return the file."""
    while process.poll() is None:
        for path in (output / "runs").rglob("*.jsonl"):
            if '"implementation":"good","mode"' in path.read_text(encoding="utf-8"):
                return path
        time.sleep(0.2)
    raise AssertionError(process.stderr.read())


@pytest.fixture(scope="module")
def stopped(here, tmp_path_factory):
    """A run that its budget ended: its file, and what was told."""
    output, told = tmp_path_factory.mktemp("stopped"), io.StringIO()
    with redirect_stderr(told):
        here(output, budget_s=0.01)
    (path,) = (output / "runs").rglob("*.jsonl")
    return path, told.getvalue()


def test_a_budget_ends_a_run_between_jobs(stopped):
    path, told = stopped
    assert parse(path.read_text(encoding="utf-8").splitlines()[-1]).outcome == "budget"
    assert "--resume" in told


def test_a_run_of_another_commit_is_not_gone_on_with(stopped, here, capsys):
    path, _ = stopped
    before = path.read_text()
    assert here(path.parent, resume=path, commit="d" * 40) == 3
    assert "its source differs" in capsys.readouterr().err
    assert path.read_text() == before


def test_an_unknown_op_is_a_bad_command_line(here, tmp_path, capsys):
    assert here(tmp_path, ops=("sinkhron",)) == 64
    assert "unknown op 'sinkhron'; there are: faulty" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_an_error_with_its_path(here, tmp_path, capsys):
    target = tmp_path / "file"
    target.write_text("in the way")
    assert here(target) == 1
    assert str(target) in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["collect", "--output", "/somewhere", "--op", "faulty"],
        ["collect", "--output=/somewhere", "--op", "faulty"],
        ["collect", "--op", "faulty", "--resume", "/somewhere/run.jsonl"],
    ],
)
def test_the_recorded_command_repeats_the_measurement_and_names_no_folder(words):
    assert repeatable(words) == ["collect", "--op", "faulty"]
