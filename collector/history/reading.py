"""Read the files under `data/runs`: every line becomes a record or a problem with its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from collector.reading import Problem, read_lines
from collector.record import Counters, End, Measurement, Run, Sentinel

PROBLEMS_PER_FILE = 20


@dataclass(slots=True)
class RunFile:
    """One file, as far as it could be read."""

    file: str
    run: Run
    measurements: list[tuple[int, Measurement]] = field(default_factory=list)
    sentinels: list[tuple[int, Sentinel]] = field(default_factory=list)
    counters: list[tuple[int, Counters]] = field(default_factory=list)
    end: End | None = None

    @property
    def records(self) -> int:
        """Number of lines that could be read."""
        lines = len(self.measurements) + len(self.sentinels) + len(self.counters)
        return 1 + lines + (self.end is not None)


def run_paths(data: Path) -> list[Path]:
    """Return the record files under a data folder; none when there is no such folder."""
    return sorted((data / "runs").rglob("*.jsonl"))


def counters_paths(data: Path) -> list[Path]:
    """Return the files of hardware counters under a data folder; none when there are none."""
    return sorted((data / "counters").rglob("*.jsonl"))


def read_run(file: str, content: bytes) -> tuple[RunFile | None, tuple[Problem, ...]]:
    """Read one file; without a usable first line nothing in it can be used."""
    found: RunFile | None = None
    faults: list[Problem] = []
    for number, record in read_lines(file, content):
        if isinstance(record, Problem):
            faults.append(record)
        elif isinstance(record, Run):
            found = RunFile(file, record)
        elif found is not None:
            _place(found, number, record)
    return found, tuple(_first(faults))


def _place(made: RunFile, number: int, record: Measurement | Sentinel | Counters | End) -> None:
    if isinstance(record, Measurement):
        made.measurements.append((number, record))
    elif isinstance(record, Sentinel):
        made.sentinels.append((number, record))
    elif isinstance(record, Counters):
        made.counters.append((number, record))
    else:
        made.end = record


def _first(faults: list[Problem]) -> list[Problem]:
    """Return the first problems of a file; a file of nothing else must not flood the site."""
    if len(faults) <= PROBLEMS_PER_FILE:
        return faults
    rest = faults[PROBLEMS_PER_FILE]
    told = f"and {len(faults) - PROBLEMS_PER_FILE} more lines from here on that cannot be used"
    return [*faults[:PROBLEMS_PER_FILE], Problem(rest.file, rest.line, "", told)]
