"""Make the history: everything that the records say, merged into points and put in order."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from collector.record import Measurement, OpInfo
from dashboard.acknowledged import read_acknowledged
from dashboard.commits import GitCommit, first_parents, order_commits
from dashboard.machine import ceilings_of, sentinel_points
from dashboard.merging import Located, merge
from dashboard.model import (
    Acknowledgement,
    Commit,
    History,
    Point,
    Problem,
    RunInfo,
    SeriesKey,
    Sizes,
)
from dashboard.reading import RunFile, read_files

# The fields of a SeriesKey: plain tuples hash much faster, and there is one for every line.
CaseName: TypeAlias = tuple[str, str, str, str, str, Sizes, str, str]


def load_history(data: Path, repo: Path | None = None) -> History:
    """Read all files under a data folder; git in `repo` gives the order of the commits."""
    with _no_collection():
        files, problems = read_files(data)
        acknowledged, faults = read_acknowledged(data)
        line = first_parents(repo) if repo else ()
        return make_history(files, line, [*problems, *faults], acknowledged)


def make_history(
    files: Sequence[RunFile],
    line: Sequence[GitCommit],
    problems: Iterable[Problem] = (),
    acknowledged: Sequence[Acknowledgement] = (),
) -> History:
    """Merge what was read; the order of the files does not matter."""
    commits = order_commits((one.run for one in files), line)
    ordered = _in_order(files, commits)
    faults = list(problems)
    series = _series(ordered, faults)
    sentinels = {one.run.run_id: sentinel_points(one) for one in ordered}
    faults += [fault for one in ordered for fault in _failed_sentinels(one)]
    by_start = sorted(ordered, key=lambda one: (one.run.started_at, one.run.run_id))
    return History(
        runs={one.run.run_id: _run_info(one) for one in ordered},
        commits=commits,
        devices={one.run.device.slug: one.run.device for one in by_start},
        ops=_catalogue(ordered),
        series=series,
        sentinels=sentinels,
        ceilings={run_id: ceilings_of(points) for run_id, points in sentinels.items()},
        problems=tuple(sorted(faults, key=lambda p: (p.file, p.line, p.field, p.message))),
        records=sum(one.records for one in files),
        acknowledged=tuple(acknowledged),
    )


def _in_order(files: Sequence[RunFile], commits: Sequence[Commit]) -> list[RunFile]:
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


def _series(
    files: Sequence[RunFile], problems: list[Problem]
) -> Mapping[SeriesKey, tuple[Point, ...]]:
    """Return the points of every series, in the order of the files."""
    names = Names()
    found: dict[CaseName, list[Point]] = {}
    for one in files:
        for name, lines in _cases(one, names, problems).items():
            points = merge(one.run.run_id, one.run.source.commit, one.file, lines)
            found.setdefault(name, []).extend(points)
    keys = {SeriesKey(*name): name for name in found}
    return {key: tuple(found[keys[key]]) for key in sorted(keys)}


class Names:
    """Sizes by content: one order of their names wherever they were written in another."""

    def __init__(self) -> None:
        self._written: dict[Sizes, Sizes] = {}
        self._sizes: dict[frozenset[tuple[str, int]], Sizes] = {}

    def sizes(self, sizes: Mapping[str, int]) -> Sizes:
        """Return the sizes as first written."""
        written = tuple(sizes.items())
        if written not in self._written:
            self._written[written] = self._sizes.setdefault(frozenset(written), written)
        return self._written[written]


def _cases(one: RunFile, names: Names, problems: list[Problem]) -> dict[CaseName, list[Located]]:
    """Group the lines of one run by case and give back what later lines leave out."""
    device = one.run.device.slug
    first: dict[tuple[object, ...], Measurement] = {}
    taken: set[tuple[CaseName, int]] = set()
    cases: dict[CaseName, list[Located]] = {}
    for number, line in one.measurements:
        case, replicate = line.case, line.replicate
        workload = (
            device, case.op, case.implementation, case.mode, case.workload.dtype,
            names.sizes(case.workload.sizes),
        )  # fmt: skip
        name = (*workload, case.timer, case.cache)
        if (name, replicate) in taken:
            told = f"replicate {replicate} of this case was already measured; the first counts"
            problems.append(Problem(one.file, number, "case", told))
            continue
        taken.add((name, replicate))
        details = first.setdefault((workload, replicate), line)
        cases.setdefault(name, []).append(Located(number, line, details))
    return cases


def _run_info(one: RunFile) -> RunInfo:
    run = one.run
    replicates = {line.replicate for _, line in one.measurements}
    return RunInfo(
        run_id=run.run_id,
        file=one.file,
        started_at=run.started_at,
        purpose=run.purpose,
        command=tuple(run.command),
        device=run.device,
        source=run.source,
        versions=run.versions,
        flags=tuple(run.flags),
        end=one.end,
        replicates=len(replicates),
        ops=tuple(op.name for op in run.ops),
        methods=run.methods,
    )


def _catalogue(files: Sequence[RunFile]) -> Mapping[str, OpInfo]:
    """Return the ops, each as the newest commit describes it."""
    found = {op.name: op for one in files for op in one.run.ops}
    return {name: found[name] for name in sorted(found)}


def _failed_sentinels(one: RunFile) -> Iterator[Problem]:
    for number, sentinel in one.sentinels:
        if sentinel.status not in ("passed", "unavailable"):
            told = f"sentinel {sentinel.name}: {sentinel.status}: {sentinel.reason or 'no reason'}"
            yield Problem(one.file, number, "status", told)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector: a load makes millions of objects and drops none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
