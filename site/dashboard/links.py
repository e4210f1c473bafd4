"""Addresses of pages relative to one another, so that the site works below any path."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Links:
    """How pages are addressed: as folders for a server, as files for `file://`."""

    folders: bool = True
    repo_url: str = ""

    def address(self, path: str) -> str:
        """Return where a file ends up, from the root of the site."""
        if not path.endswith(".md"):
            return path
        stem = path.removesuffix(".md")
        if not self.folders:
            return f"{stem}.html"
        return stem.removesuffix("index") if posixpath.basename(stem) == "index" else f"{stem}/"

    def to(self, here: str, target: str) -> str:
        """Return the way from one page to another; `target` may end in a `#fragment`."""
        path, mark, fragment = target.partition("#")
        start = posixpath.dirname(self.address(here))
        goal = self.address(path)
        way = posixpath.relpath(goal or ".", start or ".")
        if goal.endswith("/") or not goal:
            way += "/"
        return quote(way) + mark + fragment

    def record(self, here: str, location: str) -> str:
        """Return the address of a record line `file:line`."""
        path, _, line = f"data/{location}".rpartition(":")
        if self.repo_url:
            return f"{self.repo_url}/blob/HEAD/{quote(path)}#L{line}"
        return self.to(here, path)

    def commit(self, sha: str) -> str:
        """Return the address of a commit, or nothing when the repository has no address."""
        return f"{self.repo_url}/commit/{quote(sha)}" if self.repo_url else ""

    def comparison(self, before: str, after: str) -> str:
        """Return the address of all commits between two, or nothing."""
        return f"{self.repo_url}/compare/{before}...{after}" if self.repo_url else ""
