"""Equal seeds, equal trajectories, whatever the number of copies or workers; a resumed run is the run never stopped."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from envs.mpe import adapter
from envs.pettingzoo import PettingZooEnv
from test_pettingzoo_tasks import MPE2, actions, build


def rollout(env: PettingZooEnv, steps: int, seed: int = 0) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(steps):
        step = env.step(actions(env, rng))
        out += [step.obs, step.reward, step.terminated, step.truncated]
    return out


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


def saved(state: dict) -> dict:
    """Through a file that is read without executing anything."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def test_equal_seeds_give_equal_runs_and_others_do_not():
    runs = []
    for seed in (1, 1, 2):
        env = build("mpe2.simple_spread_v3", num_workers=0)
        runs.append([env.reset(seed), *rollout(env, 60)])
    assert equal(runs[0], runs[1]) and not torch.equal(runs[0][0], runs[2][0])
    env.step(torch.zeros(2, 3, dtype=torch.int64))
    first = env.reset(1)  # a reset in the middle of an episode, after others
    assert torch.equal(first, runs[0][0])


def test_copies_episodes_and_steps_all_differ():
    env = build("mpe2.simple_spread_v3", num_envs=4, max_cycles=1)
    starts = [env.reset(0)] + [env.step(torch.zeros(4, 3, dtype=torch.int64)).obs for _ in range(5)]
    assert len({tuple(row.flatten().tolist()) for start in starts for row in start}) == 24


@pytest.mark.parametrize("module, function", [("mpe2.simple_spread_v3", "parallel_env"), ("toy_envs", "counter")])
def test_number_of_copies_and_workers_changes_nothing(module: str, function: str):
    whole = build(module, function, num_envs=5, num_workers=0)
    start = whole.reset(9)
    rng = np.random.default_rng(3)
    acts = [actions(whole, rng) for _ in range(30)]
    steps = [whole.step(a) for a in acts]
    for num_envs, first, workers in ((5, 0, 2), (2, 3, 0), (3, 1, 3)):
        part = build(module, function, num_envs=num_envs, num_workers=workers)
        rows = slice(first, first + num_envs)
        assert torch.equal(part.reset(9, first_env=first), start[rows])
        for act, step in zip(acts, steps):
            own = part.step(act[rows])
            for mine, theirs in zip(own, step):
                assert (mine is None and theirs is None) or torch.equal(mine, theirs[rows])
        part.close()


@pytest.mark.parametrize(
    "task, continuous", [(t, False) for t in MPE2] + [("simple_spread_v3", True), ("simple_world_comm_v3", True)]
)
def test_mpe2_resumes_bit_for_bit_amid_an_episode(task: str, continuous: bool):
    kwargs = {"continuous_actions": continuous, "dtype": torch.float64}
    env = build(f"mpe2.{task}", **kwargs)
    env.reset(4)
    rollout(env, 12, seed=1)
    state = env.state_dict()
    expected = rollout(env, 30, seed=2)  # to the end of this episode and into the next
    for other in (env, build(f"mpe2.{task}", **kwargs)):
        obs = other.load_state_dict(saved(state))
        assert torch.equal(obs, state["obs"])
        raw = other._group._copies.envs[0]
        agent = raw.possible_agents[0]
        assert np.array_equal(raw.unwrapped.observe(agent), obs[0, 0, : other.spec.obs_sizes[0]].float().numpy())
        assert equal(rollout(other, 30, seed=2), expected)


@pytest.mark.parametrize("task", MPE2)
def test_an_episode_can_be_put_into_an_environment_amid_another(task: str):
    """Nothing of the state may hide in the seed: the other environment was reset with another one."""
    make = importlib.import_module(f"mpe2.{task}").parallel_env
    one, other = make(), make()
    rng = np.random.default_rng(0)
    one.reset(seed=1)
    other.reset(seed=2)

    def act() -> dict[str, int]:
        return {agent: int(rng.integers(one.action_space(agent).n)) for agent in one.possible_agents}

    for _ in range(9):
        one.step(act())
    adapter.load(other, adapter.save(one))
    for _ in range(16):
        given = act()
        for mine, theirs in zip(one.step(given)[:4], other.step(given)[:4]):
            assert all(np.array_equal(mine[agent], theirs[agent]) for agent in one.possible_agents)
    assert not one.agents and not other.agents  # ended at step 25
    for mine, theirs in zip(one.reset()[0].values(), other.reset()[0].values()):  # from the generator's state
        assert np.array_equal(mine, theirs)


def test_workers_resume_what_one_process_saved_and_the_other_way_round():
    one = build("mpe2.simple_spread_v3", num_envs=5, num_workers=0, curriculum=True)
    many = build("mpe2.simple_spread_v3", num_envs=5, num_workers=2, curriculum=True)
    one.reset(4, first_env=11)
    one.set_stage(1)
    rollout(one, 30)
    state = saved(one.state_dict())
    expected = rollout(one, 60, seed=5)
    assert torch.equal(many.load_state_dict(state), state["obs"])
    assert equal(rollout(many, 60, seed=5), expected)
    back = saved(many.state_dict())
    expected = rollout(many, 30, seed=6)
    one.load_state_dict(back)
    assert equal(rollout(one, 30, seed=6), expected)
    many.close()


def test_resume_in_another_process(tmp_path: Path):
    env = build("mpe2.simple_tag_v3", num_workers=2, curriculum=True)
    env.reset(8)
    rollout(env, 10)
    torch.save(env.state_dict(), tmp_path / "state.pt")
    expected = rollout(env, 40, seed=7)
    here = Path(__file__).parent
    code = f"""
import sys, torch
sys.path[:0] = {[str(here), str(here.parent)]!r}
from test_pettingzoo_is_reproducible import build, rollout
env = build("mpe2.simple_tag_v3", num_workers=1, curriculum=True)
env.load_state_dict(torch.load({str(tmp_path / "state.pt")!r}, weights_only=True))
torch.save(rollout(env, 40, seed=7), {str(tmp_path / "out.pt")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert equal(torch.load(tmp_path / "out.pt", weights_only=True), expected)
    env.close()


def test_an_ended_copy_resumes_as_ended():
    env = build("mpe2.simple_spread_v3", auto_reset=False, max_cycles=3)
    env.reset(0)
    rollout(env, 3)
    other = build("mpe2.simple_spread_v3", auto_reset=False, max_cycles=3)
    other.load_state_dict(saved(env.state_dict()))
    assert equal(rollout(other, 2), rollout(env, 2))
    assert torch.equal(other.scene().agent_pos, env.scene().agent_pos)


def test_other_tasks_resume_at_the_next_episode():
    """Amid an episode the next one starts; at an episode's start that very one."""
    env = build("toy_envs", "counter", num_envs=3)
    assert not env.exact_resume
    env.reset(0)
    rollout(env, 7)  # episodes of 5 steps: episode 1, step 2
    state = saved(env.state_dict())
    rest = rollout(env, 3)  # its last obs are the start of episode 2
    other = build("toy_envs", "counter", num_envs=3, num_workers=2)
    assert torch.equal(other.load_state_dict(state), rest[-4])
    assert equal(rollout(other, 9, seed=1), rollout(env, 9, seed=1))
    other.load_state_dict(saved(env.state_dict()))
    other.close()
    env.reset(0)
    rollout(env, 5)
    state = saved(env.state_dict())
    assert torch.equal(build("toy_envs", "counter", num_envs=3).load_state_dict(state), state["obs"])


def test_a_state_of_another_batch_is_refused():
    env = build("toy_envs", "counter", num_envs=3)
    env.reset(0)
    state = env.state_dict()
    with pytest.raises(ValueError, match=r"\(3, 2, 3\)"):
        build("toy_envs", "counter", num_envs=2).load_state_dict(state)
    with pytest.raises(RuntimeError, match="reset"):
        build("toy_envs", "counter").step(torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="reset"):
        build("toy_envs", "counter").state_dict()
