from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from collector.record import Case, WorkloadKey
from collector.summary import exit_code, failures


def line(implementation, timer, reason, status="error"):
    workload = WorkloadKey(sizes={"batch": 4, "n": 4}, dtype="float32")
    case = Case(
        op="sinkhorn", implementation=implementation, mode="forward", workload=workload,
        timer=timer, cache="hot",
    )  # fmt: skip
    return SimpleNamespace(case=case, status=status, reason=reason)


def test_failures_of_one_cause_are_told_once():
    told = failures(
        [line("a", "graph", "boom"), line("a", "call", "boom"), line("b", "call", "boom")]
    )
    assert told == [
        "error: sinkhorn a at batch=4,n=4 float32 graph hot and 1 more series: boom",
        "error: sinkhorn b at batch=4,n=4 float32 call hot: boom",
    ]


@pytest.mark.parametrize(
    ("counts", "outcome", "code"),
    [
        ({"passed": 3}, "complete", 0),
        ({"passed": 3, "oom": 1, "unavailable": 2, "skipped": 1}, "complete", 0),
        ({"skipped": 2}, "complete", 0),
        ({"passed": 3}, "budget", 0),
        ({"passed": 3, "error": 1}, "complete", 1),
        ({"passed": 3, "timeout": 1}, "complete", 1),
        ({"passed": 3}, "interrupted", 1),
        ({"unavailable": 2}, "complete", 1),
        ({}, "complete", 1),
        ({"passed": 3, "error": 1, "incorrect": 1}, "complete", 4),
    ],
)
def test_the_exit_code_tells_wrong_results_from_faults_and_both_from_success(counts, outcome, code):
    assert exit_code(SimpleNamespace(counts=Counter(counts)), outcome) == code
