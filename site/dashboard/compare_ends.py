"""What may be an end of a comparison: a commit on a device with one toolchain, or a single run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collector.history.causes import environment_of
from collector.history.model import Point, RunInfo, SeriesKey
from collector.history.sides import Index, usable
from dashboard import format as words
from dashboard.figures import status_words

COMMITS, RUNS = 50, 20  # of each device, the newest
SUBJECT = 60
Toolchain = tuple[str, str]


@dataclass(frozen=True, slots=True)
class End:
    """All clean runs of a commit on one device with one toolchain; or, with `alone`, one run.

    `key` names it in addresses, `target` in a command.
    """

    key: str
    name: str
    device: str
    commit: str | None
    runs: tuple[RunInfo, ...]
    target: str
    alone: bool

    @property
    def newest(self) -> RunInfo:
        """Return its last run, whose environment stands for it."""
        return self.runs[-1]

    @property
    def replicates(self) -> int:
        """Number of fresh processes over all of its runs."""
        return sum(run.replicates for run in self.runs)


@dataclass(frozen=True, slots=True)
class EndRow:
    """One series at an end: its point, and what must be alike for two times to be comparable."""

    key: SeriesKey
    point: Point

    @property
    def cells(self) -> list[Any]:
        """Return what the page's script reads; a time in ns, or why there is none."""
        key, point = self.key, self.point
        sizes = ",".join(f"{name}={size}" for name, size in key.sizes)
        why = "" if point.median_ns is not None else status_words(point)
        return [
            key.op, key.implementation, key.mode, key.dtype, sizes, key.timer, key.cache,
            point.method_id, point.workload_hash, point.median_ns, len(point.medians_ns), why,
        ]  # fmt: skip


def ends_of(index: Index) -> tuple[End, ...]:
    """Return the ends of every device: commits first, the newest first, then single runs."""
    several = len({_toolchain(run) for run in index.history.runs.values()}) > 1
    made: list[End] = []
    for device in index.history.devices:
        commits = [end for one in _grouped(index, device) for end in _commit_ends(one, several)]
        whole = {end.runs[0].run_id for end in commits if len(end.runs) == 1}
        made += reversed(commits)
        made += [_run_end(run) for run in _runs(index, device) if run.run_id not in whole][:RUNS]
    return tuple(made)


def _toolchain(run: RunInfo) -> Toolchain:
    return run.versions.get("torch", ""), run.versions.get("triton", "")


def _grouped(index: Index, device: str) -> Iterator[Mapping[Toolchain, Sequence[RunInfo]]]:
    """Yield the runs of each of the last commits of a device, by toolchain."""
    for commit in index.commits.get(device, ())[-COMMITS:]:
        found: dict[Toolchain, list[RunInfo]] = {}
        for run in index.runs(device, commit.sha):
            found.setdefault(_toolchain(run), []).append(run)
        yield found


def _commit_ends(groups: Mapping[Toolchain, Sequence[RunInfo]], told: bool) -> Iterator[End]:
    """Yield the ends of a commit; their names have the toolchain where there are `several`."""
    for (torch, triton), runs in groups.items():
        run, sha = runs[-1], runs[-1].source.commit or ""
        tools = [f"torch {torch or 'none'}", f"triton {triton or 'none'}"] if told else []
        name = " · ".join([f"{sha[:8]} {_subject(run)}".strip(), *tools])
        key = ".".join([sha[:12], run.device.slug, *([torch, triton] if len(groups) > 1 else [])])
        target = sha[:12] if len(groups) == 1 else f"data/{run.file}"
        yield End(key, name, run.device.slug, sha, tuple(runs), target, alone=False)


def _subject(run: RunInfo) -> str:
    subject = run.source.subject or ""
    return subject if len(subject) <= SUBJECT else f"{subject[: SUBJECT - 1].rstrip()}…"


def _runs(index: Index, device: str) -> list[RunInfo]:
    """Return all runs of a device, clean or not, newest first."""
    found = [run for run in index.history.runs.values() if run.device.slug == device]
    return sorted(found, key=lambda run: (run.started_at, run.run_id), reverse=True)


def _run_end(run: RunInfo) -> End:
    at = f"of {run.source.commit[:8]}" if run.source.commit else "without a commit"
    clean = "" if usable(run) or not run.source.commit else " with local changes"
    when = run.started_at[:16].replace("T", " ")
    name = f"run {run.run_id[:8]} {at}{clean}, {when} UTC"
    slug = run.device.slug
    return End(f"run-{run.run_id}", name, slug, run.source.commit, (run,), f"data/{run.file}", True)


def rows_of(index: Index, end: End) -> list[EndRow]:
    """Return the series of an end; one that was measured in two ways is there twice."""
    if len(end.runs) == 1:
        return [EndRow(*pair) for pair in sorted(index.history.by_run[end.newest.run_id].items())]
    runs = {run.run_id for run in end.runs}
    return [
        EndRow(key, side.point)
        for key in sorted({key for run in runs for key in index.history.by_run[run]})
        for side in index.sides(key, end.commit or "").values()
        if runs >= set(side.run_ids)
    ]


def packed(end: End, rows: Sequence[EndRow]) -> dict[str, Any]:
    """Return an end as the page's script reads it; times are in ns."""
    return {
        "unit": "ns",
        "environment": dict(environment_of(end.newest)),
        "runs": [f"data/{run.file}" for run in end.runs],
        "replicates": end.replicates,
        "rows": [row.cells for row in rows],
    }


def told(end: End) -> str:
    """Say how much an end rests on."""
    runs = words.plural(len(end.runs), "run")
    return f"{end.name} ({runs}, {words.plural(end.replicates, 'replicate')})"
