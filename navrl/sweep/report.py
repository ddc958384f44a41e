"""What a sweep found: which parameter matters, how, and the best configuration, as text, pictures and a ready YAML."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import spearmanr

from navrl.config import dump
from navrl.files import write_text
from navrl.naming import compact
from navrl.sweep import slots
from navrl.sweep.place import Place
from navrl.sweep.study import StudyError, file_of, open_storage, quieten, told
from navrl.sweep.worker import SEEDS, best_of

ENOUGH = 4  # complete trials from which on importance is estimated at all
PER_PARAMETER = 10  # complete trials a parameter below which the estimate is called a hint
PICTURES = ("importance.png", "parallel.png", "slices.png")
DPI = 110
# So that a configuration is given to people, not the run that it was tried in
OF_THE_TRIAL = ("group", "wandb_group", "experiment_name", "wandb_name", "run_dir", "if_exists")


def load(place: Place) -> optuna.Study:
    """The study, to be read. Raises StudyError where there is none or no trial of it is complete."""
    quieten()
    file = file_of(place.storage)
    if file is not None and not file.exists():  # opening it would make it
        raise StudyError(f"{file}: no sweep was run there; say where with --storage")
    storage, _ = open_storage(place.storage)
    try:
        with told(place.storage):
            study = optuna.load_study(study_name=place.study, storage=storage)
    except KeyError:
        raise StudyError(f"no study {place.study} there; give the words after -- that the sweep was given") from None
    if best_of(slots.slots_of(study.get_trials(deepcopy=False)), place.sweep.maximize) is None:
        raise StudyError(f"study {place.study} has no complete trial yet")
    return study


def write(place: Place, study: optuna.Study, directory: Path) -> str:
    """report.txt, best.yaml and, from enough complete trials, ``PICTURES`` in ``directory``. Returns the text."""
    directory.mkdir(parents=True, exist_ok=True)
    board = slots.slots_of(study.get_trials(deepcopy=False))
    best = best_of(board, place.sweep.maximize)
    assert best is not None, "load has seen to it"
    importances = importance(study, list(best.params))
    text = _text(place, board, best, importances)
    write_text(directory / "report.txt", text)
    write_text(directory / "best.yaml", best_yaml(place, best))
    if importances:
        _draw(study, place.sweep.metric, importances, directory)
    return text


def importance(study: optuna.Study, parameters: list[str]) -> dict[str, float]:
    """Parameter -> share of the variance of the value that it explains on its own and in interactions, largest first.

    fANOVA over a random forest fitted to the complete trials (Hutter, Hoos and Leyton-Brown 2014), seeded. Empty with
    fewer than 4 complete trials, or where all have one value.
    """
    complete = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    if len(complete) < ENOUGH or len({trial.value for trial in complete}) == 1:
        return {}
    return get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0), params=parameters)


def correlation(trials: list[FrozenTrial], parameter: str) -> float | None:
    """Spearman's rank correlation of a numeric parameter with the value; None for words and constants."""
    at = [trial.params[parameter] for trial in trials]
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in at):
        return None
    found = spearmanr(at, [trial.value for trial in trials]).statistic if len(set(at)) > 1 else np.nan
    return None if np.isnan(found) else float(found)


def best_yaml(place: Place, best: FrozenTrial) -> str:
    """The configuration of a trial for ``main.py --config``: every key, its parameters part of built names."""
    run = place.plan(best.params, place.seeds[0])
    defaults = {key: type(run.config).model_fields[key].get_default() for key in OF_THE_TRIAL}
    metric = f"{place.sweep.metric} {best.value:.6g}, {_seeds(best)}"
    head = f"# Best of sweep {place.study}, trial {slots.number_of(best)}: {metric}\n"
    return head + dump(run.config.model_copy(update=defaults))


def _seeds(trial: FrozenTrial) -> str:
    values = [float(value) for value in trial.user_attrs[SEEDS].values()]
    if len(values) == 1:
        return "one seed"
    return f"mean of {len(values)} seeds, standard error {np.std(values, ddof=1) / len(values) ** 0.5:.2g}"


def _text(place: Place, board: list[slots.Slot], best: FrozenTrial, importances: dict[str, float]) -> str:
    sweep = place.sweep
    states = Counter(_state(slot) for slot in board)
    complete = [s.result for s in board if s.result is not None and s.result.state == TrialState.COMPLETE]
    lines = [
        f"study    {place.study}: {sweep.method}, {sweep.metric} {'maximized' if sweep.maximize else 'minimized'}",
        f"trials   {len(board)}: " + ", ".join(f"{states[state]} {state}" for state in STATES if states[state]),
        f"best     trial {slots.number_of(best)}: {best.value:.6g} ({_seeds(best)})",
        "",
        f"{'parameter':<20} {'best':>12} {'importance':>11} {'rank correlation':>17}",
    ]
    for key in importances or best.params:
        share = f"{importances[key]:.2f}" if importances else "-"
        rank = correlation(complete, key)
        lines.append(f"{key:<20} {str(best.params[key]):>12} {share:>11} {'-' if rank is None else f'{rank:+.2f}':>17}")
    lines.append("")
    if not importances:
        lines.append(f"Importance needs {ENOUGH} complete trials with different values.")
    else:
        lines.append(f"importance: share of the variance over {len(complete)} complete trials (fANOVA); it sums to 1.")
        lines.append(f"rank correlation: + where larger values of the parameter go with larger {sweep.metric}.")
        if len(complete) < PER_PARAMETER * len(importances):
            lines.append(f"With fewer than {PER_PARAMETER} complete trials for each parameter, both are hints and no findings.")
    return "\n".join(lines) + "\n"


STATES = ("complete", "pruned", "failed", "running", "waiting")


def _state(slot: slots.Slot) -> str:
    if slot.result is None:
        return "running" if slot.last.state == TrialState.RUNNING else "waiting"
    return {"fail": "failed"}.get(word := slot.result.state.name.lower(), word)


def _draw(study: optuna.Study, metric: str, importances: dict[str, float], directory: Path) -> None:
    """Optuna's own pictures of the complete trials, parameters by importance."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as plots

    keys, count = list(importances), len(importances)
    value: dict[str, Any] = {"target": lambda trial: trial.value, "target_name": metric}
    sizes: dict[str, tuple[Any, tuple[float, float]]] = {
        "importance.png": (lambda: plots.plot_param_importances(
            study, evaluator=FanovaImportanceEvaluator(seed=0), params=keys, **value), (8, 1.5 + 0.5 * count)),
        "parallel.png": (lambda: plots.plot_parallel_coordinate(study, params=keys, **value), (5 + 2 * count, 5)),
        "slices.png": (lambda: plots.plot_slice(study, params=keys, **value), (3 * count + 1, 4)),
    }  # fmt: skip
    for name, (draw, size) in sizes.items():
        figure = np.ravel(draw())[0].figure
        figure.set_size_inches(*size)
        _make_legible(figure)
        figure.savefig(directory / name, dpi=DPI, bbox_inches="tight")
        pyplot.close(figure)


def _make_legible(figure: Any) -> None:
    """Lines and points that stand out from the ground, and no labels over labels."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for axes in figure.axes:
        axes.set_facecolor("white")
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_color("0.7")
        if axes.get_legend() is not None:
            axes.get_legend().remove()  # one series, named on its axis
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                low, high = sorted(axis.get_view_interval())
                axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 20 * low else (1,)))
                axis.set_major_formatter(FuncFormatter(lambda value, _: compact(float(f"{value:.3g}"))))
                axis.set_minor_locator(NullLocator())
        for shown in axes.collections:
            if shown.get_array() is not None:
                shown.set_cmap("viridis")
