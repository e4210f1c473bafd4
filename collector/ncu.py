"""Nsight Compute: find it, call it, and read what it prints."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/usr/local/cuda-*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
)
TIMEOUT_S = 600.0
SHOWN_ERRORS = 3
FORBIDDEN = "ERR_NVGPUCTRPERM"
MAY_NOT = (
    f"the driver does not permit reading hardware counters ({FORBIDDEN}): run as root, in a "
    "container with --cap-add SYS_ADMIN, or load the nvidia module with "
    "NVreg_RestrictProfilingToAdminUsers=0; nothing was counted"
)
NOT_FOUND = (
    "ncu is not in PATH, /usr/local/cuda/bin or /opt/nvidia/nsight-compute: install Nsight "
    "Compute, which the CUDA toolkit brings; nothing was counted"
)

Quantity = Literal["count", "percent", "bytes", "ns", "mhz"]
SCALES: Mapping[Quantity, Mapping[str, float]] = {
    "percent": {"%": 1},
    "bytes": {"byte": 1, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9},
    "ns": {
        **dict.fromkeys(("ns", "nsecond"), 1), **dict.fromkeys(("us", "usecond"), 1e3),
        **dict.fromkeys(("ms", "msecond"), 1e6), **dict.fromkeys(("s", "second"), 1e9),
    },
    "mhz": {
        **dict.fromkeys(("hz", "cycle/second", "cycle/s"), 1e-6), "khz": 1e-3,
        **dict.fromkeys(("mhz", "cycle/usecond", "cycle/us"), 1), "ghz": 1e3,
        **dict.fromkeys(("cycle/nsecond", "cycle/ns"), 1e3),
    },
}  # fmt: skip


class NcuError(RuntimeError):
    """Nsight Compute is missing or counted nothing; the message says why and what to do."""


class ForbiddenError(NcuError):
    """Nobody may read counters here: no case can be counted."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: our field, its name in Nsight Compute, and what it is.

    Unless it is `needed`, a GPU that does not know it goes without.
    """

    field: str
    name: str
    quantity: Quantity = "count"
    needed: bool = False


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One launch as Nsight Compute prints it; what it could not count is left out."""

    kernel: str
    values: Mapping[str, float]


def find() -> Path:
    """Return the newest ncu, that of PATH first; NcuError where there is none."""
    if found := shutil.which("ncu"):
        return Path(found)
    for place in PLACES:
        there = [path for path in Path("/").glob(place[1:]) if os.access(path, os.X_OK)]
        if there:
            return max(there, key=version_in)
    raise NcuError(NOT_FOUND)


def version_in(path: Path) -> list[int]:
    """Return the numbers of a path, so that versions sort as people count."""
    return [int(number) for number in re.findall(r"\d+", str(path))]


def version(ncu: Path) -> str:
    """Return the version; NcuError where it does not start."""
    try:
        done = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise NcuError(f"{ncu} does not start: {error.strerror}; reinstall it") from error
    found = re.search(r"Version (\S+)", done.stdout)
    if not found:
        raise NcuError(f"{ncu} --version names no version: reinstall Nsight Compute")
    return found[1]


def count(
    ncu: Path, options: Sequence[str], metrics: Sequence[Metric], command: Sequence[str],
    env: Mapping[str, str], log: Path,
) -> list[KernelRow]:  # fmt: skip
    """Run a command under ncu; what this GPU does not know is asked for once and then no more."""
    left = list(metrics)
    while True:
        call = [str(ncu), *options, "--metrics", ",".join(m.name for m in left)]
        log.unlink(missing_ok=True)
        printed = run([*call, "--log-file", str(log), *command], env)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        unknown = unknown_metrics(text + printed, left)
        if not unknown or any(metric.needed for metric in unknown):
            return read(text, left, printed)
        left = [metric for metric in left if metric not in unknown]


def run(command: Sequence[str], env: Mapping[str, str]) -> str:
    """Run to the end and return all that was printed; NcuError when it takes too long."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", env=dict(env), start_new_session=True,
    ) as process:  # fmt: skip
        try:
            return process.communicate(timeout=TIMEOUT_S)[0]
        except subprocess.TimeoutExpired:
            raise NcuError(f"ncu did not end in {TIMEOUT_S:.0f} s; nothing was counted") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def unknown_metrics(text: str, metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics that ncu says it does not know or cannot access here."""
    lines = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    told = "\n".join(line for line in lines if "metric" in line).replace("\\", "")
    return [metric for metric in metrics if metric.name in told]


def read(text: str, metrics: Sequence[Metric], printed: str = "") -> list[KernelRow]:
    """Read the raw page of `--csv`: a head, a row of units, a row a launch; NcuError says why not.

    `printed` is what the command itself printed, for the message.
    """
    if FORBIDDEN in text + printed:
        raise ForbiddenError(MAY_NOT)
    rows = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        raise NcuError(f"ncu printed no counters: {complaint(text, printed)}")
    head, units, *launches = rows
    scales = {m: scale(m, head, units) for m in metrics if m.name in head}
    if missing := [m.name for m in metrics if m.needed and m not in scales]:
        raise NcuError(f"ncu did not count {', '.join(missing)}: {complaint(text, printed)}")
    if any(len(row) != len(head) for row in launches):
        raise NcuError(f"ncu printed a torn row: {complaint(text, printed)}")
    return [kernel_row(dict(zip(head, row, strict=True)), scales) for row in launches]


def complaint(text: str, printed: str) -> str:
    """Return the errors that ncu printed, else its warnings, and the last words of the command."""
    lines = [line.strip() for line in (text + "\n" + printed).splitlines() if line.strip()]
    told: list[str] = []
    for mark in ("==ERROR==", "==WARNING=="):
        told = told or [line.removeprefix(mark).strip() for line in lines if line.startswith(mark)]
    own = [line for line in lines if not line.startswith(("==", '"'))]
    return "; ".join([*told[:SHOWN_ERRORS], *(line[:300] for line in own[-1:])]) or "no output"


def scale(metric: Metric, head: Sequence[str], units: Sequence[str]) -> float:
    """Return what turns the printed unit of a metric into that of its field."""
    unit = units[head.index(metric.name)].lower()
    known = SCALES.get(metric.quantity, {unit: 1})
    if unit not in known:
        raise NcuError(f"ncu printed {metric.name} in {unit!r}, not in {', '.join(known)}")
    return known[unit]


def kernel_row(row: Mapping[str, str], scales: Mapping[Metric, float]) -> KernelRow:
    """Return the values of one launch, without those that are no number."""
    values = {}
    for metric, factor in scales.items():
        value = number(row[metric.name])
        if value is not None:
            values[metric.field] = value * factor
        elif metric.needed:
            told = f"{row[metric.name]!r} as {metric.name}"
            raise NcuError(f"ncu printed {told} of {row['Kernel Name']}: nothing was counted")
    return KernelRow(row["Kernel Name"], values)


def number(text: str) -> float | None:
    """Read `1,234.5`; None for `n/a`, `nan` and nothing."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
