"""A comparison in words: numbers as people write them, and sentences that say no more than the figures do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from navrl.analysis.caveats import ENOUGH_SEEDS
from navrl.analysis.comparison import COLLISIONS, REWARD, Comparison, Pair
from navrl.analysis.report.layers import title
from navrl.analysis.statistics import Estimate

HEADLINES = (
    REWARD,
    "eval/success_rate",
    COLLISIONS,
    "eval/goal_distance",
    "eval/path_efficiency",
)  # what the summary speaks of: layer 2, then layer 3
SUCCESS, CLEAN, PATHS = "eval/success_rate", "eval/success_rate_collision_free", "eval/path_efficiency"
_PLACES = ((1000, 0), (100, 1), (1, 2), (0.001, 3), (0.0001, 5))  # from this size on: digits behind the point


@dataclass(frozen=True)
class Sentence:
    """kind: ``better`` (a difference that chance does not explain), ``unclear`` (none) or ``fact``."""

    kind: str
    text: str


def number(value: float) -> str:
    """−7.18, 0.863, 12,345, 3.1e-05; "–" for what is not finite."""
    value = float(value)
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    for size, digits in _PLACES:
        if abs(value) >= size:
            return f"{value:,.{digits}f}".replace("-", "−")
    return f"{value:.1e}".replace("-", "−", 1) if value < 0 else f"{value:.1e}"


def whole(value: float) -> str:
    """12,345; "–" for what is not finite."""
    return f"{value:,.0f}" if math.isfinite(value) else "–"


def interval(estimate: Estimate) -> str:
    """"−7.25 to −7.10"; "" where there is none (one run)."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return ""
    return f"{number(estimate.low)} to {number(estimate.high)}"


def odds(probability: Estimate) -> str:
    """"0.16 to 0.84"; "" where there is no interval."""
    return f"{probability.low:.2f} to {probability.high:.2f}" if math.isfinite(probability.low) else ""


def share(value: float) -> str:
    """0.863 as "86 %"."""
    return f"{100 * value:.0f} %" if math.isfinite(value) else "–"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, the two largest that count: "3 min 48 s"."""
    if not math.isfinite(seconds):
        return "–"
    seconds = round(seconds)
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def short_labels(labels: Sequence[str]) -> list[str]:
    """Labels without the words (between underscores) with which all begin; each keeps one at least, all stay unique."""
    words = [label.split("_") for label in labels]
    common = 0
    while len(labels) > 1 and all(len(w) > common + 1 for w in words) and len({w[common] for w in words}) == 1:
        common += 1
    return ["_".join(w[common:]) for w in words]


def is_clear(difference: Estimate) -> bool:
    """Whether the interval of a difference leaves zero out."""
    return difference.low > 0 or difference.high < 0


def winner(pair: Pair, better: str | None) -> str | None:
    """The label of the group that is better beyond chance; None where neither is, or the metric has no better end."""
    if better is None or not is_clear(pair.difference):
        return None
    return pair.first if (pair.difference.value > 0) == (better == "higher") else pair.second


def summary(comparison: Comparison) -> list[Sentence]:
    """What a reader takes home: which group is better in what and by how much, then how the agents behave."""
    names = dict(zip((g.label for g in comparison.groups), short_labels([g.label for g in comparison.groups])))
    sentences = [s for metric in HEADLINES if (s := _between_best_two(comparison, metric, names))]
    sentences += [s for group in comparison.groups if (s := _behaviour(comparison, group.label, names[group.label]))]
    return sentences


def _between_best_two(comparison: Comparison, metric: str, names: dict[str, str]) -> Sentence | None:
    better = comparison.better.get(metric)
    values = {g.label: comparison.outcomes[g.label, metric].iqm.value for g in comparison.groups
              if metric in comparison.metrics}  # fmt: skip
    known = [label for label in values if math.isfinite(values[label])]
    ranked = sorted(known, key=values.get, reverse=better == "higher")
    if len(ranked) < 2 or better is None:
        return None
    best, second = ranked[:2]
    of = f" of {len(values)} groups" if len(values) > 2 else ""
    two = (p for p in comparison.pairs if p.metric == metric and {p.first, p.second} == {best, second})
    pair = next(two, None)
    if pair is None:  # of a crowd, only the first is compared with each
        return Sentence("fact", f"{names[best]} has the {better} {title(metric)}{of}: {number(values[best])}, then "
                                f"{names[second]} {number(values[second])}.")  # fmt: skip
    turned = pair.first != best
    difference = _negated(pair.difference) if turned else pair.difference
    chance = _complement(pair.improvement) if turned else pair.improvement
    figures = f"{number(values[best])} against {number(values[second])}"
    if not interval(difference):
        alone = "with one seed in a group nobody knows what is chance"
        return Sentence("unclear", f"{_upper(title(metric))}: {names[best]} {figures} of {names[second]}; {alone}.")
    detail = (f"difference {number(difference.value)}, 95 % interval {interval(difference)}; a seed of {names[best]} "
              f"is better than one of {names[second]} with probability {chance.value:.2f}, {odds(chance)}")  # fmt: skip
    compared = [group for group in comparison.groups if group.label in (best, second)]
    if min(group.seeds for group in compared) < ENOUGH_SEEDS:
        return Sentence("unclear", f"{_upper(title(metric))}: {names[best]} {figures} of {names[second]}; too few seeds to "
                                   f"tell ({detail}).")  # fmt: skip
    if any(run.status != "finished" for group in compared for run in group.runs):
        return Sentence("unclear", f"{_upper(title(metric))} so far: {names[best]} {figures} of {names[second]}; not all of "
                                   f"their runs have finished ({detail}).")  # fmt: skip
    if is_clear(difference):
        return Sentence("better", f"{names[best]} has the {better} {title(metric)}{of}: {figures} ({detail}).")
    both = f"{names[best]} {number(values[best])}, {names[second]} {number(values[second])}"
    return Sentence("unclear", f"No clear difference in {title(metric)}: {both} ({detail}).")


def _behaviour(comparison: Comparison, label: str, name: str) -> Sentence | None:
    def middle(metric: str) -> float:
        outcome = comparison.outcomes.get((label, metric))
        return math.nan if outcome is None else outcome.iqm.value

    parts = []
    success = middle(SUCCESS)
    if math.isfinite(success):
        parts.append(f"{share(success)} of episodes succeed")
        if success > 0 and math.isfinite(middle(CLEAN)):
            parts[-1] += f", {share(middle(CLEAN) / success)} of these without any contact"
        if success > 0 and math.isfinite(middle(PATHS)):
            parts.append(f"where they do, ways are {share(middle(PATHS) / success)} efficient (straight over walked)")
    if math.isfinite(middle(COLLISIONS)):
        parts.append(f"{number(middle(COLLISIONS))} colliding pair-steps an episode")
    return Sentence("fact", f"Behaviour of {name}: {'; '.join(parts)}.") if parts else None


def _negated(estimate: Estimate) -> Estimate:
    return Estimate(-estimate.value, -estimate.high, -estimate.low)


def _complement(estimate: Estimate) -> Estimate:
    return Estimate(1 - estimate.value, 1 - estimate.high, 1 - estimate.low)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
