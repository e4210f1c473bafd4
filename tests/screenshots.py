"""Photograph each kind of page: `python -m tests.screenshots SITE OUT`."""

import argparse
import sys
from pathlib import Path

from tests.visiting import MODES, Visitor, chromium, page_kinds, serve


def main(arguments=None):
    asked = parser().parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    paths = asked.page or page_kinds(asked.site)
    with serve(asked.site) as address, chromium() as browser:
        for mode, options in MODES.items():
            visitor = Visitor(browser, address, **options)
            for path in paths:
                photograph(visitor, path, asked.out / f"{name(path)}-{mode}.png")
            visitor.context.close()
    sys.stderr.write(f"{asked.out}: {len(paths) * len(MODES)} pictures\n")


def photograph(visitor, path, where):
    """Take the whole page, its charts alive, as one picture."""
    page = visitor.go(path)
    visitor.see_charts()
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(300)  # until the tabs above are back
    page.screenshot(path=where, full_page=True)


def name(path):
    return path.strip("/").replace("/", "-") or "home"


def parser():
    made = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    made.add_argument("site", type=Path, help="folder of a built site")
    made.add_argument("out", type=Path, help="folder for the pictures")
    made.add_argument("--page", action="append", help="one page, such as kernels/sinkhorn/")
    return made


if __name__ == "__main__":
    main()
