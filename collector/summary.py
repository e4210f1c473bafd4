"""What is said at the terminal before and after a run, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector.crew import relative
from collector.exit_codes import FAILED, FINE, WRONG

if TYPE_CHECKING:
    from rich.console import Console

    from collector.collect import Outcome, Session
    from collector.record import Case, Measurement, Run


def warnings(run: Run, why_no_gpu: str | None) -> list[str]:
    """Return what the person at the terminal must know before waiting."""
    said = {
        "no-gpu": f"No GPU is measured: {why_no_gpu}. Timing torch on the CPU; Triton kernels are "
        "checked in the interpreter and not timed.",
        "mig": "The card is partitioned (MIG): its numbers are not those of a whole card.",
        "shared-device": "Other processes use this GPU: the numbers will be noisy.",
        "dirty": "The working tree differs from its commit: the run is left out of per-commit "
        "tables. Commit first.",
        "no-commit": "No commit is known: the run is left out of per-commit tables. Pass "
        "--commit SHA or set ALMANAC_COMMIT.",
    }
    return [said[flag] for flag in run.flags]


def report(session: Session, outcome: Outcome, console: Console) -> None:
    """Say what was measured, what failed, and where the time went."""
    for told in failures(session.failures):
        console.print(told, style="red", markup=False)
    counts = ", ".join(f"{count} {status}" for status, count in sorted(session.counts.items()))
    console.print(f"{relative(session.file.path)}: {counts or 'nothing measured'}", markup=False)
    total = sum(session.seconds.values()) or 1
    spent = ", ".join(
        f"{name} {seconds:.0f} s ({seconds / total:.0%})"
        for name, seconds in sorted(session.seconds.items(), key=lambda item: -item[1])
    )
    console.print(f"Where the time went: {spent}", markup=False)
    if outcome in ("budget", "interrupted"):
        told = f"Ended early ({outcome}); all lines are kept."
        if session.run.purpose != "backfill":
            again = f"python -m collector collect --resume {relative(session.file.path)}"
            told = f"{told} Go on with: {again}"
        console.print(told, style="yellow", markup=False)


def failures(lines: list[Measurement]) -> list[str]:
    """Say each failure once: what, where first, in how many series, and why."""
    alike: dict[tuple[str, str, str, str | None], list[Measurement]] = {}
    for line in lines:
        key = (line.status, line.case.op, line.case.implementation, line.reason)
        alike.setdefault(key, []).append(line)
    return [
        f"{status}: {op} {implementation} at {where(same[0].case)}"
        f"{f' and {len(same) - 1} more series' if len(same) > 1 else ''}: {reason}"
        for (status, op, implementation, reason), same in alike.items()
    ]


def where(case: Case) -> str:
    """Return the workload and series of a case in words."""
    sizes = ",".join(f"{name}={size}" for name, size in case.workload.sizes.items())
    return f"{sizes} {case.workload.dtype} {case.timer} {case.cache}"


def exit_code(session: Session, outcome: Outcome) -> int:
    """Return 4 when a result was wrong, 1 when something broke or nothing was measured, else 0."""
    if session.counts["incorrect"]:
        return WRONG
    broken = session.counts["error"] + session.counts["timeout"]
    good = session.counts["passed"] + session.counts["skipped"]
    return FAILED if broken or outcome == "interrupted" or not good else FINE
