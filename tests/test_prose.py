"""Pages that people write: their numbers and figures come from the records."""

import dataclasses
import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from collector.history.load import load_history
from dashboard import prose
from dashboard.book import make_book
from dashboard.environment import environment
from dashboard.links import Links
from tests import synthetic

ROOT = Path(__file__).parent.parent
TEMPLATES = environment(ROOT / "templates")
TEXTS = prose.read_written(ROOT / "site" / "docs")


FIELDS = (
    *("op.name", "name", "where", "flops", "bytes", "time", "rate"),
    *("intensity", "least", "share"),
)
UNITS_NS = {"ns": 1.0, "µs": 1e3, "ms": 1e6}


def book_of(folder):
    return make_book(load_history(folder), TEMPLATES, Links(), "assets/plotly.js", "")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    synthetic.build(data, commits=1, replicates=1, timers=("graph",))
    return book_of(data)


def filled(book, text):
    return dict(prose.written(book, {"page.md": text}))["page.md"].decode()


def test_worked_example_has_the_numbers_of_the_largest_size_in_the_records(book):
    curves = next(iter(book.views["sinkhorn"].values()))
    point, ceilings = curves.passed("triton-packed")[4**12], book.scene(curves).ceilings
    told = filled(book, " | ".join(f"{{{{ example.{name} }}}}" for name in FIELDS))
    told = re.sub(r"&#(\d+);", lambda sign: chr(int(sign[1])), told).strip().split(" | ")
    op, name, where, flops, moved, time, rate, intensity, least, share = told
    assert (op, name, where) == ("sinkhorn", "triton-packed", "batch = 16Mi")
    least_s = max(
        point.cost.minimal_bytes / ceilings.memory_bytes_per_s,
        point.cost.flops / ceilings.fp32_flops_per_s,
        point.cost.special_ops / ceilings.special_ops_per_s,
    )
    assert number(flops) == pytest.approx(1472 * 4**12 / 1e9, rel=0.01)
    assert number(moved) == pytest.approx(128 * 4**12 / 1e9, rel=0.01)
    assert time_ns(time) == pytest.approx(point.median_ns, rel=0.01)
    assert number(rate) == pytest.approx(1472 * 4**12 / point.median_ns / 1e3, rel=0.01)
    assert number(intensity) == 11.5
    assert time_ns(least) == pytest.approx(least_s * 1e9, rel=0.01)
    assert number(share) == pytest.approx(1e11 * least_s / point.median_ns, abs=0.51)


def number(text):
    return float(re.match(r"[\d.,]+", text)[0].replace(",", ""))


def time_ns(text):
    return number(text) * UNITS_NS[text.split()[1]]


@pytest.mark.parametrize("name", ["roofline", "share", "time", "speedup", "caches"])
def test_figure_is_a_static_drawing_with_its_numbers_and_no_blank_line(book, name):
    text = filled(book, f'{{{{ figure("{name}") }}}}').strip()
    assert text.startswith("<figure") and text.endswith("</figure>") and "\n\n" not in text
    assert text.count('<svg class="ka-svg"') == 1 and 'class="ka-points"' in text
    assert "Sinkhorn on NVIDIA H200" in text and "<table" in text and "<script" not in text


def test_shares_of_the_figure_are_those_of_the_roofs(book):
    curves = next(iter(book.views["sinkhorn"].values()))
    scene = book.scene(curves)
    chart = prose._share(prose._example(book))
    roofs = {float(s): scene.roof("triton-packed", s) for s in curves.passed("triton-packed")}
    assert dict(zip(chart.series[0].x, chart.series[0].y, strict=True)) == pytest.approx(
        {size: 100 * one.time_ns / curves.passed("triton-packed")[int(size)].median_ns
         for size, one in roofs.items()}
    )  # fmt: skip


def test_hot_and_cold_figure_shows_both_measured_states(book):
    chart = prose._caches(book, prose._example(book))
    cold, hot = (dict(zip(line.x, line.y, strict=True)) for line in chart.series)
    for state, line in (("cold", cold), ("hot", hot)):
        views = book.views["sinkhorn"]
        curves = next(c for v, c in views.items() if v.cache == state and v.dtype == "float32")
        passed = curves.passed("triton-packed")
        assert line == {float(s): p.median_ns / 1e3 for s, p in passed.items()}


def test_what_a_record_says_is_text_and_no_markdown(book):
    run = next(iter(book.history.runs.values()))
    device = run.device.model_copy(update={"name": "*a* <b>_c_</b> [d](e) `f`"})
    history = dataclasses.replace(book.history, devices={"x": device})
    text = filled(dataclasses.replace(book, history=history), "{{ history.devices.x.name }}")
    assert not re.search(r"[<>*_`\[\]()]", text)


def test_unknown_name_is_an_error(book):
    with pytest.raises(UndefinedError):
        filled(book, "{{ example.no_such_number }}")


def test_committed_pages_are_whole_without_any_record(tmp_path):
    pages = dict(prose.written(book_of(tmp_path), TEXTS))
    assert set(pages) == {"methodology.md", "read-a-roofline.md", "glossary.md", "about.md"}
    for content in pages.values():
        assert not re.search(r"\{[{%]|None|nan", content.decode())
    assert "No records to draw this from yet" in pages["read-a-roofline.md"].decode()


def test_committed_pages_type_no_measured_number():
    figure = re.compile(r"\d[\d.,]* ?(?:[kMGT]?FLOP/s|[kMGT]B/s|µs|us\b|ms\b|TFLOP)|\d+ ?×")
    assert {path: figure.findall(text) for path, text in TEXTS.items() if figure.search(text)} == {}


def test_glossary_is_in_alphabetical_order():
    terms = re.findall(r"^## (.+)$", TEXTS["glossary.md"], re.MULTILINE)
    assert len(terms) > 30 and terms == sorted(terms)
