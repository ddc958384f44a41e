"""The end of a run: last and best parameters on the same fresh episodes of the task's original."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from envs.seeding import FINAL, stream_seed
from navrl.algorithms.mappo import MAPPO
from navrl.checkpoint import CheckpointError, CheckpointStore, load
from navrl.config import Config
from navrl.metrics.trajectories import Trajectories
from runners import report
from runners.evaluation import evaluate
from runners.policies import LearnedPolicy
from runners.setup import make_evaluation_env

# Evaluation seeds are the same for every run, so that runs are compared on equal episodes.
EVALUATION_SEED = 0


def evaluate_finally(
    config: Config,
    algorithm: MAPPO,
    store: CheckpointStore,
    step: int,
    check: Callable[[], None],
    say: Callable[[str], None],
) -> tuple[dict[str, dict[str, Any]], Trajectories]:
    """``final`` (the present parameters, of ``step``) and ``best`` of ``summary.json``, and the final episodes.

    ``best`` is left out, and said so, where its checkpoint cannot be read. ``check`` is called before every step of
    the environments and may raise. The algorithm has its present parameters again afterwards.
    """
    env = make_evaluation_env(config, algorithm.device, config.final_eval_episodes, original=True)
    seed = stream_seed(EVALUATION_SEED, FINAL)

    def play() -> Trajectories:
        return evaluate(LearnedPolicy(algorithm), env, config.final_eval_episodes, seed, check)

    try:
        trajectories = play()
        results = {"final": report.summary(trajectories, env.spec) | _where(store, step)}
        best = next((entry for entry in store.entries if entry.file == store.best), None)
        if best is None or best.step == step:
            results["best"] = results["final"]
        else:
            present = {name: value.clone() for name, value in algorithm.actor.state_dict().items()}
            try:
                algorithm.load_policy(load(store.path("best"))["runner"]["algorithm"])
                results["best"] = report.summary(play(), env.spec) | _where(store, best.step)
            except CheckpointError as error:
                say(f"the best checkpoint is not evaluated: {error}")
            finally:
                algorithm.actor.load_state_dict(present)
    finally:
        env.close()
    return results, trajectories


def _where(store: CheckpointStore, step: int) -> dict[str, Any]:
    """Step and file of the parameters; no file where the disk did not take it."""
    file = next((entry.file for entry in store.entries if entry.step == step), None)
    return {"step": step, "checkpoint": file and f"checkpoints/{file}"}


def artifacts_of(results: dict[str, dict[str, Any]], keep: str) -> list[tuple[str, Path, tuple[str, ...]]]:
    """(result, checkpoint, aliases) of what trackers get at the end, as ``keep_artifacts`` says."""
    final, best = results["final"], results.get("best")
    if best is not None and best["checkpoint"] == final["checkpoint"]:
        wanted = [("final", final, ("latest", "final", "best"))]
    else:
        wanted = [("final", final, ("latest", "final"))]
        if best is not None and keep != "final":
            # With "all" it was published when it was made; published again it would only gain the alias.
            wanted.insert(0, ("best", best, ("best",)))  # W&B calls the last one pushed "latest": that is the final one
    return [(name, Path(about["checkpoint"]), aliases) for name, about, aliases in wanted if about["checkpoint"]]
