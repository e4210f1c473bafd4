"""Modelled and counted traffic of an op, and the table of two sizes beside its axis."""

import dataclasses
import re

import pytest

from collector.history.counted import read_counted
from collector.history.load import load_history
from dashboard import heat, op_page, traffic
from dashboard.book import make_book
from dashboard.environment import environment
from dashboard.links import Links
from dashboard.views import curves_of
from tests import synthetic
from tests.visiting import ROOT


@pytest.fixture(scope="module")
def book():
    data = ROOT / "data"
    templates = environment(ROOT / "templates")
    made = make_book(load_history(data), templates, Links(), "assets/plotly.js", "")
    return dataclasses.replace(made, counted=read_counted(data))


def page(book, op):
    path = op_page.op_path(op)
    return dict(op_page.op_files(book, book.history.ops[op]))[path].decode()


def test_every_counted_case_stands_beside_its_model_with_the_time_of_the_same_work(book):
    ops = {one.record.case.op for one in book.counted.newest.values()}
    assert len(ops) > 10
    for op in ops:
        for one in traffic.traffic(book, op):
            assert one.key is not None and one.point is not None, op
            case = one.counted.record.case
            assert dict(one.key.sizes) == case.workload.sizes
            assert (one.key.implementation, one.key.dtype) == (
                case.implementation, case.workload.dtype,
            )  # fmt: skip
            assert one.read_bytes + one.written_bytes == one.counted.dram_bytes
            if one.gb_per_s:
                assert one.gb_per_s == one.counted.dram_bytes / one.point.median_ns


def test_page_shows_counted_beside_least_for_each_case(book):
    section = page(book, "rms_norm").split('id="traffic"')[1].split("</table>")[0]
    rows = section.split("<tbody>")[1].split("<tr>")[1:]
    assert len(rows) == len(traffic.traffic(book, "rms_norm")) > 1
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", rows[0])]
    assert cells[2] == "512 MiB" and cells[6].endswith("×")
    assert 0.95 < float(cells[6].rstrip("×")) < 1.1
    small = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", rows[-1])]
    assert (small[6], small[8]) == ("–", "–")


def test_page_without_counters_has_no_such_section(book):
    bare = dataclasses.replace(book, counted=read_counted(ROOT / "tests"))
    assert 'id="traffic"' not in page(bare, "qk_dot")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    plan = synthetic.Plan(
        commits=1, replicates=1, timers=("graph",), caches=("cold",), ops=("sinkhorn",), swept=True,
    )  # fmt: skip
    synthetic.build(data, plan)
    return load_history(data)


def test_cell_is_the_fastest_kernel_at_the_largest_size_of_its_pair(swept):
    op = swept.ops["sinkhorn"]
    view = next(iter(curves_of(swept, op)))
    found = heat.heat(swept, op, view)
    assert (found.down, found.across) == ("n", "n_iter") and len(found.cells) >= heat.LEAST_CELLS
    triton = {info.name for info in op.implementations if info.kind == "triton"}
    for (n, n_iter), cell in found.cells.items():
        cases = {
            key: points[-1].median_ns for key, points in swept.series.items()
            if (key.size("n"), key.size("n_iter")) == (n, n_iter)
            and points[-1].median_ns and key.implementation in triton
        }  # fmt: skip
        largest = max(key.size("batch") for key in cases)
        assert cell.count == largest
        assert cell.point.median_ns == min(
            t for k, t in cases.items() if k.size("batch") == largest
        )


def test_darkest_cell_is_the_slowest_and_the_lightest_the_fastest(swept):
    op = swept.ops["sinkhorn"]
    found = heat.heat(swept, op, next(iter(curves_of(swept, op))))
    ordered = sorted(found.cells.values(), key=lambda cell: cell.unit_ns)
    shades = [found.shade(cell) for cell in ordered]
    assert shades == sorted(shades) and (shades[0], shades[-1]) == (0, heat.DARKEST)


def test_op_without_two_other_sizes_has_no_such_table(book):
    op = book.history.ops["rms_norm"]
    assert heat.heat(book.history, op, next(iter(book.views["rms_norm"]))) is None
