"""What a run was asked to measure, from its command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from collector.history.model import RunInfo, SeriesKey

VALUES = ("--implementation", "--dtype", "--mode", "--timer", "--cache")
USUAL = {"--mode": ("forward",), "--timer": ("graph", "call")}

Choices = Mapping[str, tuple[str, ...]]


def was_asked(run: RunInfo, key: SeriesKey, like: RunInfo) -> bool:
    """Tell whether a run had to measure a series that `like` measured.

    A run that ended early did not have to. What a tag of sizes takes in no record tells: the run
    has to have asked for the same sizes as `like`, or for those of the series by number.
    """
    if run.end is None or run.end.outcome != "complete" or key.op not in run.ops:
        return False
    own = choices(run.command)
    values = (key.implementation, key.dtype, key.mode, key.timer, key.cache)
    # Where sizes are named, all modes are measured.
    usual = USUAL if "--workload" not in own else USUAL | {"--mode": (key.mode,)}
    chosen = all(
        value in own.get(name, usual.get(name, (value,)))
        for name, value in zip(VALUES, values, strict=True)
    )
    return chosen and _sizes_asked(own, choices(like.command), dict(key.sizes))


def _sizes_asked(own: Choices, other: Choices, sizes: Mapping[str, int]) -> bool:
    ranks = own.get("--ranks", ("None",))
    if str(sizes.get("ranks")) not in ranks:
        return False
    named = {f"{name}={size}" for name, size in sizes.items()}
    by_number = any(named.issuperset(text.split(",")) for text in own.get("--workload", ()))
    return by_number or own.get("--workload") == other.get("--workload")


def choices(command: Sequence[str]) -> Choices:
    """Return the values of each option of a command line, `--op NAME` or `--op=NAME`."""
    found: dict[str, tuple[str, ...]] = {}
    for word, following in pairwise((*command, "")):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            found[name] = (*found.get(name, ()), value if equals else following)
    return found
