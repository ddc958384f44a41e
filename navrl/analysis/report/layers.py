"""The four layers of metrics as a report shows them: which metric is where, in which order, and what it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from navrl.metrics.summary import BEHAVIOUR_METRICS

# In the order in which a report shows them; definitions in full: navrl/metrics and the losses.
ABOUT = {
    "train/policy_loss": "surrogate loss of the actor",
    "train/value_loss": "loss of the critic",
    "train/entropy": "entropy of the policy, nats a decision",
    "train/approx_kl": "KL divergence of an update (k3 estimator)",
    "train/clip_fraction": "share of samples whose ratio was clipped",
    "train/actor_grad_norm": "gradient norm of the actor before clipping",
    "train/critic_grad_norm": "gradient norm of the critic before clipping",
    "train/explained_variance": "1 − Var(return − value) / Var(return)",
    "train/lr": "learning rate",
    "eval/episode_reward": "rewards of an episode summed over steps, mean over agents",
    "eval/normalized_score": "episode reward with random play = 0, reference controller = 1",
    "eval/success_rate": "share of episodes that succeed at the last step",
    "eval/success_rate_any": "share of episodes that succeed at any step",
    "eval/success_rate_015": "success at the last step within a radius of 0.15",
    "eval/success_rate_collision_free": "share of episodes that succeed at the end without any contact",
    "eval/time_to_goal": "first step with success; the episode's length where there is none",
    "eval/team_reward": "episode reward summed over agents",
    "eval/agent_reward_mean": "episode reward a step",
    "eval/episode_reward_std": "standard deviation of the episode reward over episodes",
    "eval/episode_length": "steps of an evaluation episode",
    "train/episode_reward_mean": "mean reward of the training episodes",
    "train/episode_reward_max": "largest reward of the training episodes",
    "train/episode_length": "steps of a training episode",
    "eval/collision_count": "agent pairs in contact, summed over the steps of an episode",
    "eval/collision_events": "contacts that begin, an episode",
    "eval/goal_distance": "distance from a goal to its nearest agent, mean over steps",
    "eval/final_goal_distance": "the same distance at the last step",
    "eval/goals_covered": "share of goals covered at the last step",
    "eval/path_efficiency": "success weighted by path length (SPL)",
    "eval/goal_conflict_rate": "share of steps in which two agents have the same nearest goal",
    "eval/average_speed": "speed of an agent, mean over steps",
    "eval/average_agent_distance": "distance of agent pairs, mean over steps",
    "eval/min_agent_distance": "smallest distance of two agents in an episode",
    "perf/env_steps_per_second": "environment steps a second",
    "perf/rollout_seconds": "seconds of collecting an iteration",
    "perf/update_seconds": "seconds of an update",
    "perf/eval_seconds": "seconds of an evaluation",
    "perf/tracking_seconds": "seconds that tracking took of the loop",
}
_ORDER = {name: place for place, name in enumerate(ABOUT)}
_TRAINING_EPISODES = ("episode_reward_mean", "episode_reward_max", "episode_length")


@dataclass(frozen=True)
class Layer:
    """One layer: its number, title and the question that it answers."""

    number: int
    title: str
    question: str


LAYERS = (
    Layer(1, "Stability", "Is training sane?"),
    Layer(2, "Task", "Does it solve the task?"),
    Layer(3, "Behaviour", "Is the way in which it solves it reasonable?"),
    Layer(4, "Metadata and cost", "Can it be found and repeated, and what did it cost?"),
)


def layer_of(metric: str) -> int | None:
    """1 to 4; None for what is no curve (an axis). ``eval/{role}/name`` is in the layer of ``name``."""
    family, _, rest = metric.partition("/")
    name = rest.rpartition("/")[2]
    if family == "perf":
        return 4
    if family == "eval" and name in BEHAVIOUR_METRICS:
        return 3
    if family == "eval" or (family == "train" and name in _TRAINING_EPISODES):
        return 2
    return 1 if family == "train" and name != "episode_count" else None


def ordered(metrics: Iterable[str]) -> list[str]:
    """Those that belong to a layer: layer by layer, known ones first and as ``ABOUT`` has them, each once."""
    return sorted({m for m in metrics if layer_of(m)}, key=lambda m: (layer_of(m), _ORDER.get(m, len(_ORDER)), m))


def about(metric: str) -> str:
    """One line on what a metric says; "" for one that is not known."""
    family, _, rest = metric.partition("/")
    role, _, name = rest.rpartition("/")
    known = ABOUT.get(metric) or ABOUT.get(f"{family}/{name}", "")
    return f"{known} (role {role})" if role and known else known


def title(metric: str) -> str:
    """A metric's name as words: ``eval/{role}/success_rate`` is "role: success rate"."""
    family, _, rest = metric.partition("/")
    role, _, name = rest.rpartition("/")
    words = name.replace("_", " ")
    if family == "train" and name in _TRAINING_EPISODES:
        words = f"training {words}"
    return f"{role}: {words}" if role else words
