"""Regions of a pipeline and the roofline of datasheets, from invented records of SIGReg."""

import dataclasses
import re
from pathlib import Path

import pytest

from collector.history import datasheets
from collector.history.load import load_history
from dashboard import build, op_page, pipeline, region_story, stack, theory
from dashboard.book import make_book
from dashboard.drawing import unpack
from dashboard.environment import environment
from dashboard.links import Links
from tests import sigreg_records, synthetic
from tests.sigreg_records import PIPELINE, REGIONS

TEMPLATES = environment(Path(__file__).parent.parent / "templates")
B200 = datasheets.CARDS[0]
BATCHES = (32, 256, 2048, 8192, 16384)


def made_book(folder):
    return make_book(load_history(folder), TEMPLATES, Links(), "assets/plotly.js", "")


def curves_of(book, op=PIPELINE):
    return next(iter(book.views[op].values()))


def column_at(book, name, size=32):
    found = pipeline.breakdowns(book.history, curves_of(book))
    row = next(one for one in found if one.size == size)
    return next(column for column in row.columns if column.name == name)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    sigreg_records.build(folder)
    return made_book(folder)


@pytest.fixture(scope="module")
def seed_book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seed")
    sigreg_records.build(folder, time=sigreg_records.seed_ns)
    return made_book(folder)


def test_shares_are_those_that_the_first_article_prints(seed_book):
    column = column_at(seed_book, "torch")
    shares = [100 * column.of_sum(part) for part in column.parts]
    assert [part.op for part in column.parts] == list(REGIONS)
    # The article adds unrounded times; its times are printed with four digits.
    assert shares == pytest.approx([43.28, 12.73, 14.92, 29.07], abs=0.03)
    assert column.rest_ns == pytest.approx(66_000, abs=20)
    assert column.of_whole(column.parts[0]) == pytest.approx(0.1382 / 0.3853, rel=1e-3)
    assert region_story.signed(column.rest_ns) == "+66.0 µs"


def test_regions_and_rest_add_up_to_the_end_to_end_of_the_records(book):
    for one in pipeline.breakdowns(book.history, curves_of(book)):
        for column in one.columns:
            if column.parts:
                parts = sum(part.point.median_ns for part in column.parts)
                assert parts + column.rest_ns == pytest.approx(column.whole.median_ns)


def test_implementation_without_regions_of_its_name_shares_nothing_out(book):
    fused = column_at(book, "triton-fused")
    assert (fused.parts, fused.sum_ns, fused.rest_ns) == ((), None, None)
    assert fused.whole_ns is not None
    assert all(len(column_at(book, n).parts) == 4 for n in ("torch", "triton", "triton-pdl"))


def test_region_that_does_not_depend_on_the_axis_stands_for_all_sizes_and_says_so(book):
    for size in (32, 2048, 16384):
        projection, _, trig, epilogue = column_at(book, "triton", size).parts
        assert (projection.at, trig.at) == ("", "")
        assert epilogue.point is not None
        assert epilogue.at == ("" if size == 32 else "batch = 32")


def test_along_another_size_regions_match_that_size_exactly(tmp_path):
    sigreg_records.build(tmp_path, ops=(PIPELINE,), tags=("default", "full"))
    sigreg_records.build(tmp_path, ops=REGIONS)
    book = made_book(tmp_path)
    curves = next(c for v, c in book.views[PIPELINE].items() if v.axis == "points")
    rows = {one.size: one for one in pipeline.breakdowns(book.history, curves)}
    have = {
        size: [part.point is not None for part in column.parts]
        for size, row in rows.items()
        for column in row.columns
        if column.name == "triton"
    }
    # Trig and epilogue were measured at 17 points alone; the others do not know of points.
    assert have == {
        9: [True, True, False, False], 17: [True, True, True, True], 33: [True, True, False, False]
    }  # fmt: skip


def test_region_along_the_axis_never_stands_for_another_size(tmp_path):
    def only_32(op, name, sizes):
        return 1000.0

    lines = sigreg_records.records(
        (*REGIONS, PIPELINE), only_32, synthetic.H200, 0, 0, ("default",)
    )
    kept = [
        line
        for line in lines
        if line.kind != "measurement"
        or line.case.op != "sigreg_trig"
        or line.case.workload.sizes["batch"] == 32
    ]
    synthetic.write(tmp_path, kept)
    column = column_at(made_book(tmp_path), "triton", 2048)
    assert [part.point is None for part in column.parts] == [False, False, True, False]
    assert column.sum_ns is None and column.parts[2].why == "not measured"


def test_regions_come_from_another_run_of_the_same_commit_and_from_no_other_commit(tmp_path):
    sigreg_records.build(tmp_path, ops=(PIPELINE,), seed=1)
    sigreg_records.build(tmp_path, ops=("sigreg_gemm", "sigreg_trig"), index=0)
    sigreg_records.build(tmp_path, ops=("sigreg_projection", "sigreg_epilogue"), index=1)
    column = column_at(made_book(tmp_path), "triton")
    assert [part.point is not None for part in column.parts] == [False, True, True, False]


def test_failed_region_is_told_and_leaves_no_sum_and_no_bar(tmp_path):
    def without_trig(op, name, sizes):
        return None if (op, name) == ("sigreg_trig", "torch") else 1000.0

    sigreg_records.build(tmp_path, time=without_trig)
    book = made_book(tmp_path)
    column = column_at(book, "torch")
    assert column.sum_ns is None and column.parts[2].why == "out of memory: asked for 32 GiB"
    (first, *_) = pipeline.breakdowns(book.history, curves_of(book))
    drawing = str(stack.stack_svg(first, TEMPLATES))
    bar = drawing.split(">torch<")[1].split("</g>")[0]
    assert "<rect" not in bar and "regions not all measured" in bar and "ka-end" in bar


def test_end_to_end_is_as_long_in_every_bar(book):
    for one in pipeline.breakdowns(book.history, curves_of(book)):
        ends = re.findall(r'ka-end" d="M([\d.]+)', str(stack.stack_svg(one, TEMPLATES)))
        assert len(ends) == len(one.columns) and len(set(ends)) == 1


def test_bars_are_as_long_as_their_times(seed_book):
    (first, *_) = pipeline.breakdowns(seed_book.history, curves_of(seed_book))
    bar = str(stack.stack_svg(first, TEMPLATES)).split(">torch<")[1].split("</g>")[0]
    boxes = [
        tuple(map(float, pair))
        for pair in re.findall(r'<rect [^>]*? x="([\d.]+)" [^>]*? width="([\d.]+)"', bar)
    ]
    unit = (float(re.search(r'ka-end" d="M([\d.]+)', bar)[1]) - stack.LEFT) / 0.3853
    assert len(boxes) == 4
    left = stack.LEFT
    for (x, width), region in zip(boxes, REGIONS, strict=True):
        assert x == pytest.approx(left, abs=0.3)
        assert width == pytest.approx(sigreg_records.SEED_MS[region] * unit, abs=0.3)
        left += width


def test_story_names_the_region_that_takes_the_most_and_what_each_gained(tmp_path):
    def time(op, name, sizes):
        least = 900.0 if name == "triton" else 1000.0
        return {"sigreg_trig": 3.0, PIPELINE: 5.0}.get(op, 1.0) * least

    sigreg_records.build(tmp_path, time=time)
    book = made_book(tmp_path)
    (first, *_) = pipeline.breakdowns(book.history, curves_of(book))
    told = dict(region_story.story(first, "torch.compile"))
    assert told["triton"].startswith(
        "1.11× as fast as torch.compile end to end, −500 ns; by region: sigreg_trig −300 ns, "
    )
    assert ". sigreg_trig binds, 50 % of the sum, " in told["triton"]
    assert "by region" not in told["triton-fused"] and "binds" not in told["triton-fused"]
    assert told["torch.compile"].startswith("sigreg_trig binds")
    gist = region_story.gist(first, "torch.compile")
    assert gist.startswith("triton takes 4.50 µs, 1.11× as fast as torch.compile; sigreg_trig")


def test_table_of_steps_holds_the_ratio_to_the_baseline_and_to_the_step_before(tmp_path):
    speeds = {"torch": 8.0, "torch.compile": 4.0, "triton": 2.0, "triton-fused": 1.0}

    def time(op, name, sizes):
        return 1000.0 * speeds.get(name, 1.0)

    sigreg_records.build(tmp_path, time=time)
    files = build.render(load_history(tmp_path), TEMPLATES)
    section = files["kernels/sigreg.md"].decode().split('id="regions"')[1].split('id="time"')[0]
    table = section.split("<tbody>")[1].split("</tbody>")[0]
    ratios = {
        re.search(r'<th scope="row">(.*?)</th>', row)[1]: re.findall(r">([\d.]+)×<", row)
        for row in table.split("<tr>")[1:]
    }
    assert ratios["torch"] == ["0.500"]
    assert ratios["triton"] == ["2.00", "2.00"] and ratios["triton-fused"] == ["4.00", "2.00"]
    assert table.count("▸") == len(ratios) - table.count("no separate regions")


def test_pages_lead_from_the_pipeline_to_its_regions_and_back(tmp_path):
    sigreg_records.build(tmp_path, ops=(PIPELINE, "sigreg_trig"))
    files = build.render(load_history(tmp_path), TEMPLATES)
    page = files["kernels/sigreg.md"].decode()
    for region in REGIONS:
        slug = region.replace("_", "-")
        assert f'href="../{slug}/"' in page
        up = files[f"kernels/{slug}.md"].decode()  # measured or not
        assert '<a href="../sigreg/#regions">SIGReg</a>' in up
    assert "no separate regions" in page and "#regions" not in page.split("data-slot")[0]
    assert '<a href="#regions">Regions</a>' in page


def test_page_of_a_pipeline_on_a_cpu_shows_unmeasured_regions_as_such(tmp_path):
    sigreg_records.build(tmp_path, ops=(PIPELINE,), card=synthetic.CPU, tags=("cpu",))
    page = build.render(load_history(tmp_path), TEMPLATES)["kernels/sigreg.md"].decode()
    section = page.split('id="regions"')[1].split('id="time"')[0]
    assert section.count("not measured") >= 4 and "regions not all measured" in section
    assert "<rect class=" not in section


def test_record_files_of_regions_are_published_with_those_of_the_pipeline(tmp_path):
    sigreg_records.build(tmp_path, ops=(PIPELINE,), seed=1)
    sigreg_records.build(tmp_path, ops=REGIONS)
    book = made_book(tmp_path)
    linked = set(
        re.findall(r"data/(runs/[^\"#]+\.jsonl)", str(build.render(book.history, TEMPLATES)))
    )
    assert linked <= {f"{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*.jsonl")}
    curves = [curves_of(book)]
    assert len(pipeline.region_files(book.history, curves)) == 1


# What datasheets allow ---------------------------------------------------------------------------


def works(book, op, special=0):
    paths = theory.theory_paths(book.scene(curves_of(book, op)), special)
    return {path.name: {work.at: work for work in path.works} for path in paths}


def theory_chart(book, special):
    scene = book.scene(curves_of(book))
    return theory.theory_chart(
        theory.theory_paths(scene, special), scene.curves.axis, B200, special
    )


def test_operations_and_bytes_of_the_records_are_those_of_the_first_article(book):
    epilogue = works(book, PIPELINE)["sigreg_epilogue"]["batch 32"]
    trig = works(book, "sigreg_trig")["minimal bytes"]["batch 32"]
    assert (epilogue.moved_bytes, epilogue.operations) == (73_864, 106_496)
    assert (trig.moved_bytes, trig.operations) == (204_868, 1_705_984)
    assert works(book, PIPELINE)["sigreg_trig"]["batch 32"] == trig


def test_whole_op_by_the_traffic_of_torch_is_the_formula_of_the_first_article(book):
    found = works(book, PIPELINE)["traffic of torch"]
    assert len(found) == len(BATCHES)
    for b, work in zip(BATCHES, found.values(), strict=True):
        d, s, p, q = 2048, 1024, 17, 2
        assert work.operations == s * (d * (2 * b + 3) + p * (3 * b + 8) + 3) + 1
        moved = (d * (b + 4 * s) + (3 * p + 1) * (2 * s * (b + 1) + 1)) * q
        assert work.moved_bytes - moved == 20  # key and loss
    assert works(book, PIPELINE)["traffic of torch"]["batch 32"].intensity == pytest.approx(
        5.9, abs=0.05
    )


def test_other_batches_and_dimensions_are_points_of_their_own(tmp_path):
    sigreg_records.build(tmp_path, ops=(PIPELINE,), tags=("default", "full"))
    book = made_book(tmp_path)
    found = works(book, PIPELINE)["traffic of torch, other sizes"]
    work = found["batch 8Ki, dim 1Ki, slices 1Ki, points 17"]
    b, d, s, p = 8192, 1024, 1024, 17
    assert work.operations == s * (d * (2 * b + 3) + p * (3 * b + 8) + 3) + 1
    assert len(found) == 8  # a dimension at two batches, two more, two slices, two points
    chart = theory_chart(book, 0)
    (line,) = (one for one in chart.series if one.key == "traffic of torch, other sizes")
    assert len(line.segments()) == len(line.x) == 8


def test_special_functions_count_as_nothing_or_as_twenty_operations(book):
    none, twenty = (works(book, "sigreg_trig", count)["minimal bytes"] for count in (0, 20))
    for batch, at in zip(BATCHES, none, strict=True):
        more = twenty[at].operations - none[at].operations
        assert more == 20 * 2 * batch * 1024  # a sine and a cosine of each element
        assert twenty[at].moved_bytes == none[at].moved_bytes


def test_points_lie_on_the_lower_of_memory_and_pipe(book):
    chart = theory_chart(book, 0)
    for line in chart.series:
        peak = 80 if line.key in ("sigreg_projection", "sigreg_trig", "sigreg_epilogue") else 2250
        for x, y in zip(line.x, line.y, strict=True):
            assert y == pytest.approx(min(peak, 8.0 * x))


def test_theoretical_roofline_takes_nothing_from_a_measurement(tmp_path):
    charts = []
    for place, card in enumerate(
        (synthetic.H200, dataclasses.replace(synthetic.H200, bytes_per_s=1e12))
    ):
        folder = tmp_path / str(place)
        sigreg_records.build(folder, card=card, time=lambda op, name, sizes, k=place: 1e4 * (k + 1))
        book = made_book(folder)
        charts.append(theory_chart(book, 20))
    assert charts[0] == charts[1]
    assert charts[0].caption.startswith("Datasheet, not measured: B200, 8.00 TB/s")


def test_only_ops_with_special_functions_have_a_theoretical_roofline(book):
    files = build.render(book.history, TEMPLATES)
    have = {op for op in (PIPELINE, *REGIONS)
            if 'id="theory"' in files[f"kernels/{op.replace('_', '-')}.md"].decode()}  # fmt: skip
    assert have == {PIPELINE, "sigreg_projection", "sigreg_trig"}


def test_work_of_a_view_is_counted_once_however_many_cards_there_are(book, monkeypatch):
    counted = []
    count = op_page.theory_paths
    monkeypatch.setattr(
        op_page,
        "theory_paths",
        lambda scene, k: counted.append((scene.curves.view, k)) or count(scene, k),
    )
    files = dict(op_page.op_files(book, book.history.ops[PIPELINE]))
    assert any("sigreg-theory" in name for name in files)
    assert sorted(counted) == [(view, k) for view in sorted(book.views[PIPELINE]) for k in (0, 20)]


def test_every_card_and_both_ways_of_counting_can_be_chosen(book):
    files = build.render(book.history, TEMPLATES)
    (path,) = [name for name in files if name.startswith("assets/data/sigreg-theory.")]
    charts = unpack(files[path])["charts"]
    page = files["kernels/sigreg.md"].decode()
    cards = re.findall(
        r'<option value="([^"]*)"', page.split('name="card"')[1].split("</select>")[0]
    )
    counts = re.findall(r'name="sf" form="controls" value="([^"]*)"', page)
    assert cards == [card.slug for card in datasheets.CARDS] and counts == ["0", "20"]
    assert set(charts) == {f"theory:{card}:{count}" for card in cards for count in counts}
    for card in datasheets.CARDS:
        assert card.source in charts[f"theory:{card.slug}:20"]["html"]


def test_datasheet_rates_are_of_one_kind():
    ridge = B200.gemm_flops_per_s["bf16"] / B200.memory_bytes_per_s
    assert ridge == pytest.approx(281.25)
    for card in datasheets.CARDS:
        gemm = card.gemm_flops_per_s
        # Dense rates double from tf32 to 16 bits and again to 8; those with sparsity would not fit.
        assert gemm["bf16"] / gemm["tf32"] == pytest.approx(2, rel=0.05)
        assert gemm["int8"] / gemm["bf16"] == pytest.approx(
            4 if "RTX" in card.name else 2, rel=0.01
        )
        assert card.source
