import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collector import store
from collector.reading import Problem, Upgrade, read_lines
from collector.record import Measurement, Run, parse
from collector.store import RunFile, StoreError

ROOT = Path(__file__).parent.parent


@pytest.fixture
def records(v1_lines: list[bytes]) -> list[store.Record]:
    return [parse(line) for line in v1_lines]


@pytest.fixture
def run(v1_lines: list[bytes]) -> Run:
    first = parse(v1_lines[0])
    assert isinstance(first, Run)
    return first


def written(path: Path, lines: list[bytes], tail: bytes = b"\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines) + tail)
    return path


def problems(content: bytes) -> list[str]:
    rows = read_lines("f.jsonl", content)
    return [str(row) for _, row in rows if isinstance(row, Problem)]


def edited(line: bytes, **changes: object) -> bytes:
    return json.dumps(json.loads(line) | changes).encode()


def test_a_path_tells_device_start_commit_and_run(run: Run) -> None:
    expected = "d/runs/example-gpu/20260301T083005Z-8f2c1d0e-5d1f0c9a.jsonl"
    assert store.run_path(Path("d"), run).as_posix() == expected
    unknown = run.model_copy(update={"source": run.source.model_copy(update={"commit": None})})
    assert "-nocommit-" in store.run_path(Path("d"), unknown).name


def test_append_never_rewrites_earlier_lines(
    tmp_path: Path, run: Run, records: list[store.Record], v1_lines: list[bytes]
) -> None:
    with RunFile.create(tmp_path, run) as file:
        for number, record in enumerate(records[1:], start=2):
            before = file.path.read_bytes()
            file.append(record)
            after = file.path.read_bytes()
            assert after.startswith(before)
            assert after.splitlines() == v1_lines[:number] and after.endswith(b"\n")


def test_two_runs_never_share_a_file(tmp_path: Path, run: Run) -> None:
    with RunFile.create(tmp_path, run) as file:
        before = file.path.read_bytes()
        with pytest.raises(StoreError, match="exists"):
            RunFile.create(tmp_path, run)
        assert file.path.read_bytes() == before


WRITER = """
import sys
from pathlib import Path
from collector.record import parse
from collector.store import RunFile

run_id, lines, data = sys.argv[1], Path(sys.argv[2]).read_bytes().splitlines(), Path(sys.argv[3])
run = parse(lines[0]).model_copy(update={"run_id": run_id})
file = RunFile.create(data, run)
print(file.path, flush=True)
for number in range(int(sys.argv[4])):
    file.append(parse(lines[2]).model_copy(update={"replicate": number}))
    print(number, flush=True)
"""


def writer(run_id: str, data: Path, count: int) -> subprocess.Popen[str]:
    frozen = ROOT / "tests" / "history" / "record.v1.jsonl"
    command = [sys.executable, "-c", WRITER, run_id, str(frozen), str(data), str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_two_collectors_at_once_both_keep_everything(tmp_path: Path) -> None:
    both = [writer(f"{digit * 16}", tmp_path, 200) for digit in "ab"]
    assert [process.communicate()[0].count("\n") for process in both] == [201, 201]
    sound, faults = store.validate([tmp_path])
    assert (sound, faults) == (2 * 201, [])
    for file in store.run_files(tmp_path):
        rows = [row for _, row in store.read(file) if isinstance(row, Measurement)]
        assert [row.replicate for row in rows] == list(range(200))


def test_a_killed_writer_leaves_all_that_it_reported(tmp_path: Path) -> None:
    process = writer("a" * 16, tmp_path, 100_000)
    assert process.stdout
    path = Path(process.stdout.readline().strip())
    for line in process.stdout:
        if int(line) == 50:
            process.send_signal(signal.SIGKILL)
            break
    reported = 50 + process.communicate()[0].count("\n")
    resumed = RunFile.resume(path)
    resumed.file.close()
    kept = [record.replicate for record in resumed.records if isinstance(record, Measurement)]
    assert kept == list(range(len(kept))) and len(kept) >= reported + 1
    assert store.validate([tmp_path]) == (len(kept) + 1, [])


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_resume_cuts_a_torn_line_and_says_so(
    tmp_path: Path, v1_lines: list[bytes], records: list[store.Record], cut: int
) -> None:
    path = written(tmp_path / "f.jsonl", [*v1_lines[:2], v1_lines[2][:cut]], tail=b"")
    with RunFile.resume(path).file as file:
        file.append(records[2])
    assert path.read_bytes().splitlines() == v1_lines[:3]
    path = written(tmp_path / "f.jsonl", [*v1_lines[:2], v1_lines[2][:cut]], tail=b"")
    resumed = RunFile.resume(path)
    resumed.file.close()
    assert resumed.notes == [f"{path}:3: cut off after {cut} bytes; that line is left out"]


def test_resume_keeps_a_whole_line_that_lacks_its_newline(
    tmp_path: Path, v1_lines: list[bytes], records: list[store.Record]
) -> None:
    path = written(tmp_path / "f.jsonl", v1_lines[:3], tail=b"")
    resumed = RunFile.resume(path)
    with resumed.file as file:
        file.append(records[3])
    assert resumed.records == records[1:3]
    assert path.read_bytes() == b"\n".join(v1_lines[:4]) + b"\n"


def test_resume_refuses_a_complete_run(tmp_path: Path, v1_lines: list[bytes]) -> None:
    path = written(tmp_path / "f.jsonl", v1_lines)
    with pytest.raises(StoreError, match="complete"):
        RunFile.resume(path)
    assert path.read_bytes().splitlines() == v1_lines


@pytest.mark.parametrize("outcome", ["budget", "interrupted", "error"])
def test_resume_goes_on_behind_a_run_that_stopped_early(
    tmp_path: Path, v1_lines: list[bytes], outcome: str
) -> None:
    path = written(tmp_path / "f.jsonl", [*v1_lines[:5], edited(v1_lines[5], outcome=outcome)])
    resumed = RunFile.resume(path)
    resumed.file.close()
    assert path.read_bytes().splitlines() == v1_lines[:5]
    assert len(resumed.records) == 4 and outcome in resumed.notes[0]


def test_resume_refuses_a_file_that_somebody_writes(
    tmp_path: Path, run: Run, records: list[store.Record]
) -> None:
    with RunFile.create(tmp_path, run) as file:
        with pytest.raises(StoreError, match="another collector"):
            RunFile.resume(file.path)
        file.append(records[1])
    RunFile.resume(file.path).file.close()


def test_resume_changes_nothing_of_an_unsound_file(tmp_path: Path, v1_lines: list[bytes]) -> None:
    path = written(tmp_path / "f.jsonl", [v1_lines[0], b"{}", v1_lines[2][:30]], tail=b"")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"f\.jsonl:2: kind: None is none of"):
        RunFile.resume(path)
    assert path.read_bytes() == before


def test_a_full_disk_loses_nothing(
    tmp_path: Path, run: Run, records: list[store.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, [100]

    def write_until_full(descriptor: int, content: bytes) -> int:
        if not room:
            return write(descriptor, content)
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        taken = write(descriptor, content[: room[0]])
        room[0] -= taken
        return taken

    file = RunFile.create(tmp_path, run)
    before = file.path.read_bytes()
    monkeypatch.setattr("collector.store.os.write", write_until_full)
    for record in records[1:3]:
        with pytest.raises(StoreError, match=r"No space left on device; free some space.*--resume"):
            file.append(record)
        assert file.path.read_bytes() == before
    room.clear()
    file.append(records[3])
    file.close()
    assert [row for _, row in store.read(file.path)] == records[:4]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_the_system_error_of_a_full_disk_is_told(records: list[store.Record]) -> None:
    file = RunFile(Path("/dev/full"), os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(StoreError, match="No space left on device"):
        file.append(records[1])
    with pytest.raises(StoreError, match="No space left on device"):
        file.close()


def test_a_run_that_cannot_be_begun_leaves_no_file(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("collector.store.os.write", full)
    with pytest.raises(StoreError):
        RunFile.create(tmp_path, run)
    assert store.run_files(tmp_path) == []


def test_an_unwritable_folder_is_told_with_a_remedy(tmp_path: Path, run: Run) -> None:
    (tmp_path / "data").write_text("a file where the folder must be")
    with pytest.raises(StoreError, match=r"cannot write .*data/runs.*Not a directory.*--output"):
        RunFile.create(tmp_path / "data", run)


def test_what_is_appended_can_be_read(tmp_path: Path, run: Run, v1_lines: list[bytes]) -> None:
    passed = parse(v1_lines[2])
    assert isinstance(passed, Measurement) and passed.latency
    broken = passed.model_copy(
        update={"latency": passed.latency.model_copy(update={"median_ns": 0.0})}
    )
    with RunFile.create(tmp_path, run) as file:
        with pytest.raises(ValueError):
            file.append(broken)
        assert file.path.read_bytes().splitlines() == v1_lines[:1]


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "f.jsonl:1: no run line"),
        (LFS, "f.jsonl:1: a Git LFS pointer, not records: run `git lfs pull`"),
        (b'{"kind":"run","schema_version":2}\n', "f.jsonl:1: schema_version: version 2 is newer"),
        (b'{"kind":"run"}\n', "f.jsonl:1: schema_version: None is no version"),
        (b'{"name":"softmax","gbps":1200}\n', "f.jsonl:1: kind: None comes first"),
        (b"[1, 2]\n", "f.jsonl:1: a JSON list, not a record"),
        (b"name,ms\nsoftmax,1\n", "f.jsonl:1: not JSON"),
        (b"\x89PNG\r\n\x1a\n", "f.jsonl:1: not UTF-8 at byte 1"),
        (b'{"kind":"run","schema_ver', "f.jsonl:1: cut off"),
        (b"[" * 100_000 + b"\n", "f.jsonl:1: not JSON"),
    ],
)
def test_a_file_that_is_no_run_is_one_problem(content: bytes, told: str) -> None:
    (problem,) = problems(content)
    assert problem.startswith(told)


def test_bad_lines_are_named_and_the_rest_is_kept(v1_lines: list[bytes]) -> None:
    run, sentinel, passed, hot, oom, end = v1_lines
    bad = {
        passed.replace(b'"median_ns":', b'"median_ns":NaN,"x":'): "NaN is no measured value",
        hot.replace(b'"at_s":5.1', b'"at_s":-Infinity'): "-Infinity is no measured value",
        edited(oom, colour="red"): "colour: Extra inputs are not permitted; an unknown key",
        edited(oom, replicate=None): "replicate: Input should be a valid integer",
        b'{"kind":"trace"}': "kind: 'trace' is none of run, sentinel, measurement, counters, end",
        b"\xff\xfe": "not UTF-8 at byte 1",
        b"": "not JSON",
        run: "kind: a second run line",
        passed[:100]: "not JSON",
        passed.replace(
            b'"min_ns":', b'"min_ns":0,"q00":'
        ): "latency.min_ns: Input should be greater",
    }
    rows = list(read_lines("f.jsonl", b"\n".join([run, *bad, sentinel, end, b""])))
    told = [str(row) for _, row in rows[1:-2]]
    for number, (problem, expected) in enumerate(zip(told, bad.values(), strict=True), start=2):
        assert problem.startswith(f"f.jsonl:{number}: {expected}")
    assert [row.kind for _, row in rows if not isinstance(row, Problem)] == [
        "run",
        "sentinel",
        "end",
    ]


def test_lines_behind_the_end_are_problems(v1_lines: list[bytes]) -> None:
    (problem,) = problems(b"\n".join([*v1_lines, v1_lines[2], b""]))
    assert problem == "f.jsonl:7: kind: a line behind the end of the run: remove it"


def test_a_torn_last_line_is_told_from_a_wrong_one(v1_lines: list[bytes]) -> None:
    (problem,) = problems(v1_lines[0] + b"\n" + v1_lines[2][:90])
    assert problem.startswith("f.jsonl:2: cut off")
    assert problems(b"\n".join(v1_lines)) == []


def test_older_versions_are_upgraded_step_by_step(
    v1_lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(old: str, new: str) -> Upgrade:
        return lambda line: {new if key == old else key: value for key, value in line.items()}

    monkeypatch.setattr("collector.reading.SCHEMA_VERSION", 3)
    upgrades = {1: rename("spent", "used"), 2: rename("used", "seconds")}
    oldest = v1_lines[5].replace(b'"seconds"', b'"spent"')
    content = b"\n".join([v1_lines[0], oldest, b""])
    assert [row for _, row in read_lines("f", content, upgrades)] == [
        parse(v1_lines[0]),
        parse(v1_lines[5]),
    ]
    upgrades[2] = rename("spent", "seconds")
    assert isinstance(list(read_lines("f", content, upgrades))[1][1], Problem)


def test_validate_finds_a_run_that_is_there_twice(tmp_path: Path, v1_lines: list[bytes]) -> None:
    for name in ("a", "b"):
        written(tmp_path / "runs" / "example-gpu" / f"{name}.jsonl", v1_lines)
    sound, (problem,) = store.validate([tmp_path])
    assert sound == 12
    assert str(problem).startswith(f"{tmp_path}/runs/example-gpu/b.jsonl:1: run_id: run 5d1f")
