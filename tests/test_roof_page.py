"""The roofline of all ops: every op once, below every limit that was measured."""

import re

import pytest

from collector.history.load import load_history
from dashboard import roof_page
from dashboard.book import make_book
from dashboard.drawing import unpack
from dashboard.environment import environment
from dashboard.links import Links
from tests.visiting import ROOT


@pytest.fixture(scope="module")
def history():
    return load_history(ROOT / "data")


@pytest.fixture(scope="module")
def files(history):
    book = make_book(history, environment(ROOT / "templates"), Links(), "assets/plotly.js", "")
    return dict(roof_page.roofline(book))


def first(files):
    """Return what the page shows before a control is touched."""
    (content,) = [files[path] for path in files if "-h200-usual-graph-cold." in path]
    return unpack(content)


def timed(history, op):
    return [
        point for key, points in history.series.items() for point in points
        if key.op == op and point.median_ns is not None and point.cost
        and (key.timer, key.cache) == ("graph", "cold")
    ]  # fmt: skip


def compared(history):
    """Return the ops that have a time of the baseline and one of another implementation."""
    found = {}
    for key, points in history.series.items():
        if (key.timer, key.cache) == ("graph", "cold") and any(p.median_ns for p in points):
            found.setdefault(key.op, set()).add(key.implementation)
    return {op for op, names in found.items() if {history.ops[op].baseline} < names}


def test_every_op_has_one_path_or_without_arithmetic_a_row_in_the_table_alone(history, files):
    traces = [one["meta"] for one in first(files)["charts"]["roofline"]["figure"]["data"]
              if "meta" in one]  # fmt: skip
    counting = {op for op in history.ops if any(p.cost.flops for p in timed(history, op))}
    moving = {op for op in history.ops if timed(history, op)} - counting
    assert sorted(traces) == sorted(counting & compared(history)) and len(traces) > 10
    table = first(files)["slots"]["roofs"]
    assert moving and all(f'data-series="{op}"' in table for op in moving | set(traces))


def test_every_measured_precision_is_drawn_and_named_once(history, files):
    newest = max(history.runs.values(), key=lambda run: run.started_at)
    named = [one["name"] for one in first(files)["charts"]["roofline"]["figure"]["data"]]
    for pipe in ("fp32", *history.ceilings[newest.run_id].gemm_flops_per_s):
        assert sum(bool(re.search(rf"\b{pipe} ", name)) for name in named) == 1, pipe
    assert any(re.fullmatch(r"L2 [\d.]+ TB/s<br>memory [\d.]+ TB/s", name) for name in named)


def test_limits_that_coincide_are_drawn_once(files):
    short = [
        (tuple(one["x"]), tuple(one["y"]))
        for one in first(files)["charts"]["roofline"]["figure"]["data"]
        if one["name"] == "" and one["line"]["dash"] == "dot"
    ]  # fmt: skip
    assert len(short) > 1 and len(set(short)) == len(short)


def test_cases_to_take_along_are_the_points_that_are_drawn(files):
    shown = first(files)
    drawn = {
        one["meta"]: sorted(y for y in one["y"] if y is not None)
        for one in shown["charts"]["roofline"]["figure"]["data"] if "meta" in one
    }  # fmt: skip
    for name, heights in drawn.items():
        rates = [one["tflop_per_s"] for one in shown["cases"] if one["line"] == name]
        assert sorted(rates) == pytest.approx(heights, rel=1e-4), name
