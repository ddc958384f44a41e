"""One experiment: configuration in, record out. Collect, update, log, evaluate, checkpoint; then the final evaluation."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from envs.base import BatchEnv
from envs.seeding import FINAL, SELECTION, TRAIN, stream_seed
from navrl.animation import write_animation
from navrl.checkpoint import CheckpointError, CheckpointStore, load
from navrl.config import Config, Loaded, dump
from navrl.faults import ConfigError, Fault
from navrl.metrics import metadata as layer4
from navrl.metrics.health import Health
from navrl.metrics.summary import absent
from navrl.metrics.trajectories import Trajectories
from navrl.naming import names, safe_directory
from navrl.tracking.hub import TrackerHub
from navrl.tracking.record import LocalRecord, RecordError
from runners import report
from runners.evaluation import evaluate
from runners.guards import NonFiniteError, require_finite, rollout_tensors
from runners.on_policy import OnPolicyRunner
from runners.policies import LearnedPolicy
from runners.setup import describe_task, make_algorithm, make_evaluation_env, make_training_env, resolve_device
from runners.stopping import StopRequest

ROOT = Path(__file__).resolve().parents[1]
# Evaluation seeds are the same for every run, so that runs are compared on equal episodes.
EVALUATION_SEED = 0
RETURN_SCALES = {"simple_spread": "A (per agent, mpe2 v3)"}


def run(loaded: Loaded, command: Sequence[str]) -> int:
    """Run one experiment from its configuration to its summary; returns the exit code (see README, "Exit codes").

    Raises ConfigError for everything that can be found out before a directory is made.
    """
    config = loaded.config
    torch.set_num_threads(config.torch_threads)
    device = resolve_device(config.device)
    with contextlib.ExitStack() as opened:
        env = make_training_env(config, device)
        opened.callback(env.close)
        evaluation_env = make_evaluation_env(config, device, config.eval_episodes, original=False)
        opened.callback(evaluation_env.close)
        algorithm = make_algorithm(config, env.spec, device)
        runner = OnPolicyRunner(config, env, algorithm, stream_seed(config.seed, TRAIN))
        metadata = _collect_metadata(config, runner, command)
        record, state = _open_record(loaded, runner)
        stop = opened.enter_context(StopRequest())
        return Experiment(loaded, metadata, runner, evaluation_env, record, state, stop).run()


def _open_record(loaded: Loaded, runner: OnPolicyRunner) -> tuple[LocalRecord, dict[str, Any] | None]:
    """The run's directory and, where it is continued, the checkpoint to continue from (already loaded)."""
    config = loaded.config
    try:
        if loaded.resume is not None:
            record = LocalRecord.open(loaded.resume)
        else:
            name = names(loaded)
            directories = [safe_directory(part) for part in (name.project, name.group, name.experiment_name)]
            record = LocalRecord.create(config.run_dir, *directories, if_exists=config.if_exists)
    except RecordError as error:
        raise ConfigError([Fault("resume" if loaded.resume else "run_dir", str(error))]) from error
    if not record.resumed:
        return record, None
    try:
        state, path, problems = CheckpointStore(record.checkpoints_dir).newest()
        for problem in problems:
            print(f"checkpoint left out: {problem}", file=sys.stderr)
        runner.load_state_dict(state["runner"])
    except CheckpointError as error:
        record.close()
        raise ConfigError([Fault("resume", str(error))]) from error
    except (RuntimeError, KeyError, ValueError) as error:
        record.close()
        message = f"{path} is of another task, size or network: {str(error).splitlines()[0]}"
        raise ConfigError([Fault("resume", message)]) from error
    return record, state


class Experiment:
    """The loop of one run and everything it reports to."""

    def __init__(
        self,
        loaded: Loaded,
        metadata: dict[str, Any],
        runner: OnPolicyRunner,
        evaluation_env: BatchEnv,
        record: LocalRecord,
        state: dict[str, Any] | None,
        stop: StopRequest,
    ) -> None:
        """state: the checkpoint that the run continues from (already loaded into ``runner``), or None."""
        self.config: Config = loaded.config
        self.runner, self.evaluation_env, self.record, self.stop = runner, evaluation_env, record, stop
        self.spec = runner.env.spec
        self.algorithm = runner.algorithm
        self.store = CheckpointStore(record.checkpoints_dir)
        self.health = Health(_max_entropy(self.spec))
        self.best_score = -math.inf
        self.seconds: dict[str, float] = {}
        self.steps_logged, self.time_logged = runner.env_steps, time.monotonic()
        self.saved_at = -1
        self.metadata = metadata if state is None else self._restore(state, metadata)
        record.write_config(dump(self.config))
        record.write_metadata(self.metadata)
        if state is None:
            record.update_summary(status="running")
        name = names(loaded)
        settings = self.config.model_dump() | {
            "project_name": name.project,
            "group": name.group,
            "experiment_name": name.experiment_name,
        }
        self.hub = TrackerHub(
            record,
            settings,
            science=self.config.science(),
            metadata=self.metadata,
            total_env_steps=self.config.total_env_steps,
            source_root=ROOT,
        )
        for notice in loaded.notices:
            self.hub.say(notice)
        record.start_clock(state["elapsed"] if state is not None else 0.0)

    # ---- the loop

    def run(self) -> int:
        """Train to the budget or to a stop; every way out closes the record and the trackers."""
        code, status, reason = 1, "failed", ""
        try:
            self.hub.say(f"run {self.record.run_dir}")
            if self.runner.iteration == 0:
                self._log(self._evaluate())
            while self.runner.env_steps < self.config.total_env_steps and not self.stop.requested:
                self._iterate()
            if self.stop.requested:
                self._checkpoint(best=False)
                code, status, reason = self.stop.exit_code, "interrupted", f"stopped by {self.stop.name}"
            else:
                self._finish_training()
                code, status = 0, "finished"
        except (Exception, KeyboardInterrupt) as error:
            reason = f"{type(error).__name__}: {error}"
            for line in traceback.format_exc().splitlines():
                self.record.console(line)
            if not isinstance(error, NonFiniteError):
                traceback.print_exc()
        finally:
            self._close(status, code, reason)
        if reason:
            print(reason, file=sys.stderr)
        return code

    def _iterate(self) -> None:
        runner, config = self.runner, self.config
        metrics, plain = runner.iterate(check=lambda: require_finite(rollout_tensors(runner.rollout)))
        require_finite({f"train/{name}": value for name, value in metrics.items() if name != "explained_variance"})
        for name in ("perf/rollout_seconds", "perf/update_seconds"):
            self.seconds[name] = self.seconds.get(name, 0.0) + plain.pop(name)
        last = runner.env_steps >= config.total_env_steps
        row: dict[str, Any] = {}
        if last or runner.iteration % config.log_interval == 0:
            row |= self._training_row(metrics, plain)
        if last or runner.iteration % config.eval_interval == 0:
            row |= self._evaluate()
        self._log(row)
        score = row.get("eval/episode_reward", -math.inf)
        best = score > self.best_score
        self.best_score = max(score, self.best_score)
        if best or last or runner.iteration % config.checkpoint_interval == 0:
            self._checkpoint(best=best)

    def _training_row(self, metrics: dict[str, torch.Tensor], plain: dict[str, float]) -> dict[str, Any]:
        values = dict(zip(metrics, torch.stack([v.float() for v in metrics.values()]).tolist()))
        if math.isnan(values["explained_variance"]):  # undefined for a constant return: absent
            del values["explained_variance"]
        now, steps = time.monotonic(), self.runner.env_steps
        row = {f"train/{name}": value for name, value in values.items()} | plain | self.runner.episodes.row()
        row["perf/env_steps_per_second"] = (steps - self.steps_logged) / (now - self.time_logged)
        row["perf/tracking_seconds"] = self.hub.cost()
        row |= self.seconds
        self.seconds.clear()
        self.steps_logged, self.time_logged = steps, now
        return row

    def _evaluate(self) -> dict[str, Any]:
        """Metrics of the present parameters on the selection episodes, deterministic and (config) sampled."""
        begin = time.perf_counter()
        seed = stream_seed(EVALUATION_SEED, SELECTION)
        episodes = self.config.eval_episodes
        trajectories = evaluate(LearnedPolicy(self.algorithm), self.evaluation_env, episodes, seed)
        row = report.row(trajectories, self.spec)
        if self.config.eval_sampled:
            generator = torch.Generator(self.algorithm.device).manual_seed(seed)
            sampled = evaluate(LearnedPolicy(self.algorithm, generator), self.evaluation_env, episodes, seed)
            row |= report.row(sampled, self.spec, "eval_sampled/")
        row["perf/eval_seconds"] = time.perf_counter() - begin
        return row

    def _log(self, row: dict[str, Any]) -> None:
        if not row:
            return
        self.hub.log(self.runner.env_steps, row)
        for warning in self.health.watch(row, self.runner.env_steps, self.runner.env_steps / self.config.total_env_steps):
            self.hub.alert(warning.cause, warning.message, step=self.runner.env_steps)

    # ---- checkpoints

    def _checkpoint(self, *, best: bool) -> None:
        if self.saved_at == self.runner.env_steps:
            return
        self.record.flush()  # the record is never behind a checkpoint
        episodes = self.runner.episodes.total()
        score = self.best_score if best else None
        state = {
            "config": dump(self.config),
            "task": describe_task(self.spec),
            "runner": self.runner.state_dict(),
            "health": self.health.state_dict(),
            "best_score": self.best_score,
            "elapsed": self.record.elapsed(),
        }
        step = self.runner.env_steps
        try:
            path = self.store.save(state, step=step, episodes=episodes, score=score, best=best)
        except OSError as error:
            self.hub.alert("checkpoint", f"step {step}: not written ({error.strerror}); training goes on", step=step)
            return
        self.saved_at = step
        if self.config.keep_artifacts == "all":
            aliases = ("latest", "best") if best else ("latest",)
            self.hub.log_artifact(path, step=step, episodes=episodes, score=score, aliases=aliases)

    def _restore(self, state: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        """Go on from a checkpoint: cut the record behind it. Returns the run's metadata with one more segment."""
        step = self.runner.env_steps
        self.record.truncate_after(step)
        self.store.forget_after(step)
        self.health.load_state_dict(state["health"])
        self.best_score = state["best_score"]
        self.saved_at = step
        try:
            earlier = json.loads((self.record.run_dir / "metadata.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return metadata  # lost or damaged: what is known now is better than nothing
        segment = metadata["segments"][0] | {"step": step}
        return earlier | {"segments": [*earlier["segments"], segment], "status": "running", "ended": None}

    # ---- the end

    def _finish_training(self) -> None:
        """Last and best parameters on the same fresh episodes of the task's original; animations; artifacts."""
        self._checkpoint(best=False)
        self.record.flush()
        config = self.config
        last = self.store.path("last")
        best = self.store.path("best") if self.store.best else last
        env = make_evaluation_env(config, self.algorithm.device, config.final_eval_episodes, original=True)
        results: dict[str, dict[str, Any]] = {}
        try:
            trajectories = self._final_episodes(env)
            results["final"] = report.summary(trajectories, env.spec)
            self._keep_episodes(trajectories)
            if best == last:
                results["best"] = results["final"]
            else:
                self.algorithm.load_policy(load(best)["runner"]["algorithm"])
                results["best"] = report.summary(self._final_episodes(env), env.spec)
                self.algorithm.load_policy(load(last)["runner"]["algorithm"])
        finally:
            env.close()
        entries = {entry.file: entry for entry in self.store.entries}
        for name, path in (("final", last), ("best", best)):
            entry = entries[path.name]
            results[name] |= {"step": entry.step, "checkpoint": f"checkpoints/{path.name}"}
        self.record.update_summary(final=results["final"], best=results["best"])
        if config.keep_artifacts != "all":
            wanted = [(last, ("latest", "final"))]
            if best == last:
                wanted = [(last, ("latest", "final", "best"))]
            elif config.keep_artifacts == "best":
                wanted.append((best, ("best",)))
        else:
            wanted = [(last, ("latest", "final"))]
        for path, aliases in wanted:
            entry = entries[path.name]
            score = results["best" if aliases == ("best",) else "final"]["mean"]["episode_reward"]
            self.hub.log_artifact(path, step=entry.step, episodes=entry.episodes, score=score, aliases=aliases)
        for line in report.table(results):
            self.hub.say(line)
        self.hub.say(f"run directory    {self.record.run_dir}")
        self.hub.say(f"best checkpoint  {best}")
        for path in sorted(self.record.media_dir.glob("*.gif")):
            self.hub.say(f"animation        {path}")

    def _final_episodes(self, env) -> Trajectories:
        seed = stream_seed(EVALUATION_SEED, FINAL)
        return evaluate(LearnedPolicy(self.algorithm), env, self.config.final_eval_episodes, seed)

    def _keep_episodes(self, trajectories: Trajectories) -> None:
        """The first ``log_eval_episodes`` final episodes as trajectories and, where there are positions, an animation."""
        count = min(self.config.log_eval_episodes, trajectories.num_episodes)
        step = self.runner.env_steps
        try:
            for index in range(count):
                path = self.record.media_dir / f"eval_step{step}_episode{index}.npz"
                trajectories.save_npz(path, [index])
                self.hub.log_trajectory(step, f"eval/episode_{index}", path)
            if count and trajectories.agent_pos is not None:
                path = self.record.media_dir / f"eval_step{step}.gif"
                write_animation(trajectories.episodes(range(count)), path)
                self.hub.log_media(step, "eval/episodes", path)
        except OSError as error:
            self.hub.alert("media", f"step {step}: not written ({error.strerror})", step=step)

    def _close(self, status: str, code: int, reason: str) -> None:
        self.metadata["ended"] = layer4.now()
        self.metadata["status"] = status
        self.metadata["segments"][-1] |= {"ended": self.metadata["ended"], "last_step": self.runner.env_steps}
        try:
            self.record.write_metadata(self.metadata)
            if self.store.entries:
                self.record.update_summary(
                    last={"step": self.runner.env_steps, "checkpoint": f"checkpoints/{self.store.entries[-1].file}"}
                )
        except (OSError, RecordError) as error:
            print(f"metadata.json: not written: {error}", file=sys.stderr)
        self.hub.finish(status, code, reason)


def _collect_metadata(config: Config, runner: OnPolicyRunner, command: Sequence[str]) -> dict[str, Any]:
    """Layer 4 of a run that starts now."""
    spec = runner.env.spec
    geometry = spec.geometry
    return layer4.collect(
        config.science(),
        command,
        describe_task(spec),
        seed=config.seed,
        trackers=config.trackers,
        torch_settings={
            "threads": torch.get_num_threads(),
            "device": str(runner.algorithm.device),
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        },
        return_scale=RETURN_SCALES.get(spec.env_id),
        absent=absent(
            spec.roles,
            spec.score_role,
            positions=geometry is not None,
            velocities=geometry is not None,
            num_goals=geometry.num_goals if geometry else 0,
            own_goals=bool(geometry and geometry.own_goals),
            has_success=bool(geometry and geometry.has_success),
            normalized=report.reference_scores(spec) is not None,
        ),
        root=ROOT,
    )


def _max_entropy(spec) -> float | None:
    return math.log(spec.action.size) if spec.action.kind == "discrete" else None
