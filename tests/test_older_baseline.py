"""Series that the commit before did not measure alike go by an older commit that did."""

import json
from dataclasses import replace

import pytest

from collector.compare import Request, compare
from collector.compare_report import as_json
from collector.compare_words import notes_of
from collector.history.load import load_history
from dashboard.cause_groups import cause_groups
from dashboard.regressions import commit_tables
from tests import synthetic
from tests.test_regressions import SMALL, case, in_code, in_part, of, rewrite, tables, verdicts

LATER = (2, "sinkhorn", "triton-packed")


def other_way(field):
    """Measure one implementation in another way."""

    def change(value):
        mine = case(value)["implementation"] == "triton-packed"
        return value | {field: "e" * 12} if mine else value

    return change


@pytest.fixture
def folder(tmp_path):
    """Three commits, the last slower; the second measured that kernel by another method."""
    tables(tmp_path, commits=3, effects={LATER: 1.05})
    rewrite(tmp_path, 1, other_way("method_id"))
    return tmp_path


@pytest.mark.parametrize("field", ["method_id", "workload_hash"])
def test_series_goes_by_the_newest_commit_that_measured_it_alike(tmp_path, field):
    tables(tmp_path, commits=4, effects={(3, *LATER[1:]): 1.05})
    rewrite(tmp_path, 2, other_way(field))
    newest, middle, oldest = commit_tables(load_history(tmp_path))
    slower = of(newest, "triton-packed")
    assert verdicts(slower) == {"regressed"}
    assert newest.older == {oldest.after.sha: len(slower)}
    assert verdicts(of(middle, "triton-packed")) == {"incomparable"}
    assert middle.older == oldest.older == {}


def test_range_of_a_change_begins_where_its_time_before_was_measured(folder):
    history = load_history(folder)
    found = cause_groups(history, commit_tables(history))
    assert {g.before.subject for g in found} == {"Change number 0"}
    assert {g.table.after.subject for g in found} == {"Change number 2"}


def test_cause_is_told_from_what_differs_between_the_two_that_are_compared(folder):
    for run in range(3):
        rewrite(folder, run, in_code(source_hash="5" * 12))
    rewrite(folder, 1, in_part("versions", cuda="13.1"))
    newest, _ = commit_tables(load_history(folder))
    texts = {cause.text for row in of(newest, "triton-packed") for cause in row.causes}
    assert texts == {"The same source became other machine code (toolchain unknown)."}
    assert [(d.before, d.after) for d in newest.differences] == [("13.1", "13.0")]


def test_run_of_another_op_at_the_same_commit_is_no_cause(tmp_path):
    plan = synthetic.Plan(**SMALL, commits=2, replicates=4, effects={(1, *LATER[1:]): 1.05})
    synthetic.build(tmp_path, plan)
    for run in range(2):
        rewrite(tmp_path, run, in_code(source_hash="5" * 12))
    other = replace(plan, seed=9, commits=plan.shas(), ops=("rms_norm",))
    run, *rest = synthetic.run_records(other, synthetic.H200, 1)
    later = {"started_at": "2026-02-01T00:00:00Z", "versions": run.versions | {"cuda": "13.1"}}
    synthetic.write(tmp_path, [run.model_copy(update=later), *rest])
    (table,) = commit_tables(load_history(tmp_path))
    texts = {cause.text for row in of(table, "triton-packed") for cause in row.causes}
    assert texts == {"The same source became other machine code (toolchain unknown)."}


def test_terminal_and_json_name_the_older_commit(folder):
    first, _, last = load_history(folder).commits
    result = compare(Request(candidate=last.sha, data=folder))
    (note,) = [one for one in notes_of(result.devices[0]) if "older baseline" in one]
    assert note == f"older baseline: 8 series against {first.sha[:8]}, which measured them alike"
    rows = json.loads(as_json(result))["devices"][0]["rows"]
    by = {row["before_commit"] for row in rows if row["implementation"] == "triton-packed"}
    assert by == {first.sha}
