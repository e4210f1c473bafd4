"""Put commits in the order of the first parents; where git cannot say, in the order of time."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from collector.history.model import Commit
from collector.record import Run


@dataclass(frozen=True, slots=True)
class GitCommit:
    """A commit as git tells it."""

    sha: str
    committed_at: str
    subject: str


def git(repo: Path, *arguments: str) -> str | None:
    """Return what git says in a folder; None where it fails, or where there is none."""
    # A checkout that another user made is still read, never written.
    safe = ("-c", f"safe.directory={repo.resolve()}", "-C", str(repo))
    try:
        told = subprocess.run(["git", *safe, *arguments], capture_output=True, check=True).stdout
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
    return told.decode(errors="replace")


def first_parents(repo: Path) -> tuple[GitCommit, ...]:
    """Return the first-parent line of HEAD, oldest first; nothing where there is no git."""
    form = "--format=%H%x00%cI%x00%s"
    told = git(repo, "log", "--first-parent", "--reverse", form, "HEAD", "--") or ""
    return tuple(GitCommit(*line.split("\0", 2)) for line in told.split("\n") if line)


def order_commits(runs: Iterable[Run], line: Sequence[GitCommit]) -> tuple[Commit, ...]:
    """Return the commits of the runs in order; one that the line lacks goes where its time says."""
    first: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: (run.started_at, run.run_id)):
        if run.source.commit is not None:
            first.setdefault(run.source.commit, run)
    known = [commit for commit in line if commit.sha in first]
    strangers = _strangers(first, {commit.sha for commit in known})
    merged = _merge(known, strangers)
    names = {commit.sha for commit in known}
    return tuple(
        Commit(commit.sha, commit.subject, commit.committed_at, order, commit.sha in names)
        for order, commit in enumerate(merged)
    )


def _strangers(first: dict[str, Run], known: set[str]) -> list[GitCommit]:
    found = [
        GitCommit(sha, run.source.committed_at or run.started_at, run.source.subject or "")
        for sha, run in first.items()
        if sha not in known
    ]
    return sorted(found, key=lambda commit: (_seconds(commit.committed_at), commit.sha))


def _merge(known: Sequence[GitCommit], strangers: Sequence[GitCommit]) -> list[GitCommit]:
    """Insert each stranger behind the last known commit that is not younger."""
    after: dict[int, list[GitCommit]] = {}
    times = [_seconds(commit.committed_at) for commit in known]
    for stranger in strangers:
        when = _seconds(stranger.committed_at)
        place = max((i + 1 for i, time in enumerate(times) if time <= when), default=0)
        after.setdefault(place, []).append(stranger)
    merged = list(after.get(0, ()))
    for place, commit in enumerate(known, start=1):
        merged += [commit, *after.get(place, ())]
    return merged


def _seconds(text: str) -> float:
    """Read an ISO time; what is no time sorts first."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
