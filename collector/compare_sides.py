"""The sides of a comparison as people name them: a run file, a commit, a tag or a branch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from collector.exit_codes import FAILED, NOT_COMPARABLE
from collector.history.acknowledged import read_acknowledged
from collector.history.cache import Cache
from collector.history.commits import first_parents, git
from collector.history.digest import Digest, digest, read_digests
from collector.history.load import make_history
from collector.history.model import Acknowledgement, Commit, History, Point
from collector.history.sides import Index
from collector.store import content_of

LEAST_PREFIX = 4
OFFERED = 5


class CompareError(RuntimeError):
    """Two sides that cannot be compared: why, what to do, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Side:
    """One side as people named it: a run of its own, or all runs of a commit.

    `dirty` says that the files of the run differed from its commit.
    """

    name: str
    commit: str | None
    run_id: str = ""
    dirty: bool = False


def fail(message: str, code: int) -> NoReturn:
    """Raise a CompareError."""
    raise CompareError(message, code)


def load(
    names: Iterable[str], data: Path, repo: Path, cache: Cache
) -> tuple[History, Mapping[str, str]]:
    """Read the data folder and the named files; a run that is in both counts once."""
    named: dict[str, Digest] = {}
    for name in names:
        if name not in named and _is_file(name):
            named[name] = _named_file(Path(name))
    runs = {name: one.run.run_id for name, one in named.items() if one.run}
    kept = [
        one
        for one in read_digests(data, cache)
        if one.run is None or one.run.run_id not in runs.values()
    ]
    distinct = {runs[name]: one for name, one in named.items()}
    acknowledged, faults = read_acknowledged(data)
    line = first_parents(repo)
    return make_history([*kept, *distinct.values()], line, faults, acknowledged), runs


def _is_file(name: str) -> bool:
    """Tell whether a side is a file; what no path can be, is none."""
    try:
        if name and Path(name).is_dir() and "/" in name:
            fail(f"{name}: a folder; name one run file in it, or a commit", FAILED)
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def _named_file(path: Path) -> Digest:
    found = digest(str(path), content_of(path))
    if found.run is None:
        fail("\n".join(map(str, found.problems)), FAILED)
    if not found.points:
        fail(f"{path}: holds no measurement: nothing to compare", FAILED)
    return found


def find_side(name: str, repo: Path, history: History, named: Mapping[str, str]) -> Side:
    """Find what a name stands for."""
    if name in named:
        run_id = named[name]
        source = history.runs[run_id].source
        return Side(name, source.commit, run_id, source.dirty is True)
    index = Index(history)
    shas = {commit.sha for commits in index.commits.values() for commit in commits}
    told = _git_commit(repo, name)
    if told in shas:
        return Side(name, told)
    begin = [sha for sha in shas if re.fullmatch(r"[0-9a-f]+", name) and sha.startswith(name)]
    if len(name) >= LEAST_PREFIX and len(begin) == 1:
        return Side(name, begin[0])
    if len(begin) > 1:
        fail(f"{name}: {len(begin)} measured commits begin so; give more digits", FAILED)
    offer = _offer(history, shas)
    if told is None:
        what = f"{name}: no run file, commit, tag or branch of that name"
        fail(f"{what}; {offer}", FAILED)
    fail(f"{name}: commit {told[:8]} has no run of a clean tree; {offer}", NOT_COMPARABLE)


def _offer(history: History, shas: Iterable[str]) -> str:
    """Name the newest commits that could be compared."""
    known = set(shas)
    newest = [commit.sha[:8] for commit in history.commits if commit.sha in known][-OFFERED:]
    return (
        f"measured were, newest last: {', '.join(newest)}" if newest else "no commit was measured"
    )


def _git_commit(repo: Path, name: str) -> str | None:
    """Return the commit that git knows by a name."""
    question = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return (git(repo, *question) or "").strip() or None


def pinned(history: History, side: Side) -> History:
    """Set a run apart from its commit, as a commit of its own at the end of the history."""
    if not side.run_id:
        return history
    run = history.runs[side.run_id]
    sha = sha_of(side)
    source = run.source.model_copy(update={"commit": sha, "dirty": False})
    commit = Commit(sha, run.source.subject or "", run.started_at, len(history.commits), False)
    return replace(
        history,
        runs={**history.runs, side.run_id: replace(run, source=source)},
        commits=(*history.commits, commit),
        series={
            key: _moved_last(points, side.run_id, sha) for key, points in history.series.items()
        },
        acknowledged=(*history.acknowledged, *_accepted_for(side, history)),
    )


def _moved_last(points: tuple[Point, ...], run_id: str, sha: str) -> tuple[Point, ...]:
    """Give the points of a run to another commit, which is the last one."""
    own = [point._replace(commit=sha) for point in points if point.run_id == run_id]
    return (*(point for point in points if point.run_id != run_id), *own) if own else points


def _accepted_for(side: Side, history: History) -> Iterator[Acknowledgement]:
    """Yield what people accepted at the commit of a run, for the run itself."""
    for one in history.acknowledged:
        if not side.dirty and (side.commit or "").startswith(one.commit):
            yield replace(one, commit=sha_of(side))


def sha_of(side: Side) -> str:
    """Return the commit that stands for a side in the history."""
    if side.run_id:
        return hashlib.sha1(f"run {side.run_id}".encode()).hexdigest()
    return side.commit or ""
