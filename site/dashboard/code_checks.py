"""Static expectation beside measured fact: does the loaded kernel equal what the compiler made?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from collector.code_record import Codegen
from collector.code_rules import Use
from collector.history.model import History, RunInfo, SeriesKey
from collector.history.sides import usable
from collector.record import KernelCode
from dashboard import format as words
from dashboard.code_history import CodeHistory, CodeRecord, lines_by_use, target_of, use_of
from dashboard.code_words import label

FIGURES = ("registers", "spills", "shared_bytes")
NAMES = "registers, spills, shared memory"
Loaded = tuple[Use, KernelCode]


@dataclass(frozen=True, slots=True)
class Check:
    """The loaded kernels of one implementation of one device, commit and Triton.

    `compared` have a form in the record; of them `equal` have its registers, spills and shared
    memory, and `same_code` its machine code, of `with_code` whose machine code is known.
    """

    device: str
    commit: str
    triton: str
    op: str
    implementation: str
    loaded: int
    compared: int
    equal: int
    with_code: int
    same_code: int
    unlike: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Tell whether everything that could be compared is equal."""
        return bool(self.compared) and self.equal == self.compared


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A device and commit whose records are by another Triton than the card ran."""

    device: str
    commit: str
    ran: str
    recorded: tuple[str, ...]


def checks(
    history: History, code: CodeHistory, commit: str | None = None
) -> tuple[list[Check], list[Unchecked]]:
    """Hold loaded kernels against records of the same commit, newest commit first."""
    made: list[Check] = []
    other: dict[Unchecked, None] = {}
    loaded = _loaded(history, commit)
    for run in reversed(list(history.runs.values())):
        records = code.at(run.source.commit or "")
        if not usable(run) or run.run_id not in loaded or not records:
            continue
        triton = run.versions.get("triton", "unknown")
        fits = [one for one in records if one.triton == triton and _same_assembler(run, one)]
        if fits:
            made += _checks_of(run, fits[-1], loaded[run.run_id])
        else:
            versions = tuple(dict.fromkeys(one.triton for one in records))
            ran = triton if triton not in versions else f"{triton} and ptxas {_assembler(run)}"
            other[Unchecked(run.device.slug, records[0].commit, ran, versions)] = None
    return _joined(made), list(other)


def _same_assembler(run: RunInfo, record: CodeRecord) -> bool:
    """Tell whether both were assembled alike, as far as the run says."""
    recorded = record.toolchain.versions.get("ptxas")
    return _assembler(run) in (None, recorded)


def _assembler(run: RunInfo) -> str | None:
    return run.versions.get("ptxas")


def _loaded(history: History, commit: str | None) -> dict[str, list[tuple[SeriesKey, KernelCode]]]:
    """Return the loaded kernels of each run, whatever timer and cache saw them."""
    found: dict[str, dict[tuple[SeriesKey, KernelCode], None]] = {}
    for run_id, run in history.runs.items():
        if commit is None or run.source.commit == commit:
            for key, point in history.by_run[run_id].items():
                plain = key._replace(timer="", cache="", mode="")
                for kernel in point.codegen:
                    found.setdefault(run_id, {})[plain, kernel] = None
    return {run_id: list(kernels) for run_id, kernels in found.items()}


def _checks_of(
    run: RunInfo, record: CodeRecord, loaded: Iterable[tuple[SeriesKey, KernelCode]]
) -> Iterator[Check]:
    known = lines_by_use(record, target_of(run.device))
    groups: dict[tuple[str, str], list[Loaded]] = {}
    for key, kernel in loaded:
        use = use_of(key, run.device)
        groups.setdefault((key.op, key.implementation), []).append((use, kernel))
    for (op, name), kernels in groups.items():
        yield _check(run, record, op, name, [(k, _form(k, known.get(u, ()))) for u, k in kernels])


def _form(kernel: KernelCode, lines: Sequence[Codegen]) -> Codegen | None:
    """Return the recorded form of a loaded kernel: of equal name, constants and warps."""
    warps = f"num_warps={kernel.num_warps}"
    return next(
        (
            line
            for line in lines
            if (line.kernel, line.constants) == (kernel.name, kernel.constants)
            and warps in line.options.split(",")
        ),
        None,
    )


def _check(
    run: RunInfo, record: CodeRecord, op: str, name: str,
    pairs: Sequence[tuple[KernelCode, Codegen | None]],
) -> Check:  # fmt: skip
    both = [(kernel, line.code) for kernel, line in pairs if line and line.code]
    unlike = [
        (kernel, code) for kernel, code in both if any(_differ(kernel, code, n) for n in FIGURES)
    ]
    hashed = [(kernel, code) for kernel, code in both if kernel.sass_hash]
    return Check(
        device=run.device.slug,
        commit=record.commit,
        triton=record.triton,
        op=op,
        implementation=name,
        loaded=len(pairs),
        compared=len(both),
        equal=len(both) - len(unlike),
        with_code=len(hashed),
        same_code=sum(kernel.sass_hash == code.sass_hash for kernel, code in hashed),
        unlike=tuple(dict.fromkeys(_unlike(kernel, code) for kernel, code in unlike)),
    )


def _differ(kernel: object, code: object, figure: str) -> bool:
    return bool(getattr(kernel, figure) != getattr(code, figure))


def _unlike(kernel: KernelCode, code: object) -> str:
    told = [
        f"{label(name)} {getattr(code, name)} expected, {getattr(kernel, name)} loaded"
        for name in FIGURES
        if _differ(kernel, code, name)
    ]
    return f"{kernel.name}: {', '.join(told)}"


def _joined(made: Iterable[Check]) -> list[Check]:
    """Join the runs of one commit, which often measure the same."""
    found: dict[tuple[str, ...], Check] = {}
    for one in made:
        key = (one.device, one.commit, one.triton, one.op, one.implementation)
        known = found.get(key)
        found[key] = one if known is None else _sum(known, one)
    return list(found.values())


def _sum(a: Check, b: Check) -> Check:
    return replace(
        a,
        loaded=a.loaded + b.loaded,
        compared=a.compared + b.compared,
        equal=a.equal + b.equal,
        with_code=a.with_code + b.with_code,
        same_code=a.same_code + b.same_code,
        unlike=tuple(dict.fromkeys([*a.unlike, *b.unlike])),
    )


def verdict(one: Check) -> str:
    """Say in words whether a check agrees."""
    if not one.compared:
        return "no loaded kernel has its form in the record"
    told = f"{NAMES}: {one.equal} of {words.plural(one.compared, 'kernel')} agree"
    code = f"; machine code: {one.same_code} of {one.with_code} the same" if one.with_code else ""
    return told + code
