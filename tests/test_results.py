"""The table of all ops at all sizes holds what the records hold, and the rows of the articles."""

import html

import pytest

from collector.history.load import load_history
from dashboard import pages, results
from dashboard.book import make_book
from dashboard.environment import environment
from dashboard.links import Links
from tests.visiting import ROOT

# What the article on single kernels prints: op, type, and sizes as its shape names them.
ARTICLE = [
    *((op, "float16", {"rows": rows, "hidden": hidden})
      for op in ("rms_norm", "swiglu")
      for rows, hidden in ((128, 1024), (512, 4096), (2048, 4096))),
    *(("qk_dot", "float16", {"rows": rows, "hidden": 128}) for rows in (512, 2048)),
    ("paged_kv_gather", "float16", {"rows": 512, "hidden": 128}),
    *(("selected_attention", "bfloat16", {"selected": n, "head_dim": 128}) for n in (64, 256)),
    ("residual_rms_norm", "bfloat16", {"rows": 4, "hidden": 1536}),
    *(("int4_gemv", "bfloat16", {"n": n, "k": 1536}) for n in (1536, 8960)),
]  # fmt: skip


@pytest.fixture(scope="module")
def book():
    history = load_history(ROOT / "data")
    return make_book(history, environment(ROOT / "templates"), Links(), "assets/plotly.js", "")


@pytest.fixture(scope="module")
def found(book):
    return results.results(book)


@pytest.mark.parametrize(("op", "dtype", "sizes"), ARTICLE)
def test_every_row_of_the_article_has_its_counterpart(found, op, dtype, sizes):
    assert any(
        (one.key.op, one.key.dtype) == (op, dtype) and dict(one.key.sizes).items() >= sizes.items()
        for one in found
    )


def test_speed_up_and_bandwidth_follow_from_the_times_beside_them(found):
    assert len(found) > 50
    for one in found:
        assert one.ratio.value == pytest.approx(one.theirs.median_ns / one.mine.median_ns, rel=1e-6)
        assert one.mine.run_id == one.theirs.run_id
        assert one.gb_per_s == one.mine.cost.minimal_bytes / one.mine.median_ns


def test_each_size_of_an_op_stands_there_once(found):
    keys = [(one.key.device, one.key.op, one.key.dtype, one.key.sizes) for one in found]
    assert len(set(keys)) == len(keys)


def test_page_writes_each_row_with_links_to_both_records(book, found):
    ((_, content),) = pages.kernels(book)
    table = content.decode().split('id="results-table"')[1]
    rows = table.split("<tbody>")[1].split("</tbody>")[0].split("<tr ")[1:]
    for row, one in zip(rows, found, strict=True):
        assert one.shape in html.unescape(row) and row.count("<a href=") == 2
