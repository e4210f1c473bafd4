"""Which roof binds each case, and how near it is: measured limits or peaks of datasheets. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from collector.history.counted import AllCounted, Counted
from collector.history.datasheets import CARDS, Card
from collector.history.model import Ceilings, Point, SeriesKey
from collector.history.rates import gb_per_s, intensity_flops_per_byte, tflop_per_s
from collector.history.roof import Roof, pipe_flops_per_s, roof
from collector.report import Selection, case_json, run_json, selected
from collector.runs import OneRun

NOTHING = Ceilings(None, None, None, None, None, None, {}, None, None, None)
PIPES = ("bf16", "fp16", "tf32", "int8")
MEASURED = "limits measured in the same run"
EXPLAINED = (
    "Least bytes, flops and intensity are logical: from the op's cost model. The roof is the limit "
    "that needs the longest time, its share that time over the median."
)
COUNTED = (
    "Measured traffic is the DRAM bytes of one call by hardware counters; measured intensity is "
    "logical flops over them, amplification they over the least bytes."
)


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the limits are taken from, in words, and the peaks that replace measured ones."""

    words: str = MEASURED
    card: Card | None = None
    memory_gb_per_s: float | None = None
    compute_tflop_per_s: float | None = None

    @property
    def measured(self) -> bool:
        """Tell whether no peak replaces what was measured."""
        return not (self.card or self.memory_gb_per_s or self.compute_tflop_per_s)

    def limits(self, measured: Ceilings) -> Ceilings:
        """Return the limits; floors and links are measured, since no datasheet here has them."""
        if self.measured:
            return measured
        peaks = self.card.roofs if self.card else NOTHING
        if self.memory_gb_per_s:
            peaks = replace(peaks, copy_bytes_per_s=self.memory_gb_per_s * 1e9)
        if self.compute_tflop_per_s:
            rate = self.compute_tflop_per_s * 1e12
            peaks = replace(
                peaks, fp32_flops_per_s=rate, gemm_flops_per_s=dict.fromkeys(PIPES, rate)
            )
        return replace(
            peaks,
            floor_graph_ns=measured.floor_graph_ns,
            floor_call_ns=measured.floor_call_ns,
            floor_submit_ns=measured.floor_submit_ns,
            link_bytes_per_s=measured.link_bytes_per_s,
            link_floor_ns=measured.link_floor_ns,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One case that has a time; what it lacks is None."""

    key: SeriesKey
    point: Point
    intensity_flops_per_byte: float | None
    gb_per_s: float | None
    tflop_per_s: float | None
    roof: Roof
    counted: Counted | None


def card_names() -> list[str]:
    """Return the cards whose datasheets are known."""
    return [slug(card) for card in CARDS]


def slug(card: Card) -> str:
    """Name a card on the command line, for example `h200-sxm`."""
    return card.name.lower().replace(" ", "-")


def peaks(
    card_name: str = "", gb_per_s: float | None = None, tflop_per_s: float | None = None
) -> Peaks:
    """Return the limits that the command line names; KeyError for an unknown card."""
    card = {slug(one): one for one in CARDS}[card_name] if card_name else None
    words = [f"peaks of the {card.name} ({card.source})"] if card else []
    words += [f"a peak of {gb_per_s:g} GB/s"] if gb_per_s else []
    words += [f"a peak of {tflop_per_s:g} TFLOP/s"] if tflop_per_s else []
    told = f"{', '.join(words)}: specifications, not measured; floors are measured"
    return Peaks(told if words else MEASURED, card, gb_per_s, tflop_per_s)


def rows(run: OneRun, selection: Selection, chosen: Peaks, counted: AllCounted) -> list[Row]:
    """Return a row for each selected series that has a time."""
    limits = chosen.limits(run.history.ceilings.get(run.info.run_id, NOTHING))
    l2_bytes = run.info.device.l2_bytes
    return [
        Row(
            key=key,
            point=point,
            intensity_flops_per_byte=intensity_flops_per_byte(point),
            gb_per_s=gb_per_s(point),
            tflop_per_s=tflop_per_s(point),
            roof=roof(key, point, limits, l2_bytes),
            counted=counted.of(key),
        )
        for key, point in selected(run, selection)
        if point.median_ns is not None and point.cost is not None
    ]


def limits_json(run: OneRun, chosen: Peaks) -> dict[str, Any]:
    """Return the limits for JSON, with what they are taken from."""
    found = chosen.limits(run.history.ceilings.get(run.info.run_id, NOTHING))
    pipes = {pipe: pipe_flops_per_s(found, pipe) for pipe in ("fp32", *PIPES)}
    return {
        "from": chosen.words,
        "measured": chosen.measured,
        "memory_gb_per_s": scaled(found.memory_bytes_per_s, 1e9),
        "l2_gb_per_s": scaled(found.l2_bytes_per_s, 1e9),
        "tflop_per_s": {pipe: scaled(rate, 1e12) for pipe, rate in pipes.items() if rate},
        "special_per_s": found.special_ops_per_s,
        "floor_ns": {
            "graph": found.floor_graph_ns,
            "call": found.floor_call_ns,
            "submit": found.floor_submit_ns,
        },
        "link_gb_per_s": {ranks: rate / 1e9 for ranks, rate in found.link_bytes_per_s.items()},
        "link_floor_ns": {timer: dict(floors) for timer, floors in found.link_floor_ns.items()},
    }


def scaled(value: float | None, unit: float) -> float | None:
    """Divide by a unit; None stays None."""
    return None if value is None else value / unit


def as_json(run: OneRun, chosen: Peaks, found: list[Row]) -> dict[str, Any]:
    """Return a run, its limits and its rows for JSON."""
    return {
        **run_json(run),
        "limits": limits_json(run, chosen),
        "cases": [row_json(one) for one in found],
    }


def row_json(one: Row) -> dict[str, Any]:
    """Return one row for JSON."""
    cost = one.point.cost
    assert cost is not None, "rows have a cost"
    return {
        "case": case_json(one.key),
        "record": one.point.location,
        "median_ns": one.point.median_ns,
        "minimal_bytes": cost.minimal_bytes,
        "flops": cost.flops,
        "special_ops": cost.special_ops,
        "pipe": cost.pipe,
        "intensity_flops_per_byte": one.intensity_flops_per_byte,
        "gb_per_s": one.gb_per_s,
        "tflop_per_s": one.tflop_per_s,
        "limits_ns": dict(one.roof.limits_ns),
        "roof": one.roof.regime,
        "roof_share": one.roof.fraction,
        "flags": [*one.point.flags, *one.roof.flags],
        "counted": counted_json(one.counted),
    }


def counted_json(found: Counted | None) -> dict[str, Any] | None:
    """Return what the counters say for JSON; None where the case was not counted."""
    if found is None:
        return None
    return {
        "record": found.location,
        "commit": found.run.source.commit,
        "profiler": f"ncu {found.run.versions.get('ncu', 'unknown')}",
        "dram_bytes": found.dram_bytes,
        "intensity_flops_per_byte": found.intensity_flops_per_byte,
        "amplification": found.amplification,
        "fp32_flops": found.fp32_flops,
        "kernels": [kernel.model_dump(mode="json") for kernel in found.record.kernels],
    }
