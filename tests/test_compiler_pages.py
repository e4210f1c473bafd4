"""What the compiler made, on the pages: changes by commit, times beside code, fact beside model."""

import hashlib
import re
from pathlib import Path

import pytest

from collector.history.commits import GitCommit
from collector.history.load import load_history
from dashboard import build, code_checks, code_words, compiler
from dashboard.code_history import code_history, read_code
from dashboard.environment import environment
from tests import code_records, synthetic
from tests.code_records import code, line, run_plan, write

ROOT = Path(__file__).parent.parent
TEMPLATES = environment(ROOT / "templates")
HOSTILE = "<script>alert(1)</script> </script> | {{ 7*7 }} <b>bold</b>"
A, B, C = (letter * 40 for letter in "abc")


def made(data, order=()):
    records, problems = read_code(data)
    assert problems == []
    return code_history(records, order)


def pages(data, order=()):
    return build.render(load_history(data), TEMPLATES, code=made(data, order))


def by_commit(history):
    return {step.record.commit[0]: step for step in history.steps}


def text(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def worse(**changed):
    return code(
        **({"registers": 80, "spills": 4, "occupancy": 0.5, "sass_hash": "b" * 12} | changed)
    )


# Records in order and compared -------------------------------------------------------------------


def test_commits_are_compared_along_the_first_parents_whatever_their_dates(tmp_path):
    write(tmp_path, A, [line()], day=9)
    write(tmp_path, B, [line(worse())], day=5)
    write(tmp_path, C, [line(worse())], day=1)
    order = [
        GitCommit(sha, f"2026-01-{day:02}T00:00:00Z", "") for sha, day in ((A, 9), (B, 5), (C, 1))
    ]
    steps = by_commit(made(tmp_path, order))
    before = {name: step.before and step.before.commit[0] for name, step in steps.items()}
    assert before == {"a": None, "b": "a", "c": "b"}
    assert [len(steps[name].found) for name in "abc"] == [0, 1, 0]


def test_commit_that_git_lacks_goes_where_its_time_says(tmp_path):
    for sha, day in ((A, 1), (B, 9), (C, 5)):
        write(tmp_path, sha, [line()], day=day)
    order = [GitCommit(A, "2026-01-01T00:00:00Z", ""), GitCommit(B, "2026-01-09T00:00:00Z", "")]
    assert [record.commit[0] for record in made(tmp_path, order).records] == ["a", "c", "b"]


def test_record_is_compared_with_the_last_by_the_same_compiler(tmp_path):
    other = {"triton": "3.9.0", "ptxas": "13.0"}
    write(tmp_path, A, [line()], day=1)
    write(tmp_path, B, [line(worse())], versions=other, day=2)
    write(tmp_path, C, [line()], day=3)
    steps = by_commit(made(tmp_path))
    assert steps["c"].before.commit == A and not steps["c"].other_compiler
    assert steps["b"].before.commit == A and steps["b"].other_compiler
    assert made(tmp_path).between(A, B) is None


def test_op_and_launch_that_one_side_lacks_is_no_difference(tmp_path):
    write(tmp_path, A, [line(workloads=["rows=1,hidden=8,float16"])], day=1)
    new = line(worse(), workloads=["rows=2,hidden=8,float16"])
    same = line(workloads=["rows=1,hidden=8,float16"])
    write(tmp_path, B, [same, new, line(op="swiglu")], day=2)
    (step, _) = made(tmp_path).steps
    assert (step.found, step.apart, step.first, step.launches) == ((), 1, ("swiglu",), 1)


def test_records_that_no_commit_names_are_left_out_and_counted(tmp_path):
    write(tmp_path, A, [line()])
    write(tmp_path, B, [line(worse())], dirty=True)
    write(tmp_path, None, [line(worse())])
    history = made(tmp_path)
    assert [record.commit for record in history.records] == [A] and history.left_out == 2


def test_bad_line_is_a_problem_with_its_place_and_the_rest_stays(tmp_path):
    path = write(tmp_path, A, [line(), line(op="swiglu")])
    path.write_text(path.read_text().replace('"registers":40', '"registers":-1', 1))
    records, problems = read_code(tmp_path)
    assert [one.op for one in records[0].lines] == ["swiglu"]
    assert [(one.file, one.line, one.field) for one in problems] == [
        (f"codegen/{path.name}", 2, "code.registers")
    ]


# In words ----------------------------------------------------------------------------------------


def test_figures_say_from_what_to_what_they_moved_and_how_often(tmp_path):
    old = [line(workloads=[f"rows={n},hidden=8,float16"], constants=f"BLOCK={n}") for n in range(5)]
    new = [
        line(code(registers=r, sass_hash=f"{r:012x}"), workloads=[f"rows={n},hidden=8,float16"],
             constants=f"BLOCK={n}")
        for n, r in enumerate((50, 50, 60, 70, 80))
    ]  # fmt: skip
    write(tmp_path, A, old, day=1)
    write(tmp_path, B, new, day=2)
    (change,) = code_words.changes(made(tmp_path).steps[0].found)
    assert change.resources == ["registers 40 → 50 (2), 40 → 60 (1), 40 → 70 (1) and 1 more"]
    assert (len(change.forms), change.launches, change.instructions) == (5, 5, [])


def test_rules_are_told_with_what_they_cost_and_gates_come_first(tmp_path):
    write(tmp_path, A, [line()], day=1)
    write(tmp_path, B, [line(worse(special=2), options="num_warps=8,enable_fp_fusion=True")], day=2)
    step = made(tmp_path).steps[0]
    (change,) = code_words.changes(step.found)
    names = [rule.name for rule, _ in change.rules]
    assert names[0] == "new spills" and set(names) >= {"lower occupancy", "more special functions"}
    assert len(step.gated) == 1
    assert change.instructions == ["special functions 0 → 2"]
    assert change.launch == ["num_warps 4 → 8"]
    page = text(pages(tmp_path)["compiler.md"].decode())
    assert "1 break a gate" in page and "registers 40 → 80" in page
    assert "new spills (gate) in 1 form: Each spilled register goes through local memory" in page


def test_kernel_that_no_longer_compiles_is_told(tmp_path):
    write(tmp_path, A, [line()], day=1)
    write(tmp_path, B, [line(None, reason="out of resource")], day=2)
    (change,) = code_words.changes(made(tmp_path).steps[0].found)
    assert "compiles yes → no" in change.resources
    page = text(pages(tmp_path)["compiler.md"].decode())
    assert "does not compile (gate)" in page and "and some do not compile" in page


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("A=1,B=2", "A=1,B=3", ["B 2 → 3"]),
        ("A=1", "A=1,B=True", ["B none → True"]),
        ("", "", []),
    ],
)
def test_changed_parts_of_a_launch(old, new, words):
    assert code_words.changed_parts(old, new) == words


# Times and code ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slower(tmp_path_factory):
    """Runs of three commits, the last slower; records of the last two, with spills in one form."""
    data = tmp_path_factory.mktemp("slower")
    plan = run_plan(
        commits=3, effects={(2, "rms_norm", "triton"): 1.3, (2, "rms_norm", "torch"): 1.2}
    )
    synthetic.build(data, plan)
    second = code_records.WORKLOADS[1]
    _, before, after = plan.shas()
    # The order of sizes in the name of a workload is the op's, which a record need not keep.
    swapped = "hidden=4096,rows=1,float16"
    same = line(op="rms_norm", workloads=[second], constants="BLOCK=512")
    write(data, before, [line(workloads=[swapped]), same], day=6)
    write(data, after, [line(worse(), workloads=[swapped]), same], day=7)
    return data, plan


def test_regression_leads_to_the_change_of_code_between_the_same_commits(slower):
    data, plan = slower
    files = pages(data)
    page = files[f"commits/{plan.shas()[2][:12]}.md"].decode()
    rows = re.findall(r"<tr>.*?</tr>", page.split('id="code"')[0], re.S)
    mine = [row for row in rows if "rms_norm</a> triton " in row and "rows 1," in row]
    assert len(mine) == 1
    assert '<a href="#code">Compiled for sm_90, the machine code differs: new spills; ' in mine[0]
    assert "registers 40 → 80; spills 0 → 4" in mine[0]
    other = [row for row in rows if "rms_norm</a> triton " in row and "rows 4," in row]
    assert "the machine code of both is the same" in other[0] and "#code" not in other[0]
    assert not any("Compiled for" in row for row in rows if "</a> torch " in row)


def test_list_of_regressions_leads_to_the_code_on_the_page_of_the_commit(slower):
    data, plan = slower
    page = pages(data)["regressions.md"].decode()
    assert f'href="../commits/{plan.shas()[2][:12]}/#code">Compiled for sm_90' in page


def test_change_between_other_commits_or_by_other_compilers_is_no_evidence(tmp_path):
    plan = run_plan(commits=3, effects={(2, "rms_norm", "triton"): 1.3})
    synthetic.build(tmp_path, plan)
    first, before, after = plan.shas()
    write(tmp_path, first, [line()], day=5)
    write(tmp_path, before, [line()], versions={"triton": "3.5.0"}, day=6)
    write(tmp_path, after, [line(worse())], day=7)
    page = pages(tmp_path)[f"commits/{after[:12]}.md"].decode()
    assert "slower" in page and "Compiled for" not in page.split('id="code"')[0]
    assert "registers 40 → 80" in page.split('id="code"')[1]


def test_page_of_a_commit_without_a_record_says_how_one_is_made(tmp_path):
    plan = run_plan(commits=2)
    synthetic.build(tmp_path, plan)
    page = pages(tmp_path)[f"commits/{plan.shas()[1][:12]}.md"].decode()
    assert f"python -m collector codegen --commit {plan.shas()[1][:8]}" in page


# Expectation and fact ----------------------------------------------------------------------------


def loaded(data, triton="3.6.0", assembler=None, **changed):
    """Write a run at one commit and the record of that commit; return what checks say."""
    plan = run_plan(commits=1, versions={0: {"ptxas": assembler} if assembler else {}})
    synthetic.build(data, plan)
    history = load_history(data)
    sass = next(p[0].codegen[0].sass_hash for k, p in history.series.items() if p[0].codegen)
    versions = {"triton": triton, "ptxas": "12.8.93"}
    write(data, plan.shas()[0], [line(code(**({"sass_hash": sass} | changed)))], versions)
    found, other = code_checks.checks(history, made(data))
    return [one for one in found if one.compared], other


def test_loaded_kernels_that_equal_the_record_agree(tmp_path):
    (one,), other = loaded(tmp_path)
    assert (one.op, one.implementation, one.device) == ("rms_norm", "triton", "nvidia-h200")
    assert (one.compared, one.equal, one.same_code, one.unlike, other) == (2, 2, 2, (), [])
    assert one.loaded == 5  # two rows of the curve and three sizes in bfloat16
    page = text(pages(tmp_path)["compiler.md"].decode())
    assert "= agrees registers, spills, shared memory: 2 of 2 kernels agree" in page
    assert "machine code: 2 of 2 the same" in page


def test_loaded_kernel_with_another_number_of_registers_differs_and_says_how(tmp_path):
    (one,), _ = loaded(tmp_path, registers=44, sass_hash="c" * 12)
    assert (one.compared, one.equal, one.same_code) == (2, 0, 0) and not one.agrees
    assert one.unlike == ("rms_norm_kernel: registers 44 expected, 40 loaded",)
    assert "≠ differs" in pages(tmp_path)["compiler.md"].decode()


def test_another_triton_is_told_and_never_compared(tmp_path):
    found, (other,) = loaded(tmp_path, triton="3.9.0", registers=44)
    assert found == [] and (other.ran, other.recorded) == ("3.6.0", ("3.9.0",))
    page = text(pages(tmp_path)["compiler.md"].decode())
    assert "the card ran Triton 3.6.0, the record is by 3.9.0; not compared" in page


def test_another_assembler_under_the_same_triton_is_told_and_never_compared(tmp_path):
    found, (other,) = loaded(tmp_path, assembler="13.0.88", registers=44)
    assert found == [] and other.ran == "3.6.0 and ptxas 13.0.88"


def test_the_same_assembler_is_compared(tmp_path):
    (one,), other = loaded(tmp_path, assembler="12.8.93")
    assert one.agrees and other == []


# Pages -------------------------------------------------------------------------------------------


def test_number_and_size_of_pages_do_not_grow_with_the_history(tmp_path):
    for place in range(70):
        sha = hashlib.sha1(str(place).encode()).hexdigest()
        write(
            tmp_path,
            sha,
            [line(code(registers=place, sass_hash=f"{place:012x}"))],
            day=1 + place % 28,
        )
    files = pages(tmp_path)
    code_pages = [name for name in files if "compiler" in name or name.startswith("commits/")]
    assert sorted(code_pages) == ["commits/index.md", "compiler.md"]
    page = files["compiler.md"].decode()
    assert page.count("<h3") == 10 and page.count("<tr") < 100


def test_every_fragment_leads_to_a_place_on_its_page(slower):
    data, _ = slower
    write(data, C, [line(code(registers=9, sass_hash="d" * 12))], day=20)
    files = {
        path: content.decode() for path, content in pages(data).items() if path.endswith(".md")
    }
    seen = 0
    for path, page in files.items():
        for way, fragment in re.findall(r'href="([^"#]*)#(code[^"]*)"', page):
            goal = re.sub(r"^(\.\./)*|/$", "", way)
            assert f'id="{fragment}"' in (files[f"{goal}.md"] if goal else page), path
            seen += 1
    assert seen >= 3


def test_hostile_names_are_text(tmp_path):
    plan = run_plan(commits=2, effects={(1, "rms_norm", "triton"): 1.3})
    synthetic.build(tmp_path, plan)
    before, after = plan.shas()
    for sha, kernel in ((before, code()), (after, worse())):
        write(tmp_path, sha, [line(kernel, kernel=HOSTILE, constants=f"{HOSTILE}{sha}")],
              subject=HOSTILE)  # fmt: skip
    write(tmp_path, C, [line(worse(registers=9), kernel=HOSTILE)], day=20, subject=HOSTILE)
    files = pages(tmp_path)
    seen = 0
    for path, content in files.items():
        if path.endswith(".md"):
            assert "<script>alert" not in content.decode() and "<b>bold" not in content.decode(), (
                path
            )
            seen += "alert(1)" in content.decode()
    assert seen == 2


def test_table_shows_the_figures_of_the_newest_record_of_each_op(tmp_path):
    write(tmp_path, A, [line(), line(op="swiglu", made=code(registers=33))], day=1)
    forms = [line(code(registers=r), workloads=[f"rows={r},hidden=8,float16"]) for r in (30, 72)]
    write(tmp_path, B, forms, day=2)
    page = pages(tmp_path)["compiler.md"].decode().split('id="kernels-table"')[1]
    rows = {re.search(r'data-op="(\w+)"', row)[1]: text(row) for row in page.split("<tr ")[1:]}
    assert " 30–72 " in rows["rms_norm"] and B[:8] in rows["rms_norm"]
    assert " 33 " in rows["swiglu"] and A[:8] in rows["swiglu"]


def test_without_records_the_page_says_how_they_are_made(tmp_path):
    synthetic.build(tmp_path, run_plan(commits=1))
    page = pages(tmp_path)["compiler.md"].decode()
    assert "No data yet" in page and "python -m collector codegen" in page


def test_table_of_forms_stays_small_however_many_kernels_differ():
    for kernels in (0, 1, 7, 47, 60):
        each = compiler.forms_shown([None] * kernels)
        assert compiler.LEAST_FORMS <= each <= compiler.FORMS_SHOWN
        assert kernels * each <= compiler.FORMS_SHOWN
