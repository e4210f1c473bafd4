"""Make the history: everything that the records say, merged into points and put in order."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from collector.history.acknowledged import read_acknowledged
from collector.history.cache import NO_CACHE, Cache
from collector.history.commits import GitCommit, first_parents, order_commits
from collector.history.digest import Digest, Names, read_digests
from collector.history.machine import ceilings_of
from collector.history.model import (
    Acknowledgement,
    Commit,
    History,
    Point,
    Problem,
    RunInfo,
    SeriesKey,
)
from collector.record import OpInfo, Run


@dataclass(frozen=True, slots=True)
class Usable:
    """A file with a run line."""

    run: Run
    digest: Digest


def load_history(data: Path, repo: Path | None = None, cache: Cache = NO_CACHE) -> History:
    """Read all files under a data folder; git in `repo` gives the order of the commits."""
    with no_collection():
        digests = read_digests(data, cache)
        acknowledged, faults = read_acknowledged(data)
        line = first_parents(repo) if repo else ()
        return make_history(digests, line, faults, acknowledged)


def make_history(
    digests: Iterable[Digest],
    line: Sequence[GitCommit],
    problems: Iterable[Problem] = (),
    acknowledged: Sequence[Acknowledgement] = (),
) -> History:
    """Put together what was read; the order of the files does not matter."""
    known = list(digests)
    files, twins = _distinct(known)
    faults = [*problems, *twins, *(fault for one in known for fault in one.problems)]
    commits = order_commits((one.run for one in files), line)
    ordered = _in_order(files, commits)
    sentinels = {one.run.run_id: one.digest.sentinels for one in ordered}
    return History(
        runs={one.run.run_id: _run_info(one) for one in ordered},
        commits=commits,
        devices={one.run.device.slug: one.run.device for one in files},
        ops=_catalogue(ordered),
        series=_series(ordered),
        sentinels=sentinels,
        ceilings={run_id: ceilings_of(points) for run_id, points in sentinels.items()},
        problems=tuple(sorted(faults, key=lambda p: (p.file, p.line, p.field, p.message))),
        records=sum(one.digest.records for one in files),
        acknowledged=tuple(acknowledged),
    )


def _distinct(digests: Iterable[Digest]) -> tuple[list[Usable], list[Problem]]:
    """Return the usable files, oldest run first; a second file of one run is a problem."""
    found = [Usable(one.run, one) for one in digests if one.run is not None]
    found.sort(key=lambda one: (one.run.started_at, one.run.run_id, one.digest.file))
    first: dict[str, Usable] = {}
    twins = []
    for one in found:
        if first.setdefault(one.run.run_id, one) is not one:
            there = first[one.run.run_id].digest.file
            told = f"run {one.run.run_id} is already in {there}: this file is left out; delete one"
            twins.append(Problem(one.digest.file, 1, "run_id", told))
    return list(first.values()), twins


def _in_order(files: Sequence[Usable], commits: Sequence[Commit]) -> list[Usable]:
    order = {commit.sha: commit.order for commit in commits}
    last = len(order)
    return sorted(
        files,
        key=lambda one: (
            order.get(one.run.source.commit or "", last),
            one.run.started_at,
            one.run.run_id,
        ),
    )


def _series(files: Sequence[Usable]) -> Mapping[SeriesKey, tuple[Point, ...]]:
    """Return the points of every series, in the order of the files."""
    names = Names()
    keys: dict[SeriesKey, SeriesKey] = {}
    found: dict[SeriesKey, list[Point]] = {}
    for one in files:
        for written, points in one.digest.points.items():
            if written not in keys:
                keys[written] = written._replace(sizes=names.sizes(written.sizes))
            found.setdefault(keys[written], []).extend(points)
    return {key: tuple(found[key]) for key in sorted(found)}


def _run_info(one: Usable) -> RunInfo:
    run = one.run
    return RunInfo(
        run_id=run.run_id,
        file=one.digest.file,
        started_at=run.started_at,
        purpose=run.purpose,
        command=tuple(run.command),
        device=run.device,
        source=run.source,
        versions=run.versions,
        flags=tuple(run.flags),
        end=one.digest.end,
        replicates=one.digest.replicates,
        ops=tuple(op.name for op in run.ops),
        methods=run.methods,
        ranks=run.ranks,
    )


def _catalogue(files: Sequence[Usable]) -> Mapping[str, OpInfo]:
    """Return the ops, each as the newest commit describes it."""
    found = {op.name: op for one in files for op in one.run.ops}
    return {name: found[name] for name in sorted(found)}


@contextmanager
def no_collection() -> Iterator[None]:
    """Hold the garbage collector: a history is millions of objects, of which none is dropped."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
