import json
from pathlib import Path

import pytest
from rich.console import Console

from collector import code_files
from collector.code_command import CodeOptions, codegen
from collector.code_files import CodeFile
from collector.code_rules import differences
from collector.reading import Problem
from collector.record import Source
from collector.static_code import Compiled, CompileError, compile_tree
from collector.store import StoreError
from tests.planted import plant

triton = pytest.importorskip("triton")
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
pytestmark = pytest.mark.skipif(
    not (TOOLS / "cuobjdump").exists(), reason="this Triton brings no CUDA tools"
)
TARGETS = ("sm_90", "gfx942", "sm_37")
SOURCE = Source(commit="a" * 40, dirty=False, parents=[])


def built(tree: Path, *targets: str, ops: tuple[str, ...] = ()) -> Compiled:
    cache = tree / "cache"
    return compile_tree(tree, SOURCE, ops, targets, lambda told: None, cache)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """All kernels of these tests: most of the time goes into starting what compiles them."""
    ops = {
        "planted": {},
        "renamed": {"name": "_quite_another_name"},
        # 512 values a thread, where a thread has 255 registers.
        "spilling": {"width": "16384"},
        "broken": {"block": "(500 + 12 * (x.shape[0] > 1))"},
    }
    return built(plant(tmp_path_factory.mktemp("made"), **ops), *TARGETS)


def alone(made: Compiled, op: str, *targets: str) -> Compiled:
    """Return what was compiled for an op as if no other were there, by the name of the first."""
    chosen = targets or tuple(made.file.toolchain.targets)
    lines = tuple(
        line.model_copy(update={"op": "planted"})
        for line in made.file.lines
        if line.op == op and line.target in chosen
    )
    head = made.file.toolchain.model_copy(update={"ops": ["planted"], "targets": list(chosen)})
    hashes = {line.code.sass_hash for line in lines if line.code}
    texts = {key: text for key, text in made.texts.items() if key in hashes}
    return Compiled(CodeFile(head, lines), texts)


@pytest.fixture(scope="module")
def sound(made: Compiled) -> Compiled:
    return alone(made, "planted")


@pytest.fixture(scope="module")
def spilling(made: Compiled) -> Compiled:
    return alone(made, "spilling", "sm_90")


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> list[Compiled]:
    """Return the sound kernel compiled once more, from another folder, in two parts."""
    made = built(plant(tmp_path_factory.mktemp("again")), *TARGETS)
    return [part(made, "gfx942"), part(made, "sm_90", "sm_37")]


def part(made: Compiled, *targets: str) -> Compiled:
    """Return what would have been compiled had only these targets been asked for."""
    head, lines = made.file.toolchain, [x for x in made.file.lines if x.target in targets]
    asked = {
        "targets": [name for name in head.targets if name in targets],
        "unsupported": {name: why for name, why in head.unsupported.items() if name in targets},
    }
    texts = {x.code.sass_hash: made.texts[x.code.sass_hash] for x in lines if x.code}
    return Compiled(CodeFile(head.model_copy(update=asked), tuple(lines)), texts)


def saved(made: Compiled, data: Path) -> Path:
    return code_files.save(made.file, data)


def run(tmp_path: Path, **options: object) -> tuple[int, str, str]:
    out, err = Console(width=200, record=True), Console(width=200, record=True)
    with out.capture() as said, err.capture() as told:
        code = codegen(CodeOptions(output=tmp_path, **options), out, err)  # type: ignore[arg-type]
    return code, said.get(), told.get()


def test_workloads_that_are_launched_alike_share_one_compilation(sound: Compiled) -> None:
    (line,) = [line for line in sound.file.lines if line.target == "sm_90"]
    (use,) = line.used_by
    assert use.workloads == ["rows=1,float32", "rows=16,float32"]
    assert line.constants == "BLOCK=512" and line.options == "num_warps=1"
    assert line.signature == "x_ptr:*fp32/16,out_ptr:*fp32/16,rows:i32"


def test_instructions_are_those_that_the_kernel_needs(sound: Compiled) -> None:
    # 16 values a thread: four loads and stores of four; five exchanges add up 32 lanes.
    (line,) = [line for line in sound.file.lines if line.target == "sm_90"]
    assert line.code is not None
    counts = line.code.instructions
    assert (counts.wide_loads, counts.wide_stores, counts.shuffle) == (4, 4, 5)
    assert counts.narrow_loads == counts.local == counts.tensor == counts.special == 0
    assert line.code.spills == line.code.stack_bytes == line.code.shared_bytes == 0
    assert line.code.code_bytes >= 16 * counts.total


def test_amd_code_is_read_as_well(sound: Compiled) -> None:
    (line,) = [line for line in sound.file.lines if line.target == "gfx942"]
    assert line.code is not None and line.code.occupancy == 1.0
    # 8 values a thread of 64.
    assert (line.code.instructions.wide_loads, line.code.instructions.wide_stores) == (2, 2)
    assert line.code.instructions.shuffle >= 6


def test_a_target_that_the_toolchain_lacks_is_said_and_skipped(sound: Compiled) -> None:
    assert sound.file.toolchain.targets == ["sm_90", "gfx942"]
    assert list(sound.file.toolchain.unsupported) == ["sm_37"]
    assert sound.file.toolchain.unsupported["sm_37"]


def test_equal_input_gives_equal_bytes(sound: Compiled, again: list[Compiled]) -> None:
    first, second = again
    file = code_files.ordered(sound.file.toolchain, [*first.file.lines, *second.file.lines])
    assert code_files.content(file) == code_files.content(sound.file)
    assert first.texts | second.texts == sound.texts


def test_a_renamed_kernel_with_equal_code_is_no_difference(made: Compiled, sound: Compiled) -> None:
    renamed = alone(made, "renamed").file.lines
    assert {line.kernel for line in renamed} == {"_quite_another_name"}
    assert differences(sound.file.lines, renamed) == []


def test_a_block_size_that_spills_is_caught(
    sound: Compiled, spilling: Compiled, tmp_path: Path
) -> None:
    old, new = saved(sound, tmp_path / "old"), saved(spilling, tmp_path / "new")
    code, said, _ = run(tmp_path, record=new, against=str(old))
    assert code == 2
    assert "new spills (gate)" in said and "constants: BLOCK=512 -> BLOCK=16384" in said
    code, said, _ = run(tmp_path, record=old, against=str(old))
    assert code == 0 and "0 kernels differ" in said


def test_json_holds_figures_and_rules(sound: Compiled, spilling: Compiled, tmp_path: Path) -> None:
    old, new = saved(sound, tmp_path / "old"), saved(spilling, tmp_path / "new")
    code, said, _ = run(tmp_path, record=new, against=str(old), as_json=True)
    (found,) = json.loads(said)["differences"]
    assert code == 2 and found["figures"]["spills"]["old"] == 0 < found["figures"]["spills"]["new"]
    assert {"name": "new spills", "gate": True} in [
        {k: rule[k] for k in ("name", "gate")} for rule in found["rules"]
    ]


def test_without_a_record_in_common_nothing_is_comparable(
    sound: Compiled, spilling: Compiled, tmp_path: Path
) -> None:
    new = saved(spilling, tmp_path / "new")
    assert run(tmp_path, record=new, against="HEAD")[0] == 3
    lines = tuple(line for line in sound.file.lines if line.target == "gfx942")
    other = code_files.save(CodeFile(sound.file.toolchain, lines), tmp_path / "amd")
    assert run(tmp_path, record=new, against=str(other))[0] == 3


def test_a_part_that_is_compiled_later_joins_the_file_of_its_commit(
    sound: Compiled, again: list[Compiled], tmp_path: Path
) -> None:
    first, second = (saved(part, tmp_path) for part in again)
    assert first == second
    assert first.read_bytes() == code_files.content(sound.file)


def test_a_kernel_that_breaks_the_compiler_takes_only_itself_along(made: Compiled) -> None:
    lines = [line for line in made.file.lines if line.target == "sm_90" and line.op == "broken"]
    bad, good = sorted(lines, key=lambda line: line.code is not None)
    assert bad.code is None and bad.reason and "power of 2" in bad.reason
    assert good.code is not None and good.used_by[0].workloads == ["rows=16,float32"]


def test_an_op_that_does_not_import_is_an_error_with_its_reason(tmp_path: Path) -> None:
    tree = plant(tmp_path)
    (tree / "kernels" / "ops" / "planted.py").write_text("import no_such_module")
    with pytest.raises(CompileError, match="no_such_module"):
        built(tree, "sm_90")


def test_each_fault_of_a_file_has_its_place(sound: Compiled, tmp_path: Path) -> None:
    lines = code_files.content(sound.file).splitlines()
    broken = lines[1].replace(b'"registers":', b'"registers":-')
    rows = list(code_files.read_lines("f", b"\n".join([lines[1], lines[0], broken])))
    assert [row.line for row in rows if isinstance(row, Problem)] == [1, 2, 3]
    assert str(rows[2]).startswith("f:3: codegen.code.registers: ") or "code.registers" in str(
        rows[2]
    )
    (tmp_path / "codegen").mkdir()
    path = tmp_path / "codegen" / "x.jsonl"
    path.write_bytes(b"\n".join([lines[0], broken]))
    assert code_files.validate([tmp_path])[0] == 1
    with pytest.raises(StoreError, match=r"x\.jsonl:2"):
        code_files.read(path)


def halved(made: Compiled) -> Compiled:
    """Return what was compiled as if the second workload had been left out."""
    lines = [line.model_copy(deep=True) for line in made.file.lines]
    for line in lines:
        del line.used_by[0].workloads[1:]
    return Compiled(CodeFile(made.file.toolchain, tuple(lines)), made.texts)


def test_a_launch_that_was_left_out_is_no_regression(sound: Compiled, tmp_path: Path) -> None:
    whole, part = saved(sound, tmp_path / "whole"), saved(halved(sound), tmp_path / "part")
    for record, against in ((part, whole), (whole, part)):
        code, said, _ = run(tmp_path, record=record, against=str(against))
        assert code == 0 and "0 kernels differ" in said
        assert "2 are of launches that one side lacks" in said


def test_a_part_that_is_compiled_after_the_whole_takes_nothing_from_the_record(
    sound: Compiled, tmp_path: Path
) -> None:
    whole, part = sound, halved(sound)
    for first, second in ((whole, part), (part, whole)):
        data = tmp_path / str(first is whole)
        saved(first, data)
        assert saved(second, data).read_bytes() == code_files.content(sound.file)


def test_what_did_not_change_is_answered_without_torch(tmp_path: Path) -> None:
    tree = plant(tmp_path)
    first = built(tree, "sm_90")
    (tree / "torch.py").write_text("raise ImportError('torch is asked for')")
    assert built(tree, "sm_90") == first
    module = tree / "kernels" / "ops" / "planted.py"
    module.write_text(module.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    with pytest.raises(CompileError, match="torch is asked for"):
        built(tree, "sm_90")
    (tree / "torch.py").unlink()
    assert built(tree, "sm_90") == first
