"""Where the links of a built site lead: its pages, their anchors, and what is lost."""

from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

ADDRESS = "https://example.org/below/"


class Outline(HTMLParser):
    """What a page names and what it leads to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.ways, self.meta = [], [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.ways += [given[name] for name in ("href", "src") if given.get(name)]
        if tag == "meta":
            self.meta[given.get("name") or given.get("property")] = given.get("content")


def pages(site):
    return {path.relative_to(site).as_posix(): path for path in sorted(site.rglob("*.html"))}


@cache
def outline(path):
    return Outline(path.read_text(encoding="utf-8"))


def goal(site, here, way):
    """Return the file that a way leads to, and the anchor in it; None for another host."""
    whole = urljoin(ADDRESS + here, way)
    if not whole.startswith(ADDRESS):
        assert urlsplit(way).scheme, f"{here} leads out of the site: {way}"
        return None
    parts = urlsplit(whole.removeprefix(ADDRESS))
    path = site / unquote(parts.path)
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def lost(site):
    """Return the links that lead to no file of the site, or to no anchor in it."""
    found = set()
    for here, page in pages(site).items():
        for way in outline(page).ways:
            if (there := goal(site, here, way)) is None:
                continue
            path, anchor = there
            if not path.is_file():
                found.add(f"{here}: {way}")
            elif anchor and path.suffix == ".html" and anchor not in outline(path).ids:
                found.add(f"{here}: no {anchor} in {way}")
    return found
