"""What did each commit change? A table for each device and commit, and the levels of each series.

Runs of a dirty tree and runs without a commit stay in the history, but no table rests on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from collector.history.model import History, Point, RunInfo, SeriesKey
from collector.history.sides import Index, usable
from collector.history.tables import CommitTable as CommitTable
from collector.history.tables import Row as Row
from collector.history.tables import commit_table
from collector.levels import Levels, find_levels
from dashboard.cause_groups import CHANGES


@dataclass(frozen=True, slots=True)
class SeriesLevels:
    """The levels of a series within one epoch; index i of `levels` is `points[i]`."""

    key: SeriesKey
    points: tuple[Point, ...]
    levels: Levels


def left_out_runs(history: History) -> tuple[RunInfo, ...]:
    """Return the runs that no table of commits rests on."""
    return tuple(run for run in history.runs.values() if not usable(run))


def commit_tables(
    history: History, index: Index | None = None, whole: int | None = None
) -> tuple[CommitTable, ...]:
    """Return the table of each device and commit, newest commit first.

    Only the last `whole` of each device keep rows where nothing changed: a long history has too
    many. An `index` of the same history keeps what it found, such as the noise of each series.
    """
    index = index or Index(history)
    tables = chain.from_iterable(_tables_of(index, device, whole) for device in index.commits)
    return tuple(sorted(tables, key=lambda table: (-table.after.order, table.device)))


def _tables_of(index: Index, device: str, whole: int | None) -> Iterator[CommitTable]:
    pairs = list(pairwise(index.commits[device]))
    old = len(pairs) - whole if whole is not None else 0
    for place, (before, after) in enumerate(pairs):
        table = commit_table(index, device, before, after)
        calm = not set(table.counts) & set(CHANGES)
        yield replace(table, rows=()) if calm and place < old else table


def since_first(history: History, device: str) -> CommitTable | None:
    """Return the newest commit of a device against its oldest: what crept in by small steps."""
    index = Index(history)
    commits = index.commits.get(device, ())
    if len(commits) < 2:
        return None
    return commit_table(index, device, commits[0], commits[-1])


def series_levels(
    index: Index, keys: Iterable[SeriesKey]
) -> Mapping[SeriesKey, tuple[SeriesLevels, ...]]:
    """Return the levels of series, one entry for each epoch; no level crosses one."""
    return {key: tuple(_levels(index, key)) for key in keys}


def _levels(index: Index, key: SeriesKey) -> Iterator[SeriesLevels]:
    for sides in index.epochs(key):
        points = tuple(side.point for side in sides)
        times_ns = [point.median_ns for point in points if point.median_ns is not None]
        yield SeriesLevels(key, points, find_levels(times_ns, noise=index.noise(key)))
