"""Curves along other sizes than the op's axis: a chart each, and the way to their own view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from dashboard import format as words
from dashboard.charts import Chart
from dashboard.drawing import Drawn
from dashboard.figures import METRICS, Scene, metric_chart
from dashboard.views import FIELDS, Curves, View


@dataclass(frozen=True, slots=True)
class Sweep:
    """The chart of a sweep, and the query that makes the page show all charts along it."""

    axis: str
    drawn: Drawn
    query: str


def sweeps_beside(views: Mapping[View, Curves], view: View) -> list[Curves]:
    """Return the sweeps that differ from a view in nothing but what varies along them."""
    wanted = _same(view)
    return [
        curves
        for other, curves in views.items()
        if not curves.along_own_axis and other != view and _same(other) == wanted
    ]


def _same(view: View) -> View:
    return replace(view, axis="", fixed=())


def sweep_chart(scene: Scene, place: int) -> Chart:
    """Draw the time along another size than the op's axis."""
    curves, run = scene.curves, scene.curves.run
    chart = metric_chart(scene, METRICS[0])
    at = ", ".join(f"{name} = {words.binary(size)}" for name, size in curves.view.fixed)
    where = f"Along {curves.axis} at {at}" if at else f"Along {curves.axis}"
    when = f"measured {words.date(run.started_at)} at {words.short(run.source.commit)}"
    caption = f"{where}, {when}. {chart.caption}"
    return replace(chart, key=f"sweep-{place}", title=f"Time along {curves.axis}", caption=caption)


def query(view: View, default: View) -> str:
    """Return the part of the page's address that chooses a view."""
    rows = zip(FIELDS, view.choices, default.choices, strict=True)
    return "?" + urlencode({name: value for name, value, usual in rows if value != usual})
