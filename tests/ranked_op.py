"""An op over ranks, one of which dies or hangs. Tests copy it into a project."""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist

from kernels import ranks
from kernels.spec import Cost, Implementation, Op, Tolerance, Workload


def added(x):
    total = x.clone()
    dist.all_reduce(total)
    return total


def build(fault):
    def built(inputs):
        x = inputs["x"][ranks.own()]

        def call():
            if ranks.own() == 1:
                fault()
            return added(x)

        return call

    return built


CALLS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "good": lambda: time.sleep(0.001),
    "hangs": lambda: time.sleep(600),
}
WRONG = Implementation(
    name="wrong", kind="eager", build=lambda inputs: lambda: inputs["x"][ranks.own()].clone()
)

OP = Op(
    name="torn",
    title="Torn",
    summary="One of its ranks fails.",
    formula="y = sum of x over ranks",
    axis="size",
    inputs="x ~ N(0, 1)",
    workloads=(
        Workload({"ranks": 1, "size": 8}, "float32", frozenset({"smoke"})),
        Workload({"ranks": 2, "size": 8}, "float32", frozenset({"cpu"})),
    ),
    make_inputs=lambda workload, generator, device: {
        "x": torch.randn((2, workload["size"]), generator=generator, device=device)
    },
    implementations=(
        WRONG,
        *(
            Implementation(name=name, kind="eager", build=build(fault))
            for name, fault in CALLS.items()
        ),
    ),
    baseline="good",
    oracle=lambda inputs: inputs["x"].double().sum(dim=0),
    tolerance={"float32": Tolerance(absolute=1e-6, relative=1e-6, norm=1e-6)},
    cost=lambda workload, mode: Cost(flops=8, minimal_bytes=64, link_bytes=32),
)
