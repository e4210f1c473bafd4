"""The page that compares any two ends: judged at build time where it can be, else ratios alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from collector.history.model import SeriesKey
from collector.history.sides import Index
from collector.history.tables import CommitTable, Row, commit_table
from collector.verdict import FLOOR
from dashboard import format as words
from dashboard.book import Book
from dashboard.cause_groups import CHANGES
from dashboard.changes import sizes_text
from dashboard.compare_ends import End, EndRow, ends_of, packed, rows_of, told
from dashboard.drawing import compact, shard
from dashboard.op_page import op_path

File = tuple[str, bytes]
Pairs = Mapping[tuple[str, str], CommitTable]
JUDGED = 10  # the last commits of a device, each against the one before and all against the newest
ROWS = 100  # of one verdict in the page itself
KEPT = ("incomparable", "broken")


@dataclass(frozen=True, slots=True)
class Lone:
    """How many series of an implementation only one end measured."""

    op: str
    implementation: str
    count: int


def compare_page(book: Book, tables: Sequence[CommitTable]) -> Iterator[File]:
    """Return the page, a data file for each end, and one for each pair that was judged."""
    index = book.index
    ends = {end.key: end for end in ends_of(index)}
    rows = {key: rows_of(index, end) for key, end in ends.items()}
    pairs = _judged(index, list(ends.values()), tables)
    files = {key: shard(f"compare-{words.slug(key)}", packed(ends[key], rows[key])) for key in ends}
    files |= {
        f"{a}|{b}": shard(f"compared-{words.slug(f'{a}-{b}')}", _verdicts(table, rows[b]))
        for (a, b), table in pairs.items()
    }
    yield from (file for _, *file in files.values())  # type: ignore[misc]
    yield _page(book, ends, rows, pairs, {key: name for key, (name, *_) in files.items()})


def _judged(index: Index, ends: Sequence[End], tables: Sequence[CommitTable]) -> Pairs:
    """Judge each of the last commits of a device against the one before, and by the newest."""
    made: dict[tuple[str, str], CommitTable] = {}
    known = {(t.device, t.before.sha, t.after.sha): t for t in tables if _is_exact(t)}
    for device, commits in index.commits.items():
        keys = _commit_keys(ends, device)
        last = [commit for commit in commits[-JUDGED:] if commit.sha in keys]
        for before, after in dict.fromkeys([*pairwise(last), *((a, last[-1]) for a in last[:-1])]):
            found = known.get((device, before.sha, after.sha))
            table = found or commit_table(index, device, before, after, exact=True)
            made[keys[before.sha], keys[after.sha]] = table
    return made


def _is_exact(table: CommitTable) -> bool:
    """Tell whether every verdict of a table is against its own earlier commit."""
    return all(row.before_commit in (None, table.before.sha) for row in table.rows)


def _commit_keys(ends: Sequence[End], device: str) -> dict[str, str]:
    """Return the end of each commit that has one on a device, and not one for each toolchain."""
    own = [end for end in ends if end.device == device and not end.alone and end.commit]
    counts = Counter(end.commit for end in own)
    return {end.commit: end.key for end in own if end.commit and counts[end.commit] == 1}


def _verdicts(table: CommitTable, rows: Sequence[EndRow]) -> dict[str, Any]:
    """Return what was judged as the page's script reads it: rows by their place in the end."""
    places = {row.key: place for place, row in enumerate(rows)}
    kept = [row for row in table.rows if row.judgement or row.verdict in KEPT]
    return {
        "rows": [[places[row.key], *_decided(row)] for row in kept if row.key in places],
        "notes": notes(table),
    }


def _decided(row: Row) -> list[Any]:
    """Return verdict, change, its interval, the least change seen, and the words of a row."""
    one = row.judgement.comparison if row.judgement else None
    figures = [one.log_ratio, one.low, one.high, one.smallest_seen] if one else [None] * 4
    accepted = [f"Acknowledged: {row.acknowledged}."] if row.acknowledged else []
    said = [*accepted, *filter(None, [row.reason]), *(cause.text for cause in row.causes)]
    return [row.verdict, *figures, " ".join(said)]


def notes(table: CommitTable) -> list[str]:
    """Say how far the machine moved, and what another card hides."""
    drifts = [f"{name} {words.change(d.log_ratio)}" for name, d in sorted(table.drifts.items())]
    floors = [
        f"{op} {timer} {words.percent(floor, 1)}"
        for (op, timer), floor in sorted(table.card_floors.items())
    ]
    made = [f"The machine by its sentinels, taken off: {', '.join(drifts)}."] if drifts else []
    if floors:
        what = "Another card of the same model: a change counts only above what the cards alone"
        made.append(f"{what} are seen to differ by: {', '.join(floors)}.")
    return made


def _page(
    book: Book,
    ends: Mapping[str, End],
    rows: Mapping[str, Sequence[EndRow]],
    pairs: Pairs,
    shards: Mapping[str, str],
) -> File:
    default = default_pair(book, ends, rows, pairs)
    shown = pairs[default] if default else None
    chosen = default or tuple(list(ends)[1::-1]) or ("", "")
    lookup = {
        "default": chosen,
        "ends": {
            key: {"name": told(end), "device": end.device, "target": end.target}
            for key, end in ends.items()
        },
        "shards": shards,
        "floor": FLOOR,
        "ops": {op: book.links.to("compare.md", op_path(op)) for op in book.history.ops},
    }
    return book.write(
        "compare.md",
        "compare.md.j2",
        "Compare",
        ends=ends,
        groups=[
            (device, [end for end in ends.values() if end.device == slug])
            for slug, device in book.history.devices.items()
        ],
        chosen=chosen,
        table=shown,
        static=_static(shown, rows, chosen) if shown else None,
        index_json=Markup(compact(lookup)),
        ops=sorted(book.history.ops),
        timers=sorted({key.timer for key in book.history.series}),
        told=told,
        notes=notes,
        command=_command(ends, chosen) if shown else "",
        sizes_text=sizes_text,
        op_path=op_path,
    )


def default_pair(
    book: Book,
    ends: Mapping[str, End],
    rows: Mapping[str, Sequence[EndRow]],
    pairs: Pairs,
) -> tuple[str, str] | None:
    """Return the newest commit and the last before it that measured about as much of the same.

    A GPU comes first, then the device with the newest run.
    """
    newest = [pair for pair in pairs if pair[1] in _newest_keys(ends)]
    if not newest:
        return None

    def preference(pair: tuple[str, str]) -> tuple[bool, str]:
        run = ends[pair[1]].newest
        return book.history.devices[run.device.slug].kind == "cuda", run.started_at

    best = max(newest, key=preference)[1]
    mine = {row.key for row in rows[best]}
    shared = {a: len(mine & {row.key for row in rows[a]}) for a, b in newest if b == best}
    enough = max(shared.values()) / 2
    return next((key, best) for key in ends if key in shared and shared[key] >= enough)


def _newest_keys(ends: Mapping[str, End]) -> set[str]:
    """Return the newest commit of each device; ends are in order, the newest first."""
    found: dict[str, str] = {}
    for end in ends.values():
        if not end.alone:
            found.setdefault(end.device, end.key)
    return set(found.values())


def _static(
    table: CommitTable, rows: Mapping[str, Sequence[EndRow]], pair: tuple[str, ...]
) -> dict[str, Any]:
    """Return what the page shows without a script."""
    before, after = ({row.key for row in rows[key] if row.point.median_ns} for key in pair)
    by_verdict: dict[str, list[Row]] = {}
    for row in sorted(table.rows, key=_size, reverse=True):
        by_verdict.setdefault(row.verdict, []).append(row)
    return {
        "changed": [row for verdict in CHANGES for row in by_verdict.get(verdict, [])],
        "rest": [
            (verdict, by_verdict[verdict])
            for verdict in ("inconclusive", "unchanged", "incomparable")
            if verdict in by_verdict
        ],
        "counts": {name: len(found) for name, found in by_verdict.items()},
        "only": (_lone(before - _keys(rows[pair[1]])), _lone(after - _keys(rows[pair[0]]))),
        "compared": any(row.judgement for row in table.rows),
        "rows": ROWS,
    }


def _size(row: Row) -> float:
    return abs(row.judgement.comparison.log_ratio) if row.judgement else 0.0


def _keys(rows: Sequence[EndRow]) -> set[SeriesKey]:
    return {row.key for row in rows}


def _lone(keys: set[SeriesKey]) -> list[Lone]:
    found = Counter((key.op, key.implementation) for key in keys)
    return [Lone(*name, count) for name, count in sorted(found.items())]


def _command(ends: Mapping[str, End], pair: tuple[str, ...]) -> str:
    before, after = (ends[key] for key in pair)
    told_of = f"--baseline {before.target} --device {after.device}"
    return f"python -m collector compare {after.target} {told_of}"
