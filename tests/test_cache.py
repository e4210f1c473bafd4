import json
import pickle
import resource
import tracemalloc
from pathlib import Path

import pytest

from collector.history import digest
from collector.history.cache import Cache, fingerprint, standard_cache
from collector.history.load import load_history
from dashboard import build
from tests import synthetic

TRIES = 2
SMALL = {"ops": ("sinkhorn",), "sweep": 2, "caches": ("cold",)}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    synthetic.build(folder, commits=3, replicates=3, shift={1: 1.5}, **SMALL)
    return folder


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache", "this program")


def refuse(*_):
    raise AssertionError("made again")


def kept(cache):
    return sorted(cache.folder.iterdir())


@pytest.fixture(autouse=True)
def no_npm(monkeypatch):
    monkeypatch.setenv("ALMANAC_NPM", "off")


def site(data, cache, **changes):
    templates = Path(__file__).parent.parent / "templates"
    # A folder without git: a commit made beside the tests would be a change.
    return build.site(build.Options(data, data, templates, cache=cache, **changes))


def test_history_is_the_same_with_and_without_the_cache(data, cache):
    path = next(data.rglob("*.jsonl"))
    path.write_text(path.read_text() + '{"kind": "note"}\n')
    plain = load_history(data)
    assert plain.problems and plain.series
    assert load_history(data, cache=cache) == plain
    assert load_history(data, cache=cache) == plain


def test_file_is_read_once_in_its_life(data, cache, monkeypatch):
    before = load_history(data, cache=cache)
    monkeypatch.setattr(digest, "digest", refuse)
    assert load_history(data, cache=cache) == before


def test_changed_file_is_read_again_and_no_other(data, cache, monkeypatch):
    load_history(data, cache=cache)
    path = sorted(data.rglob("*.jsonl"))[1]
    path.write_bytes(path.read_bytes()[:-20])
    read, make = [], digest.digest
    monkeypatch.setattr(digest, "digest", lambda name, _: read.append(name) or make(name, _))
    assert load_history(data, cache=cache) == load_history(data)
    assert read[0] == path.relative_to(data).as_posix() and len(read) == 1 + 3


def test_moved_file_is_known_by_its_new_name(data, cache):
    load_history(data, cache=cache)
    path = next(data.rglob("*.jsonl"))
    path.rename(path.with_name("zz-moved.jsonl"))
    history = load_history(data, cache=cache)
    files = {run.file for run in history.runs.values()}
    assert files == {p.relative_to(data).as_posix() for p in data.rglob("*.jsonl")}


@pytest.mark.parametrize("damage", [
    lambda content: content[:-1],
    lambda content: content[:40] + b"\0" + content[41:],
    lambda content: b"",
    lambda content: pickle.dumps("a value without a checksum"),
])  # fmt: skip
def test_damaged_cache_is_made_anew(data, cache, damage):
    before = load_history(data, cache=cache)
    for path in kept(cache):
        path.write_bytes(damage(path.read_bytes()))
    assert load_history(data, cache=cache) == before
    assert load_history(data, cache=cache) == before


def test_another_program_finds_nothing(cache):
    assert cache.get("run", "key", lambda: "old") == "old"
    assert cache.get("run", "key", refuse) == "old"
    other = Cache(cache.folder, "another program")
    assert other.get("run", "key", lambda: "new") == "new"


def test_folder_that_cannot_be_written_to_costs_time_alone(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    assert [cache.get("run", "key", lambda value=value: value) for value in (1, 2)] == [1, 2]


def test_what_another_program_remembered_is_removed(tmp_path):
    for name in ("collector", "site/dashboard"):
        (tmp_path / name).mkdir(parents=True)
    old = standard_cache.__wrapped__(tmp_path)
    old.get("run", "key", lambda: "old")
    assert standard_cache.__wrapped__(tmp_path).get("run", "key", refuse) == "old"
    (tmp_path / "collector" / "new.py").write_text("1")
    new = standard_cache.__wrapped__(tmp_path)
    assert new.get("run", "key", lambda: "new") == "new"
    assert not old.folder.exists() and new.folder.exists()


def test_only_the_newest_values_are_kept(cache):
    for number in range(6):
        cache.get("site", str(number), lambda number=number: number, keep=2)
    assert len(kept(cache)) == 2
    assert cache.get("site", "5", refuse) == 5


def test_fingerprint_tells_every_change_of_name_place_and_content(tmp_path):
    seen = set()
    for name, content in (("a", "x"), ("b", "x"), ("c/b", "x"), ("b", "xx"), ("bx", "x")):
        folder = tmp_path / f"{len(seen)}"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(content)
        seen |= {fingerprint([folder]), fingerprint([folder], "word")}
    assert len(seen) == 10


def test_site_of_unchanged_records_is_not_made_again(data, cache, monkeypatch):
    before = site(data, cache)
    monkeypatch.setattr(build, "load_history", refuse)
    assert site(data, cache) == before
    assert any(name.startswith("data/runs/") for name in before.files)


@pytest.mark.parametrize("change", [
    lambda data: (data / "acknowledged.yml").write_text("[]"),
    lambda data: sorted(data.rglob("*.jsonl"))[-1].unlink(),
])  # fmt: skip
def test_site_follows_every_change_of_the_data(data, cache, change):
    site(data, cache)
    change(data)
    made = site(data, cache)
    assert made == site(data, Cache(None))


def test_site_follows_its_addresses(data, cache):
    site(data, cache)
    at = {"repo_url": "https://example.org/a/b"}
    assert site(data, cache, **at) == site(data, Cache(None), **at)


def test_a_record_is_loaded_in_a_few_times_what_its_json_takes(tmp_path):
    synthetic.build(tmp_path, commits=2, replicates=3)
    lines = lines_of(tmp_path)

    def share():
        # The plain JSON reader of Python is the yardstick: it is slow where this machine is.
        return seconds(lambda: load_history(tmp_path)) / parse_s(lines)

    assert tries_below(6, share)[-1] < 6


@pytest.fixture(scope="module")
def long_and_short(tmp_path_factory):
    """Return two folders of records, of a long history and of a short one."""
    folder = tmp_path_factory.mktemp("budget")
    for commits in (30, 6):
        plan = {"ops": ("sinkhorn",), "sweep": 5, "effects": {(5, "sinkhorn", "triton"): 1.1}}
        synthetic.build(folder / str(commits), commits=commits, replicates=2, **plan)
    return folder / "30", folder / "6"


def lines_of(data):
    return [line for path in data.rglob("*.jsonl") for line in path.read_text().splitlines()]


def test_a_record_is_built_into_a_site_in_its_share_of_the_time(long_and_short, tmp_path):
    """Two cores have 8 s for 1e5 records: 120 us of a processor each beside what is fixed."""

    folders = iter(range(99))

    def build_s(data):
        return seconds(lambda: site(data, Cache(tmp_path / f"{next(folders)}")))

    def share():
        more_s = build_s(long_and_short[0]) - build_s(long_and_short[1])
        return more_s / (len(both[0]) - len(both[1])) / (parse_s(both[0]) / len(both[0]))

    both = [lines_of(data) for data in long_and_short]
    # It took 7 times the plain JSON reader of Python.
    assert tries_below(12, share)[-1] < 12


def test_records_that_did_not_change_cost_less_than_to_read_their_json(long_and_short, cache):
    data, _ = long_and_short
    site(data, cache)
    lines = lines_of(data)
    assert tries_below(1, lambda: seconds(lambda: site(data, cache)) / parse_s(lines))[-1] < 1


def test_a_history_of_a_million_records_fits_into_a_gigabyte(long_and_short, cache):
    data, _ = long_and_short
    load_history(data, cache=cache)
    tracemalloc.start()
    try:
        history = load_history(data, cache=cache)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 700 * history.records, f"{peak_bytes / history.records:.0f} B a record"


def tries_below(limit, share):
    """Return what some tries gave, up to one below the limit: what else runs spoils single ones."""
    found = [share()]
    while found[-1] >= limit and len(found) < 3:
        found.append(share())
    return found


def parse_s(lines):
    """Return the seconds in which Python's JSON reader takes some lines."""
    return seconds(lambda: [json.loads(line) for line in lines])


def seconds(act):
    """Return the least processor time of some tries, with that of other processes it started."""
    return min(_used_s(act) for _ in range(TRIES))


def _used_s(act):
    began = _processor_s()
    act()
    return _processor_s() - began


def _processor_s():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
