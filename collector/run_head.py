"""The first line of a run: who measures what, where, and how."""

from __future__ import annotations

import secrets
import sys

from collector.crew import started_at
from collector.device import probe_source
from collector.method import method_of
from collector.plan import GPU_SERIES, RANKED_SERIES, CollectOptions
from collector.record import Device, ImplementationInfo, MarkInfo, OpInfo, RanksInfo, Run
from kernels.spec import Op


def describe(
    options: CollectOptions, device: Device, versions: dict[str, str], ops: dict[str, Op],
    links: RanksInfo | None = None,
) -> Run:  # fmt: skip
    """Make the first line of the run."""
    source = probe_source(options.commit)
    methods = [method_of(*series) for series in GPU_SERIES]
    methods += [method_of(*series, ranked=True) for series in RANKED_SERIES if links]
    return Run(
        schema_version=1,
        run_id=secrets.token_hex(6),
        started_at=started_at(),
        purpose=options.purpose,
        command=["python", "-m", "collector", *repeatable(sys.argv[1:])],
        device=device,
        source=source,
        versions=versions,
        methods={method.id: method.describe() for method in methods},
        ops=[catalogue(op) for op in ops.values()],
        flags=run_flags(device, source.dirty, source.commit),
        ranks=links,
    )


def repeatable(words: list[str]) -> list[str]:
    """Leave out where the records go: that names a folder of one machine and changes no number."""
    places = ("--output", "--resume")
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before not in places and word not in places
    ]
    return [word for word in kept if not word.startswith(tuple(f"{place}=" for place in places))]


def catalogue(op: Op) -> OpInfo:
    """Describe an op for readers that hold no kernel code."""
    return OpInfo(
        name=op.name,
        title=op.title,
        summary=op.summary,
        formula=op.formula,
        axis=op.axis,
        baseline=op.baseline,
        inputs=op.inputs,
        implementations=[
            ImplementationInfo(name=i.name, kind=i.kind, summary=i.summary)
            for i in op.implementations
        ],
        regions=list(op.regions),
        marks=[MarkInfo(name=m.name, low=m.low, high=m.high) for m in op.marks] or None,
        unit=op.unit or None,
    )


def run_flags(device: Device, dirty: bool | None, commit: str | None) -> list[str]:
    """Say what a reader must know of the whole run."""
    flags = {
        "no-gpu": device.kind == "cpu",
        "mig": bool(device.mig),
        "shared-device": bool(device.other_processes),
        "dirty": bool(dirty),
        "no-commit": commit is None,
    }
    return [name for name, raised in flags.items() if raised]
