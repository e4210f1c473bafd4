import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from collector.history.datasheets import CARDS
from collector.history.load import load_history
from collector.record import MarkInfo
from dashboard import figures, findings, format, pages, roofline, rows, svg, timeline, views
from dashboard.book import make_book
from dashboard.environment import environment
from dashboard.findings import focus
from dashboard.links import Links
from dashboard.op_page import op_files
from dashboard.regressions import commit_tables
from dashboard.theory import SPECIAL_AS
from tests import drawings, synthetic

TEMPLATES = environment(Path(__file__).parent.parent / "templates")


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    plan = synthetic.Plan(
        commits=4, replicates=2, timers=("graph", "call"), cards=(synthetic.H200, synthetic.CPU),
        versions={2: {"triton": "3.7.0"}, 3: {"triton": "3.7.0"}},
        effects={(3, "sinkhorn", "triton-packed"): 1.1},
    )  # fmt: skip
    synthetic.build(folder, plan)
    return load_history(folder)


@pytest.fixture(scope="module")
def book(history):
    return make_book(history, TEMPLATES, Links(), "assets/plotly.js", "")


@pytest.fixture(scope="module")
def scene(book):
    return book.scene(next(iter(book.views["sinkhorn"].values())))


def test_first_view_is_device_time_on_a_gpu_with_a_cold_cache(scene):
    view = scene.curves.view
    assert (view.device, view.timer, view.cache) == ("nvidia-h200", "graph", "cold")


def test_view_never_mixes_device_type_timer_cache_or_fixed_sizes(book):
    for found in book.views.values():
        for view, curves in found.items():
            keys = [key for line in curves.keys.values() for key in line.values()]
            assert {views.view_of(key, view.axis) for key in keys} == {view}
            points = [p for line in curves.points.values() for p in line.values()]
            assert {point.run_id for point in points} == {curves.run.run_id}


def test_view_prefers_a_clean_run_of_the_newest_commit(tmp_path):
    plan = synthetic.Plan(commits=3, replicates=1, sweep=2, dirty=frozenset({2}))
    synthetic.build(tmp_path, plan)
    history = load_history(tmp_path)
    curves = next(iter(views.curves_of(history, history.ops["sinkhorn"]).values()))
    assert curves.run.source.commit == plan.shas()[1]


@pytest.mark.parametrize("purpose, sizes", [("calibrate", 13), ("measure", 2)])
def test_view_keeps_its_curve_where_a_later_run_measures_again(tmp_path, purpose, sizes):
    plan = synthetic.Plan(commits=2, replicates=1, ops=("sinkhorn",))
    whole, again = (list(synthetic.run_records(plan, synthetic.H200, n)) for n in range(2))
    synthetic.write(tmp_path, whole)
    kept = [one for one in again if one.kind != "measurement" or _size_place(one) < sizes]
    kept[0] = kept[0].model_copy(update={"purpose": purpose})
    synthetic.write(tmp_path, kept)
    history = load_history(tmp_path)
    curves = next(iter(views.curves_of(history, history.ops["sinkhorn"]).values()))
    assert curves.run.run_id == whole[0].run_id
    assert curves.axis_sizes == tuple(4**place for place in range(13))


def _size_place(line):
    return line.case.workload.sizes["batch"].bit_length() // 2


def test_first_view_is_one_that_the_baseline_has_a_time_in(tmp_path):
    plan = synthetic.Plan(commits=1, replicates=1, ops=("sinkhorn",), failures=False)
    lines = list(synthetic.run_records(plan, synthetic.H200, 0))
    synthetic.write(tmp_path, [kept for one in lines if (kept := _without_baseline(one))])
    history = load_history(tmp_path)
    found = list(views.curves_of(history, history.ops["sinkhorn"]).values())
    cold = [one for one in found if (one.view.timer, one.view.cache) == ("graph", "cold")]
    assert [bool(one.passed("torch.compile")) for one in cold] == [True, False]
    assert len(cold[0].axis_sizes) < len(cold[1].axis_sizes)


def _without_baseline(line):
    """Leave a short curve to compare, and a long one beside it that has no baseline."""
    if line.kind != "measurement" or _size_place(line) < 3:
        return line
    if line.case.implementation == "torch.compile":
        return None
    case = line.case.model_copy(deep=True)
    case.workload.sizes["n_iter"] += 1
    return line.model_copy(update={"case": case})


@pytest.mark.parametrize("n, first", [(3, 4), (5, 5)])
def test_of_curves_of_one_length_the_one_that_moves_the_most_is_first(tmp_path, n, first):
    plan = synthetic.Plan(commits=1, replicates=1, sweep=3, ops=("sinkhorn",), failures=False)
    lines = list(synthetic.run_records(plan, synthetic.H200, 0))
    *before, end = lines
    beside = [_of_width(one, n) for one in before if one.kind == "measurement"]
    synthetic.write(tmp_path, [*before, *beside, end])
    history = load_history(tmp_path)
    view = next(iter(views.curves_of(history, history.ops["sinkhorn"])))
    assert dict(view.fixed)["n"] == first


def _of_width(line, n):
    case = line.case.model_copy(deep=True)
    case.workload.sizes["n"] = n
    moved = {"minimal_bytes": line.cost.minimal_bytes * n * n // 16} if line.cost else {}
    cost = line.cost and line.cost.model_copy(update=moved)
    return line.model_copy(update={"case": case, "cost": cost})


def test_speed_up_is_the_ratio_of_the_times_in_the_records(scene):
    chart = figures.speed_up_chart(scene, "torch.compile", "triton-packed")
    line = next(one for one in chart.series if one.key == "triton-packed")
    mine, theirs = (scene.curves.passed(n) for n in ("triton-packed", "torch.compile"))
    for x, y in zip(line.x, line.y, strict=True):
        if y is not None:
            assert y == pytest.approx(theirs[x].median_ns / mine[x].median_ns, rel=1e-9)
    assert sum(y is not None for y in line.y) == 13


def test_every_chart_shows_without_a_script_the_points_of_its_figure(book):
    files = dict(op_files(book, book.history.ops["sinkhorn"]))
    static = drawings.static_charts("kernels/sinkhorn.md", files)
    apart = {"bandwidth", "throughput", "theory"}
    assert set(static) == {"speedup", "latency", "roofline", "history", *apart}
    alone = {path.split("/")[-1].split(".")[0] for path in files if path.endswith(".svg")}
    assert alone == {f"sinkhorn-{key}" for key in apart}
    made = drawings.figures(files)
    made["theory"] = made[f"theory:{CARDS[0].slug}:{SPECIAL_AS[0]}"]
    far = {key: drawings.apart(drawing, made[key]) for key, drawing in static.items()}
    assert max(far.values()) < 2 * drawings.STEP, far


def test_case_without_a_time_is_a_mark_a_gap_and_a_word_in_the_table(scene):
    chart = figures.metric_chart(scene, figures.METRICS[0])
    places = {(mark.key, mark.x): mark.status for mark in chart.marks}
    assert places[("torch", 4.0**12)] == "oom"
    torch = next(one for one in chart.series if one.key == "torch")
    assert torch.y[torch.x.index(4.0**12)] is None
    assert all(mark.note for mark in chart.marks)


@pytest.mark.parametrize("metric", figures.METRICS, ids=lambda metric: metric.key)
def test_percentile_bands_enclose_the_median(scene, metric):
    for line in figures.metric_chart(scene, metric).series:
        at = dict(zip(line.x, line.y, strict=True))
        for band in line.bands:
            for x, low, high in zip(band.x, band.low, band.high, strict=True):
                assert low <= at[x] * (1 + 1e-9) and at[x] <= high * (1 + 1e-9)


def test_bandwidth_and_arithmetic_follow_from_the_cost_of_sinkhorn(scene):
    time_ns = scene.curves.passed("triton-packed")[4**10].median_ns
    values = [
        dict(zip(line.x, line.y, strict=True))[4.0**10]
        for metric in figures.METRICS[1:]
        for line in figures.metric_chart(scene, metric).series
        if line.key == "triton-packed"
    ]
    assert values == pytest.approx([128 * 4**10 / time_ns, 1472 * 4**10 / time_ns / 1e3])


def test_time_to_enqueue_gives_no_rates(tmp_path):
    plan = synthetic.Plan(commits=1, replicates=1, sweep=3, timers=("submit",), caches=("hot",))
    synthetic.build(tmp_path, plan)
    book = make_book(load_history(tmp_path), TEMPLATES, Links(), "assets/plotly.js", "")
    scene = book.scene(next(iter(book.views["sinkhorn"].values())))
    latency, bandwidth, throughput = (figures.metric_chart(scene, m) for m in figures.METRICS)
    assert not latency.empty
    assert bandwidth.empty and throughput.empty
    assert all(row.gb_per_s is None and row.tflop_per_s is None for row in rows.rows(scene))


def test_strips_leave_the_boundary_between_two_regimes_open(scene):
    strips = figures.strips(scene)
    assert [strip.kind for strip in strips] == ["latency", "special"]
    assert strips[0].end < strips[1].start


def test_lead_names_best_and_worst_speed_up_of_the_records(scene):
    text = findings.lead(scene)
    mine, theirs = (scene.curves.passed(n) for n in ("triton-packed", "torch.compile"))
    ratios = [theirs[size].median_ns / mine[size].median_ns for size in mine if size in theirs]
    assert "<strong>triton-packed</strong> is <strong>" in text
    assert "</strong> as fast as torch.compile up to batch = " in text
    assert f"{max(ratios):.0f}× at best" in text
    assert f"{min(ratios):.3f}× at worst" in text


def test_lead_escapes_what_the_records_say(scene):
    run = scene.curves.run
    device = run.device.model_copy(update={"name": "<b>card</b>"})
    curves = dataclasses.replace(scene.curves, run=dataclasses.replace(run, device=device))
    text = findings.lead(dataclasses.replace(scene, curves=curves))
    assert "&lt;b&gt;card" in text and "<b>" not in text


def test_marks_of_an_op_are_drawn_in_every_chart_along_its_axis(scene):
    marks = [
        MarkInfo(name="training", low=4096, high=16384),
        MarkInfo(name="far", low=4**20, high=4**21),
    ]
    op = scene.curves.op.model_copy(update={"marks": marks})
    marked = dataclasses.replace(scene, curves=dataclasses.replace(scene.curves, op=op))
    made = [figures.speed_up_chart(marked, "torch", None)]
    made += [figures.metric_chart(marked, metric) for metric in figures.METRICS]
    for chart in made:
        spans = [span for span in chart.spans if span.kind == "range"]
        assert [(s.label, s.start, s.end) for s in spans] == [("training", 4096.0, 16384.0)]
    assert figures.marked(scene) == ()  # records from before there were marks


def test_roofline_points_lie_at_the_intensity_of_the_op(scene):
    paths = roofline.op_paths(scene)
    chart = roofline.roofline_chart(paths, scene.ceilings, "batch")
    assert {round(x, 6) for line in chart.series for x in line.x} == {11.5}
    memory = next(line for line in chart.lines if line.label.startswith("memory"))
    slope = (memory.y[1] / memory.x[1], memory.y[0] / memory.x[0])
    assert slope == pytest.approx((4.2, 4.2), rel=0.01)
    assert all(chart.y.low <= y <= chart.y.high for line in chart.lines for y in line.y)


def test_roofline_has_the_special_roof_although_one_path_is_far_below_it(scene):
    names = ["torch", "triton-packed"]
    chart = roofline.roofline_chart(roofline.op_paths(scene, names), scene.ceilings, "batch")
    (line,) = [one for one in chart.lines if "special functions" in one.label]
    rate = (
        4e12 * (72 * 20 + 32) / (16 + 8 * 20) / 1e12
    )  # special rate, flops and special ops of n = 4
    assert line.y == pytest.approx((rate,) * 3, rel=0.01)


@pytest.mark.parametrize("op", ["sinkhorn", "rms_norm"])
def test_the_fastest_other_at_a_size_is_not_in_triton_and_no_other_is_faster(book, op):
    found = [one for c in book.views[op].values() if (one := findings.finding(book.scene(c)))]
    assert found
    for one in found:
        curves = one.scene.curves
        kinds = {info.name: info.kind for info in curves.op.implementations}
        for size, ratio in one.rivals:
            there = {n: p[size].median_ns for n in curves.names if size in (p := curves.passed(n))}
            others = {n: ns for n, ns in there.items() if kinds[n] != "triton"}
            assert others[ratio.against] == min(others.values())
            assert ratio.value == pytest.approx(others[ratio.against] / there[one.name])


@pytest.mark.parametrize("second, told", [
    ("sinkhorn", "no series became slower or faster"),
    ("rms_norm", "nothing was measured that"),
])  # fmt: skip
def test_home_says_what_the_last_commit_was_held_against(tmp_path, second, told):
    plan = synthetic.Plan(commits=2, ops=("sinkhorn",), timers=("graph",), failures=False)
    ends = [plan, dataclasses.replace(plan, ops=(second,))]
    for index, one in enumerate(ends):
        synthetic.write(tmp_path, list(synthetic.run_records(one, one.cards[0], index)))
    made = make_book(load_history(tmp_path), TEMPLATES, Links(), "assets/plotly.js", "")
    ((_, content),) = pages.home(made, commit_tables(made.history))
    assert told in content.decode()


@pytest.mark.parametrize("factor, others", [(1.0, False), (1e-3, True)])
def test_a_lead_names_the_fastest_others_where_they_are_not_the_baseline_alone(
    tmp_path, factor, others
):
    plan = {"commits": 1, "ops": ("sinkhorn",), "timers": ("graph",), "failures": False}
    synthetic.build(tmp_path, synthetic.Plan(**plan, effects={(0, "sinkhorn", "torch"): factor}))
    made = make_book(load_history(tmp_path), TEMPLATES, Links(), "assets/plotly.js", "")
    text = findings.lead(made.scene(next(iter(made.views["sinkhorn"].values()))))
    assert ("the fastest other at each size (torch)" in text) == others


@pytest.mark.parametrize("op", ["sinkhorn", "rms_norm"])
def test_no_limit_of_a_roofline_runs_through_the_name_of_another(book, op):
    scene = book.scene(next(iter(book.views[op].values())))
    names = [focus(scene.curves, "torch.compile"), "torch.compile"]
    chart = roofline.roofline_chart(roofline.op_paths(scene, names), scene.ceilings, "size")
    frame = svg.Frame(chart, 0)
    boxes = [box_of(*text) for text in svg._lines(chart.lines, frame)]
    assert len(boxes) >= 3
    for left, right, top, bottom in boxes:
        for line in chart.lines:
            for x, y in along(line, frame):
                assert not (left < x < right and top < y < bottom), line.label


def box_of(line, path, dash, anchor, x, y):
    """Return (left, right, top, bottom) of a label of 11 px, 5.5 px a letter on average."""
    rows = line.label.split("\n")
    width = 5.5 * max(map(len, rows))
    left = x - width * (anchor == "end")
    return left, left + width, y - 8, y + 12 * (len(rows) - 1)


def along(line, frame):
    ends = [(frame.at_x(x), frame.at_y(y)) for x, y in zip(line.x, line.y, strict=True)]
    for (x0, y0), (x1, y1) in itertools.pairwise(ends):
        for step in range(101):
            yield x0 + (x1 - x0) * step / 100, y0 + (y1 - y0) * step / 100


def test_history_breaks_where_the_toolchain_changes(scene):
    chart = timeline.history_chart(timeline.timeline(scene), 4**10)
    line = next(one for one in chart.series if one.key == "triton-packed")
    assert line.breaks == {2}
    assert line.segments() == [[0, 1], [2, 3]]
    assert [rule.label for rule in chart.rules] == ["triton 3.7.0"]
    assert line.y[0] == line.y[2] == 1.0
    assert line.y[3] == pytest.approx(1.1, rel=0.02)


def test_history_leaves_dirty_runs_and_missing_commits_out(tmp_path):
    plan = synthetic.Plan(commits=3, replicates=1, sweep=2, dirty=frozenset({1}))
    synthetic.build(tmp_path, plan)
    history = load_history(tmp_path)
    book = make_book(history, TEMPLATES, Links(), "assets/plotly.js", "")
    curves = next(iter(book.views["sinkhorn"].values()))
    shown = timeline.timeline(book.scene(curves)).commits
    assert [commit.sha for commit in shown] == [plan.shas()[0], plan.shas()[2]]


def test_default_size_of_the_history_is_one_that_most_can_do(scene):
    size = timeline.default_size(timeline.timeline(scene))
    assert size < 4**11
    assert all(size in scene.curves.passed(name) for name in scene.curves.names)


def test_default_size_of_the_history_is_the_one_with_the_most_commits(tmp_path):
    few = synthetic.Plan(commits=3, replicates=1, sweep=3, failures=False)
    more = dataclasses.replace(few, sweep=12)
    for index in range(3):
        lines = synthetic.run_records(more if index == 2 else few, synthetic.H200, index)
        synthetic.write(tmp_path, list(lines))
    history = load_history(tmp_path)
    book = make_book(history, TEMPLATES, Links(), "assets/plotly.js", "")
    times = timeline.timeline(book.scene(next(iter(book.views["sinkhorn"].values()))))
    assert timeline.default_size(times) == 4**2
    assert list(timeline.sizes_of(times)) == [4**k for k in range(12)]
    chart = timeline.history_chart(times, 4**2)
    assert all(None not in line.y for line in chart.series)


def test_command_of_a_row_names_the_case(scene):
    row = next(r for r in rows.rows(scene) if r.key.implementation == "triton-packed")
    words = "--op sinkhorn --implementation triton-packed --workload batch=1"
    assert words in row.command
    assert row.command.endswith("--dtype float32 --timer graph --cache cold")


def test_command_cannot_run_what_a_name_says(scene):
    key = next(iter(scene.curves.keys["triton-packed"].values()))
    hostile = key._replace(implementation="x; rm -rf /")
    assert "--implementation 'x; rm -rf /' --workload" in rows.command(hostile)


@pytest.mark.parametrize("folders", [True, False])
def test_links_are_relative_and_work_below_any_path(folders):
    links = Links(folders)
    assert not links.to("kernels/sinkhorn.md", "index.md").startswith("/")
    there = {True: "../../devices/cpu/#limits", False: "../devices/cpu.html#limits"}
    assert links.to("kernels/sinkhorn.md", "devices/cpu.md#limits") == there[folders]
    home = {True: "../", False: "index.html"}
    assert links.to("roofline.md", "index.md") == home[folders]


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [(None, "–"), (540.2, "540.2 ns"), (1234.5, "1.234 µs"), (2e6, "2.000 ms"), (3e9, "3.000 s")],
)
def test_duration_chooses_the_unit(value_ns, text):
    assert format.duration(value_ns) == text


def test_change_has_a_sign_and_no_colour():
    assert format.change(0.0953) == "+10.0 %"
    assert format.change(-0.0953) == "−9.1 %"
    assert format.change(-0.0001) == "±0.0 %"


@pytest.mark.parametrize("text", ["rms_norm", "A B", "../../etc", "Ünï", "a#b%20c", ""])
def test_slug_is_safe_in_paths_and_addresses(text):
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", format.slug(text))
