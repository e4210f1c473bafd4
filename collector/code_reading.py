"""Lines of files under `data/codegen`, told good from bad: as `reading` does for runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from collector.code_record import Codegen, Toolchain, parse_code
from collector.reading import BadLineError, Problem, bad_field, json_object


@dataclass(frozen=True, slots=True)
class CodeFile:
    """Everything that one file holds: its first line, and one line a kernel, target and form."""

    toolchain: Toolchain
    lines: tuple[Codegen, ...]


def read_lines(file: str, content: bytes) -> Iterator[Toolchain | Codegen | Problem]:
    """Yield the record or problem of each line of a file under `data/codegen`."""
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            record = record_of(line)
            if (record.kind == "toolchain") != (number == 1):
                raise BadLineError("kind", "the toolchain line comes first, and once: restore it")
        except BadLineError as bad:
            yield Problem(file, number, bad.field, str(bad))
            continue
        yield record


def record_of(line: bytes) -> Toolchain | Codegen:
    """Return the record of one line; BadLineError says what is wrong."""
    json_object(line)
    try:
        return parse_code(line)
    except ValidationError as error:
        raise bad_field(error.errors(include_url=False)) from None
