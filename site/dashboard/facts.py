"""The pages of facts: devices, health, data, and the data themselves as JSON."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from collector.history.causes import environment_of
from collector.history.machine import LINK_FLOORS
from collector.history.model import Ceilings, Point, RunInfo, SeriesKey
from collector.record import Device
from collector.schema import json_schema
from dashboard import format as words
from dashboard.book import Book
from dashboard.changes import sizes_text
from dashboard.drawing import compact
from dashboard.figures import status_words
from dashboard.op_page import op_path
from dashboard.regressions import CommitTable, left_out_runs
from dashboard.rows import Row, as_json, rows
from dashboard.sharing import badges
from dashboard.trust import trust
from dashboard.views import Curves

File = tuple[str, bytes]
RUNS_SHOWN = 50
RATES = (
    (
        "memory, copy",
        "copy_bytes_per_s",
        "B/s",
        "copy",
        "bytes read and written; where PyTorch copies faster (copy-torch), that",
    ),
    (
        "memory, read",
        "read_bytes_per_s",
        "B/s",
        "read",
        "bytes read; the faster of copy and read is the memory roof",
    ),
    ("memory, write", "write_bytes_per_s", "B/s", "write", "bytes written"),
    ("L2, copy", "l2_bytes_per_s", "B/s", "l2-copy", "the roof of hot cases that fit"),
    ("fp32", "fp32_flops_per_s", "FLOP/s", "fma-fp32", "multiply-adds, two operations each"),
    (
        "special functions",
        "special_ops_per_s",
        "op/s",
        "special",
        "reciprocals, roots and the like",
    ),
)
GEMM = "a large product of random matrices"
FLAG_WORDS = {
    "above-roof": "Faster than a limit that a sentinel measured in the same run. The sentinel was "
    "beaten, so that ceiling is too low (or the op's cost counts too much).",
    "below-floor": "Faster than an empty kernel under the same timer.",
    "unsteady": "The first and the last third of the samples lie apart, by more than 1 %.",
    "partly-failed": "Some replicates have no time; the others are shown.",
    "interpreter": "Checked in Triton's interpreter, not timed.",
}
FLOORS = (
    ("floor, graph", "floor_graph_ns", "empty", "an empty kernel in a graph"),
    ("floor, call", "floor_call_ns", "empty-call", "an empty kernel called from Python"),
    ("floor, submit", "floor_submit_ns", "empty-submit", "enqueueing an empty kernel"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One measured limit of a device, with the sentinel that measured it."""

    name: str
    value: str
    sentinel: str
    meaning: str


def device_path(slug: str) -> str:
    """Return where the page of a device is."""
    return f"devices/{slug}.md"


def device_pages(book: Book) -> Iterator[File]:
    """Return the list of devices and a page for each."""
    runs = {slug: _runs_of(book, slug) for slug in book.history.devices}
    yield book.write(
        "devices/index.md",
        "devices.md.j2",
        "Devices",
        devices=[(d, runs[slug], device_path(slug)) for slug, d in book.history.devices.items()],
        ceilings=lambda run: book.history.ceilings.get(run.run_id),
    )
    for slug, device in book.history.devices.items():
        yield _device(book, device, runs[slug])


def _runs_of(book: Book, slug: str) -> list[RunInfo]:
    """Return the runs of a device, newest first."""
    runs = [run for run in book.history.runs.values() if run.device.slug == slug]
    return sorted(runs, key=lambda run: (run.started_at, run.run_id), reverse=True)


def _device(book: Book, device: Device, runs: list[RunInfo]) -> File:
    measured = next((run for run in runs if _facts_of(book, run)), None)
    differing = _differing(runs[:RUNS_SHOWN])
    return book.write(
        device_path(device.slug),
        "device.md.j2",
        device.name,
        device=device,
        runs=runs[:RUNS_SHOWN],
        latest=runs[0],
        facts=_facts_of(book, measured) if measured else [],
        measured=measured,
        common=[pair for pair in sorted(runs[0].versions.items()) if pair[0] not in differing],
        differing=differing,
        environment=environment_of,
        command=lambda run: shlex.join(run.command),
        sentinels=book.history.sentinels.get(measured.run_id, ()) if measured else (),
        ceilings=lambda run: book.history.ceilings.get(run.run_id),
    )


def _differing(runs: Sequence[RunInfo]) -> list[str]:
    """Return the names of what is not the same in all runs: cards, driver, versions."""
    every = [environment_of(run) for run in runs]
    names = dict.fromkeys(name for one in every for name in one)
    return [name for name in names if len({one.get(name) for one in every}) > 1]


def _facts_of(book: Book, run: RunInfo) -> list[Fact]:
    ceilings = book.history.ceilings.get(run.run_id)
    return [fact for fact in facts(ceilings) if fact.value != words.NONE] if ceilings else []


def facts(ceilings: Ceilings) -> list[Fact]:
    """Return the limits in words, measured or not."""
    rates = [
        Fact(name, words.rate(getattr(ceilings, attribute), unit), sentinel, meaning)
        for name, attribute, unit, sentinel, meaning in RATES
    ]
    products = [
        Fact(f"{pipe}, matrix product", words.rate(rate, "FLOP/s"), f"gemm-{pipe}", GEMM)
        for pipe, rate in sorted(ceilings.gemm_flops_per_s.items())
    ]
    floors = [
        Fact(name, words.duration(getattr(ceilings, attribute), 3), sentinel, meaning)
        for name, attribute, sentinel, meaning in FLOORS
    ]
    return [*rates, *products, *floors, *link_facts(ceilings)]


def link_facts(ceilings: Ceilings) -> list[Fact]:
    """Return the limits of what ranks send to each other, by the number of ranks."""
    sent = "what each rank sends in a large all-reduce, by the model of a ring"
    rates = [
        Fact(f"links, {n} ranks", words.rate(rate, "B/s"), f"link-{n}", sent)
        for n, rate in sorted(ceilings.link_bytes_per_s.items())
    ]
    floors = [
        Fact(
            f"{timer} floor, {n} ranks",
            words.duration(ns, 3),
            f"{LINK_FLOORS[timer]}-{n}",
            "adding one number",
        )
        for timer, found in ceilings.link_floor_ns.items()
        for n, ns in sorted(found.items())
    ]
    return [*rates, *floors]


# Health -----------------------------------------------------------------------------------------


def health(book: Book, tables: Sequence[CommitTable]) -> Iterator[File]:
    """Say what is wrong or missing, and how much the alarms can be trusted."""
    verdicts: Counter[str] = Counter()
    for table in tables:
        verdicts.update(table.counts)
    yield book.write(
        "health.md",
        "health.md.j2",
        "Health",
        searchable=False,
        problems=book.history.problems,
        devices=[(d, _runs_of(book, slug)) for slug, d in book.history.devices.items()],
        coverage=_coverage(book),
        failures=_failures(book),
        open_runs=[
            r for r in book.history.runs.values() if not r.end or r.end.outcome != "complete"
        ],
        left_out=left_out_runs(book.history),
        verdicts=verdicts,
        flags=_flags(book),
        trust=trust(book.index),
        sizes_text=sizes_text,
        op_path=op_path,
    )


def _latest(book: Book) -> Iterator[tuple[Curves, str, int, Point]]:
    """Return every series once, though several views may show it."""
    seen: set[SeriesKey] = set()
    for curves in (c for views in book.views.values() for c in views.values()):
        for name in curves.names:
            for size, point in sorted(curves.points[name].items()):
                key = curves.keys[name][size]
                if key not in seen:
                    seen.add(key)
                    yield curves, name, size, point


def _rows(book: Book, views: Iterable[Curves]) -> Iterator[tuple[Row, str]]:
    """Return the row of every series once, with the axis of its view."""
    seen: set[SeriesKey] = set()
    for curves in views:
        for row in rows(book.scene(curves)):
            if row.key not in seen:
                seen.add(row.key)
                yield row, curves.axis


def _coverage(book: Book) -> list[tuple[str, str, Counter[str]]]:
    """Count the statuses of each op and implementation in the runs that are shown."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for curves, name, _, point in _latest(book):
        found.setdefault((curves.op.name, name), Counter())[point.status] += 1
    return [(op, name, counts) for (op, name), counts in found.items()]


def _failures(book: Book) -> list[tuple[str, list[str], str, str]]:
    """Group the cases without a time by op, reason and sizes: mostly all implementations alike."""
    found: dict[tuple[str, str, str], set[tuple[str, int]]] = {}
    for curves, name, size, point in _latest(book):
        if point.median_ns is None:
            where = found.setdefault((curves.op.name, name, status_words(point)), set())
            where.add((curves.axis, size))
    alike: dict[tuple[str, str, str], list[str]] = {}
    for (op, name, why), sizes in found.items():
        alike.setdefault((op, why, _sizes_text(sizes)), []).append(name)
    return [(op, names, why, sizes) for (op, why, sizes), names in alike.items()]


def _sizes_text(sizes: set[tuple[str, int]]) -> str:
    """Write sizes in order, each name once, for example `rows 512, 2Ki; hidden 128Ki`."""
    by_axis = groupby(sorted(sizes), key=itemgetter(0))
    texts = (
        f"{axis} {', '.join(words.binary(size) for _, size in pairs)}" for axis, pairs in by_axis
    )
    return "; ".join(texts)


def _flags(book: Book) -> list[tuple[str, str, int, list[str]]]:
    """Return each flag with its meaning, its number of cases and some of them."""
    found: dict[str, list[str]] = {}
    for row, axis in _rows(book, (c for views in book.views.values() for c in views.values())):
        for flag in row.flags:
            found.setdefault(flag, []).append(_case_text(row, axis))
    return [
        (flag, FLAG_WORDS.get(flag, ""), len(cases), cases[:5])
        for flag, cases in sorted(found.items())
    ]


def _case_text(row: Row, axis: str) -> str:
    key = row.key
    where = f"{axis} {words.binary(row.size)} {key.timer} {key.cache}"
    return f"{key.op} {key.implementation} {where}"


# Data -------------------------------------------------------------------------------------------


def data(book: Book) -> Iterator[File]:
    """Return the download page, the newest numbers as JSON, and the schema of the records."""
    names = []
    for op, views in book.views.items():
        values = [as_json(row) for row, _ in _rows(book, views.values())]
        name = f"data/{words.slug(op)}.json"
        content = compact({"op": op, "cases": values}) + "\n"
        names.append((op, name, len(values), len(content)))
        yield name, content.encode()
    yield "data/record.v1.schema.json", (json.dumps(json_schema(), indent=1) + "\n").encode()
    runs = sorted(book.history.runs.values(), key=lambda run: run.started_at, reverse=True)
    yield book.write(
        "data.md",
        "data.md.j2",
        "Data",
        names=names,
        runs=runs,
        badges=badges(book),
        site_url=book.site_url,
    )
