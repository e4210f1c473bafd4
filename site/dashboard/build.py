"""Records to a website: pure from a history to files in memory; two adapters write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment

from dashboard import pages
from dashboard.book import Book, make_book
from dashboard.changes import change_pages
from dashboard.environment import environment
from dashboard.facts import data, device_pages, health
from dashboard.format import plural
from dashboard.history import load_history
from dashboard.links import Links
from dashboard.model import History
from dashboard.op_page import op_files
from dashboard.plotly_js import find_bundle
from dashboard.regressions import commit_tables

File = tuple[str, bytes]
MANIFEST = ".almanac-files"
IN_NAV = frozenset(
    {
        "index.md",
        "kernels/index.md",
        "roofline.md",
        "regressions.md",
        "commits/index.md",
        "devices/index.md",
        "health.md",
        "data.md",
    }
)


@dataclass(frozen=True, slots=True)
class Options:
    """Where things are, and how the site will be served."""

    data: Path
    repo: Path
    templates: Path
    folders: bool = True
    site_url: str = ""
    repo_url: str = ""


def render(
    history: History,
    templates: Environment,
    links: Links | None = None,
    plotly_path: str = "assets/plotly.js",
    site_url: str = "",
) -> dict[str, bytes]:
    """Return every generated file by its path; the same history gives the same bytes."""
    return dict(_files(make_book(history, templates, links or Links(), plotly_path, site_url)))


def _files(book: Book) -> Iterator[File]:
    tables = commit_tables(book.history)
    yield from pages.home(book, tables)
    yield from pages.kernels(book)
    yield from pages.roofline(book)
    yield from change_pages(book, tables)
    yield from device_pages(book)
    yield from health(book, tables)
    yield from data(book)
    for op in book.history.ops.values():
        yield from op_files(book, op)


@dataclass(frozen=True, slots=True)
class Site:
    """All generated files, and what a banner on every page says; empty when all is well."""

    files: dict[str, bytes]
    banner: str


def site(options: Options) -> Site:
    """Read the records and return all generated files, the chart library included."""
    history = load_history(options.data, options.repo)
    bundle = find_bundle(options.repo)
    plotly_path = f"assets/{bundle.name}"
    links = Links(options.folders, options.repo_url.rstrip("/"))
    book = make_book(history, environment(options.templates), links, plotly_path, options.site_url)
    files = dict(_files(book)) | {plotly_path: bundle.content} | _records(options.data, book)
    return Site(files, _banner(history))


def _banner(history: History) -> str:
    if not history.problems:
        return ""
    return f"{plural(len(history.problems), 'problem')} in the records: some of them are not shown."


def _records(data: Path, book: Book) -> dict[str, bytes]:
    """Return the record files that pages link to, where no repository shows them."""
    if book.links.repo_url:
        return {}
    shown = {curves.run.file for views in book.views.values() for curves in views.values()}
    return {f"data/{name}": (data / name).read_bytes() for name in sorted(shown)}


def write(files: dict[str, bytes], folder: Path) -> int:
    """Write what changed, remove what this command made before and no longer makes; count it."""
    manifest = folder / MANIFEST
    before = set(manifest.read_text().split("\n")) if manifest.exists() else set()
    for name in before - set(files) - {""}:
        (folder / name).unlink(missing_ok=True)
    changed = [name for name, content in files.items() if _write(folder / name, content)]
    manifest.write_text("\n".join(sorted(files)))
    return len(changed)


def _write(path: Path, content: bytes) -> bool:
    if path.exists() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return True
