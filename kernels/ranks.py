"""What an op needs to know of the ranks that share it; one process alone is rank 0 of 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    import torch

    from kernels.spec import Builder, Inputs, Thunk, Workload


def is_shared() -> bool:
    """Tell whether there is a process group."""
    return dist.is_available() and dist.is_initialized()


def count() -> int:
    """Return the number of ranks."""
    return dist.get_world_size() if is_shared() else 1


def own() -> int:
    """Return the number of this rank."""
    return dist.get_rank() if is_shared() else 0


def not_here(workload: Workload) -> str | None:
    """Say why a workload cannot run on the ranks that there are, or None.

    One rank is a process group too: what it runs by itself is another op's to measure.
    """
    wanted = workload["ranks"]
    here = is_shared() and wanted == count()
    return None if here else f"needs {wanted} ranks: collect --ranks {wanted}"


def own_rows(x: torch.Tensor) -> torch.Tensor:
    """Return the rows of this rank, of a tensor that holds those of all ranks."""
    rows = x.shape[0] // count()
    return x[own() * rows : (own() + 1) * rows]


def on_own_rows(build: Builder, name: str = "x") -> Builder:
    """Return a builder that is given only this rank's rows of one of the inputs."""

    def built(inputs: Inputs) -> Thunk:
        return build({**inputs, name: own_rows(inputs[name]).clone()})

    return built


def ring_bytes(ranks: int, payload_bytes: int) -> int:
    """Return what each rank sends in a ring all-reduce: twice all parts of the payload but one."""
    return 2 * (ranks - 1) * payload_bytes // ranks
