"""What all tests share: where Triton runs, and which tests need a GPU."""

import functools
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent
HISTORY = Path(__file__).parent / "history"
Ended = subprocess.CompletedProcess[str]

# A worker that gets its last file late keeps the others waiting: these take longest.
SLOWEST_FIRST = (
    "ops",
    "backfill",
    "budgets",
    "collect",
    "sm90",
    "browser",
    "front_end",
    "codegen",
    "new_op",
    "ranks",
    "compare_page",
    "build",
)


# A loaded machine is slow now and then, which is no fault of a property.
settings.register_profile("almanac", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("almanac")


def gpu_run(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "gpu"


def pytest_configure(config: pytest.Config) -> None:
    # Shells start what runs in the background deaf to Ctrl-C, and so would be what is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Triton decides when it is imported whether kernels are interpreted, so this comes first.
    if not gpu_run(config):
        os.environ["TRITON_INTERPRET"] = "1"
        # The workers of the tests share the cores already: threads of theirs would only wait.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
            os.environ.setdefault(name, "1")


def look_up_builtins_once(interpreter: Any) -> None:
    """Let Triton's interpreter keep the names of what it replaces in a module or class.

    It goes through all members anew at each call that a kernel makes: a quarter of its time.
    """
    is_builtin = interpreter.tl.core.is_builtin

    @functools.cache
    def names(place: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(place) if is_builtin(member)]

    def replace(place: Any, *how: Any) -> None:
        found = names(place)
        # All of them are replaced, or none.
        if found and is_builtin(getattr(place, found[0])):
            for name in found:
                interpreter._patch_attr(place, name, getattr(place, name), *how)

    interpreter._patch_builtin = replace


def rank(item: pytest.Item) -> int:
    """Return where the file of a test comes; the order within a file stays."""
    name = item.path.stem.removeprefix("test_")
    return SLOWEST_FIRST.index(name) if name in SLOWEST_FIRST else len(SLOWEST_FIRST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=rank)
    if gpu_run(config):
        return
    if interpreter := sys.modules.get("triton.runtime.interpreter"):
        look_up_builtins_once(interpreter)
    skip = pytest.mark.skip(reason="runs with `make test-gpu` alone: kernels are interpreted here")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


SMALLER = {
    "kernels/sentinels.py": ("size, n = 256 * MIB, 1024", "size, n = MIB, 64"),
    "collector/method.py": ("budget_ns: int = 1_000_000_000", "budget_ns: int = 50_000_000"),
    "collector/ranked.py": ('"cpu": 4 * MIB', '"cpu": MIB // 4'),
}


def measure_little(project: Path, *names: str) -> None:
    """Let a copy of the project measure small arrays and messages for a short time, or some."""
    for name in names or SMALLER:
        text, (old, new) = (project / name).read_text(encoding="utf-8"), SMALLER[name]
        assert old in text, name
        (project / name).write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def v1_lines() -> list[bytes]:
    """Lines of the frozen example of version 1: run, sentinel, measurements, end."""
    return (HISTORY / "record.v1.jsonl").read_bytes().splitlines()


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run the command line here: most of the time of a process of its own goes into imports."""
    from collector.__main__ import main

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(ROOT)

    def run(*arguments: str | Path) -> Ended:
        words = ["python -m collector", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(words, int(str(ended.value)), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start a browser for all tests of a process: each has windows of its own."""
    from tests.visiting import chromium

    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site of a file, and return where."""
    from tests.visiting import serve

    with serve(site) as told:
        yield told
