"""simple_spread as tensors: mpe2's ``simple_spread_v3`` (mpe2 1.1.1) for thousands of copies at once."""

from __future__ import annotations

from typing import Any

import torch

from envs.base import ActionSpec, BatchEnv, Scene, Step, TaskSpec
from envs.mpe.simple_spread_spec import AGENT_RADIUS, CAPTURE_RADIUS, COMMUNICATION_SIZE, geometry, layout
from envs.mpe.world import World
from envs.registry import package_version, resolve_settings
from envs.seeding import uniform

SENSITIVITY = 5.0  # force of a full action; mpe2: SimpleEnv._set_action
LAST_STAGE = 1  # curriculum: stage 0 has no collision penalty, stage 1 is the whole task


class BatchedSimpleSpread(BatchEnv):
    """``num_envs`` copies of simple_spread: N agents cover N landmarks without touching each other.

    Settings (mpe2's own, ``num_agents`` being its ``N``): ``num_agents`` 3, ``max_cycles`` 25, ``local_ratio``
    0.5, ``continuous_actions`` False, ``terminate_on_success`` False, ``num_agent_neighbors`` None,
    ``num_landmark_neighbors`` None, ``curriculum`` False. Raises ``TaskError`` for any other name or value.

    Actions: int64 ``[E, N]`` in 0..4 (none, left, right, down, up), or floats ``[E, N, 5]``, clipped to [0, 1],
    whose force is (a2 - a1, a4 - a3). Observations ``[E, N, 4 + 2L + 4(N-1)]``: velocity, position, landmarks,
    other agents, their (silent) communication; relative positions; see ``simple_spread_spec.layout``.
    Rewards ``[E, N]``: ``(1 - local_ratio)`` times minus the summed distance of each landmark to its nearest
    agent, minus ``local_ratio`` for each other agent in contact.

    An episode that is covered at ``max_cycles`` is truncated, not terminated, as in mpe2. Without
    ``terminate_on_success`` all copies end at one step, which the host counts, and nothing waits for the device.
    ``set_stage``'s stage 1 restores the collision penalty, as mpe2 documents; mpe2 1.1.1 itself cannot leave stage 0.

    float32 for training; float64 equals mpe2's own arithmetic to about 1e-12. Returned tensors are fresh: later
    steps do not write into them.
    """

    def __init__(
        self,
        num_envs: int,
        settings: dict[str, Any] | None = None,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        auto_reset: bool = True,
    ) -> None:
        settings = resolve_settings("simple_spread", settings or {})
        n = settings["num_agents"]
        self.num_envs, self.device, self.dtype, self.auto_reset = num_envs, torch.device(device), dtype, auto_reset
        self._max_cycles: int = settings["max_cycles"]
        self._local_ratio: float = settings["local_ratio"]
        self._continuous: bool = settings["continuous_actions"]
        self._terminates: bool = settings["terminate_on_success"]
        self._curriculum: bool = settings["curriculum"]
        self._neighbors: tuple[int | None, int | None] = (
            settings["num_landmark_neighbors"], settings["num_agent_neighbors"]
        )
        self._stage = 0
        slices = layout(n, settings["num_agent_neighbors"], settings["num_landmark_neighbors"])
        self.spec = TaskSpec(
            env_id="simple_spread",
            backend="batched",
            package="mpe2",
            package_version=package_version("mpe2"),
            agents=tuple(f"agent_{i}" for i in range(n)),
            roles=("agent",) * n,
            score_role="agent",
            obs_sizes=(slices.communication.stop,) * n,
            action=ActionSpec("continuous", 5, (5,) * n, (0.0,) * 5, (1.0,) * 5)
            if self._continuous
            else ActionSpec("discrete", 5, (5,) * n),
            max_cycles=self._max_cycles,
            shared_reward=n == 1 or self._local_ratio == 0,
            layout=slices,
            geometry=geometry(n),
            settings=settings,
        )
        self._action_shape = (num_envs, n, 5) if self._continuous else (num_envs, n)
        self.world = World(num_envs, n, n, AGENT_RADIUS, dtype, self.device)
        self._obs_rows = self.world.observation_rows().flatten().to(self.device)
        self._directions = torch.tensor([[0, -1, 1, 0, 0], [0, 0, 0, -1, 1]], dtype=dtype, device=self.device)
        self._directions *= SENSITIVITY
        self.reset(0)

    def reset(self, seed: int, first_env: int = 0) -> torch.Tensor:
        """Start every copy's episode 0; see ``BatchEnv.reset``. Agents and landmarks uniform on [-1, 1]^2, at rest."""
        self._seed, self._first_env = seed, first_env
        self._env = torch.arange(first_env, first_env + self.num_envs, device=self.device)
        self._episode = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._start_clocks(0)
        self.world.place(self._start_state())
        return self._observe()

    def step(self, actions: torch.Tensor) -> Step:
        """See ``BatchEnv.step``. Raises ``ValueError`` for actions of a wrong shape."""
        if actions.shape != self._action_shape:
            raise ValueError(f"actions have shape {tuple(actions.shape)}; this task takes {self._action_shape}")
        self.world.step(self._control(actions))
        reward = self._reward()
        obs = self._observe()
        self._elapsed += 1
        if self._terminates:
            return self._finish_each(obs, reward)
        ended = self._elapsed >= self._max_cycles
        truncated = torch.full((self.num_envs,), ended, device=self.device)
        terminated = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        if not ended:
            return Step(obs, reward, terminated, truncated, None)
        final_obs = obs
        if self.auto_reset:
            self._elapsed = 0
            self._episode += 1
            self.world.place(self._start_state())
            obs = self._observe()
        return Step(obs, reward, terminated, truncated, final_obs)

    def _finish_each(self, obs: torch.Tensor, reward: torch.Tensor) -> Step:
        """End each copy by its own clock or success, without looking at the device."""
        truncated = self._elapsed >= self._max_cycles
        terminated = self._covered() & ~truncated
        final_obs = obs
        if self.auto_reset:
            done = terminated | truncated
            self._elapsed.masked_fill_(done, 0)
            self._episode += done
            self.world.place(torch.where(done, self._start_state(), self.world.state))
            obs = self._observe()
        return Step(obs, reward, terminated, truncated, final_obs)

    def scene(self) -> Scene:
        """Copies of the current positions and velocities, ``[E, N, 2]``; goals are the landmarks."""
        rows = (self.world.pos, self.world.vel, self.world.landmarks)
        # not contiguous(): one copy of one agent is contiguous in any order, and would be handed out itself
        return Scene(*(row.permute(2, 1, 0).clone(memory_format=torch.contiguous_format) for row in rows))

    def set_stage(self, stage: int) -> None:
        """Curriculum stage (clamped to 0..1 as in mpe2); without ``curriculum`` it changes nothing."""
        self._stage = max(0, min(stage, LAST_STAGE))

    def set_state(
        self, agent_pos: torch.Tensor, agent_vel: torch.Tensor, landmark_pos: torch.Tensor
    ) -> torch.Tensor:
        """Put everything where the arguments say (``[E, N, 2]`` each) at the start of an episode; observations."""
        rows = [t.to(self.world.rows).permute(2, 1, 0) for t in (agent_vel, agent_pos, landmark_pos)]
        points = torch.cat(rows[1:], 1)
        self.world.place(torch.cat([rows[0].flatten(0, 1), points.flatten(0, 1)]))
        self._start_clocks(0)
        return self._observe()

    def state_dict(self) -> dict[str, Any]:
        """Copies, so later steps do not change them."""
        elapsed = self._elapsed.clone() if self._terminates else self._elapsed
        return {
            "seed": self._seed, "first_env": self._first_env, "stage": self._stage, "elapsed": elapsed,
            "episode": self._episode.clone(), "state": self.world.state.clone(),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> torch.Tensor:
        """Raises ``ValueError`` for the state of another number of copies or agents, or another ending rule."""
        if state["state"].shape != self.world.state.shape:
            raise ValueError(
                f"the saved environment state has shape {tuple(state['state'].shape)}, this environment's is "
                f"{tuple(self.world.state.shape)}: num_envs and num_agents must be those of the saved run"
            )
        if isinstance(state["elapsed"], torch.Tensor) != self._terminates:
            raise ValueError("the saved environment state comes from another value of terminate_on_success")
        self._seed, self._first_env, self._stage = state["seed"], state["first_env"], state["stage"]
        self._env = torch.arange(self._first_env, self._first_env + self.num_envs, device=self.device)
        self._episode = state["episode"].to(self.device, copy=True)
        elapsed = state["elapsed"]
        self._elapsed = elapsed.to(self.device, copy=True) if self._terminates else elapsed
        self.world.place(state["state"].to(self.world.rows))
        return self._observe()

    def _start_clocks(self, elapsed: int) -> None:
        # one clock on the host where all copies end together; else one per copy on the device
        self._elapsed: Any = (
            torch.full((self.num_envs,), elapsed, dtype=torch.int64, device=self.device)
            if self._terminates
            else elapsed
        )

    def _start_state(self) -> torch.Tensor:
        """Start states ``[num_state_rows, E]`` of every copy's current episode."""
        num_velocities = 2 * self.spec.num_agents
        count = self.world.num_state_rows - num_velocities
        points = uniform(self._seed, self._env, self._episode, count) * 2 - 1
        state = torch.zeros_like(self.world.state)
        state[num_velocities:] = points.t()
        return state

    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        """Forces ``[2, N, E]`` of the agents' own actions."""
        if not self._continuous:
            chosen = actions.t().reshape(-1)
            return self._directions.index_select(1, chosen).view(2, self.spec.num_agents, self.num_envs)
        a = actions.clamp(0.0, 1.0)
        force = torch.stack((a[..., 2] - a[..., 1], a[..., 4] - a[..., 3]))
        return force.transpose(1, 2).to(self.dtype) * SENSITIVITY

    def _reward(self) -> torch.Tensor:
        world, ratio = self.world, self._local_ratio
        shared = world.landmark_distance.amin(0).sum(0).mul_(ratio - 1)
        if self.spec.shared_reward or (self._curriculum and self._stage == 0):
            return shared.unsqueeze(1).repeat(1, self.spec.num_agents)
        contacts = (world.agent_distance < world.contact_distance).to(self.dtype).sum(1)
        return torch.sub(shared, contacts, alpha=ratio).t().contiguous()

    def _covered(self) -> torch.Tensor:
        return (self.world.landmark_distance.amin(0) < CAPTURE_RADIUS).all(0)

    def _observe(self) -> torch.Tensor:
        rows = self.world.rows
        if self._neighbors == (None, None):
            obs = rows.index_select(0, self._obs_rows)
        else:
            obs = self._observe_nearest()
        return obs.t().contiguous().view(self.num_envs, self.spec.num_agents, self.spec.obs_size)

    def _observe_nearest(self) -> torch.Tensor:
        """Observation rows ``[N * O, E]`` under partial observability: nearest first, zeros where none is left."""
        world, n, e = self.world, self.spec.num_agents, self.num_envs
        landmarks = _nearest(world.to_landmarks, world.landmark_distance, self._neighbors[0])
        agents = _nearest(world.to_agents, world.agent_distance, self._neighbors[1])
        silence = agents.new_zeros(n, agents.shape[2] * COMMUNICATION_SIZE, e)
        blocks = [world.vel.unsqueeze(2), world.pos.unsqueeze(2), landmarks, agents]
        flat = [block.permute(1, 2, 0, 3).flatten(1, 2) for block in blocks]
        return torch.cat(flat + [silence], 1).flatten(0, 1)


def _nearest(relative: torch.Tensor, distance: torch.Tensor, count: int | None) -> torch.Tensor:
    """The ``count`` nearest of M entities: ``[2, N, M, E]``, ``[N, M, E]`` -> ``[2, N, count, E]``; None = all."""
    if count is None:
        return relative
    order = distance.argsort(dim=1, stable=True)[:, :count]
    chosen = relative.gather(2, order.expand(2, -1, -1, -1))
    missing = count - chosen.shape[2]
    return torch.nn.functional.pad(chosen, (0, 0, 0, missing)) if missing else chosen
