"""The sentence that a page begins with: where it is faster, by how much, and what decides."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.answer import answer_words, answers, count_words
from dashboard.crossover import SpeedUp


def ratio(value, spread=1.01):
    return SpeedUp(value, value / spread, value * spread, "samples", "torch")


def told(values, regimes=(), spread=1.01):
    sizes = [4**place for place in range(len(values))]
    pairs = [(size, ratio(value, spread)) for size, value in zip(sizes, values, strict=True)]
    found = answers(pairs, dict(zip(sizes, regimes, strict=False)))
    return str(answer_words(found, "rows", "torch").striptags()), count_words(found)


@pytest.mark.parametrize(("values", "regimes", "sentence", "count"), [
    ([1.0, 1.02, 1.9, 1.88], ["latency", "latency", "memory", "memory"],
     "about as fast as torch up to rows = 4, where the launch decides; "
     "1.88× as fast from rows = 16 on, where memory decides",
     "faster at 2 of 4 sizes, never slower"),
    ([2.0, 3.0, 4.0], ["memory", "memory", "special"],
     "2.00× to 4.00× as fast as torch at every measured size (rows = 1 to 16)",
     "faster at every size"),
    ([0.5], ["special"], "0.500× as fast as torch at rows = 1, where special functions decide",
     "slower at 1 of 1 size"),
    ([2.0, 1.0, 0.5, 0.5], [],
     "2.00× as fast as torch at rows = 1; about as fast at rows = 4; "
     "0.500× as fast from rows = 16 on", "faster at 1, slower at 2 of 4 sizes"),
    ([2.0, 1.0, 2.0, 1.0], [], "faster at 2 of 4 sizes, never slower than torch",
     "faster at 2 of 4 sizes, never slower"),
    ([1.0, 1.0], [], "about as fast as torch at every measured size (rows = 1 to 4)",
     "about as fast at every size"),
])  # fmt: skip
def test_answer_in_words(values, regimes, sentence, count):
    assert told(values, regimes) == (sentence, count)


def test_difference_that_is_not_sure_is_even_however_large():
    assert told([1.5], spread=1.6)[1] == "about as fast at every size"


def test_names_from_records_stay_text():
    found = answers([(1, ratio(2.0))], {})
    assert "<b>" not in answer_words(found, "<b>rows", "<b>torch")


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12))
def test_answers_hold_every_size_once_and_neighbours_differ(values):
    pairs = [(place + 1, ratio(value)) for place, value in enumerate(values)]
    found = answers(pairs, {})
    assert [pair for one in found for pair in one.ratios] == pairs
    assert all(a.kind != b.kind for a, b in itertools.pairwise(found))
