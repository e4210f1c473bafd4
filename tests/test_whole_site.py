"""The built site without a browser: valid HTML, links and anchors that lead somewhere, a feed."""

import json
import re
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from tests import synthetic
from tests.linking import ADDRESS, goal, lost, outline, pages
from tests.visiting import build

html5lib = pytest.importorskip("html5lib")

LAYOUTS = {"folders": "true", "files": "false"}
ATOM = "{http://www.w3.org/2005/Atom}"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    plan = synthetic.Plan(
        commits=3, replicates=2, sweep=4, caches=("cold",), timers=("graph",), swept=True,
        cards=(synthetic.H200, synthetic.CPU), effects={(1, "sinkhorn", "triton-packed"): 1.2},
        subjects={2: "Name <b>bold</b> & quoted"},
    )  # fmt: skip
    broken, *_ = synthetic.build(folder, plan)
    broken.write_text(broken.read_text() + '{"kind": "measurement"}\n')
    return folder


@pytest.fixture(scope="module", params=LAYOUTS)
def site(request, data, tmp_path_factory):
    options = {"ALMANAC_DIRECTORY_URLS": LAYOUTS[request.param], "ALMANAC_SITE_URL": ADDRESS}
    return build(data, tmp_path_factory.mktemp(request.param) / "site", **options)


def test_every_link_and_anchor_leads_somewhere(site):
    assert lost(site) == set()


def test_links_name_files_where_no_server_finds_the_page_of_a_folder(site):
    whole = site / "methodology.html"
    if not whole.exists():
        pytest.skip("pages are folders in this layout")
    for here, page in pages(site).items():
        inside = [way for way in outline(page).ways if goal(site, here, way) and here != "404.html"]
        assert not [way for way in inside if (site / here).parent.joinpath(way).is_dir()], here


def test_every_page_is_valid_html_and_names_each_id_once(site):
    for here, page in pages(site).items():
        parser = html5lib.HTMLParser()
        parser.parse(page.read_text(encoding="utf-8"))
        assert [(place, what) for place, what, _ in parser.errors] == [], here
        ids = outline(page).ids
        assert sorted(ids) == sorted(set(ids)), here


def test_missing_page_leads_back_from_any_depth(site):
    ways = outline(site / "404.html").ways
    assert all(urlsplit(way).scheme or way.startswith(("/below/", "#")) for way in ways)
    told = {goal(site, "no/such/page/", way)[0] for way in ways if way.startswith("/below/")}
    wanted = {goal(site, "", name)[0] for name in ("kernels/index.html", "devices/index.html")}
    assert wanted <= told


def test_every_page_has_a_title_and_words_of_its_own(site):
    titles, told = {}, {}
    for here, page in pages(site).items():
        titles[here] = re.search(r"<title>(.*?)</title>", page.read_text(encoding="utf-8"))[1]
        told[here] = outline(page).meta["description"]
    assert len(set(titles.values())) == len(titles)
    op = next(text for here, text in told.items() if here.startswith("kernels/sinkhorn"))
    assert re.match(r"On NVIDIA H200, triton.* as fast as torch\.compile .*×", op)
    assert "Name &lt;b" not in "".join(told.values())


def test_every_page_has_a_picture_for_previews_and_each_op_its_own(site):
    pictures = {}
    for here, page in pages(site).items():
        meta = outline(page).meta
        if here != "404.html":
            pictures[here] = meta["og:image"]
            path, _ = goal(site, here, meta["og:image"])
            assert path.read_bytes().startswith(b"\x89PNG"), here
            assert goal(site, here, meta["og:url"])[0] == page
            assert meta["og:title"] and meta["og:description"] == meta["description"]
    own = {where for here, where in pictures.items() if re.match(r"kernels/[^i]", here)}
    assert own == {f"{ADDRESS}assets/social/{name}.png" for name in ("rms-norm", "sinkhorn")}


def test_feed_keeps_the_rules_of_atom(site):
    feed = ElementTree.parse(site / "regressions" / "feed.xml").getroot()
    entries = feed.findall(f"{ATOM}entry")
    assert entries and feed.find(f"{ATOM}author/{ATOM}name").text
    ids = [one.find(f"{ATOM}id").text for one in (feed, *entries)]
    assert len(set(ids)) == len(ids)
    assert all(re.match(r"(https|urn):", name) for name in ids)
    for one in (feed, *entries):
        assert one.find(f"{ATOM}title").text
        assert STAMP.fullmatch(one.find(f"{ATOM}updated").text)
        links = {link.get("rel"): link.get("href") for link in one.findall(f"{ATOM}link")}
        assert all(href.startswith(ADDRESS) for href in links.values())
        assert goal(site, "", links["alternate"])[0].is_file()
    assert feed.find(f"{ATOM}link[@rel='self']").get("href") == f"{ADDRESS}regressions/feed.xml"


def documents(site, *words):
    """Return where all words are found, as the search of the page takes them."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    cut = re.compile(index["config"]["separator"])
    found = []
    for one in index["docs"]:
        text = re.sub(r"<[^>]*>", " ", f"{one['title']} {one['text']}")
        tokens = {token.lower() for token in cut.split(text) if token}
        if all(any(token.startswith(word) for token in tokens) for word in words):
            found.append(one["location"])
    return found


@pytest.mark.parametrize("words", [("rms", "norm"), ("rmsnorm",), ("rms_norm",)], ids="-".join)
def test_search_finds_an_op_by_its_title_and_by_its_name(site, words):
    asked = [part for word in words for part in word.split("_")]
    assert any(place.startswith("kernels/rms-norm") for place in documents(site, *asked))


def test_search_finds_devices_and_commits(site):
    sha = synthetic.Plan(commits=3).shas()[2]
    for word in (sha[:8], sha[:7], sha):
        assert any(place.startswith(f"commits/{sha[:12]}") for place in documents(site, word))
    assert any(place.startswith("devices/nvidia-h200") for place in documents(site, "h200"))
    titles = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert f"Commit {sha[:8]}" in titles
