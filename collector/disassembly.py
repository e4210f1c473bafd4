"""Disassemble many NVIDIA kernels at once, each as Triton's disassembler would alone.

The tool needs half a second to start, however small the code. One file that holds the code of
many kernels pays for that once.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple
from unittest.mock import patch

from triton.tools import disasm

HEADER = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
SECTION_TABLE, SECTION_COUNT = 0x28, 0x3C
FUNCTION, WITH_ENTRY = 0x12, 0x10  # global, with default visibility
CODE = ".text."
SYMBOLS, CODE_ALIGNMENT = 2, 128
REGISTERS = 0xFF000000  # of a thread, in the highest byte of what a code section refers to


class UnlikeError(Exception):
    """A file that cannot take part: it has not exactly one function, or the tool refused."""


@dataclass(slots=True)
class Section:
    """One section: its header's fields, and what it holds."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Function(NamedTuple):
    """The one function of a file."""

    name: str
    section: Section
    code: bytes


def disassembled(cubins: Sequence[bytes]) -> list[str]:
    """Return the machine code of each kernel as text; files of one architecture."""
    if len(cubins) > 1:
        try:
            return parsed(printed(merged(cubins)), [code_of(cubin).name for cubin in cubins])
        except (UnlikeError, subprocess.CalledProcessError, struct.error):
            pass
    return [disasm.get_sass(cubin) for cubin in cubins]


def printed(cubin: bytes) -> str:
    """Return what the tool prints of a file."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [disasm.path_to_cuobjdump(), "-sass", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parsed(text: str, names: Sequence[str]) -> list[str]:
    """Split what the tool printed into functions, and call each by its name in its own file."""
    head, *functions = re.split(r"(?m)^(?=[ \t]*Function : )", text)
    labels = [re.match(r"[ \t]*Function : (\w+)", function) for function in functions]
    known = {label[1]: head + made for label, made in zip(labels, functions, strict=True) if label}
    wanted = [names[0], *(added_name(place) for place in range(1, len(names)))]
    if known.keys() != {*wanted} or len(functions) != len(names):
        raise UnlikeError(f"the tool printed {len(functions)} of {len(names)} functions")
    texts = [read_by_triton(known[label]).partition("\n")[2] for label in wanted]
    return [f"Function:{name}\n{body}" for name, body in zip(names, texts, strict=True)]


def read_by_triton(text: str) -> str:
    """Return what Triton makes of the text of a tool that has run already."""
    with patch.object(disasm.subprocess, "check_output", lambda command: text.encode()):
        return str(disasm.extract("", None))


def added_name(place: int) -> str:
    """Name a function that is added to the first file."""
    return f"almanac_added_{place}"


def merged(cubins: Sequence[bytes]) -> bytes:
    """Add the code of all other files to the first one, each as a function with a name of ours."""
    whole, functions = bytearray(cubins[0]), [code_of(cubin) for cubin in cubins]
    sections, names = table(whole)
    (symbols,) = [one for one in sections if one.kind == SYMBOLS]
    labels = [f"{added_name(place)}\0".encode() for place in range(1, len(cubins))]
    in_names = extended(whole, names, [b".text." + label for label in labels])
    in_strings = extended(whole, sections[symbols.link], labels)
    entries = [
        SYMBOL.pack(string, FUNCTION, WITH_ENTRY, len(sections) + place, 0, len(function.code))
        for place, (string, function) in enumerate(zip(in_strings, functions[1:], strict=True))
    ]
    in_symbols = extended(whole, symbols, entries)
    link = sections.index(symbols)
    for name, entry, function in zip(in_names, in_symbols, functions[1:], strict=True):
        registers = function.section.info & REGISTERS
        sections.append(
            replace(
                function.section, name=name, offset=put(whole, function.code), link=link,
                info=registers | entry // SYMBOL.size,
            )
        )  # fmt: skip
    start = put(whole, b"".join(HEADER.pack(*astuple(one)) for one in sections))
    struct.pack_into("<Q", whole, SECTION_TABLE, start)
    struct.pack_into("<H", whole, SECTION_COUNT, len(sections))
    return bytes(whole)


def extended(whole: bytearray, section: Section, parts: Sequence[bytes]) -> list[int]:
    """Move a section behind all others and add parts to it; return where in it each begins."""
    held = bytearray(content(whole, section))
    begins = []
    for part in parts:
        begins.append(len(held))
        held += part
    section.offset, section.size = put(whole, held), len(held)
    return begins


def table(cubin: bytes | bytearray) -> tuple[list[Section], Section]:
    """Return all sections, and the one with their names."""
    (start,) = struct.unpack_from("<Q", cubin, SECTION_TABLE)
    count, names = struct.unpack_from("<HH", cubin, SECTION_COUNT)
    places = (start + place * HEADER.size for place in range(count))
    sections = [Section(*HEADER.unpack_from(cubin, place)) for place in places]
    return sections, sections[names]


def content(cubin: bytes | bytearray, section: Section) -> bytes:
    """Return what a section holds."""
    return bytes(cubin[section.offset : section.offset + section.size])


def code_of(cubin: bytes) -> Function:
    """Return the one function of a file."""
    sections, names = table(cubin)
    known = content(cubin, names)
    labels = [known[one.name :].split(b"\0", 1)[0].decode() for one in sections]
    found = [place for place, label in enumerate(labels) if label.startswith(CODE)]
    if len(found) != 1:
        raise UnlikeError(f"{len(found)} functions")
    section = sections[found[0]]
    return Function(labels[found[0]].removeprefix(CODE), section, content(cubin, section))


def put(whole: bytearray, part: bytes | bytearray) -> int:
    """Append a part, aligned; return where it begins."""
    whole += b"\0" * (-len(whole) % CODE_ALIGNMENT)
    whole += part
    return len(whole) - len(part)
