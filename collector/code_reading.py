"""Files under `data/codegen`, told good from bad: lines as `reading` does for runs, and texts.

The normalised machine code of a form is kept once, compressed, in a file named by its hash.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from collector.code_record import Codegen, Toolchain, parse_code
from collector.reading import BadLineError, Problem, bad_field, json_object

REMEDY = "restore it with git, or delete it: a record needs no text"


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


def code_hash(code: str) -> str:
    """Hash normalised machine code."""
    return hashlib.sha256(code.encode()).hexdigest()[:12]


def text_path(data: Path, name: str) -> Path:
    """Return where the machine code with a hash is kept."""
    return data / "codegen" / "sass" / f"{name}.z"


def packed(code: str) -> bytes:
    """Return the content of the file of a text."""
    return zlib.compress(code.encode(), 9)


def unpacked(file: str, content: bytes) -> str | Problem:
    """Return the text of such a file, or what is wrong: its hash is its name."""
    try:
        code = zlib.decompress(content).decode()
    except (zlib.error, UnicodeDecodeError):
        return Problem(file, 1, "text", f"is no compressed text: {REMEDY}")
    named = Path(file).stem
    if (found := code_hash(code)) != named:
        return Problem(file, 1, "text", f"its hash is {found}, its name {named}: {REMEDY}")
    return code
