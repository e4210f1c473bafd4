"""Curves along other sizes, and what the page of an op shows beside times: from records alone."""

import dataclasses
import gzip
import json
import re
from pathlib import Path
from urllib.parse import parse_qs, unquote

import pytest

from collector.history.load import load_history
from collector.run_head import catalogue
from dashboard import build, figures, op_limits, roofline, rows, sweeps
from dashboard.book import make_book
from dashboard.drawing import unpack
from dashboard.environment import environment
from dashboard.links import Links
from kernels.registry import load_op
from tests import synthetic

TEMPLATES = environment(Path(__file__).parent.parent / "templates")
HOSTILE = '<script>alert(1)</script> | {{ 7*7 }} "q" <b>bold</b>'
RESIDUAL = "row_residual_max"
PLAN = synthetic.Plan(
    commits=2, replicates=1, timers=("graph",), caches=("cold",), ops=("sinkhorn",), samples=8,
    modes=("forward", "backward"), swept=True, quality=(RESIDUAL, HOSTILE),
)  # fmt: skip
N_ITER, N = "batch=1048576,n=4", "batch=65536,n_iter=20"


def made_book(folder):
    return make_book(load_history(folder), TEMPLATES, Links(), "assets/plotly.js", "")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    synthetic.build(folder, PLAN)
    return folder


@pytest.fixture(scope="module")
def book(data):
    return made_book(data)


@pytest.fixture(scope="module")
def files(data):
    return build.render(load_history(data), TEMPLATES)


@pytest.fixture(scope="module")
def text(files):
    return files["kernels/sinkhorn.md"].decode()


def curves_at(book, config, mode="forward"):
    views = book.views["sinkhorn"]
    return next(c for v, c in views.items() if (v.config, v.mode) == (config, mode))


def test_sizes_that_vary_alone_make_a_view_of_their_own(book):
    sizes = {
        (view.mode, view.axis, view.config): curves.axis_sizes
        for view, curves in book.views["sinkhorn"].items()
        if not curves.along_own_axis
    }
    wanted = {("n_iter", N_ITER): (1, 5, 10, 20, 50), ("n", N): (2, 4, 8, 16, 32)}
    assert sizes == {(mode, *key): row for key, row in wanted.items() for mode in PLAN.modes}


def test_size_that_a_sweep_shows_is_no_view_of_one_point(book):
    own = {v.config for v, c in book.views["sinkhorn"].items() if c.along_own_axis}
    assert own == {"n=4,n_iter=20", "n=4,n_iter=1"}  # the second was measured at two batch sizes
    assert next(iter(book.views["sinkhorn"])).config == "n=4,n_iter=20"


def test_two_sizes_make_no_curve(tmp_path):
    synthetic.build(tmp_path, dataclasses.replace(PLAN, ops=("rms_norm",)))
    views = made_book(tmp_path).views["rms_norm"]
    assert views and all(curves.along_own_axis for curves in views.values())


def test_sweep_comes_from_a_run_that_holds_it_and_not_from_the_newest(tmp_path):
    for index, swept in enumerate((True, False)):
        plan = dataclasses.replace(PLAN, swept=swept)
        synthetic.write(tmp_path, list(synthetic.run_records(plan, synthetic.H200, index)))
    book = made_book(tmp_path)
    commits = [curves_at(book, c).run.source.commit for c in (N_ITER, "n=4,n_iter=20")]
    assert commits == PLAN.shas()


def test_chart_along_another_size_shows_the_times_of_the_records(book):
    curves = curves_at(book, N_ITER)
    chart = sweeps.sweep_chart(book.scene(curves), 0)
    line = next(one for one in chart.series if one.key == "triton-packed")
    points = {
        key.size("n_iter"): points[-1].median_ns / 1e3
        for key, points in book.history.series.items()
        if (key.implementation, key.mode) == ("triton-packed", "forward")
        and (key.size("batch"), key.size("n")) == (4**10, 4)
    }
    assert dict(zip(line.x, line.y, strict=True)) == pytest.approx(points)
    assert [label for _, label in chart.x.ticks] == ["1", "5", "10", "20", "50"]
    assert chart.caption.startswith("Along n_iter at batch = 1Mi, n = 4, measured 2026-01-06")


def test_marks_of_the_axis_are_not_drawn_along_another_size(book):
    curves = curves_at(book, N_ITER)
    op = curves.op.model_copy(update={"marks": [{"name": "few", "low": 1, "high": 4}]})
    assert figures.marked(book.scene(dataclasses.replace(curves, op=op))) == ()


def test_page_has_a_static_chart_for_each_sweep_and_a_link_to_all_charts_along_it(text, files):
    index = json.loads(re.search(r"data-views>(.*?)</script>", text, re.S)[1])
    section = text.split('data-slot="sweeps"')[1].split('id="roofline"')[0]
    assert section.count("<svg") == 2
    links = [unquote(link) for link in re.findall(r'href="\?([^"]*)"', section)]
    assert [parse_qs(link) for link in links] == [{"c": [N]}, {"c": [N_ITER]}]
    usual = index["default"].split("|")
    for link in links:
        chosen = [
            parse_qs(link).get(f, [u])[0] for f, u in zip(index["fields"], usual, strict=True)
        ]
        (main, *_) = index["views"]["|".join(chosen)]
        assert f"assets/data/{main}.js" in files


def test_script_gets_every_figure_of_a_slot_with_its_drawing_once(files):
    for path, content in files.items():
        if path.startswith("assets/data/sinkhorn") and "-a." in path:
            shard = unpack(content)
            shells = re.findall(r'data-chart="([^"]+)"></figure>', shard["slots"]["sweeps"])
            assert set(shells) == {key for key in shard["charts"] if key.startswith("sweep")}
            assert "<svg" not in shard["slots"]["sweeps"]


def test_download_holds_each_series_once_although_two_views_show_it(files):
    cases = json.loads(files["data/sinkhorn.json"])["cases"]
    keys = [
        (c["implementation"], c["mode"], *sorted(c["sizes"].items()), c["timer"]) for c in cases
    ]
    assert len(keys) == len(set(keys)) == 5 * 2 * (13 + 4 + 4 + 1)


def test_history_can_be_shown_at_sizes_of_both_axes(text):
    options = dict(re.findall(r'<option value="([^"]*)"[^>]*>([^<]*)', text))
    assert options["4096"] == "batch = 4Ki" and options["n_iter=50"] == "n_iter = 50"


# Columns ----------------------------------------------------------------------------------------


def test_units_a_second_are_those_of_the_axis_whatever_the_curve_runs_along(book):
    for config in ("n=4,n_iter=20", N_ITER):
        for row in rows.rows(book.scene(curves_at(book, config))):
            if row.point.median_ns:
                rate = row.key.size("batch") / (row.point.median_ns * 1e-9)
                assert row.units_per_s == pytest.approx(rate)


def test_rate_is_named_after_what_the_axis_counts(tmp_path, monkeypatch):
    assert catalogue(load_op("sinkhorn")).unit == "matrices"
    assert catalogue(load_op("rms_norm")).unit is None
    named = synthetic.OPS["sinkhorn"].model_copy(update={"unit": "matrices"})
    monkeypatch.setitem(synthetic.OPS, "sinkhorn", named)
    synthetic.build(tmp_path, dataclasses.replace(PLAN, swept=False, sweep=2))
    files = build.render(load_history(tmp_path), TEMPLATES)
    heads = table(files["kernels/sinkhorn.md"].decode())[0]
    assert "matrices/s" in heads and "batch/s" not in heads


def test_launches_are_counted_else_modelled_else_absent(book):
    found = rows.rows(book.scene(curves_at(book, N_ITER)))
    told = {r.key.implementation: (r.launches, r.modelled) for r in found}
    assert told["torch"] == (83, False) and told["triton-packed"] == (1, False)
    assert told["triton-registers"] == (2, True)
    backward = rows.rows(book.scene(curves_at(book, N_ITER, "backward")))
    assert {r.launches for r in backward if r.key.implementation == "triton-registers"} == {None}


def table(text):
    shown = text.split('data-slot="table"')[1].split("</table>")[0]
    heads = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", shown)
    body = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in shown.split("<tr")[2:]]
    assert {len(row) for row in body} == {len(heads)}
    return [dict(zip(heads, row, strict=True)) for row in body]


def test_table_shows_what_the_records_hold(text):
    found = {(row["implementation"], row["batch"]): row for row in table(text)}
    row = found["triton-registers", "1Mi"]
    assert re.fullmatch(r"2 <span[^>]*>modelled</span>", row["launches a call"])
    assert found["torch", "1Mi"]["launches a call"] == "83"
    assert row["row residual max"] == "6.4e-4"  # 0.8 * 0.7^20
    assert row["peak memory"] == "128 MiB"
    assert "22.0× minimal" in found["torch", "1Mi"]["traffic, modelled"]
    assert re.fullmatch(r"[\d.]+ [kMG]", row["batch/s"])


def test_quality_is_explained_as_no_gate_and_a_hostile_name_stays_text(files, text):
    note = text.split('data-slot="columns"')[1].split("</div>")[0]
    assert "row residual max" in note and "No case passes or fails by it" in note
    for path, content in files.items():
        packed = path.startswith("assets/data/")
        # Cases are handed out as files and never become a part of the page.
        shown = {k: v for k, v in unpack(content).items() if k != "cases"} if packed else {}
        written = json.dumps(shown) if packed else content.decode(errors="replace")
        assert "<script>alert" not in written and "<b>bold" not in written, path
    assert "alert(1)" in text


def test_columns_that_nothing_fills_are_left_out(tmp_path):
    synthetic.build(tmp_path, dataclasses.replace(PLAN, swept=False, quality=(), sweep=3))
    text = build.render(load_history(tmp_path), TEMPLATES)["kernels/sinkhorn.md"].decode()
    heads = set(table(text)[0])
    assert "batch/s" in heads and "GB/s" in heads
    assert not heads & {"launches a call", "traffic, modelled", "row residual max"}
    assert "Launches are" not in text and "passes or fails" not in text


def test_page_with_sweeps_stays_within_its_share_of_the_first_load(text):
    assert len(gzip.compress(text.encode())) < 60_000


# Annotated values, percentile bands ---------------------------------------------------------------


def test_speed_up_is_written_at_the_points_of_the_best_alone(book):
    scene = book.scene(curves_at(book, "n=4,n_iter=20"))
    chart = figures.speed_up_chart(scene, "torch.compile", "triton-packed")
    (line,) = [line for line in chart.series if line.labels]
    assert line.key == "triton-packed" and "Values are those of triton-packed" in chart.caption
    written = [float(label.removesuffix("×")) for label in line.labels]
    assert written == pytest.approx(list(line.y), rel=0.006)
    assert chart.y.high > 1.3 * max(line.y)  # room for the text


def test_bands_of_samples_are_called_percentile_bands(book):
    scene = book.scene(curves_at(book, "n=4,n_iter=20"))
    for metric in figures.METRICS:
        chart = figures.metric_chart(scene, metric)
        assert {b.label for line in chart.series for b in line.bands} == {
            "percentile band, 1 to 99", "percentile band, 25 to 75",
        }  # fmt: skip
        assert "not confidence intervals" in chart.caption


# Limits of an op ----------------------------------------------------------------------------------

FULL_RATE = dataclasses.replace(synthetic.H200, flops_per_s=6.4e13)
HALF_RATE = dataclasses.replace(synthetic.H200, flops_per_s=3.2e13)


def scene_on(folder, card, config="n=4,n_iter=20"):
    synthetic.build(folder, dataclasses.replace(PLAN, cards=(card,), commits=1))
    book = made_book(folder)
    return book.scene(curves_at(book, config))


def chart_of(scene, names=("torch.compile", "triton-packed")):
    return roofline.roofline_chart(roofline.op_paths(scene, names), scene.ceilings, "batch")


def test_instruction_issue_counts_two_flops_or_one_special_function(tmp_path):
    scene = scene_on(tmp_path, FULL_RATE)
    chart = chart_of(scene)
    # Sinkhorn, n = 4, 20 iterations: 1472 flops and 176 special functions a matrix.
    limit = 1472 / (1472 / 2 + 176) * 3.2e13 / 1e12
    unfused = 1472 / (1472 + 176) * 3.2e13 / 1e12
    dotted = [line for line in chart.lines if line.dash == "dot"]
    assert [line.y[0] for line in dotted] == pytest.approx([limit, 1472 / 176 * 4], rel=0.01)
    assert f"with none it lies at {unfused:.1f} TFLOP/s" in chart.caption
    assert [line.label.count("\n") for line in dotted] == [0, 1]


def test_issue_is_not_drawn_where_the_sentinel_ends_at_fewer_units(tmp_path):
    chart = chart_of(scene_on(tmp_path, HALF_RATE))
    assert not [line for line in chart.lines if "issue" in line.label]
    assert "issue" not in chart.caption


def test_issue_is_not_drawn_where_it_would_only_repeat_the_pipe(tmp_path):
    synthetic.build(tmp_path, dataclasses.replace(PLAN, cards=(FULL_RATE,), ops=("rms_norm",)))
    book = made_book(tmp_path)
    chart = chart_of(book.scene(next(iter(book.views["rms_norm"].values()))), ["triton"])
    assert not [line for line in chart.lines if "issue" in line.label]


def test_issue_needs_a_clock():
    device = synthetic.device(synthetic.H200, "a").model_copy(update={"sm_clock_max_mhz": None})
    assert op_limits.issue_per_s(None, device) is None


def test_limits_of_an_op_follow_its_intensity_along_another_size(tmp_path):
    scene = scene_on(tmp_path, FULL_RATE, N_ITER)
    special = next(li for li in op_limits.op_limits(grouped(scene)) if li.name[0] == "s")
    steps = (1, 5, 10, 20, 50)
    flops = [72 * k + 32 for k in steps]
    assert special.x == pytest.approx([f / 128 for f in flops])
    rates = [4 * f / (16 + 8 * k) for f, k in zip(flops, steps, strict=True)]
    assert special.tflop_per_s == pytest.approx(rates, rel=0.01)


def grouped(scene):
    (path,) = roofline.op_paths(scene, ["triton-packed"])
    return {"sinkhorn": [(scene, place) for place in path.points()]}
