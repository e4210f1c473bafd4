"""Machine code side by side: aligned, cut, shown where both texts are kept, and bounded."""

import hashlib
import re
from pathlib import Path

import pytest

from collector import code_files
from collector.history.load import load_history
from dashboard import build, code_diff
from dashboard.code_history import code_history, read_code, read_texts
from dashboard.environment import environment
from tests.code_records import code, line, write

TEMPLATES = environment(Path(__file__).parent.parent / "templates")
A, B = (letter * 40 for letter in "ab")


def sass(registers, count=40, extra=()):
    """Return machine code that adds up, with its registers named from a number on."""
    body = [f"--:-:-:-:4 FADD R{registers + n}, R{registers + n}, R2;" for n in range(count)]
    return "\n".join(["Function:kernel", *body[:20], *extra, *body[20:], "--:-:-:-:5 EXIT;"])


def name_of(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def planted(data, old, new, kept=True, kernels=1):
    """Write records of two commits, whose kernels have one code each; with or without texts."""
    for sha, text, day in ((A, old, 1), (B, new, 2)):
        lines = [
            line(code(sass_hash=name_of(text), registers=day), kernel=f"kernel_{n}",
                 workloads=[f"rows={n},hidden=8,float16"])
            for n in range(kernels)
        ]  # fmt: skip
        path = write(data, sha, lines, day=day)
        if kept:
            code_files.save_texts(code_files.read(path), {name_of(text): text}, data)


def site(data):
    records, problems = read_code(data)
    found = code_history(records)
    found.texts, torn = read_texts(data, code_diff.wanted(found))
    assert problems == []
    files = build.render(load_history(data), TEMPLATES, code=found)
    return files, torn


def columns(page):
    """Return the lines of both sides as a reader sees them, by what marks them."""
    cells = re.findall(r"<code>([ −+]) ([^<]*)</code>", page)
    return {mark: [text for m, text in cells if m == mark] for mark in " −+"}


def sides_of(rows):
    return [row.old for row in rows if row.old is not None], [
        row.new for row in rows if row.new is not None
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (sass(4), sass(4)),
        (sass(4), sass(5)),
        (sass(4), sass(9, extra=["--:-:-:-:1 STL [R1], R9;"])),
        (sass(4, count=300), "Function:kernel"),
        ("", sass(4)),
    ],
)
def test_every_line_of_both_sides_is_there_once_and_in_order(old, new):
    before, after = old.split("\n"), new.split("\n")
    rows = list(code_diff.aligned(before, after))
    assert sides_of(rows) == (before, after)
    assert [row.old_number for row in rows if row.old_number] == list(range(1, len(before) + 1))
    assert [row.new_number for row in rows if row.new_number] == list(range(1, len(after) + 1))


def test_other_registers_stand_beside_each_other_and_a_new_instruction_alone():
    spill = "--:-:-:-:1 STL [R1], R9;"
    old, new = sass(4).split("\n"), sass(500, extra=[spill]).split("\n")
    rows = list(code_diff.aligned(old, new))
    alone = [row for row in rows if row.old is None or row.new is None]
    assert [row.new for row in alone] == [spill]
    both = [row for row in rows if row not in alone]
    assert all(code_diff.opcode(row.old) == code_diff.opcode(row.new) for row in both)


@pytest.mark.parametrize(
    ("text", "opcode"),
    [
        ("--:-:0:-:1 @!P0 LDG.E.128 R4, desc[UR4][R2.64];", "LDG.E.128"),
        ("--:-:-:-:5 EXIT;", "EXIT"),
        ("LBB0:", "LBB0:"),
        ("s_endpgm", "s_endpgm"),
        ("", ""),
    ],
)
def test_opcode_of_a_line(text, opcode):
    assert code_diff.opcode(text) == opcode


def test_page_shows_what_differs_with_a_few_lines_around_and_both_texts(tmp_path):
    spill = "--:-:-:-:1 STL [R1], R9;"
    old, new = sass(4), sass(4, extra=[spill])
    planted(tmp_path, old, new)
    files, torn = site(tmp_path)
    page = files["compiler.md"].decode()
    found = columns(page)
    assert torn == [] and found["−"] == [] and found["+"] == [spill]
    assert len(found[" "]) == 2 * 2 * code_diff.CONTEXT  # on both sides, before and behind
    assert "1 of 43 lines differ" in page
    for text in (old, new):
        path = f"assets/sass/{name_of(text)}.txt"
        assert files[path].decode() == f"{text}\n" and path in page


def test_without_texts_the_command_that_writes_both_is_shown(tmp_path):
    planted(tmp_path, sass(4), sass(5), kept=False)
    files, _ = site(tmp_path)
    page = files["compiler.md"].decode()
    assert "ka-sides" not in page and not [name for name in files if "sass" in name]
    assert f"diff -y build/listing/{name_of(sass(4))}.sass" in page


def test_long_differences_and_many_kernels_are_cut_and_the_rest_is_told(tmp_path):
    planted(tmp_path, sass(4, count=900), sass(5000, count=900), kernels=9)
    files, _ = site(tmp_path)
    page = files["compiler.md"].decode()
    assert page.count("ka-sides") == code_diff.SHOWN
    assert page.count('class="ka-differs"') == code_diff.SHOWN * (code_diff.ROWS - 1)
    assert "3 more kernels with machine code of both sides are left out here" in page
    assert "more rows not shown" in page


def test_text_that_is_not_what_its_name_says_is_a_problem_and_not_shown(tmp_path):
    planted(tmp_path, sass(4), sass(5))
    path = tmp_path / "codegen" / "sass" / f"{name_of(sass(5))}.z"
    path.write_bytes((path.parent / f"{name_of(sass(4))}.z").read_bytes())
    files, torn = site(tmp_path)
    assert [(one.file, one.field) for one in torn] == [(f"codegen/sass/{path.name}", "text")]
    assert "ka-sides" not in files["compiler.md"].decode()


def test_number_of_texts_does_not_grow_with_the_history(tmp_path):
    texts = [sass(n) for n in range(30)]
    for n, text in enumerate(texts):
        sha = hashlib.sha1(str(n).encode()).hexdigest()
        made = line(code(sass_hash=name_of(text), registers=n))
        path = write(tmp_path, sha, [made], day=1 + n % 28)
        code_files.save_texts(code_files.read(path), {name_of(text): text}, tmp_path)
    files, _ = site(tmp_path)
    assert len([name for name in files if "sass" in name]) == code_diff.STEPS + 1


def test_machine_code_is_escaped(tmp_path):
    hostile = "<script>alert(1)</script>"
    planted(tmp_path, sass(4), sass(4, extra=[hostile]))
    files, _ = site(tmp_path)
    page = files["compiler.md"].decode()
    assert hostile not in page and "&lt;script&gt;" in page
