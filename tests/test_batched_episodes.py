"""How the batched task starts, ends, restarts, saves and restores episodes."""

from __future__ import annotations

import pytest
import torch

from envs.base import TaskError
from envs.mpe.simple_spread import BatchedSimpleSpread

SUCCESS = {"terminate_on_success": True}


def random_actions(env: BatchedSimpleSpread, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 5, (env.num_envs, env.spec.num_agents), generator=generator)


@pytest.mark.parametrize("settings", [{"max_cycles": 4}, {"max_cycles": 4, **SUCCESS}])
def test_an_ended_episode_is_replaced_and_its_true_last_observation_is_kept(settings: dict) -> None:
    auto = BatchedSimpleSpread(16, settings, dtype=torch.float64)
    plain = BatchedSimpleSpread(16, settings, dtype=torch.float64, auto_reset=False)
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(auto.reset(5), plain.reset(5))
    for t in range(1, 5):
        actions = random_actions(auto, generator)
        a, b = auto.step(actions), plain.step(actions)
        assert torch.equal(a.reward, b.reward)
        assert a.truncated.all() == b.truncated.all() == (t == 4)
        if t < 4:
            assert torch.equal(a.obs, b.obs)
    assert torch.equal(a.final_obs, b.obs) and torch.equal(b.final_obs, b.obs)
    assert (a.obs[..., :2] == 0).all() and not torch.equal(a.obs, a.final_obs)
    # the next episode runs its full length again
    cuts = [bool(auto.step(random_actions(auto, generator)).truncated.all()) for _ in range(8)]
    assert cuts == [False, False, False, True] * 2


def test_final_obs_is_none_while_the_host_knows_that_nothing_ended() -> None:
    env = BatchedSimpleSpread(4, {"max_cycles": 3})
    seen = [env.step(torch.zeros(4, 3, dtype=torch.int64)).final_obs is None for _ in range(6)]
    assert seen == [True, True, False] * 2


def test_only_the_copies_that_succeed_restart() -> None:
    env = BatchedSimpleSpread(3, {"num_agents": 1, **SUCCESS}, dtype=torch.float64)
    env.reset(0)
    apart, here = torch.tensor([0.5, 0.5]), torch.zeros(2)
    goals = torch.stack([apart, here, apart]).double().view(3, 1, 2)
    env.set_state(torch.zeros(3, 1, 2), torch.zeros(3, 1, 2), goals)
    stay = torch.zeros(3, 1, dtype=torch.int64)
    step = env.step(stay)
    assert step.terminated.tolist() == [False, True, False] and not step.truncated.any()
    assert torch.equal(step.obs[[0, 2]], step.final_obs[[0, 2]])
    fresh = BatchedSimpleSpread(3, {"num_agents": 1, "max_cycles": 1}, dtype=torch.float64)
    fresh.reset(0)
    assert torch.equal(step.obs[1], fresh.step(stay).obs[1]), "the copy's own episode 1"
    # the others are cut by their own clocks, the restarted one 1 step later
    ends = [env.step(stay) for _ in range(25)]
    assert [t for t, s in enumerate(ends, 2) if s.truncated[0] or s.terminated[0]][:1] == [25]
    assert ends[23].truncated.tolist() == [True, False, True]
    assert ends[24].truncated[1] or any(s.terminated[1] for s in ends)


@pytest.mark.parametrize(
    "settings", [{}, SUCCESS, {"continuous_actions": True, "num_agents": 2, "curriculum": True, "local_ratio": 0.9}]
)
def test_a_saved_environment_goes_on_bit_for_bit(settings: dict) -> None:
    def play(env: BatchedSimpleSpread, steps: int, generator: torch.Generator) -> list[torch.Tensor]:
        seen = []
        for _ in range(steps):
            if env.spec.action.kind == "continuous":
                actions = torch.rand(env.num_envs, env.spec.num_agents, 5, generator=generator)
            else:
                actions = random_actions(env, generator)
            step = env.step(actions)
            seen += [step.obs, step.reward, step.terminated, step.truncated]
        return seen

    first = BatchedSimpleSpread(8, settings)
    first.reset(9, first_env=100)
    first.set_stage(1)
    play(first, 33, torch.Generator().manual_seed(1))
    saved = first.state_dict()
    expected = play(first, 60, torch.Generator().manual_seed(2))
    second = BatchedSimpleSpread(8, settings)
    obs = second.load_state_dict(saved)
    assert torch.equal(obs, second.load_state_dict(saved)), "loading does not use the state up"
    for a, b in zip(expected, play(second, 60, torch.Generator().manual_seed(2))):
        assert torch.equal(a, b)


def test_a_state_of_another_shape_is_refused() -> None:
    saved = BatchedSimpleSpread(4).state_dict()
    with pytest.raises(ValueError, match="num_envs and num_agents"):
        BatchedSimpleSpread(5).load_state_dict(saved)
    with pytest.raises(ValueError, match="terminate_on_success"):
        BatchedSimpleSpread(4, SUCCESS).load_state_dict(saved)


def test_what_was_returned_is_never_written_to_again() -> None:
    env = BatchedSimpleSpread(4)
    kept = [env.reset(0), *env.scene()]
    copies = [t.clone() for t in kept]
    step = env.step(torch.ones(4, 3, dtype=torch.int64))
    kept += [step.obs, step.reward]
    copies += [step.obs.clone(), step.reward.clone()]
    for _ in range(30):
        env.step(torch.full((4, 3), 2))
    assert all(torch.equal(a, b) for a, b in zip(kept, copies))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [0.0, 1e-30, 1e-13, 1e-6])
def test_agents_at_one_point_stay_finite(dtype: torch.dtype, gap: float) -> None:
    env = BatchedSimpleSpread(1, {"num_agents": 3}, dtype=dtype)
    pos = torch.zeros(1, 3, 2, dtype=dtype)
    pos[0, 1, 0] = gap
    env.set_state(pos, torch.zeros(1, 3, 2), torch.zeros(1, 3, 2))
    for _ in range(20):
        step = env.step(torch.tensor([[1, 2, 0]]))
        assert step.obs.isfinite().all() and step.reward.isfinite().all()
    assert env.scene().agent_pos.abs().max() < 100


def test_scene_and_spec_say_where_everything_is() -> None:
    env = BatchedSimpleSpread(5, {"num_agents": 4})
    obs, scene, layout = env.reset(2), env.scene(), env.spec.layout
    assert scene.agent_pos.shape == scene.agent_vel.shape == scene.goal_pos.shape == (5, 4, 2)
    assert torch.equal(obs[..., 2:4], scene.agent_pos)
    seen = obs[..., layout.landmarks.start : layout.landmarks.stop].view(5, 4, 4, 2)
    torch.testing.assert_close(seen + scene.agent_pos.unsqueeze(2), scene.goal_pos.unsqueeze(1).expand(5, 4, 4, 2))
    assert env.spec.geometry.agent_radii == (0.15,) * 4 and env.spec.geometry.num_goals == 4
    assert env.spec.settings["local_ratio"] == 0.5 and env.spec.max_cycles == 25
    assert env.spec.package == "mpe2" and env.spec.package_version == "1.1.1"


@pytest.mark.parametrize("settings, shared", [
    ({}, False), ({"local_ratio": 0}, True), ({"num_agents": 1}, True), ({"local_ratio": 1}, False),
])  # fmt: skip
def test_shared_reward_is_told_exactly(settings: dict, shared: bool) -> None:
    env = BatchedSimpleSpread(256, settings)
    assert env.spec.shared_reward is shared
    generator = torch.Generator().manual_seed(0)
    rewards = torch.stack([env.step(random_actions(env, generator)).reward for _ in range(25)])
    assert bool((rewards == rewards[..., :1]).all()) is shared


def test_wrong_actions_and_settings_are_named() -> None:
    env = BatchedSimpleSpread(2)
    with pytest.raises(ValueError, match=r"\(2, 3, 5\); this task takes \(2, 3\)"):
        env.step(torch.zeros(2, 3, 5))
    with pytest.raises(TaskError, match="num_agents: 0 is not an integer of at least 1") as error:
        BatchedSimpleSpread(2, {"num_agents": 0})
    assert error.value.key == "num_agents"


@pytest.mark.parametrize("settings", [
    {}, SUCCESS, {"continuous_actions": True}, {"num_agents": 1}, {"num_agent_neighbors": 1, **SUCCESS},
])  # fmt: skip
def test_no_step_waits_for_the_device_or_leaves_it(settings: dict) -> None:
    """Tensors of the meta device have no values: whatever reads one on the host, or mixes devices, raises."""
    env = BatchedSimpleSpread(4, settings, device="meta")
    env.reset(1)
    shape = (4, env.spec.num_agents, 5) if settings.get("continuous_actions") else (4, env.spec.num_agents)
    actions = torch.zeros(shape, dtype=torch.int64, device="meta")
    for _ in range(30):
        step = env.step(actions)
        assert all(t is None or t.device.type == "meta" for t in step)
    with pytest.raises(RuntimeError):
        step.reward.sum().item()


@pytest.mark.parametrize("num_envs, num_agents", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_a_scene_is_not_changed_by_later_steps(num_envs: int, num_agents: int) -> None:
    env = BatchedSimpleSpread(num_envs, {"num_agents": num_agents, "max_cycles": 2})
    scene = env.scene()
    kept = [part.clone() for part in (scene.agent_pos, scene.agent_vel, scene.goal_pos)]
    for _ in range(2):  # the second step moves everything to its next episode
        env.step(torch.ones(num_envs, num_agents, dtype=torch.int64))
    later = env.scene()
    for before, now, after in zip(kept, (scene.agent_pos, scene.agent_vel, scene.goal_pos),
                                  (later.agent_pos, later.agent_vel, later.goal_pos)):  # fmt: skip
        assert torch.equal(now, before) and now.is_contiguous()
        assert now.data_ptr() != after.data_ptr()
    assert not torch.equal(later.agent_pos, scene.agent_pos) and not torch.equal(later.goal_pos, scene.goal_pos)
