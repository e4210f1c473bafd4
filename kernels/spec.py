"""The words that an op is described with: frozen values, no torch at import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import torch

    Inputs: TypeAlias = Mapping[str, torch.Tensor]
    Outputs: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]
    Thunk: TypeAlias = Callable[[], Outputs]
    Builder: TypeAlias = Callable[[Inputs], Thunk]

Mode = Literal["forward", "backward", "full"]
Kind = Literal["eager", "compiled", "triton", "library"]
Pipe = Literal["fp32", "fp16", "bf16", "tf32", "int8"]
Tag = Literal["smoke", "default", "full", "edge", "cpu", "gradient"]


@dataclass(frozen=True, slots=True)
class Workload:
    """Sizes and dtype of one problem.

    Tags say where it is used: `smoke` in tests and in Triton's interpreter, `cpu` for timing on a
    CPU, `default` and `full` for timing on a GPU, `edge` for correctness at awkward sizes only,
    `gradient` beside one of these where the backward modes are checked and timed as well.
    """

    sizes: Mapping[str, int]
    dtype: str
    tags: frozenset[str] = frozenset({"default"})

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", MappingProxyType(dict(self.sizes)))
        object.__setattr__(self, "tags", frozenset(self.tags))

    def __hash__(self) -> int:
        return hash((self.key, self.tags))

    def __getitem__(self, name: str) -> int:
        return self.sizes[name]

    @property
    def key(self) -> str:
        """Name the workload in one word, for example `rows=128,hidden=1024,float16`."""
        return ",".join([*(f"{name}={size}" for name, size in self.sizes.items()), self.dtype])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Work that the mathematics needs, as exact counts, the same for every implementation.

    `flops` counts floating-point operations, `minimal_bytes` each input read once and each output
    written once, `special_ops` exponentials, reciprocals, roots and the like; `pipe` names the
    unit that the flops run on. Over ranks all are those of one rank, and `link_bytes` what it sends
    to others.
    """

    flops: int
    minimal_bytes: int
    special_ops: int = 0
    link_bytes: int = 0
    pipe: Pipe = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Bounds of one dtype: |out - oracle| <= absolute + relative * |oracle|, and the norm bound.

    `norm` bounds ||out - oracle|| / ||oracle||.
    """

    absolute: float
    relative: float
    norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One way to compute an op.

    `build` gets the inputs and returns a thunk; what happens before the thunk is called is not
    timed. `packages` are optional imports: where one is absent, the implementation is unavailable,
    as on a GPU below `least_sm`, a compute capability times ten.
    `kernels` returns the Triton functions that it launches, for compiler evidence. `unsupported`
    returns why a workload cannot run, or None. `traffic_bytes` and `launches` model what this
    implementation moves and starts in forward mode, where that is known. `backward` and `full` are
    builders of the other modes, where it has them: their thunks return the gradients, from what
    the builder computed before (`backward`) or forward pass included (`full`).
    """

    name: str
    kind: Kind
    build: Builder
    summary: str = ""
    packages: tuple[str, ...] = ()
    least_sm: int = 0
    kernels: Callable[[], tuple[object, ...]] = tuple
    unsupported: Callable[[Workload], str | None] = lambda workload: None
    traffic_bytes: Callable[[Workload], int] | None = None
    launches: Callable[[Workload], int] | None = None
    backward: Builder | None = None
    full: Builder | None = None

    def builder(self, mode: Mode) -> Builder | None:
        """Return what builds a mode, or None where this implementation lacks it."""
        return {"forward": self.build, "backward": self.backward, "full": self.full}[mode]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """How the gradients of an op are asked for and judged.

    `make_inputs` draws the gradients of the outputs; they join the op's own inputs. `oracle`
    computes the gradients in float64, in the order in which thunks return them.
    """

    make_inputs: Callable[[Workload, torch.Generator, str], Inputs]
    oracle: Callable[[Inputs], Outputs]
    tolerance: Mapping[str, Tolerance]


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of the axis worth marking in every chart along it."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation and everything that the project derives from it.

    `axis` is the size that curves run along. `inputs` names the input distribution in words; it is
    part of the identity of a workload. `make_inputs(workload, generator, device)` draws one set.
    `oracle` computes the truth in float64 from the same rounded inputs; `gradient` is the same for
    the modes backward and full. `quality` returns figures of a result that a right result need not
    keep, such as what an iteration left undone, each named with its unit. `regions` names the ops
    that a pipeline consists of. `marks` are sizes along the axis that users care for; `unit` says
    what the axis counts (`matrices`), where its name does not.
    """

    name: str
    title: str
    summary: str
    formula: str
    axis: str
    inputs: str
    workloads: tuple[Workload, ...]
    make_inputs: Callable[[Workload, torch.Generator, str], Inputs]
    implementations: tuple[Implementation, ...]
    baseline: str
    oracle: Callable[[Inputs], Outputs]
    tolerance: Mapping[str, Tolerance]
    cost: Callable[[Workload, Mode], Cost]
    gradient: Gradient | None = None
    quality: Callable[[Outputs], Mapping[str, float]] | None = None
    regions: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    unit: str = ""
    params: Mapping[str, float] = field(default_factory=dict)

    def implementation(self, name: str) -> Implementation:
        """Return the implementation of that name; KeyError when there is none."""
        for implementation in self.implementations:
            if implementation.name == name:
                return implementation
        raise KeyError(name)

    def modes(self, workload: Workload) -> tuple[Mode, ...]:
        """Return the modes that a workload is measured in."""
        if self.gradient is None or "gradient" not in workload.tags:
            return ("forward",)
        return ("forward", "backward", "full")

    def draw(
        self, mode: Mode, workload: Workload, generator: torch.Generator, device: str
    ) -> Inputs:
        """Draw one set of inputs for a mode."""
        inputs = self.make_inputs(workload, generator, device)
        if mode == "forward" or self.gradient is None:
            return inputs
        return {**inputs, **self.gradient.make_inputs(workload, generator, device)}

    def truth(self, mode: Mode, inputs: Inputs) -> Outputs:
        """Compute what a thunk of that mode should return, in float64."""
        if mode == "forward" or self.gradient is None:
            return self.oracle(inputs)
        return self.gradient.oracle(inputs)

    def bounds(self, mode: Mode, dtype: str) -> Tolerance:
        """Return the bounds of a mode and dtype."""
        if mode == "forward" or self.gradient is None:
            return self.tolerance[dtype]
        return self.gradient.tolerance[dtype]

    def select(self, *tags: str) -> tuple[Workload, ...]:
        """Return the workloads that carry at least one of the tags."""
        return tuple(w for w in self.workloads if w.tags & set(tags))


class OpError(ValueError):
    """An op module breaks the contract; the message says which module and what to change."""
