"""Driver: JaxMARL's own IPPO (feed-forward) or MAPPO (GRU) on its simple_spread; prints one JSON line.

The scripts are not in the package: --source is a clone of the repository. Compiled ahead; all updates are one call.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from types import ModuleType

import jax
import wandb
from timing import report

SCRIPTS = {"ippo_ff": "baselines/IPPO/ippo_ff_mpe.py", "mappo_rnn": "baselines/MAPPO/mappo_rnn_mpe.py"}


def script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="a clone of JaxMARL")
    parser.add_argument("--algorithm", choices=SCRIPTS, required=True)
    parser.add_argument("--num_envs", type=int, required=True)
    parser.add_argument("--rollout_length", type=int, required=True)
    parser.add_argument("--ppo_epoch", type=int, required=True)
    parser.add_argument("--hidden_size", type=int, required=True, help="of the GRU; the feed-forward script has 64")
    parser.add_argument("--iterations", type=int, required=True)
    args = parser.parse_args()
    env_steps = args.iterations * args.num_envs * args.rollout_length
    config = {  # the keys of the script's own configuration file; values of the official recipe
        "ENV_NAME": "MPE_simple_spread_v3", "ENV_KWARGS": {},
        "NUM_ENVS": args.num_envs, "NUM_STEPS": args.rollout_length,
        "TOTAL_TIMESTEPS": env_steps, "UPDATE_EPOCHS": args.ppo_epoch, "NUM_MINIBATCHES": 1,
        "FC_DIM_SIZE": args.hidden_size, "GRU_HIDDEN_DIM": args.hidden_size, "ACTIVATION": "tanh",
        "LR": 7e-4, "ANNEAL_LR": False, "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "SCALE_CLIP_EPS": False,
        "ENT_COEF": 0.01, "VF_COEF": 1.0, "MAX_GRAD_NORM": 10.0,
    }  # fmt: skip
    wandb.init(mode="disabled")  # the scripts log every update
    key = jax.random.PRNGKey(1)
    begin = time.perf_counter()
    compiled = jax.jit(script(args.source / SCRIPTS[args.algorithm]).make_train(config)).lower(key).compile()
    compile_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    jax.block_until_ready(compiled(key))
    report(env_steps / (time.perf_counter() - begin), ("jax", "jaxmarl", "flax"), compile_seconds)


if __name__ == "__main__":
    main()
