"""What a reader takes along from a page: its link, the cases that it shows, and the command."""

import csv
import json
import shlex
from pathlib import Path

import pytest

from collector.history.load import load_history
from collector.plan import CollectOptions, plan
from dashboard.book import make_book
from dashboard.environment import environment
from dashboard.links import Links
from dashboard.rows import command_of_all, rows
from kernels.registry import load_ops
from tests import synthetic
from tests.visiting import ROOT, Visitor, build, needs_chromium

pytestmark = pytest.mark.timeout(300)
HOT = "?cache=hot&s=torch.compile~triton-packed"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    synthetic.build(folder, commits=2, replicates=2, sweep=4, timers=("graph",))
    return folder


@pytest.fixture(scope="module")
def site(data, tmp_path_factory):
    return build(data, tmp_path_factory.mktemp("site") / "site")


@pytest.fixture
def visitor(browser, address):
    made = Visitor(browser, address, permissions=["clipboard-read", "clipboard-write"])
    yield made
    assert made.faults == []
    made.context.close()


def taken(page, kind):
    with page.expect_download() as waiting:
        page.get_by_role("button", name=kind.upper(), exact=True).click()
    assert waiting.value.suggested_filename.endswith(f".{kind}")
    return Path(waiting.value.path()).read_text()


def newest(data):
    history = load_history(data)
    for key, points in history.series.items():
        sizes = {f"sizes.{name}": str(size) for name, size in key.sizes}
        yield key, sizes, points[-1]


@needs_chromium
def test_csv_holds_the_cases_that_are_seen_and_no_others(visitor, data):
    page = visitor.go(f"kernels/sinkhorn/{HOT}")
    page.wait_for_selector(".ka-drawn")
    found = {
        (row["implementation"], row["sizes.batch"]): row
        for row in csv.DictReader(taken(page, "csv").splitlines())
    }
    wanted = {
        (key.implementation, sizes["sizes.batch"]): (sizes, point)
        for key, sizes, point in newest(data)
        if key.op == "sinkhorn" and key.cache == "hot"
        and key.implementation in ("torch.compile", "triton-packed")
    }  # fmt: skip
    assert found.keys() == wanted.keys() and len(found) == 8
    for name, (sizes, point) in wanted.items():
        assert float(found[name]["median_ns"]) == pytest.approx(point.median_ns, rel=1e-5)
        assert found[name].items() >= sizes.items()
        assert found[name]["record"] == f"data/{point.location}"


@needs_chromium
def test_json_holds_the_same_cases_and_the_address_that_shows_them(visitor):
    page = visitor.go(f"kernels/sinkhorn/{HOT}")
    page.wait_for_selector(".ka-drawn")
    told = json.loads(taken(page, "json"))
    assert told["address"] == page.url and told["address"].endswith(HOT)
    cases = {(one["implementation"], one["sizes"]["batch"]): one for one in told["cases"]}
    rows_of_csv = list(csv.DictReader(taken(page, "csv").splitlines()))
    assert len(rows_of_csv) == len(cases) == 8
    for row in rows_of_csv:
        one = cases[row["implementation"], int(row["sizes.batch"])]
        assert float(row["median_ns"]) == one["median_ns"]


@needs_chromium
def test_files_of_the_roofline_hold_the_paths_that_are_seen(visitor):
    page = visitor.go("roofline/?s=sinkhorn")
    page.wait_for_selector(".ka-drawn")
    cases = json.loads(taken(page, "json"))["cases"]
    assert {one["op"] for one in cases} == {"sinkhorn"}
    assert len({one["implementation"] for one in cases}) == 1 and len(cases) == 4


@needs_chromium
@pytest.mark.parametrize("path", ["kernels/sinkhorn/", "roofline/", "compare/"])
def test_copied_link_is_that_of_what_is_seen(visitor, path):
    page = visitor.go(path)
    page.wait_for_load_state("load")
    page.get_by_role("button", name="copy link").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url


@pytest.mark.parametrize("op", ["sinkhorn", "qk_dot", "sigreg"])
def test_one_command_measures_all_cases_of_a_view_and_no_others(op):
    history = load_history(ROOT / "data")
    book = make_book(history, environment(ROOT / "templates"), Links(), "assets/plotly.js", "")
    found = rows(book.scene(next(iter(book.views[op].values()))))
    words = shlex.split(command_of_all(found))
    asked: dict[str, list[str]] = {}
    for name, value in zip(words[4::2], words[5::2], strict=True):
        asked.setdefault(name, []).append(value)
    options = CollectOptions(
        ops=tuple(asked["--op"]), implementations=tuple(asked["--implementation"]),
        workloads=tuple(asked["--workload"]), modes=tuple(asked["--mode"]),
        dtypes=tuple(asked["--dtype"]), timers=tuple(asked["--timer"]),
        caches=tuple(asked["--cache"]),
    )  # fmt: skip
    jobs = {(job.implementation, frozenset(job.workload.sizes.items()))
            for job in plan(load_ops(), options, "cuda")}  # fmt: skip
    timed = [row.key for row in found if row.point.median_ns is not None]
    assert {(key.implementation, frozenset(key.sizes)) for key in timed} == jobs
