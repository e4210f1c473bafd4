"""What ops launch on a GPU, found without one: tensors have no memory, launches are written down.

Triton's own code turns arguments into types and specialisations, so that a compilation here is the
one that a launch would cause.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
import triton
from torch._subclasses import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from kernels.spec import Implementation, Op, Workload

if TYPE_CHECKING:
    from kernels.spec import Builder, Inputs


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a Triton function, and who caused it."""

    op: str
    implementation: str
    workload: str
    function: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    least_sm: int = 0
    tags: frozenset[str] = frozenset()

    @property
    def call(self) -> tuple[str, str]:
        """Tell calls of an op apart: all kernels of one are compiled, or none."""
        return self.implementation, self.workload

    def runs_on(self, target: GPUTarget) -> bool:
        """Tell whether a target is new enough."""
        return not self.least_sm or (target.backend == "cuda" and target.arch >= self.least_sm)


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a Triton function that is compiled for a target, and the launches that share it.

    `specialization` is what Triton distinguishes compiled forms by.
    """

    launch: Launch
    specialization: tuple[Any, ...]
    options: dict[str, Any]
    users: list[Launch] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Tell forms of all functions apart."""
        options = sorted(self.options.items())
        return repr((id(self.launch.function), self.launch.op, self.specialization, options))


@dataclass(frozen=True, slots=True)
class Pointer:
    """Stands in for a tensor where Triton looks at its type and alignment."""

    dtype: Any
    offset_bytes: int

    def data_ptr(self) -> int:
        """Return an address: tensors that PyTorch allocates begin at a multiple of 512 bytes."""
        return self.offset_bytes

    @staticmethod
    def ptr_range() -> int:
        """Return a size that offsets of 32 bits reach, as Triton's own stand-in does."""
        return 0


class AbsentDevice:
    """Takes the place of Triton's driver: a device of some target that is never used."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        """Return what is compiled for."""
        return self.target

    def get_current_device(self) -> GPUTarget:
        """Keep the compiled forms of each target apart."""
        return self.target

    def get_current_stream(self, _: object) -> int:
        """Return a stream that nothing runs on."""
        return 0


def op_launches(op: Op, tags: Iterable[str], backward: bool | None = None) -> Iterator[Launch]:
    """Yield the launches of an op's Triton implementations on workloads with one of these tags.

    Backward passes are among them where the tag `full` is, unless it is said.
    """
    backward = "full" in tags if backward is None else backward
    for implementation in op.implementations:
        if implementation.kind == "triton" and not missing(implementation):
            for workload in op.select(*tags):
                if implementation.unsupported(workload) is None:
                    for builder, inputs in calls(op, implementation, workload, backward):
                        yield from call_launches(op, implementation, workload, builder, inputs)


def calls(
    op: Op, implementation: Implementation, workload: Workload, backward: bool
) -> Iterator[tuple[Builder, Callable[[], Inputs]]]:
    """Yield what builds each mode and what draws its inputs."""
    generator = torch.Generator()
    if not hasattr(op, "draw"):
        # A commit from before gradients.
        yield implementation.build, lambda: op.make_inputs(workload, generator, "cuda")
        return
    for mode in op.modes(workload) if backward else ("forward",):
        if builder := implementation.builder(mode):
            yield builder, partial(op.draw, mode, workload, generator, "cuda")


def missing(implementation: Implementation) -> list[str]:
    """Return the packages that an implementation needs and that are not installed."""
    return [name for name in implementation.packages if importlib.util.find_spec(name) is None]


def call_launches(
    op: Op, implementation: Implementation, workload: Workload, builder: Builder,
    inputs: Callable[[], Inputs],
) -> list[Launch]:  # fmt: skip
    """Return the launches of one call, in order."""
    made: list[Launch] = []
    least_sm = getattr(implementation, "least_sm", 0)

    def written_down(function: Any, *arguments: Any, **given: Any) -> None:
        options = {k: v for k, v in given.items() if k not in ("grid", "warmup")}
        plain = tuple(map(stand_in, arguments))
        named = {name: stand_in(value) for name, value in options.items()}
        names = op.name, implementation.name, workload.key
        made.append(Launch(*names, function, plain, named, least_sm, workload.tags))

    with patch.object(JITFunction, "run", written_down), FakeTensorMode():
        builder(inputs())()
    return made


def stand_in(value: Any) -> Any:
    """Replace a tensor, which has no memory here, by what Triton needs to know of it."""
    if isinstance(value, torch.Tensor):
        return Pointer(value.dtype, value.storage_offset() * value.element_size())
    return value


def forms(launches: Iterable[Launch], target: GPUTarget) -> list[Form]:
    """Return the distinct forms that these launches need on a target, in order of first use."""
    use(target)
    found: dict[str, Form] = {}
    for launch in launches:
        if not launch.runs_on(target):
            continue
        *_, binder = launch.function.device_caches[target]
        _, specialization, options = binder(*launch.arguments, **launch.options)
        form = Form(launch, tuple(specialization), dict(options))
        found.setdefault(form.key, form).users.append(launch)
    return list(found.values())


def compiled(form: Form, target: GPUTarget) -> Any:
    """Compile a form for a target, as its launch would on such a device."""
    use(target)
    launch = form.launch
    return launch.function.run(*launch.arguments, grid=(1,), warmup=True, **launch.options)


def use(target: GPUTarget) -> None:
    """Let Triton compile for a target from here on."""
    triton.runtime.driver.set_active(AbsentDevice(target))
