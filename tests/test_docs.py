import json
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from collector import schema
from collector.__main__ import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DATA = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PARTS = schema.json_schema()["$defs"]
FIELDS = [(part, field) for part in PARTS for field in PARTS[part]["properties"]]


@pytest.mark.parametrize("target", re.findall(r"^([a-z-]+):.* ## ", MAKEFILE, re.MULTILINE))
def test_every_make_target_is_in_the_readme(target: str) -> None:
    assert target == "help" or f"`make {target}" in README


def test_every_make_target_is_phony() -> None:
    phony = next(line for line in MAKEFILE.splitlines() if line.startswith(".PHONY:")).split()[1:]
    assert set(phony) >= set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_strict_builds_are_not_quiet_for_then_mkdocs_counts_no_warning() -> None:
    builds = re.findall(r"mkdocs build .*", MAKEFILE)
    assert len(builds) >= 4 and all("--strict" in line for line in builds)
    assert not [line for line in builds if "--quiet" in line or "-q" in line.split()]


@pytest.mark.parametrize(
    "command", ["add", "validate", "collect", "codegen", "report", "roofline", "counters"]
)
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"python -m collector {command}" in README or f"make {command}" in README


def test_commands_in_the_documents_parse() -> None:
    found = re.findall(r"ARGS=\"(--op[^\"]*|--replicates[^\"]*)\"", README + CONTRIBUTING)
    collect = get_command(app).commands["collect"]
    assert len(found) >= 3
    for line in found:
        assert collect.make_context("collect", shlex.split(line)).params["output"] == Path("data")


@pytest.mark.parametrize(("part", "field"), FIELDS, ids=map("-".join, FIELDS))
def test_every_field_has_words_in_the_documentation(part: str, field: str) -> None:
    section = DATA.split(f"### {part}\n")[1].split("\n### ")[0]
    row = next(line for line in section.splitlines() if line.startswith(f"| `{field}` |"))
    meaning = re.split(r"(?<!\\)\|", row)[3].strip()
    assert meaning.endswith((".", "...")) and len(meaning) > 6


def test_the_schema_file_is_current_and_describes_the_frozen_lines() -> None:
    assert schema.stale(ROOT / "data") == []
    import jsonschema

    written = json.loads((ROOT / "data/schema/record.v1.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(written)
    lines = (ROOT / "tests/history/record.v1.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        validator.validate(json.loads(line))
    zero = json.loads(lines[2])
    zero["latency"]["median_ns"] = 0
    assert not validator.is_valid(zero)


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md"]
)
def test_links_between_documents_lead_somewhere(document: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("https://"):
            assert ((ROOT / document).parent / target).exists(), target


def test_the_changelog_begins_with_what_is_unreleased() -> None:
    titles = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] == "[Unreleased]"
