"""Badges and preview pictures: what other sites show of this one."""

import json
import math
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from PIL import Image, ImageColor

from collector.history.load import load_history
from dashboard import picture, sharing
from dashboard.book import make_book
from dashboard.environment import environment
from dashboard.links import Links
from dashboard.picture import Card
from tests import synthetic

TEMPLATES = environment(Path(__file__).parent.parent / "templates")
SITE = "https://example.org/below"
FALLING = Card("An op", "0.5×", "as fast as torch", "one card", (4.0, 2.0, 1.0, 0.5))


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    synthetic.build(data, commits=1, replicates=1, sweep=4, timers=("graph",), caches=("cold",))
    return make_book(load_history(data), TEMPLATES, Links(), "assets/plotly.js", SITE)


@pytest.fixture(scope="module")
def shared(book):
    files = dict(sharing.shared_site(book))
    for op in book.history.ops.values():
        files |= dict(sharing.shared_op(book, op))
    return files


def pixels(content):
    return Image.open(BytesIO(content)).convert("RGB")


def close(colour, wanted):
    pairs = zip(colour, ImageColor.getrgb(wanted), strict=True)
    return sum(abs(a - b) for a, b in pairs) < 60


def test_badge_tells_the_mean_of_the_speed_ups_in_the_records(book, shared):
    values = json.loads(shared["badges/sinkhorn.json"])
    curves = next(iter(book.views["sinkhorn"].values()))
    mine, theirs = (curves.passed(name) for name in ("triton-packed", "torch.compile"))
    logs = [math.log(theirs[size].median_ns / mine[size].median_ns) for size in mine]
    mean = math.exp(sum(logs) / len(logs))
    assert values["schemaVersion"] == 1 and values["label"] == "Sinkhorn vs torch.compile"
    assert float(values["message"].rstrip("×")) == pytest.approx(mean, rel=0.01)
    assert values["color"] == ("brightgreen" if mean > 1 else "orange")


def test_badge_of_all_ops_is_the_mean_of_theirs(book, shared):
    ops = [json.loads(shared[f"badges/{name}.json"]) for name in ("sinkhorn", "rms-norm")]
    means = [float(one["message"].rstrip("×")) for one in ops]
    told = float(json.loads(shared["badges/all.json"])["message"].rstrip("×"))
    assert told == pytest.approx(math.sqrt(means[0] * means[1]), rel=0.01)


def test_badge_without_data_says_so(tmp_path):
    empty = make_book(load_history(tmp_path), TEMPLATES, Links(), "assets/plotly.js", "")
    files = dict(sharing.shared_site(empty))
    assert json.loads(files["badges/all.json"])["message"] == "no data"
    assert pixels(files["assets/social/all.png"]).size == (1200, 630)


def test_markdown_of_a_badge_leads_to_its_values_and_to_its_page(book, shared):
    badge = next(one for one in sharing.badges(book) if one.path == "badges/rms-norm.json")
    image, page = badge.markdown.removeprefix("[![RMSNorm](").removesuffix(")").split(")](")
    asked = urlsplit(image)
    assert (asked.scheme, asked.hostname) == ("https", "img.shields.io")
    assert unquote(asked.query) == f"url={SITE}/badges/rms-norm.json"
    assert page == f"{SITE}/kernels/rms-norm/"
    assert {one.path for one in sharing.badges(book)} == {p for p in shared if p.endswith("json")}


def test_picture_is_small_of_the_size_that_previews_crop_and_the_same_each_time():
    content = picture.picture(FALLING)
    assert content == picture.picture(FALLING)
    assert content.startswith(b"\x89PNG") and len(content) < 40_000
    assert pixels(content).size == (1200, 630)


def test_curve_of_a_picture_goes_where_the_ratios_go():
    image = pixels(picture.picture(FALLING))

    def height(x):
        column = [y for y in range(360, 630) if close(image.getpixel((x, y)), picture.ACCENT)]
        return sum(column) / len(column)

    first, *middle, last = (height(x) for x in (70, 423, 777, 1129))
    assert first < middle[0] < middle[1] < last
    steps = (middle[0] - first, middle[1] - middle[0], last - middle[1])
    assert max(steps) - min(steps) < 4  # a log scale: halves are equally far apart


def test_words_of_a_picture_stay_inside_it_and_letters_beyond_the_font_do_no_harm():
    card = Card("Ünï <b>" * 30, "1,234×", "as fast as anything " * 9, "x" * 300, ())
    image = pixels(picture.picture(card))
    beyond = [image.getpixel((x, y)) for x in range(1140, 1200) for y in range(630)]
    assert all(close(colour, picture.GROUND) for colour in beyond)
    inside = [image.getpixel((x, y)) for x in range(60, 1140) for y in range(90, 170)]
    assert any(close(colour, picture.INK) for colour in inside)
