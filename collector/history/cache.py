"""Remember what is slow to make, from one build to the next; a lost cache costs time alone."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

CHECKSUM_BYTES = 32
LIBRARIES = ("pydantic", "jinja2", "scipy", "plotly")


@dataclass(frozen=True, slots=True)
class Cache:
    """Values by kind and key, as files in a folder; without a folder all is made anew.

    `code` names all that makes the values. A value is trusted when its checksum is right.
    """

    folder: Path | None
    code: str = ""

    def get(self, kind: str, key: str, make: Callable[[], T], keep: int | None = None) -> T:
        """Return the value, made when it is not there; `keep` bounds the files of its kind."""
        known: T | None = self.look(kind, key)
        if known is not None:
            return known
        made = make()
        if self.folder is not None:
            # A folder that cannot be written to is no reason to build no site.
            with suppress(OSError):
                _write(self._path(self.folder, kind, key), pickle.dumps(made, protocol=5))
                _remove_oldest(self.folder.glob(f"{kind}-*.pickle"), keep)
        return made

    def look(self, kind: str, key: str) -> Any:
        """Return the value if it is there, else None."""
        content = _content(self._path(self.folder, kind, key)) if self.folder else None
        return None if content is None else pickle.loads(content)

    def _path(self, folder: Path, kind: str, key: str) -> Path:
        name = sha256(f"{self.code}\0{key}".encode()).hexdigest()[:32]
        return folder / f"{kind}-{name}.pickle"


NO_CACHE = Cache(None)


@cache
def standard_cache(root: Path) -> Cache:
    """Return the cache of this project; what another program made is removed.

    The program is what was imported: a process that lives longer than its files must not ask again.
    """
    libraries = [f"{name} {version(name)}" for name in LIBRARIES]
    parts = [root / "collector", root / "site" / "dashboard"]
    code = fingerprint(parts, sys.version, *libraries)
    every = root / "build" / "cache"
    folder = every / code[:16]
    if not folder.exists():
        shutil.rmtree(every, ignore_errors=True)
    return Cache(folder, code)


def fingerprint(roots: Iterable[Path], *words: str) -> str:
    """Hash all files below some folders, names and contents, and some words."""
    total = sha256("\0".join(words).encode())
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                content, name = path.read_bytes(), path.relative_to(root).as_posix()
                total.update(f"\0{name}\0{len(content)}\0".encode())
                total.update(content)
    return total.hexdigest()


def _content(path: Path) -> bytes | None:
    """Return what was written; None when it is not there or no more what it was."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    check, value = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
    return value if sha256(value).digest() == check else None


def _write(path: Path, value: bytes) -> None:
    """Write a file that is there as a whole or not at all, whoever else writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(sha256(value).digest() + value)
    part.replace(path)


def _remove_oldest(paths: Iterable[Path], keep: int | None) -> None:
    if keep is None:
        return
    aged = sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in aged[keep:]:
        path.unlink(missing_ok=True)
