import pytest
import synthetic

from collector.history.acknowledged import read_acknowledged
from collector.history.load import load_history
from dashboard.regressions import commit_tables

EFFECTS = {(1, "sinkhorn", "triton-packed"): 1.05, (1, "sinkhorn", "triton-global"): 1.05}


@pytest.fixture
def data(tmp_path):
    plan = synthetic.Plan(
        commits=2, replicates=4, ops=("sinkhorn",), sweep=1, failures=False, noise=5e-4,
        effects=EFFECTS,
    )  # fmt: skip
    synthetic.build(tmp_path, plan)
    return tmp_path


NAMED = "- device: a\n  op: b\n  commit: abcdef0\n"
WHOLE = f"{NAMED}  reason: c\n  by: d\n  when: 2026-03-01\n"


def write(data, text):
    (data / "acknowledged.yml").write_text(text)


def accepted(data):
    (table,) = commit_tables(load_history(data))
    assert table.counts["regressed"] == 8
    return {row.key.implementation: row.acknowledged for row in table.rows if row.acknowledged}


def entry(data, **changes):
    sha = load_history(data).commits[1].sha
    fields = {
        "device": "nvidia-h200",
        "op": "sinkhorn",
        "commit": sha,
        "reason": "exact division",
        "by": "Ada",
        "when": "2026-03-01",
    }
    return "- " + "\n  ".join(f"{name}: '{text}'" for name, text in (fields | changes).items())


def test_regression_that_people_accepted_stays_one_and_carries_their_reason(data):
    write(data, entry(data, implementation="triton-packed"))
    assert accepted(data) == {"triton-packed": "exact division (Ada, 2026-03-01)"}


def test_entry_without_an_implementation_holds_for_the_whole_op(data):
    write(data, entry(data))
    assert set(accepted(data)) == {"triton-packed", "triton-global"}


def test_short_commit_is_enough_and_another_device_op_or_commit_is_not(data):
    sha = load_history(data).commits[1].sha
    write(data, entry(data, commit=sha[:8]))
    assert accepted(data)
    for other in ({"device": "cpu"}, {"op": "rms_norm"}, {"commit": "0" * 40}):
        write(data, entry(data, **other))
        assert accepted(data) == {}


@pytest.mark.parametrize("text, words", [
    (NAMED, "reason is missing"), (NAMED, "by is missing"), (NAMED, "when is missing"),
    (f"{WHOLE}  until: d\n", "unknown until"),
    (WHOLE.replace("abcdef0", "abc"), "at least 7"),
    (WHOLE.replace("2026-03-01", "March 2026"), "a date such as"),
    (WHOLE.replace("2026-03-01", "2026-13-01"), "a date such as"),
    ("- just words\n", "must name"),
    ("device: a\n", "must be a list"),
    ("- [unclosed\n", "cannot be read"),
])  # fmt: skip
def test_bad_entry_is_a_problem_and_accepts_nothing(tmp_path, text, words):
    write(tmp_path, text)
    entries, (problem,) = read_acknowledged(tmp_path)
    assert entries == ()
    assert words in problem.message
    assert load_history(tmp_path).problems == (problem,)


def test_a_commit_that_looks_like_a_number_is_one_all_the_same(tmp_path):
    write(tmp_path, WHOLE.replace("abcdef0", "0123456"))
    ((one,), problems) = read_acknowledged(tmp_path)
    assert one.commit == "0123456" and not problems


@pytest.mark.parametrize("text", ["", "[]\n", "# nothing yet\n"])
def test_no_entry_is_no_problem(tmp_path, text):
    write(tmp_path, text)
    assert read_acknowledged(tmp_path) == ((), [])
