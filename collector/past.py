"""Measure one past commit, in a tree that holds its kernels and today's collector.

`backfill` starts this in a process apart: the task comes as a line on standard input, the answer
goes to standard output, and the process ends itself, as by Ctrl-C, once its standard input closes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console

from collector.chosen import collect_chosen, name_of
from collector.device import ROOT
from collector.method import method_of
from collector.plan import TAGS, CollectOptions, PlanError, matches
from collector.record import Case, Measurement
from collector.store import read, run_of
from kernels.registry import load_ops
from kernels.spec import Op

OPTIONS = TypeAdapter(CollectOptions)
Answer = dict[str, Any]


def measure(options: CollectOptions, found: dict[str, Any]) -> Answer:
    """Measure what the commit lacks; the answer says how the run ended."""
    ops = load_ops()
    selected = narrowed(ops, options)
    counted = counter(options.output, options.commit or "", found["device"]["slug"])
    console = Console(stderr=True, soft_wrap=True)
    made = collect_chosen(ops, selected, found, counted, console)
    if made is None:
        return {"outcome": "there already", "exit_code": 0}
    return {"outcome": made.outcome, "exit_code": made.exit_code}


def narrowed(ops: Mapping[str, Op], options: CollectOptions) -> CollectOptions:
    """Leave out names that the commit does not know yet; PlanError when none is left."""
    chosen = [ops[name] for name in options.ops or ops if name in ops]
    workloads = [workload for op in chosen for workload in op.workloads]
    known: dict[str, Iterable[str]] = {
        "ops": ops,
        "implementations": {i.name for op in chosen for i in op.implementations},
        "dtypes": {workload.dtype for workload in workloads},
        "workloads": [
            text
            for text in options.workloads
            if text in TAGS or any(matches(workload, text) for workload in workloads)
        ],
    }
    kept = {
        name: tuple(asked for asked in getattr(options, name) if asked in there)
        for name, there in known.items()
    }
    for name, left in kept.items():
        if getattr(options, name) and not left:
            raise PlanError(f"it has none of these {name}: {', '.join(getattr(options, name))}")
    return replace(options, **kept)  # type: ignore[arg-type]


def counter(data: Path, commit: str, device: str) -> Callable[[Case], int]:
    """Return what counts the replicates of a case at a commit, by the method of today."""
    found: Counter[tuple[Hashable, str]] = Counter()
    for path in sorted((data / "runs" / device).glob(f"*-{commit[:8]}-*.jsonl")):
        run = run_of(path)
        if run is not None and run.source.commit == commit and run.source.dirty is not True:
            lines = [line for _, line in read(path) if isinstance(line, Measurement)]
            found.update((name_of(line.case), line.method_id) for line in lines)

    def counted(case: Case) -> int:
        return found[name_of(case), method_of(case.timer, case.cache).id]

    return counted


def told(error: Exception) -> str:
    """Say in one line what went wrong, and where in the kernels."""
    words = f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(ROOT / "kernels" / "ops"):
            return f"{path.relative_to(ROOT)}:{frame.lineno}: {words}"
    return str(error) if isinstance(error, ValueError | RuntimeError) else words


def end_with_parent() -> None:
    """End this process, as Ctrl-C does, when standard input closes."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Read the task, measure, answer."""
    # Shells start what runs in the background with this signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        answer = measure(OPTIONS.validate_python(task["options"]), task["found"])
    except KeyboardInterrupt:
        answer = {"outcome": "interrupted", "exit_code": 1}
    except Exception as error:  # noqa: BLE001 - whatever a past commit breaks costs it alone
        answer = {"outcome": "error", "exit_code": 1, "error": told(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
