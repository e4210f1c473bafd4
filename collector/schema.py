"""What is generated from the record: its JSON schema and `data/README.md`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from collector.code_record import Codegen, Toolchain
from collector.record import SCHEMA_VERSION, Counters, End, Measurement, Run, Sentinel

ANY_LINE: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        Run | Measurement | Sentinel | Counters | End | Toolchain | Codegen,
        Field(discriminator="kind"),
    ]
)

INTRODUCTION = f"""\
<!-- Generated from collector/record.py by `make fix`. -->
# The data

Everything that the website shows comes from the files in this folder.

| Path | What it is |
| --- | --- |
| `runs/<device>/<start>-<commit>-<run>.jsonl` | one run of the collector: one JSON object a line |
| `codegen/<commit>-<compiler>.jsonl` | what a compiler made of a commit's kernels |
| `codegen/sass/<hash>.z` | normalised machine code, compressed with zlib, named by its hash |
| `counters/<device>/<start>-<commit>-<run>.jsonl` | what the hardware counted in single calls |
| `schema/record.v{SCHEMA_VERSION}.schema.json` | the JSON schema of a line |
| `acknowledged.yml` | changes of speed that people looked at and accepted |

The first line of a file is the `run`, the last one its `end`; `sentinel` and `measurement` lines
stand between. A file without an `end` was cut short and is still good: `python -m collector collect
--resume FILE` goes on with it. Files are added and never edited. `python -m collector validate`
checks them, `python -m collector add FILE...` brings in those that another host made.

A file under `codegen/` begins with its `toolchain` line; `codegen` lines follow. No GPU is needed:
`python -m collector codegen` writes it, and the same sources and compiler give the same bytes.
Beside it, in `sass/`, it writes the machine code of every form once, by its `sass_hash`; the oldest
records have none.

A file under `counters/` is written by `python -m collector counters`: a `run` line, a `counters`
line for each case, an `end`. Traffic, intensity and amplification are computed when it is read.

Times are nanoseconds, sizes bytes; every name ends with its unit. A field that has no value is left
out. There is no default for anything that was measured: a time that is not there was not measured.
"""


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a line."""
    made = ANY_LINE.json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Kernel Almanac"}
    return head | made


def generated(data: Path) -> dict[Path, str]:
    """Return every generated file under a data folder with what it must hold."""
    made = json_schema()
    return {
        data
        / "schema"
        / f"record.v{SCHEMA_VERSION}.schema.json": f"{json.dumps(made, indent=2)}\n",
        data / "README.md": readme(made),
    }


def stale(data: Path) -> list[Path]:
    """Return the generated files that are missing or differ."""
    return [
        path
        for path, text in generated(data).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def write(path: Path, data: Path) -> None:
    """Write one generated file of a data folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(generated(data)[path], encoding="utf-8")


def readme(made: dict[str, Any]) -> str:
    """Describe every field of the schema: the lines first, then the parts that they hold."""
    parts: dict[str, dict[str, Any]] = made["$defs"]
    lines = [referred(line) for line in made["oneOf"]]
    rest = [name for name in parts if name not in lines]
    sections = [INTRODUCTION]
    for title, names in (("Lines", lines), ("Parts of lines", rest)):
        sections.append(f"## {title}\n")
        sections += ["\n".join(section(name, parts)) for name in names]
    return "\n".join(sections)


def section(name: str, parts: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Write one object as a heading, a sentence and a table of its fields."""
    part = parts[name]
    yield f"### {name}\n"
    yield f"{part['description'].splitlines()[0]}\n"
    yield "| Field | Type | Meaning |"
    yield "| --- | --- | --- |"
    needed = part.get("required", [])
    for field, shape in part["properties"].items():
        optional = "" if field in needed or field == "kind" else "; may be left out"
        yield f"| `{field}` | {type_of(shape)}{optional} | {meaning_of(shape, parts)} |"
    yield ""


def meaning_of(shape: dict[str, Any], parts: dict[str, dict[str, Any]]) -> str:
    """Return a field's description; where it only refers to a part, that part's."""
    told = shape.get("description")
    if told is None:
        told = (
            "Tells the lines apart." if "const" in shape else parts[referred(shape)]["description"]
        )
    return escaped(" ".join(told.split()))


def referred(shape: dict[str, Any]) -> str:
    """Return the name of the part that a field refers to."""
    return str(shape["$ref"]).rpartition("/")[2]


def escaped(text: str) -> str:
    """Keep bars from ending a table cell."""
    return text.replace("|", r"\|")


def type_of(shape: dict[str, Any]) -> str:
    """Say the type of a field in a few words."""
    if "$ref" in shape:
        return f"[{referred(shape)}](#{referred(shape).lower()})"
    if "const" in shape:
        return f"`{shape['const']}`"
    if "enum" in shape:
        return ", ".join(f"`{value}`" for value in shape["enum"])
    if "anyOf" in shape:
        return " or ".join(
            type_of(option) for option in shape["anyOf"] if option != {"type": "null"}
        )
    if shape.get("type") == "array":
        return f"list of {type_of(shape['items'])}"
    if shape.get("type") == "object":
        held = shape.get("additionalProperties")
        return f"object of {type_of(held)}" if isinstance(held, dict) else "object"
    return scalar(shape)


def scalar(shape: dict[str, Any]) -> str:
    """Say a plain type with its bounds."""
    bounds = [
        f"{word} {shape[key]}"
        for key, word in (("minimum", "at least"), ("exclusiveMinimum", "above"))
        if key in shape
    ]
    return " ".join([shape.get("type", "anything"), *bounds])
