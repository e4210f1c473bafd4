"""Records to a website: pure from a history to files in memory; two adapters write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from jinja2 import Environment

from collector.history.cache import NO_CACHE, Cache, fingerprint
from collector.history.commits import first_parents
from collector.history.counted import NOTHING_COUNTED, AllCounted, read_counted
from collector.history.load import load_history, no_collection
from collector.history.model import History
from collector.history.processes import spread
from dashboard import pages
from dashboard.book import Book, make_book
from dashboard.changes import COMMIT_PAGES, Step, change_pages, find_steps, paged_commits
from dashboard.code_diff import wanted
from dashboard.code_history import CodeHistory, code_history, read_code, read_texts
from dashboard.compare_page import compare_page
from dashboard.compiler import compiler
from dashboard.environment import environment
from dashboard.facts import data, device_pages, health
from dashboard.format import plural
from dashboard.links import Links
from dashboard.notes import Note, read_notes
from dashboard.op_page import op_files
from dashboard.pipeline import region_files
from dashboard.plotly_js import find_bundle
from dashboard.prose import read_written, written
from dashboard.regressions import commit_tables
from dashboard.roof_page import roofline
from dashboard.sharing import shared_op, shared_site

File = tuple[str, bytes]
MANIFEST = ".almanac-files"
SITES = 4  # in the cache, for builds that take turns
IN_NAV = frozenset(
    {
        "index.md",
        "kernels/index.md",
        "roofline.md",
        "regressions.md",
        "compare.md",
        "commits/index.md",
        "compiler.md",
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
    cache: Cache = NO_CACHE

    @property
    def docs(self) -> Path:
        """Return where the pages are that people write."""
        return self.repo / "site" / "docs"


def render(
    history: History,
    templates: Environment,
    links: Links | None = None,
    plotly_path: str = "assets/plotly.js",
    site_url: str = "",
    notes: tuple[Note, ...] = (),
    code: CodeHistory | None = None,
    counted: AllCounted = NOTHING_COUNTED,
) -> dict[str, bytes]:
    """Return every generated file by its path; the same history gives the same bytes."""
    links = links or Links()
    shown = make_book(history, templates, links, plotly_path, site_url, notes, code, counted)
    return dict(_files(shown))


def _files(book: Book) -> Iterator[File]:
    """Return all pages; those of ops take most of the time and know nothing of one another."""
    jobs = [partial(_shared_files, book, find_steps(book))]
    for op in book.history.ops.values():
        jobs += [partial(op_files, book, op), partial(shared_op, book, op)]
    return chain.from_iterable(spread([partial(_all, job) for job in jobs]))


def _all(job: Callable[[], Iterator[File]]) -> list[File]:
    return list(job())


def _shared_files(book: Book, steps: Sequence[Step]) -> Iterator[File]:
    tables = commit_tables(book.history, book.index, whole=COMMIT_PAGES)
    yield from pages.home(book, tables)
    yield from pages.kernels(book)
    yield from roofline(book)
    yield from compare_page(book, tables)
    yield from change_pages(book, tables, steps)
    yield from compiler(book, frozenset(one.sha for one in paged_commits(book, tables)))
    yield from device_pages(book)
    yield from health(book, tables)
    yield from data(book)
    yield from shared_site(book)


@dataclass(frozen=True, slots=True)
class Site:
    """All generated files, and what a banner on every page says; empty when all is well.

    `records` are the files under the data folder that pages link to.
    """

    files: dict[str, bytes]
    banner: str
    records: tuple[str, ...] = ()


def site(options: Options) -> Site:
    """Read the records and return all generated files, the chart library included."""
    bundle = find_bundle(options.repo)
    plotly_path = f"assets/{bundle.name}"
    key = _inputs(options, plotly_path)
    made = options.cache.get("site", key, lambda: _pages(options, plotly_path), keep=SITES)
    records = {f"data/{name}": (options.data / name).read_bytes() for name in made.records}
    return replace(made, files=made.files | {plotly_path: bundle.content} | records)


def _inputs(options: Options, plotly_path: str) -> str:
    """Name all that the pages are made of, apart from the program."""
    asked = (options.folders, options.site_url, options.repo_url, plotly_path)
    commits = first_parents(options.repo)
    return fingerprint(
        [options.data, options.templates, options.docs / "notes"],
        repr((asked, commits, read_written(options.docs))),
    )


@no_collection()
def _pages(options: Options, plotly_path: str) -> Site:
    history = load_history(options.data, options.repo, options.cache)
    records, faults = read_code(options.data)
    code = code_history(records, first_parents(options.repo))
    code.texts, torn = read_texts(options.data, wanted(code))
    counted = read_counted(options.data)
    faults = [*faults, *torn, *counted.problems]
    history = replace(history, problems=(*history.problems, *faults))
    links = Links(options.folders, options.repo_url.rstrip("/"))
    templates, notes = environment(options.templates), read_notes(options.docs)
    address = options.site_url
    book = make_book(history, templates, links, plotly_path, address, notes, code, counted)
    files = dict(_files(book)) | dict(written(book, read_written(options.docs)))
    return Site(files, _banner(history), _linked_records(book))


def _banner(history: History) -> str:
    if not history.problems:
        return ""
    return f"{plural(len(history.problems), 'problem')} in the records: some of them are not shown."


def _linked_records(book: Book) -> tuple[str, ...]:
    """Return the record files that pages link to, where no repository shows them."""
    if book.links.repo_url:
        return ()
    curves = [one for views in book.views.values() for one in views.values()]
    shown = {one.run.file for one in curves} | region_files(book.history, curves)
    shown |= {record.file for record in book.code.newest().values()}
    shown |= {one.location.rpartition(":")[0] for one in book.counted.newest.values()}
    return tuple(sorted(shown))


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
