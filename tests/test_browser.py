"""The built site in a real browser: every kind of page, both themes, and a phone."""

import re
from dataclasses import dataclass

import pytest

from tests import synthetic
from tests.visiting import MODES, Visitor, build, needs_chromium, page_kinds

pytestmark = [needs_chromium, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    plan = synthetic.Plan(
        commits=3, replicates=2, sweep=6, caches=("cold",), cards=(synthetic.H200, synthetic.CPU),
        effects={(2, "sinkhorn", "triton-packed"): 1.2},
    )  # fmt: skip
    synthetic.build(data, plan)
    swept = synthetic.Plan(
        seed=1, commits=1, replicates=1, timers=("graph",), caches=("cold",), ops=("sinkhorn",),
        modes=("forward", "backward"), swept=True, quality=("row_residual_max",), samples=8,
    )  # fmt: skip
    synthetic.build(data, swept)
    return build(data, tmp_path_factory.mktemp("site") / "site")


@pytest.fixture
def desktop(browser, address):
    made = Visitor(browser, address, **MODES["light"])
    yield made
    made.context.close()


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OUTSIDE = """[...document.querySelectorAll('.ka-svg')].filter(drawing => {
    const [inner, outer] = [drawing, drawing.closest('.ka-plot')].map(
        element => element.getBoundingClientRect());
    return inner.height > outer.height || inner.width > outer.width;
}).map(drawing => drawing.closest('figure').id)"""
PICTURES = """Promise.all([...document.querySelectorAll('img.ka-light')].map(async picture => {
    await picture.decode().catch(() => null);
    return [picture.closest('figure').dataset.chart, picture.naturalWidth > 0,
        picture.getBoundingClientRect().height];
}))"""
MARKS = "[...document.querySelectorAll('svg.ka-svg')].map(s => s.matches(':has(.ka-points)'))"


# Of the theme itself: its search names no dialogue.
THEME_FAULTS = {("aria-dialog-name", ".md-search")}
THEIR_OWN = """target => document.querySelector(target).closest('.md-search')
    ? '.md-search' : target"""


@dataclass(frozen=True)
class Look:
    """What one visit of a page has seen."""

    marked: bool
    missing: list[str]
    barriers: list[tuple[str, str]]
    overflow: int
    faults: list[str]


def barriers(page, mode):
    """Return what keeps readers out: rules, and where they are broken."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # The most of the work, and colours of a phone are those of a desktop.
    colours = {"color-contrast": {"enabled": mode != "phone"}}
    # Without results that nobody reads.
    options = {"resultTypes": ["violations"], "rules": colours}
    faults = axe.run(page, options=options).response["violations"]
    nodes = [(fault["id"], node["target"]) for fault in faults for node in fault["nodes"]]
    return [(rule, page.evaluate(THEIR_OWN, place)) for rule, (place, *_) in nodes]


def look(visitor, path, mode):
    page = visitor.go(path)
    marked = all(page.evaluate(MARKS))
    # Of static charts in the light, of those that came alive in the dark.
    before = barriers(page, mode) if mode != "dark" else []
    missing = visitor.see_charts()
    after = barriers(page, mode) if mode == "dark" else []
    faults, visitor.faults = visitor.faults, []
    return Look(marked, missing, before + after, page.evaluate(OVERFLOW), faults)


@pytest.fixture(scope="module", params=MODES)
def looks(request, browser, address, site):
    """Visit every kind of page once in a mode."""
    made = Visitor(browser, address, reduced_motion="reduce", **MODES[request.param])
    yield {path: look(made, path, request.param) for path in page_kinds(site)}
    made.context.close()


def test_every_kind_of_page_is_whole(looks):
    assert [path for path, one in looks.items() if not one.marked] == [], "charts without marks"
    assert {path: one.missing for path, one in looks.items() if one.missing} == {}
    assert {path: one.faults for path, one in looks.items() if one.faults} == {}


def test_no_page_is_wider_than_the_window(looks):
    assert {path: one.overflow for path, one in looks.items() if one.overflow > 0} == {}


def test_nothing_on_a_page_keeps_readers_out(looks):
    found = [(path, *place) for path, one in looks.items() for place in one.barriers]
    assert [one for one in found if one[1:] not in THEME_FAULTS] == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("rms norm", "kernels/rms-norm/"),
        ("sinkhorn", "kernels/sinkhorn/"),
        ("h200", "devices/nvidia-h200/"),
        (synthetic.Plan(commits=3).shas()[1][:8], f"commits/{synthetic.Plan().shas()[1][:12]}/"),
    ],
)
def test_search_leads_to_ops_devices_and_commits(desktop, asked, told):
    page = desktop.go("health/")
    page.click(".md-search__input")
    page.keyboard.insert_text(asked[:-1])  # at once: a word half typed is another question
    page.keyboard.type(asked[-1])
    page.wait_for_selector(f".md-search-result__link[href*='{told}']")
    assert desktop.faults == []


def test_theme_switch_redraws_charts_in_its_colours(desktop):
    page = desktop.go("kernels/sinkhorn/")
    assert desktop.see_charts() == []
    colour = "getComputedStyle(document.querySelector('.ka-drawn .xtick text')).fill"
    before = page.evaluate(colour)
    # Not by the mouse: the header moves while charts are drawn, and a loaded machine never rests.
    page.dispatch_event("label[for=__palette_1]:visible", "click")
    page.wait_for_function(f"{colour} !== '{before}'")
    assert desktop.faults == []


def test_controls_change_the_view_and_the_address(desktop):
    page = desktop.go("kernels/sinkhorn/")
    lead = page.inner_text("[data-slot=lead]")
    page.select_option("select[name=d]", "cpu-2-cores")
    page.wait_for_function(
        "t => document.querySelector('[data-slot=lead]').innerText !== t", arg=lead
    )
    assert "Two cores" in page.inner_text("[data-slot=lead]")
    assert "d=cpu-2-cores" in page.url
    page.select_option("select[name=d]", "nvidia-h200")
    page.wait_for_function(
        "t => document.querySelector('[data-slot=lead]').innerText === t", arg=lead
    )
    assert "?" not in page.url


def test_address_restores_the_view_and_hidden_lines(desktop):
    page = desktop.go("kernels/sinkhorn/?timer=call&s=triton-packed~torch.compile&m=bandwidth")
    page.wait_for_selector(".ka-drawn")
    assert page.is_checked("input[name=timer][value=call]")
    assert not page.is_checked("input[name=s][value=torch]")
    assert page.is_visible("[data-metric-of=bandwidth]")
    assert page.is_hidden("[data-metric-of=latency]")
    page.locator("#bandwidth-chart").scroll_into_view_if_needed()
    page.wait_for_selector("#bandwidth-chart.ka-drawn .ka-live .trace")
    assert page.locator("#bandwidth-chart table").count() == 1
    assert desktop.faults == []


def test_curves_along_another_size_and_of_another_mode_are_in_the_address(desktop):
    page = desktop.go("kernels/sinkhorn/")
    assert page.locator("#sweep-0-chart .ka-static svg").count() == 1
    page.get_by_role("link", name="along n_iter").click()
    page.wait_for_function(
        "document.querySelector('[data-slot=lead]').innerText.includes('n_iter = ')"
    )
    assert "c=batch%3D1048576%2Cn%3D4" in page.url
    page.check("input[name=mode][value=backward]", force=True)
    page.wait_for_function(
        "document.querySelector('[data-slot=run]').innerText.startsWith('backward')"
    )
    assert desktop.see_charts() == []
    title = "document.querySelector('#latency-chart .ka-live').layout.xaxis.title.text"
    assert page.evaluate(title) == "n_iter"
    assert page.locator("#sweep-0-chart").count() == 1
    assert "mode=backward" in page.url and desktop.faults == []


def test_unknown_state_in_the_address_is_told_and_charts_stay(desktop):
    page = desktop.go("kernels/sinkhorn/?d=no-such-card&zz=1")
    page.wait_for_selector("[data-notice]:not([hidden])")
    text = page.inner_text("[data-notice]")
    assert "d=no-such-card" in text and "zz=1" in text
    assert desktop.see_charts() == []


def test_other_baseline_and_size_of_history_are_drawn(desktop):
    page = desktop.go("kernels/sinkhorn/")
    desktop.see_charts()
    page.select_option("select[name=b]", "torch")
    page.wait_for_function(
        "/^Time of torch over/.test(document.querySelector('#speedup-chart figcaption').innerText)"
    )
    page.select_option("select[name=h]", "16")
    page.wait_for_function(
        "/batch = 16 over/.test(document.querySelector('#history-chart figcaption').innerText)"
    )
    assert desktop.see_charts() == []
    assert desktop.faults == []


def test_hiding_a_line_leaves_the_colours_of_the_others(desktop):
    page = desktop.go("kernels/sinkhorn/")
    desktop.see_charts()
    lines = (
        "document.querySelector('#latency-chart .ka-live').data"
        ".filter(t => t.mode === 'lines+markers').map(t => [t.name, t.line.color, t.marker.symbol])"
    )
    before = page.evaluate(lines)
    page.uncheck("input[name=s][value=torch]")
    page.wait_for_function(
        "document.querySelector('#latency-chart .ka-live').data.some(t => t.visible === false)"
    )
    assert page.evaluate(lines) == before


def test_chart_library_is_loaded_once_and_offers_no_upload(desktop):
    asked = []
    desktop.page.on("request", lambda r: asked.append(r.url) if "plotly" in r.url else None)
    page = desktop.go("kernels/sinkhorn/")
    desktop.see_charts()
    assert len(asked) == 1
    titles = page.evaluate(
        "[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title || b.ariaLabel)"
    )
    assert titles and not [t for t in titles if re.search("share|cloud|send", t or "", re.I)]


LIBRARY = re.compile(r"/plotly[^/]*\.js$")
ABOVE = {"viewport": {"width": 1280, "height": 120}}


def seen(browser, address, saves_data=False):
    """Return whether the library came and whether it ran before and after a chart came near."""
    made = Visitor(browser, address, **ABOVE)
    saving = f"Object.defineProperty(navigator.connection, 'saveData', {{value: {saves_data:d}}})"
    made.page.add_init_script(saving)
    came = []
    made.page.on("requestfinished", lambda r: came.extend(LIBRARY.findall(r.url)))
    page = made.go("kernels/sinkhorn/")
    page.wait_for_load_state("networkidle")
    before = bool(came), page.evaluate("typeof Plotly") != "undefined"
    assert made.see_charts() == []
    made.context.close()
    return before, len(came)


def test_library_comes_early_and_once_but_runs_when_a_chart_comes_near(browser, address):
    assert seen(browser, address) == ((True, False), 1)


def test_library_waits_for_a_chart_where_the_reader_saves_data(browser, address):
    assert seen(browser, address, saves_data=True) == ((False, False), 1)


def test_page_without_charts_does_without_the_library(desktop):
    asked = []
    desktop.page.on("request", lambda request: asked.extend(LIBRARY.findall(request.url)))
    desktop.go("").wait_for_load_state("networkidle")
    assert asked == []


def test_charts_are_drawn_one_after_the_other(desktop):
    desktop.page.add_init_script("""
        let library; window.most = 0; let busy = 0;
        Object.defineProperty(window, 'Plotly', {get: () => library, set: (value) => {
            library = value;
            const react = value.react;
            value.react = async (...all) => {
                most = Math.max(most, ++busy);
                try { return await react(...all); } finally { busy -= 1; }
            };
        }});
    """)
    page = desktop.go("kernels/sinkhorn/")
    assert desktop.see_charts() == []
    # Not by the mouse: the header moves while charts are drawn, and a loaded machine never rests.
    page.dispatch_event("label[for=__palette_1]:visible", "click")
    page.wait_for_function("document.body.dataset.mdColorScheme === 'slate'")
    page.wait_for_function("document.querySelectorAll('.ka-drawn').length > 3")
    assert page.evaluate("most") == 1


def test_static_charts_stay_where_the_library_does_not_come(desktop):
    desktop.page.route(LIBRARY, lambda route: route.abort())
    page = desktop.go("kernels/sinkhorn/")
    page.wait_for_selector("[data-notice]:not([hidden])")
    assert "static charts" in page.inner_text("[data-notice]")
    assert page.is_visible("#speedup-chart .ka-static svg")
    assert page.evaluate(OUTSIDE) == []


def test_page_works_from_a_folder_without_a_server(browser, site):
    made = Visitor(browser, f"{site.as_uri()}/", **MODES["light"])
    page = made.go("kernels/sinkhorn/index.html")
    assert made.see_charts() == []
    page.select_option("select[name=b]", "torch")
    page.wait_for_function(
        "/^Time of torch over/.test(document.querySelector('#speedup-chart figcaption').innerText)"
    )
    assert made.faults == []
    made.context.close()


def test_page_scrolls_when_a_finger_starts_on_a_chart(browser, address):
    made = Visitor(browser, address, **MODES["phone"])
    page = made.go("kernels/sinkhorn/")
    made.see_charts()
    plot = page.locator("#latency-chart .ka-plot")
    plot.evaluate("element => element.scrollIntoView({block: 'center'})")
    box, before = plot.bounding_box(), page.evaluate("scrollY")
    drag(made, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, -240)
    page.wait_for_function("before => scrollY > before + 100", arg=before)
    made.context.close()


def drag(visitor, x, y, distance):
    session = visitor.context.new_cdp_session(visitor.page)
    steps = [("touchStart", 0), *(("touchMove", share / 12) for share in range(1, 13))]
    for kind, share in steps:
        finger = {"x": x, "y": y + distance * share}
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [finger]})
        visitor.page.wait_for_timeout(16)
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_page_without_javascript_shows_all_static_charts(browser, address):
    made = Visitor(browser, address, java_script_enabled=False, **MODES["light"])
    page = made.go("kernels/sinkhorn/")
    charts = page.query_selector_all(".ka-static svg")
    names = {chart.evaluate("one => one.closest('figure').id") for chart in charts}
    assert {"speedup-chart", "latency-chart", "roofline-chart", "history-chart"} < names
    assert len(charts) == 6 and all(chart.is_visible() for chart in charts)
    pictures = page.evaluate(PICTURES)
    assert {key for key, *_ in pictures} == {"bandwidth", "throughput", "theory"}
    assert all(came and height > 100 for _, came, height in pictures)
    assert page.locator(".ka-late").count() == 3 and page.locator(".ka-late:visible").count() == 0
    assert page.evaluate(OUTSIDE) == []
    assert page.is_hidden("form.ka-controls")
    made.context.close()


def test_print_shows_the_static_charts_in_ink(browser, address):
    made = Visitor(browser, address, **MODES["dark"])
    page = made.go("kernels/sinkhorn/")
    made.see_charts()
    page.emulate_media(media="print")
    shown = page.evaluate(
        "getComputedStyle(document.querySelector('#speedup-chart .ka-static')).visibility"
    )
    assert shown == "visible"
    assert page.is_hidden("#speedup-chart .ka-live")
    made.context.close()


def test_table_sorts_by_base_units_and_by_keyboard(desktop):
    page = desktop.go("kernels/sinkhorn/")
    head = page.locator("[data-slot=table] th button", has_text="median")
    head.focus()
    page.keyboard.press("Enter")
    values = page.evaluate(
        "[...document.querySelectorAll('[data-slot=table] tbody tr')]"
        ".map(row => row.cells[3].dataset.sort)"
    )
    known = [float(value) for value in values if value]
    assert known == sorted(known) and values[-1] in ("", values[-1])
    assert page.get_attribute("[data-slot=table] th[aria-sort]", "aria-sort") == "ascending"
