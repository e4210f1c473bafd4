"""Measure the suspects of a comparison once more, in fresh processes, before they are told.

Noise rarely raises the same alarm twice, so a second look costs little and spares false ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from collector.compare import (
    Compared,
    Confirmation,
    Request,
    Result,
    fails,
    model_difference,
)
from collector.compare_sides import fail
from collector.exit_codes import FAILED
from collector.history.model import SeriesKey
from collector.history.tables import Row
from collector.plan import CollectOptions
from collector.record import Case, Device, Source
from collector.report import case_json

LEAST_REPLICATES = 5


@dataclass(frozen=True, slots=True)
class Here:
    """What could be measured here: the source of this tree, and the device once it is asked."""

    source: Source
    device: Callable[[], Device]


# Measures the cases with these options and returns the file of the run.
Measure = Callable[[CollectOptions, tuple[Case, ...]], Path]


def suspects_of(one: Compared) -> tuple[Row, ...]:
    """Return the series that would be told as slower; a wrong result needs no second look."""
    return tuple(row for row in one.failing if row.judgement is not None)


def confirm(
    result: Result, request: Request, here: Here, measure: Measure,
    again: Callable[[Request], Result],
) -> Result:  # fmt: skip
    """Measure all suspects once more and return the result with what came of it.

    `again` compares. CompareError where they cannot be measured here, before anything is.
    """
    doubtful = [one for one in result.devices if suspects_of(one)]
    if not doubtful:
        return result
    for one in doubtful:
        check_source(one, here.source)
    device = here.device()
    for one in doubtful:
        check_device(one, device)
    (one,) = doubtful
    suspects = suspects_of(one)
    path = measure(options_for(suspects, request), tuple(case_of(row.key) for row in suspects))
    fresh = again(replace(request, candidate=str(path), ops=(), device=one.table.device))
    looked = replace(one, confirmations=confirmations(suspects, fresh.devices[0]))
    return replace(result, devices=tuple(looked if d is one else d for d in result.devices))


def check_source(one: Compared, source: Source) -> None:
    """Raise CompareError unless the candidate is the commit that is checked out here, untouched."""
    wanted, name = one.after.commit, one.after.name
    if one.after.dirty or wanted is None:
        fail(f"--confirm: {name} measured files of no commit; commit them, measure again", FAILED)
    if source.commit != wanted:
        present = source.commit[:8] if source.commit else "no commit that git knows"
        told = f"--confirm: the candidate is {wanted[:8]}, checked out here is {present}"
        fail(f"{told}: `git checkout {wanted[:8]}` first", FAILED)
    if source.dirty is None:
        told = "--confirm: git cannot tell whether files here differ from their commit"
        fail(f"{told}; leave ALMANAC_COMMIT unset, in a clone", FAILED)
    if source.dirty:
        fail("--confirm: files here differ from their commit: commit or put them back", FAILED)


def check_device(one: Compared, device: Device) -> None:
    """Raise CompareError unless this machine has the device of the candidate."""
    slug = one.table.device
    if device.slug != slug:
        told = f"--confirm: the suspects were measured on {slug}, this machine has {device.slug}"
        fail(f"{told}: run it there, or compare on one device with --device", FAILED)
    if differs := model_difference(one.after_runs[-1].device, device):
        fail(f"--confirm: this {slug} is of another model ({differs}): run it there", FAILED)


def options_for(suspects: tuple[Row, ...], request: Request) -> CollectOptions:
    """Return options that select all suspects, and perhaps more, with as many replicates."""
    keys = [row.key for row in suspects]
    counts = [row.judgement.comparison.n_after for row in suspects if row.judgement]
    ranks = {dict(key.sizes).get("ranks", 0) for key in keys}
    return CollectOptions(
        ops=_distinct(key.op for key in keys),
        implementations=_distinct(key.implementation for key in keys),
        workloads=_distinct(",".join(f"{n}={size}" for n, size in key.sizes) for key in keys),
        dtypes=_distinct(key.dtype for key in keys),
        modes=_distinct(key.mode for key in keys),
        timers=_distinct(key.timer for key in keys),
        caches=_distinct(key.cache for key in keys),
        # Over ranks and in one process are two runs; what only one of them is can be looked at.
        ranks=tuple(sorted(ranks)) if all(ranks) else (),
        replicates=max(LEAST_REPLICATES, *counts),
        output=request.data,
    )


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def case_of(key: SeriesKey) -> Case:
    """Return the case that a series follows."""
    return Case.model_validate(case_json(key))


def confirmations(suspects: tuple[Row, ...], fresh: Compared) -> Mapping[SeriesKey, Confirmation]:
    """Say of each suspect whether the fresh run shows the same."""
    rows = {row.key: row for row in fresh.rows}
    return {row.key: _confirmation(rows.get(row.key), fresh.limit) for row in suspects}


def _confirmation(row: Row | None, limit: float | None) -> Confirmation:
    if row is None or (row.judgement is None and row.verdict != "broken"):
        return Confirmation("not measured again", row)
    return Confirmation("confirmed" if fails(row, limit) else "not seen again", row)
