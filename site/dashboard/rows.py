"""The full table of an op: one row for each case of a view, with everything the record holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from collector.history.model import Point, SeriesKey
from collector.history.roof import Roof
from dashboard.crossover import SpeedUp
from dashboard.figures import METRICS, Scene, all_flags, ratios

COLLECT = "python -m collector collect"


@dataclass(frozen=True, slots=True)
class Row:
    """One case with what follows from it."""

    key: SeriesKey
    size: int
    point: Point
    roof: Roof | None
    ratio: SpeedUp | None
    gb_per_s: float | None
    tflop_per_s: float | None
    flags: tuple[str, ...]
    registers: str
    command: str


def rows(scene: Scene) -> list[Row]:
    """Return the rows of a view: implementations in display order, sizes rising."""
    return list(_rows(scene))


def _rows(scene: Scene) -> Iterator[Row]:
    curves = scene.curves
    for name in curves.names:
        against = dict(ratios(curves, name, curves.op.baseline))
        for size, point in sorted(curves.points[name].items()):
            roof = scene.roof(name, size)
            yield Row(
                key=curves.keys[name][size],
                size=size,
                point=point,
                roof=roof,
                ratio=against.get(size),
                gb_per_s=_rate(scene, point, 1),
                tflop_per_s=_rate(scene, point, 2),
                flags=all_flags(point, roof),
                registers=_registers(point),
                command=command(curves.keys[name][size], curves.op.axis),
            )


def _rate(scene: Scene, point: Point, metric: int) -> float | None:
    if point.median_ns is None or not scene.curves.view.timed_on_device:
        return None
    return METRICS[metric].value(point, point.median_ns)


def _registers(point: Point) -> str:
    """Write registers and spills of each kernel, for example `40 / 0`."""
    return ", ".join(f"{code.registers} / {code.spills}" for code in point.codegen)


def command(key: SeriesKey, axis: str) -> str:
    """Return the one command that repeats a case."""
    sizes = dict(key.sizes)
    options = {
        "--op": key.op,
        "--implementation": key.implementation,
        "--workload": f"{axis}={sizes[axis]}" if axis in sizes else "default",
        "--dtype": key.dtype,
        "--timer": key.timer,
        "--cache": key.cache,
    }
    return " ".join([COLLECT, *(f"{name} {shlex.quote(text)}" for name, text in options.items())])
