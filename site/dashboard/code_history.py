"""What the compiler made of each commit: records under `data/codegen` in order, and compared."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from collector.code_reading import read_lines, text_path, unpacked
from collector.code_record import Codegen, Toolchain
from collector.code_rules import Difference, Use, by_use, compared, differences, in_common
from collector.history.commits import GitCommit
from collector.history.model import Problem, SeriesKey
from collector.record import Device

STEPS = 50  # records that are compared with the one before
Found = Mapping[Use, Sequence[Difference]]


@dataclass(frozen=True, slots=True)
class CodeRecord:
    """One file: what one compiler made of the kernels of one commit."""

    file: str
    toolchain: Toolchain
    lines: tuple[Codegen, ...]

    @property
    def commit(self) -> str:
        """Return the full hash; empty where it is not known."""
        return self.toolchain.source.commit or ""

    @property
    def triton(self) -> str:
        """Return the version of Triton."""
        return self.toolchain.versions.get("triton", "unknown")

    @property
    def sound(self) -> bool:
        """Tell whether a commit names what was compiled."""
        return bool(self.commit) and not self.toolchain.source.dirty


@dataclass(frozen=True, slots=True)
class Step:
    """A record against the one before it, over targets and ops that both hold.

    `first` are the ops that the one before does not hold; `launches` counts what was compared,
    `apart` the kernels of launches that only one of the two holds, which are not in `found`.
    """

    record: CodeRecord
    before: CodeRecord | None
    found: tuple[Difference, ...]
    launches: int
    first: tuple[str, ...]
    apart: int

    @property
    def other_compiler(self) -> bool:
        """Tell whether differences may be the compiler's."""
        before = self.before
        return before is not None and before.toolchain.versions != self.record.toolchain.versions

    @property
    def gated(self) -> tuple[Difference, ...]:
        """Return the differences that break a rule which fails a check."""
        return tuple(one for one in self.found if any(rule.gate for rule in one.rules))


@dataclass(slots=True)
class CodeHistory:
    """All sound records, oldest first; comparisons of two commits are made once.

    `texts` holds the machine code that pages show, by its hash.
    """

    records: tuple[CodeRecord, ...] = ()
    left_out: int = 0
    steps: tuple[Step, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    _pairs: dict[tuple[str, str], Found | None] = field(default_factory=dict)

    def at(self, commit: str) -> list[CodeRecord]:
        """Return the records of a commit, one for each compiler."""
        return [record for record in self.records if record.commit == commit]

    def steps_at(self, commit: str) -> list[Step]:
        """Return the comparisons of a commit with what was before it."""
        return [step for step in self.steps if step.record.commit == commit]

    def between(self, before: str, after: str) -> Found | None:
        """Return what differs between two commits, by launches that both have.

        None unless one compiler made both.
        """
        pair = before, after
        if pair not in self._pairs:
            self._pairs[pair] = self._between(before, after)
        return self._pairs[pair]

    def _between(self, before: str, after: str) -> Found | None:
        for new in reversed(self.at(after)):
            for old in self.at(before):
                if old.toolchain.versions == new.toolchain.versions:
                    return _by_use(*_common(old, new))
        return None

    def newest(self) -> dict[tuple[str, str], CodeRecord]:
        """Return the newest record of each target and op."""
        found: dict[tuple[str, str], CodeRecord] = {}
        for record in self.records:
            for target in record.toolchain.targets:
                found |= {(target, op): record for op in record.toolchain.ops}
        return found


def read_code(data: Path) -> tuple[list[CodeRecord], list[Problem]]:
    """Read all files; what cannot be used is a problem, and the rest stays."""
    records, problems = [], []
    for path in sorted((data / "codegen").glob("*.jsonl")):
        rows = list(read_lines(path.relative_to(data).as_posix(), path.read_bytes()))
        problems += [row for row in rows if isinstance(row, Problem)]
        heads = [row for row in rows if isinstance(row, Toolchain)]
        lines = tuple(row for row in rows if isinstance(row, Codegen))
        if heads:
            records.append(CodeRecord(path.relative_to(data).as_posix(), heads[0], lines))
    return records, problems


def read_texts(data: Path, names: Iterable[str]) -> tuple[dict[str, str], list[Problem]]:
    """Read the machine code of these hashes, where it is kept; what is not sound is a problem."""
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for name in sorted(names):
        path = text_path(data, name)
        if path.exists():
            made = unpacked(path.relative_to(data).as_posix(), path.read_bytes())
            if isinstance(made, Problem):
                problems.append(made)
            else:
                texts[name] = made
    return texts, problems


def code_history(records: Iterable[CodeRecord], line: Sequence[GitCommit] = ()) -> CodeHistory:
    """Put records in the order of their commits and compare the last of them."""
    every = list(records)
    sound = in_order([record for record in every if record.sound], line)
    start = max(0, len(sound) - STEPS)
    steps = [_step(sound, place) for place in range(start, len(sound))]
    return CodeHistory(tuple(sound), len(every) - len(sound), tuple(reversed(steps)))


def in_order(records: Sequence[CodeRecord], line: Sequence[GitCommit]) -> list[CodeRecord]:
    """Order by the first-parent line; a commit that it lacks goes where its time says."""
    places = {commit.sha: place for place, commit in enumerate(line)}
    times = [_seconds(commit.committed_at) for commit in line]

    def rank(record: CodeRecord) -> tuple[float, float, str, str]:
        time = _seconds(record.toolchain.source.committed_at or "")
        place = float(places.get(record.commit, bisect_right(times, time) - 0.5))
        return place, time, record.commit, record.triton

    return sorted(records, key=rank)


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _step(records: Sequence[CodeRecord], place: int) -> Step:
    record = records[place]
    earlier = [
        one for one in records[:place] if one.commit != record.commit and _shared(one, record)
    ]
    alike = [one for one in earlier if one.toolchain.versions == record.toolchain.versions]
    if not earlier:
        return Step(record, None, (), 0, (), 0)
    before = (alike or earlier)[-1]
    old, new = _common(before, record)
    first = tuple(op for op in record.toolchain.ops if op not in before.toolchain.ops)
    found, apart = in_common(old, new)
    return Step(record, before, tuple(found), compared(old, new), first, apart)


def _shared(one: CodeRecord, other: CodeRecord) -> bool:
    """Tell whether two records have a target and an op in common."""
    a, b = one.toolchain, other.toolchain
    return bool({*a.targets} & {*b.targets} and {*a.ops} & {*b.ops})


def _common(old: CodeRecord, new: CodeRecord) -> tuple[list[Codegen], list[Codegen]]:
    """Return the lines of targets and ops that both records hold."""
    targets = {*old.toolchain.targets} & {*new.toolchain.targets}
    ops = {*old.toolchain.ops} & {*new.toolchain.ops}

    def kept(record: CodeRecord) -> list[Codegen]:
        return [line for line in record.lines if line.target in targets and line.op in ops]

    return kept(old), kept(new)


def target_of(device: Device) -> str:
    """Return the architecture of a device as the compiler calls it; empty where it has none."""
    return "sm_" + device.compute_capability.replace(".", "") if device.compute_capability else ""


def _by_use(old: list[Codegen], new: list[Codegen]) -> Found:
    common = by_use(old).keys() & by_use(new).keys()
    found: dict[Use, list[Difference]] = {_use(*use): [] for use in common}
    for one in differences(old, new):
        for use in one.uses:
            if use in common:
                found[_use(*use)].append(one)
    return found


def lines_by_use(record: CodeRecord, target: str) -> dict[Use, list[Codegen]]:
    """Return the kernels of each launch for one target."""
    found = by_use(line for line in record.lines if line.target == target)
    return {_use(*use): lines for use, lines in found.items()}


def use_of(key: SeriesKey, device: Device) -> Use:
    """Return the launch that a series times, as codegen records name it."""
    sizes = ",".join([*(f"{name}={size}" for name, size in key.sizes), key.dtype])
    return _use(target_of(device), key.op, key.implementation, sizes)


def _use(target: str, op: str, implementation: str, workload: str) -> Use:
    """Write the sizes of a workload in one order: records need not keep that of the op."""
    return target, op, implementation, ",".join(sorted(workload.split(",")))
