from typing import Any

import pytest

from collector.code_record import Codegen, CodeUse, Instructions, MachineCode
from collector.code_rules import RULES, Difference, compared, differences

NONE = dict.fromkeys(Instructions.model_fields, 0)


def code(**changed: Any) -> MachineCode:
    counts = {name: changed.pop(name) for name in NONE if name in changed}
    base = {
        "registers": 40, "spills": 0, "stack_bytes": 0, "shared_bytes": 0, "occupancy": 0.75,
        "resident_blocks": 6, "limited_by": "registers", "code_bytes": 160, "sass_hash": "a" * 12,
    }  # fmt: skip
    instructions = Instructions(**(NONE | {"total": 9, "wide_loads": 2} | counts))
    return MachineCode(**(base | changed), instructions=instructions)


def line(made: MachineCode | None, kernel: str = "_k", *workloads: str, **more: Any) -> Codegen:
    use = CodeUse(implementation="triton", workloads=list(workloads or ("n=1,float32",)))
    base = {"target": "sm_90", "op": "op", "signature": "", "constants": "", "options": ""}
    reason = None if made else "error"
    return Codegen(
        **(base | more),
        kernel=kernel,
        used_by=[use],
        source_hash="0" * 12,
        code=made,
        reason=reason,
    )


def broken(new: MachineCode | None, old: MachineCode | None = None) -> set[str]:
    (found,) = differences([line(old or code())], [line(new)])
    return {rule.name for rule in found.rules}


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"spills": 1}, "new spills"),
        ({"wide_loads": 0, "narrow_loads": 8}, "lost vector width"),
        ({"occupancy": 0.5}, "lower occupancy"),
        ({"registers": 41, "resident_blocks": 5}, "registers across an occupancy step"),
        ({"special": 1}, "more special functions"),
        ({"barrier": 1}, "more barriers"),
        ({"resident_blocks": 0}, "no block fits"),
    ],
)
def test_each_rule_sees_its_fault_and_no_other_does(changed: dict[str, Any], rule: str) -> None:
    assert broken(code(**changed)) == {rule}


def test_losing_tensor_cores_is_seen() -> None:
    assert broken(code(), code(tensor=4)) == {"tensor cores lost"}


def test_a_gain_breaks_no_rule() -> None:
    better = code(registers=32, occupancy=1.0, resident_blocks=8, limited_by="warps")
    assert broken(better) == set()


def test_one_narrow_load_more_is_no_lost_width() -> None:
    assert broken(code(narrow_loads=1)) == set()


def test_code_that_no_longer_compiles_breaks_a_gate() -> None:
    (found,) = differences([line(code())], [line(None)])
    assert [rule.gate for rule in found.rules] == [True]
    assert differences([line(None)], [line(None)]) == []


def test_every_rule_says_in_a_sentence_what_it_costs() -> None:
    assert all(rule.cost.endswith(".") and len(rule.cost) > 30 for rule in RULES)
    assert {rule.name for rule in RULES if rule.gate} >= {"new spills", "lost vector width"}


def test_a_kernel_is_found_again_by_its_workload() -> None:
    old = [line(code(), "_k", "n=1", "n=2", constants="BLOCK=1")]
    other = code(registers=50, sass_hash="b" * 12)
    new = [line(code(), "_k", "n=1"), line(other, "_k", "n=2", constants="BLOCK=2")]
    (found,) = differences(old, new)
    assert [workload for *_, workload in found.uses] == ["n=2"]
    assert found.figures["constants"] == ("BLOCK=1", "BLOCK=2")
    assert compared(old, new) == 2


def test_two_kernels_that_swap_names_and_places_are_no_difference() -> None:
    one, two = code(), code(sass_hash="b" * 12, registers=30)
    assert differences([line(one, "_a"), line(two, "_b")], [line(two, "_a"), line(one, "_c")]) == []


def test_a_kernel_more_or_less_is_told() -> None:
    one, two = code(), code(sass_hash="b" * 12)
    (new,) = differences([line(one)], [line(one), line(two, "_second")])
    (gone,) = differences([line(one), line(two, "_second")], [line(one)])
    assert isinstance(new, Difference) and new.old is None and gone.new is None
    assert new.rules == gone.rules == ()
