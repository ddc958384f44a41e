"""W&B's methods and early termination in Optuna's terms: distributions, samplers, a pruner."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from navrl.sweep import slots
from navrl.sweep.parameters import Parameter, tidy
from navrl.sweep.spec import Hyperband, Sweep

DIGITS = 4  # significant digits of a number that is drawn: names and YAML files show all of it


def space(sweep: Sweep) -> dict[str, BaseDistribution]:
    """The search space, one distribution a parameter."""
    grid = sweep.method == "grid"
    return {p.key: CategoricalDistribution(p.points()) if grid else _distribution(p) for p in sweep.parameters}


def _distribution(parameter: Parameter) -> BaseDistribution:
    low, high, q = parameter.low, parameter.high, parameter.q
    if parameter.choices is not None:
        return CategoricalDistribution(parameter.choices)
    if parameter.log:  # Optuna has no steps there: `Draw` rounds to them
        return FloatDistribution(low, high, log=True)
    if parameter.whole:
        return IntDistribution(int(low), int(high), step=int(q or 1))
    return FloatDistribution(low, high, step=q)


def sampler(sweep: Sweep) -> BaseSampler:
    """Where a trial's parameters come from: ``grid`` in order, ``random``, or ``bayes`` (Optuna's multivariate TPE)."""
    if sweep.method == "grid":
        return Grid(grid_points(sweep))
    make = RandomSampler if sweep.method == "random" else TPESampler
    return Draw(lambda seed: make(seed=seed), space(sweep), {p.key: p.q for p in sweep.parameters if p.log and p.q})


def grid_points(sweep: Sweep) -> list[dict[str, Any]]:
    """Every combination of the parameters' values, the last parameter changing fastest."""
    values = [parameter.points() or () for parameter in sweep.parameters]
    return [dict(zip((p.key for p in sweep.parameters), point)) for point in itertools.product(*values)]


def pruner(sweep: Sweep) -> optuna.pruners.BasePruner:
    return optuna.pruners.NopPruner() if sweep.hyperband is None else BandPruner(sweep.hyperband)


class Grid(BaseSampler):
    """The i-th trial gets the i-th point, so that any number of workers, killed or not, go over each point once.

    (Optuna's own GridSampler draws among the points that it sees unvisited; two workers may draw the same one.)
    """

    def __init__(self, points: Sequence[Mapping[str, Any]]) -> None:
        self._points = points

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        values = {key: list(dict.fromkeys(point[key] for point in self._points)) for key in self._points[0]}
        return {key: CategoricalDistribution(choices) for key, choices in values.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        place = slots.index_of(study.get_trials(deepcopy=False), trial.number)
        return dict(self._points[min(place, len(self._points) - 1)])  # one beyond the grid is given back unused

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self.sample_relative(study, trial, {})[param_name]


class Draw(BaseSampler):
    """One of Optuna's samplers, seeded by study and trial, its numbers rounded to what names can show.

    So a trial's parameters depend on what the study knew when it began, and not on which worker asked or how often that
    one was restarted; a sampler with one seed would draw the same again after a restart.
    """

    def __init__(
        self, make: Callable[[int], BaseSampler], search_space: dict[str, BaseDistribution], steps: Mapping[str, float]
    ) -> None:
        """steps: the multiples that log-uniform parameters are rounded to."""
        self._make, self._space, self._steps = make, search_space, steps
        self._sampler = make(0)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler = self._make(zlib.crc32(f"{study.study_name}/{trial.number}".encode()))
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {key: dist for key, dist in self._space.items() if not dist.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        drawn = self._sampler.sample_relative(study, trial, search_space)
        return {key: self._round(key, value, search_space[key]) for key, value in drawn.items()}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        value = self._sampler.sample_independent(study, trial, param_name, param_distribution)
        return self._round(param_name, value, param_distribution)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)

    def _round(self, key: str, value: Any, dist: BaseDistribution) -> Any:
        if not isinstance(dist, FloatDistribution):
            return value
        step = self._steps.get(key)
        rounded = tidy(round(value / step) * step if step else value)
        if step is None and dist.step is None:
            rounded = float(f"{rounded:.{DIGITS}g}")
        return min(max(rounded, dist.low), dist.high)


class BandPruner(optuna.pruners.BasePruner):
    """W&B's hyperband rule on the means over seeds: at a band, be among the best 1/eta or end.

    A band is a count of values that were logged before. A trial's best value so far is held against the values that all
    trials had at its last band. Source: hyperband_stop_runs of the package ``sweeps`` 0.2.0, W&B's own engine.
    """

    def __init__(self, rule: Hyperband) -> None:
        self._rule = rule

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        reached = [band for band in self._rule.bands if band in trial.intermediate_values]
        if not reached:
            return False
        sign = -1.0 if study.direction == optuna.study.StudyDirection.MAXIMIZE else 1.0
        others = study.get_trials(deepcopy=False)
        there = sorted(
            sign * other.intermediate_values[reached[-1]]
            for other in others
            if reached[-1] in other.intermediate_values and other.state != TrialState.FAIL
        )
        threshold = there[int(1.0 / self._rule.eta * len(there))]
        return min(sign * value for value in trial.intermediate_values.values()) > threshold
