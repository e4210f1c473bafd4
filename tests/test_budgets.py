"""The site of the committed records against its budgets: bytes, seconds, markers, files."""

import json
import os
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

import pytest

from dashboard import build as rendering
from dashboard.environment import environment
from dashboard.history import load_history
from tests import synthetic
from tests.visiting import (
    ROOT,
    SUB_PATH,
    Packed,
    Visitor,
    build,
    chromium,
    needs_chromium,
    packed,
    page_kinds,
    serve,
)

pytestmark = pytest.mark.timeout(300)

FIRST_LOAD_BYTES = 120_000
SITE_BYTES, FILE_BYTES = 50_000_000, 5_000_000
MARKERS = 1000
# Budgets hold on a desktop of today; machines for tests are slower, and other tests run beside.
MARGIN = 2
WINDOW = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}
SLOW = {"latency": 150, "downloadThroughput": 1.6e6 / 8, "uploadThroughput": 750e3 / 8}
PAINT_S = {"fast": 0.6, "slow": 1.5}
CHART_S = {"fast": 2.0, "slow": 6.0}

WATCH = """
window.paint = 0; window.shift = 0;
new PerformanceObserver(list => { for (const e of list.getEntries()) paint = e.startTime; })
  .observe({type: 'largest-contentful-paint', buffered: true});
new PerformanceObserver(list => { for (const e of list.getEntries()) shift += e.value; })
  .observe({type: 'layout-shift', buffered: true});
"""
SETTLED = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(paint), 100)))"
DRAWN = "document.querySelector('.ka-drawn .ka-live .main-svg .trace') && performance.now()"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(ROOT / "data", tmp_path_factory.mktemp("budget") / "site")


@pytest.fixture(scope="module")
def address(site):
    with serve(site, Packed) as told:
        yield told


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


@contextmanager
def first_visit(browser, address, speed="fast"):
    """Open a window with an empty cache."""
    made = Visitor(browser, address, **WINDOW)
    made.page.add_init_script(WATCH)
    if speed == "slow":
        session = made.context.new_cdp_session(made.page)
        session.send("Network.enable")
        session.send("Network.emulateNetworkConditions", {"offline": False} | SLOW)
        session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    yield made
    made.context.close()


def within(budget_s, measure):
    """Measure up to three times: what disturbs a time only makes it longer."""
    return any(measure() <= MARGIN * crowd() * budget_s for _ in range(3))


def crowd():
    """Return how many processes share a core of this machine just now, at least one."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def paint_s(browser, address, path, speed):
    with first_visit(browser, address, speed) as made:
        return made.go(path).evaluate(SETTLED) / 1000


def chart_s(browser, address, path, speed):
    with first_visit(browser, address, speed) as made:
        made.page.goto(address + path, wait_until="commit")
        made.page.locator(".ka-chart:has(.ka-live)").first.scroll_into_view_if_needed()
        return made.page.wait_for_function(DRAWN).json_value() / 1000


@pytest.fixture(scope="module")
def visits(browser, address, site):
    """Visit every kind of page: the bytes of its first load, and how far things moved."""
    made = {}
    for path in page_kinds(site):
        with first_visit(browser, address) as visitor:
            asked = []
            visitor.page.on("request", lambda request, asked=asked: asked.append(request.url))
            visitor.go(path).wait_for_load_state("networkidle")
            size = sum(map(bytes_of(site), set(asked)))
            assert visitor.see_charts() == [], path
            made[path] = size, visitor.page.evaluate("shift")
    return made


def bytes_of(site):
    def count(url):
        path = site / urlsplit(url).path.removeprefix(SUB_PATH)
        path = path / "index.html" if path.is_dir() else path
        counts = path.suffix in (".html", ".css", ".js") and "plotly" not in path.name
        return len(packed(path)) if counts else 0

    return count


@needs_chromium
def test_first_load_is_small(visits):
    sizes = {path: size for path, (size, _) in visits.items()}
    assert min(sizes.values()) > 30_000
    assert max(sizes.values()) <= FIRST_LOAD_BYTES, sizes


@needs_chromium
def test_nothing_moves_while_a_page_loads_and_its_charts_come_alive(visits):
    # To two digits, as browsers report it: the age of a run may move the words behind it.
    assert {path: shift for path, (_, shift) in visits.items() if round(shift, 2)} == {}


@needs_chromium
@pytest.mark.parametrize("speed", ["fast", "slow"])
def test_largest_content_is_painted_at_once(browser, address, site, speed):
    for path in page_kinds(site):
        measure = partial(paint_s, browser, address, path, speed)
        assert within(PAINT_S[speed], measure), path


@needs_chromium
@pytest.mark.parametrize("speed", ["fast", "slow"])
def test_first_chart_is_soon_alive(browser, address, site, speed):
    if speed == "slow" and not any(site.glob("assets/plotly-basic*.js")):
        pytest.skip("the budget is that of the small library, which `make site` gets from npm")
    for path in ("kernels/sinkhorn/", "roofline/"):
        measure = partial(chart_s, browser, address, path, speed)
        assert within(CHART_S[speed], measure), path


def test_site_is_small_enough_for_any_host(site):
    files = [path for path in site.rglob("*") if path.is_file()]
    sizes = {path.relative_to(site).as_posix(): path.stat().st_size for path in files}
    assert sum(sizes.values()) <= SITE_BYTES
    large = {name for name, size in sizes.items() if size > FILE_BYTES}
    assert not [name for name in large if not re.fullmatch(r"assets/plotly[^/]*\.js", name)]


def test_site_holds_no_links_of_the_file_system(site):
    assert [path for path in site.rglob("*") if path.is_symlink()] == []


NARROW = {"ops": ("sinkhorn",), "timers": ("graph",), "caches": ("cold",), "samples": 4}


def rendered(data):
    return rendering.render(load_history(data), environment(ROOT / "templates"))


def test_number_of_pages_and_markers_do_not_grow_with_the_runs(tmp_path):
    plan = synthetic.Plan(commits=3, replicates=1, sweep=2, **NARROW)
    made = []
    for runs in (5, 60):
        data = tmp_path / str(runs)
        pairs = [(number, number % 3) for number in range(runs)]
        for number, commit in pairs:
            again = replace(plan, seed=number, commits=plan.shas())
            synthetic.write(data, list(synthetic.run_records(again, synthetic.H200, commit)))
        assert len(load_history(data).runs) == runs
        made.append(rendered(data))
    few, many = made
    assert pages(few) == pages(many)
    assert most_markers(many) <= MARKERS


def test_long_history_keeps_its_charts_small(tmp_path):
    synthetic.build(tmp_path, commits=120, replicates=1, sweep=2, **NARROW)
    files = rendered(tmp_path)
    assert len(pages(files)) < 120
    assert 0 < most_markers(files) <= MARKERS


def pages(files):
    return {path for path in files if path.endswith(".md")}


def most_markers(files):
    return max(map(markers, figures(files)))


def figures(files):
    """Yield every interactive chart, of pages and of the files that they load later."""
    for path, content in files.items():
        text = content.decode()
        if path.startswith("assets/data/"):
            yield from (one["figure"] for one in charts_of(text.partition("]=")[2].rstrip(";\n")))
        for block in re.findall(r"data-figures>(.*?)</script>", text, re.S):
            yield from json.loads(block).values()


def charts_of(text):
    return json.loads(text).get("charts", {}).values()


def markers(figure):
    return sum(len(trace["x"]) for trace in figure["data"] if "markers" in trace.get("mode", ""))
