"""Read the files under `data/runs`: every line becomes a record or a problem with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from collector.reading import read_lines
from collector.record import End, Measurement, Run, Sentinel, parse
from dashboard.model import Problem

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


def read_files(data: Path) -> tuple[list[RunFile], list[Problem]]:
    """Read every file, oldest run first; a second file of one run is left out, with a problem."""
    problems: list[Problem] = []
    read = [_read(path, path.relative_to(data).as_posix(), problems) for path in run_paths(data)]
    found = [one for one in read if one is not None]
    found.sort(key=lambda one: (one.run.started_at, one.run.run_id, one.file))
    return list(_distinct(found, problems)), problems


def run_paths(data: Path) -> list[Path]:
    """Return the record files under a data folder; none when there is no such folder."""
    return sorted((data / "runs").rglob("*.jsonl"))


def _distinct(found: list[RunFile], problems: list[Problem]) -> Iterator[RunFile]:
    files: dict[str, str] = {}
    for one in found:
        first = files.setdefault(one.run.run_id, one.file)
        if first == one.file:
            yield one
        else:
            told = f"run {one.run.run_id} is already in {first}: this file is left out; delete one"
            problems.append(Problem(one.file, 1, "run_id", told))


def _read(path: Path, name: str, problems: list[Problem]) -> RunFile | None:
    """Read one file; without a usable first line nothing in it can be used."""
    try:
        content = path.read_bytes()
    except OSError as error:
        problems.append(Problem(name, 0, "", f"cannot be read: {error.strerror}"))
        return None
    lines = _lines(name, content)
    faults = [one for _, one in lines if isinstance(one, Problem)]
    problems += _first(faults)
    run = lines[0][1]
    return _placed(RunFile(name, run), lines) if isinstance(run, Run) else None


def _lines(
    file: str, content: bytes
) -> list[tuple[int, Run | Measurement | Sentinel | End | Problem]]:
    """Return the numbered lines: in one go when all are well, else one by one with the reasons."""
    try:
        records = [parse(line) for line in content.removesuffix(b"\n").split(b"\n")]
    except ValidationError:
        return list(read_lines(file, content))
    kinds = [record.kind for record in records]
    if kinds[0] != "run" or "run" in kinds[1:] or "end" in kinds[:-1]:
        return list(read_lines(file, content))
    return list(enumerate(records, start=1))


def _first(faults: list[Problem]) -> list[Problem]:
    """Return the first problems of a file; a file of nothing else must not flood the site."""
    if len(faults) <= PROBLEMS_PER_FILE:
        return faults
    rest = faults[PROBLEMS_PER_FILE]
    told = f"and {len(faults) - PROBLEMS_PER_FILE} more lines from here on that cannot be used"
    return [*faults[:PROBLEMS_PER_FILE], Problem(rest.file, rest.line, "", told)]


def _placed(
    made: RunFile, lines: list[tuple[int, Run | Measurement | Sentinel | End | Problem]]
) -> RunFile:
    for number, record in lines:
        if isinstance(record, Measurement):
            made.measurements.append((number, record))
        elif isinstance(record, Sentinel):
            made.sentinels.append((number, record))
        elif isinstance(record, End):
            made.end = record
    return made
