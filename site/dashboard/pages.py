"""The pages over all ops: home and kernels. Each function returns files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from collector.record import OpInfo
from dashboard.book import Book
from dashboard.findings import Finding, finding, view_words
from dashboard.metrics import geometric_mean
from dashboard.op_page import op_path
from dashboard.regressions import CommitTable
from dashboard.results import results
from dashboard.svg import Spark, sparkline
from dashboard.views import Curves

File = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Summary:
    """One op in one line: its default view and what it says."""

    op: OpInfo
    path: str
    curves: Curves | None
    finding: Finding | None
    spark: Spark | None
    statuses: dict[str, int]

    @property
    def view_text(self) -> str:
        """Say what the line was measured with."""
        return view_words(self.curves.view) if self.curves else ""


def summaries(book: Book) -> list[Summary]:
    """Return a summary of every op."""
    return [_summary(book, op) for op in book.history.ops.values()]


def _summary(book: Book, op: OpInfo) -> Summary:
    curves = next(iter(book.views[op.name].values()), None)
    found = finding(book.scene(curves)) if curves else None
    spark = sparkline([ratio.value for _, ratio in found.ratios]) if found else None
    statuses: dict[str, int] = {}
    for line in curves.points.values() if curves else ():
        for point in line.values():
            statuses[point.status] = statuses.get(point.status, 0) + 1
    return Summary(op, op_path(op.name), curves, found, spark, statuses)


def home(book: Book, tables: tuple[CommitTable, ...]) -> Iterator[File]:
    """Answer in ten seconds: how fast, what changed, how fresh, on what."""
    lines = summaries(book)
    runs = sorted(book.history.runs.values(), key=lambda run: (run.started_at, run.run_id))
    newest = [table for table in tables if table.after.sha == tables[0].after.sha]
    counts: Counter[str] = Counter()
    for table in newest:
        counts.update(row.verdict for row in table.rows if not row.acknowledged)
    yield book.write(
        "index.md",
        "home.md.j2",
        "Kernel Almanac",
        lines=lines,
        mean=_overall([line.finding.mean for line in lines if line.finding]),
        over_fastest=_overall(
            [over for line in lines if line.finding and (over := line.finding.over_rivals)]
        ),
        found=[line for line in lines if line.finding],
        counts=counts,
        newest=newest,
        latest=runs[-1] if runs else None,
        runs=runs,
    )


def _overall(means: list[float]) -> tuple[float, int] | None:
    """Return the geometric mean of the ops' own means, and how many ops have one."""
    mean = geometric_mean(means)
    return (mean, len(means)) if mean is not None else None


def kernels(book: Book) -> Iterator[File]:
    """List all ops with their best and worst."""
    found = results(book)
    yield book.write(
        "kernels/index.md",
        "kernels.md.j2",
        "Kernels",
        lines=summaries(book),
        results=found,
        dtypes=sorted({one.key.dtype for one in found}),
    )
