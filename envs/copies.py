"""Some copies of one PettingZoo ``ParallelEnv``, stepped one after another into arrays. Knows no processes, no torch.

Everything that an environment hands over is checked here: ``Refusal`` says at construction why a task cannot be
used, ``CopyFault`` says which copy, agent, step and episode misbehaved while running.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import math
import numbers
import os
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from envs.mpe import adapter
from envs.integer_seeds import episode_seed

ANY_TASKS_SEED_BITS = 32  # what numpy's RandomState, which many tasks still use, takes at most
MAX_OBSERVATION = 4096  # numbers; larger than this is an image, which no network here is made for


Shapes = dict[str, tuple[tuple[int, ...], str]]  # of the arrays of a batch: name -> shape, dtype


class Refusal(Exception):
    """The task cannot be used, whatever the copies do."""


class CopyFault(Exception):
    """A copy misbehaved while running."""


@dataclass(frozen=True)
class Description:
    """What one copy says of itself; all copies of all workers must say the same."""

    package: str
    version: str
    agents: tuple[str, ...]
    obs_sizes: tuple[int, ...]
    action_kind: str  # "discrete" | "continuous"
    action_sizes: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    max_cycles: int | None
    world: adapter.WorldFacts | None  # mpe2 only
    exact_state: bool  # the running episode can be saved and restored


def array_shapes(task: Description, num_envs: int, num_workers: int, dtype: str) -> Shapes:
    """Shape and dtype of each array of the batch, in the order in which they lie in shared memory."""
    agents, size = len(task.agents), max(task.obs_sizes)
    actions = (num_envs, agents) if task.action_kind == "discrete" else (num_envs, agents, max(task.action_sizes))
    goals = task.world.num_goals if task.world else 0
    return {
        "actions": (actions, "int64" if task.action_kind == "discrete" else "float64"),
        "obs": ((num_envs, agents, size), dtype),
        "final_obs": ((num_envs, agents, size), dtype),
        "reward": ((num_envs, agents), "float64"),
        "agent_pos": ((num_envs, agents, 2), "float64"),
        "agent_vel": ((num_envs, agents, 2), "float64"),
        "goal_pos": ((num_envs, goals, 2), "float64"),
        "episode": ((num_envs,), "int64"),
        "steps": ((num_envs,), "int64"),  # of the running episode
        "progress": ((num_workers,), "int64"),  # counts finished calls into a copy; how a hang is told from slow work
        "current": ((num_workers,), "int64"),  # copy that is being called, -1 between calls
        "terminated": ((num_envs,), "bool"),
        "truncated": ((num_envs,), "bool"),
    }


def views(buffer: Any, shapes: Shapes) -> dict[str, np.ndarray]:
    arrays, offset = {}, 0
    for name, (shape, dtype) in shapes.items():
        count = math.prod(shape)
        arrays[name] = np.frombuffer(buffer, dtype, count, offset).reshape(shape)
        offset += -(-count * np.dtype(dtype).itemsize // 64) * 64  # cache lines are never shared between arrays
    return arrays


def buffer_size(shapes: Shapes) -> int:
    return sum(-(-math.prod(shape) * np.dtype(dtype).itemsize // 64) * 64 for shape, dtype in shapes.values()) + 64


def load_function(module: str, function: str) -> Any:
    """Import ``module.function``; Refusal says what of it is missing."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # pygame greets on stdout
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module + ".").startswith(error.name + "."):
            raise Refusal(f"no module named {error.name!r}; is its package installed?") from None
        raise Refusal(f"module {module!r} needs {error.name!r}, which is not installed") from None
    except Exception as error:
        raise Refusal(f"importing {module!r} failed: {type(error).__name__}: {error}") from error
    try:
        return getattr(loaded, function)
    except AttributeError:
        raise Refusal(
            f"module {module!r} has no function {function!r}; PettingZoo tasks name it 'parallel_env'"
        ) from None


@functools.cache  # every copy asks, and going through all that is installed takes a fifth of a second
def _package(module: str) -> tuple[str, str]:
    """Distribution that a module comes from, and its version."""
    top = module.partition(".")[0]
    try:
        return top, importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(top)
        return (names[0], importlib.metadata.version(names[0])) if names else (top, "unversioned")


class _BoxReader:
    """Array of a fixed shape and kind, flattened."""

    def __init__(self, space: Any) -> None:
        self.shape = tuple(space.shape)
        self.size = math.prod(self.shape)
        self.dtype = space.dtype

    def read(self, value: Any) -> Any:
        array = np.asarray(value)
        if array.shape != self.shape:
            raise ValueError(f"observation has shape {array.shape}, its space says {self.shape}")
        # float64 where the space says float32 is common and harmless; another kind is another meaning
        if array.dtype != self.dtype and not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise ValueError(f"observation has dtype {array.dtype}, its space says {self.dtype}")
        return array if array.ndim == 1 else array.ravel()


class _ChoiceReader:
    """One of n, as a one-hot vector."""

    def __init__(self, space: Any) -> None:
        self.size = int(space.n)
        self.start = int(space.start)

    def read(self, value: Any) -> Any:
        integer = isinstance(value, (numbers.Integral, np.ndarray)) and np.ndim(value) == 0
        if not integer or not 0 <= int(value) - self.start < self.size:
            raise ValueError(f"observation {value!r} is none of its space's {self.size} choices from {self.start}")
        row = np.zeros(self.size)
        row[int(value) - self.start] = 1.0
        return row


def _reader(agent: str, space: Any) -> _BoxReader | _ChoiceReader:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        reader: _BoxReader | _ChoiceReader = _ChoiceReader(space)
    elif isinstance(space, (spaces.Box, spaces.MultiBinary)):
        reader = _BoxReader(space)
    else:
        raise Refusal(
            f"agent {agent!r} observes a {type(space).__name__} space; Box, Discrete and MultiBinary can be used"
        )
    if not 1 <= reader.size <= MAX_OBSERVATION:
        raise Refusal(f"agent {agent!r} observes {reader.size} numbers; from 1 to {MAX_OBSERVATION} can be used")
    return reader


def _actions(
    agents: list[Any], action_spaces: list[Any]
) -> tuple[str, tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """Kind, sizes, low and high for all agents, or a Refusal that names the agent in the way."""
    from gymnasium import spaces

    kinds = []
    for agent, space in zip(agents, action_spaces):
        if isinstance(space, spaces.Discrete):
            kinds.append("discrete")
        elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            kinds.append("continuous")
        else:
            raise Refusal(
                f"agent {agent!r} acts in a {type(space).__name__} space ({space}); Discrete and float Box can be used"
            )
    if len(set(kinds)) > 1:
        other = agents[kinds.index("continuous" if kinds[0] == "discrete" else "discrete")]
        raise Refusal(
            f"agent {agents[0]!r} has {kinds[0]} actions and agent {other!r} has not; all agents must have one kind"
        )
    if kinds[0] == "discrete":
        return "discrete", tuple(int(space.n) for space in action_spaces), (), ()

    sizes = tuple(math.prod(space.shape) for space in action_spaces)
    low: list[float] = []
    high: list[float] = []
    for agent, space, size in zip(agents, action_spaces, sizes):
        if size == 0:
            raise Refusal(f"agent {agent!r} has an action of no dimensions")
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise Refusal(f"agent {agent!r} has unbounded actions ({space}); finite bounds are needed")
        for d, bounds in enumerate(zip(space.low.ravel().tolist(), space.high.ravel().tolist())):
            if d == len(low):
                low.append(bounds[0])
                high.append(bounds[1])
            elif bounds != (low[d], high[d]):
                raise Refusal(
                    f"agent {agent!r} has bounds {bounds} in action dimension {d} where another has "
                    f"{(low[d], high[d])}; all agents must have the same"
                )
    return "continuous", sizes, tuple(low), tuple(high)


class Copies:
    """Copies ``first`` to ``first + count - 1`` of a batch. Arrays hold the whole batch; only own rows are written."""

    def __init__(self, module: str, function: str, kwargs: dict[str, Any], first: int, count: int, worker: int) -> None:
        self.first, self.count, self.worker = first, count, worker
        self.name = f"{module}:{function}"
        self.module, self.kwargs = module, kwargs
        self.build = load_function(module, function)
        self.envs = [self._construct()]
        self.task = self._describe(self.envs[0])

    def _construct(self) -> Any:
        try:
            return self.build(**self.kwargs)
        except Exception as error:
            given = ", ".join(f"{key}={value!r}" for key, value in self.kwargs.items())
            raise Refusal(f"{self.name}({given}) failed: {type(error).__name__}: {error}") from error

    def _describe(self, env: Any) -> Description:
        needed = ("reset", "step", "observation_space", "action_space", "unwrapped")
        if not all(hasattr(env, name) for name in needed) or hasattr(env, "agent_iter"):
            raise Refusal(
                f"{self.name} makes a {type(env).__name__}, not a PettingZoo ParallelEnv (try 'parallel_env')"
            )
        agents = list(getattr(env, "possible_agents", ()))
        if not agents:
            raise Refusal(f"{self.name} has no possible_agents; agents must be known from the start")
        try:
            env.reset(seed=0)
            present = list(env.agents)
            observation_spaces = [env.observation_space(agent) for agent in agents]
            action_spaces = [env.action_space(agent) for agent in agents]
        except Exception as error:
            raise Refusal(f"{self.name} failed at its first reset: {type(error).__name__}: {error}") from error
        if set(present) != set(agents):
            odd = sorted(map(str, set(present) ^ set(agents)))[0]
            raise Refusal(f"agent {odd!r} is not there from the start; agents that come or go cannot be used")
        self.agents = agents
        self.readers = [_reader(agent, space) for agent, space in zip(agents, observation_spaces)]
        kind, sizes, low, high = _actions(agents, action_spaces)
        self.action_spaces = action_spaces
        self.action_sizes = sizes
        self.discrete = kind == "discrete"
        self.action_starts = [int(space.start) for space in action_spaces] if self.discrete else []
        self.has_starts = any(self.action_starts)
        self.is_mpe2 = adapter.is_mpe2(env)
        if self.is_mpe2:
            adapter.repair_curriculum(env)
        max_cycles = getattr(env.unwrapped, "max_cycles", None)
        package, version = _package(self.module)
        return Description(
            package=package,
            version=version,
            agents=tuple(map(str, agents)),
            obs_sizes=tuple(reader.size for reader in self.readers),
            action_kind=kind,
            action_sizes=sizes,
            low=low,
            high=high,
            max_cycles=int(max_cycles) if isinstance(max_cycles, numbers.Integral) else None,
            world=adapter.facts(env) if self.is_mpe2 else None,
            exact_state=self._can_save(env),
        )

    def _can_save(self, env: Any) -> bool:
        try:
            return self.is_mpe2 and bool(adapter.save(env))
        except TypeError:
            return False

    def attach(self, buffer: Any, shapes: Shapes, auto_reset: bool) -> None:
        """Give the copies their arrays, and build all but the first."""
        self.auto_reset = auto_reset
        arrays = views(buffer, shapes)
        self.progress, self.current = arrays.pop("progress"), arrays.pop("current")
        for name, array in arrays.items():
            setattr(self, name, array[self.first : self.first + self.count])
        while len(self.envs) < self.count:
            self.current[self.worker] = self.first + len(self.envs)
            env = self._construct()
            if self._describe(env) != self.task:
                raise Refusal(f"{self.name} describes itself differently from one copy to the next")
            self.envs.append(env)
            self.progress[self.worker] += 1
        self.current[self.worker] = -1

    # ---- one call for all copies -----------------------------------------------------------------------------

    def reset(self, seed: int, first_env: int) -> None:
        """Start every copy's episode 0."""
        self.seed, self.first_env = seed, first_env
        self.episode[:] = 0
        self._each(self._start)

    def step(self) -> None:
        """Advance every copy by the actions in ``actions``."""
        self._each(self._step)

    def scene(self) -> None:
        self._each(lambda i: adapter.write_scene(self.envs[i], self.agent_pos[i], self.agent_vel[i], self.goal_pos[i]))

    def stage(self, stage: int) -> None:
        """Curriculum stage, where the task has one."""
        self._each(lambda i: self._set_stage(i, stage))

    def save(self) -> list[str]:
        """Running episodes, one JSON text a copy (exact_state only)."""
        return [adapter.save(env) for env in self.envs]

    def load(self, seed: int, first_env: int, worlds: list[str] | None) -> None:
        """Go on in the episodes that ``episode`` numbers; without worlds, at their start."""
        self.seed, self.first_env = seed, first_env

        def put(i: int) -> None:
            kept = self.obs[i].copy(), self.steps[i], self.terminated[i], self.truncated[i]
            self._start(i)
            if worlds is not None:
                adapter.load(self.envs[i], worlds[i])
                self.obs[i], self.steps[i], self.terminated[i], self.truncated[i] = kept

        self._each(put)

    def close(self) -> None:
        for env in self.envs:
            try:
                env.close()
            except Exception:
                pass  # closing what has gone wrong may go wrong: nothing is lost by it
        self.envs = []

    # ---- one copy --------------------------------------------------------------------------------------------

    def _each(self, call: Any) -> None:
        for i in range(self.count):
            self.current[self.worker] = self.first + i
            call(i)
            self.progress[self.worker] += 1
        self.current[self.worker] = -1

    def _start(self, i: int) -> None:
        """Reset copy ``i`` into its episode ``episode[i]``."""
        env = self.envs[i]
        self.steps[i] = 0
        self.terminated[i] = self.truncated[i] = False
        bits = 63 if self.is_mpe2 else ANY_TASKS_SEED_BITS
        seed = episode_seed(self.seed, self.first_env + i + self.first, int(self.episode[i]), bits)
        try:
            observations, _ = env.reset(seed=seed)
        except (Exception, SystemExit) as error:
            self._raised(i, "reset", error)
        self._check_all_here(i)
        self._observe(i, observations, self.obs[i])

    def _step(self, i: int) -> None:
        if self.terminated[i] or self.truncated[i]:
            if not self.auto_reset:  # the API cannot go on past an end: the copy stays as it was there
                self.reward[i] = 0.0
                return
            self.terminated[i] = self.truncated[i] = False  # flags of the step before
        self.steps[i] += 1
        try:
            observations, rewards, terminations, truncations, _ = self.envs[i].step(self._action_dict(i))
        except (Exception, SystemExit) as error:
            self._raised(i, "step", error)
        self._pay(i, rewards)
        if not self._ended(i, terminations, truncations):
            self._check_all_here(i)
            self._observe(i, observations, self.obs[i])
            return
        self._observe(i, observations, self.final_obs[i])
        if not self.auto_reset:
            self.obs[i] = self.final_obs[i]
            return
        terminated, truncated = self.terminated[i], self.truncated[i]
        self.episode[i] += 1
        self._start(i)
        self.terminated[i], self.truncated[i] = terminated, truncated

    def _action_dict(self, i: int) -> dict[Any, Any]:
        if self.discrete:
            row = self.actions[i].tolist()
            if self.has_starts:
                row = [action + start for action, start in zip(row, self.action_starts)]
            return dict(zip(self.agents, row))
        return {
            agent: np.clip(self.actions[i, j, :size].reshape(space.shape), space.low, space.high).astype(space.dtype)
            for j, (agent, size, space) in enumerate(zip(self.agents, self.action_sizes, self.action_spaces))
        }

    def _observe(self, i: int, observations: Any, out: np.ndarray) -> None:
        for j, (agent, reader) in enumerate(zip(self.agents, self.readers)):
            try:
                value = observations[agent]
            except (KeyError, TypeError):
                self._fault(i, "no observation was returned", agent)
            try:
                out[j, : reader.size] = reader.read(value)
            except (ValueError, TypeError) as error:
                self._fault(i, str(error), agent)
        if not np.isfinite(out).all():
            j = int(np.argmin(np.isfinite(out).all(axis=-1)))
            self._fault(i, f"observation is not finite: {out[j]}", self.agents[j])

    def _pay(self, i: int, rewards: Any) -> None:
        out = self.reward[i]
        for j, agent in enumerate(self.agents):
            try:
                reward = rewards[agent] if agent in rewards else None
            except TypeError:
                reward = None
            if reward is None:
                self._fault(i, "no reward was returned", agent)
            if isinstance(reward, np.ndarray) and reward.ndim == 0:
                reward = reward[()]
            if not isinstance(reward, numbers.Real) and not isinstance(reward, np.bool_):
                self._fault(i, f"reward {reward!r} is not a number", agent)
            reward = float(reward)
            if not math.isfinite(reward):
                self._fault(i, f"reward is not finite: {reward}", agent)
            out[j] = reward

    def _ended(self, i: int, terminations: Any, truncations: Any) -> bool:
        """Set the flags of an episode that ends now. A terminal state is one whatever the time limit says."""
        try:
            terminated = [bool(terminations[agent]) for agent in self.agents]
            truncated = [bool(truncations[agent]) for agent in self.agents]
        except (KeyError, TypeError, ValueError) as error:
            self._fault(i, f"terminations or truncations lack an agent: {type(error).__name__}: {error}")
        gone = [agent for agent, a, b in zip(self.agents, terminated, truncated) if a or b]
        if not gone:
            return False
        if len(gone) < len(self.agents):
            self._fault(i, "left the episode while others go on; all agents must end together", gone[0])
        self.terminated[i] = any(terminated)
        self.truncated[i] = not self.terminated[i]
        return True

    def _check_all_here(self, i: int) -> None:
        present = self.envs[i].agents
        if present != self.agents and set(present) != set(self.agents):
            came = [agent for agent in present if agent not in self.agents]
            gone = [agent for agent in self.agents if agent not in present]
            what = "appeared in the running episode" if came else "is gone from the running episode"
            self._fault(i, f"{what}; agents that come or go cannot be used", (came or gone)[0])

    def _set_stage(self, i: int, stage: int) -> None:
        setter = getattr(self.envs[i].unwrapped, "set_curriculum_stage", None)
        if setter is not None:
            try:
                setter(stage)
            except Exception as error:
                self._raised(i, "set_curriculum_stage", error)

    def _raised(self, i: int, call: str, error: BaseException) -> NoReturn:
        trace = "".join(traceback.format_exception(error)).rstrip()
        self._fault(i, f"{call} raised {type(error).__name__}: {error}", trace=trace)

    def _fault(self, i: int, what: str, agent: Any = None, trace: str = "") -> NoReturn:
        who = f", agent {agent}" if agent is not None else ""
        where = f"{self.name}, copy {self.first + i}{who}, step {self.steps[i]} of episode {self.episode[i]}"
        raise CopyFault(f"{where}: {what}" + (f"\n{trace}" if trace else "")) from None
