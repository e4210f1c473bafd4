"""The command `codegen`: compile or read, then keep or compare, and say what came out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from collector import code_files
from collector.code_files import CodeFile
from collector.code_record import Codegen, MachineCode
from collector.code_rules import Difference, compared, in_common
from collector.exit_codes import FINE, NOT_COMPARABLE, REGRESSED
from collector.occupancy import LIMITS
from collector.static_code import Compiled, compile_ops

TARGETS = tuple(LIMITS)
WORKLOADS_SHOWN = 2
ACCEPT = "If meant: commit, then commit the record that `python -m collector codegen` writes."


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """What the command line of `codegen` asks for."""

    ops: tuple[str, ...] = ()
    targets: tuple[str, ...] = TARGETS
    commit: str | None = None
    record: Path | None = None
    against: str | None = None
    as_json: bool = False
    everything: bool = False
    sass: Path | None = None
    output: Path = Path("data")


def codegen(options: CodeOptions, console: Console, errors: Console) -> int:
    """Do what the options ask for; return the exit code."""
    made = present(options, errors)
    for target, why in made.file.toolchain.unsupported.items():
        errors.print(f"{target}: skipped, this toolchain cannot compile for it: {why}")
    if options.sass:
        write_texts(made.texts, options.sass)
    if options.against is None:
        console.print(summary(made.file))
        tell_failures(made.file, errors)
        path = options.record or code_files.save(made.file, options.output)
        new = code_files.save_texts(made.file, made.texts, options.output)
        told = f"{path}: {len(made.file.lines)} kernels compiled, {new} new texts of machine code"
        console.print(told, markup=False, soft_wrap=True)
        return FINE
    return compare(options, made.file, console, errors)


def present(options: CodeOptions, errors: Console) -> Compiled:
    """Return the newer side: a record that is named, else what the compiler makes now."""
    if options.record:
        return Compiled(selected(code_files.read(options.record), options), {})

    def tell(message: str) -> None:
        errors.print(message, style="dim", markup=False)

    return compile_ops(
        options.ops, options.targets, options.commit, tell, everything=options.everything
    )


def selected(file: CodeFile, options: CodeOptions) -> CodeFile:
    """Leave the lines of the ops and targets that are asked for."""
    lines = [
        line
        for line in file.lines
        if line.target in options.targets and (not options.ops or line.op in options.ops)
    ]
    return CodeFile(file.toolchain, tuple(lines))


def write_texts(texts: dict[str, str], folder: Path) -> None:
    """Write machine code, each text once, as `<sass_hash>.sass`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.sass").write_text(f"{text}\n", encoding="utf-8")


def compare(options: CodeOptions, new: CodeFile, console: Console, errors: Console) -> int:
    """Say what differs from an earlier record: 2 when a gate is broken, 3 without a record."""
    path = earlier(options, new)
    if path is None:
        made_by = ", ".join(f"{name} {v}" for name, v in new.toolchain.versions.items())
        told = f"neither {options.against} nor a commit before it has a record by {made_by}"
        errors.print(f"{told}: `python -m collector codegen` writes one", markup=False)
        return NOT_COMPARABLE
    whole = code_files.read(path)
    old = selected(whole, options)
    tell_toolchain(whole, new, errors)
    kept = [line for line in old.lines if line.target in new.toolchain.targets]
    count = compared(kept, new.lines)
    if not count:
        errors.print(f"{path}: no target, op and workload in common", markup=False)
        return NOT_COMPARABLE
    found, apart = in_common(kept, new.lines)
    gated = [one for one in found if any(rule.gate for rule in one.rules)]
    if options.as_json:
        console.out(json.dumps(as_json(path, whole, new, count, found), indent=1), highlight=False)
    else:
        tell_differences(found, console)
        same = f"{count} launches compared with {path}: {len(found)} kernels differ"
        told = f"{same}, {len(gated)} break a gate; {apart} are of launches that one side lacks"
        console.print(told, markup=False, soft_wrap=True)
    if gated:
        errors.print(ACCEPT, markup=False)
    return REGRESSED if gated else FINE


def earlier(options: CodeOptions, new: CodeFile) -> Path | None:
    """Return the file to compare with: it is named itself, or by a commit."""
    against = options.against or "HEAD"
    if Path(against).is_file():
        return Path(against)
    return code_files.recorded(options.output, against, new.toolchain.versions)


def tell_toolchain(old: CodeFile, new: CodeFile, errors: Console) -> None:
    """Say when compilers differ: differences are then theirs as well."""
    before, after = old.toolchain.versions, new.toolchain.versions
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            errors.print(f"{name}: {before.get(name)} before, {after.get(name)} now; "
                         "differences may be the compiler's", markup=False)  # fmt: skip


def summary(file: CodeFile) -> Table:
    """Return a table of a row for each kernel and target."""
    table = Table("target", "op", "kernel", "forms", "registers", "spills", "shared bytes",
                  "occupancy", box=None)  # fmt: skip
    rows: dict[tuple[str, str, str], list[MachineCode]] = {}
    for line in file.lines:
        if line.code:
            rows.setdefault((line.target, line.op, line.kernel), []).append(line.code)
    for names, codes in rows.items():
        table.add_row(
            *names,
            str(len(codes)),
            span([code.registers for code in codes]),
            span([code.spills for code in codes]),
            span([code.shared_bytes for code in codes]),
            span([code.occupancy for code in codes], "{:.0%}"),
        )
    return table


def span(values: list[Any], form: str = "{}") -> str:
    """Write the smallest and the largest value."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def tell_failures(file: CodeFile, errors: Console) -> None:
    """Say each reason once for each kernel and target."""
    alike: dict[tuple[str, str, str, str], int] = {}
    for line in file.lines:
        if line.reason is not None:
            key = (line.target, line.op, line.kernel, line.reason)
            alike[key] = alike.get(key, 0) + 1
    for (target, op, kernel, reason), count in alike.items():
        told = f"{target}: {op} {kernel} does not compile in {count} forms: {reason}"
        errors.print(told, markup=False, soft_wrap=True)


def tell_differences(found: list[Difference], console: Console) -> None:
    """Say of each kernel what differs, who launches it and what that usually costs."""
    for one in found:
        console.print(f"[bold]{title(one)}[/bold]", highlight=False)
        console.print(
            f"  launched by {workloads(one)}", markup=False, highlight=False, soft_wrap=True
        )
        for name, (old, new) in one.figures.items():
            console.print(
                f"  {name}: {old} -> {new}", markup=False, highlight=False, soft_wrap=True
            )
        for rule in one.rules:
            style = "red" if rule.gate else "yellow"
            told = f"  {rule.name}{' (gate)' if rule.gate else ''}: {rule.cost}"
            console.print(told, style=style, markup=False, highlight=False, soft_wrap=True)


def title(one: Difference) -> str:
    """Name a difference by target, op and kernel."""
    target, op, *_ = one.uses[0]
    names = [line.kernel for line in (one.old, one.new) if line]
    state = "" if one.old and one.new else " is new" if one.new else " is gone"
    return f"{target} {op} {' -> '.join(dict.fromkeys(names))}{state}"


def workloads(one: Difference) -> str:
    """Name the first workloads, and the number of the others."""
    names = [f"{implementation} {workload}" for _, _, implementation, workload in one.uses]
    more = len(names) - WORKLOADS_SHOWN
    return ", ".join(names[:WORKLOADS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def as_json(
    path: Path, old: CodeFile, new: CodeFile, count: int, found: list[Difference]
) -> dict[str, Any]:
    """Return the whole comparison as JSON."""
    return {
        "against": {"file": str(path), "commit": old.toolchain.source.commit},
        "commit": new.toolchain.source.commit,
        "dirty": new.toolchain.source.dirty,
        "versions": {"old": old.toolchain.versions, "new": new.toolchain.versions},
        "compared": count,
        "differences": [difference_json(one) for one in found],
    }


def difference_json(one: Difference) -> dict[str, Any]:
    """Return one difference as JSON."""
    target, op, *_ = one.uses[0]

    def kernel(line: Codegen | None) -> str | None:
        return line.kernel if line else None

    return {
        "target": target,
        "op": op,
        "kernel": {"old": kernel(one.old), "new": kernel(one.new)},
        "launched_by": [f"{name} {workload}" for _, _, name, workload in one.uses],
        "figures": {name: {"old": a, "new": b} for name, (a, b) in one.figures.items()},
        "rules": [{"name": r.name, "gate": r.gate, "usual_cost": r.cost} for r in one.rules],
    }
