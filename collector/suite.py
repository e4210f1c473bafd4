"""Which calls stand for the others when not all are compiled. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.launches import Form, Launch

# What a dependent launch adds to the constants and options of a kernel.
DEPENDENT = ("PDL", "launch_pdl")


def usual(launches: Sequence[Launch]) -> list[Launch]:
    """Leave out the calls on `full` workloads, but the first of a kernel that no other launches."""
    chosen = {one.call for one in launches if "full" not in one.tags or "default" in one.tags}
    reached = {id(one.function) for one in launches if one.call in chosen}
    for one in launches:
        if id(one.function) not in reached:
            chosen.add(one.call)
            reached |= {id(other.function) for other in launches if other.call == one.call}
    return [one for one in launches if one.call in chosen]


def without_twins(forms: Sequence[Form]) -> list[Form]:
    """Leave out the dependent calls of kernels that are all compiled for plain calls as well."""
    calls: dict[tuple[str, str, str], list[Form]] = {}
    for form in forms:
        for user in form.users:
            calls.setdefault((user.op, *user.call), []).append(form)
    plain = {twin_key(form) for form in forms if not dependent(form)}
    twins = {
        call
        for call, made in calls.items()
        if any(map(dependent, made)) and all(twin_key(form) in plain for form in made)
    }
    kept = (
        replace(form, users=[user for user in form.users if (user.op, *user.call) not in twins])
        for form in forms
    )
    return [form for form in kept if form.users]


def dependent(form: Form) -> bool:
    """Tell whether a kernel may begin before the one in front of it has ended."""
    return bool(form.options.get(DEPENDENT[1]))


def twin_key(form: Form) -> str:
    """Tell forms apart as `Form.key` does, dependent launch aside."""
    names = form.launch.function.arg_names
    given = zip(names, form.specialization, strict=True)
    arguments = tuple(what for name, what in given if name not in DEPENDENT)
    options = {name: value for name, value in form.options.items() if name not in DEPENDENT}
    return replace(form, specialization=arguments, options=options).key
