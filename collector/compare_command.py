"""The command that compares: read, judge, tell, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from rich.console import Console

from collector.compare import PREVIOUS, Request, Result, compare
from collector.compare_report import as_json, markdown, show
from collector.compare_sides import CompareError
from collector.exit_codes import FAILED, NOT_COMPARABLE
from collector.history.cache import NO_CACHE, Cache, standard_cache

__all__ = ["PREVIOUS", "Request", "run"]

Tell = Callable[[str], None]


def run(
    request: Request, tell: Tell, whole: bool, json_file: Path | None, markdown_file: Path | None
) -> int:
    """Compare, write what was asked for, and return the exit code; messages go to `tell`."""
    try:
        result = compare(request, _cache(request.repo))
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
