"""A chart made ready for a page: drawing, figure, and its numbers as a table."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from dashboard import format as words
from dashboard.charts import Chart, Table, table
from dashboard.plotly_json import plotly
from dashboard.svg import svg

INLINE_BYTES = 30_000
AS_IT_IS = frozenset({str, int, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart with everything that a page shows of it."""

    chart: Chart
    svg: Markup
    table: Table
    unit: str
    figure: Mapping[str, Any]


def draw(chart: Chart, environment: Environment, numbers: Table | None = None) -> Drawn:
    """Draw a chart; `numbers` replaces the table that follows from the chart itself."""
    write_x = words.binary if chart.x.scale == "log2" else _tick_text(chart)
    made = numbers or table(chart, lambda value: words.significant(value, 4), write_x)
    return Drawn(chart, svg(chart, environment), made, chart.y.title, plotly(chart))


def compact(value: object) -> str:
    """Write JSON small: six significant digits, no spaces, nothing that ends a script element."""
    text = json.dumps(_short(value), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def shard(name: str, value: object) -> tuple[str, str, bytes]:
    """Return (name, path, content) of a script that hands over data, named by its content.

    The data are packed: a site holds hundreds of them, on disk they would be seven times as large.
    """
    text = compact(value).encode()
    full = f"{name}.{hashlib.sha256(text).hexdigest()[:8]}"
    packed = base64.b64encode(zlib.compress(text)).decode()
    script = f"(window.almanacShards=window.almanacShards||{{}})[{json.dumps(full)}]='{packed}';\n"
    return full, f"assets/data/{full}.js", script.encode()


def picture(name: str, chart: Chart, environment: Environment) -> tuple[str, bytes]:
    """Return a chart as a file of its own, named by its content."""
    drawn = str(svg(chart, environment, alone=True)).encode()
    return f"assets/charts/{name}.{hashlib.sha256(drawn).hexdigest()[:8]}.svg", drawn


def unpack(script: bytes) -> Any:
    """Return the data that a script hands over, as the page's own script reads them."""
    packed = script.decode().partition("]='")[2].rpartition("'")[0]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def inline(figures: Mapping[str, object]) -> Markup:
    """Return as many figures as fit into a page, as JSON for a script element."""
    kept: dict[str, object] = {}
    size = 0
    for key, figure in figures.items():
        size += len(compact(figure).encode())
        if size > INLINE_BYTES:
            break
        kept[key] = figure
    return Markup(compact(kept))


def _tick_text(chart: Chart) -> Any:
    labels = dict(chart.x.ticks)
    return lambda value: labels.get(value, words.plain(value))


def _short(value: Any) -> Any:
    """Keep six significant digits; the order of the tests is the order of how often they hold."""
    kind = type(value)
    if kind is float:
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() else short
    if kind is list or kind is tuple:
        return [item if type(item) in AS_IT_IS else _short(item) for item in value]
    if kind is dict:
        return {
            key: item if type(item) in AS_IT_IS else _short(item) for key, item in value.items()
        }
    return value
