"""What tests read from static charts: where their points lie, in units of the drawing."""

import math
import posixpath
import re
from xml.etree import ElementTree

from dashboard.drawing import unpack

STEP = 0.5  # units, to which drawings are rounded
NUMBER = r"(-?[\d.]+) ?(-?[\d.]+)"


def tree(drawing):
    return ElementTree.fromstring(str(drawing).replace('xmlns="', 'data-ns="'))


def moves(path):
    """Return the points of a path that moves once and then steps on, or moves again."""
    places = []
    for kind, across, up in re.findall(f"([Ml]){NUMBER}", path):
        x, y = places[-1] if kind == "l" else (0.0, 0.0)
        places.append((x + float(across), y + float(up)))
    return places


def points(drawing):
    """Return the points of each series, full and hollow ones together."""
    found = {}
    for group in drawing.iter("g"):
        for path in group.findall("path"):
            if "ka-points" in path.get("class", ""):
                found.setdefault(group.get("data-series"), []).extend(moves(path.get("d")))
    return {key: sorted(places) for key, places in found.items()}


def belonging(figure, drawing):
    """Return where the points of a Plotly figure belong, by the grid of the drawing alone."""
    grid = [path.get("d") for path in drawing.find(".//g[@class='ka-grid']")]
    across = [float(re.match("M([^ ]+)", d)[1]) for d in grid if "V" in d]
    up = [float(re.match("M[^ ]+ ([^H]+)H", d)[1]) for d in grid if "H" in d]
    place_x = _placing(figure["layout"]["xaxis"], across)
    place_y = _placing(figure["layout"]["yaxis"], up)
    found = {}
    for trace in figure["data"]:
        if trace["mode"] == "lines+markers" and "meta" in trace:
            pairs = zip(trace["x"], trace["y"], strict=True)
            places = [(place_x(x), place_y(y)) for x, y in pairs if y is not None]
            found.setdefault(trace["meta"], []).extend(places)
    return {key: sorted(places) for key, places in found.items() if places}


def _placing(axis, drawn):
    """Return the function from data to units that two ticks of an axis tell."""
    turn = math.log if axis["type"] == "log" else float
    low, high = (turn(axis["tickvals"][end]) for end in (0, -1))
    assert len(drawn) == len(axis["tickvals"]) > 1
    return lambda value: drawn[0] + (turn(value) - low) * (drawn[-1] - drawn[0]) / (high - low)


def apart(drawing, figure):
    """Return how far the points of a drawing lie from those of a figure; infinity if others."""
    drawn, wanted = points(drawing), belonging(figure, drawing)
    if {k: len(v) for k, v in drawn.items()} != {k: len(v) for k, v in wanted.items()}:
        return math.inf
    pairs = ((a, b) for key in drawn for a, b in zip(drawn[key], wanted[key], strict=True))
    return max((math.dist(a, b) for a, b in pairs), default=math.inf)


def static_charts(path, files):
    """Return the static drawings of a page by key, in the page itself or in files of their own."""
    found = {}
    for key, inside in re.findall(
        r'<figure[^>]*data-chart="([^"]+)".*?<div class="ka-static">(.*?)</div>',
        files[path].decode(), re.S,
    ):  # fmt: skip
        if picture := re.search(r'<img[^>]* src="([^"]+)"', inside):
            where = posixpath.join(path.removesuffix(".md"), picture[1])
            inside = files[posixpath.normpath(where)].decode()
        found[key] = tree(inside)
    return found


def figures(files):
    """Return the interactive charts of all shards by key, those of the first view first."""
    found = {}
    for path, content in files.items():
        if path.startswith("assets/data/"):
            for key, entry in unpack(content).get("charts", {}).items():
                found.setdefault(key, entry["figure"])
    return found
