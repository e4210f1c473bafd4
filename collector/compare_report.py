"""A comparison at the terminal, as Markdown for a pull request, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from collector.compare import Compared, Confirmation, Result, RollUp, roll_ups
from collector.compare_sides import Side
from collector.compare_words import (
    Line,
    Section,
    conclusion,
    notes_of,
    printable,
    rest_of,
    sections_of,
    side_text,
)
from collector.history.format import change
from collector.history.model import RunInfo
from collector.history.tables import Row
from collector.verdict import Judgement

FORMAT = 1
OPEN_ROWS = 8
STYLES = {"broken": "bold red", "regressed": "red", "improved": "green", "same-code": "dim"}
HEADS = ("series", "before", "after", "change", "seen from")
FAMILY_HEADS = ("family", "series", "mean change", "verdicts")
# As entities these letters are text in every flavour of Markdown; # and @ would link on GitHub.
ESCAPED = {ord(letter): f"&#{ord(letter)};" for letter in "\\`*_[]<>#!|~&@$"}
LINKS = (("://", "&#58;//"), ("www.", "www&#46;"))


def show(result: Result, console: Console, *, whole: bool = False) -> None:
    """Write a comparison at the terminal."""
    for one in result.devices:
        console.print(Text(one.table.device, style="bold"))
        for told in (*_sides(one), *notes_of(one)):
            console.print(_indented(told))
        for section in sections_of(one, whole=whole):
            _show_section(section, console)
        _show_rest(one, console)
        if families := roll_ups(one.rows):
            console.print(_families(families))
    for note in result.notes:
        console.print(Text(printable(note)))
    console.print(Text(conclusion(result), style="bold"))


def _sides(one: Compared) -> tuple[str, str]:
    return (
        side_text("candidate", one.after, one.after_runs),
        side_text("baseline", one.before, one.before_runs),
    )


def _indented(text: str, style: str = "") -> Padding:
    return Padding(Text(printable(text), style=style), (0, 0, 0, 2), expand=False)


def _show_section(section: Section, console: Console) -> None:
    heading = Text(f"{section.verdict}: ", style=STYLES.get(section.verdict.split()[0], "bold"))
    heading.append(f"{printable(section.name)}, {section.summary}", style="default not bold")
    console.print(heading)
    if section.why:
        console.print(_indented(section.why))
    console.print(Padding(_table(section.lines), (0, 0, 0, 2), expand=False))


def _table(lines: Iterable[Line]) -> Table:
    table = Table(*HEADS, box=None, pad_edge=False, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for line in lines:
        what = Text(printable(line.series))
        if line.why:
            what.append(f"\n{printable(line.why)}", style="dim")
        table.add_row(what, *line[1:5])
    return table


def _show_rest(one: Compared, console: Console) -> None:
    for words, names in rest_of(one):
        console.print(Text(words))
        for name in names:
            console.print(_indented(name, "dim"))


def _families(families: tuple[RollUp, ...]) -> Table:
    table = Table(*FAMILY_HEADS, box=None, pad_edge=False)
    for family in families:
        table.add_row(*(Text(printable(cell)) for cell in _family(family)))
    return table


def _family(family: RollUp) -> tuple[str, str, str, str]:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(family.verdicts.items()))
    name = f"{family.op} {family.implementation} {family.timer}"
    return name, str(family.count), change(family.log_ratio), counts


def markdown(result: Result) -> str:
    """Return the comparison for a pull request; what the records say stays text."""
    return "\n".join(_markdown(result)) + "\n"


def _markdown(result: Result) -> Iterator[str]:
    yield f"**{conclusion(result)}**"
    for one in result.devices:
        yield from ("", f"### {_md(one.table.device)}", "")
        yield from (f"- {_md(told)}" for told in (*_sides(one), *notes_of(one)))
        for section in sections_of(one):
            yield from ("", *_md_section(section))
        for words, names in rest_of(one):
            yield from ("", *_md_list(words, names))
        if families := roll_ups(one.rows):
            cells = [tuple(_md(cell) for cell in _family(family)) for family in families]
            yield from ("", "<details><summary>By family</summary>", "")
            yield from (*_md_table(FAMILY_HEADS, cells), "", "</details>")
    yield from (f"\n{_md(note)}" for note in result.notes)


def _md(text: str) -> str:
    escaped = printable(text).translate(ESCAPED)
    for found, instead in LINKS:
        escaped = escaped.replace(found, instead)
    return escaped


def _md_section(section: Section) -> Iterator[str]:
    fold = "<details>" if len(section.lines) > OPEN_ROWS else "<details open>"
    title = f"{_md(section.verdict)}: {_md(section.name)}, {_md(section.summary)}"
    yield from (f"{fold}<summary>{title}</summary>", "")
    if section.why:
        yield from (_md(section.why), "")
    heads = (*HEADS, "why") if any(line.why for line in section.lines) else HEADS
    rows = [tuple(_md(cell) for cell in line[: len(heads)]) for line in section.lines]
    yield from (*_md_table(heads, rows), "", "</details>")


def _md_table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _md_list(words: str, names: list[str]) -> Iterator[str]:
    if not names:
        yield _md(words)
        return
    yield from (f"<details><summary>{_md(words)}</summary>", "")
    yield from (f"- {_md(name)}" for name in names)
    yield from ("", "</details>")


def as_json(result: Result) -> str:
    """Return everything as JSON: all rows, with what was decided and from what."""
    value = {
        "format": FORMAT,
        "exit_code": result.exit_code,
        "conclusion": conclusion(result),
        "devices": [_device(one) for one in result.devices],
        "notes": list(result.notes),
        "problems": [str(problem) for problem in result.problems],
    }
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _device(one: Compared) -> dict[str, Any]:
    table = one.table
    return {
        "device": table.device,
        "candidate": _side(one.after, one.after_runs),
        "baseline": _side(one.before, one.before_runs),
        "environment": [
            {"name": d.name, "before": d.before, "after": d.after} for d in table.differences
        ],
        "sentinels": {name: drift.log_ratio for name, drift in table.drifts.items()},
        "card_floors": [
            {"op": op, "timer": timer, "percent": 100 * floor}
            for (op, timer), floor in sorted(table.card_floors.items())
        ],
        "other_model": one.other_model or None,
        "ops_left_out": list(one.left_out),
        "max_regression_percent": None if one.limit is None else 100 * one.limit,
        "families": [
            {
                "op": family.op, "implementation": family.implementation, "timer": family.timer,
                "series": family.count, "log_ratio": family.log_ratio,
                "verdicts": dict(family.verdicts),
            }
            for family in roll_ups(one.rows)
        ],
        "rows": [_row(row, one) for row in one.rows],
    }  # fmt: skip


def _side(side: Side, runs: Sequence[RunInfo]) -> dict[str, Any]:
    return {
        "name": side.name,
        "commit": side.commit,
        "subject": runs[-1].source.subject,
        "runs": [run.run_id for run in runs],
        "files": [run.file for run in runs],
    }


def _row(row: Row, one: Compared) -> dict[str, Any]:
    key, judged = row.key, row.judgement
    before, after = row.before, row.after
    return {
        "op": key.op, "implementation": key.implementation, "mode": key.mode,
        "sizes": dict(key.sizes), "dtype": key.dtype, "timer": key.timer, "cache": key.cache,
        "verdict": row.verdict, "fails": one.fails(row),
        "before_commit": row.before_commit,
        "before_ns": before.median_ns if before else None,
        "after_ns": after.median_ns if after else None,
        "before_record": before.location if before else None,
        "after_record": after.location if after else None,
        "statistics": _statistics(judged) if judged else None,
        "causes": [{"kind": cause.kind, "text": cause.text} for cause in row.causes],
        "reason": row.reason or None,
        "acknowledged": row.acknowledged or None,
        "confirmation": _confirmation(one.confirmations.get(key)),
    }  # fmt: skip


def _confirmation(look: Confirmation | None) -> dict[str, Any] | None:
    if look is None:
        return None
    row = look.row
    return {
        "outcome": look.outcome,
        "after_ns": row.after.median_ns if row and row.after else None,
        "after_record": row.after.location if row and row.after else None,
        "statistics": _statistics(row.judgement) if row and row.judgement else None,
    }


def _statistics(judged: Judgement) -> dict[str, Any]:
    """Return what a verdict rests on; logarithms are after over before, drift taken off."""
    one = judged.comparison
    return {
        "log_ratio": one.log_ratio, "low": one.low, "high": one.high,
        "change_percent": 100 * one.change,
        "replicates": [one.n_before, one.n_after],
        "drift_log_ratio": one.drift.log_ratio,
        "standard_error": one.standard_error, "degrees": one.degrees, "basis": one.basis,
        "p_value": one.p_value, "q_value": judged.q_value,
        "floor_percent": 100 * one.floor,
        "smallest_seen_percent": None if one.smallest_seen is None else 100 * one.smallest_seen,
    }  # fmt: skip
