import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
from comparing import PACKED, built, plan, rewrite, told
from rich.console import Console

from collector.compare_report import as_json, markdown, show
from collector.compare_words import card_notes, notes_of, sections_of

ROOT = Path(__file__).parent.parent


def test_what_differs_around_the_kernels_is_said_first(tmp_path):
    result = built(tmp_path, versions={1: {"liger-kernel": "0.8.5"}})
    assert "environment: liger-kernel none -> 0.8.5" in notes_of(result.devices[0])
    one = printed(result).splitlines()
    assert one[3].strip().startswith("environment: ")


def test_another_card_is_told_with_what_it_alone_may_move(tmp_path):
    cards = {0: "aaaaaaaaaaaa", 1: "bbbbbbbbbbbb"}
    result = built(tmp_path, uuids=cards, spread=0.03)
    assert result.exit_code == 0
    told = [note for note in notes_of(result.devices[0]) if note.startswith("another card: ")]
    assert [note.split(": ")[1] for note in told] == ["call times", "graph times"]
    floors = {one["timer"]: one["percent"] for one in in_json(result)["card_floors"]}
    assert f"below {floors['graph']:.1f} % do not count" in told[1]


def test_floors_of_many_ops_are_told_from_the_least_to_the_most():
    floors = {("a", "graph"): 0.03, ("b", "graph"): 0.08, ("c", "graph"): 0.05}
    (note,) = card_notes(floors)
    assert "changes below 3.0 % (a) to 8.0 % (b) do not count" in note


def in_json(result):
    return json.loads(as_json(result))["devices"][0]


def printed(result, **options):
    stream = io.StringIO()
    show(result, Console(file=stream, width=160, force_terminal=True, highlight=False), **options)
    return stream.getvalue()


def in_part(part, **values):
    return lambda line: line | {part: line[part] | values} if line.get(part) else line


def in_code(**values):
    def change(line):
        kernels = line.get("codegen")
        return line | {"codegen": [one | values for one in kernels]} if kernels else line

    return change


def without_code(line):
    return {name: part for name, part in line.items() if name != "codegen"}


def slower_host(line):
    if line.get("case", {}).get("timer") != "call":
        return line
    times = line["latency"]
    return line | {
        "latency": times | {name: ns * 1.2 for name, ns in times.items() if name.endswith("_ns")}
    }


SLOWER = {"effects": {PACKED: 1.05}}
SAME_SOURCE = in_code(source_hash="5" * 12)
SAME_CODE = in_code(sass_hash="0" * 12)


@pytest.mark.parametrize(("changes", "both", "second", "words"), [
    (SLOWER, None, None, "The source of the kernel changed."),
    (SLOWER, None, in_code(registers=64), "changed: 40 to 64 registers."),
    (SLOWER, SAME_SOURCE, in_part("versions", cuda="13.1"),
     "The same source became other machine code (cuda 13.0 to 13.1)."),
    (SLOWER, SAME_SOURCE, in_code(constants="BLOCK=512"),
     "The same source was launched with other constants."),
    (SLOWER, SAME_CODE, None, "The machine code is the same: not the kernel."),
    (SLOWER | {"shift": {1: 1.03}}, None, None, "The machine itself became 3.0% slower"),
    (SLOWER, None, in_part("telemetry", sm_clock_mhz=1886),
     "Time moved and cycles did not: SM clock 1980 to 1886 MHz."),
    ({}, None, slower_host, "the host."),
    ({"effects": {(1, "sinkhorn", "torch"): 1.05}}, None, None, "is not this project's kernel"),
    (SLOWER, without_code, None, "The records do not say why."),
], ids=["source", "resources", "toolchain", "launch", "not the kernel", "machine", "clocks", "host",
        "not ours", "unknown"])  # fmt: skip
def test_each_planted_cause_is_told_in_its_own_words(tmp_path, changes, both, second, words):
    paths = synthetic.build(tmp_path, plan(**changes))
    for path in paths if both else ():
        rewrite(path, both)
    if second:
        rewrite(paths[1], second)
    result = told(tmp_path)
    sections = sections_of(result.devices[0])
    whys = [f"{section.why} {line.why}" for section in sections for line in section.lines]
    assert whys and any(words in why for why in whys)
    assert words in markdown(result)


HOSTILE = (
    "[red]x[/red] \x1b]0;owned\x07\x1b[2J <img src=x onerror=alert(1)> | `a` *b* @all #1 \u202e"
)


@pytest.fixture
def hostile(tmp_path):
    result = built(tmp_path, effects={PACKED: 1.2}, subjects={0: HOSTILE, 1: HOSTILE})

    def change(line):
        if line.get("case", {}).get("implementation") == "triton-packed":
            line["case"]["implementation"] = HOSTILE
        return line

    for path in sorted(tmp_path.rglob("*.jsonl")):
        rewrite(path, change)
    result = told(tmp_path)
    assert result.exit_code == 2
    return result


def test_hostile_names_move_no_cursor_and_mean_no_markup(hostile):
    text = printed(hostile, whole=True)
    assert "[red]x[/red]" in text and "\x1b]0" not in text and "\x1b[2J" not in text
    assert "\x07" not in text and "\u202e" not in text


def test_hostile_names_stay_text_in_markdown(hostile):
    text = markdown(hostile)
    assert "&lt;img" not in text and "<img" not in text and "&#60;img" in text
    assert "[red]" not in text and "@all" not in text and "\x1b" not in text
    assert "<summary>regressed: sinkhorn &#91;red&#93;x" in text
    rows = [line for line in text.splitlines() if line.startswith(("| graph", "| call"))]
    assert len(rows) == 2 and all(line.count("|") == 6 for line in rows)


def test_json_holds_every_row_and_no_nan(hostile):
    value = json.loads(as_json(hostile), parse_constant=pytest.fail)
    rows = value["devices"][0]["rows"]
    assert value["exit_code"] == 2 and len(rows) == 10
    assert sum(row["fails"] for row in rows) == 2
    assert HOSTILE in {row["implementation"] for row in rows}


WITHOUT_TORCH = """
import runpy, sys

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Blocked())
sys.argv[1:] = {!r}
runpy.run_module("collector", run_name="__main__")
"""


def command(*arguments):
    code = WITHOUT_TORCH.format(["compare", *map(str, arguments)])
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_command_ends_with_the_verdict_and_writes_what_was_asked(tmp_path):
    data = tmp_path / "data"
    synthetic.build(data, plan(effects={PACKED: 1.2}))
    files = ("--json", tmp_path / "c.json", "--markdown", tmp_path / "c.md")
    done = command(plan().shas()[1][:8], "--data", data, *files)
    assert done.returncode == 2 and not done.stderr
    assert done.stdout.splitlines()[-1] == "Worse: 2 slower of 10 compared series."
    assert json.loads((tmp_path / "c.json").read_text())["exit_code"] == 2
    assert (tmp_path / "c.md").read_text().startswith("**Worse: 2 slower")


def test_command_takes_a_baseline_file_and_a_limit(tmp_path):
    before, after = synthetic.build(tmp_path / "elsewhere", plan(effects={PACKED: 1.2}))
    limit = ("--max-regression-percent", "10")
    done = command(after, "--baseline", before, *limit, "--data", tmp_path / "none")
    assert done.returncode == 2 and not done.stderr


@pytest.mark.parametrize(("arguments", "code"), [
    ([], 64), (["a", "--jsn", "x"], 64), (["a", "b", "--baseline", "c"], 64),
    (["a", "--max-regression-percent", "inf"], 64),
    (["d24c16d", "--op", "sinkhron"], 64), (["d24c16d", ""], 1),
    (["d24c16d", "--json", "/nowhere/c.json"], 1), (["85eb50d"], 3),
])  # fmt: skip
def test_every_other_end_has_its_own_code_and_a_message(cli, arguments, code):
    done = cli("compare", *arguments)
    assert done.returncode == code and done.stderr and not done.stdout
    assert "Traceback" not in done.stderr
