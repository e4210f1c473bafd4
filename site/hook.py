"""Hand the generated pages to MkDocs; all logic is in the package `dashboard`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [path for path in (str(ROOT), str(ROOT / "site")) if path not in sys.path]

from collector.history.cache import standard_cache  # noqa: E402
from dashboard import build  # noqa: E402

BODIES: dict[str, str] = {}
ANCHOR = re.compile(r'\bid="([^"]+)"')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    options = build.Options(
        data=ROOT / config.extra["data_dir"],
        repo=ROOT,
        templates=ROOT / "templates",
        folders=config.use_directory_urls,
        site_url=config.site_url or "",
        repo_url=config.repo_url or "",
        cache=standard_cache(ROOT),
    )
    made = build.site(options)
    config.extra["banner"] = made.banner
    for path, content in made.files.items():
        if people_wrote := files.get_file_from_path(path):
            people_wrote.content_bytes = content
            continue
        level = InclusionLevel.INCLUDED if path in build.IN_NAV else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, path, content=content, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Keep HTML away from the Markdown parser, which takes longer than all the rest."""
    if page.file.generated_by is None:
        return markdown
    BODIES[page.file.src_uri] = markdown
    return ""


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Put the HTML back, and name its anchors, so that links to them are checked."""
    body = BODIES.pop(page.file.src_uri, None)
    if body is None:
        return html
    page.present_anchor_ids = set(ANCHOR.findall(body))
    return body
