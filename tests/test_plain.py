"""The site as plain Markdown: engines that know nothing of this program build it whole."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dashboard import __main__ as command
from tests import synthetic
from tests.linking import ADDRESS, lost, pages

ZENSICAL = os.environ.get("ZENSICAL") or (find_spec("zensical") and f"{sys.executable} -m zensical")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("plain")
    synthetic.build(data, commits=2, replicates=1, sweep=3, timers=("graph",), caches=("cold",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALMANAC_NPM", "off")
        told = ["--out", str(out), "--data", str(data), "--site-url", ADDRESS]
        assert command.main(told) == 0
    return out


def engine(project, *words):
    """Run another engine where nothing of this program can be found."""
    apart = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    apart["NO_MKDOCS_2_WARNING"] = "1"
    shutil.rmtree(project / "site", ignore_errors=True)
    done = subprocess.run(words, cwd=project, env=apart, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return project / "site"


def whole(site, project):
    """Check that all documents became pages whose links lead somewhere."""
    documents = (project / "docs").rglob("*.md")
    made = {
        path.relative_to(project / "docs").with_suffix(".html").as_posix() for path in documents
    }
    assert made <= set(pages(site))
    assert lost(site) == set()
    assert '<svg class="ka-svg"' in (site / "kernels" / "sinkhorn.html").read_text()
    assert '<svg class="ka-svg"' in (site / "read-a-roofline.html").read_text()


def test_configuration_names_nothing_outside_the_project(project):
    text = (project / "mkdocs.yml").read_text()
    assert "hook" not in text and "!ENV" not in text and "templates" not in text
    assert (project / "overrides" / "main.html").exists()
    assert (project / "docs" / "assets" / "almanac.css").exists()


def test_mkdocs_builds_it_without_our_hook(project):
    whole(engine(project, sys.executable, "-m", "mkdocs", "build", "--strict"), project)


@pytest.mark.skipif(not ZENSICAL, reason="Zensical is not installed; set ZENSICAL to its command")
def test_zensical_builds_it(project):
    whole(engine(project, *ZENSICAL.split(), "build", "--strict", "--clean"), project)


def test_written_pages_are_filled_in(project):
    text = (project / "docs" / "read-a-roofline.md").read_text()
    assert "{{" not in text and "<figure" in text
    assert not list(Path(project).rglob("*.j2"))
