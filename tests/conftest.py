"""What all tests share: where Triton runs, and which tests need a GPU."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent
HISTORY = Path(__file__).parent / "history"


# A loaded machine is slow now and then, which is no fault of a property.
settings.register_profile("almanac", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("almanac")


def gpu_run(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "gpu"


def pytest_configure(config: pytest.Config) -> None:
    # Triton decides when it is imported whether kernels are interpreted, so this comes first.
    if not gpu_run(config):
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if gpu_run(config):
        return
    skip = pytest.mark.skip(reason="runs with `make test-gpu` alone: kernels are interpreted here")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def v1_lines() -> list[bytes]:
    """Lines of the frozen example of version 1: run, sentinel, measurements, end."""
    return (HISTORY / "record.v1.jsonl").read_bytes().splitlines()
