"""The pages of what changed: regressions with a feed, and a table for each commit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from statistics import fmean

from collector.history.model import Commit, History, SeriesKey
from collector.history.processes import spread
from collector.levels import ChangePoint, Level
from dashboard import format as words
from dashboard.book import Book
from dashboard.cause_groups import (
    CAUSES,
    CHANGES,
    NAMED,
    CauseGroup,
    cause_groups,
    kinds_of,
    regime_at,
    regime_of,
    state_of,
)
from dashboard.code_checks import checks
from dashboard.compiler import Evidence, check_context, commit_file, evidence, step_context
from dashboard.op_page import op_path
from dashboard.regressions import CommitTable, Row, SeriesLevels, left_out_runs, series_levels
from dashboard.svg import Spark, sparkline

File = tuple[str, bytes]
COMMIT_PAGES = 50
WHOLE_TABLES = 10
ROWS_SHOWN = 60
FEED = "regressions/feed.xml"
FEED_ENTRIES = 50
CODE_TOLD = 3
STEP_JOBS = 8
STATES = ("open", "acknowledged", "new", "confirmed", "reverted")
REST = {
    "inconclusive": "inconclusive",
    "unchanged": "unchanged",
    "missing": "missing: measured before and not here",
    "incomparable": "incomparable: another method, workload or version",
    "new": "new: first measured here",
    "unmeasured": "without a time on both sides",
}
ORDER = (*CHANGES, *REST)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one series at one commit."""

    table: CommitTable
    row: Row


@dataclass(frozen=True, slots=True)
class Step:
    """A change of level in the history of a series; `other_card` where no card measured both."""

    key: SeriesKey
    commit: str
    before_ns: float
    after_ns: float
    change: ChangePoint
    other_card: bool
    regime: str
    spark: Spark | None

    @property
    def verdict(self) -> str:
        """Return which way the level went, in the words of verdicts."""
        return "regressed" if self.change.log_ratio > 0 else "improved"


@dataclass(frozen=True, slots=True)
class Group:
    """Changes of one kind of one implementation at one commit: mostly one cause, told once.

    `compared` counts all series of that implementation that were compared there.
    """

    table: CommitTable
    op: str
    implementation: str
    verdict: str
    rows: tuple[Row, ...]
    compared: int

    @property
    def log_ratios(self) -> list[float]:
        """Return the changes that have a size, smallest first."""
        return sorted(row.judgement.comparison.log_ratio for row in self.rows if row.judgement)

    @property
    def mean_log(self) -> float | None:
        """Return the geometric mean of the changes, as a log ratio."""
        return fmean(self.log_ratios) if self.log_ratios else None

    @property
    def causes(self) -> tuple[str, ...]:
        """Return what the records say, each thing once, the most frequent first."""
        told = Counter(cause.text for row in self.rows for cause in row.causes)
        return tuple(text for text, _ in told.most_common(3))

    @property
    def timers(self) -> tuple[str, ...]:
        """Return the timers and cache states that changed."""
        return tuple(sorted({f"{row.key.timer} {row.key.cache}" for row in self.rows}))


def groups(tables: Sequence[CommitTable]) -> list[Group]:
    """Group the changes of every commit, newest commit first, the largest group first."""
    return [group for table in tables for group in _groups_of(table)]


def _groups_of(table: CommitTable) -> list[Group]:
    found: dict[tuple[str, str, str], list[Row]] = {}
    compared: Counter[tuple[str, str]] = Counter()
    for row in table.rows:
        name = (row.key.op, row.key.implementation)
        compared[name] += row.judgement is not None or row.verdict == "broken"
        if row.verdict in CHANGES:
            found.setdefault((*name, row.verdict), []).append(row)
    made = [
        Group(table, op, name, verdict, tuple(rows), compared[op, name])
        for (op, name, verdict), rows in found.items()
    ]
    return sorted(made, key=lambda group: (CHANGES.index(group.verdict), -len(group.rows)))


def commit_path(commit: Commit) -> str:
    """Return where the page of a commit is."""
    return commit_file(commit.sha)


def sizes_text(key: SeriesKey) -> str:
    """Write the sizes and type of a series."""
    return ", ".join([*(f"{name} {words.binary(size)}" for name, size in key.sizes), key.dtype])


def change_pages(
    book: Book, tables: tuple[CommitTable, ...], steps: Sequence[Step]
) -> Iterator[File]:
    """Return regressions, feed, list of commits and a page for each recent or changed commit."""
    changes = [
        Change(table, row) for table in tables for row in table.rows if row.verdict in CHANGES
    ]
    paged = paged_commits(book, tables)
    yield _regressions(book, tables, changes, paged, steps)
    yield FEED, _feed(book, changes, paged)
    yield _commits(book, tables, paged)
    whole = {commit.sha for commit in paged[-WHOLE_TABLES:]}
    for commit in paged:
        here = [table for table in tables if table.after.sha == commit.sha]
        yield _commit(book, commit, here, commit.sha in whole)


def paged_commits(book: Book, tables: tuple[CommitTable, ...]) -> list[Commit]:
    """Return the commits that have a page: the last ones, and those that changed something."""
    recent = {commit.sha for commit in book.history.commits[-COMMIT_PAGES:]}
    changed = {t.after.sha for t in tables if set(t.counts) & {"broken", "regressed", "improved"}}
    return [c for c in book.history.commits if c.sha in recent | changed]


def _regressions(
    book: Book,
    tables: Sequence[CommitTable],
    changes: list[Change],
    paged: list[Commit],
    steps: Sequence[Step],
) -> File:
    found = cause_groups(book.history, tables)
    return book.write(
        "regressions.md",
        "regressions.md.j2",
        "Regressions",
        tables=tables,
        changes=changes,
        groups=groups(tables),
        cause_groups=found,
        cause_words=CAUSES,
        named=NAMED,
        regime_of=lambda row: regime_of(book.history, row),
        kinds_of=kinds_of,
        state_of=state_of,
        steps=steps,
        filters=_filters(found, steps),
        paged={commit.sha for commit in paged},
        sizes_text=sizes_text,
        op_path=op_path,
        commit_path=commit_path,
        code=code_of(book),
        left_out=left_out_runs(book.history),
    )


def _filters(
    found: Sequence[CauseGroup], steps: Sequence[Step]
) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return name, label and options of each filter that has something to choose from."""
    named = {"regressed": "slower", "improved": "faster"}
    verdicts = {g.verdict for g in found} | {s.verdict for s in steps}
    states = {state for g in found for state in g.states} | {s.change.state for s in steps}
    options = {
        ("state", "State"): {state: state for state in STATES if state in states},
        ("verdict", "Verdict"): {v: named.get(v, v) for v in CHANGES if v in verdicts},
        ("regime", "Regime"): _same({g.regime for g in found} | {s.regime for s in steps}),
        ("cause", "Cause"): {
            kind: words for kind, words in CAUSES.items() if any(kind in g.causes for g in found)
        },
        ("op", "Op"): _same({op for g in found for op in g.ops} | {s.key.op for s in steps}),
        ("device", "Device"): _same(
            {g.table.device for g in found} | {s.key.device for s in steps}
        ),
    }
    return [(*name, list(one.items())) for name, one in options.items() if len(one) > 1]


def _same(names: set[str]) -> dict[str, str]:
    return {name: name for name in sorted(names)}


def find_steps(book: Book) -> list[Step]:
    """Return the changes of level that the histories show, the largest first."""
    keys = list(book.history.series)
    size = max(1, -(-len(keys) // STEP_JOBS))
    jobs = [partial(_steps, book, keys[at : at + size]) for at in range(0, len(keys), size)]
    found = chain.from_iterable(spread(jobs))
    return sorted(found, key=lambda step: -abs(step.change.log_ratio))


def _steps(book: Book, keys: Sequence[SeriesKey]) -> list[Step]:
    levels = series_levels(book.index, keys).items()
    epochs = [(key, one) for key, ones in levels for one in ones]
    return [step for key, epoch in epochs for step in _steps_of(book.history, key, epoch)]


def _steps_of(history: History, key: SeriesKey, epoch: SeriesLevels) -> Iterator[Step]:
    levels = epoch.levels.levels
    for change, (before, after) in zip(epoch.levels.changes, pairwise(levels), strict=True):
        commit = epoch.points[change.index].commit or ""
        a, b = (_cards(history, epoch, level) for level in (before, after))
        apart = bool(a and b) and not a & b
        regime = regime_at(history, key, epoch.points[change.index])
        spark = _spark(epoch, before.time_ns)
        yield Step(key, commit, before.time_ns, after.time_ns, change, apart, regime, spark)


def _spark(epoch: SeriesLevels, level_ns: float) -> Spark | None:
    """Draw the series over the commits of its epoch, dashed where its level was before."""
    times_ns = [point.median_ns for point in epoch.points[-COMMIT_PAGES:] if point.median_ns]
    return sparkline([time_ns / level_ns for time_ns in times_ns])


def _cards(history: History, epoch: SeriesLevels, level: Level) -> set[str]:
    runs = (history.runs[point.run_id] for point in epoch.points[level.start : level.stop])
    return {run.device.uuid_hash for run in runs if run.device.uuid_hash}


def _commits(book: Book, tables: Sequence[CommitTable], paged: list[Commit]) -> File:
    by_commit: dict[str, list[CommitTable]] = {}
    for table in tables:
        by_commit.setdefault(table.after.sha, []).append(table)
    runs: dict[str, int] = {}
    for run in book.history.runs.values():
        runs[run.source.commit or ""] = runs.get(run.source.commit or "", 0) + 1
    return book.write(
        "commits/index.md",
        "commits.md.j2",
        "Commits",
        commits=list(reversed(book.history.commits)),
        tables=by_commit,
        runs=runs,
        paged={commit.sha for commit in paged},
        commit_path=commit_path,
        left_out=left_out_runs(book.history),
    )


def _commit(book: Book, commit: Commit, tables: list[CommitTable], whole: bool) -> File:
    return book.write(
        commit_path(commit),
        "commit.md.j2",
        f"Commit {commit.sha[:8]}: {commit.subject}".removesuffix(": "),
        commit=commit,
        groups=groups(tables),
        whole=whole,
        rows_shown=ROWS_SHOWN,
        tables=[(table, sorted(table.rows, key=_rank)) for table in tables],
        runs=[run for run in book.history.runs.values() if run.source.commit == commit.sha],
        sizes_text=sizes_text,
        op_path=op_path,
        changes=CHANGES,
        rest=_rest,
        drifts=_drifts,
        code=code_of(book),
        steps=book.code.steps_at(commit.sha),
        **step_context(book),
        **check_context(*checks(book.history, book.code, commit.sha)),
    )


def code_of(book: Book) -> Callable[[CommitTable, Sequence[Row]], list[Evidence]]:
    """Return what tells the code changes that go with changes of time, the most frequent first."""

    def told(table: CommitTable, rows: Sequence[Row]) -> list[Evidence]:
        found = Counter(made for row in rows if (made := evidence(book, table, row)))
        return [one for one, _ in found.most_common(CODE_TOLD)]

    return told


def _rest(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return what did not change, by verdict, each with words for it."""
    found = [(words, [row for row in rows if row.verdict == name]) for name, words in REST.items()]
    return [(words, these) for words, these in found if these]


def _rank(row: Row) -> tuple[int, float, SeriesKey]:
    judged = row.judgement
    return ORDER.index(row.verdict), -abs(judged.comparison.log_ratio) if judged else 0.0, row.key


def _drifts(table: CommitTable) -> list[tuple[str, str]]:
    pairs = sorted(table.drifts.items())
    return [(name, words.change(drift.log_ratio)) for name, drift in pairs]


def _feed(book: Book, changes: list[Change], paged: list[Commit]) -> bytes:
    """Return an Atom feed of commits that made something slower, faster or wrong."""
    entries: list[tuple[Commit, list[Row]]] = []
    for commit in reversed(paged):
        here = [change.row for change in changes if change.table.after.sha == commit.sha]
        if here and len(entries) < FEED_ENTRIES:
            entries.append((commit, here))
    updated = max(
        (run.started_at for run in book.history.runs.values()), default="1970-01-01T00:00:00Z"
    )
    template = book.environment.get_template("feed.xml.j2")
    site = book.site_url.rstrip("/") + "/" if book.site_url else ""
    text = template.render(
        entries=entries,
        updated=updated,
        site=site,
        address=lambda path: site + book.links.address(path) if site else book.links.to(FEED, path),
        commit_path=commit_path,
        sizes_text=sizes_text,
        worst=lambda rows: max(rows, key=_size_of_change),
    )
    return text.encode()


def _size_of_change(row: Row) -> float:
    return abs(row.judgement.comparison.log_ratio) if row.judgement else math.inf
