"""What the page of health says of comparisons of unchanged code."""

import re
from pathlib import Path

import pytest

from collector.history.load import load_history
from collector.history.sides import Index
from dashboard.book import make_book
from dashboard.environment import environment
from dashboard.facts import health
from dashboard.links import Links
from dashboard.regressions import commit_tables
from dashboard.trust import trust
from tests.test_calibration import plan, second_half_of, written

TEMPLATES = environment(Path(__file__).parent.parent / "templates")
COMMAND = "python -m collector collect --calibrate"


def section(data):
    """Return the words of the section, without markup."""
    history = load_history(data)
    book = make_book(history, TEMPLATES, Links(), "assets/plotly.js", "")
    ((_, page),) = health(book, commit_tables(history))
    part = page.decode().split('<h2 id="unchanged">')[1].split("<h2 ")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", part))


def test_false_alarms_of_a_calibration_are_told_with_their_direction(tmp_path):
    written(tmp_path, plan(), slow=second_half_of("triton-packed", 1.05))
    told = section(tmp_path)
    name = load_history(tmp_path).devices["nvidia-h200"].name
    assert f"{name} 1 0 20 20 4 0 80.0 %" in told
    assert COMMAND not in told


@pytest.mark.parametrize(("replicates", "known"), [(6, 20), (1, 0)])
def test_runs_of_one_commit_stand_in_and_the_command_is_named(tmp_path, replicates, known):
    for run_id, seed in (("a" * 16, 0), ("b" * 16, 5)):
        again = plan(seed=seed, commits=plan().shas(), replicates=replicates)
        written(tmp_path, again, purpose="measure", run_id=run_id)
    told = section(tmp_path)
    assert f" 0 1 20 {known} 0 0 " in told and COMMAND in told
    if not known:
        assert "0 1 20 0 0 0 – " in told


def test_device_without_any_is_told_how_to_get_one(tmp_path):
    written(tmp_path, plan(), purpose="measure")
    told = section(tmp_path)
    assert " 0 0 0 0 – – – " in told and COMMAND in told


def test_intervals_that_hold_no_change_are_counted_one_by_one(tmp_path):
    written(tmp_path, plan(noise=0.01))
    (one,) = trust(Index(load_history(tmp_path)))
    judged = [judged for test in one.found.tests for _, judged in test.judged]
    holding = [j for j in judged if j.comparison.low <= 0 <= j.comparison.high]
    assert one.intervals == len(judged) == 20
    assert one.holding == len(holding) >= 15


def test_series_that_could_hide_most_come_first(tmp_path):
    written(tmp_path, plan(noise=0.01))
    (one,) = trust(Index(load_history(tmp_path)))
    changes = [series.detectable for series in one.series]
    assert changes == sorted(changes, reverse=True) and len(set(changes)) > 1
