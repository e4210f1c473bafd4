"""What shapes a number apart from the case, and how a sample is planned from it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from collector.record import Cache, Timer, identity


@dataclass(frozen=True, slots=True)
class Method:
    """Everything that shapes a number, apart from the case. Its hash is the method id.

    `target_ns` is the length of one sample; with it the launch of the graph itself, about 8 us,
    stays under 0.5 %. `code` counts changes of this file and of `timing` that can move a number of
    the timer.
    """

    timer: Timer
    cache: Cache
    target_ns: int = 2_000_000
    calls_max: int = 2_000
    touched_l2: int = 3
    warm_ns: int = 20_000_000
    samples_min: int = 20
    samples_max: int = 60
    settled_half_width: float = 0.0025
    budget_ns: int = 1_000_000_000
    code: int = 2

    @property
    def id(self) -> str:
        """Hash of all fields."""
        return identity(asdict(self))

    def describe(self) -> dict[str, Any]:
        """Return all fields, for the record."""
        return asdict(self)

    @property
    def longest_ns(self) -> int:
        """How long a sample may become for the sake of more sets."""
        return 4 * self.target_ns

    def places(self, set_bytes: int, call_ns: float, spare_bytes: float) -> int:
        """Return in how many sets a time is averaged over where they lie: this one does not."""
        return 1


@dataclass(frozen=True, slots=True)
class ColdGraphMethod(Method):
    """The method of cold device times: many sets, with gaps of random sizes between them.

    Processes that allocate alike agree with one another, and not with those of another run: seen on
    an H200, 0.2 % in each of two runs that lay 3 % apart.
    """

    places_max: int = 64
    places_bytes: int = 2 * 1024**3
    gaps: str = "random, small and large"

    def places(self, set_bytes: int, call_ns: float, spare_bytes: float) -> int:
        """Return how many sets of that size are wanted, as far as memory and a sample allow."""
        fitting = min(self.places_bytes, spare_bytes) // max(set_bytes, 1)
        return int(min(self.places_max, fitting, self.longest_ns // call_ns))


@dataclass(frozen=True, slots=True)
class RankedMethod(Method):
    """The method over ranks: all begin a sample at a barrier, and decide alike when to stop.

    They leave the barrier some 10 us apart, which a longer sample makes small.
    """

    target_ns: int = 10_000_000
    calls_max: int = 500
    samples_max: int = 30
    begins: str = "barrier"
    nvlink_multicast: bool = False


def method_of(timer: Timer, cache: Cache, ranked: bool = False) -> Method:
    """Return the method of a series. Host times never settle so far: fewer samples will do."""
    code = 3 if timer == "call" else 2
    if ranked:
        return RankedMethod(timer, cache, code=code)
    if timer != "graph":
        return Method(timer, cache, samples_max=30, code=code)
    kind = ColdGraphMethod if cache == "cold" else Method
    return kind(timer, cache, code=code)


@dataclass(frozen=True, slots=True)
class Rotation:
    """How many sets take turns in how many calls, and whether a read flushes between samples."""

    sets: int
    calls: int
    flush: bool


def rotation(
    method: Method, set_bytes: int, call_ns: float, l2_bytes: int, spare_bytes: float = math.inf
) -> Rotation:
    """Plan one sample so that a cold set is never in the last-level cache when it is used again.

    Between two uses of one set at least `touched_l2` times the cache is touched: by the other sets
    where enough of them fit a sample, else by reading a buffer of that size between samples, in
    which each set is then used once. More sets than that are taken as far as memory can be spared.
    """
    calls = min(max(math.ceil(method.target_ns / call_ns), 1), method.calls_max)
    if method.cache == "hot":
        return Rotation(1, calls, False)
    needed = max(math.ceil(method.touched_l2 * l2_bytes / max(set_bytes, 1)), 1) + 1
    too_long = needed > calls and needed * call_ns > method.longest_ns
    if needed > method.calls_max or too_long:
        return Rotation(calls, calls, True)
    sets = max(needed, method.places(set_bytes, call_ns, spare_bytes))
    return Rotation(sets, math.ceil(calls / sets) * sets, False)
