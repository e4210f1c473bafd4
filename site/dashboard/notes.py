"""Notes that people write about ops: Markdown under the site's documents, found by front matter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*\n", re.DOTALL)
HEADING = re.compile(r"^# +(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Note:
    """A page that people wrote, and the ops that it names; `path` is from the root of the site."""

    path: str
    title: str
    description: str
    ops: tuple[str, ...]


def read_notes(docs: Path) -> tuple[Note, ...]:
    """Return the notes that name ops in their front matter (`ops: [sinkhorn]`), by file name.

    ValueError names a file whose front matter cannot be read.
    """
    return tuple(_notes(docs))


def _notes(docs: Path) -> Iterator[Note]:
    for path in sorted((docs / "notes").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        front = _front(text, path.name)
        named = front.get("ops") or ()
        if ops := (named,) if isinstance(named, str) else tuple(map(str, named)):
            heading = HEADING.search(text)
            title = front.get("title") or (heading[1] if heading else path.stem)
            told = str(front.get("description") or "")
            yield Note(path.relative_to(docs).as_posix(), str(title), told, ops)


def _front(text: str, name: str) -> dict[str, Any]:
    found = FRONT.match(text)
    try:
        made = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError as error:
        raise ValueError(f"notes/{name}: front matter is no YAML: {error}") from error
    return made if isinstance(made, dict) else {}
