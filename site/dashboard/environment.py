"""The Jinja2 environment of all generated pages: everything is escaped."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dashboard import format as words
from dashboard.figures import REGIME_WORDS
from dashboard.svg import DASHES, HEIGHT, SYMBOLS, WIDTH

FILTERS = (
    *("binary", "bytes_text", "change", "compact", "date", "duration", "interval", "percent"),
    *("moved", "plural", "rate", "scientific", "short", "significant", "slug", "sortable", "times"),
)


def environment(templates: Path) -> Environment:
    """Return an environment that escapes every value and refuses unknown names."""
    made = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {name: getattr(words, name) for name in FILTERS}
    made.globals |= {
        name: getattr(words, name) for name in ("NONE", "STATUS_WORDS", "OUTCOME_WORDS")
    }
    made.globals |= {"DASHES": DASHES, "SYMBOLS": SYMBOLS, "REGIME_WORDS": REGIME_WORDS}
    made.globals |= {"CHART_SIZE": (WIDTH, HEIGHT)}
    return made
