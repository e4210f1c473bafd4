"""Write the site as plain Markdown with a configuration: `python -m dashboard --out DIR`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from collector.history.cache import standard_cache
from dashboard.build import Options, site, write
from dashboard.plain import project

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages and say how many files changed."""
    asked = _parser().parse_args(arguments)
    options = Options(
        data=asked.data,
        repo=ROOT,
        templates=ROOT / "templates",
        folders=asked.folders,
        site_url=asked.site_url,
        repo_url=asked.repo_url,
        cache=standard_cache(ROOT),
    )
    made = site(options)
    files = project(made, options)
    try:
        changed = write(files, asked.out)
    except OSError as error:
        print(f"{asked.out}: {error.strerror}: choose another folder with --out", file=sys.stderr)
        return 1
    print(f"{asked.out}: {len(files)} files, {changed} changed", file=sys.stderr)
    if made.banner:
        print(made.banner, file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dashboard", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="folder of the records")
    parser.add_argument("--site-url", default="", help="address of the site, for the feed")
    parser.add_argument("--repo-url", default="", help="address of the repository, for links")
    style = parser.add_argument("--folders", action="store_true")
    style.help = "link to page/ instead of page.html; Zensical takes such links for others"
    return parser


if __name__ == "__main__":
    sys.exit(main())
