"""The command that compares: read, judge, tell, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as once
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from rich.console import Console

from collector.compare import PREVIOUS, Request, Result, compare
from collector.compare_report import as_json, markdown, show
from collector.compare_sides import CompareError, fail
from collector.confirm import Here, confirm
from collector.crew import probe
from collector.device import probe_source
from collector.exit_codes import FAILED, NOT_COMPARABLE
from collector.history.cache import NO_CACHE, Cache, standard_cache
from collector.history.format import plural
from collector.plan import CollectOptions
from collector.record import Case, Device

__all__ = ["PREVIOUS", "Request", "run"]

Tell = Callable[[str], None]


def run(
    request: Request, tell: Tell, whole: bool, json_file: Path | None, markdown_file: Path | None,
    *, confirming: bool = False,
) -> int:  # fmt: skip
    """Compare, write what was asked for, and return the exit code; messages go to `tell`."""
    cache = _cache(request.repo)
    try:
        result = compare(request, cache)
        if confirming:
            result = _confirmed(result, request, cache, tell)
        _tell_problems(request, result, tell)
        for path, made in ((json_file, as_json), (markdown_file, markdown)):
            if path is not None:
                _write(path, made(result))
    except CompareError as error:
        tell(str(error))
        return error.code
    show(result, Console(highlight=False, soft_wrap=False), whole=whole)
    if result.exit_code == NOT_COMPARABLE:
        tell("nothing could be compared; the lists above say why")
    return result.exit_code


def _cache(root: Path) -> Cache:
    """Return the cache that the site uses too; none where the site's packages are not installed."""
    try:
        return standard_cache(root)
    except PackageNotFoundError:
        return NO_CACHE


def _confirmed(result: Result, request: Request, cache: Cache, tell: Tell) -> Result:
    """Measure the suspects once more in this tree and on this device."""
    found = once(probe)

    def measure(options: CollectOptions, cases: tuple[Case, ...]) -> Path:
        fresh = plural(options.replicates, "fresh replicate")
        tell(f"{plural(len(cases), 'series')} may be slower: measuring again, {fresh} each")
        return _measured(options, cases, found())

    def device() -> Device:
        return Device.model_validate(found()["device"])

    here = Here(probe_source(None), device)
    try:
        return confirm(result, request, here, measure, lambda asked: compare(asked, cache))
    except RuntimeError as error:
        if isinstance(error, CompareError):
            raise
        fail(f"--confirm: {error}", FAILED)


def _measured(options: CollectOptions, cases: tuple[Case, ...], found: dict[str, Any]) -> Path:
    """Measure these cases and no others; return the file of the run."""
    from collector.chosen import collect_chosen, name_of
    from kernels.registry import load_ops

    wanted = {name_of(case) for case in cases}
    made = collect_chosen(
        load_ops(), options, found,
        lambda case: 0 if name_of(case) in wanted else options.replicates,
        Console(stderr=True, soft_wrap=True),
    )  # fmt: skip
    if made is None or made.outcome != "complete":
        kept = f"; what was measured is kept: {made.path}" if made else ""
        fail(f"--confirm: the suspects could not all be measured again{kept}", FAILED)
    return made.path


def _tell_problems(request: Request, result: Result, tell: Tell) -> None:
    own = [one for one in result.problems if one.file in (request.candidate, request.baseline)]
    for problem in own:
        tell(str(problem))
    if others := len(result.problems) - len(own):
        tell(f"{others} problems in {request.data}: `python -m collector validate` names them")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        told = f"cannot write {path}: {error.strerror}; name another file"
        raise CompareError(told, FAILED) from error
