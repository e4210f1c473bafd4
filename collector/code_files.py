"""Files under `data/codegen`: one a commit and compiler. Read, write, join and find them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collector.code_reading import CodeFile as CodeFile
from collector.code_reading import read_lines
from collector.code_record import Codegen, Toolchain
from collector.device import git
from collector.reading import Problem
from collector.record import dump
from collector.store import StoreError, content_of, write_atomically


def file_name(toolchain: Toolchain) -> str:
    """Name a file by its commit and its compiler, so that equal input goes to the same place."""
    commit = (toolchain.source.commit or "nocommit")[:8]
    changed = "-dirty" if toolchain.source.dirty else ""
    return f"{commit}{changed}-triton-{toolchain.versions['triton']}.jsonl"


def save(file: CodeFile, data: Path) -> Path:
    """Write the file; what an earlier call found out about other ops and targets stays in it.

    Files of changed sources, which no commit names, are written anew.
    """
    path = data / "codegen" / file_name(file.toolchain)
    if path.exists() and not file.toolchain.source.dirty:
        file = merged(read(path), file)
    write_atomically(path, content(file))
    return path


def merged(old: CodeFile, new: CodeFile) -> CodeFile:
    """Join two files of one commit and toolchain; the new one wins where both speak."""
    if old.toolchain.versions != new.toolchain.versions:
        return new
    fresh = {(t, op) for t in new.toolchain.targets for op in new.toolchain.ops}
    lines = [line for line in old.lines if (line.target, line.op) not in fresh]
    targets = {*old.toolchain.targets, *new.toolchain.targets}
    unsupported = old.toolchain.unsupported | new.toolchain.unsupported
    changed = {
        "targets": list(targets),
        "unsupported": {t: why for t, why in unsupported.items() if t not in targets},
        "ops": sorted({*old.toolchain.ops, *new.toolchain.ops}),
    }
    return ordered(new.toolchain.model_copy(update=changed), [*lines, *new.lines])


def ordered(toolchain: Toolchain, lines: Iterable[Codegen]) -> CodeFile:
    """Sort by target and op; within these, the order of the first launch stays."""
    targets = sorted(toolchain.targets, key=target_order)
    sorted_lines = sorted(lines, key=lambda line: (target_order(line.target), line.op))
    return CodeFile(toolchain.model_copy(update={"targets": targets}), tuple(sorted_lines))


def target_order(target: str) -> tuple[str, int]:
    """Sort NVIDIA's architectures by number, in front of AMD's."""
    number = target.removeprefix("sm_")
    return ("", int(number)) if number.isdigit() else (target, 0)


def content(file: CodeFile) -> bytes:
    """Write a file's bytes."""
    lines = [dump(file.toolchain), *map(dump, file.lines)]
    return "".join(f"{line}\n" for line in lines).encode()


def read(path: Path) -> CodeFile:
    """Read a file; StoreError lists its problems."""
    rows = list(read_lines(str(path), content_of(path)))
    if problems := [row for row in rows if isinstance(row, Problem)]:
        raise StoreError("\n".join(map(str, problems)))
    toolchain, *lines = [row for row in rows if not isinstance(row, Problem)]
    assert isinstance(toolchain, Toolchain)
    return CodeFile(toolchain, tuple(line for line in lines if isinstance(line, Codegen)))


def files(data: Path) -> list[Path]:
    """Return all codegen files under a data folder, by name."""
    return sorted((data / "codegen").glob("*.jsonl"))


def validate(paths: Iterable[Path]) -> tuple[int, list[Problem]]:
    """Check codegen files, and all of data folders: the number of sound lines, and the problems."""
    chosen = [file for path in paths for file in (files(path) if path.is_dir() else [path])]
    rows = [
        row for path in chosen if is_code(path) for row in read_lines(str(path), content_of(path))
    ]
    problems = [row for row in rows if isinstance(row, Problem)]
    return len(rows) - len(problems), problems


def is_code(path: Path) -> bool:
    """Tell whether a file belongs here and not to the runs: by its folder, or by its first line."""
    if path.is_dir():
        return False
    return path.parent.name == "codegen" or content_of(path).startswith(b'{"kind":"toolchain"')


def recorded(data: Path, commit: str, versions: dict[str, str]) -> Path | None:
    """Return the file of a commit or of its nearest ancestor that has one by this toolchain."""
    history = (git("rev-list", "--topo-order", commit) or "").split()
    known = {file.source.commit: path for path in files(data) if (file := head_of(path))
             and file.versions == versions and not file.source.dirty}  # fmt: skip
    return next((known[sha] for sha in history if sha in known), None)


def head_of(path: Path) -> Toolchain | None:
    """Return the first line of a file, or None when it is not sound."""
    first = next(read_lines(str(path), content_of(path).split(b"\n", 1)[0]))
    return first if isinstance(first, Toolchain) else None
