from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from collector.crew import ROOT, Crew, Loss, Pool, Worker


class Script(Crew):
    """A crew whose workers send what a script says, one list for each worker in turn."""

    def __init__(self, steps, *workers):
        super().__init__({"steps": list(range(steps))}, 5.0, hire=None)
        self.workers = iter(workers)
        self.started = []

    def _run(self, first):
        self.started.append(first)
        yield from next(self.workers)


def start(step):
    return {"event": "start", "step": step}


DONE, BYE, READY = {"event": "done"}, {"event": "bye"}, {"event": "ready"}
DIED = Loss(None, "error", "died")


def died_at(step):
    return Loss(step, "error", "died")


def events(crew, stop=lambda: False):
    return list(crew.events(stop))


def test_a_worker_that_does_all_its_steps_is_the_only_one():
    crew = Script(2, [READY, start(0), DONE, start(1), DONE, BYE])
    assert events(crew)[-1] == BYE
    assert crew.started == [0]


def test_the_next_worker_goes_on_behind_the_step_that_killed_the_last():
    crew = Script(
        4,
        [READY, start(0), DONE, start(1), died_at(1)],
        [READY, start(0), DONE, start(1), DONE, BYE],
    )
    seen = events(crew)
    assert crew.started == [0, 2]
    assert [e for e in seen if isinstance(e, Loss)] == [died_at(1)]
    assert [e["step"] for e in seen if not isinstance(e, Loss) and e["event"] == "start"] == [
        0, 1, 2, 3,
    ]  # fmt: skip


def test_a_worker_that_gives_up_between_steps_costs_no_step():
    """As one does whose CUDA context was lost: it said what it cost before it ended."""
    crew = Script(2, [READY, start(0), DONE, DIED], [READY, start(0), DONE, BYE])
    assert not [e for e in events(crew) if isinstance(e, Loss)]
    assert crew.started == [0, 1]


def test_every_step_that_kills_its_worker_is_told_and_the_crew_ends():
    crew = Script(3, *[[READY, start(0), died_at(0)]] * 3)
    assert [e.step for e in events(crew) if isinstance(e, Loss)] == [0, 1, 2]


@pytest.mark.parametrize("first_words", [[], [READY]])
def test_workers_that_cannot_start_are_not_tried_for_ever(first_words):
    crew = Script(3, [*first_words, DIED])
    assert events(crew) == [*first_words, DIED]
    assert crew.started == [0]


def test_a_budget_ends_the_crew_behind_a_finished_step():
    asked = iter([False, False, True])
    crew = Script(3, [READY, start(0), DONE, start(1), DONE, start(2)])
    seen = events(crew, lambda: next(asked))
    assert seen[-2:] == [start(1), DONE]


class Recruit:
    """A worker that takes part in the story of a test."""

    def __init__(self, story, interpret):
        self.story, self.dead = story, False
        story.append("start interpreter" if interpret else "start")

    def alive(self):
        return not self.dead

    def wait_until_ready(self):
        self.story.append("ready")

    def end(self):
        self.story.append("end")


def pool(story, at_once, tasks):
    return Pool(lambda interpret: Recruit(story, interpret), at_once, tasks)


def test_no_worker_is_handed_out_before_all_that_were_started_are_ready():
    story = []
    pool(story, at_once=3, tasks=9).take(interpret=False)
    assert story == ["start"] * 3 + ["ready"] * 3


def test_workers_that_wait_are_used_up_before_others_start():
    story = []
    workers = pool(story, at_once=2, tasks=9)
    workers.take(interpret=False)
    story.clear()
    workers.take(interpret=False)
    assert "start" not in story


def test_no_more_workers_are_started_ahead_than_there_are_tasks():
    story = []
    workers = pool(story, at_once=8, tasks=2)
    for _ in range(2):
        workers.take(interpret=False)
    assert story.count("start") == 2


def test_after_the_last_task_a_worker_that_died_is_still_replaced():
    story = []
    workers = pool(story, at_once=8, tasks=1)
    workers.take(interpret=False)
    workers.take(interpret=False)
    assert story.count("start") == 2


def test_a_worker_that_died_while_it_waited_costs_nothing():
    workers = pool([], at_once=2, tasks=2)
    first = workers.take(interpret=False)
    workers._waiting[0].dead = True
    assert workers.take(interpret=False).alive()
    assert first.alive()


def test_the_interpreter_gets_a_worker_of_its_own_and_leaves_none_waiting():
    story = []
    pool(story, at_once=4, tasks=4).take(interpret=True)
    assert story == ["start interpreter"]


def test_the_end_of_a_pool_ends_every_worker_that_was_started():
    story = []
    workers = pool(story, at_once=3, tasks=5)
    workers.take(interpret=False)
    workers.end()
    assert story.count("end") == story.count("start") == 3


def gone(pid):
    """Tell whether a process ended within a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_worker_says_ready_without_a_task_and_can_be_ended_twice():
    worker = Worker("collector.worker")
    worker.wait_until_ready()
    assert b"ready" in os.read(worker.read, 100)
    assert worker.alive()
    worker.end()
    worker.end()
    assert not worker.alive()


def test_a_worker_that_cannot_import_what_it_should_tells_why():
    worker = Worker("collector.worker", imports=("no_such_module",))
    worker.wait_until_ready()
    assert os.read(worker.read, 100) == b""
    assert "exit code 1" in worker.how_it_died()
    assert "no_such_module" in worker.how_it_died()
    worker.end()


def test_a_worker_that_waits_ends_with_the_process_that_started_it():
    code = (
        "import sys, time; from collector.crew import Worker; w = Worker('collector.worker');"
        "w.wait_until_ready(); print(w.process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert gone(pid)
