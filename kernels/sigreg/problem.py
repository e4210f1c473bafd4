"""SIGReg as a problem: inputs, oracles, costs and bounds of its ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.sigreg import reference
from kernels.sigreg.pipeline import Test
from kernels.spec import Cost, Mode, Pipe, Tolerance, Workload

if TYPE_CHECKING:
    from kernels.spec import Inputs

T_MAX = 3.0
CLIP_VALUE = 0.5


def dtype_of(workload: Workload) -> torch.dtype:
    """Return the dtype of a workload."""
    return getattr(torch, workload.dtype)


def pipe_of(workload: Workload) -> Pipe:
    """Say where matrix products of a workload run."""
    halves: dict[str, Pipe] = {"float16": "fp16", "bfloat16": "bf16"}
    return halves.get(workload.dtype, "fp32")


def drawn_key(generator: torch.Generator, device: str) -> torch.Tensor:
    """Draw a seed and a step."""
    return torch.randint(1, 2**40, (2,), generator=generator, device=device)


def normal(
    workload: Workload, generator: torch.Generator, device: str, *names: str
) -> torch.Tensor:
    """Draw normal numbers of a shape that is named by sizes."""
    shape = [workload[name] for name in names]
    x = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    return x.to(dtype_of(workload))


def test_of(inputs: Inputs) -> Test:
    """Return the test that a number of evenly spaced points make."""
    return Test(*reference.integration(int(inputs["points"]), T_MAX, inputs["x"].device), even=True)


def loss_reference(
    x: torch.Tensor,
    key: torch.Tensor,
    groups: torch.Tensor,
    columns: torch.Tensor,
    t: torch.Tensor,
    phi: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Compute the whole of it operator by operator."""
    a = reference.projection(key, groups, columns, x.shape[1], x.dtype)
    cos_mean, sin_mean = reference.trig_means(x @ a, t)
    return reference.epilogue_stats(cos_mean, sin_mean, phi, weights, x.shape[0]).mean()


def loss_arguments(inputs: Inputs) -> tuple[torch.Tensor, ...]:
    """Return what the reference needs beside x: all that does not depend on the step."""
    x, test = inputs["x"], test_of(inputs)
    counters = reference.counters(x.shape[1], int(inputs["slices"]), x.device)
    return inputs["key"], *counters, test.t, test.phi, test.weights


def loss_oracle(inputs: Inputs) -> torch.Tensor:
    """Compute the loss in float64, of directions that are not rounded."""
    x, test = inputs["x"], test_of(inputs)
    a = reference.true_projection(inputs["key"], x.shape[1], int(inputs["slices"]))
    means = reference.true_means(torch.einsum("bd,ds->bs", x.double(), a), test.t)
    return reference.true_stats(*means, test.phi, test.weights, x.shape[0]).mean()


def projection_cost(workload: Workload, mode: Mode) -> Cost:
    """Count squares, sums and divisions of all elements and a root a column; drawing is free.

    Special are a logarithm, a root, a sine and a cosine for two numbers, and the root of a norm.
    """
    dim, slices = workload["dim"], workload["slices"]
    return Cost(
        flops=slices * (1 + 3 * dim),
        minimal_bytes=dim * slices * dtype_of(workload).itemsize + 16,
        special_ops=slices * (2 * dim + 1),
    )


def gemm_cost(workload: Workload, mode: Mode) -> Cost:
    """Count a product and a sum for each element of a row and each column."""
    batch, dim, slices = workload["batch"], workload["dim"], workload["slices"]
    return Cost(
        flops=2 * dim * batch * slices,
        minimal_bytes=(batch * dim + dim * slices + batch * slices) * dtype_of(workload).itemsize,
        pipe=pipe_of(workload),
    )


def trig_cost(workload: Workload, mode: Mode) -> Cost:
    """Count the angle and the two sums of every point, and the division of the means.

    Points are evenly spaced: one sine and one cosine of each element give those of all points.
    """
    batch, slices, points = workload["batch"], workload["slices"], workload["points"]
    return Cost(
        flops=3 * batch * slices * points + 2 * slices * points,
        minimal_bytes=batch * slices * dtype_of(workload).itemsize
        + 4 * points + 2 * slices * points * 4,
        special_ops=2 * batch * slices,
    )  # fmt: skip


def epilogue_cost(workload: Workload, mode: Mode) -> Cost:
    """Count four operations of the error and two of the integral a point, two a slice.

    phi and the weights are float32 whatever the means are.
    """
    slices, points = workload["slices"], workload["points"]
    return Cost(
        flops=6 * slices * points + 2 * slices,
        minimal_bytes=2 * slices * points * dtype_of(workload).itemsize + 8 * points + 4 * slices,
    )


def loss_cost(workload: Workload, mode: Mode) -> Cost:
    """Count the steps from the directions to the mean; memory holds x, key and loss alone.

    Backward, directions and products are computed again; a point takes four operations an element,
    and a product with the transposed directions ends it.
    """
    batch, dim, slices, points = (workload[n] for n in ("batch", "dim", "slices", "points"))
    forward = slices * (dim * (2 * batch + 3) + points * (3 * batch + 8) + 3) + 1
    again = slices * (3 * dim + 1) + 4 * batch * dim * slices
    backward = again + 4 * batch * slices * points + 8 * slices * points
    x_bytes = batch * dim * dtype_of(workload).itemsize
    sums_bytes = 8 * slices * (points - 1)
    special = slices * (2 * dim + 1) + 2 * batch * slices
    return Cost(
        flops={"forward": forward, "backward": backward, "full": forward + backward}[mode],
        minimal_bytes={
            "forward": x_bytes + 20, "backward": 2 * x_bytes + 20 + sums_bytes,
            "full": 2 * x_bytes + 20,
        }[mode],
        special_ops=special * (2 if mode == "full" else 1),
        pipe=pipe_of(workload),
    )  # fmt: skip


def projection_traffic(workload: Workload) -> int:
    """Count the numbers written, read and written again."""
    return 3 * workload["dim"] * workload["slices"] * dtype_of(workload).itemsize + 16


def trig_traffic(workload: Workload) -> int:
    """Count every tensor of the three steps, [batch, slices, points] among them."""
    batch, slices, points = workload["batch"], workload["slices"], workload["points"]
    angles = batch * slices * points
    elements = (angles + batch * slices + points) + 3 * angles + 2 * (angles + slices * points)
    return elements * dtype_of(workload).itemsize + 4 * (points + 2 * slices * points)


def loss_traffic(workload: Workload) -> int:
    """Count every tensor of the eight steps."""
    batch, dim, slices, points = (workload[n] for n in ("batch", "dim", "slices", "points"))
    elements = dim * (batch + 4 * slices) + (3 * points + 1) * (2 * slices * (batch + 1) + 1)
    return elements * dtype_of(workload).itemsize + 20


def bounds(
    float32: tuple[float, float, float], half: tuple[float, float, float]
) -> dict[str, Tolerance]:
    """Return bounds, absolute, relative and of the norm, of float32 and of both halves."""
    one = Tolerance(absolute=float32[0], relative=float32[1], norm=float32[2])
    other = Tolerance(absolute=half[0], relative=half[1], norm=half[2])
    return {"float32": one, "float16": other, "bfloat16": other}


def tagged(*rows: tuple[dict[str, int], str, tuple[str, ...]]) -> tuple[Workload, ...]:
    """Return workloads of sizes and a dtype, whose tags add up where they repeat."""
    tags: dict[tuple[tuple[tuple[str, int], ...], str], set[str]] = {}
    for sizes, dtype, names in rows:
        tags.setdefault((tuple(sizes.items()), dtype), set()).update(names)
    return tuple(
        Workload(dict(sizes), dtype, frozenset(names)) for (sizes, dtype), names in tags.items()
    )
