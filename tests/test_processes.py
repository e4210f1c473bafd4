import subprocess
import sys
import threading
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from collector.history import processes
from collector.history.load import load_history
from collector.history.processes import spread
from dashboard import build
from dashboard.environment import environment
from tests import synthetic

ROOT = Path(__file__).parent.parent
BEGIN = """
import os
from collector.history import processes
processes._cores = lambda: 3
"""


def run(script):
    """Run a script in a process of one thread, which a worker of the tests is not."""
    command = [sys.executable, "-W", "error", "-c", BEGIN + script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split(), done.stderr


def test_jobs_run_in_other_processes_and_their_results_keep_their_order():
    found, errors = run("""
import time
def job(place):
    time.sleep(0.2 * (place == 0))
    return place, os.getpid()
made = processes.spread([lambda k=k: job(k) for k in range(9)])
assert [place for place, _ in made] == list(range(9))
assert os.getpid() not in {number for _, number in made}
print(len({number for _, number in made}) > 1)
""")
    assert (found, errors) == (["True"], "")


def test_jobs_of_a_copy_run_in_that_copy():
    found, errors = run("""
def outer(place):
    return {os.getpid(), *processes.spread([os.getpid, os.getpid])}
print(*(len(numbers) for numbers in processes.spread([lambda: outer(0), lambda: outer(1)])))
""")
    assert (found, errors) == (["1", "1"], "")


def test_error_of_a_job_is_raised_and_the_next_jobs_can_be_spread():
    found, errors = run("""
def fail():
    raise KeyError("which")
try:
    processes.spread([fail, os.getpid])
except KeyError as error:
    print(error.args[0])
print(len(processes.spread([os.getpid] * 2)))
""")
    assert (found, errors) == (["which", "2"], "")


def test_process_with_several_threads_makes_no_copy_of_itself(monkeypatch):
    monkeypatch.setattr(processes, "_cores", lambda: 2)
    monkeypatch.setattr(processes, "_in_copies", lambda *_: pytest.fail("a copy was made"))
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        assert spread([partial(pow, 2, k) for k in range(4)]) == [1, 2, 4, 8]
    finally:
        done.set()
        other.join()


def test_site_is_the_same_bytes_from_one_process_and_from_several(tmp_path):
    synthetic.build(tmp_path, commits=3, replicates=2, sweep=5, samples=4)
    one = build.render(load_history(tmp_path), environment(ROOT / "templates"))
    found, errors = run(f"""
from hashlib import sha256
from pathlib import Path
from collector.history.cache import Cache
from collector.history.load import load_history
from dashboard import build
from dashboard.environment import environment
history = load_history(Path({str(tmp_path)!r}), cache=Cache(Path({str(tmp_path / "cache")!r})))
ways = []
in_copies = processes._in_copies
processes._in_copies = lambda *args: ways.append(args) or in_copies(*args)
made = build.render(history, environment(Path("templates")))
assert ways
print(sha256(repr(list(made.items())).encode()).hexdigest())
""")
    assert (found, errors) == ([sha256(repr(list(one.items())).encode()).hexdigest()], "")
