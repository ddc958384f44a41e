"""What a reader must know before believing a comparison: one line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from navrl.analysis.groups import Group, common, made_of, science
from navrl.analysis.records import Run
from navrl.analysis.statistics import Estimate
from navrl.config import TASK_SETTINGS
from navrl.metrics.metadata import PACKAGES
from navrl.naming import compact

ENOUGH_SEEDS = 5
SHOWN = 4  # things named in a line; more are counted


def of_groups(groups: Sequence[Group]) -> list[str]:
    """Doubts about the runs themselves, before any metric."""
    runs = [run for group in groups for run in group.runs]
    lines = [line for group in groups for line in _inside(group)]
    lines += _budgets(groups)
    lines += _task(groups)
    lines += _made_of(runs)
    return lines


def of_finals(label: str, runs: Sequence[Run], sources: Mapping[str, Sequence[str]]) -> list[str]:
    """Doubts about one group's final values. sources: metric -> ``Outcome.final_source``."""
    lines = []
    missing: dict[tuple[str, ...], list[str]] = {}
    for metric, found in sources.items():
        if lacking := tuple(name_of(run) for run, source in zip(runs, found) if not source):
            missing.setdefault(lacking, []).append(metric)
    lines += [f"{label}: no {listed(metrics)} of {listed(lacking)}" for lacking, metrics in missing.items()]
    rows = {metric: [run for run, source in zip(runs, found) if source == "row"] for metric, found in sources.items()
            if metric.startswith("eval/")}  # fmt: skip
    early = [name_of(run) for run in runs
             if not isinstance(run.summary.get("final"), Mapping) and any(run in found for found in rows.values())]
    if early:
        lines.append(f"{label}: no final evaluation yet, values of the last row instead: {listed(early)}")
    for metric, found in rows.items():
        if odd := [name_of(run) for run in found if isinstance(run.summary.get("final"), Mapping)]:
            lines.append(f"{label}: the final {metric} is not finite, that of the last row instead: {listed(odd)}")
    for metric in sources:
        bad = {name_of(run): run.non_finite[metric] for run in runs if run.non_finite.get(metric)}
        if bad:
            counts = listed([f"{name} ({count})" for name, count in bad.items()])
            lines.append(f"{label}: {metric} has rows that are NaN or infinite, left out: {counts}")
    return lines


def of_behaviour(first: str, second: str, reward: Estimate, collisions: Estimate) -> list[str]:
    """Reward that is bought with collisions. reward, collisions: of ``first`` minus of ``second``, with intervals."""
    if reward.low > 0 and collisions.low > 0:
        return [f"{first} has more reward than {second}, and more collisions"]
    if reward.high < 0 and collisions.high < 0:
        return [f"{second} has more reward than {first}, and more collisions"]
    return []


def in_seeds(group: Group) -> str:
    """"5 seeds", or "6 runs of 1 seed" where they are not as many."""
    seeds = f"{group.seeds} seed" + ("" if group.seeds == 1 else "s")
    return seeds if group.seeds == len(group.runs) else f"{len(group.runs)} runs of {seeds}"


def name_of(run: Run) -> str:
    return run.name if run.seed is None else f"seed {run.seed}"


def listed(words: Iterable[str]) -> str:
    words = list(words)
    more = len(words) - SHOWN
    return ", ".join(words[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _inside(group: Group) -> list[str]:
    label, runs, lines = group.label, group.runs, []
    if group.seeds < ENOUGH_SEEDS:
        lines.append(f"{label}: {in_seeds(group)}; with fewer than {ENOUGH_SEEDS} an interval says little")
    if group.mixed:
        known = [index for index, run in enumerate(runs) if run.config]
        values = (f"{key} ({listed(dict.fromkeys(shown(found[index]) for index in known))})"
                  for key, found in group.mixed.items())  # fmt: skip
        lines.append(f"{label}: its runs differ in more than the seed: {listed(values)}")
    lost = [name_of(run) for run in runs if not run.config]
    if lost:
        lines.append(f"{label}: the configuration of {listed(lost)} is lost; whether it is the group's is not known")
    seeds = [run.seed for run in runs if run.seed is not None]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        lines.append(f"{label}: seed {listed(map(str, twice))} counts more than once, with different configurations")
    unfinished = [f"{name_of(run)} ({run.status} at step {step:.0f})"
                  for run, step in zip(runs, group.steps) if run.status != "finished"]  # fmt: skip
    if unfinished:
        lines.append(f"{label}: not finished: {listed(unfinished)}")
    return lines


def _budgets(groups: Sequence[Group]) -> list[str]:
    budgets = {group.label: sorted({run.config["total_env_steps"] for run in group.runs
                                    if "total_env_steps" in run.config}) for group in groups}  # fmt: skip
    if len({budget for found in budgets.values() for budget in found}) < 2:
        return []
    each = (f"{label} {' or '.join(map(str, found))}" for label, found in budgets.items() if found)
    return [f"budgets differ (environment steps): {listed(each)}; compare them at one step (--at)"]


def _task(groups: Sequence[Group]) -> list[str]:
    lines = []
    settings = [{key: value for key, value in science(run).items() if key == "env_id" or key in TASK_SETTINGS}
                for group in groups for run in group.runs if run.config]  # fmt: skip
    _, mixed = common(settings)
    if mixed:
        values = (f"{key} ({listed(dict.fromkeys(map(shown, found)))})" for key, found in mixed.items())
        lines.append(f"the tasks differ, rewards are not comparable: {listed(values)}")
    runs = [run for group in groups for run in group.runs]
    scales = _distinct(run.metadata.get("return_scale") for run in runs)
    if len(scales) > 1:
        lines.append(f"return scales differ, rewards are not comparable: {listed(scales)}")
    finals = [final for run in runs if isinstance(final := run.summary.get("final"), Mapping)]
    # of runs from a tracker that holds numbers alone, the task is not known
    tasks = _distinct(f"{final['episodes']} episodes of {final['env']}" for final in finals
                      if "episodes" in final and final.get("env"))  # fmt: skip
    if len(tasks) > 1:
        lines.append(f"final evaluations differ: {listed(tasks)}")
    return lines


def _made_of(runs: Sequence[Run]) -> list[str]:
    lines = []
    commits = _distinct(str(commit)[:10] for run in runs for commit in _commits(run) if commit)
    if len(commits) > 1:
        lines.append(f"runs come from {len(commits)} commits: {listed(commits)}")
    dirty = sum(run.metadata.get("git_dirty") is True for run in runs)
    if dirty:
        lines.append(f"{dirty} of {len(runs)} runs had uncommitted changes (code.diff of each says which)")
    found: dict[str, list[Any]] = {}
    for run in runs:
        facts = made_of(run)
        for package in ("python", *PACKAGES):
            found.setdefault(package, []).append(facts.get(f"versions.{package}"))
        found.setdefault(str(facts.get("env.package")), []).append(facts.get("env.package_version"))
    for package, versions in found.items():
        if len(_distinct(versions)) > 1:
            lines.append(f"versions of {package} differ: {listed(_distinct(versions))}")
    return lines


def _commits(run: Run) -> list[Any]:
    """Of every segment: a resume may have gone on with other code."""
    segments = run.metadata.get("segments")
    whole = [part for part in segments if isinstance(part, Mapping)] if isinstance(segments, list) else []
    return [run.metadata.get("git_commit"), *(part.get("git_commit") for part in whole)]


def _distinct(values: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value is not None))


def shown(value: Any) -> str:
    """A value of a configuration or of metadata in few characters."""
    return compact(value) if not isinstance(value, str) else value
