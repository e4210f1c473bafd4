"""Files that another host made are brought in whole, once, or not at all."""

from pathlib import Path

import pytest

from collector import store
from collector.record import Run, parse
from collector.store import StoreError
from tests.test_store import written


@pytest.fixture
def run(v1_lines: list[bytes]) -> Run:
    first = parse(v1_lines[0])
    assert isinstance(first, Run)
    return first


def test_add_brings_files_to_their_place_byte_by_byte(
    tmp_path: Path, v1_lines: list[bytes], run: Run
) -> None:
    source = written(tmp_path / "usb" / "anything.jsonl", v1_lines)
    (added,) = store.add([source], tmp_path / "data")
    assert added.path == store.run_path(tmp_path / "data", run)
    assert (added.records, added.notes) == (6, [])
    assert added.path.read_bytes() == source.read_bytes()
    assert [p.name for p in added.path.parent.iterdir()] == [added.path.name]


def test_a_second_import_changes_nothing(tmp_path: Path, v1_lines: list[bytes]) -> None:
    source = written(tmp_path / "a.jsonl", v1_lines)
    copy = written(tmp_path / "b.jsonl", v1_lines)
    first, twin = store.add([source, copy], tmp_path / "data")
    before = first.path.stat()
    (again,) = store.add([source], tmp_path / "data")
    assert (twin.records, again.records) == (0, 0)
    after = again.path.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_another_file_of_the_same_run_is_refused(tmp_path: Path, v1_lines: list[bytes]) -> None:
    source = written(tmp_path / "a.jsonl", v1_lines)
    other = written(tmp_path / "b.jsonl", [*v1_lines[:3], v1_lines[5]])
    (added,) = store.add([source], tmp_path / "data")
    with pytest.raises(StoreError, match="differs from"):
        store.add([other], tmp_path / "data")
    with pytest.raises(StoreError, match="differs from"):
        store.add([source, other], tmp_path / "new")
    assert added.path.read_bytes() == source.read_bytes()
    assert store.run_files(tmp_path / "new") == []


def test_a_run_that_went_on_says_how_to_replace_it(tmp_path: Path, v1_lines: list[bytes]) -> None:
    (added,) = store.add([written(tmp_path / "a.jsonl", v1_lines[:4])], tmp_path / "data")
    longer = written(tmp_path / "b.jsonl", v1_lines)
    with pytest.raises(StoreError, match=r"has more lines than .* delete that one and add again"):
        store.add([longer], tmp_path / "data")
    added.path.unlink()
    assert store.add([longer], tmp_path / "data")[0].records == 6


def test_one_bad_file_keeps_all_files_out(tmp_path: Path, v1_lines: list[bytes]) -> None:
    good = written(tmp_path / "good.jsonl", v1_lines)
    bad = written(tmp_path / "bad.jsonl", [v1_lines[0], b"{}", *v1_lines[1:]])
    with pytest.raises(StoreError, match=r"bad\.jsonl:2: kind"):
        store.add([good, bad], tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_add_repairs_a_torn_last_line_and_says_so(tmp_path: Path, v1_lines: list[bytes]) -> None:
    source = written(tmp_path / "a.jsonl", [*v1_lines[:2], v1_lines[2][:99]], tail=b"")
    before = source.read_bytes()
    (added,) = store.add([source], tmp_path / "data")
    assert added.notes == [f"{source}:3: cut off after 99 bytes; that line is left out"]
    assert added.path.read_bytes().splitlines() == v1_lines[:2]
    assert source.read_bytes() == before
    assert store.add([source], tmp_path / "data")[0].records == 0


def test_a_failed_import_leaves_no_half_file(
    tmp_path: Path, v1_lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("collector.store.os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        store.add([written(tmp_path / "a.jsonl", v1_lines)], tmp_path / "data")
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []
