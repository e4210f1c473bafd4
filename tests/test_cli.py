import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collector.plan import CollectOptions
from kernels.registry import op_names

ROOT = Path(__file__).parent.parent
Ended = subprocess.CompletedProcess[str]
Cli = Callable[..., Ended]
FROZEN = ROOT / "tests" / "history" / "record.v1.jsonl"


def as_process(*arguments: str | Path) -> Ended:
    return subprocess.run(
        [sys.executable, "-m", "collector", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )


def test_a_process_tells_and_ends_as_the_command_line_does_here(cli: Cli, tmp_path: Path) -> None:
    for words in (["colect"], ["add", tmp_path / "nothing"], ["schema", "--help"]):
        apart, here = as_process(*words), cli(*words)
        assert (apart.returncode, apart.stdout, apart.stderr) == (
            here.returncode,
            here.stdout,
            here.stderr,
        )


@pytest.mark.parametrize(
    "arguments",
    [
        ["colect"],
        ["collect", "--opp", "sinkhorn"],
        ["collect", "--replicates", "0"],
        ["collect", "--replicates", "many"],
        ["collect", "--calibrate", "--replicates", "9"],
        ["backfill"],
        ["backfill", "A..B", "--budget", "soon"],
        ["collect", "--budget", "soon"],
        ["collect", "--budget", "0s"],
        ["add"],
        ["validate", "--verbose"],
        ["codegen", "--target", "sm_91"],
        ["codegen", "--json"],
    ],
)
def test_a_mistyped_command_line_never_looks_like_a_regression(
    cli: Cli, arguments: list[str]
) -> None:
    done = cli(*arguments)
    assert done.returncode == 64
    assert "Usage:" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("arguments", "purpose", "replicates"),
    [
        ([], "measure", 1),
        (["--replicates", "3"], "measure", 3),
        (["--calibrate"], "calibrate", 10),
        (["--calibrate", "--replicates", "20"], "calibrate", 20),
    ],
)
def test_a_calibration_has_ten_replicates_or_more(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], purpose: str, replicates: int
) -> None:
    asked: list[CollectOptions] = []
    monkeypatch.setattr("collector.collect.collect", lambda options: asked.append(options) or 0)
    assert cli("collect", *arguments).returncode == 0
    assert [(options.purpose, options.replicates) for options in asked] == [(purpose, replicates)]


def test_an_unknown_name_lists_those_that_exist(cli: Cli) -> None:
    done = cli("collect", "--op", "sinkhron")
    assert done.returncode == 64
    assert f"unknown op 'sinkhron'; there are: {', '.join(op_names())}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([name] for name in ("collect", "codegen", "report", "roofline", "counters")),
        *([name] for name in ("add", "validate", "schema")),
    ],
)
def test_every_option_is_explained(cli: Cli, command: list[str]) -> None:
    done = cli(*command, "--help")
    assert done.returncode == 0
    rows = [line.strip("│ ") for line in done.stdout.splitlines() if "--" in line]
    options = [row for row in rows if row.startswith("--")]
    assert options and all(len(row.split("  ", 1)[1].split()) > 3 for row in options)


BLOCKED = "import sys, runpy; sys.modules.update(torch=None, triton=None); sys.argv[1:] = {!r}; "
RUN = "runpy.run_module('collector', run_name='__main__')"


def without_torch(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    code = BLOCKED.format([str(argument) for argument in arguments]) + RUN
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_files_are_added_and_validated_without_torch(tmp_path: Path) -> None:
    added = without_torch("add", FROZEN, "--output", tmp_path)
    assert added.returncode == 0 and added.stdout.endswith(": 6 records\n")
    again = without_torch("add", FROZEN, "--output", tmp_path)
    assert again.returncode == 0 and again.stdout.endswith(": was there already\n")
    validated = without_torch("validate", tmp_path)
    assert validated.returncode == 0 and validated.stdout == "6 sound records, 0 problems\n"


def test_collect_without_torch_says_how_to_get_it() -> None:
    done = without_torch("collect")
    assert done.returncode == 1
    assert "not installed" in done.stderr and "make collect" in done.stderr
    assert "Traceback" not in done.stderr


def test_validate_tells_file_line_and_field(cli: Cli, tmp_path: Path) -> None:
    lines = FROZEN.read_text(encoding="utf-8").splitlines()
    lines[3] = json.dumps(json.loads(lines[3]) | {"replicate": -1})
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = cli("validate", bad)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{bad}:4: replicate: ")
    assert done.stdout == "5 sound records, 1 problems\n"


def test_an_empty_data_folder_is_fine_and_said(cli: Cli, tmp_path: Path) -> None:
    done = cli("validate", tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("no runs yet")


@pytest.mark.parametrize("command", ["add", "validate"])
def test_a_missing_file_is_an_error_with_a_remedy(cli: Cli, command: str, tmp_path: Path) -> None:
    done = cli(command, tmp_path / "nothing.jsonl")
    assert done.returncode == 1
    assert "cannot read" in done.stderr and "check the path" in done.stderr


def test_a_folder_that_cannot_be_written_is_an_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    done = cli("add", FROZEN, "--output", tmp_path / "data")
    assert done.returncode == 1
    assert done.stderr.startswith("cannot write ") and "--output" in done.stderr


def test_schema_check_writes_nothing_and_schema_does(cli: Cli, tmp_path: Path) -> None:
    checked = cli("schema", "--check", "--output", tmp_path)
    assert checked.returncode == 1 and checked.stderr.count("make fix") == 2
    assert list(tmp_path.iterdir()) == []
    assert cli("schema", "--output", tmp_path).returncode == 0
    assert cli("schema", "--check", "--output", tmp_path).returncode == 0


def run_of(tmp_path: Path, *words: str) -> Path:
    """Write a run that was asked for by a command line."""
    first = json.loads(FROZEN.read_text(encoding="utf-8").splitlines()[0])
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(first | {"command": ["python", "-m", "collector", *words]}) + "\n")
    return path


def test_a_resumed_run_measures_what_it_was_asked_for_and_no_more(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[CollectOptions] = []
    monkeypatch.setattr("collector.collect.collect", lambda options: asked.append(options) or 0)
    words = ["--op", "swiglu", "--calibrate", "--timer", "graph", "--ranks", "2", "--budget", "9m"]
    words += ["--timeout", "60", "--commit", "d" * 40]
    path = run_of(tmp_path, "collect", *words)
    assert cli("collect", *words).returncode == 0
    assert cli("collect", "--resume", path, "--budget", "5s").returncode == 0
    assert asked[1] == replace(asked[0], resume=path, budget_s=5.0)


def test_a_resumed_run_takes_no_other_choice(cli: Cli, tmp_path: Path) -> None:
    done = cli("collect", "--resume", run_of(tmp_path, "collect"), "--op", "swiglu")
    assert done.returncode == 64 and "--op" in done.stderr


def test_what_collect_did_not_start_it_does_not_go_on_with(cli: Cli, tmp_path: Path) -> None:
    path = run_of(tmp_path, "backfill", "a..b")
    done = cli("collect", "--resume", path)
    assert done.returncode == 1 and str(path) in done.stderr and "new one" in done.stderr
