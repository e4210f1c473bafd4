"""Static expectation beside measured fact, on the page of the op and that of the compiler."""

import re
from pathlib import Path

import pytest

from collector import record
from collector.history.counted import read_counted
from collector.history.load import load_history
from dashboard import build, code_counted, rows
from dashboard.book import make_book
from dashboard.code_history import code_history, read_code
from dashboard.environment import environment
from dashboard.links import Links
from tests import counting, synthetic
from tests.code_records import VERSIONS, code, line, run_plan, write

TEMPLATES = environment(Path(__file__).parent.parent / "templates")
LAUNCH = ["rows=1,hidden=4096,float16"]
OTHER = "f" * 40


def measured(data, row_count=1, dtype="float16"):
    """Write a run, and counters of one case of its Triton kernel; return the line of the run."""
    (path,) = synthetic.build(data, run_plan(commits=1, replicates=1))
    lines = [record.parse(text) for text in path.read_text().splitlines()]
    one = next(
        each
        for each in lines
        if isinstance(each, record.Measurement)
        and each.case.implementation == "triton"
        and each.case.workload.sizes == {"rows": row_count, "hidden": 4096}
        and each.case.workload.dtype == dtype
    )
    # 16384 blocks of 128 threads are 65536 warps.
    kernel = counting.kernel(
        name="rms_norm_kernel", registers=44, instructions=65536 * 120, special_instructions=65536
    )
    head = lines[0].model_copy(update={"versions": lines[0].versions | VERSIONS})
    made = counting.counters(one.case, lines_cost(lines), kernels=[kernel])
    counting.written(data, head, [made])
    return head


def lines_cost(lines):
    return next(each.cost for each in lines if getattr(each, "cost", None))


def found(data):
    records, _ = read_code(data)
    return code_counted.beside(read_counted(data), code_history(records))


def text(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_counted_bytes_stand_in_the_row_of_their_case_and_nowhere_else(tmp_path):
    measured(tmp_path)
    book = make_book(
        load_history(tmp_path), TEMPLATES, Links(), "assets/plotly.js", "",
        counted=read_counted(tmp_path),
    )  # fmt: skip
    every = [
        row
        for curves in book.views["rms_norm"].values()
        for row in rows.rows(book.scene(curves), book.counted)
    ]
    counted = [row for row in every if row.counted]
    assert {(row.key.implementation, row.key.sizes) for row in counted} == {
        ("triton", (("rows", 1), ("hidden", 4096)))
    }
    # 3000 read, 1500 written by the one kernel, 1000 written back later.
    assert [row.counted.dram_bytes for row in counted] == [5500]
    assert counted[0].counted_parts == "read 2.93 KiB, written 1.46 KiB, written back later 1,000 B"


def test_pages_show_what_was_counted_only_where_something_was(tmp_path):
    synthetic.build(tmp_path / "without", run_plan(commits=1, replicates=1))
    measured(tmp_path / "counted", 512, "bfloat16")  # in the view that a page has at first
    seen = {}
    for name in ("without", "counted"):
        data = tmp_path / name
        files = build.render(load_history(data), TEMPLATES, counted=read_counted(data))
        seen[name] = "DRAM bytes, counted" in files["kernels/rms-norm.md"].decode()
    assert seen == {"without": False, "counted": True}


@pytest.mark.parametrize(
    ("triton", "same_commit", "same"),
    [("3.6.0", True, True), ("3.6.0", False, False), ("3.9.0", True, False)],
)
def test_only_the_record_of_the_same_commit_and_triton_must_agree(
    tmp_path, triton, same_commit, same
):
    head = measured(tmp_path)
    commit = head.source.commit if same_commit else OTHER
    write(tmp_path, commit, [line(workloads=LAUNCH)], versions=VERSIONS | {"triton": triton})
    (one,) = found(tmp_path)
    assert one.same == same and one.record.triton == triton
    assert (one.code.registers, one.kernel.registers) == (40, 44)
    assert (one.of_a_warp("instructions"), one.of_a_warp("special_instructions")) == (120.0, 1.0)


def test_record_of_the_same_commit_and_triton_is_preferred(tmp_path):
    head = measured(tmp_path)
    write(tmp_path, head.source.commit, [line(code(registers=7), workloads=LAUNCH)], day=1)
    write(tmp_path, OTHER, [line(code(registers=8), workloads=LAUNCH)], day=9)
    (one,) = found(tmp_path)
    assert one.same and one.code.registers == 7


def test_kernel_of_another_name_or_block_has_no_expectation(tmp_path):
    measured(tmp_path)
    write(tmp_path, OTHER, [
        line(workloads=LAUNCH, options="num_warps=8"),
        line(workloads=LAUNCH, kernel="another"),
    ])  # fmt: skip
    (one,) = found(tmp_path)
    assert one.record is None and one.code is None


def test_page_says_who_expected_and_who_counted(tmp_path):
    measured(tmp_path)
    write(tmp_path, OTHER, [line(workloads=LAUNCH)])
    records, _ = read_code(tmp_path)
    files = build.render(
        load_history(tmp_path), TEMPLATES, code=code_history(records),
        counted=read_counted(tmp_path),
    )  # fmt: skip
    table = files["compiler.md"].decode().split('aria-label="Expected and counted"')[1]
    row = text(table.split("<tbody>")[1].split("</tr>")[0])
    assert " 40 44 90 120.0 0 1.0 Triton 3.6.0 at ffffffff not what was counted" in row
