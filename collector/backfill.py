"""Measure past commits with today's collector, each in a git worktree of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from collector.crew import how_it_ended, probe
from collector.device import ROOT, commit_named, git
from collector.exit_codes import FAILED, FINE, WRONG
from collector.history.format import plural, short
from collector.plan import CollectOptions, PlanError

# What measures and judges is of today for every commit. The rest of `kernels` is what is measured.
TODAY = (
    "collector",
    "kernels/spec.py",
    "kernels/registry.py",
    "kernels/numerics.py",
    "kernels/sentinels.py",
    "kernels/sizes.py",
)
CHOICES = {
    "ops": "--op", "implementations": "--implementation", "workloads": "--workload",
    "dtypes": "--dtype", "modes": "--mode", "timers": "--timer", "caches": "--cache",
}  # fmt: skip

Answer = dict[str, Any]
Tell = Callable[[str], None]


class BackfillError(RuntimeError):
    """Nothing can be measured; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Past:
    """A commit to measure, and the ops that it has."""

    sha: str
    subject: str
    ops: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return how people know it."""
        return f"{short(self.sha)} {self.subject}"


def backfill(span: str, options: CollectOptions, tell: Tell, *, changed: bool = False) -> int:
    """Measure what the commits of a range lack, newest first; returns the exit code.

    `changed` leaves out commits that changed nothing below `kernels/`.
    """
    commits = having(past_commits(span, changed=changed), options.ops)
    tell_differences(tell)
    tell(f"{plural(len(commits), 'commit')} of {span}, newest first")
    found, answers = probe(), []
    end = None if options.budget_s is None else time.monotonic() + options.budget_s
    for commit in commits:
        left_s = None if end is None else end - time.monotonic()
        if left_s is not None and left_s <= 0:
            answers.append({"outcome": "budget", "exit_code": FINE})
        else:
            tell(commit.name)
            task = replace(options, commit=commit.sha, budget_s=left_s, purpose="backfill")
            answers.append(one_commit(commit, task, found))
        if "error" in answers[-1]:
            tell(f"{commit.name}: not measured: {answers[-1]['error']}")
        if answers[-1]["outcome"] in ("budget", "interrupted"):
            break
    tell(summary(answers, len(commits)))
    return exit_code(answers)


def past_commits(span: str, *, changed: bool) -> list[Past]:
    """Return the first-parent commits of a range, newest first; an error without any."""
    first, dots, last = span.partition("..")
    if not dots or not first or last.startswith("."):
        raise PlanError(f"{span!r} is no range: give A..B, for example v1.0..main or HEAD~9..")
    if git("rev-parse", "--git-dir") is None:
        raise BackfillError(f"{ROOT} is no git checkout: clone the project to have its past")
    for name in (first, last or "HEAD"):
        if commit_named(name) is None:
            raise BackfillError(f"{name}: git knows no such commit; `git fetch` may bring it")
    only = ("kernels",) if changed else ()
    asked = ("--first-parent", "--format=%H%x00%s", f"{first}..{last or 'HEAD'}", "--", *only)
    rows = [line.split("\0", 1) for line in (git("log", *asked) or "").split("\n") if line]
    if not rows:
        raise BackfillError(f"{span}: no commit is in it; the older one comes first")
    return [Past(sha, subject, op_names(sha)) for sha, subject in rows]


def op_names(sha: str) -> tuple[str, ...]:
    """Return the ops of a commit without checking it out."""
    listed = git("ls-tree", "--name-only", sha, "kernels/ops/") or ""
    names = [Path(line).stem for line in listed.splitlines() if line.endswith(".py")]
    return tuple(name for name in names if not name.startswith("_"))


def having(commits: Sequence[Past], ops: Sequence[str]) -> list[Past]:
    """Leave the commits that have at least one of these ops; PlanError when none has."""
    kept = [commit for commit in commits if set(commit.ops) & set(ops or commit.ops)]
    if not kept:
        there = sorted({op for commit in commits for op in commit.ops})
        asked = ", ".join(ops) or "any op"
        raise PlanError(f"no commit has {asked}; there are: {', '.join(there) or 'none'}")
    return kept


def tell_differences(tell: Tell) -> None:
    """Say when what measures is no commit that others could use."""
    if git("status", "--porcelain", "--", *TODAY):
        tell("collector/ or what it needs of kernels/ differs from its commit: "
             "the numbers are those of the files as they are here")  # fmt: skip


def one_commit(commit: Past, options: CollectOptions, found: dict[str, Any]) -> Answer:
    """Measure one commit in a worktree; the answer holds `error` where that could not be done."""
    try:
        with worktree(commit.sha) as tree:
            return measured(tree, options, found)
    except BackfillError as error:
        return {"outcome": "error", "exit_code": FAILED, "error": str(error)}
    except KeyboardInterrupt:
        return {"outcome": "interrupted", "exit_code": FAILED}


@contextmanager
def worktree(sha: str) -> Iterator[Path]:
    """Check out the kernels of a commit outside this checkout, with today's collector."""
    with tempfile.TemporaryDirectory(prefix="almanac-") as folder:
        tree = Path(folder) / "tree"
        no_hooks = ("-c", "core.hooksPath=/dev/null")
        try:
            made = git(*no_hooks, "worktree", "add", "--detach", "--no-checkout", str(tree), sha)
            if made is None:
                raise BackfillError("git cannot make a worktree of it")
            if git("-C", str(tree), *no_hooks, "checkout", sha, "--", "kernels") is None:
                raise BackfillError("it has no kernels/")
            lay_over(tree)
            yield tree
        finally:
            git("worktree", "remove", "--force", "--force", str(tree))


def lay_over(tree: Path) -> None:
    """Put what measures into a tree, as it is here."""
    for name in TODAY:
        here, there = ROOT / name, tree / name
        if here.is_dir():
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(here, there)


def measured(tree: Path, options: CollectOptions, found: dict[str, Any]) -> Answer:
    """Let a process in the tree measure; Ctrl-C ends it and waits until its file is closed."""
    task = {"options": asdict(options) | {"output": str(options.output.resolve())}, "found": found}
    command = [sys.executable, "-m", "collector.past", *repeating(options)]
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": path}, stdin=-1, stdout=-1, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            answer = process.stdout.read()
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
    if not answer:
        raise BackfillError(f"its process ended with {how_it_ended(process.returncode)}")
    read: Answer = json.loads(answer)
    return read


def repeating(options: CollectOptions) -> list[str]:
    """Return the command line that measures this commit alone, which the run records."""
    words = ["backfill", f"{options.commit}^..{options.commit}"]
    for field, option in CHOICES.items():
        for value in getattr(options, field):
            words += [option, value]
    return [*words, "--replicates", str(options.replicates)]


def summary(answers: Sequence[Answer], commits: int) -> str:
    """Say what came of all commits."""
    names = {"complete": "measured", "budget": "measured in part", "error": "not measured"}
    found = Counter(names.get(one["outcome"], one["outcome"]) for one in answers)
    said = ", ".join(f"{count} {what}" for what, count in found.items())
    if answers and answers[-1]["outcome"] in ("budget", "interrupted"):
        left = commits - len(answers)
        return f"{said}, {left} left; the same command goes on where this stopped"
    return said


def exit_code(answers: Sequence[Answer]) -> int:
    """Return 4 for a wrong result, 1 when interrupted or nothing could be measured, else 0."""
    if any(one["exit_code"] == WRONG for one in answers):
        return WRONG
    outcomes = {one["outcome"] for one in answers}
    return FAILED if outcomes == {"error"} or "interrupted" in outcomes else FINE
