"""Do jobs in several processes at once, which start as copies of this one."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

T = TypeVar("T")

MOST = 4  # each may grow to the size of this one
JOBS: list[Callable[[], Any]] = []


def spread(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Return what the jobs return, in their order: the same as one by one.

    A job may use whatever this process holds; only what it returns is copied.
    """
    count = min(len(jobs), MOST, _cores())
    if count < 2 or not _may_fork():
        return [job() for job in jobs]
    JOBS[:] = jobs
    try:
        return _in_copies(len(jobs), count)
    finally:
        JOBS.clear()


def _in_copies(jobs: int, count: int) -> list[Any]:
    with warnings.catch_warnings():
        # Python 3.12 warns of the idle threads of numerical libraries, which no job uses.
        warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(count, mp_context=get_context("fork")) as pool:
            return list(pool.map(_do, range(jobs)))


def _do(place: int) -> Any:
    return JOBS[place]()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _may_fork() -> bool:
    """Tell whether a copy of this process can go on: it has one thread, and is no copy itself."""
    return threading.active_count() == 1 and parent_process() is None
