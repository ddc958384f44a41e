"""Driver: NAVRL's own training loop (collect and update, no evaluation, no record); prints one JSON line."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from timing import report

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from envs.registry import validate_settings  # noqa: E402
from envs.seeding import TRAIN, stream_seed  # noqa: E402
from navrl.config_sources import load  # noqa: E402
from runners.on_policy import OnPolicyRunner  # noqa: E402
from runners.setup import make_algorithm, make_training_env  # noqa: E402

WARM_UP = 2  # iterations: memory is allocated, moments are made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "train" / "mappo_official.yaml")
    args, keys = parser.parse_known_args()  # the rest are keys of the configuration
    config = load(["--config", str(args.config), *keys], {}, validate_settings).config
    torch.set_num_threads(config.torch_threads)
    device = torch.device("cpu")
    env = make_training_env(config, device)
    runner = OnPolicyRunner(config, env, make_algorithm(config, env.spec, device), stream_seed(config.seed, TRAIN))
    for _ in range(WARM_UP):
        runner.iterate()
    begin = time.perf_counter()
    for _ in range(args.iterations):
        runner.iterate()
    passed = time.perf_counter() - begin
    env.close()
    report(args.iterations * runner.steps_per_iteration / passed, ("torch", "numpy"))


if __name__ == "__main__":
    main()
