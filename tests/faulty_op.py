"""An op whose implementations fail in every way that a kernel can. Tests copy it into a project."""

from __future__ import annotations

import os
import signal
import time

import torch

from kernels.spec import Cost, Implementation, Op, Tolerance, Workload


def twice(x):
    return x * 2


def build(call):
    return lambda inputs: lambda: call(inputs["x"])


def mutating(x):
    x.add_(1)
    return (x - 1) * 2


def half_written(x):
    out = torch.empty_like(x)
    out[::2] = x[::2] * 2
    return out


def dying(how):
    def call(x):
        how()
        return twice(x)

    return call


def raising():
    raise ValueError("this kernel refuses | <script>")


def wrong_from_the_tenth_call_on():
    calls = []

    def call(x):
        calls.append(1)
        return x * (2 if len(calls) < 10 else 3)

    return call


CALLS = {
    "good": twice,
    "wrong": lambda x: x * 3,
    "wrong-later": wrong_from_the_tenth_call_on(),
    "not-a-number": lambda x: x * float("nan"),
    "wrong-shape": lambda x: twice(x)[:-1],
    "mutates": mutating,
    "half-written": half_written,
    "raises": dying(raising),
    "out-of-memory": dying(lambda: torch.empty(1 << 60)),
    "segfault": dying(lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    "exits": dying(lambda: os._exit(3)),
    "hangs": dying(lambda: time.sleep(600)),
}

OP = Op(
    name="faulty",
    title="Faulty",
    summary="Fails in every way.",
    formula="y = 2 x",
    axis="size",
    inputs="x ~ N(0, 1)",
    workloads=(Workload({"size": 64}, "float32", frozenset({"smoke", "cpu", "default"})),),
    make_inputs=lambda workload, generator, device: {
        "x": torch.randn(workload["size"], generator=generator, device=device)
    },
    implementations=(
        *(
            Implementation(name=name, kind="eager", build=build(call))
            for name, call in CALLS.items()
        ),
        Implementation(name="absent", kind="library", build=build(twice), packages=("no_such",)),
        Implementation(
            name="too-big", kind="eager", build=build(twice), unsupported=lambda w: "64 is too big"
        ),
    ),
    baseline="good",
    oracle=lambda inputs: inputs["x"].double() * 2,
    tolerance={"float32": Tolerance(absolute=1e-6, relative=1e-6, norm=1e-6)},
    cost=lambda workload, mode: Cost(flops=workload["size"], minimal_bytes=8 * workload["size"]),
)
