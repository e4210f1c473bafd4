"""The site as a project of its own: plain Markdown and a configuration, without this program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from mkdocs.utils.yaml import yaml_load

from dashboard.build import Options, Site

OURS = ("hooks", "watch")  # what needs this program


def project(made: Site, options: Options) -> dict[str, bytes]:
    """Return `mkdocs.yml`, all documents, and the theme's own changes, by their paths."""
    written = _below(options.docs, "docs") | _below(options.templates / "overrides", "overrides")
    generated = {f"docs/{path}": content for path, content in made.files.items()}
    return written | generated | {"mkdocs.yml": _configuration(made, options)}


def _below(folder: Path, name: str) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {f"{name}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}


def _configuration(made: Site, options: Options) -> bytes:
    """Return this project's own configuration without what needs its program."""
    text = (options.repo / "mkdocs.yml").read_text(encoding="utf-8")
    values: dict[str, Any] = {k: v for k, v in yaml_load(text).items() if k not in OURS}
    values |= {
        "site_url": options.site_url,
        "repo_url": options.repo_url,
        "docs_dir": "docs",
        "site_dir": "site",
        "use_directory_urls": options.folders,
        "extra": {"generator": False, "banner": made.banner},
    }
    values["theme"]["custom_dir"] = "overrides"
    values["validation"]["nav"]["omitted_files"] = "ignore"  # most pages are reached by links
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True).encode()
