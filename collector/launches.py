"""What ops launch on a GPU, found without one: tensors have no memory, launches are written down.

Triton's own code turns arguments into types and specialisations, so that a compilation here is the
one that a launch would cause.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch._subclasses import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from kernels.spec import Implementation, Mode, Op, Workload


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


def op_launches(op: Op) -> Iterator[Launch]:
    """Yield the launches of all workloads and Triton implementations of an op, in their order."""
    for implementation in op.implementations:
        if implementation.kind == "triton" and not missing(implementation):
            for workload in op.workloads:
                if implementation.unsupported(workload) is None:
                    for mode in op.modes(workload):
                        yield from call_launches(op, implementation, mode, workload)


def missing(implementation: Implementation) -> list[str]:
    """Return the packages that an implementation needs and that are not installed."""
    return [name for name in implementation.packages if importlib.util.find_spec(name) is None]


def call_launches(
    op: Op, implementation: Implementation, mode: Mode, workload: Workload
) -> list[Launch]:
    """Return the launches of one call in a mode, in order; none where it lacks the mode."""
    made: list[Launch] = []
    builder = implementation.builder(mode)
    if builder is None:
        return made

    def written_down(function: Any, *arguments: Any, **given: Any) -> None:
        options = {k: v for k, v in given.items() if k not in ("grid", "warmup")}
        plain = tuple(map(stand_in, arguments))
        named = {name: stand_in(value) for name, value in options.items()}
        names = op.name, implementation.name, workload.key
        made.append(Launch(*names, function, plain, named, implementation.least_sm))

    with patch.object(JITFunction, "run", written_down), FakeTensorMode():
        builder(op.draw(mode, workload, torch.Generator(), "cuda"))()
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
