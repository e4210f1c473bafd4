"""What differs between two compilations, exactly, and which differences usually cost time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from collector.code_record import Codegen, MachineCode

Test = Callable[[MachineCode, MachineCode], bool]
Use = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference that matters: what it usually costs, and whether it fails a check."""

    name: str
    cost: str
    broken: Test
    gate: bool = False


def narrower(old: MachineCode, new: MachineCode) -> bool:
    """Tell whether accesses to global memory became narrower: more narrow ones, fewer wide ones."""
    before, after = old.instructions, new.instructions
    return (
        after.narrow_loads + after.narrow_stores > before.narrow_loads + before.narrow_stores
        and after.wide_loads + after.wide_stores < before.wide_loads + before.wide_stores
    )


RULES = (
    Rule(
        "new spills",
        "Each spilled register goes through local memory: latency on every use, and cache space "
        "and bandwidth that the data needed.",
        lambda old, new: new.spills > old.spills,
        gate=True,
    ),
    Rule(
        "lost vector width",
        "Narrower accesses need more instructions for the same bytes: a kernel that memory limits "
        "seldom reaches its bandwidth with them.",
        narrower,
        gate=True,
    ),
    Rule(
        "no block fits",
        "The launch fails: a block needs more than a multiprocessor has.",
        lambda old, new: new.resident_blocks == 0 < old.resident_blocks,
        gate=True,
    ),
    Rule(
        "lower occupancy",
        "Fewer resident warps hide less latency; it costs time where loads wait for memory.",
        lambda old, new: new.occupancy < old.occupancy,
    ),
    Rule(
        "registers across an occupancy step",
        "More registers a thread now leave room for fewer blocks: one register less a thread may "
        "bring the step back.",
        lambda old, new: (
            new.registers > old.registers
            and new.limited_by == "registers"
            and new.resident_blocks < old.resident_blocks
        ),
    ),
    Rule(
        "more special functions",
        "Special functions run at an eighth to a quarter of the rate of products: kernels full of "
        "them are limited by that unit.",
        lambda old, new: new.instructions.special > old.instructions.special,
    ),
    Rule(
        "tensor cores lost",
        "Matrix products without tensor cores run at a small part of their rate.",
        lambda old, new: new.instructions.tensor == 0 < old.instructions.tensor,
        gate=True,
    ),
    Rule(
        "more barriers",
        "At each barrier all warps of a block wait for the slowest.",
        lambda old, new: new.instructions.barrier > old.instructions.barrier,
    ),
)
DOES_NOT_COMPILE = Rule(
    "does not compile",
    "The kernel cannot run on this target any more.",
    lambda old, new: False,
    True,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One kernel whose machine code differs, and the workloads that launch it; None: no kernel."""

    old: Codegen | None
    new: Codegen | None
    uses: tuple[Use, ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that it breaks."""
        if not self.old or not self.new or not self.old.code:
            return ()
        if not self.new.code:
            return (DOES_NOT_COMPILE,)
        old, new = self.old.code, self.new.code
        return tuple(rule for rule in RULES if rule.broken(old, new))

    @property
    def figures(self) -> dict[str, tuple[Any, Any]]:
        """Return the figures that differ, by name."""
        if not self.old or not self.new:
            return {}
        old, new = figures_of(self.old), figures_of(self.new)
        names = dict.fromkeys([*old, *new])
        return {n: (old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)}


def figures_of(line: Codegen) -> dict[str, Any]:
    """Return all that a rule or a reader may look at, flat; instructions by their kind."""
    configuration = {"constants": line.constants, "options": line.options}
    if line.code is None:
        return configuration | {"reason": line.reason}
    flat = line.code.model_dump(exclude={"instructions"})
    return configuration | flat | line.code.instructions.model_dump()


def differences(old: Iterable[Codegen], new: Iterable[Codegen]) -> list[Difference]:
    """Compare kernel by kernel for each workload; equal code is no difference, whatever its name.

    A kernel is found again by its workload: a changed block size is a difference, not a new kernel.
    """
    before, after = by_use(old), by_use(new)
    pairs: dict[tuple[int, int], tuple[Codegen | None, Codegen | None, list[Use]]] = {}
    for use in dict.fromkeys([*before, *after]):
        for one, other in paired(before.get(use, []), after.get(use, [])):
            pairs.setdefault((id(one), id(other)), (one, other, []))[2].append(use)
    found = [Difference(one, other, tuple(uses)) for one, other, uses in pairs.values()]
    return [one for one in found if differs(one)]


def in_common(old: Sequence[Codegen], new: Sequence[Codegen]) -> tuple[list[Difference], int]:
    """Return the differences of launches that both sides know, and the number of all others.

    What one side lacks may have been left out there: it tells nothing about the kernel.
    """
    common, every = by_use(old).keys() & by_use(new).keys(), differences(old, new)
    found = [one for one in every if common & {*one.uses}]
    return found, len(every) - len(found)


def compared(old: Iterable[Codegen], new: Iterable[Codegen]) -> int:
    """Return how many workloads and kernels both sides know."""
    before, after = by_use(old), by_use(new)
    return sum(min(len(before[use]), len(after[use])) for use in before.keys() & after.keys())


def differs(one: Difference) -> bool:
    """Tell whether anything but the way there differs."""
    if not one.old or not one.new:
        return True
    return (one.old.code, one.old.reason) != (one.new.code, one.new.reason)


def by_use(lines: Iterable[Codegen]) -> dict[Use, list[Codegen]]:
    """Return the kernels that each workload of each implementation launches, for each target."""
    found: dict[Use, list[Codegen]] = {}
    for line in lines:
        for user in line.used_by:
            for workload in user.workloads:
                use = (line.target, line.op, user.implementation, workload)
                found.setdefault(use, []).append(line)
    return found


def paired(
    old: list[Codegen], new: list[Codegen]
) -> Iterator[tuple[Codegen | None, Codegen | None]]:
    """Pair the kernels of one call: those with equal code, then of equal name, then in order."""
    left, right = list(old), list(new)
    for same in (same_code, lambda a, b: a.kernel == b.kernel, lambda a, b: True):
        for one in list(left):
            other = next((other for other in right if same(one, other)), None)
            if other is not None:
                left.remove(one)
                right.remove(other)
                yield one, other
    yield from ((one, None) for one in left)
    yield from ((None, other) for other in right)


def same_code(one: Codegen, other: Codegen) -> bool:
    """Tell whether two kernels are the same machine code."""
    return bool(one.code and other.code and one.code == other.code)
