"""What all pages share: the history, how things are drawn, and where pages are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from collector.history.counted import NOTHING_COUNTED, AllCounted
from collector.history.model import History
from collector.history.sides import Index
from dashboard import palette
from dashboard.code_history import CodeHistory
from dashboard.figures import Scene
from dashboard.format import title_text
from dashboard.links import Links
from dashboard.notes import Note
from dashboard.palette import Style
from dashboard.views import Curves, View, curves_of

BLANK_LINES = re.compile(r"\n\s*\n+")
LEAD = re.compile(r'<p class="ka-lead"[^>]*>(.*?)</p>', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """The frame of one generated page."""

    path: str
    title: str
    kind: str
    plotly: str
    searchable: bool

    @property
    def image(self) -> str:
        """Return the picture that other sites show beside a link to the page."""
        return picture_path(self.path)


def picture_path(page: str) -> str:
    """Return where the picture of a page is: each op has its own, all others share one."""
    folder, _, name = page.removesuffix(".md").rpartition("/")
    return f"assets/social/{name if folder == 'kernels' and name != 'index' else 'all'}.png"


@dataclass(frozen=True, slots=True)
class Book:
    """Made once from a history; every page is written from it."""

    history: History
    index: Index
    environment: Environment
    links: Links
    plotly_path: str
    site_url: str
    styles: Mapping[str, Style]
    views: Mapping[str, Mapping[View, Curves]]
    notes: tuple[Note, ...] = ()
    code: CodeHistory = field(default_factory=CodeHistory)
    counted: AllCounted = NOTHING_COUNTED

    def notes_on(self, op: str) -> list[Note]:
        """Return the notes that name an op."""
        return [note for note in self.notes if op in note.ops]

    def scene(self, curves: Curves) -> Scene:
        """Return what the charts of a view share."""
        return Scene(self.history, curves, self.styles)

    def write(
        self, path: str, template: str, title: str, searchable: bool = True, **context: Any
    ) -> tuple[str, bytes]:
        """Return a page: front matter and one block of HTML without blank lines.

        A blank line would end the block for other readers of Markdown.
        """
        kind = template.removesuffix(".md.j2")
        plotly = self.links.to(path, self.plotly_path)
        page = Page(path, title_text(title), kind, plotly, searchable)

        def to(target: str) -> str:
            return self.links.to(path, target)

        shared = {"page": page, "to": to, "links": self.links, "history": self.history}
        text = self.environment.get_template(template).render(**shared, **context)
        head, _, body = text.partition("\n---\n")
        front = head.lstrip() + description(body)
        return path, f"{front}\n---\n\n{BLANK_LINES.sub(chr(10), body.strip())}\n".encode()


def description(body: str) -> str:
    """Return a line of front matter with the first sentences of a page.

    The theme puts it into an attribute as it is, so it is escaped here.
    """
    lead = LEAD.search(body)
    text = escape(Markup(lead[1]).striptags()) if lead else ""
    return f"\ndescription: {json.dumps(text, ensure_ascii=False)}" if text else ""


def make_book(
    history: History,
    environment: Environment,
    links: Links,
    plotly_path: str,
    site_url: str,
    notes: tuple[Note, ...] = (),
    code: CodeHistory | None = None,
    counted: AllCounted = NOTHING_COUNTED,
) -> Book:
    """Put the history into views and give every implementation its colour."""
    groups = [{info.name: info.kind for info in op.implementations} for op in history.ops.values()]
    measured: dict[str, dict[str, str]] = {}
    for key in history.series:
        measured.setdefault(key.op, {}).setdefault(key.implementation, "triton")
    return Book(
        history=history,
        index=Index(history),
        environment=environment,
        links=links,
        plotly_path=plotly_path,
        site_url=site_url,
        styles=palette.styles([*measured.values(), *groups]),
        views={name: curves_of(history, op) for name, op in history.ops.items()},
        notes=notes,
        code=code or CodeHistory(),
        counted=counted,
    )
