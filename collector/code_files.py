"""Files under `data/codegen`: one a commit and compiler. Read, write, join and find them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.code_reading import CodeFile as CodeFile
from collector.code_reading import packed, read_lines, text_path, unpacked
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


def save_texts(file: CodeFile, texts: Mapping[str, str], data: Path) -> int:
    """Write the machine code that is not there yet, each once; return how many texts are new.

    That of changed sources, which no commit names, is not kept: nothing is ever compared with it.
    """
    source = file.toolchain.source
    if source.dirty or not source.commit:
        return 0
    new = {text_path(data, name): code for name, code in texts.items()}
    missing = {path: code for path, code in new.items() if not path.exists()}
    for path, code in missing.items():
        write_atomically(path, packed(code))
    return len(missing)


@dataclass(frozen=True, slots=True)
class Added:
    """A record of another host made ready: where it goes, and all that is not there yet."""

    path: Path
    kernels: int
    new: dict[Path, bytes]


def planned(sources: Iterable[Path], data: Path) -> list[Added]:
    """Decide what bringing in these records writes; StoreError when one cannot be brought in."""
    plans: dict[Path, Added] = {}
    for source in sources:
        one = plan_of(source, data)
        if plans.setdefault(one.path, one) is not one:
            raise StoreError(f"{source}: another of these is of the same commit: add it alone")
    return list(plans.values())


def plan_of(source: Path, data: Path) -> Added:
    """Join a record with what is known of its commit, and take the texts that lie beside it."""
    file = read(source)
    path = data / "codegen" / file_name(file.toolchain)
    whole = joined(source, file, path) if path.exists() else file
    new = {path: content(whole)} | beside(source, file, data)
    return Added(path, len(file.lines), {to: made for to, made in new.items() if changes(to, made)})


def joined(source: Path, file: CodeFile, path: Path) -> CodeFile:
    """Return both records in one; StoreError when they contradict one another."""
    there = read(path)
    both = merged(there, file)
    if content(both) != content(merged(file, there)):
        raise StoreError(f"{source}: differs from {path}, the same commit: keep one of the two")
    return both


def beside(source: Path, file: CodeFile, data: Path) -> dict[Path, bytes]:
    """Return the texts of a record that lie in the folder beside it; StoreError for a bad one."""
    found = {}
    for name in {line.code.sass_hash for line in file.lines if line.code}:
        path = source.parent / "sass" / f"{name}.z"
        if path.exists():
            text = unpacked(str(path), made := content_of(path))
            if isinstance(text, Problem):
                raise StoreError(str(text))
            found[text_path(data, name)] = made
    return found


def changes(path: Path, made: bytes) -> bool:
    """Tell whether a file has to be written; a text that is there stays as it is."""
    return not path.exists() or (path.suffix == ".jsonl" and path.read_bytes() != made)


def add(plans: Iterable[Added]) -> None:
    """Write what was planned, texts before the record that names them."""
    for one in plans:
        for path, made in reversed(one.new.items()):
            write_atomically(path, made)


def merged(old: CodeFile, new: CodeFile) -> CodeFile:
    """Join two files of one commit and toolchain; the new one wins where both speak.

    Of an op of which it holds a part, the whole stays.
    """
    if old.toolchain.versions != new.toolchain.versions:
        return new
    fresh = {(t, op) for t in new.toolchain.targets for op in new.toolchain.ops}
    before, after = by_op(old), by_op(new)
    lines = [line for key, made in before.items() if key not in fresh for line in made]
    for key, made in after.items():
        lines += updated(before.get(key, []), made)
    targets = {*old.toolchain.targets, *new.toolchain.targets}
    unsupported = old.toolchain.unsupported | new.toolchain.unsupported
    changed = {
        "targets": list(targets),
        "unsupported": {t: why for t, why in unsupported.items() if t not in targets},
        "ops": sorted({*old.toolchain.ops, *new.toolchain.ops}),
    }
    return ordered(new.toolchain.model_copy(update=changed), lines)


def by_op(file: CodeFile) -> dict[tuple[str, str], list[Codegen]]:
    """Return the lines of each target and op."""
    found: dict[tuple[str, str], list[Codegen]] = {}
    for line in file.lines:
        found.setdefault((line.target, line.op), []).append(line)
    return found


def updated(there: list[Codegen], made: list[Codegen]) -> list[Codegen]:
    """Return what was made, or where it is a part of what is there, all with the new code."""
    if not launches(there) > launches(made):
        return made
    new = {form_of(line): line for line in made}
    pairs = ((line, new.get(form_of(line), line)) for line in there)
    return [a.model_copy(update={"code": b.code, "reason": b.reason}) for a, b in pairs]


def launches(lines: Iterable[Codegen]) -> set[tuple[str, ...]]:
    """Return who launches which form."""
    return {
        (*form_of(line), use.implementation, workload)
        for line in lines
        for use in line.used_by
        for workload in use.workloads
    }


def form_of(line: Codegen) -> tuple[str, str, str, str]:
    """Return what tells the forms of an op apart on one target."""
    return line.kernel, line.signature, line.constants, line.options


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


def text_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files of machine code that are named, and all of data folders."""
    found = (text_path(path, "*") for path in paths if path.is_dir())
    inside = [file for form in found for file in sorted(form.parent.glob(form.name))]
    return inside + [path for path in paths if path.suffix == ".z"]


def validate(paths: Sequence[Path]) -> tuple[int, list[Problem]]:
    """Check codegen files, and all of data folders: how much is sound, and the problems."""
    chosen = [file for path in paths for file in (files(path) if path.is_dir() else [path])]
    rows: list[Toolchain | Codegen | Problem | str] = [
        row
        for path in chosen
        if is_code(path) and path.suffix != ".z"
        for row in read_lines(str(path), content_of(path))
    ]
    rows += [unpacked(str(path), content_of(path)) for path in text_files(paths)]
    problems = [row for row in rows if isinstance(row, Problem)]
    return len(rows) - len(problems), problems


def is_code(path: Path) -> bool:
    """Tell whether a file belongs here and not to the runs: by its folder, or by its first line."""
    if path.is_dir():
        return False
    if path.suffix == ".z":
        return True
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
