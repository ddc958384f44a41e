"""Evaluate policies in a clean process, without any tracker: layers 2 and 3 with standard errors.

    python scripts/evaluate.py --checkpoint RUN_DIR                      the best checkpoint of a run
    python scripts/evaluate.py --checkpoint FILE.pt --render out.gif     one file, with an animation
    python scripts/evaluate.py --checkpoint wandb:entity/project/artifact:alias
    python scripts/evaluate.py --checkpoint mlflow:models:/name@alias    or mlflow:models:/name/VERSION,
                                                                         or mlflow:runs:/RUN_ID[/path]
    python scripts/evaluate.py --policy reference --episodes 1000        random, greedy or reference
    python scripts/evaluate.py --checkpoint A B C --policy reference     one table; differences to the first, paired
    python scripts/evaluate.py --checkpoint RUN_DIR --num_agents 3 4 5   does it generalise? (entity networks)
    python scripts/evaluate.py --cross_play RUN_DIR RUN_DIR ...          one agent of one run in the team of another
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.faults import ConfigError, Fault  # noqa: E402
from navrl.files import require_writable  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402
from navrl.tracking.fetch import SETTINGS as REACH, is_reference  # noqa: E402
from navrl.tracking.record import write_json  # noqa: E402

if TYPE_CHECKING:  # imported late: --help is fast
    import numpy as np

    from envs.base import BatchEnv
    from navrl.config import Config
    from runners.entrants import Entrant
    from runners.policies import Policy

    Stage = tuple[BatchEnv, dict[str, Policy]]  # an environment, and who plays in it by title

FIRST_EPISODES = 4  # drawn by --render
SHOWN = ("episode_reward", "success_rate", "collision_count")  # of cross-play; --json has all


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(__doc__)
    parser.epilog = ("Any task setting may follow, e.g. --num_agents 5 or --local_ratio 0, and with a tracker's "
                     f"checkpoint how it is reached: {', '.join('--' + key for key in REACH)} (see main.py --help).")
    parser.add_argument("--checkpoint", nargs="+", default=[],
                        help="files, run directories, or trackers', as shown above")  # fmt: skip
    parser.add_argument("--policy", nargs="+", default=[], choices=["random", "greedy", "reference"],
                        help="policies that ship with the task")  # fmt: skip
    parser.add_argument("--cross_play", nargs="+", default=[], metavar="CHECKPOINT",
                        help="two or more, as for --checkpoint: an agent of each in the others' teams, of the role "
                             "whose reward is shown where a task has several")  # fmt: skip
    parser.add_argument("--num_agents", nargs="+", default=[], metavar="N", help="a table, or a column, for each")
    parser.add_argument("--which", choices=["best", "last"], default="best", help="of a run directory (default: best)")
    parser.add_argument("--episodes", type=whole(1), default=500, help="default: 500")
    parser.add_argument("--seed", type=whole(0), default=0,
                        help="decides the episodes (default: 0, those of final results)")  # fmt: skip
    parser.add_argument("--backend", "--env_backend", choices=["mpe2", "pettingzoo", "batched"], default="mpe2",
                        help="what runs the task: its original (default) or the batched version")  # fmt: skip
    parser.add_argument("--sampled", action="store_true", help="sample actions instead of taking the likeliest")
    parser.add_argument("--json", metavar="FILE", help="write means and standard errors")
    parser.add_argument("--csv", metavar="FILE", help="write every episode's values")
    parser.add_argument("--render", metavar="FILE.gif", help=f"draw the first {FIRST_EPISODES} episodes")
    options, settings = parser.parse_known_args(argv)
    if not (options.checkpoint or options.policy or options.cross_play):
        parser.error("one of the arguments --checkpoint --policy --cross_play is required")
    if options.cross_play and (options.checkpoint or options.policy):
        parser.error("--cross_play: leave --checkpoint and --policy out")
    if len(options.cross_play) == 1:
        parser.error("--cross_play: one run has nobody to play with; name two or more")
    if options.cross_play and options.episodes < 2:
        parser.error("--cross_play needs --episodes of at least 2")
    for name in ("policy", "num_agents"):
        if len(set(getattr(options, name))) < len(getattr(options, name)):
            parser.error(f"--{name}: one is given twice")
    several = len(options.checkpoint + options.policy + options.cross_play) > 1 or len(options.num_agents) > 1
    if options.render and several:
        parser.error("--render: an animation is of one policy and one number of agents")
    return options, settings


def _check_output(key: str, path: str | None) -> None:
    """Raises ConfigError where the file could not be written once the episodes are played."""
    if path is None:
        return
    try:
        require_writable(path)
    except ValueError as error:
        raise ConfigError([Fault(key, str(error))]) from None
    if key == "render" and Path(path).suffix.lower() != ".gif":
        raise ConfigError([Fault(key, f"{path}: an animation is a .gif; name it so")])


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """An OSError in here (the disk takes no more) names the file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def evaluate_main(argv: list[str]) -> int:
    options, settings = parse(argv)

    import torch

    from envs.base import EnvironmentFault
    from runners.entrants import Entrant, checkpoints

    torch.set_num_threads(1)
    for key in ("json", "csv", "render"):
        _check_output(key, getattr(options, key))
    counts = [["--num_agents", count] for count in options.num_agents] or [[]]
    asked = [_settings(options, [*settings, *count]) for count in counts]
    reach = asked[0][0].model_dump()
    loaded = checkpoints(options.checkpoint or options.cross_play, options.which, reach)
    entrants = loaded + [Entrant(name) for name in options.policy]
    with contextlib.ExitStack() as opened:
        try:
            stages = [_stage(options, entrants, *each, opened) for each in asked]
            if options.cross_play:
                lines = _cross_play(options, stages)
            elif len(entrants) == len(stages) == 1:
                lines = _one(options, *stages[0])
            else:
                lines = _several(options, stages)
        except EnvironmentFault as fault:
            print(f"{type(fault).__name__}: {fault}", file=sys.stderr)
            return 1
    # Said last: a reader that leaves (| head) must not cost the files
    print("\n".join(lines))
    return 0


def _settings(options: argparse.Namespace, settings: list[str]) -> tuple[Config, dict[str, Any]]:
    """The configuration that was typed, and the task settings in it. Raises ConfigError."""
    from envs.registry import validate_settings
    from navrl.config import TASK_SETTINGS
    from navrl.config_sources import ENVIRONMENT, load

    sources = options.checkpoint or options.cross_play
    if not sources:
        if not any(word.split("=")[0] == "--env_id" for word in settings):
            settings = [*settings, "--env_id", "simple_spread"]
        given = load([*settings, "--env_backend", options.backend], {}, validate_settings)
    else:  # whether the checkpoint's task takes them is known once it is made
        given = load(settings, {name: os.environ[name] for name, key in ENVIRONMENT.items()
                                if key in REACH and name in os.environ})
    typed = [key for key, source in given.sources.items() if source == "cli"]
    if "curriculum" in typed:  # it would change nothing
        raise ConfigError([Fault("curriculum", "an evaluation plays the whole task, not a stage of it; leave it out")])
    more = ("env_id", "env_backend") if not sources else REACH if any(map(is_reference, sources)) else ()
    other = [key for key in typed if key not in (*TASK_SETTINGS, *more)]
    if other:
        raise ConfigError([Fault(key, "an evaluation takes settings of the task only") for key in other])
    return given.config, {key: getattr(given.config, key) for key in typed if key in TASK_SETTINGS}


def _stage(
    options: argparse.Namespace, entrants: Sequence[Entrant], given: Config, changed: dict[str, Any],
    opened: contextlib.ExitStack,
) -> Stage:  # fmt: skip
    """The environment, closed with ``opened``, and everybody's policy. Raises ConfigError where one does not fit."""
    import torch

    from envs.registry import TASKS
    from runners.entrants import one_task
    from runners.setup import make_evaluation_env

    trained = [entrant for entrant in entrants if entrant.state is not None]
    config = one_task(trained, changed) if trained else given
    if options.backend == "batched" and not (config.env_id in TASKS and TASKS[config.env_id].batched):
        raise ConfigError([Fault("backend", f"batched has no version of {config.env_id}; use mpe2 or pettingzoo")])
    env = make_evaluation_env(config, torch.device("cpu"), options.episodes, original=options.backend != "batched")
    opened.callback(env.close)
    if options.render and env.spec.geometry is None:
        raise ConfigError([Fault("render", f"{config.env_id} does not say where its agents are")])
    if options.cross_play and env.spec.num_agents == 1:
        raise ConfigError([Fault("cross_play", "one agent alone has no team; take a task of two or more")])
    return env, {each.title: each.policy(changed, env.spec, options.seed, options.sampled) for each in entrants}


def _one(options: argparse.Namespace, env: BatchEnv, policies: dict[str, Policy]) -> list[str]:
    from navrl.animation import write_animation
    from runners import report
    from runners.evaluation import evaluate

    (policy,) = policies.values()
    trajectories = evaluate(policy, env, options.episodes, _episodes(options))
    summary = report.summary(trajectories, env.spec)
    _write(options, summary, [((), report.per_episode(trajectories, env.spec))], ())
    lines = report.table({(options.policy or [options.which])[0]: summary})
    if options.render:
        with _naming(options.render):
            write_animation(trajectories.episodes(range(min(FIRST_EPISODES, options.episodes))), options.render)
        lines.append(f"animation {options.render}")
    return lines


def _several(options: argparse.Namespace, stages: Sequence[Stage]) -> list[str]:
    """A table and everybody's differences to the first; of several numbers of agents one each, or a column."""
    from runners import report
    from runners.evaluation import evaluate
    from runners.paired import difference

    lines, results, played, alone = [], [], [], {}
    for env, policies in stages:
        count, summaries, differences, base = env.spec.num_agents, {}, {}, None
        for title, policy in policies.items():
            trajectories = evaluate(policy, env, options.episodes, _episodes(options))
            values = report.per_episode(trajectories, env.spec)
            summaries[title] = alone[f"{count} agents"] = report.summary(trajectories, env.spec)
            if base is None:
                base = values
            else:
                differences[title] = difference(values, base)
            results.append({"num_agents": count, "policy": title, **summaries[title],
                            "difference": differences.get(title)})  # fmt: skip
            played.append(((count, title), values))
        if differences:
            lines += [f"{count} agents"] if len(stages) > 1 else []
            lines += [*report.table(summaries), "", f"difference to {next(iter(summaries))} in the same episodes",
                      *report.table(differences), ""]  # fmt: skip
    _write(options, {"results": results}, played, ("num_agents", "policy"))
    return lines[:-1] or report.table(alone)


def _cross_play(options: argparse.Namespace, stages: Sequence[Stage]) -> list[str]:
    from runners import cross_play

    lines, results, played = [], [], []
    for env, policies in stages:
        names, count = list(policies), env.spec.num_agents
        values = cross_play.play(list(policies.values()), env, options.episodes, _episodes(options))
        found = cross_play.summary(values)
        lines += [f"{count} agents"] if len(stages) > 1 else []
        lines += [*cross_play.table(names, found, SHOWN), ""]
        results.append({"num_agents": count, "episodes": options.episodes, "metrics": found,
                        "env": f"{env.spec.package} {env.spec.package_version}"})  # fmt: skip
        played += [((count, names[i], names[j]), {name: each[i, j] for name, each in values.items()})
                   for i, j in itertools.product(range(len(names)), repeat=2)]  # fmt: skip
    _write(options, {"runs": names, "results": results}, played, ("num_agents", "newcomer", "team"))
    return lines[:-1]


def _episodes(options: argparse.Namespace) -> int:
    """The seed of the episodes, which everybody plays."""
    from envs.seeding import FINAL, stream_seed

    return stream_seed(options.seed, FINAL)


def _write(
    options: argparse.Namespace, summary: dict[str, Any], played: Sequence[tuple[tuple, dict[str, np.ndarray]]],
    columns: tuple[str, ...],
) -> None:  # fmt: skip
    """--json, and --csv with a line an episode. played: (what stands in ``columns``, values of every episode)."""
    if options.json:
        with _naming(options.json):
            write_json(options.json, summary)
    if options.csv:
        metrics = list(dict.fromkeys(name for _, values in played for name in values))
        with _naming(options.csv), open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*columns, "episode", *metrics])
            for who, values in played:
                cells = [values[name].tolist() if name in values else [""] * options.episodes for name in metrics]
                writer.writerows([*who, i, *row] for i, row in enumerate(zip(*cells)))


def main(argv: list[str]) -> int:
    try:
        return evaluate_main(argv)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever read the table has enough of it
        return 0
    except OSError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    run_program(main)
