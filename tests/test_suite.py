"""Which calls stand for the others where not all kernels are compiled."""

from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

from collector.launches import Form, Launch
from collector.suite import usual, without_twins

KERNEL = SimpleNamespace(arg_names=["x_ptr", "BLOCK", "PDL"])
OTHER = SimpleNamespace(arg_names=["x_ptr", "BLOCK", "PDL"])


def launch(workload, *tags, function=KERNEL, implementation="triton"):
    return Launch("op", implementation, workload, function, (), {}, 0, frozenset(tags))


def form(*users, block=1, pdl=0, function=KERNEL):
    given = (("*fp32", "D"), ("constexpr", block), ("constexpr", pdl))
    options = {"num_warps": 4} | ({"launch_pdl": True} if pdl else {})
    return Form(launch("", function=function), given, options, list(users))


def plain(workload):
    return launch(workload, "default")


def dependent(workload):
    return launch(workload, "default", implementation="triton-pdl")


def uses(forms):
    return {user.call for one in forms for user in one.users}


def test_calls_on_full_workloads_are_left_to_those_who_ask_for_all():
    usually, also, edge = (
        launch("1", "default"),
        launch("2", "full", "default"),
        launch("3", "edge"),
    )
    assert usual([usually, launch("4", "full"), also, edge]) == [usually, also, edge]


def test_of_a_kernel_that_no_usual_call_launches_the_first_call_is_compiled_whole():
    first = [launch("2", "full"), launch("2", "full", function=OTHER)]
    later = [launch("3", "full"), launch("3", "full", function=OTHER)]
    known = launch("1", "default")
    assert usual([known, *first, *later]) == [known, *first]


def test_a_dependent_call_of_a_kernel_that_is_compiled_anyway_is_left_out():
    forms = [form(plain("1")), form(dependent("1"), pdl=1), form(dependent("2"), pdl=2)]
    assert without_twins(forms) == forms[:1]


def test_a_dependent_call_with_another_block_size_is_compiled():
    forms = [form(plain("1")), form(dependent("1"), pdl=1, block=2)]
    assert without_twins(forms) == forms


def test_a_call_is_compiled_whole_or_not_at_all():
    own, shared = form(dependent("1"), pdl=1, function=OTHER), form(plain("1"), dependent("1"))
    twin = form(dependent("1"), pdl=1, block=2)
    kept = [shared, form(plain("1"), block=2), twin, own]
    assert without_twins(kept) == kept
    assert uses(without_twins([*kept, form(plain("1"), function=OTHER)])) == {("triton", "1")}
