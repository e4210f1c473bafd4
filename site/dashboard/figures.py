"""Charts along an op's axis: speed-up, time, bandwidth, throughput. Curves in, Chart out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collector.history.model import Ceilings, History, Point
from collector.history.roof import Roof, pipe_flops_per_s, roof_in
from dashboard import format as words
from dashboard.charts import (
    Axis,
    Chart,
    Line,
    Mark,
    Series,
    Strip,
    Value,
    bands,
    extent,
    log_axis,
    size_axis,
)
from dashboard.crossover import NotComparableError, SpeedUp, crossovers, speed_up, stretches
from dashboard.palette import Style
from dashboard.views import Curves

REGIME_WORDS = {
    "host": "host-bound",
    "latency": "latency-bound",
    "memory": "memory-bound",
    "l2": "L2-bound",
    "compute": "compute-bound",
    "special": "special-function-bound",
    "link": "link-bound",
}
FEW_SAMPLES = 100
HEADROOM = 0.1
BANDS_ARE = (
    "Percentile bands of all samples, not confidence intervals: 1 to 99 light, 25 to 75 dark"
)
STRIP_MARGIN = 2**0.25


@dataclass(frozen=True, slots=True)
class Metric:
    """One way to show a time: as it is, or as work over time. `scale` turns ns into its unit."""

    key: str
    title: str
    unit: str
    value: Callable[[Point, float], Value]
    work: str


def _micros(point: Point, time_ns: float) -> Value:
    return time_ns / 1e3


def _gb_per_s(point: Point, time_ns: float) -> Value:
    return point.cost.minimal_bytes / time_ns if point.cost else None


def _tflop_per_s(point: Point, time_ns: float) -> Value:
    return point.cost.flops / time_ns / 1e3 if point.cost and point.cost.flops else None


METRICS = (
    Metric("latency", "Time of one call", "µs", _micros, "the time itself"),
    Metric("bandwidth", "Bandwidth", "GB/s", _gb_per_s, "minimal bytes over time"),
    Metric("throughput", "Arithmetic", "TFLOP/s", _tflop_per_s, "flops over time"),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """What all charts of one view share."""

    history: History
    curves: Curves
    styles: Mapping[str, Style]
    roofs: dict[tuple[str, int], Roof | None] = field(default_factory=dict, init=False, repr=False)
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def axis(self) -> Axis:
        """Return the size axis: the same in all charts of the view."""
        return size_axis(self.curves.axis, self.curves.axis_sizes)

    @property
    def ceilings(self) -> Ceilings | None:
        """Return the limits measured in the chosen run."""
        return self.history.ceilings.get(self.curves.run.run_id)

    def roof(self, name: str, size: int) -> Roof | None:
        """Return what limits one point, worked out once for all charts."""
        if (name, size) not in self.roofs:
            key, point = self.curves.keys[name][size], self.curves.points[name][size]
            self.roofs[name, size] = roof_in(self.history, key, point)
        return self.roofs[name, size]

    def note(self, name: str, size: int, value: str) -> str:
        """Return the hover text of a point: size, value, limit, commit."""
        point, run = self.curves.points[name][size], self.curves.run
        roof = self.roof(name, size)
        lines = [f"{self.curves.axis} {words.binary(size)}: {value}", _limit_words(roof)]
        lines += [f"flags: {', '.join(flags)}"] if (flags := all_flags(point, roof)) else []
        commit = words.short(run.source.commit)
        return "\n".join([*filter(None, lines), f"{commit}, {words.date(run.started_at)}"])


def all_flags(point: Point, roof: Roof | None) -> tuple[str, ...]:
    """Return the flags of a record together with those that the roof adds, each once."""
    return tuple(dict.fromkeys([*point.flags, *(roof.flags if roof else ())]))


def _limit_words(roof: Roof | None) -> str:
    if roof is None or roof.regime is None:
        return ""
    return f"{REGIME_WORDS[roof.regime]}, {words.percent(roof.fraction)} of its roof"


# Speed-up -------------------------------------------------------------------------------------


def ratios(curves: Curves, name: str, baseline: str) -> list[tuple[int, SpeedUp]]:
    """Return the speed-ups of an implementation along the axis, sizes in order."""
    mine, theirs = curves.passed(name), curves.passed(baseline)
    found = [(size, _ratio(mine[size], theirs[size], baseline)) for size in mine if size in theirs]
    return [(size, ratio) for size, ratio in found if ratio is not None]


def _ratio(point: Point, other: Point, against: str) -> SpeedUp | None:
    try:
        return speed_up(point, other, against)
    except NotComparableError:
        return None


def speed_up_chart(scene: Scene, baseline: str, focus: str | None) -> Chart:
    """Draw how many times faster than the baseline each implementation is."""
    curves = scene.curves
    lines = [_speed_up_line(scene, name, baseline) for name in curves.names if name != baseline]
    series = tuple(_annotated(line, focus) for line in lines if line is not None)
    own = ratios(curves, focus, baseline) if focus else []
    axis = scene.axis
    one = Line("", (axis.low, axis.high), (1.0, 1.0), "dash")
    return Chart(
        key="speedup",
        title=f"Speed-up over {baseline}",
        caption=_speed_up_caption(baseline, own, focus),
        x=axis,
        y=log_axis(f"speed-up over {baseline}", _with_headroom([1.0, *extent(series)]), "×"),
        series=series,
        marks=marks(scene),
        strips=strips(scene),
        lines=(one,),
        spans=(*marked(scene), *_crossing(own)),
    )


def _speed_up_line(scene: Scene, name: str, baseline: str) -> Series | None:
    found = dict(ratios(scene.curves, name, baseline))
    if not found:
        return None
    sizes = scene.curves.axis_sizes
    y = tuple(found[size].value if size in found else None for size in sizes)
    low = tuple(found[size].low if size in found else None for size in sizes)
    high = tuple(found[size].high if size in found else None for size in sizes)
    notes = tuple(
        scene.note(name, size, _ratio_words(found[size])) if size in found else "" for size in sizes
    )
    x = tuple(map(float, sizes))
    band = bands("95 % interval", x, low, high, strong=True)
    return Series(name, name, scene.styles[name], x, y, notes, bands=band)


def _annotated(line: Series, focus: str | None) -> Series:
    """Write the values at the points of the best implementation."""
    labels = tuple(words.times(value) if value is not None else "" for value in line.y)
    return replace(line, labels=labels) if line.key == focus else line


def _with_headroom(values: Sequence[Value]) -> list[Value]:
    """Leave room above the highest point, for its value and the names of stretches."""
    known = [value for value in values if value] or [1.0]
    return [*known, max(known) * (max(known) / min(known)) ** HEADROOM]


def _ratio_words(ratio: SpeedUp) -> str:
    ends = f"{words.significant(ratio.low)}–{words.significant(ratio.high)}"
    return f"{words.times(ratio.value)} (95 %: {ends})"


def _speed_up_caption(
    baseline: str, sample: Sequence[tuple[int, SpeedUp]], focus: str | None
) -> str:
    basis = {ratio.basis for _, ratio in sample}
    told = {
        frozenset({"replicates"}): "bands are 95 % intervals over fresh processes",
        frozenset({"samples"}): "bands are 95 % intervals within one process",
    }.get(frozenset(basis), "bands are 95 % intervals")
    return (
        f"Time of {baseline} over time of each implementation, both from the same run; {told}. "
        "Above the dashed line is faster." + (f" Values are those of {focus}." if sample else "")
    )


def _crossing(own: Sequence[tuple[int, SpeedUp]]) -> Iterable[Strip]:
    for place in crossovers(own):
        ends = f"{words.binary(place.low)}–{words.binary(place.high)}"
        yield Strip("crossover", f"{place.becomes} from {ends}", place.low, place.high)


# Time, bandwidth, throughput ------------------------------------------------------------------


def metric_chart(scene: Scene, metric: Metric) -> Chart:
    """Draw a metric along the axis with percentile bands of all samples."""
    lines = [_metric_line(scene, name, metric) for name in scene.curves.names]
    series = tuple(line for line in lines if line is not None)
    limits = tuple(_limits(scene, metric))
    values = [*extent(series), *(y for line in limits for y in line.y)]
    spans = marked(scene)
    return Chart(
        key=metric.key,
        title=metric.title,
        caption=_metric_caption(scene, metric),
        x=scene.axis,
        y=log_axis(
            f"{metric.title.lower()} ({metric.unit})", _with_headroom(values) if spans else values
        ),
        series=series,
        marks=marks(scene),
        strips=strips(scene),
        lines=limits,
        spans=spans,
    )


def _metric_line(scene: Scene, name: str, metric: Metric) -> Series | None:
    passed = scene.curves.passed(name)
    if not passed or not (metric.key == "latency" or scene.curves.view.timed_on_device):
        return None
    sizes = scene.curves.axis_sizes

    def column(quantile: str) -> tuple[Value, ...]:
        times = (getattr(passed.get(size), quantile, None) for size in sizes)
        pairs = zip(sizes, times, strict=True)
        return tuple(metric.value(passed[s], t) if t is not None else None for s, t in pairs)

    y = column("median_ns")
    if not any(y):
        return None
    x = tuple(map(float, sizes))
    wide = bands("percentile band, 1 to 99", x, *_ordered(column("q01_ns"), column("q99_ns")))
    dark = bands(
        "percentile band, 25 to 75", x, *_ordered(column("q25_ns"), column("q75_ns")), True
    )
    notes = tuple(_metric_note(scene, name, size, metric) for size in sizes)
    hollow = frozenset(i for i, size in enumerate(sizes) if _suspect(scene, name, size))
    style = scene.styles[name]
    return Series(name, name, style, x, y, notes, bands=(*wide, *dark), hollow=hollow)


def _ordered(a: Sequence[Value], b: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Put the ends of bands the right way up: a short time is a high rate."""
    pairs = [
        (p, q) if p is None or q is None else (min(p, q), max(p, q))
        for p, q in zip(a, b, strict=True)
    ]
    return [low for low, _ in pairs], [high for _, high in pairs]


def _metric_note(scene: Scene, name: str, size: int, metric: Metric) -> str:
    point = scene.curves.passed(name).get(size)
    if point is None or point.median_ns is None:
        return ""
    ends = words.interval(point.ci_low_ns, point.ci_high_ns)
    time = f"{words.duration(point.median_ns)} (95 %: {ends})"
    value = metric.value(point, point.median_ns)
    if metric.key == "latency" or value is None:
        return scene.note(name, size, time)
    return scene.note(name, size, f"{words.significant(value)} {metric.unit}\n{time}")


def _suspect(scene: Scene, name: str, size: int) -> bool:
    point = scene.curves.passed(name).get(size)
    if point is None:
        return False
    return bool({"above-roof", "below-floor"} & {*all_flags(point, scene.roof(name, size))})


def _metric_caption(scene: Scene, metric: Metric) -> str:
    points = [p for name in scene.curves.names for p in scene.curves.passed(name).values()]
    fewest = min((point.samples for point in points), default=0)
    few = f" (with {fewest} samples at the fewest, the outer ends are nearly the extremes)"
    if metric.key != "latency" and not scene.curves.view.timed_on_device:
        return "The time to enqueue a call holds none of its work, so no rate follows from it."
    what = "Median time of one call" if metric.key == "latency" else f"By {metric.work}"
    return (
        f"{what}. {BANDS_ARE}{few if fewest < FEW_SAMPLES else ''}. Hollow points beat their roof."
    )


def _limits(scene: Scene, metric: Metric) -> Iterable[Line]:
    axis, ceilings = scene.axis, scene.ceilings
    if ceilings is None:
        return
    ends = (axis.low, axis.high)
    if metric.key == "latency" and (floor := _floor_ns(scene, ceilings)):
        text = f"empty kernel {words.duration(floor, 3)}"
        yield Line(text, ends, (floor / 1e3,) * 2, "dot", "end")
    if metric.key == "bandwidth" and ceilings.memory_bytes_per_s:
        text = f"memory {words.rate(ceilings.memory_bytes_per_s, 'B/s')}"
        yield Line(text, ends, (ceilings.memory_bytes_per_s / 1e9,) * 2, "solid", "start")
    pipe = _pipe(scene)
    if metric.key == "throughput" and pipe and (rate := pipe_flops_per_s(ceilings, pipe)):
        text = f"{pipe} {words.rate(rate, 'FLOP/s')}"
        yield Line(text, ends, (rate / 1e12,) * 2, "solid", "start")


def _floor_ns(scene: Scene, ceilings: Ceilings) -> float | None:
    floors = {
        "graph": ceilings.floor_graph_ns,
        "call": ceilings.floor_call_ns,
        "submit": ceilings.floor_submit_ns,
    }
    return floors[scene.curves.view.timer]


def _pipe(scene: Scene) -> str | None:
    points = (p for name in scene.curves.names for p in scene.curves.passed(name).values())
    return next((point.cost.pipe for point in points if point.cost), None)


# Shared -----------------------------------------------------------------------------------------


def marks(scene: Scene) -> tuple[Mark, ...]:
    """Return a mark for every case of the chosen run without a time."""
    made = []
    for name in scene.curves.names:
        style = scene.styles[name]
        for size, point in sorted(scene.curves.points[name].items()):
            if point.median_ns is None and size > 0:
                note = f"{name} at {words.binary(size)}: {status_words(point)}"
                made.append(Mark(name, name, style, float(size), point.status, note))
    return tuple(made)


def status_words(point: Point) -> str:
    """Say why a point has no time."""
    word = words.STATUS_WORDS.get(point.status, point.status)
    reason = (point.reason or "").replace(f"{point.status}: ", "", 1)
    return f"{word}: {reason}" if reason else word


def marked(scene: Scene) -> tuple[Strip, ...]:
    """Return the stretches of its axis that the op itself marks, as far as they were measured."""
    if not scene.curves.along_own_axis:
        return ()
    low, high = scene.axis.low, scene.axis.high
    marks = (one for one in scene.curves.op.marks or () if one.low < high and one.high > low)
    return tuple(Strip("range", one.name, float(one.low), float(one.high)) for one in marks)


def strips(scene: Scene) -> tuple[Strip, ...]:
    """Return what limits the fastest implementation along the axis; boundaries stay open."""
    regimes = [(size, _regime_at(scene, size)) for size in scene.curves.axis_sizes if size > 0]
    return tuple(
        Strip(
            one.regime,
            REGIME_WORDS[one.regime],
            one.first / STRIP_MARGIN,
            one.last * STRIP_MARGIN,
        )
        for one in stretches(regimes)
    )


def _regime_at(scene: Scene, size: int) -> str | None:
    times = {
        name: line[size].median_ns
        for name in scene.curves.names
        if size in (line := scene.curves.passed(name))
    }
    fastest = min(times, key=lambda name: times[name] or 0.0, default=None)
    roof = scene.roof(fastest, size) if fastest else None
    return roof.regime if roof else None
