"""Did it change? Judge all series of two sides together, on every device that both measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from collector.compare_sides import (
    Side,
    fail,
    find_side,
    load,
    pinned,
    sha_of,
)
from collector.exit_codes import FAILED, FINE, NOT_COMPARABLE, REGRESSED, USAGE, WRONG
from collector.history.cache import NO_CACHE, Cache
from collector.history.model import Commit, History, Problem, RunInfo, SeriesKey
from collector.history.sides import Index
from collector.history.tables import CommitTable, Row, commit_table
from collector.record import Device

PREVIOUS = "previous"
SecondLook = Literal["confirmed", "not seen again", "not measured again"]
MODEL = ("name", "compute_capability", "multiprocessors", "mig")


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare, and what to tell of it.

    A side is a run file, a commit, a tag or a branch; the baseline also `previous`. All series are
    judged as one family, whichever `ops` are told. With `limit`, a share such as 0.1, only what
    became slower by more than that fails.
    """

    candidate: str
    baseline: str = PREVIOUS
    data: Path = Path("data")
    repo: Path = Path()
    ops: tuple[str, ...] = ()
    device: str = ""
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What fresh processes said of a suspect; `row` holds them against the same baseline."""

    outcome: SecondLook
    row: Row | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The two sides on one device; `table` holds all series, `rows` those of the ops asked for.

    `other_model` says why the devices are not of one model, `left_out` names the ops that only the
    baseline measured. `confirmations` holds the suspects that were measured once more.
    """

    before: Side
    after: Side
    table: CommitTable
    rows: tuple[Row, ...]
    before_runs: tuple[RunInfo, ...]
    after_runs: tuple[RunInfo, ...]
    left_out: tuple[str, ...]
    other_model: str
    limit: float | None
    confirmations: Mapping[SeriesKey, Confirmation] = field(default_factory=dict)

    def fails(self, row: Row) -> bool:
        """Tell whether a row makes the command fail; not when a second look did not see it."""
        again = self.confirmations.get(row.key)
        return fails(row, self.limit) and (again is None or again.outcome != "not seen again")

    @property
    def failing(self) -> tuple[Row, ...]:
        """Return the rows that make the command fail."""
        return tuple(row for row in self.rows if self.fails(row))

    @property
    def judged(self) -> tuple[Row, ...]:
        """Return the rows that were compared."""
        return tuple(row for row in self.rows if row.judgement or row.verdict == "broken")


@dataclass(frozen=True, slots=True)
class RollUp:
    """All compared series of one implementation and timer: many small moves in one figure."""

    op: str
    implementation: str
    timer: str
    count: int
    log_ratio: float
    verdicts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Result:
    """Every device that both sides measured, what is wrong with the files, and what to know."""

    devices: tuple[Compared, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """Return 4 for a wrong result, 2 for a regression, 3 when nothing was compared, else 0."""
        failing = [row for one in self.devices for row in one.failing]
        again = [look.row for one in self.devices for look in one.confirmations.values()]
        if any(row and row.after and row.after.status == "incorrect" for row in [*failing, *again]):
            return WRONG
        if failing:
            return REGRESSED
        return FINE if any(one.judged for one in self.devices) else NOT_COMPARABLE


def compare(request: Request, cache: Cache = NO_CACHE) -> Result:
    """Compare two sides on every device that both measured; CompareError says why it cannot."""
    names = (request.candidate, request.baseline)
    history, named = load(names, request.data, request.repo, cache)
    candidate = find_side(request.candidate, request.repo, history, named)
    baseline = None
    if request.baseline != PREVIOUS:
        baseline = find_side(request.baseline, request.repo, history, named)
        if (baseline.commit, baseline.run_id) == (candidate.commit, candidate.run_id):
            fail(f"{candidate.name} and {baseline.name} are the same runs", FAILED)
    for side in filter(None, (baseline, candidate)):
        history = pinned(history, side)
    return _compared(request, Index(history), candidate, baseline)


def fails(row: Row, limit: float | None = None) -> bool:
    """Tell whether a row makes the command fail: worse, and not accepted by people.

    One replicate a side says nothing of noise, so there a limit alone decides.
    """
    if row.acknowledged:
        return False
    if row.verdict == "broken" or limit is None:
        return row.verdict in ("broken", "regressed")
    if row.judgement is None:
        return False
    comparison = row.judgement.comparison
    unsure = row.verdict == "inconclusive" and comparison.basis == "none"
    over = comparison.log_ratio > math.log1p(max(limit, comparison.floor if unsure else 0.0))
    return over and (unsure or row.verdict == "regressed")


def roll_ups(rows: Iterable[Row]) -> tuple[RollUp, ...]:
    """Return the geometric mean of the changes of each implementation and timer."""
    families: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.judgement is not None:
            key = row.key
            families.setdefault((key.op, key.implementation, key.timer), []).append(row)
    return tuple(RollUp(*name, *_mean(members)) for name, members in sorted(families.items()))


def _mean(rows: list[Row]) -> tuple[int, float, Mapping[str, int]]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    ratios = [row.judgement.comparison.log_ratio for row in rows if row.judgement]
    return len(rows), fmean(ratios), counts


def _compared(request: Request, index: Index, candidate: Side, baseline: Side | None) -> Result:
    measured = _devices(index, candidate)
    if request.device and request.device not in measured:
        told = f"{candidate.name} was not measured on {request.device}"
        known = ", ".join(index.history.devices)
        unknown = request.device not in index.history.devices
        fail(f"{told}; there are: {known}", USAGE if unknown else NOT_COMPARABLE)
    found, notes = [], []
    for device in [request.device] if request.device else measured:
        before = _before(index, device, candidate, baseline)
        if before is None:
            notes.append(_no_baseline(device, candidate, baseline))
            continue
        table = commit_table(
            index, device, before, _commit(index, device, candidate), exact=baseline is not None
        )
        named = baseline or Side(before.sha, before.sha)
        found.append(_on_device(request, index, table, named, candidate))
    if not found:
        fail("; ".join(notes), NOT_COMPARABLE)
    _check_ops(request.ops, index.history)
    return Result(tuple(found), index.history.problems, tuple(notes))


def _devices(index: Index, side: Side) -> list[str]:
    sha = sha_of(side)
    return [slug for slug, commits in index.commits.items() if sha in {c.sha for c in commits}]


def _commit(index: Index, device: str, side: Side) -> Commit:
    return next(one for one in index.commits[device] if one.sha == sha_of(side))


def _before(index: Index, device: str, candidate: Side, baseline: Side | None) -> Commit | None:
    """Return what a device's candidate is held against; None where it was not measured there."""
    if baseline is not None:
        return _commit(index, device, baseline) if device in _devices(index, baseline) else None
    own = sha_of(candidate)
    order = index.order.get(candidate.commit or "", len(index.order))
    # Files that differ from their commit are a step after it.
    last = order if candidate.dirty else order - 1
    earlier = [one for one in index.commits[device] if one.sha != own and one.order <= last]
    return earlier[-1] if earlier else None


def _no_baseline(device: str, candidate: Side, baseline: Side | None) -> str:
    if baseline is not None:
        return f"{baseline.name} was not measured on {device}, where {candidate.name} was"
    return f"nothing was measured on {device} before {candidate.name}: name a baseline"


def _on_device(
    request: Request, index: Index, table: CommitTable, before: Side, after: Side
) -> Compared:
    """Choose what was asked for of a table, and put beside it what one must know."""
    sides = [tuple(index.runs(table.device, one.sha)) for one in (table.before, table.after)]
    ops = [{op for run in runs for op in run.ops} for runs in sides]
    other_model = model_difference(sides[0][-1].device, sides[1][-1].device)
    rows = [_unlike(row, other_model) if other_model else row for row in table.rows]
    return Compared(
        before=before,
        after=after,
        table=table,
        rows=tuple(row for row in rows if not request.ops or row.key.op in request.ops),
        before_runs=sides[0],
        after_runs=sides[1],
        left_out=tuple(sorted(ops[0] - ops[1])),
        other_model=other_model,
        limit=request.limit,
    )


def model_difference(before: Device, after: Device) -> str:
    """Say in what two devices of one name are not of one model; nothing where they are."""
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in MODEL]
    return ", ".join(f"{name.replace('_', ' ')} {a} to {b}" for name, a, b in pairs if a != b)


def _unlike(row: Row, why: str) -> Row:
    """Take the judgement from a row: two models cannot be compared. A wrong result stays one."""
    if row.judgement is None:
        return row
    return replace(row, verdict="incomparable", judgement=None, causes=(), reason=why)


def _check_ops(asked: Iterable[str], history: History) -> None:
    unknown = [op for op in asked if op not in history.ops]
    if unknown:
        known = ", ".join(history.ops)
        fail(f"unknown op {', '.join(map(repr, unknown))}; there are: {known}", USAGE)
