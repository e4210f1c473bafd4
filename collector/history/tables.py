"""What did a commit change? The table of one device for two commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

from collector.history.asked import was_asked
from collector.history.cards import Family, card_cause, is_control, other_cards, with_card_floors
from collector.history.causes import (
    Cause,
    Difference,
    causes,
    environment_difference,
    host_cause,
    same_code,
)
from collector.history.model import Commit, History, Point, SeriesKey
from collector.history.sides import IDENTITY, Identity, Index, Pair, Side
from collector.verdict import Drift, Judgement, Noise, compare, judge

RowVerdict = Literal[
    "regressed", "improved", "same-code", "unchanged", "inconclusive",
    "broken", "new", "missing", "incomparable", "unmeasured",
]  # fmt: skip
FAILED = ("incorrect", "error", "oom", "timeout")


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one series.

    `same-code` is a change of device time although the machine code is the same: noise, the
    machine, or what is launched around the kernel, and no regression of it. `broken` had a time
    and fails now. `reason` says why there is no comparison, `acknowledged` why people accepted
    the change; it is empty where they did not.
    """

    key: SeriesKey
    verdict: RowVerdict
    before_commit: str | None
    before: Point | None
    after: Point | None
    judgement: Judgement | None
    reason: str
    causes: tuple[Cause, ...]
    acknowledged: str = ""


@dataclass(frozen=True, slots=True)
class CommitTable:
    """All series of one device at a commit against the commit before it that was measured.

    `counts` holds the number of rows of each verdict that occurs, `drifts` the change of each
    sentinel between the two commits. A row may compare with an older commit, where the one before
    did not measure its series, or by another method. `card_floors` holds the least change that
    counts for an op and timer where two cards measured.
    """

    device: str
    before: Commit
    after: Commit
    rows: tuple[Row, ...]
    counts: Mapping[RowVerdict, int]
    differences: tuple[Difference, ...]
    drifts: Mapping[str, Drift]
    card_floors: Mapping[Family, float]

    @property
    def older(self) -> Mapping[str, int]:
        """Return the older commits that rows go by, each with how many do, the most first."""
        judged = (row.before_commit for row in self.rows if row.judgement)
        found = Counter(sha for sha in judged if sha and sha != self.before.sha)
        return dict(found.most_common())


def commit_table(
    index: Index, device: str, before: Commit, after: Commit, *, exact: bool = False
) -> CommitTable:
    """Return the table of one device for two commits.

    A series that `before` did not measure alike goes by an older commit that did, unless `exact`.
    """
    matched = [_match(index, key, before, after, exact) for key in index.keys(device)]
    pairs, floors = with_card_floors(index, (one for one in matched if isinstance(one, Pair)))
    between = cache(partial(_between, index))
    judged = judge([pair.comparison for pair in pairs])
    rows = [
        _row(pair, one, between(pair.before.run_ids[-1], pair.after.run_ids[-1]))
        for pair, one in zip(pairs, judged, strict=True)
    ]
    rows += [one for one in matched if isinstance(one, Row)]
    by_key = {row.key: row for row in rows}
    told = tuple(
        _accepted(_with_host(row, by_key), index.history, after)
        for row in sorted(rows, key=lambda row: row.key)
    )
    counts, drifts = Counter(row.verdict for row in told), _drifts(index, device, before, after)
    differences = _differences(index, device, before, after)
    return CommitTable(device, before, after, told, counts, differences, drifts, floors)


def _earlier(
    index: Index, key: SeriesKey, before: Commit, now: Collection[Identity], exact: bool
) -> str | None:
    """Return the commit that a series is held against."""
    if exact:
        return before.sha if index.points(key, before.sha) else None
    return index.last_alike(key, before, now)


def _match(
    index: Index, key: SeriesKey, before: Commit, after: Commit, exact: bool
) -> Pair | Row | None:
    """Find the two sides of a series; a row where there is nothing to compare."""
    now = index.sides(key, after.sha)
    if not now:
        return _missing(index, key, before, after)
    newest = list(now.values())[-1].point
    earlier = _earlier(index, key, before, now, exact)
    if earlier is None:
        return _lone(key, newest, None, None, "first measured here")
    then = index.sides(key, earlier)
    common = [identity for identity in now if identity in then]
    if not common:
        reason = _why_not(list(then)[-1], list(now)[-1])
        old = list(then.values())[-1].point
        return _broken_too(Row(key, "incomparable", earlier, old, newest, None, reason, ()))
    return paired(index, key, then[common[-1]], now[common[-1]], index.noise(key))


def paired(index: Index, key: SeriesKey, then: Side, now: Side, noise: Noise | None) -> Pair | Row:
    """Compare two sides of one identity; a row where one of them has no time."""
    old, new = then.point, now.point
    if new.median_ns is None or old.median_ns is None:
        reason = f"was {old.status}" if old.median_ns is None else ""
        return _lone(key, new, then.commit, old, reason)
    drift, name = index.drift(key, then, now)
    comparison = compare(
        old.medians_ns, new.medians_ns, drift=drift, noise=noise, tick_ns=_tick_ns(index, new)
    )  # fmt: skip
    return Pair(
        key, then, now, comparison, name,
        control=is_control(index.history, key, then, now),
        other_card=other_cards(index, then, now),
        own_floor=comparison.floor,
    )  # fmt: skip


def _broken_too(row: Row) -> Row:
    """Tell a failure as one, although times could not have been compared."""
    old, new = row.before, row.after
    if old is None or new is None or old.median_ns is None or new.status not in FAILED:
        return row
    told = f"{new.status}: {new.reason or 'no reason given'} ({row.reason})"
    return replace(row, verdict="broken", reason=told)


def _lone(key: SeriesKey, new: Point, commit: str | None, old: Point | None, reason: str) -> Row:
    """Return the row of a series that has a time on one side at most."""
    had = old is not None and old.median_ns is not None
    verdict: RowVerdict = "new"
    if new.median_ns is None:
        verdict = "unmeasured" if not had else "broken" if new.status in FAILED else "missing"
        reason = f"{new.status}: {new.reason or 'no reason given'}"
    return Row(key, verdict, commit, old, new, None, reason, ())


def _missing(index: Index, key: SeriesKey, before: Commit, after: Commit) -> Row | None:
    """Return the row of a series that stopped reporting, if it was asked for."""
    points = index.points(key, before.sha)
    if not points or points[-1].median_ns is None:
        return None
    old = points[-1]
    then = index.history.runs[old.run_id]
    if not any(was_asked(run, key, then) for run in index.runs(key.device, after.sha)):
        return None
    reason = "not in the runs of this commit, though they were asked for it"
    return Row(key, "missing", before.sha, old, None, None, reason, ())


def _why_not(before: Sequence[str], after: Sequence[str]) -> str:
    """Say in which parts two identities differ."""
    words = []
    for name, a, b in zip(IDENTITY, before, after, strict=True):
        if a != b:
            hashes = name in ("method", "workload")
            words.append(f"another {name}" if hashes else f"{name} {a or 'none'} to {b or 'none'}")
    return ", ".join(words)


def _row(pair: Pair, judged: Judgement, differences: Sequence[Difference]) -> Row:
    verdict: RowVerdict = judged.verdict
    moved = verdict in ("regressed", "improved")
    old, new = pair.before.point, pair.after.point
    if moved and pair.key.timer == "graph" and same_code(old, new):
        verdict = "same-code"
    card = card_cause(pair, judged)
    # The cards' floor rests on the controls themselves: the largest of them lies on it.
    if card and pair.other_card and (pair.control or not moved):
        verdict, moved = "inconclusive", False
    told: tuple[Cause, ...] = (card,) if card else ()
    if moved:
        comparison = pair.comparison
        told += causes(
            old, new, log_ratio=comparison.log_ratio, drift=comparison.drift,
            drift_name=pair.drift_name, differences=differences,
        )  # fmt: skip
    return Row(pair.key, verdict, pair.before.commit, old, new, judged, "", told)


def _with_host(row: Row, by_key: Mapping[SeriesKey, Row]) -> Row:
    """Add the host as the cause where the call moved and its device time did not."""
    if row.key.timer == "graph" or row.verdict not in ("regressed", "improved"):
        return row
    device = by_key.get(row.key._replace(timer="graph"))
    if device is None or device.judgement is None or row.judgement is None:
        return row
    apart = device.judgement.comparison
    if abs(apart.log_ratio) > abs(row.judgement.comparison.log_ratio) / 3:
        return row
    return replace(row, causes=(host_cause(apart.change), *row.causes))


def _accepted(row: Row, history: History, after: Commit) -> Row:
    """Add why people accepted a change for the worse, if they did."""
    if row.verdict not in ("regressed", "broken"):
        return row
    for one in history.acknowledged:
        same = one.device == row.key.device and one.op == row.key.op
        whole = one.implementation in ("", row.key.implementation)
        if same and whole and after.sha.startswith(one.commit):
            return replace(row, acknowledged=one.told)
    return row


def _between(index: Index, before: str, after: str) -> tuple[Difference, ...]:
    """Return what differs around the kernels between two runs."""
    return environment_difference(index.history.runs[before], index.history.runs[after])


def _differences(
    index: Index, device: str, before: Commit, after: Commit
) -> tuple[Difference, ...]:
    old, new = index.runs(device, before.sha), index.runs(device, after.sha)
    return environment_difference(old[-1], new[-1]) if old and new else ()


def _drifts(index: Index, device: str, before: Commit, after: Commit) -> Mapping[str, Drift]:
    old, new = (
        tuple(run.run_id for run in index.runs(device, commit.sha)) for commit in (before, after)
    )
    return index.drifts(old, new)


def _tick_ns(index: Index, point: Point) -> float:
    """Return the resolution of the clock for one call, where the method states it."""
    method = index.history.runs[point.run_id].methods.get(point.method_id, {})
    tick_ns = method.get("tick_ns", 0.0)
    return float(tick_ns) / max(point.calls, 1) if isinstance(tick_ns, (int, float)) else 0.0
