"""The full table of an op: one row for each case of a view, with everything the record holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collector.history.counted import NOTHING_COUNTED, AllCounted, Counted
from collector.history.model import Point, SeriesKey
from collector.history.roof import Roof
from dashboard import format as words
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
    units_per_s: float | None
    launches: int | None
    modelled: bool
    quality: Mapping[str, float]
    counted: Counted | None

    @property
    def traffic_bytes(self) -> int | None:
        """Return the bytes that this implementation is expected to move, where modelled."""
        return self.point.cost.traffic_bytes if self.point.cost else None

    @property
    def traffic_ratio(self) -> float | None:
        """Return those bytes over the least that the op needs."""
        moved, cost = self.traffic_bytes, self.point.cost
        return moved / cost.minimal_bytes if moved and cost and cost.minimal_bytes else None

    @property
    def sent_bytes(self) -> int | None:
        """Return what each rank sends to others, by the model of a ring."""
        return self.point.cost.link_bytes if self.point.cost else None

    def limit_ns(self, name: str) -> float | None:
        """Return the least time by one limit, where it was measured."""
        return self.roof.limits_ns.get(name) if self.roof else None

    @property
    def counted_parts(self) -> str:
        """Say what the counted traffic consists of."""
        if self.counted is None:
            return ""
        kernels, late = self.counted.record.kernels, self.counted.record.written_back_bytes
        read = words.bytes_text(sum(one.dram_read_bytes for one in kernels))
        written = words.bytes_text(sum(one.dram_write_bytes for one in kernels))
        return f"read {read}, written {written}, written back later {words.bytes_text(late)}"


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns the rows of a view have something for."""

    units: bool
    launches: bool
    modelled: bool
    traffic: bool
    counted: bool
    sent: bool


def rows(scene: Scene, counted: AllCounted = NOTHING_COUNTED) -> list[Row]:
    """Return the rows of a view: implementations in display order, sizes rising."""
    return list(_rows(scene, counted))


def _rows(scene: Scene, counters: AllCounted) -> Iterator[Row]:
    curves = scene.curves
    for name in curves.names:
        against = dict(ratios(curves, name, curves.op.baseline))
        for size, point in sorted(curves.points[name].items()):
            roof, counted = scene.roof(name, size), point.graph_nodes is not None
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
                command=command(curves.keys[name][size]),
                units_per_s=_units_per_s(scene, curves.keys[name][size], point),
                launches=point.graph_nodes if counted else modelled_launches(point),
                modelled=not counted,
                quality=dict(point.quality),
                counted=counters.of(curves.keys[name][size]),
            )


def _rate(scene: Scene, point: Point, metric: int) -> float | None:
    if point.median_ns is None or not scene.curves.view.timed_on_device:
        return None
    return METRICS[metric].value(point, point.median_ns)


def _units_per_s(scene: Scene, key: SeriesKey, point: Point) -> float | None:
    """Return how many units of the op's axis, such as rows, are done a second."""
    count = dict(key.sizes).get(scene.curves.op.axis, 0)
    if point.median_ns is None or not count or not scene.curves.view.timed_on_device:
        return None
    return count / point.median_ns * 1e9


def modelled_launches(point: Point) -> int | None:
    """Return the kernels that a call is expected to start, where that is modelled."""
    return point.cost.launches if point.cost else None


def columns(found: Sequence[Row]) -> Columns:
    """Say which columns have something to show."""
    launches = [row for row in found if row.launches is not None]
    return Columns(
        units=any(row.units_per_s for row in found),
        launches=bool(launches),
        modelled=any(row.modelled for row in launches),
        traffic=any(row.traffic_bytes is not None for row in found),
        counted=any(row.counted for row in found),
        sent=any(row.sent_bytes for row in found),
    )


def quality_names(found: Iterable[Row]) -> list[str]:
    """Return the names of all figures of quality, as first seen."""
    return list(dict.fromkeys(name for row in found for name in row.quality))


def _registers(point: Point) -> str:
    """Write registers and spills of each kernel, for example `40 / 0`."""
    return ", ".join(f"{code.registers} / {code.spills}" for code in point.codegen)


def as_json(row: Row) -> dict[str, Any]:
    """Return a case as the site hands it out: base units, each named in its field."""
    point, key = row.point, row.key
    return {
        "device": key.device, "op": key.op, "implementation": key.implementation,
        "mode": key.mode, "sizes": dict(key.sizes), "dtype": key.dtype, "timer": key.timer,
        "cache": key.cache, "status": point.status, "reason": point.reason,
        "median_ns": point.median_ns, "ci_low_ns": point.ci_low_ns,
        "ci_high_ns": point.ci_high_ns, "q01_ns": point.q01_ns, "q99_ns": point.q99_ns,
        "replicates": len(point.medians_ns), "samples": point.samples,
        "gb_per_s": row.gb_per_s, "tflop_per_s": row.tflop_per_s,
        "units_per_s": row.units_per_s, "graph_nodes": point.graph_nodes,
        "peak_memory_bytes": point.peak_memory_bytes, "quality": dict(point.quality),
        "regime": row.roof.regime if row.roof else None,
        "fraction_of_roof": row.roof.fraction if row.roof else None,
        "speed_up": row.ratio.value if row.ratio else None,
        "flags": list(row.flags), "commit": point.commit, "run_id": point.run_id,
        "record": f"data/{point.location}",
    }  # fmt: skip


def command(key: SeriesKey) -> str:
    """Return the one command that repeats a case."""
    return _command([key])


def command_of_all(found: Iterable[Row]) -> str:
    """Return the one command that repeats all cases of a view that have a time."""
    keys = [row.key for row in found if row.point.median_ns is not None]
    return _command(keys) if keys else ""


def _command(keys: Sequence[SeriesKey]) -> str:
    """Name each choice once; what differs between the cases is implementation and sizes."""
    first, ranks = keys[0], [dict(key.sizes).get("ranks") for key in keys]
    options = [("--op", first.op)]
    options += [("--implementation", key.implementation) for key in keys]
    options += [("--workload", _sizes_text(key)) for key in keys]
    options += [("--mode", first.mode), ("--dtype", first.dtype)]
    options += [("--timer", first.timer), ("--cache", first.cache)]
    options += [("--ranks", str(count)) for count in ranks if count]
    told = dict.fromkeys(f"{name} {shlex.quote(text)}" for name, text in options)
    return " ".join([COLLECT, *told])


def _sizes_text(key: SeriesKey) -> str:
    return ",".join(f"{name}={size}" for name, size in key.sizes) or "default"
