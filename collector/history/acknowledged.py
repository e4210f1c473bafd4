"""Changes that people looked at and accepted: `data/acknowledged.yml`."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import yaml

from collector.history.model import Acknowledgement, Problem

FILE = "acknowledged.yml"
REQUIRED = ("device", "op", "commit", "reason", "by", "when")
KNOWN = (*REQUIRED, "implementation")
LEAST_COMMIT = 7


def read_acknowledged(data: Path) -> tuple[tuple[Acknowledgement, ...], list[Problem]]:
    """Read the entries of a data folder, and what is wrong with the others; none without a file."""
    path = data / FILE
    if not path.is_file():
        return (), []
    try:
        # As text: a commit may look like a number, and a wrong date like none.
        entries = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return (), [Problem(FILE, 0, "", f"cannot be read, so nothing is acknowledged: {error}")]
    if not isinstance(entries, list):
        told = "must be a list of entries; write [] when there is none"
        return (), [] if entries is None else [Problem(FILE, 0, "", told)]
    read = [_entry(number, entry) for number, entry in enumerate(entries, start=1)]
    good = tuple(one for one in read if isinstance(one, Acknowledgement))
    return good, [one for one in read if isinstance(one, Problem)]


def _entry(number: int, entry: object) -> Acknowledgement | Problem:
    place = f"entry {number}"
    if not isinstance(entry, dict):
        return Problem(FILE, 0, place, f"must name {', '.join(REQUIRED)}")
    texts = {str(name): str(value) for name, value in entry.items()}
    missing = [name for name in REQUIRED if not texts.get(name)]
    unknown = [name for name in texts if name not in KNOWN]
    if missing or unknown:
        told = [f"{name} is missing" for name in missing] + [f"unknown {name}" for name in unknown]
        return Problem(FILE, 0, place, "; ".join(told))
    if len(texts["commit"]) < LEAST_COMMIT:
        return Problem(FILE, 0, place, f"commit needs at least {LEAST_COMMIT} digits")
    if not _is_date(texts["when"]):
        return Problem(
            FILE, 0, place, f"when must be a date such as 2026-03-01, not {texts['when']}"
        )
    return Acknowledgement(**{name: texts.get(name, "") for name in KNOWN})


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
