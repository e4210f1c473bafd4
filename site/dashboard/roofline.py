"""Rooflines: arithmetic rate against intensity, below the limits measured on that device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collector.history.model import Ceilings, Point
from collector.history.rates import intensity_flops_per_byte, tflop_per_s
from collector.history.roof import pipe_flops_per_s
from dashboard import format as words
from dashboard.charts import Axis, Chart, Line, Series, Table, extent, log_axis
from dashboard.figures import Scene, all_flags
from dashboard.op_limits import (
    Found,
    OpLimit,
    Place,
    issue_flops_per_s,
    issue_per_s,
    op_limits,
)
from dashboard.palette import Style

DECADE = 10.0
ROOM = 4.0  # times, from the outermost points to the ends of the axis
ROOM_FOR_NAMES = 12.0  # the same behind the last of many paths, where the limits are named
AROUND = 1.3  # times, from the points of an op to the ends of its own limit
CLOSE = 1.3  # times, within which the names of two limits would overlap
CAPTION = (
    "Intensity is flops over minimal bytes, both from the op's cost model; limits are measured "
    "on this device in the same run. Each path runs along {axis}, hollow at the smallest size."
)
SPECIAL_CAPTION = (
    " Short dotted lines: what special functions allow the op whose path lies below. An op without "
    "arithmetic has no place here, but one in the table."
)
ISSUE_CAPTION = (
    " Instruction issue: the multiply-add sentinel starts an instruction a lane and cycle, {rate}; "
    "the limit counts one for each special function and one for two flops, as if all were fused. "
    "How many are, the records do not say: with none it lies at {unfused}."
)


@dataclass(frozen=True, slots=True)
class Path:
    """One implementation along its axis, to be drawn as one path."""

    key: str
    name: str
    style: Style
    scene: Scene
    implementation: str

    def points(self) -> list[Place]:
        """Return every point that has an intensity and a rate."""
        found: list[Place] = []
        if not self.scene.curves.view.timed_on_device:
            return found
        for size, point in self.scene.curves.passed(self.implementation).items():
            across, up = intensity_flops_per_byte(point), tflop_per_s(point)
            if across and up:
                found.append((size, point, across, up))
        return found


def op_paths(scene: Scene, names: Iterable[str] | None = None) -> list[Path]:
    """Return a path for each implementation of one op, or for those named."""
    names = scene.curves.names if names is None else names
    return [Path(name, name, scene.styles[name], scene, name) for name in names]


def roofline_chart(paths: Sequence[Path], ceilings: Ceilings | None, axis: str) -> Chart:
    """Draw paths below the measured limits that their pipes have."""
    drawn = [(path, points) for path in paths if (points := path.points())]
    series = tuple(_series(path, points) for path, points in drawn)
    intensities = [x for line in series for x in line.x]
    pipes = {p.cost.pipe for _, points in drawn for _, p, _, _ in points if p.cost}
    by_op = _by_op(drawn)
    x = x_axis(intensities, ceilings, pipes, ROOM if len(by_op) == 1 else ROOM_FOR_NAMES)
    furthest = max(intensities, default=1.0)
    lines: list[Line] = []
    if ceilings:
        shown = pipes if len(by_op) == 1 else pipes | {"fp32", *ceilings.gemm_flops_per_s}
        limits = list(limit_lines(x, ceilings, shown, furthest))
        lines = [*(limits if len(by_op) == 1 else _named_together(limits))]
        lines += _op_lines(x, ceilings, by_op)
    heights = [*extent(series), *(y for line in lines for y in line.y)]
    low = min((y for y in extent(series) if y), default=1.0)
    y = log_axis("TFLOP/s", [y for y in heights if y is not None and y >= low / DECADE])
    return Chart(
        key="roofline",
        title="Roofline",
        caption=CAPTION.format(axis=axis) + _limits_caption(by_op),
        x=x,
        y=y,
        series=series,
        lines=tuple(cut(lines, y)),
    )


def _by_op(drawn: Iterable[tuple[Path, list[Place]]]) -> dict[str, list[tuple[Scene, Place]]]:
    found: dict[str, list[tuple[Scene, Place]]] = {}
    for path, points in drawn:
        found.setdefault(path.scene.curves.op.name, []).extend((path.scene, p) for p in points)
    return found


def _limits_caption(found: Found) -> str:
    """Say how limits of special functions are drawn, and for one op alone that of instructions."""
    if len(found) != 1:
        return SPECIAL_CAPTION
    scene, (_, point, _, _) = next(iter(found.values()))[-1]
    unfused = issue_flops_per_s(scene, point.cost, fused=False) if point.cost else None
    if unfused is None:
        return ""
    rate = words.rate(issue_per_s(scene.ceilings, scene.curves.run.device), " instructions/s")
    return ISSUE_CAPTION.format(rate=rate, unfused=words.rate(unfused, "FLOP/s"))


def roofline_table(paths: Sequence[Path], axis: str) -> Table:
    """List the paths of a roofline by size, and the limits that lie elsewhere for each op."""
    rows = [
        (
            f"{path.name}, {words.binary(size)}",
            (words.significant(across), words.significant(up), _share(path, size)),
        )
        for path in paths
        for size, _, across, up in path.points()
    ]
    rows += [
        (f"{limit.name}, {limit.op}", (words.significant(across), words.significant(up), ""))
        for limit in op_limits(_by_op((path, path.points()) for path in paths if path.points()))
        for across, up in zip(limit.x, limit.tflop_per_s, strict=True)
    ]
    return Table(f"path, {axis}", ("FLOP per byte", "TFLOP/s", "of its roof"), tuple(rows))


def _share(path: Path, size: int) -> str:
    roof = path.scene.roof(path.implementation, size)
    return words.percent(roof.fraction) if roof else ""


def _series(path: Path, points: list[Place]) -> Series:
    notes = tuple(
        path.scene.note(
            path.implementation,
            size,
            f"{words.significant(up)} TFLOP/s at {words.significant(across)} FLOP/byte\n"
            + words.duration(point.median_ns),
        )
        for size, point, across, up in points
    )
    suspect = {i for i, (size, point, _, _) in enumerate(points) if _beats_roof(path, size, point)}
    x = tuple(across for _, _, across, _ in points)
    y = tuple(up for _, _, _, up in points)
    hollow = frozenset({0, *suspect} if len(points) > 1 else suspect)
    return Series(path.key, path.name, path.style, x, y, notes, hollow=hollow)


def _beats_roof(path: Path, size: int, point: Point) -> bool:
    return "above-roof" in all_flags(point, path.scene.roof(path.implementation, size))


def x_axis(
    intensities: list[float],
    ceilings: Ceilings | None,
    pipes: Iterable[str],
    behind: float = ROOM,
) -> Axis:
    """Return an axis that holds all intensities and the ridges of the pipes, with slopes to see."""
    values = intensities or [1.0]
    bandwidth = ceilings.memory_bytes_per_s if ceilings else None
    rates = [pipe_flops_per_s(ceilings, pipe) for pipe in pipes] if ceilings else []
    ridges = [rate / bandwidth for rate in rates if rate and bandwidth]
    span = [min(values) / ROOM, max(values) * behind]
    span += [end for ridge in ridges for end in (ridge / ROOM**2, ridge * ROOM)]
    return log_axis("FLOP per byte", span)


def limit_lines(x: Axis, ceilings: Ceilings, pipes: set[str], furthest: float) -> Iterator[Line]:
    """Draw memory, L2 and the pipes that paths use."""
    rates = {pipe: rate for pipe in sorted(pipes) if (rate := pipe_flops_per_s(ceilings, pipe))}
    top = max(rates.values(), default=None)
    if ceilings.memory_bytes_per_s:
        yield _named(_slope("memory", ceilings.memory_bytes_per_s, x, top), furthest)
    if ceilings.l2_bytes_per_s:
        yield replace(_slope("L2", ceilings.l2_bytes_per_s, x, top), dash="dash", label_at="middle")
    for label, rate in _labelled(rates):
        start = rate / ceilings.memory_bytes_per_s if ceilings.memory_bytes_per_s else x.low
        ends = (min(start, x.high / 2), x.high)
        yield Line(label, ends, (rate / 1e12,) * 2)


def _labelled(rates: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Name each rate; those that lie close together share the label of the highest."""
    groups: list[list[tuple[str, float]]] = []
    for pipe, rate in sorted(rates.items(), key=lambda pair: -pair[1]):
        if not groups or rate * CLOSE < groups[-1][0][1]:
            groups.append([])
        groups[-1].append((f"{pipe} {words.significant(rate / 1e12)}", rate))
    for group in groups:
        yield ", ".join(label for label, _ in group), group[0][1]
        yield from (("", rate) for _, rate in group[1:])


def _named(slope: Line, furthest: float) -> Line:
    """Name the lower slope beyond all paths where there is room, else below its start.

    The upper slope is named above its middle, so that no line crosses either name.
    """
    (x0, x1), (y0, y1) = slope.x, slope.y
    if x1 < furthest * DECADE:
        return replace(slope, label_at="below")
    middle = math.sqrt(furthest * x1)
    return replace(slope, label_at="beside", x=(x0, middle, x1), y=(y0, y1 * middle / x1, y1))


def _named_together(lines: Sequence[Line]) -> list[Line]:
    """Name both slopes above the upper one: many paths leave no room below."""
    slopes = [line for line in lines if line.label_at in ("below", "beside", "middle")]
    label = "\n".join(line.label for line in reversed(slopes))
    named = [replace(line, label="") for line in slopes[:-1]]
    named += [replace(line, label=label, label_at="middle") for line in slopes[-1:]]
    return [*named, *(line for line in lines if line not in slopes)]


def _slope(name: str, bytes_per_s: float, x: Axis, top: float | None) -> Line:
    end = min(x.high, top / bytes_per_s) if top else x.high
    ys = (x.low * bytes_per_s / 1e12, end * bytes_per_s / 1e12)
    return Line(f"{name} {words.rate(bytes_per_s, 'B/s')}", (x.low, end), ys)


def _op_lines(x: Axis, ceilings: Ceilings, found: Found) -> Iterator[Line]:
    """Draw the limits of each op; those of a single op share one label, under the lowest.

    Where several ops share a chart, only what lies below the memory roof is drawn: it can bind.
    """
    limits = op_limits(found)
    if len(found) != 1:
        yield from _short_lines(x, ceilings, limits)
        return
    for limit in limits:
        xs = (max(x.low, limit.x[0] / 2), *limit.x, x.high)
        ys = (limit.tflop_per_s[0], *limit.tflop_per_s, limit.tflop_per_s[-1])
        label = "\n".join(map(_limit_label, limits)) if limit is limits[-1] else ""
        yield Line(label, xs, ys, "dot", "under")


def _short_lines(x: Axis, ceilings: Ceilings, limits: Iterable[OpLimit]) -> Iterator[Line]:
    """Draw a limit where its op lies; ops of equal work share one."""
    bandwidth = (ceilings.memory_bytes_per_s or math.inf) / 1e12
    places = {
        (limit.x[0], limit.x[-1], limit.tflop_per_s[-1])
        for limit in limits
        if limit.tflop_per_s[-1] <= bandwidth * limit.x[-1]
    }
    for low, high, rate in sorted(places):
        ends = max(x.low, low / AROUND), min(x.high, high * AROUND)
        yield Line("", ends, (rate, rate), "dot")


def _limit_label(limit: OpLimit) -> str:
    return f"{limit.name} {words.significant(limit.tflop_per_s[-1])}"


def cut(lines: Iterable[Line], y: Axis) -> Iterator[Line]:
    """Cut slopes where they would leave the plot below."""
    for line in lines:
        (x0, *xs, x1), (y0, *ys, y1) = line.x, line.y
        if y1 <= y.low:
            continue
        if y0 < y.low:
            x0, y0 = x1 * y.low / y1, y.low
        if line.label_at == "middle":
            xs, ys = [math.sqrt(x0 * x1)], [math.sqrt(y0 * y1)]
        yield replace(line, x=(x0, *xs, x1), y=(y0, *ys, y1))
