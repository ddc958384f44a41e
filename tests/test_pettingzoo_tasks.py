"""Every kind of PettingZoo task becomes a batch: what arrives is what PettingZoo's own API gives."""

from __future__ import annotations

import importlib

import mpe2
import numpy as np
import pytest
import torch

import toy_envs
from envs.base import EnvironmentFault, TaskError
from envs.pettingzoo import PettingZooEnv, role
from envs.seeding import episode_seed


MPE2 = [
    "collect_treasure_v1",
    "simple_adversary_v3",
    "simple_crypto_v3",
    "simple_formation_v1",
    "simple_line_v1",
    "simple_push_v3",
    "simple_reference_v3",
    "simple_speaker_listener_v4",
    "simple_spread_v3",
    "simple_tag_v3",
    "simple_v3",
    "simple_world_comm_v3",
]
SCORE = {"collect_treasure_v1": "collector", "simple_crypto_v3": "bob", "simple_speaker_listener_v4": "listener"}
SCORE |= {"simple_tag_v3": "adversary", "simple_world_comm_v3": "adversary"}


def build(module: str, function: str = "parallel_env", *, num_envs: int = 2, num_workers: int | None = 0, **kwargs):
    own = {k: kwargs.pop(k) for k in ("auto_reset", "timeout", "dtype") if k in kwargs}
    return PettingZooEnv(
        module, function, kwargs, num_envs=num_envs, num_workers=num_workers,
        env_id=f"pettingzoo:{module}:{function}", backend="pettingzoo", settings=kwargs, **own,
    )  # fmt: skip


def actions(env: PettingZooEnv, rng: np.random.Generator) -> torch.Tensor:
    spec = env.spec.action
    if spec.kind == "discrete":
        return torch.from_numpy(np.stack([rng.integers(0, n, env.num_envs) for n in spec.sizes], 1))
    unit = rng.uniform(size=(env.num_envs, env.spec.num_agents, spec.size))
    return torch.from_numpy(np.array(spec.low) + unit * (np.array(spec.high) - np.array(spec.low)))


def test_all_of_mpe2_is_listed_here():
    modules = importlib.import_module("mpe2.all_modules").mpe_environments
    assert sorted(MPE2) == sorted(name.removeprefix("mpe/") for name in modules)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("task", MPE2)
def test_mpe2_task_equals_its_own_api(task: str, continuous: bool):
    """30 steps over an episode's border, against the environment stepped by hand."""
    env = build(f"mpe2.{task}", continuous_actions=continuous, num_envs=2)
    originals = [importlib.import_module(f"mpe2.{task}").parallel_env(continuous_actions=continuous) for _ in range(2)]
    agents = originals[0].possible_agents
    assert env.spec.agents == tuple(agents)
    assert env.spec.package == "mpe2" and env.spec.package_version == mpe2.__version__
    assert env.spec.max_cycles == 25
    assert env.spec.score_role == SCORE.get(task, "agent")
    assert env.spec.geometry.agent_radii == tuple(a.size for a in originals[0].unwrapped.world.agents)
    assert env.exact_resume
    rng = np.random.default_rng(0)

    def stacked(observations: list[dict[str, np.ndarray]]) -> np.ndarray:
        out = np.zeros((2, len(agents), env.spec.obs_size), np.float32)
        for i, dictionary in enumerate(observations):
            for j, agent in enumerate(agents):
                out[i, j, : len(dictionary[agent])] = dictionary[agent]
        return out

    expected = stacked([o.reset(seed=episode_seed(3, 7 + i, 0))[0] for i, o in enumerate(originals)])
    assert np.array_equal(env.reset(3, first_env=7).numpy(), expected)
    for t in range(1, 31):
        act = actions(env, rng)
        step = env.step(act)
        last, rewards = [], []
        for i, original in enumerate(originals):
            if continuous:
                sizes = env.spec.action.sizes
                given = {a: act[i, j, : sizes[j]].numpy().astype(np.float32) for j, a in enumerate(agents)}
            else:
                given = {a: int(act[i, j]) for j, a in enumerate(agents)}
            observations, reward, terminated, truncated, _ = original.step(given)
            last.append(observations)
            rewards.append([reward[a] for a in agents])
            assert all(truncated.values()) == (t == 25) and not any(terminated.values())
        assert np.allclose(step.reward.numpy(), rewards, rtol=1e-6, atol=0)
        assert step.truncated.tolist() == [t == 25] * 2 and not step.terminated.any()
        final = stacked(last)
        if t == 25:
            assert np.array_equal(step.final_obs.numpy(), final)
            final = stacked([o.reset(seed=episode_seed(3, 7 + i, 1))[0] for i, o in enumerate(originals)])
        else:
            assert step.final_obs is None
        assert np.array_equal(step.obs.numpy(), final)
    env.close()


def test_a_task_whose_generator_takes_32_bits_is_given_no_more():
    env = build("toy_envs", "old_generator", num_envs=4)
    expected = [np.random.RandomState(episode_seed(3, i, 0, bits=32)).uniform() for i in range(4)]
    assert env.reset(3)[:, 0, 0].numpy() == pytest.approx(expected)
    env.close()


def test_shared_reward_is_said_only_where_it_holds():
    """25 random steps of 8 copies: rewards of all agents are equal exactly where the spec says so."""
    cases = [(task, {}) for task in MPE2]
    cases += [(t, {"local_ratio": 0.0}) for t in ("simple_spread_v3", "simple_reference_v3")]
    for task, kwargs in cases:
        env = build(f"mpe2.{task}", num_envs=8, **kwargs)
        env.reset(0)
        rng = np.random.default_rng(1)
        rewards = torch.cat([env.step(actions(env, rng)).reward for _ in range(25)])
        equal = bool((rewards == rewards[:, :1]).all())
        assert equal == env.spec.shared_reward, task


def test_simple_spread_says_what_its_observation_is_made_of():
    env = build("mpe2.simple_spread_v3", N=4, num_agent_neighbors=2, auto_reset=False)
    spec = env.spec
    assert spec.layout.communication.stop == spec.obs_size
    assert (spec.layout.landmarks.count, spec.layout.agents.count) == (4, 2)
    assert spec.geometry.num_goals == 4 and spec.geometry.goal_radius == 0.1 and spec.geometry.has_success
    obs = env.reset(5)
    for _ in range(3):
        obs = env.step(torch.randint(0, 5, (2, 4))).obs
    scene = env.scene()
    assert torch.equal(obs[..., 0:2], scene.agent_vel) and torch.equal(obs[..., 2:4], scene.agent_pos)
    first = obs[..., spec.layout.landmarks.start : spec.layout.landmarks.start + 2]
    assert torch.allclose(first, scene.goal_pos[:, :1] - scene.agent_pos, atol=1e-6)
    assert scene.agent_vel.abs().max() > 0
    env.close()


def test_mpe2_without_named_goals_still_has_positions():
    env = build("mpe2.simple_tag_v3", num_workers=2)
    env.reset(0)
    env.step(torch.ones(2, 4, dtype=torch.int64))
    scene = env.scene()
    assert scene.agent_pos.shape == (2, 4, 2) and scene.goal_pos.shape == (2, 0, 2)
    assert scene.agent_vel[0, 0, 0] < 0  # action 1 pushes to the left
    assert env.spec.geometry.num_goals == 0 and env.spec.geometry.goal_radius is None
    assert env.spec.roles == ("adversary",) * 3 + ("agent",)
    env.close()


def test_success_that_ends_the_episode_is_a_termination():
    """One agent that stays at rest: the episode terminates where its landmark lies within 0.1 from the start."""
    env = build("mpe2.simple_spread_v3", N=1, terminate_on_success=True, num_envs=60, max_cycles=2)
    act = torch.zeros(60, 1, dtype=torch.int64)
    met = 0
    for seed in range(12):
        env.reset(seed)
        scene = env.scene()
        near = (scene.agent_pos[:, 0] - scene.goal_pos[:, 0]).norm(dim=-1) < 0.1
        first, second = env.step(act), env.step(act)
        assert torch.equal(first.terminated, near) and not first.truncated.any()
        assert second.truncated[~near].all() and not second.terminated[~near].any()
        met += int(near.sum())
    assert met >= 3
    env.close()


def test_a_task_that_ships_with_pettingzoo_runs():
    env = build("pettingzoo.classic.rps_v2", num_actions=3, max_cycles=4, num_workers=1)
    assert env.spec.geometry is None and env.scene() is None and not env.exact_resume
    assert env.spec.roles == ("player", "player") and env.spec.score_role == "player"
    assert env.spec.package == "pettingzoo"
    obs = env.reset(0)
    assert obs.shape == (2, 2, 4) and torch.equal(obs.sum(-1), torch.ones(2, 2))  # one-hot; the last: nothing played
    assert obs[0, 0].argmax() == 3
    step = env.step(torch.tensor([[0, 1], [2, 1]]))  # rock, paper, scissors
    assert step.reward.tolist() == [[-1, 1], [1, -1]]
    assert step.obs[0].argmax(-1).tolist() == [1, 0]  # each sees what the other played
    ends = [env.step(torch.zeros(2, 2, dtype=torch.int64)).truncated.tolist() for _ in range(3)]
    assert ends == [[False] * 2, [False] * 2, [True] * 2]
    env.close()


def test_unequal_agents_are_padded_and_counted():
    env = build("toy_envs", "unequal", dtype=torch.float64)
    assert env.spec.roles == ("speaker", "listener") and env.spec.score_role == "speaker"
    assert env.spec.obs_sizes == (4, 3) and env.spec.obs_size == 4
    assert env.spec.action.sizes == (3, 5) and env.spec.action.size == 5
    assert env.reset(0)[0].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    step = env.step(torch.tensor([[2, 4], [0, 0]]))
    assert step.obs[0].tolist() == [[2, 2, 2, 2], [0, 1, 0, 0]]
    assert step.reward.tolist() == [[12, 4], [10, 0]]  # the speaker's choices start at 10
    with pytest.raises(ValueError, match="action 3 of copy 1, agent speaker_0"):
        env.step(torch.tensor([[0, 0], [3, 0]]))


def test_continuous_actions_reach_the_task_within_its_bounds():
    env = build("toy_envs", "continuous", num_workers=1)
    assert env.spec.action.low == (-1.0, -1.0) and env.spec.action.high == (2.0, 2.0)
    assert env.spec.action.sizes == (2, 1)
    env.reset(0)
    act = torch.tensor([[[0.5, 0.25], [1.0, 9.0]], [[5.0, -5.0], [-3.0, 0.0]]])
    assert env.step(act).reward.tolist() == [[0.75, 1.0], [1.0, -1.0]]
    lost = act.clone()
    lost[1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="copy 1, agent agent_0 is not finite"):
        env.step(lost)
    with pytest.raises(ValueError, match="shape"):
        env.step(act[:, :1])
    env.close()


def test_bits_are_numbers():
    assert build("toy_envs", "bits").reset(0)[0, 0].tolist() == [1, 0, 1, 0]


def test_one_terminated_agent_makes_the_end_a_termination():
    env = build("toy_envs", "mixed_ends")
    env.reset(0)
    steps = [env.step(torch.zeros(2, 2, dtype=torch.int64)) for _ in range(5)]
    assert [s.terminated.tolist() for s in steps] == [[False] * 2] * 4 + [[True] * 2]
    assert not any(s.truncated.any() for s in steps)


def test_without_auto_reset_an_ended_copy_stays_where_it_ended():
    env = build("toy_envs", "counter", length=2, auto_reset=False)
    start = env.reset(0)
    env.step(torch.ones(2, 2, dtype=torch.int64))
    end = env.step(torch.full((2, 2), 3))
    assert end.truncated.all() and end.obs[0, 0, 1:].tolist() == [2, 3] and torch.equal(end.obs, end.final_obs)
    after = env.step(torch.ones(2, 2, dtype=torch.int64))
    assert torch.equal(after.obs, end.obs) and (after.reward == 0).all() and after.truncated.all()
    assert torch.equal(env.reset(0), start)


def test_stage_reaches_every_copy_and_is_harmless_elsewhere():
    env = build("toy_envs", "staged", num_envs=3, num_workers=2)
    env.reset(0)
    act = torch.zeros(3, 2, dtype=torch.int64)
    assert (env.step(act).reward == 0).all()
    env.set_stage(2)
    assert (env.step(act).reward == 2).all()
    env.close()
    plain = build("toy_envs", "counter")
    plain.reset(0)
    plain.set_stage(2)
    assert (plain.step(act[:2]).reward == 0).all()


def test_curriculum_of_mpe2_takes_effect_at_the_next_step():
    """Stage 0 of simple_spread's curriculum has no collision penalty, stage 1 is the task without a curriculum."""
    envs = [build("mpe2.simple_spread_v3", N=10, curriculum=c) for c in (True, True, False)]
    for env in envs:
        env.reset(0)
    act = torch.zeros(2, 10, dtype=torch.int64)
    without = [env.step(act).reward for env in envs]
    assert torch.equal(without[0], without[1]) and (without[0] > without[2]).any()
    envs[1].set_stage(1)
    lenient, strict, whole = (env.step(act).reward for env in envs)
    assert torch.equal(strict, whole) and (lenient > strict).any()
    envs[1].set_stage(0)
    assert torch.equal(envs[0].step(act).reward, envs[1].step(act).reward)


@pytest.mark.parametrize(
    "function, message",
    [
        ("observes_dict", "'agent_1' observes a Dict"),
        ("observes_image", "'agent_1' observes 12288 numbers"),
        ("acts_multi_discrete", "'agent_1' acts in a MultiDiscrete"),
        ("acts_mixed", "'agent_0' has discrete actions and agent 'agent_1' has not"),
        ("acts_unbounded", "'agent_0' has unbounded actions"),
        ("acts_in_different_bounds", "'agent_1' has bounds"),
        ("late_agent", "'agent_1' is not there from the start"),
        ("broken_constructor", "no luck today"),
        ("nothing", "no function 'nothing'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(function: str, message: str):
    with pytest.raises(TaskError, match=message) as caught:
        build("toy_envs", function)
    assert caught.value.key == "env_id"


def test_a_refusal_in_a_worker_reads_the_same():
    messages = []
    for workers in (0, 2):
        with pytest.raises(TaskError) as caught:
            build("toy_envs", "broken_constructor", num_workers=workers)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "no luck today" in messages[0]


def test_unknown_modules_and_arguments_are_refused_by_name():
    with pytest.raises(TaskError, match="no module named 'no_such_package'"):
        build("no_such_package.tasks")
    with pytest.raises(TaskError, match="no module named 'mpe2.no_such_task'"):
        build("mpe2.no_such_task")
    with pytest.raises(TaskError, match="colour='red'.*unexpected keyword"):
        build("mpe2.simple_spread_v3", colour="red")
    with pytest.raises(TaskError, match="not a PettingZoo ParallelEnv"):
        build("mpe2.simple_spread_v3", "env")
    with pytest.raises(TaskError, match="num_envs is 0"):
        build("toy_envs", "counter", num_envs=0)


@pytest.mark.filterwarnings("ignore")
def test_pettingzoo_tasks_with_images_or_with_agents_that_come_are_refused():
    with pytest.raises(TaskError, match="403200 numbers"):
        build("pettingzoo.butterfly.cooperative_pong_v6")
    with pytest.raises(TaskError, match="agents must be known from the start"):
        build("pettingzoo.test.example_envs.generated_agents_parallel_v0")


@pytest.mark.filterwarnings("ignore")
def test_knights_who_die_are_named():
    """Knights, archers and zombies: whoever is struck leaves the episode, long before its end."""
    env = build("pettingzoo.butterfly.knights_archers_zombies_v11", num_envs=1)
    assert env.spec.obs_size == 27 * 5 and env.spec.roles == ("archer", "archer", "knight", "knight")
    env.reset(0)
    with pytest.raises(EnvironmentFault, match=r"agent (archer|knight)_\d, step \d+ of episode \d+: left"):
        for _ in range(2000):
            env.step(torch.full((1, 4), 5))


def test_roles_are_names_without_their_number():
    assert [role(n) for n in ("adversary_0", "agent_12", "lead_knight", "a_1_b_2", "7")] == [
        "adversary", "agent", "lead_knight", "a_1_b", "7",
    ]  # fmt: skip


def test_toy_envs_meet_pettingzoos_own_test():
    from pettingzoo.test import parallel_api_test

    parallel_api_test(toy_envs.counter(), num_cycles=20)
