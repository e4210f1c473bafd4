"""The page that compares any two ends: what it holds, and how it is used in a browser."""

import json
import math
import re

import pytest

from collector.compare import Request, compare
from collector.history.load import load_history
from collector.history.sides import Index
from dashboard.book import make_book
from dashboard.compare_ends import ends_of, rows_of
from dashboard.compare_page import compare_page
from dashboard.drawing import unpack
from dashboard.environment import environment
from dashboard.links import Links
from dashboard.regressions import commit_tables
from tests import synthetic
from tests.test_browser import MODES, OVERFLOW
from tests.visiting import ROOT, Visitor, build, needs_chromium

PLAN = synthetic.Plan(
    commits=4, replicates=4, sweep=3, samples=9, cards=(synthetic.H200, synthetic.CPU),
    effects={(3, "sinkhorn", "triton-packed"): 1.3}, versions={1: {"torch": "2.12.0"}},
    uuids={1: "0123456789ab"},
)  # fmt: skip
SHAS = PLAN.shas()
SLUG = synthetic.H200.slug
INDEX = re.compile(r"data-index>(.*?)</script>", re.DOTALL)


def pages(history):
    book = make_book(history, environment(ROOT / "templates"), Links(), "assets/plotly.js", "")
    return dict(compare_page(book, commit_tables(history)))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    synthetic.build(folder, PLAN)
    return folder


@pytest.fixture(scope="module")
def files(data):
    return pages(load_history(data))


@pytest.fixture(scope="module")
def lookup(files):
    return json.loads(INDEX.search(files["compare.md"].decode())[1])


def end(number, card=SLUG):
    return f"{SHAS[number][:12]}.{card}"


def content(files, lookup, name):
    return unpack(files[f"assets/data/{lookup['shards'][name]}.js"])


def test_page_without_a_choice_holds_the_newest_two_commits_of_the_gpu(lookup):
    assert lookup["default"] == [end(2), end(3)]


def test_verdicts_of_the_page_are_those_of_the_command(files, lookup, data):
    told = content(files, lookup, f"{end(2)}|{end(3)}")["rows"]
    rows = content(files, lookup, end(3))["rows"]
    names = ("op", "implementation", "mode", "dtype")
    mine = {(*rows[row[0]][:7],): row[1:4] for row in told}
    asked = Request(SHAS[3], SHAS[2], data=data, device=SLUG)
    theirs = {
        (
            *(getattr(row.key, name) for name in names),
            ",".join(f"{name}={size}" for name, size in row.key.sizes),
            row.key.timer,
            row.key.cache,
        ): row
        for row in compare(asked).devices[0].rows
        if row.judgement
    }
    assert mine.keys() == theirs.keys() and len(mine) > 20
    for key, (verdict, log_ratio, low) in mine.items():
        one = theirs[key].judgement.comparison
        assert verdict == theirs[key].verdict
        assert log_ratio == pytest.approx(one.log_ratio, rel=1e-5)
        assert low == pytest.approx(one.low, rel=1e-5)


def test_every_end_has_its_times_replicates_and_environment(files, lookup):
    for number in range(4):
        made = content(files, lookup, end(number))
        assert made["unit"] == "ns" and made["replicates"] == 4
        assert made["environment"]["torch"] == ("2.12.0" if number == 1 else "2.11.0")
        assert all((row[9] is None) == bool(row[11]) for row in made["rows"])


def test_series_with_a_time_and_its_reason_are_those_of_the_records(data):
    history = load_history(data)
    index = Index(history)
    for one in ends_of(index):
        rows = rows_of(index, one)
        points = {
            (key, point.median_ns)
            for key, line in history.series.items()
            for point in line
            if point.run_id == one.newest.run_id
        }
        assert {(row.key, row.point.median_ns) for row in rows} == points


def test_run_of_a_changed_tree_is_an_end_of_its_own(tmp_path):
    plan = synthetic.Plan(commits=2, replicates=2, sweep=1, dirty=frozenset({1}))
    synthetic.build(tmp_path, plan)
    alone = [one for one in ends_of(Index(load_history(tmp_path))) if one.alone]
    assert len(alone) == 1 and "with local changes" in alone[0].name
    assert alone[0].target.startswith("data/runs/")


def test_runs_of_one_commit_are_joined_and_offered_apart(tmp_path):
    for seed in (0, 1):
        synthetic.build(
            tmp_path, synthetic.Plan(seed=seed, commits=SHAS[:1], replicates=2, sweep=1)
        )
    index = Index(load_history(tmp_path))
    joined, *alone = ends_of(index)
    assert [len(one.runs) for one in (joined, *alone)] == [2, 1, 1]
    times = [
        {row.key: row.point.medians_ns for row in rows_of(index, one)} for one in (joined, *alone)
    ]
    for key, medians in times[0].items():
        if medians:
            assert sorted(medians) == sorted(times[1][key] + times[2][key])


def test_one_run_alone_is_nothing_to_compare(tmp_path):
    synthetic.build(tmp_path, synthetic.Plan(commits=1, replicates=1, sweep=1))
    made = pages(load_history(tmp_path))
    assert "Nothing to compare yet" in made["compare.md"].decode()


def test_names_in_records_cannot_become_markup(tmp_path):
    hostile = "</script><img src=x onerror=alert(1)>"
    plan = synthetic.Plan(commits=2, replicates=1, sweep=1, subjects={0: hostile, 1: hostile})
    synthetic.build(tmp_path, plan)
    assert b"<img" not in pages(load_history(tmp_path))["compare.md"]


# In a browser -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(data, tmp_path_factory):
    return build(data, tmp_path_factory.mktemp("site") / "site")


@pytest.fixture
def desktop(browser, address):
    made = Visitor(browser, address, **MODES["light"])
    yield made
    assert made.faults == []
    made.context.close()


def text(page, words):
    page.wait_for_function(
        "t => document.querySelector('[data-result]').innerText.includes(t)", arg=words
    )
    return page.inner_text("[data-result]")


def saved(page, kind):
    with page.expect_download() as found:
        page.click(f"[data-save={kind}]")
    return found.value.path().read_text()


@needs_chromium
@pytest.mark.parametrize("mode", MODES)
def test_page_is_whole_and_no_wider_than_the_window(browser, address, mode):
    visitor = Visitor(browser, address, **MODES[mode])
    for path in ("compare/", f"compare/?a={SHAS[0][:8]}"):
        page = visitor.go(path)
        text(page, "slower")
        for summary in page.locator("[data-result] summary").all():
            summary.click()
        assert page.evaluate(OVERFLOW) <= 0
        assert visitor.faults == []
    visitor.context.close()


@needs_chromium
def test_page_shows_its_default_without_a_script(browser, address):
    made = Visitor(browser, address, java_script_enabled=False, **MODES["dark"])
    page = made.go("compare/")
    shown = page.inner_text("[data-result]")
    assert "▲ slower" in shown and f"collector compare {SHAS[3][:12]}" in shown
    assert page.is_hidden("form[data-compare]")
    made.context.close()


def without_times(cells):
    """Leave out the times: the data file keeps six of their digits."""
    return cells[:4] + cells[6:]


@needs_chromium
def test_script_shows_what_the_build_wrote(desktop):
    page = desktop.go("compare/")
    cells = (
        "[...document.querySelectorAll('[data-result] > .ka-scroll tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    static = page.evaluate(cells)
    page.select_option("select[name=op]", "sinkhorn")
    page.wait_for_function("document.querySelector('[data-result]').innerText.includes('--op')")
    live = page.evaluate(cells)
    wanted = [row for row in static if row[0].startswith("sinkhorn ")]
    assert len(live) > 5 and sorted(map(without_times, live)) == sorted(map(without_times, wanted))


@needs_chromium
def test_other_toolchain_is_told_first_and_its_ratios_are_not_called_verdicts(desktop):
    page = desktop.go(f"compare/?a={end(1)}&b={end(2, synthetic.CPU.slug)}")
    shown = text(page, "not judged")
    assert shown.index("torch 2.12.0 → 2.11.0") < shown.index("not judged")
    assert not re.search("slower|faster|unchanged", shown)
    assert "no command judges these two" in shown


@needs_chromium
def test_choice_is_kept_in_the_address_and_defaults_are_left_out(desktop):
    page = desktop.go("compare/")
    page.focus("select[name=a]")
    page.keyboard.press("ArrowDown")
    text(page, SHAS[1][:8])
    assert f"a={end(1)}" in page.url and "b=" not in page.url
    page.goto(page.url)
    assert SHAS[1][:8] in text(page, "torch 2.12.0")
    page.select_option("select[name=a]", end(2))
    text(page, "slower")
    assert "?" not in page.url


@needs_chromium
def test_address_that_asks_for_what_is_not_there_is_told(desktop):
    page = desktop.go("compare/?a=nowhere&zz=1")
    page.wait_for_selector("[data-notice]:not([hidden])")
    assert "a=nowhere, zz=1" in page.inner_text("[data-notice]")


@needs_chromium
def test_files_hold_the_rows_that_are_seen(desktop):
    page = desktop.go("compare/?op=sinkhorn&timer=graph")
    text(page, "slower")
    rows = json.loads(saved(page, "json"))["rows"]
    assert {(row["op"], row["timer"]) for row in rows} == {("sinkhorn", "graph")}
    slower = [row for row in rows if row["verdict"] == "regressed"]
    assert {row["implementation"] for row in slower} == {"triton-packed"}
    for row in slower:
        assert math.isclose(row["ratio"], row["after_ns"] / row["before_ns"], rel_tol=0.02)
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    lines = saved(page, "csv").splitlines()
    assert len(lines) == len(rows) + 1 and lines[0].startswith("op,implementation,mode,dtype")


@needs_chromium
def test_sides_are_swapped_and_one_side_twice_is_told(desktop):
    page = desktop.go("compare/")
    page.click("[data-swap]")
    assert "not judged" in text(page, f"--baseline {SHAS[3][:12]}")
    page.select_option("select[name=a]", end(2))
    text(page, "Both sides hold the same run")


@needs_chromium
def test_page_works_from_a_folder_without_a_server(browser, site):
    made = Visitor(browser, f"{site.as_uri()}/", **MODES["light"])
    page = made.go("compare/index.html")
    page.select_option("select[name=a]", end(0))
    text(page, f"Before: {SHAS[0][:8]}")
    assert made.faults == []
    made.context.close()
