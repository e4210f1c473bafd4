import ast
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from collector import backfill, crew, device, past
from collector.plan import CollectOptions, PlanError
from collector.record import End, Measurement, Run, parse
from kernels.registry import load_ops
from tests.conftest import measure_little

ROOT = Path(__file__).resolve().parent.parent
probe = functools.cache(crew.probe)
BROKEN = "\nraise NameError('half of a change')\n"


class Project:
    """A repository of the faulty op: a root without ops, then a good, a broken, a good commit."""

    def __init__(self, folder):
        self.folder, self.data, self.tmp = folder / "project", folder / "data", folder / "tmp"
        self.tmp.mkdir()
        self.folder.mkdir()
        self.git("init", "-q", "-b", "main")
        self.shas = [self.commit("Begin", "README.md", "A project.")]
        for name in ("kernels", "collector"):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.folder / name, ignore=ignore)
        for path in (self.folder / "kernels" / "ops").glob("[a-z]*.py"):
            path.unlink()
        measure_little(self.folder)
        op = (ROOT / "tests" / "faulty_op.py").read_text()
        for subject, text in (("Add", op), ("Break", op + BROKEN), ("Mend", op)):
            self.shas.append(self.commit(subject, "kernels/ops/faulty.py", text))

    def git(self, *words):
        made = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")}  # fmt: skip
        command = ["git", "-c", "commit.gpgsign=false", "-C", str(self.folder), *words]
        done = subprocess.run(command, env=os.environ | made, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def commit(self, subject, name, text):
        (self.folder / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def start(self, *arguments):
        env = os.environ | {"TMPDIR": str(self.tmp), "COLUMNS": "200"}
        env.pop("TRITON_INTERPRET", None)
        env.pop("PYTHONPATH", None)
        command = [sys.executable, "-m", "collector", "backfill", *arguments]
        return subprocess.Popen(
            [*command, "--output", str(self.data)], cwd=self.folder, env=env, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, span, *implementations, **options):
        """Measure from this process, whose device is probed once; return code and what is told."""
        told = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backfill, "ROOT", self.folder)
            patch.setattr(device, "ROOT", self.folder)
            patch.setattr(tempfile, "tempdir", str(self.tmp))
            patch.setattr(backfill, "probe", probe)
            patch.delenv("TRITON_INTERPRET", raising=False)
            patch.delenv("PYTHONPATH", raising=False)
            chosen = CollectOptions(output=self.data, implementations=implementations, **options)
            return backfill.backfill(span, chosen, told.append), told

    def files(self):
        return sorted((self.data / "runs").rglob("*.jsonl"))

    def left_behind(self):
        trees = self.git("worktree", "list").count("\n")
        return trees, [path for path in self.tmp.iterdir() if path.name.startswith("almanac-")]


def records(path):
    return [parse(line) for line in path.read_text(encoding="utf-8").splitlines()]


def lines(paths):
    return [
        record for path in paths for record in records(path) if isinstance(record, Measurement)
    ]  # fmt: skip


def wanted(*names):
    return [word for name in names for word in ("--implementation", name)]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("backfill"))


@pytest.fixture(scope="module")
def measured(project):
    span = f"{project.shas[0]}..main"
    return *project.run(span, "good", "wrong"), project.files()


def test_past_commits_get_runs_of_their_own_newest_first(project, measured):
    _, told, files = measured
    runs = sorted((records(path)[0] for path in files), key=lambda run: run.started_at)
    assert [run.source.commit for run in runs] == [project.shas[3], project.shas[1]]
    assert {(run.purpose, run.source.dirty) for run in runs} == {("backfill", None)}
    assert [run.source.subject for run in runs] == ["Mend", "Add"]
    names = " ".join(told)
    assert names.index("Mend") < names.index("Break") < names.index("Add")


def test_a_commit_that_does_not_import_is_told_and_the_next_goes_on(project, measured):
    code, told, _ = measured
    short, line = project.shas[2][:8], (ROOT / "tests/faulty_op.py").read_text().count("\n") + 2
    where = f"kernels/ops/faulty.py:{line}: NameError: half of a change"
    assert f"{short} Break: not measured: {where}" in told
    assert told[-1] == "2 measured, 1 not measured"
    assert code == 4


def test_the_run_records_the_command_that_measures_its_commit_alone(project, measured):
    command = records(measured[2][0])[0].command
    sha = records(measured[2][0])[0].source.commit
    assert command[:5] == ["python", "-m", "collector", "backfill", f"{sha}^..{sha}"]
    assert command[5:] == [*wanted("good", "wrong"), "--replicates", "1"]


def test_nothing_is_left_behind(project, measured):
    assert project.left_behind() == (0, [])
    assert project.git("status", "--porcelain", "--", "kernels", "collector/past.py") == ""


def test_what_is_there_is_not_measured_again(project, measured):
    code, told = project.run(f"{project.shas[2]}..main", "good", "wrong")
    assert (code, told[-1]) == (0, "1 there already")
    assert project.files() == measured[2]


def test_only_what_a_commit_lacks_is_measured(project, measured):
    span = f"{project.shas[2]}..main"
    project.run(span, "good", "raises", replicates=2)
    (new,) = set(project.files()) - set(measured[2])
    found = sorted((line.case.implementation, line.replicate) for line in lines([new]))
    assert found == [("good", 1), ("raises", 0), ("raises", 1)]


def test_ctrl_c_keeps_what_was_measured_and_the_same_command_goes_on(tmp_path):
    project = Project(tmp_path)
    arguments = ("HEAD^..HEAD", *wanted("good", "hangs"))
    with project.start(*arguments) as process:
        try:
            while not (files := project.files()) or '"measurement"' not in files[0].read_text():
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            told = process.stderr.read()
        finally:
            process.kill()
    assert process.returncode == 1 and "the same command goes on" in told
    assert "Traceback" not in told and "--resume" not in told
    (first,) = project.files()
    assert isinstance(end_line := records(first)[-1], End) and end_line.outcome == "interrupted"
    assert project.left_behind() == (0, [])
    project.run("HEAD^..HEAD", "good", "hangs", timeout_s=2.0)
    (second,) = set(project.files()) - {first}
    assert [(r.case.implementation, r.status) for r in lines([second])] == [("hangs", "timeout")]


def test_a_spent_budget_starts_nothing_and_says_what_is_left(project, measured):
    code, told = project.run(f"{project.shas[0]}..main", budget_s=0.0)
    assert code == 0
    assert told[-1].endswith("2 left; the same command goes on where this stopped")


FIRST_MEASURED = "85eb50d68e5297a37c157d798fc7101eb69d8c7c"


@pytest.mark.skipif(
    backfill.git("cat-file", "-e", FIRST_MEASURED) is None, reason="the clone is shallow"
)
def test_the_first_measured_commit_of_this_project_can_be_measured_today(tmp_path, monkeypatch):
    """Its contract knows neither gradients nor quality, units or least_sm."""
    told = []
    options = CollectOptions(
        ops=("rms_norm",), implementations=("torch", "triton", "triton-pdl"),
        workloads=("smoke",), dtypes=("float16",), output=tmp_path,
    )  # fmt: skip
    monkeypatch.setattr(backfill, "probe", probe)
    code = backfill.backfill(f"{FIRST_MEASURED}^..{FIRST_MEASURED}", options, told.append)
    assert (code, told[-1]) == (0, "1 measured")
    (path,) = tmp_path.rglob("*.jsonl")
    run, *_ = records(path)
    assert isinstance(run, Run) and run.source.commit == FIRST_MEASURED
    statuses = {(r.case.implementation, r.status) for r in lines([path])}
    assert statuses == {("torch", "passed"), ("triton", "skipped")}
    checked = [r for r in lines([path]) if r.status == "skipped"]
    assert all(r.correctness.checked == "interpreter" for r in checked)


def test_all_that_the_collector_needs_of_the_kernels_is_of_today():
    """Else a past commit would be judged by its own rules, or lack what is asked of it."""
    needed = set()
    of_today = [ROOT / name for name in backfill.TODAY if name.endswith(".py")]
    for path in [*(ROOT / "collector").rglob("*.py"), *of_today]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernels."):
                needed.add(node.module.replace(".", "/") + ".py")
    assert needed <= set(backfill.TODAY)


def test_options_that_choose_are_repeated_in_the_command():
    options = CollectOptions(
        ops=("a", "b"), implementations=("i",), workloads=("smoke",), dtypes=("d",),
        modes=("m",), timers=("t",), caches=("c",), replicates=3, commit="f00",
    )  # fmt: skip
    assert backfill.repeating(options) == [
        "backfill", "f00^..f00", "--op", "a", "--op", "b", "--implementation", "i",
        "--workload", "smoke", "--dtype", "d", "--mode", "m", "--timer", "t", "--cache", "c",
        "--replicates", "3",
    ]  # fmt: skip


def test_names_that_a_commit_does_not_know_yet_are_left_out():
    ops = {"rms_norm": load_ops()["rms_norm"]}
    options = CollectOptions(
        ops=("rms_norm", "later"), implementations=("triton", "later"),
        workloads=("smoke", "rows=5,hidden=64", "batch=3"), dtypes=("float16", "float8"),
    )  # fmt: skip
    kept = past.narrowed(ops, options)
    assert (kept.ops, kept.implementations, kept.workloads, kept.dtypes) == (
        ("rms_norm",), ("triton",), ("smoke", "rows=5,hidden=64"), ("float16",)
    )  # fmt: skip
    assert past.narrowed(ops, CollectOptions()) == CollectOptions()
    with pytest.raises(PlanError, match="none of these implementations: later"):
        past.narrowed(ops, CollectOptions(implementations=("later",)))


@pytest.mark.parametrize(("outcomes", "code"), [
    ([("complete", 0), ("error", 1)], 0), ([("error", 1), ("error", 1)], 1),
    ([("complete", 4), ("error", 1)], 4), ([("complete", 0), ("interrupted", 1)], 1),
    ([("there already", 0)], 0), ([("complete", 1)], 0), ([("complete", 0), ("budget", 0)], 0),
])  # fmt: skip
def test_the_exit_code_is_that_of_the_worst_that_matters(outcomes, code):
    answers = [{"outcome": outcome, "exit_code": one} for outcome, one in outcomes]
    assert backfill.exit_code(answers) == code


@pytest.mark.parametrize(("arguments", "code", "word"), [
    (["main"], 64, "'main' is no range: give A..B"),
    (["a...b"], 64, "'a...b' is no range"), (["..HEAD"], 64, "is no range"),
    (["nosuch..HEAD"], 1, "nosuch: git knows no such commit"),
    (["HEAD..nosuch"], 1, "nosuch: git knows no such commit"),
    (["HEAD..HEAD"], 1, "no commit is in it"), (["--output=x..HEAD", "a"], 64, "is no range"),
    (["HEAD^..HEAD", "--op", "sinkhron"], 64, "no commit has sinkhron; there are: int4_gemv"),
    (["HEAD^..HEAD", "--replicates", "0"], 64, "--replicates"), ([], 64, "A..B"),
])  # fmt: skip
def test_a_wrong_range_or_name_is_told_before_anything_is_measured(cli, arguments, code, word):
    done = cli("backfill", *arguments)
    assert done.returncode == code and word in done.stderr and not done.stdout
    assert "Traceback" not in done.stderr


def test_answers_are_summed_up_in_words():
    answers = [json.loads(f'{{"outcome": "{word}"}}') for word in ("complete", "error", "budget")]
    assert backfill.summary(answers, 5) == (
        "1 measured, 1 not measured, 1 measured in part, 2 left; "
        "the same command goes on where this stopped"
    )
