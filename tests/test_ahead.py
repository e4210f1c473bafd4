from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from collector import ahead
from collector.ahead import build_all


class Builder:
    """A builder on a real pipe that asks again after each job, or does what its habit says."""

    def __init__(self, habit=None):
        self.read, self.write = os.pipe()
        self.habit = habit
        self.built, self.ended = [], 0
        os.write(self.write, b"next\n")

    def tell(self, job):
        self.built.append(job)
        if self.habit == "dies":
            os.close(self.write)
        elif self.habit != "hangs":
            os.write(self.write, b"next\n")

    def end(self):
        self.ended += 1


def built_by(builders, rows, limit_s=5.0, stop=lambda: False, told=lambda left: None):
    given = iter(builders)
    build_all(rows, lambda: next(given), len(builders), limit_s, stop, told)
    assert all(one.ended for one in builders)
    return Counter(job for one in builders for job in one.built)


def test_every_job_is_built_once_over_all_processes():
    assert built_by([Builder() for _ in range(3)], range(20)) == Counter(range(20))


def test_a_builder_that_dies_costs_its_own_job():
    dying, other = Builder("dies"), Builder()
    assert built_by([dying, other], range(9)) == Counter(range(9))
    assert len(dying.built) == 1


def test_a_builder_that_hangs_is_ended_at_the_limit_of_a_case():
    hanging, other = Builder("hangs"), Builder()
    start = time.monotonic()
    assert built_by([hanging, other], range(5), limit_s=0.1) == Counter(range(5))
    assert len(hanging.built) == 1
    assert time.monotonic() - start < 5


def test_builders_that_all_die_end_the_phase():
    assert sum(built_by([Builder("dies"), Builder("dies")], range(9)).values()) == 2


def test_a_budget_ends_the_phase():
    assert not built_by([Builder()], range(9), stop=lambda: True)


def test_an_interruption_ends_every_builder():
    def interrupted():
        raise KeyboardInterrupt

    builders = [Builder("hangs"), Builder("hangs")]
    with pytest.raises(KeyboardInterrupt):
        built_by(builders, range(9), stop=interrupted)
    assert [one.ended for one in builders] == [1, 1]


def test_what_is_left_is_told():
    told = []
    built_by([Builder()], range(3), told=told.append)
    assert told == [2, 1, 0]


def test_few_jobs_or_few_cores_are_not_compiled_ahead(monkeypatch):
    monkeypatch.setattr(ahead.os, "cpu_count", lambda: 16)
    assert ahead.hands() == 8
    assert ahead.worth_it(500)
    assert not ahead.worth_it(3)
    monkeypatch.setattr(ahead.os, "cpu_count", lambda: 1)
    assert ahead.hands() == 1
    assert not ahead.worth_it(500)


def test_a_cache_that_the_person_at_the_terminal_names_is_kept(monkeypatch):
    from collector.crew import environment

    monkeypatch.setenv("TRITON_CACHE_DIR", "/theirs")
    assert environment(False, ahead.settings())["TRITON_CACHE_DIR"] == "/theirs"
    monkeypatch.delenv("TRITON_CACHE_DIR")
    monkeypatch.setenv("TRITON_HOME", "/elsewhere")
    made = environment(False, ahead.settings())
    assert made["TRITON_CACHE_DIR"] == "/elsewhere/.triton/cache"


def test_on_a_cpu_no_worker_starts_ahead(monkeypatch):
    started = []
    monkeypatch.setattr(ahead, "Worker", lambda *args: started.append(args) or Ready())
    ahead.pool(cuda=False, tasks=5).take(interpret=False)
    assert started == [("collector.worker", False, (), {})]


class Ready:
    def alive(self):
        return True

    def wait_until_ready(self):
        pass
