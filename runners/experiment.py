"""One experiment: configuration in, record out. Collect, update, log, evaluate, checkpoint; at the end the final one."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch

from envs.base import BatchEnv, EnvironmentFault, TaskSpec
from envs.seeding import SELECTION, TRAIN, stream_seed
from navrl.animation import write_animation
from navrl.checkpoint import CheckpointStore, Entry
from navrl.config import Config, config_hash, dump
from navrl.config_sources import Loaded
from navrl.faults import ConfigError, Fault
from navrl.metrics import metadata as layer4
from navrl.metrics.health import Health
from navrl.metrics.summary import absent
from navrl.metrics.trajectories import Trajectories
from navrl.naming import names
from navrl.ranks import RankFailed, RankLost, Ranks, connected
from navrl.redaction import filter_texts, redact, redact_all
from navrl.source import project_root
from navrl.tracking.hub import TrackerHub
from navrl.tracking.record import LocalRecord, RecordError, read_summary
from runners import report
from runners.companions import Place
from runners.evaluation import evaluate
from runners.final import EVALUATION_SEED, artifacts_of, evaluate_finally
from runners.guards import NonFiniteError, require_finite, rollout_tensors
from runners.on_policy import OnPolicyRunner
from runners.opening import OpenRun, open_run
from runners.parallel import LeadingRunner, follow
from runners.policies import LearnedPolicy
from runners.setup import (
    describe_task,
    make_algorithm,
    make_evaluation_env,
    make_training_env,
    require_equal_shares,
    resolve_device,
)
from runners.stopping import Stopped, StopRequest

Made = TypeVar("Made")

RETURN_SCALES = {"simple_spread": "A (per agent, mpe2 v3)"}


def run(
    loaded: Loaded, command: Sequence[str], stop: StopRequest, place: Place = Place(),
    met: Callable[[], None] = lambda: None,
) -> int:  # fmt: skip
    """Run one experiment from its configuration to its summary; returns the exit code (see README, "Exit codes").

    stop: entered already; it is told to defer signals once there is a run directory to keep whole.
    place: this process's among those that share the run; rank 0 alone reports and writes. met: called once they have
    found each other.

    Raises ConfigError for everything that can be found out before a directory is made.
    """
    if place.size > 1:  # also where torchrun started them: config.yaml repeats what was run
        loaded = replace(loaded, config=loaded.config.model_copy(update={"processes": place.size}))
    config = loaded.config
    filter_texts(config.log_filter)  # what is said before there is a record too
    torch.set_num_threads(config.torch_threads)
    ranks = Ranks(place.rank, place.size)
    device = resolve_device(config.device, ranks)
    require_equal_shares(config, ranks)
    with contextlib.ExitStack() as opened:
        try:
            with stop.at_once() if ranks.size > 1 else contextlib.nullcontext():
                opened.enter_context(connected(ranks, device, place.meet))
            met()
            with ranks.together():
                runner = _make_runner(config, device, ranks, opened, stop)
                if ranks.first:
                    evaluation_env = _in_memory(
                        lambda: make_evaluation_env(config, device, config.eval_episodes, original=False)
                    )
                    opened.callback(evaluation_env.close)
        except (RankLost, RankFailed) as error:
            if ranks.first:
                print(error, file=sys.stderr)
            return 1
        if not ranks.first:
            stop.defer()
            return follow(runner, stop)
        metadata = _collect_metadata(config, runner, evaluation_env.spec, command)
        stop.defer()
        open_ = open_run(loaded, runner)
        opened.callback(open_.record.close)
        try:
            experiment = Experiment(loaded, metadata, runner, evaluation_env, open_, stop)
        except Exception as error:  # another process took the same tracker id, the disk is gone, or a bug
            return _fail_to_begin(open_.record, error)
        code = experiment.run()
        if isinstance(runner, LeadingRunner):
            runner.end(code)
        return code


def _make_runner(
    config: Config, device: torch.device, ranks: Ranks, opened: contextlib.ExitStack, stop: StopRequest
) -> OnPolicyRunner:
    """Environment, networks and loop of this rank; ``opened`` closes them."""
    env = _in_memory(lambda: make_training_env(config, device, ranks))
    opened.callback(env.close)
    algorithm = _in_memory(lambda: make_algorithm(config, env.spec, device, ranks))
    parts = (config, env, algorithm, stream_seed(config.seed, TRAIN))
    leads = ranks.first and ranks.size > 1
    try:
        return _in_memory(lambda: LeadingRunner(*parts, stop=stop) if leads else OnPolicyRunner(*parts))
    except EnvironmentFault as fault:  # its very first reset
        message, *details = str(fault).splitlines()
        places = [line.strip() for line in details if line.lstrip().startswith("File ")]
        raise ConfigError([Fault("env_id", "; ".join([message, *places[-1:]]))]) from fault


def _fail_to_begin(record: LocalRecord, error: Exception) -> int:
    """The end of a run that has a directory and no more: its record says why. Returns the exit code."""
    expected = isinstance(error, (RecordError, OSError))
    reason = _explain(record, error, [] if expected else traceback.format_exc().splitlines())
    record.update_summary(status="failed", exit_code=1, reason=reason)
    record.event("finish", status="failed", exit_code=1, reason=reason)
    with contextlib.suppress(OSError, ValueError, TypeError):  # where it was written already
        path = record.run_dir / "metadata.json"
        earlier = json.loads(path.read_text(encoding="utf-8"))
        record.write_metadata(earlier | {"status": "failed", "ended": layer4.now()})
    print(reason, file=sys.stderr)
    return 1


def _explain(record: LocalRecord, error: BaseException, details: list[str]) -> str:
    """Keep and show the details; returns the reason in one line."""
    for line in redact_all(details):
        record.console(line)
        print(line, file=sys.stderr)
    return redact(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


class Experiment:
    """The loop of one run and everything it reports to."""

    def __init__(
        self,
        loaded: Loaded,
        metadata: dict[str, Any],
        runner: OnPolicyRunner,
        evaluation_env: BatchEnv,
        opened: OpenRun,
        stop: StopRequest,
    ) -> None:
        self.config: Config = loaded.config
        self.runner, self.evaluation_env, self.record, self.stop = runner, evaluation_env, opened.record, stop
        self.spec = runner.env.spec
        self.algorithm = runner.algorithm
        # What trackers are to get must still be there when they, or a later sync, come for it.
        self.store = CheckpointStore(self.record.checkpoints_dir, keep_all=self.config.keep_artifacts == "all")
        self.health = Health(_max_entropy(self.spec))
        self.best_score = -math.inf
        self.artifacts: list[dict[str, Any]] = []
        self.seconds: dict[str, float] = {}
        self.saved_at = -1
        self.unsaved = ""  # why the last checkpoint could not be written
        self.owed: dict[str, Any] | None = None  # the row of a step whose evaluation is not done
        self.metadata = self._continue(opened, metadata) if self.record.resumed else metadata
        self.record.write_config(dump(self.config))
        self.record.write_metadata(self.metadata)
        name = names(loaded)
        settings = self.config.model_dump() | {
            "logger": self.config.trackers,
            "project_name": name.project,
            "group": name.group,
            "experiment_name": name.experiment_name,
            # W&B's own names go before the neutral ones only where they were given.
            "wandb_project": name.wandb_project,
            "wandb_name": self.config.wandb_name and self.config.wandb_name + self.record.suffix,
        }
        self.hub = TrackerHub(
            self.record,
            settings,
            science=self.config.science(),
            metadata=self.metadata,
            total_env_steps=self.config.total_env_steps,
            source_root=project_root(),
        )
        for notice in (*loaded.notices, *opened.notices):
            self.hub.say(notice)
        self.steps_logged, self.time_logged = runner.env_steps, time.monotonic()
        self.record.start_clock(opened.state["elapsed"] if opened.state is not None else 0.0)

    def _continue(self, opened: OpenRun, metadata: dict[str, Any]) -> dict[str, Any]:
        """Cut the record behind the checkpoint. Returns the run's metadata with one more segment."""
        state, step = opened.state, self.runner.env_steps
        self.store.forget_after(step)
        if state is not None:
            self.health.load_state_dict(state["health"])
            # A best checkpoint that is not here is not to be beaten
            self.best_score = state["best_score"] if self.store.best is not None else -math.inf
            self.owed = state["owed"]
            self.saved_at = step if self.owed is None else -1
        # A row that was written without its evaluation is written anew.
        self.record.truncate_after(-1 if state is None else step if self.owed is None else step - 1)
        published = read_summary(self.record.run_dir).get("artifacts")
        self.artifacts = [
            artifact
            for artifact in (published if isinstance(published, list) else [])
            if _is_artifact(artifact) and artifact["step"] <= step
        ]
        self.record.forget_summary("exit_code", "reason", "final", "best")  # an earlier end's
        if state is None:  # it begins again: what the process that died had and ran made nothing of it
            with contextlib.suppress(OSError):
                (self.record.run_dir / "code.diff").unlink(missing_ok=True)  # so the code is kept anew
            return metadata
        present = {key: metadata[key] for key in ("config_hash", "versions", "machine", "torch")}
        segment = metadata["segments"][0] | {"step": step} | ({"changed": opened.changed} if opened.changed else {})
        segment |= {"origin": opened.origin} if opened.origin else {}
        try:
            earlier = json.loads((self.record.run_dir / "metadata.json").read_text(encoding="utf-8"))
            if not all(isinstance(part, dict) for part in earlier["segments"]):
                raise TypeError("a segment is no object")
            segments = [*earlier["segments"], segment | present]
            # The configuration is the one that config.yaml holds now.
            now = {"config_hash": metadata["config_hash"], "status": "running", "ended": None}
            return earlier | now | {"segments": segments}
        except (OSError, ValueError, KeyError, TypeError):
            return metadata | {"segments": [segment | present]}  # lost or damaged: what is known now is left

    # ---- the loop

    def run(self) -> int:
        """Train to the budget or to a stop; every way out closes the record and the trackers."""
        code, status, reason = 1, "failed", ""
        try:
            self.hub.say(f"run {self.record.run_dir}")
            if self.runner.iteration == 0 and self.record.last_step is None and self.owed is None:
                self.owed = {}  # the untrained policy is evaluated too
            if self.owed is not None and not self.stop.requested:
                self._conclude(self.owed)
            while self.runner.env_steps < self.config.total_env_steps and not self.stop.requested:
                self._iterate()
            self._checkpoint()
            self.stop.check()
            self._finish_training()
            if self.store.entries:
                code, status = 0, "finished"
            else:
                reason = f"no checkpoint could be written ({self.unsaved}): what was learned is lost"
        except Stopped as stopped:
            code, status, reason = self.stop.exit_code, "interrupted", str(stopped)
        except (NonFiniteError, EnvironmentFault, RankFailed, RankLost) as error:
            reason = _explain(self.record, error, str(error).splitlines()[1:])
        except (Exception, KeyboardInterrupt) as error:
            reason = _explain(self.record, error, traceback.format_exc().splitlines())
        finally:
            self._close(status, code, reason)
        if reason:
            print(reason, file=sys.stderr)
        return code

    def _iterate(self) -> None:
        runner, config = self.runner, self.config
        metrics, plain = runner.iterate(check=lambda: require_finite(rollout_tensors(runner.rollout)))
        for name in ("perf/rollout_seconds", "perf/update_seconds"):
            self.seconds[name] = self.seconds.get(name, 0.0) + plain.pop(name)
        try:
            require_finite({f"train/{name}": value for name, value in metrics.items() if name != "explained_variance"})
        except NonFiniteError:
            self._log(self._training_row(metrics, plain))  # the record shows what the health warning speaks of
            raise
        due = self._last or runner.iteration % config.log_interval == 0
        self._conclude(self._training_row(metrics, plain) if due else {})

    @property
    def _last(self) -> bool:
        return self.runner.env_steps >= self.config.total_env_steps

    def _conclude(self, row: dict[str, Any]) -> None:
        """Evaluate, log and save at this step, what of it is due. ``row``: what training has to say of it.

        Raises Stopped where a signal comes amid the evaluation. Then the row stands without it, and the checkpoint owes
        it: a resume evaluates the same parameters, so that its record is that of a run which was never stopped.
        """
        runner, config = self.runner, self.config
        score = None
        if self._last or runner.iteration % config.eval_interval == 0:
            self.owed = row
            try:
                row = row | self._evaluate()
            except Stopped:
                self._checkpoint()  # before the row, which the health watch must see once, with its evaluation
                self._log(row)
                raise
            score = row.get("eval/episode_reward")
        self.owed = None
        self._log(row)
        if runner.iteration == 0:  # nothing is learnt yet: no candidate for the best
            return
        best = score is not None and score > self.best_score
        if best or self._last or runner.iteration % config.checkpoint_interval == 0:
            self._checkpoint(score, best=best)

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
        """Metrics of the present parameters on the selection episodes, deterministic and (config) sampled.

        Raises Stopped once a signal came.
        """
        begin = time.perf_counter()
        seed = stream_seed(EVALUATION_SEED, SELECTION)
        episodes = self.config.eval_episodes
        trajectories = evaluate(LearnedPolicy(self.algorithm), self.evaluation_env, episodes, seed, self.stop.check)
        spec = self.evaluation_env.spec  # not the training task's, whose curriculum no reference score is for
        row = report.row(trajectories, spec)
        if self.config.eval_sampled:
            generator = torch.Generator(self.algorithm.device).manual_seed(seed)
            policy = LearnedPolicy(self.algorithm, generator)
            sampled = evaluate(policy, self.evaluation_env, episodes, seed, self.stop.check)
            row |= report.row(sampled, spec, "eval_sampled/")
        row["perf/eval_seconds"] = time.perf_counter() - begin
        return row

    def _log(self, row: dict[str, Any]) -> None:
        if not row:
            return
        if "train/episode_count" not in row:  # a row of an evaluation alone; any row can be plotted over episodes
            row["train/episode_count"] = self.runner.episodes.total()
        self.hub.log(self.runner.env_steps, row)
        step = self.runner.env_steps
        for warning in self.health.watch(row, step, step / self.config.total_env_steps):
            self.hub.alert(warning.cause, warning.message, step=step)

    # ---- checkpoints

    def _checkpoint(self, score: float | None = None, *, best: bool = False) -> None:
        """Save the run as it is now, once a step. score: ``eval/episode_reward`` of these parameters, if measured."""
        if self.saved_at == self.runner.env_steps:
            return
        self.record.sync()  # the record is never behind a checkpoint, also after a power cut
        episodes = self.runner.episodes.total()
        best_score = score if best else self.best_score
        state = {
            # Trackers get this file.
            "config": dump(self.config.without_places() if self.config.privacy == "strict" else self.config),
            "task": describe_task(self.spec),
            "runner": self.runner.state_dict(),
            "health": self.health.state_dict(),
            "best_score": best_score,
            "owed": self.owed,
            "elapsed": self.record.elapsed(),
        }
        step = self.runner.env_steps
        try:
            self.store.save(state, step=step, episodes=episodes, score=score, best=best)
        except OSError as error:
            self.unsaved = str(error.strerror)
            self.hub.alert("checkpoint", f"step {step}: not written ({self.unsaved}); training goes on", step=step)
            return
        self.saved_at, self.best_score = step, best_score  # one that is not there is not to be beaten
        if self.config.keep_artifacts == "all":
            self._publish(self.store.entries[-1], ("latest", "best") if best else ("latest",))

    def _publish(self, entry: Entry, aliases: Sequence[str], final_score: float | None = None) -> None:
        """To the trackers and into the summary, which names each file once and gives each alias to the newest.

        Two scores, two names: ``score`` is of the selection episodes, where it was measured, ``final_score`` of the
        final ones.
        """
        scores = {"score": entry.score} | ({} if final_score is None else {"final_score": final_score})
        self.hub.log_artifact(
            self.store.directory / entry.file, step=entry.step, episodes=entry.episodes, score=entry.score,
            aliases=aliases, metadata=scores,
        )  # fmt: skip
        about: dict[str, Any] = {"file": entry.file, "aliases": [], "step": entry.step}
        others = []
        for artifact in self.artifacts:
            artifact["aliases"] = [alias for alias in artifact["aliases"] if alias not in aliases]
            if artifact["file"] == entry.file:
                about = artifact
            else:
                others.append(artifact)
        about = about | scores | {"step": entry.step, "aliases": [*aliases, *about["aliases"]]}
        self.artifacts = sorted([*others, about], key=lambda artifact: artifact["step"])

    # ---- the end

    def _finish_training(self) -> None:
        """Final evaluation, its episodes, what trackers get, and what the person sees."""
        config, step = self.config, self.runner.env_steps
        results, trajectories = evaluate_finally(
            config, self.algorithm, self.store, step, self.stop.check, self.hub.say
        )
        self._keep_episodes(trajectories)
        entries = {entry.file: entry for entry in self.store.entries}
        for name, path, aliases in artifacts_of(results, config.keep_artifacts):
            self._publish(entries[path.name], aliases, results[name]["mean"]["episode_reward"])
        self.record.update_summary(**results, artifacts=self.artifacts)
        for line in report.table(results):
            self.hub.say(line)
        self.hub.say(f"run directory    {self.record.run_dir}")
        if "best" in results and results["best"]["checkpoint"]:
            self.hub.say(f"best checkpoint  {self.record.run_dir / results['best']['checkpoint']}")
        for path in sorted(self.record.media_dir.glob("*.gif")):
            self.hub.say(f"animation        {path}")

    def _keep_episodes(self, trajectories: Trajectories) -> None:
        """The first ``log_eval_episodes`` final episodes as trajectories, and an animation where there are positions."""
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
        self.record.write_metadata(self.metadata)
        if self.store.entries:
            last = self.store.entries[-1]
            self.record.update_summary(
                last={"step": last.step, "checkpoint": f"checkpoints/{last.file}"}, artifacts=self.artifacts
            )
        self.hub.finish(status, code, reason)


def _in_memory(make: Callable[[], Made]) -> Made:
    """What ``make`` makes. Raises ConfigError where this machine has no room for it."""
    try:
        return make()
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        message = "does not fit in memory; take fewer copies, shorter rollouts, fewer agents or a smaller network"
        keys = "num_envs, rollout_length, num_agents, hidden_size, critic_hidden_size, num_layers"
        raise ConfigError([Fault(keys, message)]) from error


def _collect_metadata(
    config: Config, runner: OnPolicyRunner, evaluated: TaskSpec, command: Sequence[str]
) -> dict[str, Any]:
    """Layer 4 of a run that starts now. evaluated: the task as evaluation plays it, without a curriculum."""
    spec = runner.env.spec
    geometry = spec.geometry
    return layer4.collect(
        command,
        describe_task(spec),
        seed=config.seed,
        config_hash=config_hash(config),
        trackers=config.trackers,
        torch_settings={
            "threads": torch.get_num_threads(),
            "device": str(runner.algorithm.device),
            "processes": runner.ranks.size,
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
            normalized=report.reference_scores(evaluated) is not None,
        ),
    )


def _is_artifact(value: Any) -> bool:
    """Whether this entry of a summary that was read back is whole."""
    types = {"file": str, "aliases": list, "step": int}
    return isinstance(value, dict) and all(isinstance(value.get(key), kind) for key, kind in types.items())


def _max_entropy(spec) -> float | None:
    return math.log(spec.action.size) if spec.action.kind == "discrete" else None
