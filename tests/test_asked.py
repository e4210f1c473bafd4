"""Missing is what a run was asked for and has not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.history.asked import choices, was_asked
from collector.history.load import load_history
from collector.history.model import SeriesKey
from dashboard.regressions import commit_tables
from tests import synthetic
from tests.test_regressions import case, of, rewrite, tables, verdicts

KEY = SeriesKey(
    device="d", op="rms_norm", implementation="triton", mode="forward", dtype="float16",
    sizes=(("hidden", 4096), ("rows", 64)), timer="graph", cache="cold",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    synthetic.build(folder, synthetic.Plan(commits=1, ops=("rms_norm",), sweep=2))
    (one,) = load_history(folder).runs.values()
    return one


def asking(run, *words):
    return replace(run, command=("python", "-m", "collector", "collect", *words))


@pytest.mark.parametrize("words", [
    (), ("--op", "rms_norm"), ("--implementation", "torch", "--implementation", "triton"),
    ("--dtype", "float16"), ("--dtype=float16",), ("--mode", "forward"), ("--timer", "graph"),
    ("--cache", "cold", "--budget", "90s"), ("--workload", "rows=64,hidden=4096"),
    ("--workload", "default", "--workload=rows=64"), ("--replicates", "5"),
])  # fmt: skip
def test_run_that_chose_a_series_was_asked_for_it(run, words):
    assert was_asked(asking(run, *words), KEY, run)


@pytest.mark.parametrize("words", [
    ("--implementation", "torch"), ("--dtype", "bfloat16"), ("--mode", "backward"),
    ("--timer", "call"), ("--cache=hot",), ("--workload", "rows=32"), ("--workload", "full"),
    ("--ranks", "2"),
])  # fmt: skip
def test_run_that_chose_others_was_not(run, words):
    assert not was_asked(asking(run, *words), KEY, run)


@pytest.mark.parametrize("key", [
    KEY._replace(op="swiglu"), KEY._replace(mode="full"), KEY._replace(timer="submit"),
    KEY._replace(sizes=(("ranks", 2), ("slices", 64))),
])  # fmt: skip
def test_usual_choice_takes_in_no_other_op_mode_timer_or_rank(run, key):
    assert not was_asked(run, key, run)


def test_ranks_and_modes_of_named_sizes_are_asked_for(run):
    ranked = KEY._replace(sizes=(("ranks", 2), ("slices", 64)))
    assert was_asked(
        asking(run, "--ranks", "1", "--ranks", "2"), ranked, asking(run, "--ranks", "2")
    )
    assert was_asked(asking(run, "--workload", "rows=64"), KEY._replace(mode="full"), run)


def test_tag_counts_where_both_runs_named_it(run):
    full = asking(run, "--workload", "full")
    assert was_asked(full, KEY, full) and not was_asked(run, KEY, full)


@pytest.mark.parametrize("outcome", ["budget", "interrupted", "error"])
def test_nothing_is_missing_from_a_run_that_ended_early(run, outcome):
    assert not was_asked(
        replace(run, end=run.end.model_copy(update={"outcome": outcome})), KEY, run
    )
    assert not was_asked(replace(run, end=None), KEY, run)


@given(st.lists(st.sampled_from(["--op", "--op=a", "--dtype", "a", "", "=", "--"]), max_size=6))
def test_any_command_line_is_read(words):
    assert all(name.startswith("--") for name in choices(words))


def test_implementations_left_out_by_choice_are_not_missing(tmp_path):
    tables(tmp_path, commits=2)
    words = ["collector", "collect", "--implementation", "torch.compile"]

    def only_compiled(value):
        if value["kind"] == "run":
            return value | {"command": words}
        return value if case(value)["implementation"] in (None, "torch.compile") else None

    rewrite(tmp_path, 1, only_compiled)
    (table,) = commit_tables(load_history(tmp_path))
    assert "missing" not in table.counts
    assert verdicts(of(table, "torch.compile")) == {"unchanged"}
