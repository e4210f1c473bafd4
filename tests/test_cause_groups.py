"""The page of regressions: one cause told once, and filters that the address keeps."""

import dataclasses
import math
from statistics import fmean

import pytest

from collector.history.load import load_history
from dashboard.cause_groups import cause_groups, kinds_of, regime_of
from dashboard.format import moved
from dashboard.regressions import commit_tables
from tests import synthetic
from tests.test_browser import MODES, OVERFLOW
from tests.test_regressions import rewrite
from tests.visiting import Visitor, build, needs_chromium

PLAN = synthetic.Plan(
    commits=8, replicates=4, samples=9, sweep=9, caches=("cold",), failures=False,
    effects={(2, "sinkhorn", "triton-packed"): 1.3, (5, "rms_norm", "triton"): 0.8},
    sass={(5, "rms_norm", "triton"): "b"},
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    synthetic.build(folder, PLAN)
    return folder


@pytest.fixture(scope="module")
def history(data):
    return load_history(data)


@pytest.fixture(scope="module")
def groups(history):
    return cause_groups(history, commit_tables(history))


def test_every_changed_series_is_in_one_group_of_its_commit(history, groups):
    grouped = [(g.table.after.sha, row.key) for g in groups for row in g.rows]
    changed = [
        (table.after.sha, row.key)
        for table in commit_tables(history)
        for row in table.rows
        if row.verdict in ("broken", "regressed", "improved", "same-code")
    ]
    assert sorted(grouped) == sorted(changed) and len(set(grouped)) == len(grouped) > 20


def test_series_of_a_group_share_verdict_regime_and_causes(history, groups):
    for group in groups:
        told = {(row.verdict, regime_of(history, row), kinds_of(row)) for row in group.rows}
        assert told == {(group.verdict, group.regime, group.causes)}


def test_small_and_large_sizes_of_one_change_have_regimes_of_their_own(groups):
    slower = [g for g in groups if g.verdict == "regressed" and "source" in g.causes]
    assert {"latency", "special"} <= {g.regime for g in slower}


def test_change_and_its_time_are_those_of_the_records(groups):
    for group in groups:
        ratios = [math.log(row.after.median_ns / row.before.median_ns) for row in group.rows]
        apart = [row.after.median_ns - row.before.median_ns for row in group.rows]
        assert group.mean_log == pytest.approx(fmean(ratios), abs=0.01)
        assert group.apart_ns == pytest.approx((min(apart), max(apart)))


def test_line_over_commits_is_level_and_steps_where_the_change_was(groups):
    group = next(g for g in groups if g.table.after.sha == PLAN.shas()[2])
    heights = [float(pair.split()[1]) for pair in group.spark.line[1:].split("L")]
    assert len(heights) == 8
    before, after = heights[:2], heights[2:]
    assert max(before) - min(before) < 2 and max(after) - min(after) < 2
    assert min(before) - max(after) > 20 and fmean(before) == pytest.approx(group.spark.one, abs=1)


@pytest.mark.parametrize("field", ["method_id", "workload_hash"])
def test_line_over_commits_leaves_out_what_another_method_or_workload_gave(tmp_path, field):
    synthetic.build(tmp_path, dataclasses.replace(PLAN, commits=5, ops=("sinkhorn",), sweep=2))
    rewrite(tmp_path, 4, lambda v: v | {field: "e" * 12} if "case" in v else v)
    history = load_history(tmp_path)
    found = cause_groups(history, commit_tables(history))
    assert {group.spark.line.count("L") for group in found} == {3}  # four commits of five


def test_accepted_changes_have_a_state_of_their_own(tmp_path):
    synthetic.build(tmp_path, PLAN)
    sha = PLAN.shas()[2]
    (tmp_path / "acknowledged.yml").write_text(
        f"- device: nvidia-h200\n  op: sinkhorn\n  commit: {sha[:12]}\n  reason: wanted\n"
        "  by: Ada\n  when: 2026-03-01\n"
    )
    history = load_history(tmp_path)
    found = cause_groups(history, commit_tables(history))
    states = {g.table.after.sha: g.states for g in found if g.verdict == "regressed"}
    assert history.acknowledged and states[sha] == ["acknowledged"]


@pytest.mark.parametrize(("ns", "text"), [(2100.0, "+2.10 µs"), (-40.0, "−40.0 ns")])
def test_difference_of_times_has_its_sign(ns, text):
    assert moved(ns) == text


# In a browser -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(data, tmp_path_factory):
    return build(data, tmp_path_factory.mktemp("site") / "site")


@needs_chromium
@pytest.mark.parametrize("mode", MODES)
def test_page_is_whole_and_no_wider_than_the_window(browser, address, mode):
    made = Visitor(browser, address, **MODES[mode])
    page = made.go("regressions/")
    assert page.locator("#cause-table svg.ka-spark").first.is_visible()
    for details in page.query_selector_all("details"):
        details.evaluate("one => { one.open = true; }")
    assert page.locator("#levels-table svg.ka-spark").first.is_visible()
    assert page.evaluate(OVERFLOW) <= 0 and made.faults == []
    made.context.close()


@needs_chromium
def test_one_filter_narrows_all_tables_and_stays_in_the_address(browser, address):
    made = Visitor(browser, address, **MODES["light"])
    page = made.go("regressions/")
    assert page.locator("#changes-table").is_hidden()
    page.select_option("select[name=regime]", "memory")
    assert "regime=memory" in page.url
    page.goto(page.url)
    assert page.locator("#changes-table").is_visible()
    for table in ("cause-table", "changes-table", "levels-table"):
        rows = page.locator(f"#{table} tbody tr:visible")
        assert {row.get_attribute("data-regime") for row in rows.all()} == {"memory"}, table
    page.select_option("select[name=regime]", "")
    assert "regime" not in page.url and made.faults == []
    made.context.close()
