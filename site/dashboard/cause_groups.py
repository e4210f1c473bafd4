"""Changes grouped by commit range, regime and cause: what one cause did is told once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from collector.history.model import Commit, History, Point, SeriesKey
from collector.history.roof import roof_in
from collector.history.sides import usable
from collector.history.tables import CommitTable, Row
from dashboard.svg import Spark, sparkline

CHANGES = ("broken", "regressed", "improved", "same-code")
CAUSES: Mapping[str, str] = {
    "source": "source of the kernel",
    "toolchain": "toolchain",
    "launch": "launch constants",
    "not-kernel": "not the kernel",
    "not-ours": "not this project's kernel",
    "host": "host",
    "clocks": "clocks",
    "machine": "machine",
    "card": "another card",
    "untold": "not told by the records",
}
UNKNOWN = "unknown"
SPARK_COMMITS = 50
NAMED = 6


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """Series that changed alike since one commit: one verdict, one regime, the same causes."""

    table: CommitTable
    before: Commit
    verdict: str
    regime: str
    causes: tuple[str, ...]
    rows: tuple[Row, ...]
    spark: Spark | None

    @property
    def mean_log(self) -> float | None:
        """Return the geometric mean of the changes, as a log ratio."""
        found = [row.judgement.comparison.log_ratio for row in self.rows if row.judgement]
        return fmean(found) if found else None

    @property
    def apart_ns(self) -> tuple[float, float] | None:
        """Return the least and the largest change in ns; near one another, a fixed cost moved."""
        pairs = [_times(row) for row in self.rows]
        found = sorted(b - a for a, b in pairs if a is not None and b is not None)
        return (found[0], found[-1]) if found else None

    @property
    def names(self) -> list[tuple[str, str, int]]:
        """Return op, implementation and number of series, the most frequent first."""
        found = Counter((row.key.op, row.key.implementation) for row in self.rows)
        return [(*name, count) for name, count in found.most_common()]

    @property
    def ops(self) -> list[str]:
        """Return the ops, each once."""
        return sorted({row.key.op for row in self.rows})

    @property
    def states(self) -> list[str]:
        """Return `open` and `acknowledged`, as far as there are such rows."""
        return sorted({state_of(row) for row in self.rows})


def cause_groups(history: History, tables: Sequence[CommitTable]) -> list[CauseGroup]:
    """Return the groups of every commit, newest commit first, the largest group first."""
    return [group for table in tables for group in _of_table(history, table)]


def _of_table(history: History, table: CommitTable) -> list[CauseGroup]:
    found: dict[tuple[Commit, str, str, tuple[str, ...]], list[Row]] = {}
    for row in table.rows:
        if row.verdict in CHANGES:
            before = history.by_sha[row.before_commit or table.before.sha]
            name = (before, row.verdict, regime_of(history, row), kinds_of(row))
            found.setdefault(name, []).append(row)
    made = [
        CauseGroup(table, *name, tuple(rows), _spark(history, table, rows))
        for name, rows in found.items()
    ]
    return sorted(made, key=lambda group: (CHANGES.index(group.verdict), -len(group.rows)))


def regime_of(history: History, row: Row) -> str:
    """Name what limits a series now; before, where it has no time any more."""
    timed = [point for point in (row.after, row.before) if point and point.median_ns is not None]
    return regime_at(history, row.key, timed[0]) if timed else UNKNOWN


def regime_at(history: History, key: SeriesKey, point: Point) -> str:
    """Name what limits a point, by the limits measured in its own run."""
    roof = roof_in(history, key, point)
    return (roof.regime if roof else None) or UNKNOWN


def kinds_of(row: Row) -> tuple[str, ...]:
    """Return the kinds of causes that the records tell, each once, in the order of `CAUSES`."""
    told = {cause.kind for cause in row.causes}
    return tuple(kind for kind in CAUSES if kind in told) or ("untold",)


def state_of(row: Row) -> str:
    """Say whether people accepted a change."""
    return "acknowledged" if row.acknowledged else "open"


def _times(row: Row) -> tuple[float | None, float | None]:
    before, after = (point.median_ns if point else None for point in (row.before, row.after))
    return before, after


def _spark(history: History, table: CommitTable, rows: Sequence[Row]) -> Spark | None:
    """Draw the mean of these series over the commits, each over its own time before the change."""
    by_commit: dict[str, list[float]] = {}
    for row in rows:
        before_ns, _ = _times(row)
        if row.before is not None and before_ns is not None:
            for sha, time_ns in _alike(history, row.key, row.before):
                by_commit.setdefault(sha, []).append(math.log(time_ns / before_ns))
    means = [fmean(by_commit[one.sha]) for one in history.commits if one.sha in by_commit]
    return sparkline([math.exp(mean) for mean in means[-SPARK_COMMITS:]])


def _alike(history: History, key: SeriesKey, like: Point) -> Iterator[tuple[str, float]]:
    """Yield commit and time of each run that measured a series as a point was, newest first.

    Of runs of a clean tree alone, and of as many commits as are drawn.
    """
    seen: set[str] = set()
    for point in reversed(history.series[key]):
        same = (point.method_id, point.workload_hash) == (like.method_id, like.workload_hash)
        if same and point.commit and point.median_ns and usable(history.runs[point.run_id]):
            seen.add(point.commit)
            if len(seen) > SPARK_COMMITS:
                return
            yield point.commit, point.median_ns
