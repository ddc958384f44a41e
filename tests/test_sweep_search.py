"""What a sweep draws and what it ends early: in range, legible, the same after a restart; W&B's own rule of ending."""

from __future__ import annotations

import random
import warnings

import optuna
import pytest
from optuna.trial import TrialState

from navrl.naming import compact
from navrl.sweep import search
from navrl.sweep.parameters import Parameter
from navrl.sweep.spec import Hyperband, Sweep
from navrl.sweep.study import quieten

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # written for an earlier pydantic
    from sweeps.hyperband_stopping import hyperband_stop_runs
    from sweeps.run import RunState, SweepRun

PARAMETERS = (
    Parameter("lr", low=1e-4, high=2e-3, log=True),
    Parameter("entropy_coef", low=1e-5, high=2e-2, log=True, q=1e-5),
    Parameter("gamma", low=0.85, high=0.99),
    Parameter("gae_lambda", low=0.7, high=0.95, q=0.05),
    Parameter("hidden_size", low=16, high=128, whole=True, q=16),
    Parameter("mini_batch_size", low=100, high=2000, log=True, whole=True, q=100),
    Parameter("ppo_epoch", low=1, high=10, whole=True),
    Parameter("activation", choices=("tanh", "relu")),
)


def sweep(method: str, parameters: tuple[Parameter, ...] = PARAMETERS) -> Sweep:
    return Sweep(method, "train/x", True, parameters, ())


def study_of(it: Sweep, name: str = "s", storage: optuna.storages.BaseStorage | None = None) -> optuna.Study:
    quieten()
    return optuna.create_study(
        study_name=name, storage=storage, sampler=search.sampler(it), direction="maximize", load_if_exists=True
    )


def draw(study: optuna.Study, it: Sweep, count: int) -> list[dict]:
    """So many trials, each with a value that depends on its parameters."""
    drawn = []
    for _ in range(count):
        trial = study.ask(search.space(it))
        study.tell(trial, -abs(trial.params["gamma"] - 0.95))
        drawn.append(trial.params)
    return drawn


@pytest.mark.parametrize("method", ["random", "bayes"])
def test_what_is_drawn_is_in_range_and_legible(method: str) -> None:
    for params in draw(study_of(sweep(method)), sweep(method), 40):
        for parameter in PARAMETERS:
            value = params[parameter.key]
            if parameter.choices is not None:
                assert value in parameter.choices
                continue
            assert parameter.low <= value <= parameter.high
            assert len(compact(value)) <= 8, value
            if parameter.q:
                assert value == pytest.approx(round(value / parameter.q) * parameter.q, abs=1e-12)


def test_a_logarithm_is_drawn_evenly() -> None:
    it = sweep("random")
    values = [params["lr"] for params in draw(study_of(it), it, 300)]
    below = sum(value < (1e-4 * 2e-3) ** 0.5 for value in values)
    assert 110 < below < 190  # a fair coin: beyond with probability 3e-6
    assert len(set(values)) > 200


@pytest.mark.parametrize("method", ["random", "bayes"])
def test_a_restarted_worker_draws_what_one_that_lived_would_have(method: str) -> None:
    it = sweep(method)
    whole = draw(study_of(it), it, 14)
    storage = optuna.storages.InMemoryStorage()
    parts = [params for _ in range(7) for params in draw(study_of(it, storage=storage), it, 2)]
    assert parts == whole
    assert len({tuple(params.values()) for params in whole}) == 14  # and no draw is repeated
    assert draw(study_of(it, "another"), it, 14) != whole


def test_bayes_goes_where_it_is_good() -> None:
    it = sweep("bayes")
    tried = draw(study_of(it), it, 60)
    early = sum(abs(params["gamma"] - 0.95) for params in tried[:10]) / 10
    late = sum(abs(params["gamma"] - 0.95) for params in tried[-20:]) / 20
    assert late < early / 2


def test_a_grid_is_gone_through_in_order() -> None:
    it = sweep("grid", (Parameter("gamma", choices=(0.9, 0.95)), Parameter("ppo_epoch", low=2, high=4, whole=True)))
    expected = [{"gamma": gamma, "ppo_epoch": epoch} for gamma in (0.9, 0.95) for epoch in (2, 3, 4)]
    assert search.grid_points(it) == expected
    assert draw(study_of(it), it, 6) == expected


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_trials_end_early_exactly_where_wandbs_own_engine_ends_them(goal: str) -> None:
    """Random histories of many lengths, ties among them; all states of trials."""
    quieten()
    dice = random.Random(goal)
    stopped = spared = 0
    for _ in range(150):
        eta = dice.choice([2, 3, 2.5])
        rule = {"type": "hyperband", "eta": eta}
        if dice.random() < 0.5:
            rule["min_iter"] = first = dice.randint(1, 4)
            bands = tuple(dict.fromkeys(int(first * eta**i) for i in range(20)))
        else:
            rule |= {"max_iter": 30, "s": 3}
            bands = tuple(sorted(int(30 / eta**i) for i in range(1, 4) if 30 / eta**i >= 1))
        study = optuna.create_study(direction=goal, pruner=search.BandPruner(Hyperband(bands, float(eta))))
        theirs = []
        for number in range(dice.randint(1, 9)):
            level = dice.randint(-2, 2)
            history = [float(level + dice.choice([0, 0, dice.gauss(0, 1)])) for _ in range(dice.randint(0, 32))]
            done = dice.random() < 0.4 and bool(history)
            study.add_trial(
                optuna.create_trial(
                    state=TrialState.COMPLETE if done else TrialState.RUNNING, value=history[-1] if done else None,
                    intermediate_values=dict(enumerate(history)),
                )
            )  # fmt: skip
            theirs.append(
                SweepRun(name=str(number), state=RunState.finished if done else RunState.running,
                         sampledHistory=[{"m": value} for value in history])
            )  # fmt: skip
        config = {"method": "random", "metric": {"name": "m", "goal": goal}, "early_terminate": rule, "parameters": {}}
        expected = {int(run.name) for run in hyperband_stop_runs(theirs, config)}
        running = [trial for trial in study.get_trials(deepcopy=False) if trial.state == TrialState.RUNNING]
        ours = {trial.number for trial in running if study.pruner.prune(study, trial)}
        assert ours == expected, (rule, [run.history for run in theirs])
        stopped, spared = stopped + len(expected), spared + len(running) - len(expected)
    assert stopped > 50 and spared > 50


def test_a_trial_that_died_is_held_against_nobody() -> None:
    """Its values live on in the trial that took it over; counted twice they would shift the threshold."""
    quieten()
    study = optuna.create_study(direction="maximize", pruner=search.BandPruner(Hyperband((1,), 2.0)))
    for state, value in ((TrialState.FAIL, 3.0), (TrialState.FAIL, 3.0), (TrialState.RUNNING, 1.0)):
        study.add_trial(optuna.create_trial(state=state, intermediate_values={0: value, 1: value}))
    assert not study.pruner.prune(study, study.trials[2])
