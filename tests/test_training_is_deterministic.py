"""One seed, one run: parameters are equal bit for bit, and watching a run does not change it."""

from __future__ import annotations

import pytest
import torch

from envs.mpe.simple_spread import BatchedSimpleSpread
from learner_tools import CPU, learner_config
from navrl.algorithms.mappo import MAPPO
from navrl.config_sources import load
from runners.evaluation import evaluate
from runners.on_policy import OnPolicyRunner
from runners.policies import LearnedPolicy

KINDS = {
    "default": (),
    "mlp": ("--network", "mlp", "--continuous_actions", "--value_norm", "popart"),
    "gru": ("--network", "gru", "--rollout_length", "20", "--terminate_on_success", "--max_cycles", "7"),
}


def start(kind: str, seed: int = 1) -> OnPolicyRunner:
    config = learner_config(*KINDS[kind], num_envs=16, hidden_size=16, mini_batch_size=60, chunk_length=5)
    env = BatchedSimpleSpread(16, load(list(KINDS[kind]), {}).config.task_settings())
    return OnPolicyRunner(config, env, MAPPO(env.spec, config, CPU, seed), seed)


def numbers(runner: OnPolicyRunner) -> list[torch.Tensor]:
    algorithm = runner.algorithm
    return [*algorithm.actor.state_dict().values(), *algorithm.critic.state_dict().values(), runner.obs,
            algorithm.value_norm.mean_sum, algorithm.action_generator.get_state(),
            algorithm.shuffle_generator.get_state()]  # fmt: skip


def same(a: OnPolicyRunner, b: OnPolicyRunner) -> bool:
    return all(torch.equal(x, y) for x, y in zip(numbers(a), numbers(b), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_with_one_seed_are_equal_and_one_with_another_seed_is_not(kind: str) -> None:
    torch.manual_seed(0)
    one = start(kind)
    rows = [one.iterate()[0] for _ in range(3)]
    torch.manual_seed(99)  # the global generator is nobody's business
    torch.rand(7)
    two, other = start(kind), start(kind, seed=2)
    for row in rows:
        assert two.iterate()[0] == row
        other.iterate()
    assert same(one, two) and not same(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluating_and_logging_between_iterations_change_nothing(kind: str) -> None:
    quiet, watched = start(kind), start(kind)
    settings = load(list(KINDS[kind]), {}).config.task_settings()
    env = BatchedSimpleSpread(4, settings, auto_reset=False)
    for _ in range(3):
        quiet.iterate()
        watched.iterate()
        policy = LearnedPolicy(watched.algorithm)
        first = evaluate(policy, env, 6, seed=5)
        again = evaluate(policy, env, 6, seed=5)
        assert (first.rewards == again.rewards).all()
        sampled = LearnedPolicy(watched.algorithm, torch.Generator().manual_seed(3))
        assert evaluate(sampled, env, 6, seed=5).actions.shape == first.actions.shape
        watched.episodes.row()
        watched.state_dict()
    assert same(quiet, watched)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_runner_goes_on_as_if_never_stopped(kind: str) -> None:
    import copy

    whole = start(kind)
    whole.iterate()
    state = copy.deepcopy(whole.state_dict())
    restored = start(kind, seed=3)
    restored.iterate()
    restored.load_state_dict(state)
    for _ in range(2):
        assert whole.iterate()[0] == restored.iterate()[0]
    assert same(whole, restored) and whole.episodes.row() == restored.episodes.row()
    assert (whole.iteration, whole.env_steps) == (restored.iteration, restored.env_steps)


def test_evaluation_counts_every_episode_once_whatever_the_number_of_copies() -> None:
    """Episode j starts from (seed, j): 1, 3 or 10 copies play the same ten."""
    algorithm = start("default").algorithm
    played = []
    for copies in (1, 3, 10):
        env = BatchedSimpleSpread(copies, {}, auto_reset=False)
        played.append(evaluate(LearnedPolicy(algorithm), env, 10, seed=8))
    for other in played[:2]:
        assert other.rewards.shape == played[2].rewards.shape == (25, 10, 3)
        assert abs(other.agent_pos[0] - played[2].agent_pos[0]).max() == 0
        assert (other.lengths == 25).all()
        # rows of another batch size are rounded differently, which a close call may turn into another action
        assert (abs(other.rewards.sum((0, 2)) - played[2].rewards.sum((0, 2))) < 1e-3).mean() >= 0.8


def test_evaluation_refuses_a_task_that_resets_itself() -> None:
    with pytest.raises(ValueError, match="auto_reset=False"):
        evaluate(LearnedPolicy(start("default").algorithm), BatchedSimpleSpread(2, {}), 2, 0)
