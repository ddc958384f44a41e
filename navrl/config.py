"""The configuration: one flat, typed, frozen schema with one field a key, its file and its hash.

Where the values of a run come from is ``config_sources``. Nothing here imports torch, an environment or a tracker:
``--help`` must be fast.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from navrl import fields, yaml_io
from navrl.faults import Fault, nearest, show
from navrl.redaction import holds_password, redact
from navrl.tracking.registry import TRACKERS
from navrl.tracking.stores import fault_of_store, on_this_machine

# The kinds of key. Only "science" can change a result; it alone goes to trackers and into the hash. "name" keys are
# fixed once a run exists. The others may change when a run is resumed.
KINDS = ("science", "machine", "rhythm", "tracker", "name", "path")

# What a run's own configuration that lacks a key was run with: keys that came later.
EARLIER = {"optimizer": "adam", "canonical_frame": False, "critic_hidden_size": None, "ppo_epoch_end": None}

MAIN_TASK = "simple_spread"  # the task whose settings the defaults below are


def _key(
    default: Any,
    description: str,
    *,
    section: str,
    kind: str,
    larger: str = "",
    smaller: str = "",
    allowed: str = "",
    whole_words: bool = False,
    **bounds: Any,
) -> Any:
    """A field: its default, its help text, and what a larger or a smaller value does.

    allowed: what it takes, where the type does not say it. whole_words: a word on the command line is one item of the
    list, commas and all.
    """
    text = description
    text += f" Larger: {larger}." if larger else ""
    text += f" Smaller: {smaller}." if smaller else ""
    extra: dict[str, Any] = {"section": section, "kind": kind} | ({"allowed": allowed} if allowed else {})
    extra |= {"whole_words": True} if whole_words else {}
    return Field(default, description=text, json_schema_extra=extra, **bounds)


_task = partial(_key, section="Task", kind="science")
_learns = partial(_key, section="What learns", kind="science")
_scale = partial(_key, section="Scale", kind="science")
_learner = partial(_key, section="Learner", kind="science")
_machine = partial(_key, section="Machine", kind="machine")
_rhythm = partial(_key, section="Rhythm", kind="rhythm")
_tracker = partial(_key, section="Trackers", kind="tracker")
_name = partial(_key, section="Names and places", kind="name")
_path = partial(_key, section="Names and places", kind="path")


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else _as_tuple(value)


def _increasing(value: tuple[int, ...]) -> tuple[int, ...]:
    if not value or value[0] < 1 or any(later <= earlier for earlier, later in zip(value, value[1:])):
        raise ValueError("not increasing")
    return value


def _no_twins(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(value)) != len(value):
        raise ValueError("an item is given twice")
    return value


def _printable_name(value: str) -> str:
    # A surrogate is what Python makes of an argument's byte that is not UTF-8.
    if not value.strip() or "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("empty, with a NUL character, or not Unicode text")
    return value


def _not_regular(pattern: str) -> str:
    """Why a text is no regular expression of Python; "" where it is one."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _normaliser(value: Any) -> Any:
    return {True: "running", False: "none"}[value] if isinstance(value, bool) else value


Text = Annotated[str, AfterValidator(_printable_name)]
TEXT = "text that is not empty"
LOGGERS = ("console", *TRACKERS)


def recorded(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a file; one that some version of NAVRL wrote for a run gets the keys that came later.

    Only the program writes ``named_keys``, and it always does.
    """
    return EARLIER | values if "named_keys" in values else values


class Config(BaseModel):
    """Everything that decides a run. Frozen; unknown keys, wrong types and values out of range are refused.

    Task settings that are not given take the values below for ``simple_spread`` (the main job). For any other task
    they are None, "the task's own default", so that a task is never handed a setting nobody asked for.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True,
        protected_namespaces=(),
    )

    # --- Task
    env_id: Text = _task(
        MAIN_TASK,
        "The task: a short name, or pettingzoo:module:function for any PettingZoo ParallelEnv.",
        allowed="the name of a task (simple_spread, ...) or pettingzoo:module:function",
    )
    env_backend: Literal["batched", "mpe2", "pettingzoo"] = _task(
        "batched",
        "What runs the task: batched tensors (fast), or the original in worker processes. A pettingzoo:... task "
        "takes pettingzoo by itself.",
    )
    num_agents: int | None = _task(
        3, "Number of agents (and landmarks). null: the task's own default.", ge=1, le=4096,
        larger="harder to coordinate; cost per step grows with its square",
        smaller="easier; 1 has nobody to collide with",
    )
    max_cycles: int | None = _task(25, "Steps after which an episode is cut off. null: the task's own.", ge=1,
                                   le=1_000_000)
    local_ratio: float | None = _task(
        0.5, "Share of the reward that is an agent's own (collisions); the rest is the team's. null: the task's own.",
        ge=0, le=1, larger="collisions matter more", smaller="covering landmarks matters more",
    )
    continuous_actions: bool | None = _task(False, "Continuous instead of discrete actions. null: the task's own.")
    terminate_on_success: bool | None = _task(
        False, "End an episode as soon as every landmark is covered. null: the task's own.")
    num_agent_neighbors: int | None = _task(
        None, "How many other agents an agent sees, nearest first. null: all.", ge=1, le=4096)
    num_landmark_neighbors: int | None = _task(
        None, "How many landmarks an agent sees, nearest first. null: all.", ge=1, le=4096)
    curriculum: bool | None = _task(
        False, "Begin at curriculum stage 0 (simple_spread: without collision penalty). null: the task's own.")
    curriculum_advance_at: (
        Annotated[tuple[int, ...], BeforeValidator(_one_or_more), AfterValidator(_increasing)] | None
    ) = _task(
        None,
        "Environment steps at which the curriculum advances by one stage. null: it stays at stage 0.",
        allowed="a whole number >= 1, or a list of increasing ones",
    )

    # --- What learns
    algorithm_name: Literal["mappo", "ippo"] = _learns(
        "mappo", "mappo: the critic sees all agents (Yu et al. 2022); ippo: the critic sees what its agent sees.")
    network: Literal["mlp", "gru", "entity"] = _learns(
        "entity",
        "mlp: feed-forward; gru: with memory over the episode; entity: shared weights over landmarks and agents, "
        "for tasks that say which part of the observation is which.",
    )
    share_policy: bool = _learns(True, "One set of weights for all agents, told which one they act for where roles differ; or one set each.")
    hidden_size: int = _learns(
        64, "Width of the hidden layers.", ge=1, le=65536,
        larger="fits more, slower, needs more data", smaller="faster, may be too simple for many agents",
    )
    critic_hidden_size: int | None = _learns(
        32, "Width of the critic's hidden layers. null: as hidden_size.", ge=1, le=65536,
        larger="for values that are hard to tell, slower", smaller="faster; watch explained_variance",
    )
    num_layers: int = _learns(
        2, "Number of hidden layers.", ge=1, le=64,
        larger="more expressive, slower, harder to train", smaller="faster and easier to train",
    )
    activation: Literal["tanh", "relu"] = _learns("relu", "Activation function of the hidden layers.")
    layer_norm: bool = _learns(
        False, "LayerNorm on the input and after each hidden layer, as official MAPPO has (mlp and gru only).")
    canonical_frame: bool = _learns(
        True, "Turn and mirror what each agent sees until the landmarks lie in one direction, and its action back, so that "
        "nothing is learned eight times (tasks with that symmetry; not with gru, whose memory would not turn).")

    # --- Scale
    seed: int = _scale(1, "Decides every random number of the run.", ge=0, le=fields.MAX_INT)
    num_envs: int = _scale(
        128, "Copies of the environment that are stepped together.", ge=1, le=1 << 20,
        larger="steadier updates and more steps a second, but fewer updates for the budget",
        smaller="more updates for the budget, each noisier",
    )
    rollout_length: int = _scale(
        25, "Steps of each copy between two updates.", ge=1, le=1_000_000,
        larger="steadier updates and longer looks ahead, but fewer updates for the budget",
        smaller="more updates for the budget, leaning more on the critic",
    )
    total_env_steps: int = _scale(
        2_400_000, "The budget: environment steps summed over copies.", ge=1, le=fields.MAX_INT,
        larger="better results, longer run", smaller="quick look",
    )

    # --- Learner
    optimizer: Literal["adam", "muon"] = _learner(
        "muon", "adam; or muon for the weights of hidden layers and adam for the rest (Jordan et al. 2024): several times "
        "fewer environment steps with entity networks, a little slower each.")
    lr: float = _learner(
        5e-4, "Learning rate, at the start.", gt=0, le=1,
        larger="faster, until updates overshoot (watch approx_kl and clip_fraction)", smaller="slower and safer",
    )
    critic_lr: float | None = _learner(
        None, "Learning rate of the critic. null: as lr.", gt=0, le=1,
        larger="values follow the policy faster, noisier", smaller="values lag behind the policy",
    )
    lr_schedule: Literal["constant", "linear"] = _learner(
        "linear", "Learning rates stay, or fall linearly to 0 over lr_decay_steps.")
    lr_decay_steps: int | None = _learner(
        None, "Environment steps over which the schedules run. null: the budget, total_env_steps.", ge=1,
        le=fields.MAX_INT, larger="learning rate stays high for longer",
        smaller="settles sooner; past it nothing moves",
    )
    adam_eps: float = _learner(
        1e-5, "Adam's epsilon.", gt=0, lt=1,
        larger="damps steps of parameters with tiny gradients", smaller="closer to sign descent",
    )
    ppo_epoch: int = _learner(
        4, "Passes over each batch of experience, at the start.", ge=1, le=1000,
        larger="more learning from the same steps, slower, drifts further from the data",
        smaller="faster iterations, needs more steps",
    )
    ppo_epoch_end: int | None = _learner(
        1, "Where the number of passes ends: linear over lr_decay_steps, rounded. null: it stays.", ge=1, le=1000,
        larger="late batches are used more, slower", smaller="late batches are fresher, faster iterations",
    )
    mini_batch_size: int | None = _learner(
        400, "Joint steps in a minibatch (all agents of one step count once). null: the whole batch. With gru, "
        "whole chunks.", ge=1, le=fields.MAX_INT,
        larger="fewer, steadier gradient steps", smaller="more, noisier gradient steps",
    )
    chunk_length: int | None = _learner(
        None, "Steps over which gradients flow back through time (gru only); it must divide rollout_length. null: the "
        "whole rollout.", ge=1, le=1_000_000,
        larger="memory is trained over longer spans, slower", smaller="faster, memory is trained short-sighted",
    )
    clip_param: float = _learner(
        0.2, "PPO's clip range of the probability ratio.", gt=0, le=1,
        larger="bigger policy changes in an update, less stable", smaller="smaller changes, slower",
    )
    value_clip: bool = _learner(True, "Clip value updates to clip_param too.")
    huber_delta: float | None = _learner(
        10.0, "Value errors beyond this count linearly (Huber loss). null: squared error.", gt=0, le=1e9,
        larger="closer to squared error, outliers pull more", smaller="outliers pull less, slower critic",
    )
    value_loss_coef: float = _learner(
        1.0, "Weight of the value loss.", gt=0, le=1e6,
        larger="critic first where weights are shared or gradients clipped", smaller="critic learns more gently",
    )
    entropy_coef: float = _learner(
        0.0, "Weight of the entropy bonus, at the start.", ge=0, le=1e3,
        larger="explores more and longer, less precise in the end", smaller="settles sooner, may settle too soon",
    )
    entropy_coef_end: float | None = _learner(
        None, "Where the entropy bonus ends: linear over lr_decay_steps. null: it stays.", ge=0, le=1e3,
        larger="keeps exploring late", smaller="precise in the end",
    )
    gamma: float = _learner(
        0.9, "Discount per step.", ge=0, le=1,
        larger="looks further ahead, noisier advantages", smaller="short-sighted, steadier",
    )
    gae_lambda: float = _learner(
        0.8, "Lambda of generalised advantage estimation (Schulman et al. 2016).", ge=0, le=1,
        larger="less bias, more noise", smaller="leans on the critic",
    )
    max_grad_norm: float | None = _learner(
        0.5, "Gradients are scaled down to this global norm. null: never.", gt=0, le=1e9,
        larger="clips rarely; a bad batch can do harm", smaller="clips often, slower, steadier",
    )
    value_norm: Annotated[Literal["none", "running", "popart"], BeforeValidator(_normaliser)] = _learner(
        "running", "How returns are normalised for the critic; popart also rescales its last layer. true means "
        "running, false none.", allowed="one of none, running, popart, or true or false",
    )
    target_kl: float | None = _learner(
        None, "Stop an update's epochs after one whose mean approx_kl goes beyond this. null: never.", gt=0, le=1e6,
        larger="stops rarely", smaller="stops early: small, safe updates",
    )

    # --- Machine
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:(0|[1-9][0-9]{0,2}))?)$")] = _machine(
        "cpu", "Where tensors live.", allowed="cpu, cuda or cuda:N")
    torch_threads: int = _machine(
        1, "Threads of torch in the training process.", ge=1, le=1024,
        larger="pays for wide networks only; small ones get several times slower", smaller="1 is right on most CPUs",
    )
    processes: int = _machine(
        1, "Processes that share the copies of one run on this machine, each on a core (or GPU) of its own. Across "
        "machines torchrun starts them instead, and its number counts.", ge=1, le=1024,
        larger="faster while cores are free; num_envs must be a multiple", smaller="cores are left for other runs",
    )
    num_workers: int | None = _machine(
        None, "Worker processes of the mpe2 and pettingzoo backends; 0 steps the copies in the training process. "
        "null: one a core, at most num_envs.", ge=0, le=4096)
    worker_timeout: float = _machine(
        60.0, "Seconds after which a worker that does not answer counts as hung.", gt=0, le=86400)

    # --- Rhythm
    eval_interval: int = _rhythm(10, "Iterations between evaluations.", ge=1, le=fields.MAX_INT)
    eval_episodes: int = _rhythm(100, "Episodes of an evaluation during training.", ge=1, le=1_000_000)
    eval_sampled: bool = _rhythm(False, "Also evaluate with sampled actions, as eval_sampled/ metrics.")
    final_eval_episodes: int = _rhythm(
        500, "Fresh episodes of the task's original for the final evaluation.", ge=1, le=1_000_000)
    log_interval: int = _rhythm(1, "Iterations between rows of training metrics.", ge=1, le=fields.MAX_INT)
    checkpoint_interval: int = _rhythm(25, "Iterations between checkpoints.", ge=1, le=fields.MAX_INT)
    log_eval_episodes: int = _rhythm(
        4, "Evaluation episodes kept as trajectories and animations; 0: none.", ge=0, le=10_000)

    # --- Trackers
    logger: Annotated[
        tuple[Literal[LOGGERS], ...],
        BeforeValidator(_as_tuple),
        AfterValidator(_no_twins),
    ] = _tracker(
        ("console",), "Where metrics go beside the local record, which is always written.",
        allowed=f"a list of {', '.join(LOGGERS)} (each at most once)",
    )
    log_wandb: bool = _tracker(
        True, "true adds wandb to logger, false takes it out. Where only logger is given, as logger says.")
    wandb_entity: Text | None = _tracker(None, "W&B account or team. null: your default one.", allowed=TEXT)
    wandb_project: Text = _tracker("NAVRL", "W&B project. Left at NAVRL it follows project_name.", allowed=TEXT)
    wandb_group: Text | None = _tracker(None, "W&B group. null: as group.", allowed=TEXT)
    wandb_name: Text | None = _tracker(None, "W&B run name. null: as experiment_name.", allowed=TEXT)
    wandb_mode: Literal["auto", "online", "offline", "disabled"] = _tracker(
        "auto", "auto: online where a key is configured and the server answers, else offline (also WANDB_MODE).")
    wandb_proxy: Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[^\s]+$")] | None = _tracker(
        None, "Proxy that W&B alone uses.", allowed="an address like http://host:port")
    wandb_tags: Annotated[tuple[Text, ...], BeforeValidator(_as_tuple), AfterValidator(_no_twins)] = _tracker(
        (), "Tags of the run.", allowed="a list of words (each at most once)")
    swanlab_mode: Literal["online", "local", "offline", "disabled"] = _tracker(
        "offline", "offline: publish later; local: a dashboard on this machine (also SWANLAB_MODE).")
    mlflow_tracking_uri: Text | None = _tracker(
        None, "MLflow store or server (also MLFLOW_TRACKING_URI). null: an SQLite file beside the runs.", allowed=TEXT)
    trace: Literal["none", "mlflow", "wandb", "weave"] = _tracker(
        "none", "Which tracker gets evaluation episodes as traces, a span a step and agent: mlflow, or W&B's weave "
                "(pip install weave; online only). W&B always gets them as tables, with wandb as with none.")
    keep_artifacts: Literal["final", "best", "all"] = _tracker(
        "best", "Which checkpoints trackers get: the final one, the best and the final, or all.")
    tracker_timeout: float = _tracker(
        15.0, "Seconds without progress after which a tracker is set aside at the end.", gt=0, le=86400)
    tracker_disk_budget_mb: int = _tracker(
        2000, "Megabytes that all trackers together may keep of a run on this machine; media and tables beyond that "
        "stay in the run directory alone.", ge=1, le=1 << 40)
    log_filter: Annotated[tuple[Text, ...], BeforeValidator(_as_tuple), AfterValidator(_no_twins)] = _tracker(
        (), "What these match shows as *** on the console, in console.log and in every text that trackers get; names of "
            "metrics and checkpoint files stay. One word each on the command line; commas separate none. Nested repeats, "
            "as (a+)+, can take for ever.",
        allowed="a list of regular expressions (each at most once)", whole_words=True)
    privacy: Literal["normal", "strict"] = _tracker(
        "normal", "strict: nothing leaves this machine, and trackers learn no host, user, path or code.")

    # --- Names and places
    project_name: Text | None = _name(None, "Project in every tracker and on disk. null: as wandb_project.",
                                      allowed=TEXT)
    group: Text | None = _name(None, "Group of runs that differ in seed only. null: as wandb_group, else built from "
                                     "the run.", allowed=TEXT)
    experiment_name: Text | None = _name(None, "Name of the run. null: as wandb_name, else built from the run.",
                                         allowed=TEXT)
    named_keys: Annotated[tuple[Text, ...], BeforeValidator(_as_tuple), AfterValidator(_no_twins)] = _name(
        (), "Result-changing keys whose values are part of built names. Those given on the command line are added by "
            "themselves.", allowed="a list of keys (each at most once)",
    )
    run_dir: Text = _path("runs", "Directory under which runs are kept (also NAVRL_RUNS).", allowed=TEXT)
    if_exists: Literal["new", "resume", "error"] = _path(
        "new", "When the run's directory is taken: number the new run, continue the old one, or refuse.")

    @model_validator(mode="before")
    @classmethod
    def _fill_what_depends_on_others(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        env_id = data.get("env_id", MAIN_TASK)
        if env_id != MAIN_TASK:
            for key in TASK_SETTINGS:
                data.setdefault(key, None)
            if isinstance(env_id, str) and env_id.startswith("pettingzoo:"):
                data.setdefault("env_backend", "pettingzoo")
        if "logger" in data and isinstance(data["logger"], (list, tuple)):
            data.setdefault("log_wandb", "wandb" in data["logger"])
        return data

    @model_validator(mode="after")
    def _agree(self, info: ValidationInfo) -> Config:
        if not (info.context or {}).get("fields_only"):
            faults = self.cross_faults()
            if faults:
                raise ValueError("; ".join(f"{fault.key}: {fault.message}" for fault in faults))
        return self

    def cross_faults(self, unusable: Collection[str] = ()) -> list[Fault]:
        """Faults that show only when several keys are read together.

        unusable: keys whose values are in doubt already; what depends on one of them is not judged.
        """
        faults: list[Fault] = []

        def check(right: bool, keys: str, message: str) -> None:
            names = keys.split()
            if not right and not set(names) & set(unusable):
                faults.append(Fault(names[0], message))

        check(self.curriculum_advance_at is None or bool(self.curriculum), "curriculum_advance_at curriculum",
              "needs curriculum: true")
        check(self.network != "gru" or self.chunk_length is None or self.rollout_length % self.chunk_length == 0,
              "chunk_length rollout_length network",
              f"{self.chunk_length} does not divide rollout_length {self.rollout_length}; null takes the whole rollout")
        check(self.num_envs % self.processes == 0, "num_envs processes",
              f"{self.num_envs} copies cannot be shared equally by {self.processes} processes; take a multiple of that")
        check(not self.layer_norm or self.network != "entity", "layer_norm network",
              "network: entity has none; leave it false, or use network: mlp or gru")
        check(self.hidden_size % 4 == 0 or self.network != "entity", "hidden_size network",
              f"{self.hidden_size}: network: entity needs a multiple of 4")
        check(self.critic_hidden_size is None or self.critic_hidden_size % 4 == 0 or self.network != "entity",
              "critic_hidden_size network",
              f"{self.critic_hidden_size}: network: entity needs a multiple of 4")
        traced = "wandb" if self.trace == "weave" else self.trace
        check(traced in ("none", *self.trackers), "trace logger log_wandb", f"{self.trace} needs {traced} in logger")
        check(self.trace != "weave" or self.privacy != "strict", "trace privacy",
              "weave is refused with privacy: strict; it is online only")
        for tracker, key in (("wandb", "wandb_mode"), ("swanlab", "swanlab_mode")):
            online = tracker in self.trackers and getattr(self, key) == "online"
            check(not online or self.privacy != "strict", f"{key} privacy logger log_wandb",
                  "online is refused with privacy: strict; write offline")
        if "mlflow" in self.trackers and (uri := self.mlflow_tracking_uri):
            fault = fault_of_store(uri)
            check(not fault, "mlflow_tracking_uri logger log_wandb", f"{show(redact(uri))} {fault}")
            check(bool(fault) or self.privacy != "strict" or on_this_machine(uri),
                  "mlflow_tracking_uri privacy logger log_wandb",
                  f"{show(redact(uri))} is not on this machine, and privacy: strict sends nothing elsewhere; null takes a "
                  "file beside the runs")
        for pattern in self.log_filter:
            reason = _not_regular(pattern)
            check(not reason, "log_filter", f"{show(pattern)} is no regular expression: {reason}")
        for key in self.named_keys:
            check(key in SCIENCE_KEYS, "named_keys",
                  f"{show(key)} is not a result-changing key; nearest: {nearest(key, SCIENCE_KEYS)}")
        return faults

    # --- What the values come to

    @property
    def trackers(self) -> tuple[str, ...]:
        """``logger`` with wandb added or taken out as ``log_wandb`` says."""
        others = tuple(name for name in self.logger if name != "wandb")
        if not self.log_wandb:
            return others
        return self.logger if "wandb" in self.logger else (*self.logger, "wandb")

    @property
    def batch_size(self) -> int:
        """Joint steps collected in one iteration: ``num_envs * rollout_length``."""
        return self.num_envs * self.rollout_length

    @property
    def minibatch_size(self) -> int:
        """Joint steps in a minibatch, at most the batch (a GRU's minibatch is then rounded to whole chunks)."""
        return self.batch_size if self.mini_batch_size is None else min(self.mini_batch_size, self.batch_size)

    @property
    def chunk_steps(self) -> int:
        """Steps over which a GRU's gradients flow back."""
        return self.rollout_length if self.chunk_length is None else self.chunk_length

    @property
    def decay_steps(self) -> int:
        """Environment steps over which learning rate, entropy bonus and passes change."""
        return self.total_env_steps if self.lr_decay_steps is None else self.lr_decay_steps

    @property
    def critic_width(self) -> int:
        """Width of the critic's hidden layers."""
        return self.hidden_size if self.critic_hidden_size is None else self.critic_hidden_size

    @property
    def critic_learning_rate(self) -> float:
        return self.lr if self.critic_lr is None else self.critic_lr

    @property
    def final_ppo_epoch(self) -> int:
        """Passes over the last batches of the schedule."""
        return self.ppo_epoch if self.ppo_epoch_end is None else self.ppo_epoch_end

    @property
    def final_entropy_coef(self) -> float:
        return self.entropy_coef if self.entropy_coef_end is None else self.entropy_coef_end

    def without_places(self) -> Config:
        """Itself with paths and addresses at their defaults: what may be seen where nobody is to learn them."""
        keys = (*ADDRESS_KEYS, *(key for key in KEYS if kind_of(key) == "path"))
        return self.model_copy(update={key: Config.model_fields[key].default for key in keys})

    def task_settings(self) -> dict[str, Any]:
        """The settings to hand to the task: those that are not null. Empty for a task of which nothing was asked."""
        settings = {key: getattr(self, key) for key in TASK_SETTINGS}
        return {key: value for key, value in settings.items() if value is not None}

    def science(self) -> dict[str, Any]:
        """The flat values that can change a result, for trackers and for the hash.

        null where it stands for another key's value is resolved (``critic_lr`` to ``lr``), so that two ways to write
        one experiment compare equal.
        """
        values = {key: _plain(getattr(self, key)) for key in SCIENCE_KEYS}
        values.update(
            canonical_frame=self.canonical_frame and self.network != "gru",
            critic_hidden_size=self.critic_width,
            critic_lr=self.critic_learning_rate,
            lr_decay_steps=self.decay_steps,
            entropy_coef_end=self.final_entropy_coef,
            ppo_epoch_end=self.final_ppo_epoch,
            mini_batch_size=self.minibatch_size,
            chunk_length=self.chunk_steps,
        )
        return values


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def kind_of(key: str) -> str:
    """One of ``KINDS``."""
    return Config.model_fields[key].json_schema_extra["kind"]  # type: ignore[index,return-value]


def section_of(key: str) -> str:
    return Config.model_fields[key].json_schema_extra["section"]  # type: ignore[index,return-value]


KEYS = tuple(Config.model_fields)
SCIENCE_KEYS = tuple(key for key in KEYS if kind_of(key) == "science")
# Handed to the task's constructor. The runner itself advances the stage at curriculum_advance_at.
TASK_SETTINGS = ("num_agents", "max_cycles", "local_ratio", "continuous_actions", "terminate_on_success",
                 "num_agent_neighbors", "num_landmark_neighbors", "curriculum")


ADDRESS_KEYS = ("wandb_proxy", "mlflow_tracking_uri")  # may carry a password


def config_hash(config: Config) -> str:
    """SHA-256 (hex) of ``science()`` without ``seed``, as canonical JSON: equal for the runs of one group."""
    values = {key: value for key, value in config.science().items() if key != "seed"}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def dump(config: Config) -> str:
    """The resolved ``config.yaml``: every key, in the schema's order; ``load`` on it gives the same Config.

    A value that carries a password (a proxy or database address) is the exception: it is written as null, with a
    comment that says so, and has to be given again.
    """
    lines: list[str] = []
    section = ""
    for key in KEYS:
        if section_of(key) != section:
            section = section_of(key)
            lines += ["", f"# {section}"] if lines else [f"# {section}"]
        value = getattr(config, key)
        if key in ADDRESS_KEYS and holds_password(value):
            lines.append(f"{key}: null  # it holds a password, which is not written down; give it again")
        else:
            lines.append(f"{key}: {yaml_io.emit(value)}")
    return "\n".join(lines) + "\n"
