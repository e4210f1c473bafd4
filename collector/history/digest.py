"""Digest the files: all that one run says as points; the lines themselves are needed no more."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache as remember
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from collector.history.cache import NO_CACHE, Cache
from collector.history.machine import sentinel_points
from collector.history.merging import Located, merge
from collector.history.model import Point, Problem, SentinelPoint, SeriesKey, Sizes
from collector.history.processes import spread
from collector.history.reading import RunFile, read_run, run_paths
from collector.record import Correctness, CostRecord, End, KernelCode, Measurement, Run


@dataclass(frozen=True, slots=True)
class Digest:
    """One file; `problems` are all that is wrong with it. Without a run nothing can be used."""

    file: str
    problems: tuple[Problem, ...]
    run: Run | None = None
    end: End | None = None
    records: int = 0
    replicates: int = 0
    points: Mapping[SeriesKey, tuple[Point, ...]] = field(default_factory=dict)
    sentinels: tuple[SentinelPoint, ...] = ()


@remember
def _shared(kind: type[Any], values: tuple[tuple[str, object], ...]) -> Any:
    """Return a part of records: the same for all that are equal, or a history would be huge."""
    return kind.model_construct(**dict(values))


def _apart(part: Any) -> tuple[Any, ...]:
    return _shared, (type(part), tuple(part.__dict__.items()))


for _kind in (CostRecord, Correctness, KernelCode):
    copyreg.pickle(_kind, _apart)


class Names:
    """Sizes by content: one order of their names wherever they were written in another."""

    def __init__(self) -> None:
        self._written: dict[Sizes, Sizes] = {}
        self._sizes: dict[frozenset[tuple[str, int]], Sizes] = {}

    def sizes(self, written: Sizes) -> Sizes:
        """Return the sizes as first written."""
        if written not in self._written:
            self._written[written] = self._sizes.setdefault(frozenset(written), written)
        return self._written[written]


def read_digests(data: Path, cache: Cache = NO_CACHE) -> list[Digest]:
    """Digest every file under a data folder; a file that the cache knows is not read again."""
    files = [(path, path.relative_to(data).as_posix(), cache) for path in run_paths(data)]
    if cache.folder is None:
        return [_read(*one) for one in files]
    known = [_known(*one) for one in files]
    spread([partial(_remember, *one) for one, there in zip(files, known, strict=True) if not there])
    return [there or _read(*one) for one, there in zip(files, known, strict=True)]


def _known(path: Path, name: str, cache: Cache) -> Digest | None:
    """Return what the cache has of a file; one that cannot be read is told later."""
    known: Digest | None = None
    with suppress(OSError):
        known = cache.look("run", _key(name, path.read_bytes()))
    return known


def _remember(path: Path, name: str, cache: Cache) -> None:
    _read(path, name, cache)


def _read(path: Path, name: str, cache: Cache) -> Digest:
    try:
        content = path.read_bytes()
    except OSError as error:
        return Digest(name, (Problem(name, 0, "", f"cannot be read: {error.strerror}"),))
    return cache.get("run", _key(name, content), lambda: digest(name, content))


def _key(name: str, content: bytes) -> str:
    return sha256(name.encode() + b"\0" + content).hexdigest()


def digest(file: str, content: bytes) -> Digest:
    """Return what a file says; the same content gives the same."""
    read, faults = read_run(file, content)
    if read is None:
        return Digest(file, faults)
    problems = [*faults, *_failed_sentinels(read)]
    cases = _cases(read, problems)
    commit = read.run.source.commit
    return Digest(
        file=file,
        problems=tuple(problems),
        run=read.run,
        end=read.end,
        records=read.records,
        replicates=len({line.replicate for _, line in read.measurements}),
        points={
            name: tuple(merge(read.run.run_id, commit, file, lines))
            for name, lines in cases.items()
        },
        sentinels=sentinel_points(read),
    )


def _cases(one: RunFile, problems: list[Problem]) -> dict[SeriesKey, list[Located]]:
    """Group the lines of one run by case and give back what later lines leave out."""
    names, device = Names(), one.run.device.slug
    first: dict[tuple[object, ...], Measurement] = {}
    taken: set[tuple[SeriesKey, int]] = set()
    cases: dict[SeriesKey, list[Located]] = {}
    for number, line in one.measurements:
        case, replicate = line.case, line.replicate
        workload = (
            device, case.op, case.implementation, case.mode, case.workload.dtype,
            names.sizes(tuple(case.workload.sizes.items())),
        )  # fmt: skip
        name = SeriesKey(*workload, case.timer, case.cache)
        if (name, replicate) in taken:
            told = f"replicate {replicate} of this case was already measured; the first counts"
            problems.append(Problem(one.file, number, "case", told))
            continue
        taken.add((name, replicate))
        details = first.setdefault((workload, replicate), line)
        cases.setdefault(name, []).append(Located(number, line, details))
    return cases


def _failed_sentinels(one: RunFile) -> Iterator[Problem]:
    for number, sentinel in one.sentinels:
        if sentinel.status not in ("passed", "unavailable"):
            told = f"sentinel {sentinel.name}: {sentinel.status}: {sentinel.reason or 'no reason'}"
            yield Problem(one.file, number, "status", told)
