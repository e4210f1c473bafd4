import gzip
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
from plotly.offline import get_plotlyjs_version

from collector.history.load import load_history
from dashboard import __main__ as command
from dashboard import build, changes, plotly_js
from dashboard.drawing import shard, unpack
from dashboard.environment import environment
from dashboard.links import Links
from dashboard.regressions import commit_tables
from tests import synthetic

ROOT = Path(__file__).parent.parent
TEMPLATES = environment(ROOT / "templates")
HOSTILE = "<script>alert(1)</script> </script> | {{ 7*7 }} <b>bold</b>"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    plan = synthetic.Plan(
        commits=3, replicates=2, sweep=5, timers=("graph", "call"), caches=("cold",),
        cards=(synthetic.H200, synthetic.CPU), subjects={2: HOSTILE},
        effects={(1, "sinkhorn", "triton-packed"): 1.2},
    )  # fmt: skip
    synthetic.build(folder, plan)
    return folder


@pytest.fixture(scope="module")
def files(data):
    return build.render(load_history(data), TEMPLATES)


def page(files, path):
    return files[path].decode()


class Shape(HTMLParser):
    """Elements of a page, and whether every one is closed in order."""

    VOID = frozenset({"input", "br", "img", "meta", "link"})

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.tags, self.wrong = [], [], [], [], []
        self.feed(text.split("\n---\n", 1)[1])

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.open += [] if tag in self.VOID else [tag]

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"{tag} at {self.getpos()}")


def pages_of(files):
    return {path: content.decode() for path, content in files.items() if path.endswith(".md")}


def texts(files):
    """Return all files as text, the packed ones as what the page makes of them."""
    return {
        path: json.dumps(unpack(content), ensure_ascii=False)
        if path.startswith("assets/data/")
        else content.decode()
        for path, content in files.items()
        if not path.endswith(".png")
    }


def test_every_page_is_well_formed_and_names_each_id_once(files):
    for path, text in pages_of(files).items():
        shape = Shape(text)
        assert not shape.wrong and not shape.open, path
        assert len(shape.ids) == len(set(shape.ids)), path


def test_every_page_is_one_block_without_blank_lines(files):
    for path, text in pages_of(files).items():
        body = text.split("\n---\n", 1)[1].strip()
        assert "\n\n" not in body, path
        assert body.startswith("<div") and body.endswith("</div>")


@pytest.mark.parametrize("folders", [True, False])
def test_every_link_leads_to_a_file_that_is_made(data, folders):
    links = Links(folders)
    made = build.render(load_history(data), TEMPLATES, links)
    known = {links.address(path) for path in made} | {
        links.address(path) for path in ("methodology.md", "read-a-roofline.md")
    }
    records = {f"data/{path.relative_to(data)}" for path in data.rglob("*.jsonl")}
    for path, text in pages_of(made).items():
        shape = Shape(text)
        for href in shape.links:
            if urlsplit(href).scheme:
                continue
            if href.startswith("#"):
                assert href[1:] in shape.ids, f"{path} -> {href}"
                continue
            start = "https://host/sub/" + links.address(path)
            goal = resolve(start, href)
            assert goal in known | records, f"{path} -> {href}"


def resolve(start, href):
    parts = urlsplit(start).path.split("/")[:-1]
    for step in unquote(href.partition("#")[0]).split("/"):
        if step == "..":
            parts.pop()
        elif step not in ("", "."):
            parts.append(step)
    ends = "/" if href.partition("#")[0].endswith("/") else ""
    return ("/".join(parts[2:]) + ends).lstrip("/")


def test_hostile_subject_is_text_on_every_page_and_in_every_shard(files):
    seen = 0
    for path, text in texts(files).items():
        assert "<script>alert" not in text, path
        assert "<b>bold" not in text, path
        seen += "alert(1)" in text
    assert seen >= 3


def test_json_in_a_page_cannot_end_its_script_element(files):
    for path, text in pages_of(files).items():
        blocks = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.S)
        for block in blocks:
            assert "<" not in block, path
            json.loads(block)
        assert "kernels/sinkhorn" not in path or len(blocks) == 2


def test_inline_data_stay_small_and_shards_are_named_by_content(files):
    for path, text in pages_of(files).items():
        for block in re.findall(r"data-figures>(.*?)</script>", text, re.S):
            assert len(block.encode()) <= 31_000, path
    shards = [path for path in files if path.startswith("assets/data/")]
    assert shards and all(
        re.fullmatch(r"assets/data/[a-z0-9-]+\.[0-9a-f]{8}\.js", p) for p in shards
    )


def test_data_of_a_script_come_back_whole_and_cannot_end_it():
    value = {"charts": {"a": {"html": HOSTILE + "'\u2028\n\\", "y": [1, None, 0.1234567]}}}
    full, path, script = shard("name", value)
    assert path == f"assets/data/{full}.js"
    value["charts"]["a"]["y"][2] = 0.123457
    assert unpack(script) == value
    assert re.fullmatch(rb"[^']*='[A-Za-z0-9+/=]+';\n", script)


def test_every_view_of_the_index_has_its_shards(files):
    text = page(files, "kernels/sinkhorn.md")
    index = json.loads(re.search(r"data-views>(.*?)</script>", text, re.S)[1])
    assert index["default"] in index["views"]
    for names in index["views"].values():
        assert all(f"assets/data/{name}.js" in files for name in names)


def test_render_is_deterministic(data, files):
    assert build.render(load_history(data), TEMPLATES) == files


def test_empty_data_makes_a_site_that_says_so(tmp_path):
    files = build.render(load_history(tmp_path), TEMPLATES)
    for path in build.IN_NAV:
        assert Shape(page(files, path)).tags, path
    assert "No data" in page(files, "index.md")
    assert "NaN" not in "".join(pages_of(files).values())


def test_problems_are_told_and_the_build_goes_on(data, tmp_path):
    folder = tmp_path / "data"
    synthetic.build(folder, synthetic.Plan(commits=1, replicates=1, sweep=2, ops=("sinkhorn",)))
    path = next(folder.rglob("*.jsonl"))
    path.write_text(path.read_text() + '{"kind": "measurement"}\n')
    made = build.site(build.Options(folder, ROOT, ROOT / "templates"))
    assert "1 problem" in made.banner
    assert path.name in page(made.files, "health.md")
    assert "triton-packed" in page(made.files, "kernels/sinkhorn.md")


def test_feed_is_valid_xml_with_the_regression(files):
    name = "{http://www.w3.org/2005/Atom}"
    feed = ElementTree.fromstring(page(files, "regressions/feed.xml"))
    assert feed.find(f"{name}updated").text.endswith("Z")
    titles = [entry.find(f"{name}title").text for entry in feed.findall(f"{name}entry")]
    assert len(titles) == 1 and re.search(r": [1-9]\d* slower, 0 faster, 0 broken$", titles[0])


def test_download_holds_the_numbers_of_the_records(data, files):
    cases = json.loads(page(files, "data/sinkhorn.json"))["cases"]
    history = load_history(data)
    newest = max(run.started_at for run in history.runs.values())
    assert {history.runs[case["run_id"]].started_at for case in cases} == {newest}
    failed = [case for case in cases if case["status"] != "passed"]
    assert all(case["median_ns"] is None for case in failed)
    assert all(case["median_ns"] > 0 for case in cases if case["status"] == "passed")


def test_record_links_go_to_the_repository_where_there_is_one(data):
    links = Links(repo_url="https://example.org/a/b")
    text = page(build.render(load_history(data), TEMPLATES, links), "kernels/sinkhorn.md")
    assert re.search(r'href="https://example.org/a/b/blob/HEAD/data/runs/[^"]+\.jsonl#L\d+"', text)


def test_command_writes_only_what_changed_and_removes_what_is_stale(data, tmp_path, monkeypatch):
    monkeypatch.setenv("ALMANAC_NPM", "off")
    out = tmp_path / "out"
    assert command.main(["--out", str(out), "--data", str(data)]) == 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    (out / "mine.txt").write_text("kept")
    manifest = out / build.MANIFEST
    (out / "old.md").write_text("stale")
    manifest.write_text(manifest.read_text() + "\nold.md")
    assert command.main(["--out", str(out), "--data", str(data)]) == 0
    assert (out / "mine.txt").exists() and not (out / "old.md").exists()
    changed = {p for p in before if p != manifest and p.stat().st_mtime_ns != before[p]}
    assert not changed


def test_size_of_the_site_does_not_follow_the_number_of_replicates(tmp_path):
    sizes = []
    for replicates in (2, 8):
        folder = tmp_path / str(replicates)
        plan = synthetic.Plan(commits=2, replicates=replicates, sweep=4, ops=("sinkhorn",))
        synthetic.build(folder, plan)
        files = build.render(load_history(folder), TEMPLATES)
        sizes.append(sum(map(len, files.values())))
    assert sizes[1] < 1.1 * sizes[0]


def test_page_is_small_enough_to_open_at_once(files):
    sizes = {path: len(gzip.compress(text.encode())) for path, text in pages_of(files).items()}
    assert max(sizes.values()) < 60_000, sizes


def test_npm_bundle_is_the_version_that_the_wheel_holds():
    wanted = json.loads((ROOT / "package.json").read_text())["dependencies"]
    assert wanted == {"plotly.js-basic-dist-min": get_plotlyjs_version()}


def test_library_comes_from_the_wheel_where_npm_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("ALMANAC_NPM", "off")
    bundle = plotly_js.find_bundle(tmp_path)
    assert bundle.name == "plotly.min.js" and len(bundle.content) > 1_000_000


def test_library_comes_from_npm_where_it_is(tmp_path):
    folder = tmp_path / "node_modules" / plotly_js.PACKAGE
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"version": "9.9.9"}')
    (folder / "plotly-basic.min.js").write_bytes(b"small")
    bundle = plotly_js.find_bundle(tmp_path)
    assert bundle == plotly_js.Bundle("plotly-basic-9.9.9.min.js", b"small")


def test_changes_of_one_implementation_are_told_once(data):
    tables = commit_tables(load_history(data))
    told = changes.groups(tables)
    assert [(g.op, g.implementation, g.verdict) for g in told] == [
        ("sinkhorn", "triton-packed", "regressed")
    ]
    assert len(told[0].rows) == 10 == told[0].compared
    assert told[0].mean_log == pytest.approx(math.log(1.2), rel=0.05)


def test_what_is_new_at_a_commit_is_counted_behind_a_closed_fold(tmp_path):
    small = synthetic.Plan(commits=2, replicates=2, sweep=1, ops=("sinkhorn",), failures=False)
    larger = synthetic.Plan(commits=2, replicates=2, sweep=3, ops=("sinkhorn",), failures=False)
    for index, plan in enumerate((small, larger)):
        synthetic.write(tmp_path, list(synthetic.run_records(plan, synthetic.H200, index)))
    history = load_history(tmp_path)
    (table,) = commit_tables(history)
    files = build.render(history, TEMPLATES)
    text = page(files, f"commits/{table.after.sha[:12]}.md")
    opened, *folds = text.split("<details>")
    assert table.counts["new"] == 40  # two more sizes, five implementations, four ways to time
    assert "first measured here</td>" not in opened
    (fold,) = [fold for fold in folds if "40 series new" in fold.split("</summary>")[0]]
    assert fold.split("</details>")[0].count("first measured here</td>") == 40


def test_runs_of_a_device_are_told_apart_by_what_differs_alone(tmp_path):
    plan = synthetic.Plan(
        commits=2, replicates=1, sweep=1, ops=("sinkhorn",), uuids={1: "bbbbbbbbbbbb"},
        versions={1: {"triton": "3.7.0"}},
    )  # fmt: skip
    synthetic.build(tmp_path, plan)
    text = page(build.render(load_history(tmp_path), TEMPLATES), "devices/nvidia-h200.md")
    runs = text.split('aria-label="Runs"')
    assert "In all of them: cuda 13.0, python 3.12.3, torch 2.11.0." in runs[0]
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', runs[1])
    assert [name for name in heads if name in ("card", "triton", "torch", "driver")] == [
        "card", "triton"
    ]  # fmt: skip
    assert runs[1].count("bbbbbbbbbbbb") == runs[1].count("3.7.0") == 1


@pytest.mark.parametrize("uuids, told", [({}, 0), (dict.fromkeys((4, 5, 6, 7), "b" * 12), 1)])
def test_a_level_that_another_card_made_says_so(tmp_path, uuids, told):
    plan = synthetic.Plan(
        commits=8, replicates=1, sweep=1, ops=("sinkhorn",), timers=("graph",), caches=("cold",),
        failures=False, uuids=uuids, effects={(4, "sinkhorn", "triton-packed"): 1.2}, noise=5e-4,
    )  # fmt: skip
    synthetic.build(tmp_path, plan)
    text = page(build.render(load_history(tmp_path), TEMPLATES), "regressions.md")
    levels = text.split('aria-label="Changes of level"')[1]
    assert levels.count("<td>new") == 1
    assert levels.count("on another card") == told
