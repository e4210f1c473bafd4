import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from comparing import PACKED, error_of, file_of, in_run, plan, rewrite, told, verdicts

from collector.compare import Request, compare
from collector.compare_sides import CompareError
from collector.compare_words import notes_of

ROOT = Path(__file__).parent.parent


def test_run_that_is_in_the_data_counts_once(tmp_path):
    first, second = synthetic.build(tmp_path, plan())
    result = told(tmp_path, second, first)
    rows = result.devices[0].rows
    assert result.problems == ()
    counted = {(r.judgement.comparison.n_before, r.judgement.comparison.n_after) for r in rows}
    assert counted == {(6, 6)}
    assert told(tmp_path, second).devices[0].before.commit == plan().shas()[0]


def test_run_is_told_apart_from_other_runs_of_its_commit(tmp_path):
    synthetic.build(tmp_path, plan())
    one = file_of(tmp_path / "runs", 1, effects={PACKED: 1.05})
    assert "regressed" in verdicts(told(tmp_path, one, plan().shas()[1]))
    assert told(tmp_path, one).devices[0].table.before.sha == plan().shas()[0]


def test_working_tree_is_held_against_its_own_commit(tmp_path):
    synthetic.build(tmp_path, plan())
    one = file_of(tmp_path, 1, dirty=frozenset({1}), effects={PACKED: 1.05})
    result = told(tmp_path, one)
    assert result.devices[0].table.before.sha == plan().shas()[1]
    assert result.exit_code == 2


def test_run_without_a_commit_is_held_against_the_newest(tmp_path):
    synthetic.build(tmp_path, plan())
    one = rewrite(file_of(tmp_path, 0), in_run("source", commit=None))
    assert told(tmp_path, one).devices[0].table.before.sha == plan().shas()[1]


def test_named_baseline_is_not_filled_up_from_older_commits(tmp_path):
    shas = plan(commits=3).shas()
    paths = synthetic.build(tmp_path, plan(commits=3))
    rewrite(paths[1], lambda line: line if line.get("case", {}).get("timer") != "call" else None)
    timers = {
        name: {row.key.timer for row in told(tmp_path, shas[2], name).devices[0].judged}
        for name in ("previous", shas[1])
    }
    assert timers == {"previous": {"graph", "call"}, shas[1]: {"graph"}}


def test_first_commit_has_nothing_before_it(tmp_path):
    synthetic.build(tmp_path, plan())
    code, message = error_of(tmp_path, plan().shas()[0])
    assert code == 3 and "name a baseline" in message


def test_two_names_of_the_same_runs_are_refused(tmp_path):
    paths = synthetic.build(tmp_path, plan())
    sha = plan().shas()[1]
    assert error_of(tmp_path, sha, sha[:9])[0] == 1
    assert error_of(tmp_path, paths[0], paths[0])[0] == 1


@pytest.fixture
def repository(tmp_path):
    """Three commits, a tag on the second, data of all three in an order that time does not have."""

    def git(*words):
        made = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")}  # fmt: skip
        command = ["git", "-c", "commit.gpgsign=false", "-C", str(tmp_path), *words]
        done = subprocess.run(command, env=os.environ | made, capture_output=True, check=True)
        return done.stdout.decode().strip()

    git("init", "-q", "-b", "main")
    shas = []
    for number in range(3):
        git("commit", "-q", "--allow-empty", "-m", f"Change {number}")
        shas.append(git("rev-parse", "HEAD"))
    git("tag", "-a", "v1.0", "-m", "Release", shas[1])
    synthetic.build(tmp_path, plan(commits=list(reversed(shas)), replicates=2))
    return tmp_path, shas, git


def test_previous_is_the_first_parent_and_not_the_run_before(repository):
    data, shas, _ = repository
    assert told(data, shas[2]).devices[0].table.before.sha == shas[1]


@pytest.mark.parametrize("name", ["v1.0", "release", "main~1", "HEAD^"])
def test_a_side_is_anything_that_git_can_name(repository, name):
    data, shas, git = repository
    git("branch", "release", shas[1])
    assert told(data, "main", name).devices[0].table.before.sha == shas[1]


def test_commit_without_data_is_not_comparable_and_names_what_is(repository):
    data, shas, git = repository
    git("commit", "-q", "--allow-empty", "-m", "Not measured")
    code, message = error_of(data, shas[2], "main")
    assert code == 3 and "has no run" in message
    assert ", ".join(sha[:8] for sha in shas) in message


def test_beginning_of_a_hash_is_enough_without_git(tmp_path):
    synthetic.build(tmp_path, plan(commits=["abcd1" + "0" * 35, "abcd2" + "0" * 35]))
    assert told(tmp_path, "abcd2", "abcd1").exit_code == 0
    code, message = error_of(tmp_path, "abcd")
    assert code == 1 and "2 measured commits begin so" in message
    assert error_of(tmp_path, "abc")[0] == 1


NAMES = (
    "nosuch",
    "",
    "-1",
    "--help",
    "runs/nosuch.jsonl",
    "a" * 5000,
    "nul\0",
    "../",
    "HEAD^{tree}",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_typo_never_looks_like_a_regression(tmp_path, name):
    synthetic.build(tmp_path, plan(replicates=1, sweep=1))
    sha = plan().shas()[1]
    request = Request(sha, name, tmp_path, ROOT)
    for one in (request, replace(request, candidate=name, baseline=sha)):
        with pytest.raises(CompareError) as caught:
            compare(one)
        assert caught.value.code == 1


@pytest.mark.parametrize(("content", "word"), [
    (b"", "the file is empty"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    (b'{"kind":"run","schema_version":99}\n', "update this program"),
    (b"\xff\xfe\n", "not UTF-8"),
    (b'{"cases":[]}\n', "run line must be"),
])  # fmt: skip
def test_file_that_is_no_run_is_an_error_with_its_place(tmp_path, content, word):
    synthetic.build(tmp_path, plan(replicates=1, sweep=1))
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(content)
    code, message = error_of(tmp_path, bad)
    assert code == 1 and message.startswith(f"{bad}:1:") and word in message


def test_run_without_measurements_is_an_error(tmp_path):
    synthetic.build(tmp_path, plan(replicates=1, sweep=1))
    one = rewrite(file_of(tmp_path, 1), lambda line: line if "case" not in line else None)
    code, message = error_of(tmp_path, one)
    assert code == 1 and "holds no measurement" in message


def test_torn_file_is_compared_as_far_as_it_goes(tmp_path):
    synthetic.build(tmp_path, plan())
    one = file_of(tmp_path, 1, effects={PACKED: 1.05})
    one.write_bytes(one.read_bytes()[:-200])
    result = told(tmp_path, one)
    assert result.exit_code == 2
    assert any("not complete" in note for note in notes_of(result.devices[0]))
    assert [problem.file for problem in result.problems] == [str(one)]
