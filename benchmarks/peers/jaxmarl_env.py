"""Driver: JaxMARL's simple_spread, compiled, under random actions that are drawn beforehand; prints one JSON line.

``step`` resets itself (it computes a reset at every step and selects), vmapped over copies, scanned over an episode.
The observation is carried from step to step, so that the compiler cannot leave it out; it is not stored.
"""

from __future__ import annotations

import time

import jax
import jaxmarl
from timing import rate, report, sizes

EPISODE = 25


def main() -> None:
    args = sizes(__doc__).parse_args()
    # an episode of JaxMARL ends one step after ``max_steps``
    env = jaxmarl.make("MPE_simple_spread_v3", num_agents=args.num_agents, num_landmarks=args.num_agents,
                       max_steps=EPISODE - 1)  # fmt: skip
    key, at_reset, at_actions = jax.random.split(jax.random.key(0), 3)
    actions = jax.random.randint(at_actions, (EPISODE, args.num_agents, args.num_envs), 0, 5)

    def episode(carry):
        def step(carry, action):
            key, obs, state, total = carry
            key, now = jax.random.split(key)
            obs, state, rewards, _, _ = jax.vmap(env.step)(
                jax.random.split(now, args.num_envs), state, dict(zip(env.agents, action))
            )
            return (key, obs, state, total + sum(rewards.values())), None

        return jax.lax.scan(step, carry, actions)[0]

    obs, state = jax.vmap(env.reset)(jax.random.split(at_reset, args.num_envs))
    carry = (key, obs, state, jax.numpy.zeros(args.num_envs))
    begin = time.perf_counter()
    compiled = jax.jit(episode).lower(carry).compile()
    compile_seconds = time.perf_counter() - begin

    def play() -> None:
        nonlocal carry
        carry = jax.block_until_ready(compiled(carry))

    report(rate(play, EPISODE * args.num_envs, args.seconds), ("jax", "jaxmarl"), compile_seconds)


if __name__ == "__main__":
    main()
