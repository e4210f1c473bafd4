"""What the curves of an op say, in words that are made from the data."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from collector.history.roof import Roof
from dashboard import format as words
from dashboard.crossover import SpeedUp, crossover_words
from dashboard.figures import REGIME_WORDS, Scene, ratios
from dashboard.metrics import geometric_mean
from dashboard.views import Curves, View

TIMER_WORDS = {"graph": "device time", "call": "time of a call", "submit": "time to enqueue"}


@dataclass(frozen=True, slots=True)
class Finding:
    """How the best implementation of a view does against the baseline."""

    scene: Scene
    name: str
    baseline: str
    ratios: tuple[tuple[int, SpeedUp], ...]
    mean: float
    largest: int
    roof: Roof | None

    @property
    def best(self) -> tuple[int, SpeedUp]:
        """Return the size with the highest speed-up."""
        return max(self.ratios, key=lambda pair: pair[1].value)

    @property
    def worst(self) -> tuple[int, SpeedUp]:
        """Return the size with the lowest speed-up."""
        return min(self.ratios, key=lambda pair: pair[1].value)

    @property
    def crossover(self) -> str:
        """Say where it is faster than the baseline."""
        return crossover_words(self.ratios, self.scene.curves.axis, self.baseline)


def focus(curves: Curves, baseline: str) -> str | None:
    """Return the Triton implementation that is fastest on the whole, else the fastest other."""
    kinds = {info.name: info.kind for info in curves.op.implementations}
    means = {
        name: geometric_mean([ratio.value for _, ratio in found])
        for name in curves.names
        if name != baseline and (found := ratios(curves, name, baseline))
    }
    return max(
        means, key=lambda name: (kinds.get(name) == "triton", means[name] or 0.0), default=None
    )


def finding(scene: Scene) -> Finding | None:
    """Return the finding of a view; None when nothing can be compared there."""
    curves, baseline = scene.curves, scene.curves.op.baseline
    name = focus(curves, baseline)
    if name is None:
        return None
    found = tuple(ratios(curves, name, baseline))
    largest = max(curves.passed(name))
    mean = geometric_mean([ratio.value for _, ratio in found]) or 1.0
    return Finding(scene, name, baseline, found, mean, largest, scene.roof(name, largest))


def view_words(view: View) -> str:
    """Say what was measured how."""
    fixed = ", ".join(f"{name} = {size}" for name, size in view.fixed)
    mode = "" if view.mode == "forward" else f"{view.mode}, "
    sizes = f", {fixed}" if fixed else ""
    return f"{mode}{TIMER_WORDS[view.timer]}, {view.cache} cache, {view.dtype}{sizes}"


def lead(scene: Scene) -> Markup:
    """Return the sentence that an op's page begins with."""
    found, curves = finding(scene), scene.curves
    device = curves.run.device.name
    if found is None:
        text = "On {}, nothing can be compared with {} for this choice ({})."
        return Markup(text).format(device, curves.op.baseline, view_words(curves.view))
    return Markup(" ").join(
        [_speed_sentence(found, device), found.crossover, _roof_sentence(found)]
    )


def _speed_sentence(found: Finding, device: str) -> Markup:
    axis = found.scene.curves.axis
    (best_at, best), (worst_at, worst) = found.best, found.worst
    if len(found.ratios) == 1:
        text = "On {}, <strong>{}</strong> is <strong>{}</strong> as fast as {} at {} = {}."
        size = words.binary(best_at)
        return Markup(text).format(
            device, found.name, words.times(best.value), found.baseline, axis, size
        )
    text = (
        "On {}, <strong>{}</strong> is <strong>{}</strong> as fast as {} on the geometric mean of "
        "{}: {} at best ({} = {}), {} at worst ({} = {})."
    )
    return Markup(text).format(
        device, found.name, words.times(found.mean), found.baseline,
        words.plural(len(found.ratios), "size"), words.times(best.value), axis,
        words.binary(best_at), words.times(worst.value), axis, words.binary(worst_at),
    )  # fmt: skip


def _roof_sentence(found: Finding) -> Markup:
    roof = found.roof
    if roof is None or roof.regime is None or roof.fraction is None:
        return Markup("")
    axis, size = found.scene.curves.axis, words.binary(found.largest)
    text = "At {} = {} it is {} and reaches {} of its roof."
    share = words.percent(roof.fraction)
    return Markup(text).format(axis, size, REGIME_WORDS[roof.regime], share)
