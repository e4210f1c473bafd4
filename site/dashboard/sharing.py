"""What other sites show of this one: a badge and a preview picture of each op, and of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from collector.history.model import RunInfo
from collector.record import OpInfo
from dashboard import format as words
from dashboard.book import Book, picture_path
from dashboard.drawing import compact
from dashboard.findings import Finding, finding, view_words
from dashboard.metrics import geometric_mean
from dashboard.op_page import op_path
from dashboard.picture import Card, picture

File = tuple[str, bytes]
SHIELDS = "https://img.shields.io/endpoint?url="
ANYWHERE = "https://example.org/"


@dataclass(frozen=True, slots=True)
class Badge:
    """A badge, where its values are, and the Markdown that shows it."""

    title: str
    path: str
    markdown: str


def badge_path(name: str) -> str:
    """Return where the values of a badge are."""
    return f"badges/{words.slug(name)}.json"


def shared_op(book: Book, op: OpInfo) -> Iterator[File]:
    """Return badge and picture of one op."""
    found = _finding(book, op)
    label = f"{op.title} vs {found.baseline if found else op.baseline}"
    yield badge_path(op.name), _badge(label, found.mean if found else None)
    yield picture_path(op_path(op.name)), picture(_op_card(op, found))


def shared_site(book: Book) -> Iterator[File]:
    """Return badge and picture of all ops together."""
    means = [found.mean for op in book.history.ops.values() if (found := _finding(book, op))]
    mean = geometric_mean(means)
    yield badge_path("all"), _badge("kernels vs baselines", mean)
    runs = sorted(book.history.runs.values(), key=lambda run: (run.started_at, run.run_id))
    ops, details = words.plural(len(means), "op"), _when(runs[-1]) if runs else "no records yet"
    number = words.times(mean) if mean else ""
    about = f"as fast as their baselines, over {ops}" if mean else "GPU kernels, measured"
    title = "How fast GPU kernels are"
    card = Card(title, number, about, details, tuple(sorted(means)))
    yield picture_path("index.md"), picture(card)


def badges(book: Book) -> list[Badge]:
    """Return the badges of a site, that of all ops first."""
    pairs = [("All kernels", "all", "index.md")]
    pairs += [(op.title, op.name, op_path(op.name)) for op in book.history.ops.values()]
    return [_named(book, title, badge_path(name), page) for title, name, page in pairs]


def _named(book: Book, title: str, path: str, page: str) -> Badge:
    site = book.site_url.rstrip("/") + "/" if book.site_url else ANYWHERE
    image = f"![{words.title_text(title)}]({SHIELDS}{quote(site + path, safe='')})"
    return Badge(title, path, f"[{image}]({site}{quote(book.links.address(page))})")


def _badge(label: str, mean: float | None) -> bytes:
    """Write what the endpoint of shields.io reads."""
    colour = "lightgrey" if mean is None else "brightgreen" if mean > 1 else "orange"
    message = "no data" if mean is None else words.times(mean)
    values = {"schemaVersion": 1, "label": label, "message": message, "color": colour}
    return f"{compact(values)}\n".encode()


def _finding(book: Book, op: OpInfo) -> Finding | None:
    curves = next(iter(book.views[op.name].values()), None)
    return finding(book.scene(curves)) if curves else None


def _op_card(op: OpInfo, found: Finding | None) -> Card:
    if found is None:
        return Card(op.title, "", op.summary, "", ())
    curves = found.scene.curves
    about = f"as fast as {found.baseline}, over {words.plural(len(found.ratios), 'size')}"
    details = f"{found.name}, {view_words(curves.view)}, {_when(curves.run)}"
    ratios = tuple(ratio.value for _, ratio in found.ratios)
    return Card(op.title, words.times(found.mean), about, details, ratios)


def _when(run: RunInfo) -> str:
    return f"{run.device.name}, {words.date(run.started_at)}"
