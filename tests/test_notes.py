"""Notes about ops: linked from the page of each op that their front matter names."""

import re
from pathlib import Path

import pytest

from collector.history.load import load_history
from dashboard import build
from dashboard.environment import environment
from dashboard.links import Links
from dashboard.notes import read_notes
from kernels import registry
from tests import synthetic

ROOT = Path(__file__).parent.parent
TEMPLATES = environment(ROOT / "templates")
HOSTILE = "<script>alert(1)</script> & {{ 7*7 }}"


def write(docs, name, front, text="# A heading\n\nText."):
    (docs / "notes").mkdir(parents=True, exist_ok=True)
    head = f"---\n{front}\n---\n\n" if front else ""
    (docs / "notes" / f"{name}.md").write_text(head + text)


@pytest.fixture
def history(tmp_path):
    plan = synthetic.Plan(
        commits=1, replicates=1, sweep=1, samples=4, timers=("graph",), caches=("cold",)
    )
    synthetic.build(tmp_path / "data", plan)
    return load_history(tmp_path / "data")


def section(history, notes, op, links=None):
    page = build.render(history, TEMPLATES, links, notes=notes)[f"kernels/{op}.md"].decode()
    found = re.search(r'id="notes".*?</ul>', page, re.DOTALL)
    assert ('href="#notes"' in page) == bool(found)
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("folders", "address"), [(True, "../../notes/claims/"), (False, "../notes/claims.html")]
)
def test_note_is_linked_from_no_ops_but_those_named(tmp_path, history, folders, address):
    write(tmp_path, "claims", "ops: [sinkhorn, other]\ndescription: Where claims hold.")
    notes = read_notes(tmp_path)
    text = section(history, notes, "sinkhorn", Links(folders))
    assert f'<a href="{address}">A heading</a>: Where claims hold.' in text
    assert section(history, notes, "rms-norm") == ""


def test_note_without_front_matter_or_ops_is_linked_nowhere(tmp_path):
    write(tmp_path, "a", "")
    write(tmp_path, "b", "title: Something")
    assert read_notes(tmp_path) == ()
    assert read_notes(tmp_path / "nothing") == ()


def test_title_and_words_of_a_note_are_text(tmp_path, history):
    quoted = HOSTILE.replace("'", "''")
    write(tmp_path, "a", f"ops: sinkhorn\ntitle: '{quoted}'\ndescription: '{quoted}'")
    text = section(history, read_notes(tmp_path), "sinkhorn")
    assert "<script" not in text and text.count("alert(1)") == 2 and "{{ 7*7 }}" in text


def test_front_matter_that_cannot_be_read_names_its_file(tmp_path):
    write(tmp_path, "broken", "ops: [sinkhorn")
    with pytest.raises(ValueError, match=r"notes/broken\.md"):
        read_notes(tmp_path)


def test_changed_note_makes_a_new_site(tmp_path):
    write(tmp_path / "site" / "docs", "a", "ops: sinkhorn")
    options = build.Options(tmp_path / "data", tmp_path, ROOT / "templates")
    before = build._inputs(options, "x")
    write(tmp_path / "site" / "docs", "a", "ops: rms_norm")
    assert build._inputs(options, "x") != before


def test_committed_notes_name_ops_that_exist():
    notes = read_notes(ROOT / "site" / "docs")
    known = set(registry.op_names())
    assert notes and {op for note in notes for op in note.ops} <= known
