"""Read the files under `data/runs`: every line becomes a record or a problem with its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from collector.record import SCHEMA_VERSION, End, Measurement, Run, Sentinel, parse
from dashboard.model import Problem

LFS_POINTER = b"version https://git-lfs"
PROBLEMS_PER_FILE = 20


@dataclass(slots=True)
class RunFile:
    """One file, as far as it could be read."""

    file: str
    run: Run
    measurements: list[tuple[int, Measurement]] = field(default_factory=list)
    sentinels: list[tuple[int, Sentinel]] = field(default_factory=list)
    end: End | None = None

    @property
    def records(self) -> int:
        """Number of lines that could be read."""
        return 1 + len(self.measurements) + len(self.sentinels) + (self.end is not None)


def run_paths(data: Path) -> list[Path]:
    """Return the record files under a data folder; none when there is no such folder."""
    return sorted((data / "runs").rglob("*.jsonl"))


def read_files(data: Path) -> tuple[list[RunFile], list[Problem]]:
    """Read every file, oldest run first; a second file of one run is left out, with a problem."""
    problems: list[Problem] = []
    read = [_read(path, path.relative_to(data).as_posix(), problems) for path in run_paths(data)]
    found = [one for one in read if one is not None]
    found.sort(key=lambda one: (one.run.started_at, one.run.run_id, one.file))
    return list(_distinct(found, problems)), problems


def _distinct(found: list[RunFile], problems: list[Problem]) -> Iterator[RunFile]:
    files: dict[str, str] = {}
    for one in found:
        first = files.setdefault(one.run.run_id, one.file)
        if first == one.file:
            yield one
        else:
            message = (
                f"run {one.run.run_id} is already in {first}: this file is left out; delete one"
            )
            problems.append(Problem(one.file, 1, "run_id", message))


def _read(path: Path, name: str, problems: list[Problem]) -> RunFile | None:
    """Read one file; without a usable first line nothing in it can be used."""
    try:
        content = path.read_bytes()
    except OSError as error:
        problems.append(Problem(name, 0, "", f"cannot be read: {error.strerror}"))
        return None
    lines = content.split(b"\n")
    head = _head(name, lines[0])
    if isinstance(head, Problem):
        problems.append(head)
        return None
    made = RunFile(name, head)
    faults = list(_fill(made, lines[1:]))
    problems += faults[:PROBLEMS_PER_FILE]
    if len(faults) > PROBLEMS_PER_FILE:
        more = f"and {len(faults) - PROBLEMS_PER_FILE} more lines that cannot be used"
        problems.append(Problem(name, faults[PROBLEMS_PER_FILE].line, "", more))
    return made


def _head(file: str, line: bytes) -> Run | Problem:
    """Return the run line, or what the file is instead."""
    if not line.strip():
        return Problem(file, 1, "", "is empty: no run line; delete the file")
    if line.startswith(LFS_POINTER):
        return Problem(file, 1, "", "is a Git LFS pointer, not records; run `git lfs pull`")
    version = _schema_version(line)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        told = f"is {version}, newer than {SCHEMA_VERSION} which this version reads; update it"
        return Problem(file, 1, "schema_version", told)
    record = _parsed(file, 1, line, last=False)
    if isinstance(record, (Run, Problem)):
        return record
    told = f"first line is a {record.kind}, not the run line; without it nothing here can be used"
    return Problem(file, 1, "kind", told)


def _schema_version(line: bytes) -> object:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value.get("schema_version") if isinstance(value, dict) else None


def _fill(made: RunFile, lines: list[bytes]) -> Iterator[Problem]:
    """Put the records of the lines behind the first into place; yield what cannot be used."""
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        record = _parsed(made.file, number, line, last=number == len(lines) + 1)
        if isinstance(record, Measurement):
            made.measurements.append((number, record))
        elif isinstance(record, Sentinel):
            made.sentinels.append((number, record))
        elif isinstance(record, End):
            made.end = record
        elif isinstance(record, Run):
            yield Problem(made.file, number, "kind", "second run line: a file holds one run")
        else:
            yield record


def _parsed(
    file: str, number: int, line: bytes, *, last: bool
) -> Run | Measurement | Sentinel | End | Problem:
    try:
        return parse(line)
    except ValidationError as error:
        return _problem(file, number, error, last=last)


def _problem(file: str, number: int, error: ValidationError, *, last: bool) -> Problem:
    """Say in words what is wrong with a line and what to do."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        if last:
            told = "torn last line: writing was cut short; resume the run, or add the file again"
        else:
            told = f"{first['msg']}; the line is left out: measure the case again"
        return Problem(file, number, "", told)
    place = ".".join(str(part) for part in first["loc"][1:]) or "kind"
    return Problem(file, number, place, f"{first['msg']}; the line is left out: {_remedy(first)}")


def _remedy(first: object) -> str:
    kind = first["type"] if isinstance(first, dict) else ""
    return {
        "union_tag_not_found": "this is not a record of this project",
        "union_tag_invalid": "this is not a record of this project",
        "extra_forbidden": "an unknown key; was it written by a newer version?",
        "missing": "was it written by another version?",
        "finite_number": "NaN and infinity are not measurements; measure the case again",
    }.get(str(kind), "measure the case again")
