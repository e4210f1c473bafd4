"""Run files under `data/`: create, append, resume, import, validate. One run, one file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from collector.reading import BadLineError, Problem, Record, json_object, read_lines
from collector.record import End, Run, dump, parse

NO_RUNS = "no runs yet: `make collect` makes one"


class StoreError(RuntimeError):
    """A file cannot be read or written; the message says which, why, and what to do."""


def run_path(data: Path, run: Run) -> Path:
    """Return where a run belongs: the device's folder, then start, commit and run id."""
    kind = "counters" if run.purpose == "count" else "runs"
    start = run.started_at.split(".")[0].removesuffix("Z").replace("-", "").replace(":", "")
    commit = (run.source.commit or "nocommit")[:8]
    return data / kind / run.device.slug / f"{start}Z-{commit}-{run.run_id[:8]}.jsonl"


def run_files(data: Path) -> list[Path]:
    """Return all run files under a data folder, those of hardware counters last."""
    kinds = ("runs", "counters")
    return [path for kind in kinds for path in sorted((data / kind).rglob("*.jsonl"))]


def read(path: Path) -> Iterator[tuple[int, Record | Problem]]:
    """Yield the number and the record or problem of each line of a file."""
    yield from read_lines(str(path), content_of(path))


def content_of(path: Path) -> bytes:
    """Read a file; StoreError when that fails."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; check the path") from error


class RunFile:
    """The file of one run, open for appending by this process alone."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._unsaved = b""

    @classmethod
    def create(cls, data: Path, run: Run) -> Self:
        """Make the file of a new run and write its run line; a file that exists is refused."""
        path = run_path(data, run)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o644)
        except FileExistsError as error:
            raise StoreError(f"{path} exists: runs never share a file; start again") from error
        except OSError as error:
            raise StoreError(cannot_write(path, error)) from error
        made = cls(path, descriptor)
        try:
            made._lock()
            made.append(run)
            sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise
        return made

    @classmethod
    def resume(cls, path: Path) -> Resumed:
        """Open an unfinished run: cut off what is torn, and return what it holds so far."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise StoreError(cannot_write(path, error)) from error
        made = cls(path, descriptor)
        try:
            made._lock()
            return made._resumed()
        except BaseException:
            os.close(descriptor)
            raise

    def _resumed(self) -> Resumed:
        content = content_of(self.path)
        kept, notes = repaired(self.path, content)
        run, *records = sound_records(self.path, kept)
        if not isinstance(run, Run):
            raise StoreError(f"{self.path}:1: no run line; start a new run")
        if records and isinstance(end := records[-1], End):
            if end.outcome == "complete":
                raise StoreError(f"{self.path}: the run is complete; start a new one")
            records.pop()
            kept = kept[: kept[:-1].rfind(b"\n") + 1]
            notes.append(f"{self.path}: the run goes on; its end line ({end.outcome}) is cut off")
        self._cut(len(kept))
        self._unsaved = kept[len(content) :]
        self._flush()
        return Resumed(self, run, records, notes)

    def append(self, record: Record) -> None:
        """Add one whole line and wait until the disk has it.

        When the disk is full the file stays a sound prefix, and the line is kept for the next
        append or `close`.
        """
        line = f"{dump(record)}\n".encode()
        parse(line)
        self._unsaved += line
        self._flush()

    def close(self) -> None:
        """Write what could not be written before, and let go of the file."""
        try:
            self._flush()
        finally:
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _flush(self) -> None:
        size = os.fstat(self._descriptor).st_size
        try:
            write_all(self._descriptor, self._unsaved)
            os.fsync(self._descriptor)
        except OSError as error:
            self._cut(size)
            raise StoreError(cannot_write(self.path, error)) from error
        self._unsaved = b""

    def _cut(self, size: int) -> None:
        if os.fstat(self._descriptor).st_size > size:
            os.ftruncate(self._descriptor, size)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"{self.path}: another collector is writing it; wait") from error


@dataclass(frozen=True, slots=True)
class Resumed:
    """An unfinished run: its open file, what it holds, and what was repaired, in words."""

    file: RunFile
    run: Run
    records: list[Record]
    notes: list[str] = field(default_factory=list)


def repaired(path: Path, content: bytes) -> tuple[bytes, list[str]]:
    """Return the content without a torn last line, and what was done, in words."""
    if not content or content.endswith(b"\n"):
        return content, []
    whole, _, last = content.rpartition(b"\n")
    number = content.count(b"\n") + 1
    kept = whole + b"\n" if whole else b""
    try:
        json_object(last)
    except BadLineError:
        told = f"{path}:{number}: cut off after {len(last)} bytes; that line is left out"
        return kept, [told]
    return content + b"\n", [f"{path}:{number}: only its newline was missing; it is added"]


def sound_records(path: Path, content: bytes) -> list[Record]:
    """Return all records of a file's content; StoreError lists every problem."""
    rows = [row for _, row in read_lines(str(path), content)]
    problems = [row for row in rows if isinstance(row, Problem)]
    if problems:
        raise StoreError("\n".join(map(str, problems)))
    return [row for row in rows if not isinstance(row, Problem)]


def validate(paths: Iterable[Path]) -> tuple[int, list[Problem]]:
    """Check files, and all runs of data folders: the number of sound records, and the problems."""
    sound = 0
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for path in paths:
        for file in run_files(path) if path.is_dir() else [path]:
            for number, row in read(file):
                if isinstance(row, Problem):
                    problems.append(row)
                    continue
                sound += 1
                if isinstance(row, Run) and seen.setdefault(row.run_id, str(file)) != str(file):
                    told = f"run {row.run_id} is also in {seen[row.run_id]}: delete one of them"
                    problems.append(Problem(str(file), number, "run_id", told))
    return sound, problems


@dataclass(frozen=True, slots=True)
class Added:
    """What became of one imported file; `records` is zero when it was there already."""

    source: Path
    path: Path
    records: int
    notes: list[str] = field(default_factory=list)


def add(files: Iterable[Path], data: Path) -> list[Added]:
    """Bring in files that other hosts made: all of them when all are sound, else none.

    A file that is there already changes nothing.
    """
    there = {run.run_id: path for path in run_files(data) if (run := run_of(path))}
    new: dict[Path, bytes] = {}
    plans: list[Added] = []
    faults: list[str] = []
    for source in files:
        try:
            plans.append(plan_of(source, data, there, new))
        except StoreError as error:
            faults.append(str(error))
    if faults:
        raise StoreError("\n".join(faults))
    for path, content in new.items():
        write_atomically(path, content)
    return plans


def plan_of(source: Path, data: Path, there: dict[str, Path], new: dict[Path, bytes]) -> Added:
    """Decide where a file goes and put it into `there` and `new`.

    StoreError when it is not sound, or when its run is there with other lines.
    """
    content, notes = repaired(source, content_of(source))
    run, *records = sound_records(source, content)
    if not isinstance(run, Run):
        raise StoreError(f"{source}:1: no run line; nothing to add")
    if run.run_id in there:
        path = there[run.run_id]
        compare(source, content, path, new.get(path) or repaired(path, content_of(path))[0])
        return Added(source, path, 0, notes)
    path = there.setdefault(run.run_id, run_path(data, run))
    new[path] = content
    return Added(source, path, len(records) + 1, notes)


def compare(source: Path, content: bytes, path: Path, present: bytes) -> None:
    """Raise StoreError unless a file of the same run holds the same lines."""
    if content == present:
        return
    longer = content.startswith(present)
    said = "has more lines than" if longer else "differs from"
    remedy = "delete that one and add again" if longer else "keep one of the two"
    raise StoreError(f"{source}: {said} {path}, which is the same run: {remedy}")


def run_of(path: Path) -> Run | None:
    """Return the run line of a file, or None when it has no sound one."""
    _, first = next(read_lines(str(path), content_of(path).split(b"\n", 1)[0] + b"\n"))
    return first if isinstance(first, Run) else None


def choices_of(path: Path) -> list[str]:
    """Return what a run was asked for, as words of the command line of `collect`."""
    run = run_of(path)
    words = list(run.command) if run else []
    if "collect" not in words:
        raise StoreError(f"{path}: not a run of `collect` to go on with; start a new one")
    return words[words.index("collect") + 1 :]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that either is there whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        draft.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise StoreError(cannot_write(path, error)) from error


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte; the system may take fewer at a time."""
    while content:
        content = content[os.write(descriptor, content) :]


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's entries."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> str:
    """Say why a file cannot be written and what to do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        f"free some space, then go on with --resume {path}"
        if full
        else "allow it, or choose another folder with --output"
    )
    return f"cannot write {path}: {error.strerror}; {remedy}"
