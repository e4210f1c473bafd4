from __future__ import annotations

import pytest

from collector.crew import Crew, Loss


class Script(Crew):
    """A crew whose workers send what a script says, one list for each worker in turn."""

    def __init__(self, steps, *workers):
        super().__init__({"steps": list(range(steps))}, 5.0, False)
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
