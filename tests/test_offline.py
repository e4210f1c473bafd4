"""The site read from a disk: no server, no network, links to files."""

import pytest

from tests import synthetic
from tests.visiting import MODES, Visitor, build, needs_chromium

pytestmark = [needs_chromium, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    synthetic.build(
        data, commits=2, replicates=1, sweep=4, caches=("cold",), timers=("graph", "call")
    )
    out = tmp_path_factory.mktemp("offline") / "site"
    return build(data, out, ALMANAC_DIRECTORY_URLS="false")


@pytest.fixture
def reader(browser, site):
    made = Visitor(browser, f"{site.as_uri()}/", **MODES["light"])
    made.context.set_offline(True)
    yield made
    made.context.close()


def test_reader_comes_from_the_first_page_to_charts_and_to_other_data(reader):
    page = reader.go("index.html")
    page.click("article a[href$='sinkhorn.html']")
    assert reader.see_charts() == []
    lead = page.inner_text("[data-slot=run]")
    page.check("input[name=timer][value=call]", force=True)
    page.wait_for_function(
        "t => document.querySelector('[data-slot=run]').innerText !== t", arg=lead
    )
    assert "timer=call" in page.url and reader.see_charts() == []
    assert reader.faults == []


@pytest.mark.parametrize("path", ["roofline.html", "compare.html", "read-a-roofline.html"])
def test_other_pages_are_whole(reader, path):
    page = reader.go(path)
    assert reader.see_charts() == [] and reader.faults == []
    assert page.query_selector_all("svg.ka-svg, table")


def test_search_that_browsers_forbid_there_is_not_offered(reader):
    assert reader.go("index.html").is_hidden(".md-search")
