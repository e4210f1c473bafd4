import subprocess

import pytest
import synthetic

from collector.history.commits import GitCommit, first_parents, order_commits
from collector.history.load import load_history

SMALL = {"ops": ("sinkhorn",), "sweep": 1, "failures": False, "samples": 5}


def git(repo, *args, when="2026-01-01T00:00:00Z"):
    environment = {
        "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b", "PATH": "/usr/bin:/bin:/usr/local/bin",
    }  # fmt: skip
    command = ["git", "-C", str(repo), *args]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


def commit(repo, subject, when):
    git(repo, "commit", "-q", "--allow-empty", "-m", subject, when=when)


@pytest.fixture
def repo(tmp_path_factory):
    repo = tmp_path_factory.mktemp("repo")
    git(repo, "init", "-q", "-b", "main")
    # Committer dates run backwards, as after a rebase on a machine with a wrong clock.
    for day in (9, 5, 3):
        git(
            repo,
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            f"day {day} | <b>",
            when=f"2026-01-0{day}T00:00:00Z",
        )
    return repo


def shas(repo):
    return git(repo, "rev-list", "--reverse", "HEAD").split()


def test_first_parents_beat_dates(repo, tmp_path):
    line = shas(repo)
    synthetic.build(tmp_path, synthetic.Plan(commits=line[::-1], **SMALL))
    history = load_history(tmp_path, repo)
    assert [commit.sha for commit in history.commits] == line
    assert all(commit.known for commit in history.commits)
    assert [commit.order for commit in history.commits] == [0, 1, 2]
    for points in history.series.values():
        assert [point.commit for point in points] == line


def test_side_branch_is_not_on_the_first_parent_line(repo):
    git(repo, "checkout", "-q", "-b", "side", "HEAD~1")
    commit(repo, "side", "2026-01-04T00:00:00Z")
    side = git(repo, "rev-parse", "HEAD").strip()
    git(repo, "checkout", "-q", "main")
    git(repo, "merge", "-q", "--no-ff", "side", "-m", "merge", when="2026-01-06T00:00:00Z")
    line = [commit.sha for commit in first_parents(repo)]
    assert side not in line
    assert len(line) == 4


def test_unknown_commit_goes_where_its_time_says(repo):
    known = [GitCommit("a" * 40, "2026-01-01T00:00:00+00:00", "one"),
             GitCommit("b" * 40, "2026-01-10T00:00:00+00:00", "two")]  # fmt: skip
    plan = synthetic.Plan(commits=["a" * 40, "b" * 40, "c" * 40])
    runs = [synthetic.run_line(plan, synthetic.H200, i) for i in range(3)]
    source = runs[2].source.model_copy(update={"committed_at": "2026-01-05T00:00:00Z"})
    runs[2] = runs[2].model_copy(update={"source": source})
    commits = order_commits(runs, known)
    assert [(c.sha[0], c.known) for c in commits] == [("a", True), ("c", False), ("b", True)]


def test_without_git_the_order_is_that_of_time(tmp_path, tmp_path_factory):
    synthetic.build(tmp_path, **SMALL)
    bare = tmp_path_factory.mktemp("bare")
    assert first_parents(bare) == ()
    history = load_history(tmp_path, bare)
    times = [commit.committed_at for commit in history.commits]
    assert times == sorted(times)
    assert not any(commit.known for commit in history.commits)
