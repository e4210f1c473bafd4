"""Pages of pipelines and of the compiler, pictures and tables: both themes, a phone, no script."""

import pytest

from dashboard.palette import COLOURS
from tests import sigreg_records, synthetic
from tests.code_records import WORKLOADS, code, line, run_plan, write
from tests.test_browser import LIBRARY, MODES, OVERFLOW, PICTURES
from tests.visiting import Visitor, build, needs_chromium

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
PLAN = run_plan(seed=7, commits=2, effects={(1, "rms_norm", "triton"): 1.3})
COMMIT = f"commits/{PLAN.shas()[1][:12]}/"
PAGES = ("kernels/sigreg/", "kernels/sigreg-trig/", "compiler/", COMMIT)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    sigreg_records.build(data)
    sigreg_records.build(data, ops=("sigreg",), card=synthetic.CPU, tags=("cpu",))
    synthetic.build(data, PLAN)
    before, after = PLAN.shas()
    forms = [
        line(workloads=[name], target=target) for name in WORKLOADS for target in ("sm_80", "sm_90")
    ]
    write(data, before, forms, day=6)
    spilt = code(registers=255, spills=8, local=16, sass_hash="b" * 12)
    write(data, after, [one.model_copy(update={"code": spilt}) for one in forms], day=7)
    return build(data, tmp_path_factory.mktemp("site") / "site")


@pytest.fixture
def desktop(browser, address):
    made = Visitor(browser, address, **MODES["light"])
    yield made
    made.context.close()


@pytest.mark.parametrize("mode", MODES)
def test_pages_are_whole_and_no_wider_than_the_window(browser, address, mode):
    visitor = Visitor(browser, address, **MODES[mode])
    for path in PAGES:
        page = visitor.go(path)
        assert visitor.see_charts() == [], path
        for details in page.query_selector_all("details"):
            details.evaluate("one => { one.open = true; }")
        assert page.evaluate(OVERFLOW) <= 0, f"{path} is wider than the window"
        assert visitor.faults == [], path
    visitor.context.close()


def test_datasheet_and_way_of_counting_are_chosen_and_kept_in_the_address(desktop):
    page = desktop.go("kernels/sigreg/")
    caption = page.locator("#theory-chart figcaption")
    assert caption.inner_text().startswith("Datasheet, not measured: B200")
    page.locator("#theory-chart").scroll_into_view_if_needed()
    page.select_option("select[name=card]", "rtx-5070-ti")
    page.focus("input[name=sf][value='0']")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "/RTX 5070 Ti.*counts as 20 operations/s"
        ".test(document.querySelector('#theory-chart figcaption').innerText)"
    )
    assert "card=rtx-5070-ti" in page.url and "sf=20" in page.url
    page.goto(page.url)
    page.locator("#theory-chart").scroll_into_view_if_needed()
    page.wait_for_function(
        "document.querySelector('#theory-chart figcaption').innerText.includes('896 GB/s')"
    )
    assert desktop.faults == []


def test_regions_follow_the_device_and_open_by_the_keyboard(desktop):
    page = desktop.go("kernels/sigreg/")
    second = page.locator("[data-slot=regions] details").nth(1)
    assert second.locator("table").is_hidden()
    second.locator("summary").focus()
    page.keyboard.press("Enter")
    second.locator("table").wait_for(state="visible")
    page.select_option("select[name=d]", "cpu-2-cores")
    page.wait_for_function(
        "document.querySelector('[data-slot=regions]').innerText.includes('not measured')"
    )
    assert page.locator("[data-slot=regions] rect[class]").count() == 0
    assert desktop.faults == []


def test_regions_and_code_need_no_script(browser, address):
    made = Visitor(browser, address, java_script_enabled=False, **MODES["dark"])
    page = made.go("kernels/sigreg/")
    assert page.locator("[data-slot=regions] details[open] svg.ka-stack").is_visible()
    assert page.locator("[data-slot=regions] details[open] table").is_visible()
    page = made.go(COMMIT)
    page.get_by_role("link", name="Compiled for sm_90").first.click()
    assert page.url.endswith("#code")
    assert page.get_by_text("new spills").first.is_visible()
    made.context.close()


def test_kernels_are_filtered_by_target(desktop):
    page = desktop.go("compiler/")
    rows = page.locator("#kernels-table tbody tr:visible")
    assert rows.count() == 2
    page.select_option("select[name=target]", "sm_80")
    page.wait_for_function(
        "document.querySelectorAll('#kernels-table tbody tr:not([hidden])').length === 1"
    )
    assert "sm_80" in rows.first.inner_text() and desktop.faults == []


RECORDS = """[...document.querySelectorAll('.ka-records')].map(table => {
    const heads = [...table.tHead.rows[0].cells].map(head => head.textContent);
    const fields = [...table.tBodies[0].rows].filter(row => row.clientHeight)
        .flatMap(row => [...row.cells].slice(1));
    const unlike = fields.filter(field => field.clientHeight).map(field =>
        [getComputedStyle(field, '::before').content, `"${heads[field.cellIndex]} "`]
    ).filter(([label, head]) => label !== head);
    const outer = table.parentElement;
    return [heads[0], fields.length, unlike, outer.scrollWidth - outer.clientWidth];
})"""


def test_rows_stand_as_labelled_records_on_a_phone(browser, address):
    made = Visitor(browser, address, **MODES["phone"])
    for path in ("compiler/", "commits/", "data/", "devices/", "health/", "regressions/"):
        tables = made.go(path).evaluate(RECORDS)
        assert sum(fields for _, fields, *_ in tables) > 0, path
        assert [one for one in tables if one[2] or one[3] > 0] == [], path
    made.context.close()


def test_records_are_sorted_on_a_phone(browser, address):
    made = Visitor(browser, address, **MODES["phone"])
    page = made.go("regressions/")
    head = page.locator("#cause-table th button", has_text="mean change")
    head.click()
    assert page.get_attribute("#cause-table th[aria-sort]", "aria-sort") == "ascending"
    made.context.close()


def test_room_is_kept_for_pictures_that_did_not_come(browser, address):
    heights = []
    for pattern in ("**/nothing", "**/assets/charts/*"):
        made = Visitor(browser, address, java_script_enabled=False, **MODES["phone"])
        made.page.route(pattern, lambda route: route.abort())
        pictures = made.go("kernels/sigreg/").evaluate(PICTURES)
        heights.append([(key, height) for key, _, height in pictures])
        made.context.close()
    assert heights[0] == heights[1] and len(heights[0]) == 3


COLOURS_SEEN = """(async () => {
    const [picture] = [...document.querySelectorAll('#theory-chart img')]
        .filter(one => getComputedStyle(one).display !== 'none');
    picture.loading = 'eager';
    await picture.decode();
    const pen = new OffscreenCanvas(720, 360).getContext('2d');
    pen.drawImage(picture, 0, 0, 720, 360);
    const { data } = pen.getImageData(0, 0, 720, 360);
    const solid = Array.from({ length: data.length / 4 }, (_, i) => data.slice(4 * i, 4 * i + 4))
        .filter(([,,, opaque]) => opaque === 255).map(colour => colour.slice(0, 3).join());
    return [...new Set(solid)];
})()"""


def test_pictures_have_light_ink_on_a_dark_page_alone_and_the_colours_of_the_others(
    browser, address
):
    made = Visitor(browser, address, **MODES["dark"])
    made.page.route(LIBRARY, lambda route: route.abort())
    page = made.go("kernels/sigreg/")
    screen = set(page.evaluate(COLOURS_SEEN))
    page.emulate_media(media="print")
    paper = set(page.evaluate(COLOURS_SEEN))
    light, dark = "219,227,234", "29,39,48"
    assert (light in screen, dark in screen) == (True, False)
    assert (light in paper, dark in paper) == (False, True)
    ours = {",".join(str(int(c[i : i + 2], 16)) for i in (1, 3, 5)) for c in COLOURS[:-1]}
    assert ours & screen == ours & paper != set()
    made.context.close()
