"""Evaluate a policy in a clean process, without any tracker: layers 2 and 3 with standard errors.

    python scripts/evaluate.py --checkpoint RUN_DIR                      the best checkpoint of a run
    python scripts/evaluate.py --checkpoint FILE.pt --render out.gif     one file, with an animation
    python scripts/evaluate.py --checkpoint wandb:entity/project/artifact:alias
    python scripts/evaluate.py --checkpoint mlflow:models:/name@alias    or mlflow:models:/name/VERSION,
                                                                         or mlflow:runs:/RUN_ID[/path]
    python scripts/evaluate.py --policy reference --episodes 1000        random, greedy or reference
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.faults import ConfigError, Fault  # noqa: E402
from navrl.files import require_writable  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402
from navrl.tracking.fetch import SETTINGS as REACH, is_reference  # noqa: E402
from navrl.tracking.record import write_json  # noqa: E402

if TYPE_CHECKING:  # imported late: --help is fast
    from envs.base import BatchEnv
    from navrl.config import Config
    from navrl.metrics.trajectories import Trajectories

FIRST_EPISODES = 4  # drawn by --render


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(__doc__)
    parser.epilog = ("Any task setting may follow, e.g. --num_agents 5 or --local_ratio 0, and with a tracker's "
                     f"checkpoint how it is reached: {', '.join('--' + key for key in REACH)} (see main.py --help).")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--checkpoint", help="a file, a run directory, or a tracker's, as shown above")
    what.add_argument("--policy", choices=["random", "greedy", "reference"], help="a policy that ships with the task")
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
    return parser.parse_known_args(argv)


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
    from envs.registry import TASKS
    from navrl.animation import write_animation
    from runners import report
    from runners.setup import make_evaluation_env

    torch.set_num_threads(1)
    for key in ("json", "csv", "render"):
        _check_output(key, getattr(options, key))
    config, state = _configure(options, settings)
    if options.backend == "batched" and not (config.env_id in TASKS and TASKS[config.env_id].batched):
        raise ConfigError([Fault("backend", f"batched has no version of {config.env_id}; use mpe2 or pettingzoo")])
    env = make_evaluation_env(config, torch.device("cpu"), options.episodes, original=options.backend != "batched")
    try:
        if options.render and env.spec.geometry is None:
            raise ConfigError([Fault("render", f"{config.env_id} does not say where its agents are")])
        trajectories = _play(options, config, state, env)
        values, summary = report.per_episode(trajectories, env.spec), report.summary(trajectories, env.spec)
    except EnvironmentFault as fault:
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr)
        return 1
    finally:
        env.close()
    if options.json:
        with _naming(options.json):
            write_json(options.json, summary)
    if options.csv:
        with _naming(options.csv), open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["episode", *values])
            writer.writerows([i, *row] for i, row in enumerate(zip(*(v.tolist() for v in values.values()))))
    if options.render:
        with _naming(options.render):
            write_animation(trajectories.episodes(range(min(FIRST_EPISODES, options.episodes))), options.render)
    # Said last: a reader that leaves (| head) must not cost the files
    print("\n".join(report.table({options.policy or options.which: summary})))
    if options.render:
        print(f"animation {options.render}")
    return 0


def _configure(options: argparse.Namespace, settings: list[str]) -> tuple[Config, dict[str, Any] | None]:
    """The configuration to evaluate under and, with --checkpoint, the checkpoint. Raises ConfigError."""
    from pydantic import ValidationError

    from envs.registry import validate_settings
    from navrl.config import TASK_SETTINGS
    from navrl.config_sources import ENVIRONMENT, load
    from runners.loading import config_of, read_checkpoint

    if options.policy:
        if not any(word.split("=")[0] == "--env_id" for word in settings):
            settings = [*settings, "--env_id", "simple_spread"]
        given = load([*settings, "--env_backend", options.backend], {}, validate_settings)
    else:  # whether the checkpoint's task takes them is known once it is made
        given = load(settings, {name: os.environ[name] for name, key in ENVIRONMENT.items()
                                if key in REACH and name in os.environ})
    typed = [key for key, source in given.sources.items() if source == "cli"]
    if "curriculum" in typed:  # it would change nothing
        raise ConfigError([Fault("curriculum", "an evaluation plays the whole task, not a stage of it; leave it out")])
    more = ("env_id", "env_backend") if options.policy else REACH if is_reference(options.checkpoint) else ()
    taken = (*TASK_SETTINGS, *more)
    other = [key for key in typed if key not in taken]
    if other:
        raise ConfigError([Fault(key, "an evaluation takes settings of the task only") for key in other])
    if options.policy:
        return given.config, None
    state, path = read_checkpoint(options.checkpoint, options.which, given.config.model_dump())
    changed = {key: getattr(given.config, key) for key in typed if key in TASK_SETTINGS}
    try:
        return config_of(state, changed), state
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "configuration"
        raise ConfigError([Fault("checkpoint", f"{path}: its {where} cannot be used: {problem['msg']}")]) from error


def _play(options: argparse.Namespace, config: Config, state: dict[str, Any] | None, env: BatchEnv) -> Trajectories:
    """The episodes, by the policy that was asked for. Raises ConfigError where it does not fit the task."""
    import torch

    from envs.base import TaskError
    from envs.mpe.controllers import make_controller
    from envs.seeding import FINAL, stream_seed
    from runners.evaluation import evaluate
    from runners.loading import misfit
    from runners.policies import ControllerPolicy, LearnedPolicy
    from runners.setup import make_algorithm

    if state is None:
        try:
            policy = ControllerPolicy(make_controller(options.policy, env.spec, options.seed))
        except TaskError as error:
            raise ConfigError([Fault("policy", str(error).removeprefix("policy: "))]) from error
    else:
        algorithm = make_algorithm(config, env.spec, torch.device("cpu"))
        try:
            algorithm.load_policy(state["runner"]["algorithm"])
        except (RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError([Fault("checkpoint", f"it does not fit this task: {misfit(state, env.spec)}")]) from error
        generator = torch.Generator().manual_seed(options.seed) if options.sampled else None
        policy = LearnedPolicy(algorithm, generator)
    return evaluate(policy, env, options.episodes, stream_seed(options.seed, FINAL))


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
