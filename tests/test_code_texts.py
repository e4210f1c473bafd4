"""Machine code by its hash: written once, checked, brought in with the record that names it."""

import zlib
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collector import code_files
from collector.__main__ import app
from collector.store import StoreError
from tests.code_records import code, line, write

A, B = (letter * 40 for letter in "ab")
SASS = "Function:kernel\n--:-:-:-:8 LDC R1, c[0x0][0x28];\n--:-:-:-:5 EXIT;"
NAME = sha256(SASS.encode()).hexdigest()[:12]


def planted(data: Path, commit: str | None = A, dirty: bool = False) -> Path:
    """Write a record of one form, and its machine code as `codegen` does."""
    path = write(data, commit, [line(code(sass_hash=NAME))], dirty=dirty)
    code_files.save_texts(code_files.read(path), {NAME: SASS}, data)
    return path


def kept(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "codegen").rglob("*.z"))


def validated(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["validate", *arguments])
    return done.exit_code, done.output


def test_a_text_is_written_once_and_never_again(tmp_path: Path) -> None:
    file = code_files.read(planted(tmp_path))
    (path,) = (tmp_path / "codegen" / "sass").iterdir()
    assert zlib.decompress(path.read_bytes()).decode() == SASS and path.stem == NAME
    path.write_bytes(b"as it is")
    assert code_files.save_texts(file, {NAME: SASS}, tmp_path) == 0
    assert path.read_bytes() == b"as it is"


@pytest.mark.parametrize(("commit", "dirty"), [(None, False), (A, True)])
def test_what_no_commit_names_leaves_no_text(
    tmp_path: Path, commit: str | None, dirty: bool
) -> None:
    planted(tmp_path, commit, dirty)
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (zlib.compress(b"EXIT;"), f"its hash is {sha256(b'EXIT;').hexdigest()[:12]}"),
        (b"EXIT;", "is no compressed text"),
        (zlib.compress(b"\xff"), "is no compressed text"),
    ],
)
def test_a_text_that_is_not_what_its_name_says_is_a_problem(
    tmp_path: Path, content: bytes, told: str
) -> None:
    planted(tmp_path)
    path = tmp_path / "codegen" / "sass" / f"{NAME}.z"
    assert validated(str(tmp_path)) == (0, "3 sound records, 0 problems\n")
    path.write_bytes(content)
    for named in (tmp_path, path):
        exit_code, said = validated(str(named))
        assert exit_code == 1 and f"{path}:1: text: {told}" in said


def test_a_record_comes_in_with_its_texts_and_a_second_time_changes_nothing(
    tmp_path: Path,
) -> None:
    other, data = tmp_path / "other", tmp_path / "data"
    path = planted(other)
    (plan,) = code_files.planned([path], data)
    code_files.add([plan])
    assert kept(data) == [f"{NAME}.z"]
    assert (data / "codegen" / path.name).read_bytes() == path.read_bytes()
    assert code_files.planned([path], data)[0].new == {}


def test_a_record_of_other_ops_of_a_known_commit_joins_it(tmp_path: Path) -> None:
    other, data = tmp_path / "other", tmp_path / "data"
    planted(data)
    path = write(other, A, [line(code(sass_hash="b" * 12), op="swiglu")])
    code_files.add(code_files.planned([path], data))
    assert [one.op for one in code_files.read(data / "codegen" / path.name).lines] == [
        "rms_norm",
        "swiglu",
    ]


def test_a_record_that_contradicts_a_known_one_or_has_a_bad_text_is_refused(
    tmp_path: Path,
) -> None:
    other, data = tmp_path / "other", tmp_path / "data"
    planted(data)
    path = write(other, A, [line(code(registers=41))])
    with pytest.raises(StoreError, match="the same commit: keep one of the two"):
        code_files.planned([path], data)
    path = planted(tmp_path / "third", B)
    (path.parent / "sass" / f"{NAME}.z").write_bytes(b"torn")
    done = CliRunner().invoke(app, ["add", str(path), "--output", str(data)])
    assert isinstance(done.exception, StoreError) and "is no compressed text" in str(done.exception)
    assert kept(data) == [f"{NAME}.z"] and len(code_files.files(data)) == 1
