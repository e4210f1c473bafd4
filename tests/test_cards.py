import json
import math
import tempfile
from pathlib import Path

import pytest
import synthetic
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.history.load import load_history
from dashboard.regressions import commit_tables

PACKED = (1, "sinkhorn", "triton-packed")
SMALL = {"ops": ("sinkhorn",), "sweep": 3, "failures": False, "samples": 9, "noise": 5e-4}
TWO_CARDS = {0: "aaaaaaaaaaaa", 1: "bbbbbbbbbbbb"}
MOVED = {"regressed", "improved"}


def table(**changes):
    """Return the table of two commits; at 64 matrices each case takes little but its floor."""
    with tempfile.TemporaryDirectory() as name:
        plan = {"commits": 2, "replicates": 4, "timers": ("graph",)} | SMALL | changes
        synthetic.build(Path(name), synthetic.Plan(**plan))
        return commit_tables(load_history(Path(name)))[0]


def of(found, implementation):
    return [row for row in found.rows if row.key.implementation == implementation]


def kinds(rows):
    return {cause.kind for row in rows for cause in row.causes}


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 0.06))
@example(1888, 0.005129419432323249)
def test_two_cards_alone_make_no_regression(seed, spread):
    found = table(seed=seed, spread=spread, uuids=TWO_CARDS)
    assert not MOVED & set(found.counts)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 0.02))
def test_a_kernel_ten_per_cent_slower_is_found_on_another_card(seed, spread):
    found = table(seed=seed, spread=spread, uuids=TWO_CARDS, effects={PACKED: 1.1})
    moved = [row for row in found.rows if row.verdict in MOVED]
    assert {(row.key.implementation, row.verdict) for row in moved} == {
        ("triton-packed", "regressed")
    }
    assert len(moved) == len(of(found, "triton-packed"))


@given(st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_offsets_of_one_card_cancel(seed):
    assert set(table(seed=seed, spread=0.06).counts) <= {"unchanged", "inconclusive"}


def test_a_change_within_what_cards_differ_by_says_so():
    found = table(seed=3, spread=0.06, uuids=TWO_CARDS, effects={PACKED: 1.02})
    (floor,) = found.card_floors.values()
    assert 0.02 < floor < 0.13
    assert "inconclusive" in {row.verdict for row in of(found, "triton-packed")}
    assert kinds(of(found, "triton-packed")) == {"card"}


@pytest.mark.parametrize("uuids, kind", [({}, "not-ours"), (TWO_CARDS, "card")])
def test_pytorch_that_moves_is_told_not_to_be_this_projects_kernel(uuids, kind):
    found = table(uuids=uuids, effects={(1, "sinkhorn", "torch"): 1.2})
    assert kinds(of(found, "torch")) == {kind}
    assert {row.verdict for row in of(found, "torch")} == (
        {"inconclusive"} if uuids else {"regressed"}
    )


def test_what_torch_compile_picks_anew_hides_no_change_on_another_card():
    twice = (1, "sinkhorn", "torch.compile")
    found = table(seed=3, uuids=TWO_CARDS, effects={twice: 2.4, PACKED: 1.1})
    assert {row.verdict for row in of(found, "triton-packed")} == {"regressed"}
    assert {row.verdict for row in of(found, "torch.compile")} == {"inconclusive"}
    assert kinds(of(found, "torch.compile")) == {"card"}


def test_a_card_without_a_name_is_taken_for_the_same(tmp_path):
    synthetic.build(tmp_path, synthetic.Plan(**SMALL, commits=2, replicates=4, uuids=TWO_CARDS))
    path = sorted(tmp_path.rglob("*.jsonl"))[0]
    first, *rest = path.read_text().splitlines()
    run = json.loads(first)
    del run["device"]["uuid_hash"]
    path.write_text("\n".join([json.dumps(run), *rest]) + "\n")
    (found,) = commit_tables(load_history(tmp_path))
    assert found.card_floors == {}


def test_a_moved_sentinel_raises_the_floor_of_every_op():
    plan = {"ops": ("rms_norm", "sinkhorn"), "timers": ("graph", "call"), "sweep": 2}
    found = table(seed=1, spread=0.05, uuids=TWO_CARDS, **plan)
    host = ("empty-call", "empty-submit")
    device = [abs(drift.log_ratio) for name, drift in found.drifts.items() if name not in host]
    assert set(found.card_floors) == {
        (op, timer) for op in ("rms_norm", "sinkhorn") for timer in ("graph", "call")
    }
    assert all(math.log1p(floor) >= max(device) for floor in found.card_floors.values())
