"""What is said of a comparison, in words that the terminal and Markdown share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from collector.compare import Compared, Confirmation, Result
from collector.compare_sides import Side
from collector.history.format import NONE, binary, change, duration, percent, plural, short
from collector.history.model import RunInfo, SeriesKey
from collector.history.tables import Row

CHANGES = ("broken", "regressed", "improved", "same-code")
COMPARED = ("inconclusive", "unchanged")
LISTED = ("missing", "incomparable", "new")
ORDER = (*CHANGES, *COMPARED, *LISTED, "unmeasured")
SAID = {
    "inconclusive": "inconclusive: more replicates would tell",
    "unchanged": "unchanged",
    "missing": "missing: in the baseline and not here",
    "incomparable": "incomparable",
    "new": "new: not in the baseline",
    "unmeasured": "without a time on both sides",
}


class Line(NamedTuple):
    """One row of the table, as text; `why` is empty where its section says it."""

    series: str
    before: str
    after: str
    change: str
    seen_from: str
    why: str


class Section(NamedTuple):
    """The rows of one implementation that share a verdict, and mostly a cause."""

    verdict: str
    name: str
    summary: str
    why: str
    lines: tuple[Line, ...]


def printable(text: object) -> str:
    """Return a text of a record without what moves a cursor, breaks a line or turns it around."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for letter in str(text))  # fmt: skip


def series_text(key: SeriesKey) -> str:
    """Write which series of its implementation this is."""
    sizes = [f"{name} {binary(size)}" for name, size in key.sizes]
    mode = [key.mode] if key.mode != "forward" else []
    return ", ".join([f"{key.timer} {key.cache}", *mode, *sizes, key.dtype])


def _line(row: Row, why: str) -> Line:
    """Return one row as text."""
    before, after = (point.median_ns if point else None for point in (row.before, row.after))
    judged = row.judgement
    seen = judged.comparison.smallest_seen if judged else None
    return Line(
        series_text(row.key),
        duration(before),
        duration(after),
        change(judged.comparison.log_ratio) if judged else NONE,
        percent(seen, 1),
        why,
    )


def _why(row: Row, one: Compared) -> str:
    told = [cause.text for cause in row.causes]
    if row.verdict in ("regressed", "improved") and not told:
        told.append("The records do not say why.")
    if row.reason:
        told.insert(0, row.reason)
    if row.acknowledged:
        told.append(f"Accepted: {row.acknowledged}")
    if row.verdict == "inconclusive" and one.fails(row):
        told.append("Over the limit; one replicate a side cannot tell it from noise.")
    return " ".join(told)


def _second_look(look: Confirmation | None) -> str:
    """Say what measuring once more gave, if it was done."""
    if look is None:
        return ""
    words = f"{look.outcome[0].upper()}{look.outcome[1:]}"
    judged = look.row.judgement if look.row else None
    if look.row and judged is None:
        return f"{words}: {look.row.reason}."
    if judged is None:
        return f"{words}."
    fresh = plural(judged.comparison.n_after, "fresh replicate")
    return f"{words}: {change(judged.comparison.log_ratio)} with {fresh}."


def side_text(what: str, side: Side, runs: Sequence[RunInfo]) -> str:
    """Say what one side is."""
    name = f"{side.name} of commit {short(side.commit)}" if side.run_id else short(side.commit)
    replicates = sum(run.replicates for run in runs)
    counted = f"({plural(len(runs), 'run')}, {plural(replicates, 'replicate')})"
    return " ".join(filter(None, (f"{what}: {name}", runs[-1].source.subject, counted)))


def notes_of(one: Compared) -> list[str]:
    """Return what must be known of the two sides before the figures are read."""
    made = [f"environment: {d.name} {d.before} -> {d.after}" for d in one.table.differences]
    made = made or ["environment: the same on both sides"]
    if one.other_model:
        made.append(f"not comparable: the devices are of two models ({one.other_model})")
    made += [note for runs in (one.before_runs, one.after_runs) for note in _run_notes(runs)]
    made += card_notes(one.table.card_floors)
    made += [
        f"older baseline: {plural(count, 'series')} against {short(sha)}, which measured them alike"
        for sha, count in one.table.older.items()
    ]
    if one.left_out:
        made.append(f"not measured by the candidate: {', '.join(one.left_out)}")
    return [*made, *_drift_note(one)]


def card_notes(floors: Mapping[tuple[str, str], float]) -> list[str]:
    """Say up to where a change may be that of the card: one line for each timer."""
    by_timer: dict[str, list[tuple[float, str]]] = {}
    for (op, timer), floor in floors.items():
        by_timer.setdefault(timer, []).append((floor, op))
    return [
        f"another card: {timer} times: changes below {_floors(sorted(found))} do not count, "
        "unchanged code moved as much"
        for timer, found in sorted(by_timer.items())
    ]


def _floors(found: list[tuple[float, str]]) -> str:
    (least, first), (most, last) = found[0], found[-1]
    if percent(least, 1) == percent(most, 1):
        return percent(least, 1)
    return f"{percent(least, 1)} ({first}) to {percent(most, 1)} ({last})"


def _run_notes(runs: Iterable[RunInfo]) -> list[str]:
    told = []
    for run in runs:
        flags = [flag for flag in run.flags if flag != "no-gpu"]
        if flags:
            told.append(f"{run.file}: {', '.join(flags)}")
        if run.end is None or run.end.outcome != "complete":
            told.append(f"{run.file}: not complete ({run.end.outcome if run.end else 'no end'})")
    return told


def _drift_note(one: Compared) -> list[str]:
    """Say how far the machine itself moved."""
    moved = sorted((drift.log_ratio, name) for name, drift in one.table.drifts.items())
    if not moved:
        return ["machine: no sentinel on both sides, so its drift is not known"]
    (low, fast), (high, slow) = moved[0], moved[-1]
    told = f"{change(low)} ({fast}) to {change(high)} ({slow})"
    return [f"machine: its sentinels moved by {told}; taken off"]


def sections_of(one: Compared, *, whole: bool = False) -> list[Section]:
    """Return the rows to show by implementation: what fails first, then the largest change."""
    shown = (*CHANGES, *COMPARED) if whole else CHANGES
    found: dict[tuple[bool, int, str, str], list[Row]] = {}
    for row in one.rows:
        failing = one.fails(row)
        if row.verdict in shown or failing or row.key in one.confirmations:
            name = (not failing, ORDER.index(row.verdict), row.key.op, row.key.implementation)
            found.setdefault(name, []).append(row)
    ordered = sorted(found.items(), key=lambda item: (*item[0][:2], -_largest(item[1]), item[0]))
    return [_section(rows, one) for _, rows in ordered]


def _section(rows: Sequence[Row], one: Compared) -> Section:
    ordered = sorted(rows, key=_place)
    reasons = [_why(row, one) for row in ordered]
    common = reasons[0] if len(set(reasons)) == 1 else ""
    lines = [
        _line(row, " ".join(filter(None, ("" if why == common else why, look))))
        for row, why in zip(ordered, reasons, strict=True)
        for look in [_second_look(one.confirmations.get(row.key))]
    ]
    first = ordered[0]
    name = f"{first.key.op} {first.key.implementation}"
    state = _state(rows, one)
    return Section(f"{first.verdict}{state}", name, _summary(rows), common, tuple(lines))


def _state(rows: Sequence[Row], one: Compared) -> str:
    """Say in brackets what people or a second look made of all rows alike."""
    if all(row.acknowledged for row in rows):
        return " (accepted)"
    looks = {one.confirmations[row.key].outcome for row in rows if row.key in one.confirmations}
    return f" ({looks.pop()})" if len(looks) == 1 else ""


def _summary(rows: Sequence[Row]) -> str:
    """Say how many series moved, and how far on the mean."""
    ratios = _log_ratios(rows)
    mean = f", {change(fmean(ratios))}" if ratios else ""
    return f"{plural(len(rows), 'series')}{mean}{' on the mean' if len(ratios) > 1 else ''}"


def _log_ratios(rows: Sequence[Row]) -> list[float]:
    return [row.judgement.comparison.log_ratio for row in rows if row.judgement]


def _largest(rows: Sequence[Row]) -> float:
    return max(map(abs, _log_ratios(rows)), default=0.0)


def _place(row: Row) -> tuple[str, str, SeriesKey]:
    return row.key.timer, row.key.cache, row.key


def rest_of(one: Compared) -> list[tuple[str, list[str]]]:
    """Return what was not shown, by verdict: its count in words, and lists by implementation."""
    made = []
    for verdict, words in SAID.items():
        rows = [row for row in one.rows if row.verdict == verdict]
        if rows:
            kept = _lists(rows) if verdict in LISTED else []
            made.append((f"{len(rows)} {words}", kept))
    return made


def _lists(rows: Sequence[Row]) -> list[str]:
    """Name each implementation once, with the number of its series and why."""
    found = Counter(
        (row.key.op, row.key.implementation, row.reason if row.verdict == "incomparable" else "")
        for row in rows
    )
    return [
        f"{op} {implementation}: {plural(count, 'series')}{f' ({reason})' if reason else ''}"
        for (op, implementation, reason), count in sorted(found.items())
    ]


def conclusion(result: Result) -> str:
    """Say in one sentence what came of it."""
    rows = [row for one in result.devices for row in one.rows]
    failing = [row for one in result.devices for row in one.failing]
    compared = sum(len(one.judged) for one in result.devices)
    if not compared:
        return "Nothing could be compared."
    among = f"of {compared} compared series"
    counted = Counter("broken" if row.verdict == "broken" else "slower" for row in failing)
    looks = Counter(look.outcome for one in result.devices for look in one.confirmations.values())
    again = "".join(f"; {count} {outcome}" for outcome, count in sorted(looks.items()))
    if failing:
        told = " and ".join(f"{count} {what}" for what, count in sorted(counted.items()))
        return f"Worse: {told} {among}{again}."
    open_ones = sum(row.verdict == "inconclusive" for row in rows)
    unsure = f"; {open_ones} cannot be told from noise" if open_ones else ""
    return f"No regression in any {among}{again}{unsure}."
