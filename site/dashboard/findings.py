"""What the curves of an op say, in words that are made from the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from collector.history.roof import Roof
from dashboard import format as words
from dashboard.answer import Answer, Ratios, answer_words, answers, count_words
from dashboard.crossover import SpeedUp, best_other
from dashboard.elsewhere import elsewhere
from dashboard.figures import REGIME_WORDS, Scene, ratios
from dashboard.metrics import geometric_mean
from dashboard.steadiness import Unsteady, unsteady
from dashboard.views import Curves, View

TIMER_WORDS = {"graph": "device time", "call": "time of a call", "submit": "time to enqueue"}


@dataclass(frozen=True, slots=True)
class Finding:
    """How the best implementation of a view does against the baseline.

    `rivals` are the speed-ups over the fastest one at each size that is no Triton kernel of this
    project, which may be the baseline.
    """

    scene: Scene
    name: str
    baseline: str
    ratios: Ratios
    rivals: Ratios
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
    def over_rivals(self) -> float | None:
        """Return the geometric mean over the fastest others."""
        return geometric_mean([ratio.value for _, ratio in self.rivals])

    @property
    def rival_names(self) -> list[str]:
        """Return the fastest others, the one of most sizes first."""
        return [name for name, _ in Counter(r.against for _, r in self.rivals).most_common()]

    @property
    def has_rivals(self) -> bool:
        """Say whether another than the baseline is the fastest other at some size."""
        return any(name != self.baseline for name in self.rival_names)

    @property
    def unsteady(self) -> Unsteady | None:
        """Return where the baseline itself differs between runs."""
        return unsteady(self.scene, self.baseline)

    @property
    def answers(self) -> list[Answer]:
        """Return where it is faster than the baseline, and what decides there."""
        roofs = {size: self.scene.roof(self.name, size) for size, _ in self.ratios}
        regimes = {size: roof.regime if roof else None for size, roof in roofs.items()}
        return answers(self.ratios, regimes)

    @property
    def slower(self) -> bool:
        """Say whether it is slower than the baseline at any size."""
        return any(one.kind == "slower" for one in self.answers)

    @property
    def always_faster(self) -> bool:
        """Say whether it is faster at every size."""
        return all(one.kind == "faster" for one in self.answers)

    @property
    def verdict(self) -> str:
        """Count the sizes where it is faster and slower, in words."""
        return count_words(self.answers)


def focus(curves: Curves, baseline: str) -> str | None:
    """Return the Triton implementation that is fastest on the whole, else the fastest other."""
    means = {
        name: geometric_mean([ratio.value for _, ratio in found])
        for name in curves.names
        if name != baseline and (found := ratios(curves, name, baseline))
    }
    kind_of = curves.op.kind_of
    return max(
        means, key=lambda name: (kind_of(name) == "triton", means[name] or 0.0), default=None
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
    rivals, roof = tuple(over_fastest(scene, name)), scene.roof(name, largest)
    return Finding(scene, name, baseline, found, rivals, mean, largest, roof)


def over_fastest(scene: Scene, name: str) -> Iterator[tuple[int, SpeedUp]]:
    """Yield the speed-up at each size over the fastest implementation that is not in Triton.

    That may be one which only another run timed, beside the fastest kernel of ours there.
    """
    curves, apart = scene.curves, elsewhere(scene)
    others = [one for one in curves.names if one != name and curves.op.kind_of(one) != "triton"]
    lines = {one: curves.passed(one) for one in others}
    for size, point in curves.passed(name).items():
        measured = (point.run_id, point.method_id)
        there = {one: line[size] for one, line in lines.items() if size in line}
        alike = {one: p for one, p in there.items() if (p.run_id, p.method_id) == measured}
        here = best_other(point, alike)
        found = [one.ratio for one in apart if one.size == size] + ([here] if here else [])
        if found:
            yield size, min(found, key=lambda ratio: ratio.value)


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
    parts = [
        _answer_sentence(found, device), _mean_sentence(found), _rival_sentence(found),
        _unsteady_sentence(found), _roof_sentence(found),
    ]  # fmt: skip
    return Markup(" ").join(filter(None, parts))


def _answer_sentence(found: Finding, device: str) -> Markup:
    told = answer_words(found.answers, found.scene.curves.axis, found.baseline)
    return Markup("On {}, <strong>{}</strong> is {}.").format(device, found.name, told)


def _mean_sentence(found: Finding) -> Markup:
    axis = found.scene.curves.axis
    (best_at, best), (worst_at, worst) = found.best, found.worst
    if len(found.ratios) == 1:
        return Markup("")
    text = "The geometric mean of {} is {}: {} at best ({} = {}), {} at worst ({} = {})."
    return Markup(text).format(
        words.plural(len(found.ratios), "size"), words.times(found.mean), words.times(best.value),
        axis, words.binary(best_at), words.times(worst.value), axis, words.binary(worst_at),
    )  # fmt: skip


def _rival_sentence(found: Finding) -> Markup:
    """Name the fastest others where they are not the baseline alone."""
    if not found.has_rivals:
        return Markup("")
    over = words.times_span([ratio.value for _, ratio in found.rivals])
    text = "Over the fastest other at each size ({}) it is <strong>{}</strong>."
    return Markup(text).format(", ".join(found.rival_names), over)


def _unsteady_sentence(found: Finding) -> Markup:
    one = found.unsteady
    if one is None:
        return Markup("")
    text = "{} itself took {} to {} at {} = {} over {} with the same versions."
    return Markup(text).format(
        found.baseline, words.duration(one.low_ns), words.duration(one.high_ns),
        found.scene.curves.axis, words.binary(one.size), words.plural(one.runs, "run"),
    )  # fmt: skip


def _roof_sentence(found: Finding) -> Markup:
    roof = found.roof
    if roof is None or roof.regime is None or roof.fraction is None:
        return Markup("")
    axis, size = found.scene.curves.axis, words.binary(found.largest)
    text = "At {} = {} it is {} and reaches {} of its roof."
    share = words.percent(roof.fraction)
    return Markup(text).format(axis, size, REGIME_WORDS[roof.regime], share)
