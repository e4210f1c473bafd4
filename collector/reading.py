"""Read the lines of a run file: each becomes a record, or a problem with its place and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from collector.record import SCHEMA_VERSION, Counters, End, Measurement, Run, Sentinel, parse

Record: TypeAlias = Run | Measurement | Sentinel | Counters | End
Line: TypeAlias = dict[str, Any]
Upgrade: TypeAlias = Callable[[Line], Line]

UPGRADES: dict[int, Upgrade] = {}
"""Version n -> a pure function that turns one line of it into a line of version n + 1."""

KINDS = ("run", "sentinel", "measurement", "counters", "end")
LFS_POINTER = b"version https://git-lfs"
REMEDIES = {
    "extra_forbidden": "an unknown key: update this program, or remove the key",
    "missing": "the line was written by another program or edited: restore it",
    "greater_than": "a time that was not measured has to be left out, with its status",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one line, and what to do."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        """Write it as editors and compilers do."""
        place = f"{self.file}:{self.line}:"
        return f"{place} {self.field}: {self.message}" if self.field else f"{place} {self.message}"


class BadLineError(ValueError):
    """A line that is no record: the field, and what is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def read_lines(
    file: str, content: bytes, upgrades: Mapping[int, Upgrade] = UPGRADES
) -> Iterator[tuple[int, Record | Problem]]:
    """Yield the number and the record or problem of each line.

    Nothing behind a first line that is not a run line of a known version is read.
    """
    lines = content.removesuffix(b"\n").split(b"\n")
    try:
        version = version_of(lines[0])
    except BadLineError as bad:
        yield 1, Problem(file, 1, bad.field, explained(bad, content, 1, lines))
        return
    ended = False
    for number, line in enumerate(lines, start=1):
        try:
            record = record_of(line, version, upgrades)
            check_place(record, number, ended)
        except BadLineError as bad:
            yield number, Problem(file, number, bad.field, explained(bad, content, number, lines))
            continue
        ended = ended or record.kind == "end"
        yield number, record


def version_of(first: bytes) -> int:
    """Return the schema version that the run line states; BadLineError when it is no run line."""
    if not first.strip():
        raise BadLineError(
            "", "no run line: the file is empty or begins with an empty line; delete it"
        )
    if first.startswith(LFS_POINTER):
        raise BadLineError("", "a Git LFS pointer, not records: run `git lfs pull`")
    line = json_object(first)
    if line.get("kind") != "run":
        raise BadLineError("kind", f"{line.get('kind')!r} comes first, where the run line must be")
    version = line.get("schema_version")
    if type(version) is not int or version < 1:
        raise BadLineError("schema_version", f"{version!r} is no version of this record")
    if version > SCHEMA_VERSION:
        newer = f"version {version} is newer than {SCHEMA_VERSION}, the newest known here"
        raise BadLineError("schema_version", f"{newer}: update this program")
    return version


def record_of(line: bytes, version: int, upgrades: Mapping[int, Upgrade] = UPGRADES) -> Record:
    """Return the record of one line of that schema version; BadLineError says what is wrong."""
    if version == SCHEMA_VERSION:
        # Only the run line has values of any type, where pydantic would let NaN pass.
        with suppress(ValidationError):
            if (record := parse(line)).kind != "run":
                return record
    return explained_record(line, version, upgrades)


def explained_record(line: bytes, version: int, upgrades: Mapping[int, Upgrade]) -> Record:
    """Do the same at a third of the speed, with old versions and with a reason for a refusal."""
    value = json_object(line)
    for old in range(version, SCHEMA_VERSION):
        value = upgrades[old](value)
    if value.get("kind") not in KINDS:
        raise BadLineError("kind", f"{value.get('kind')!r} is none of {', '.join(KINDS)}")
    try:
        return parse(line if version == SCHEMA_VERSION else json.dumps(value))
    except ValidationError as error:
        raise bad_field(error.errors(include_url=False)) from None


def json_object(line: bytes) -> Line:
    """Return the JSON object of a line; BadLineError for anything else."""
    try:
        value = json.loads(line.decode(), parse_constant=refuse_constant)
    except BadLineError:
        raise
    except UnicodeDecodeError as error:
        raise BadLineError("", f"not UTF-8 at byte {error.start + 1}: restore the line") from None
    except (ValueError, RecursionError) as error:
        raise BadLineError("", f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadLineError("", f"a JSON {type(value).__name__}, not a record")
    return value


def refuse_constant(name: str) -> NoReturn:
    """Refuse what Python's JSON reads and JSON does not know."""
    raise BadLineError("", f"{name} is no measured value: remove the line and measure again")


def bad_field(errors: list[ErrorDetails]) -> BadLineError:
    """Say the first of pydantic's errors in our words."""
    first = errors[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    message = first["msg"].removeprefix("Value error, ")
    remedy = REMEDIES.get(first["type"], "correct the line or remove it")
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return BadLineError(field, f"{message}{more}; {remedy}")


def check_place(record: Record, number: int, ended: bool) -> None:
    """Raise BadLineError for a line in the wrong place."""
    if record.kind == "run" and number > 1:
        raise BadLineError("kind", "a second run line: one file holds one run; split the file")
    if ended:
        raise BadLineError("kind", "a line behind the end of the run: remove it")


def explained(bad: BadLineError, content: bytes, number: int, lines: list[bytes]) -> str:
    """Tell a line that was cut off while it was written from one that is wrong."""
    torn = number == len(lines) and lines[-1] and not content.endswith(b"\n")
    if torn and not bad.field:
        return "cut off: the writer was stopped; `--resume` or `add` repair it"
    return str(bad)
