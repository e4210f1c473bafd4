import itertools
import math
from pathlib import Path

import plotly.graph_objects as graph_objects
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import charts, format, palette
from dashboard.charts import Axis, Chart, Line, Mark, Series, Strip
from dashboard.environment import environment
from dashboard.plotly_json import plotly
from dashboard.svg import BOTTOM, HEIGHT, LANE_HEIGHT, LEFT, RIGHT, TOP, WIDTH, svg
from tests import drawings
from tests.drawings import STEP, moves

TEMPLATES = Path(__file__).parent.parent / "templates"
ENVIRONMENT = environment(TEMPLATES)
BLUE = palette.Style("#0072B2", "circle", "solid")
X = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
HIGH = (2.0, 3.0, 4.0, None, 6.0, 8.0, 9.0)
LOW = (1.0, 1.5, 2.0, None, 3.0, 4.0, 5.0)
HOSTILE = "<script>alert(1)</script> </script> | {{ 7*7 }} <b>bold</b>"


def series(**changes):
    middle = tuple(None if h is None else (h + low) / 2 for h, low in zip(HIGH, LOW, strict=True))
    given = {"name": "triton", "notes": tuple(f"x {x:g}" for x in X), "low": LOW, "high": HIGH}
    given["bands"] = charts.bands("q01 to q99", X, LOW, HIGH)
    return Series(key="triton", style=BLUE, x=X, y=middle, **(given | changes))


def chart(**changes):
    drawn = changes.pop("series", (series(),))
    axes = charts.size_axis("rows", X), charts.log_axis("time (µs)", charts.extent(drawn))
    return Chart("latency", "Latency", "What it shows", *axes, drawn, **changes)


def tree(made):
    return drawings.tree(svg(made, ENVIRONMENT))


def place(made, point):
    """Return where data belong in the drawing, by the documented frame alone."""
    bottom = HEIGHT - BOTTOM - LANE_HEIGHT * len({mark.key for mark in made.marks})
    across = math.log(point[0] / made.x.low, made.x.high / made.x.low)
    up = math.log(point[1] / made.y.low, made.y.high / made.y.low)
    return LEFT + across * (WIDTH - LEFT - RIGHT), bottom - up * (bottom - TOP)


def near(point):
    return pytest.approx(point, abs=STEP / 2 + 1e-9)


def test_svg_and_plotly_hold_the_same_points():
    made = chart()
    svg_points = moves(tree(made).find(".//path[@class='ka-points']").get("d"))
    trace = next(t for t in plotly(made)["data"] if t["mode"] == "lines+markers")
    kept = [(x, y) for x, y in zip(trace["x"], trace["y"], strict=True) if y is not None]
    assert len(svg_points) == len(kept) == 6
    for drawn, wanted in zip(svg_points, kept, strict=True):
        assert drawn == near(place(made, wanted))


def test_svg_and_plotly_hold_the_same_bands():
    made = chart()
    svg_bands = [moves(p.get("d")) for p in tree(made).findall(".//path[@class='ka-band']")]
    traces = [t for t in plotly(made)["data"] if t.get("fill") == "toself"]
    assert len(svg_bands) == len(traces) == 2
    for path, trace in zip(svg_bands, traces, strict=True):
        for drawn, wanted in zip(path, zip(trace["x"], trace["y"], strict=True), strict=True):
            assert drawn == near(place(made, wanted))


def test_band_never_crosses_a_missing_point():
    areas = charts.bands("q01 to q99", X, LOW, HIGH)
    assert [area.x for area in areas] == [(1.0, 2.0, 4.0), (16.0, 32.0, 64.0)]
    assert areas[0].high == (2.0, 3.0, 4.0) and areas[1].low == (3.0, 4.0, 5.0)


def test_line_breaks_at_missing_points_and_at_breaks():
    broken = series(breaks=frozenset({2}))
    assert broken.segments() == [[0, 1], [2], [4, 5, 6]]
    curve = tree(chart(series=(broken,))).find(".//path[@class='ka-curve']").get("d")
    assert curve.count("M") == 2
    trace = next(t for t in plotly(chart(series=(broken,)))["data"] if "error_y" in t)
    assert [y is None for y in trace["y"]] == [False, False, True, False, True, False, False, False]
    assert len(trace["error_y"]["array"]) == len(trace["y"]) == len(trace["text"])


def test_plotly_accepts_every_property_of_the_figure():
    mark = Mark("torch", "torch", BLUE, 64.0, "oom", "64: out of memory")
    strip = Strip("latency", "latency-bound", 1.0, 8.0)
    line = Line("memory 4.2 TB/s", (1.0, 64.0), (2.0, 9.0), "dash")
    made = plotly(chart(marks=(mark,), strips=(strip,), lines=(line,), rules=(strip,)))
    for shape in made["layout"]["shapes"]:
        shape.get("line", {}).pop("color", None)
    for trace in made["data"]:
        trace["line"] = {**trace.get("line", {}), "color": "black"}
        trace["marker"] = {**trace.get("marker", {}), "color": "black"}
    assert len(graph_objects.Figure(made).data) == len(made["data"])


def test_failure_is_a_mark_and_never_a_zero():
    made = chart(marks=(Mark("torch", "torch", BLUE, 64.0, "oom", "64: out of memory"),))
    lane = tree(made).find(".//g[@class='ka-lane']/text")
    assert lane.text == "×" and lane.find("title").text == "64: out of memory"
    trace = plotly(made)["data"][-1]
    assert trace["yaxis"] == "y2" and trace["marker"]["symbol"] == ["x-thin-open"]
    assert not any(0 in t["y"] for t in plotly(made)["data"][:-1])


def test_hostile_names_are_text_everywhere():
    hostile = series(name=HOSTILE, notes=tuple(HOSTILE for _ in X))
    made = chart(series=(hostile,), marks=(Mark("m", HOSTILE, BLUE, 4.0, "error", HOSTILE),))
    drawing = svg(made, ENVIRONMENT)
    assert "<script" not in drawing and "<b>" not in drawing
    for trace in plotly(made)["data"]:
        assert "<" not in trace["name"]
        assert "<" not in "".join(trace.get("text", []))
        plain = trace.get("hovertemplate", "").replace("<b>", "", 1).replace("</b>", "", 1)
        assert "<b>" not in plain and "<script" not in plain


def test_annotations_count_in_powers_of_ten_and_shapes_in_data_units():
    strip = Strip("latency", "latency", 1.0, 16.0)
    layout = plotly(chart(strips=(strip,)))["layout"]
    shape, label = layout["shapes"][0], layout["annotations"][0]
    low = charts.size_axis("rows", X).low
    assert (shape["x0"], shape["x1"]) == (1.0, 16.0)
    assert 10 ** label["x"] == pytest.approx((max(1.0, low) * 16.0) ** 0.5)


def test_hollow_points_keep_their_symbol_open():
    made = chart(series=(series(hollow=frozenset({1})),))
    trace = next(t for t in plotly(made)["data"] if t["mode"] == "lines+markers")
    assert trace["marker"]["symbol"][:2] == ["circle", "circle-open"]
    assert len(moves(tree(made).find(".//path[@class='ka-points ka-open']").get("d"))) == 1


def test_table_lists_points_and_failures():
    made = chart(marks=(Mark("torch", "torch", BLUE, 128.0, "oom", ""),))
    table = charts.table(made, format.significant, format.binary)
    assert table.heads == ("triton", "torch")
    assert table.rows[0] == ("1", ("1.50", ""))
    assert table.rows[3] == ("8", ("", ""))
    assert table.rows[-1] == ("128", ("", "oom"))


@pytest.mark.parametrize("values", [[3.0], [1.0, 1.01], [0.5, 700.0], [1e-3, 1e6], [None, 5.0]])
def test_log_axis_holds_its_values_and_has_few_ticks(values):
    axis = charts.log_axis("t", values)
    assert all(axis.low < value < axis.high for value in values if value)
    assert 2 <= len(axis.ticks) <= 12
    assert all(axis.low <= value <= axis.high for value, _ in axis.ticks)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=20))
def test_size_axis_holds_all_sizes(values):
    axis = charts.size_axis("rows", values)
    assert axis.low < min(values) and max(values) < axis.high
    assert 1 <= len(axis.ticks) <= 12


@given(st.floats(1e-9, 1e15), st.integers(1, 6))
def test_significant_keeps_the_digits_and_shows_no_exponent(value, digits):
    text = format.significant(value, digits)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=10.0 ** (1 - digits))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123456789012, "0.1235"), (123456789.5, "1.235e+08"), (1024, 1024), ("", "")],
)
def test_what_columns_are_sorted_by_is_short_and_keeps_whole_numbers(value, text):
    assert format.sortable(value) == text


def test_names_of_one_group_never_look_alike():
    names = {f"way-{i}": "triton" for i in range(7)}
    made = palette.styles([names])
    assert len({style.colour for style in made.values()}) == 7
    pairs = itertools.combinations(made.values(), 2)
    assert all(a.symbol != b.symbol for a, b in pairs)


def test_style_of_a_name_does_not_depend_on_the_order_of_groups():
    groups = [{"torch": "eager", "triton": "triton"}, {"liger": "library", "torch": "eager"}]
    assert palette.styles(groups) == palette.styles(list(reversed(groups)))


def test_linear_axis_labels_the_last_place():
    axis = charts.linear_axis("commit", [f"c{i}" for i in range(50)])
    assert axis.ticks[-1] == (49.0, "c49") and len(axis.ticks) <= 9
    assert isinstance(axis, Axis)
