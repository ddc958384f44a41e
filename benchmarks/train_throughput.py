"""Environment steps a second of training, updates included, on one core: ours, on-policy and JaxMARL at equal sizes.

    benchmarks/peers/setup.sh .venv-peers                                      # once; then, on a quiet machine:
    python benchmarks/train_throughput.py --peers .venv-peers [--rounds 5] [--iterations 20]
    python benchmarks/train_throughput.py --peers none                         # ours alone
    python benchmarks/train_throughput.py --networks mlp -- --layer_norm false   # after --: main.py's flags, for ours

The official recipe's sizes (configs/train/mappo_official.yaml): 3 agents, 128 copies x 25 steps, 10 epochs of one
minibatch, hidden size 64. Ours is the real loop with its environment; on-policy's runner, trainer and buffer are given
an environment that costs nothing; JaxMARL's scripts run compiled, with their own environment. Compilation is left out
and given beside. In each round every program runs once, in a fresh process on the same core with one thread; given are
median (min .. max) over the rounds, ratios from within rounds.

Exit code: 0 · 1 a target is missed, or a program failed · 2 bad input.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from alternation import OURS, Contestant, DriverError, add_flags, alternate, peers_directory  # noqa: E402
from alternation import rates, ratios, spread, versions  # noqa: E402
from machine import machine  # noqa: E402

from envs.registry import validate_settings  # noqa: E402
from navrl.config_sources import load  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402

OFFICIAL = Path(__file__).resolve().parents[1] / "configs" / "train" / "mappo_official.yaml"
# By network, what ours has to reach against a peer
TARGETS = {("mlp", "on-policy MAPPO"): 2.0, ("mlp", "JaxMARL IPPO"): 1.0, ("gru", "JaxMARL MAPPO-RNN"): 1.0}
SCRIPTS = {
    "mlp": (
        ("on-policy MAPPO", "on_policy_train.py", "mappo",
         "free environment; critic once for each agent; actor and critic updated in turn"),
        ("JaxMARL IPPO", "jaxmarl_train.py", "ippo_ff",
         "no joint critic (own observation); no layer norm, value norm or Huber loss"),
    ),
    "gru": (
        ("on-policy rMAPPO", "on_policy_train.py", "rmappo",
         "free environment; critic once for each agent; chunks of 10 steps (ours 25); layer norm after the GRU"),
        ("JaxMARL MAPPO-RNN", "jaxmarl_train.py", "mappo_rnn",
         "critic once for each agent; one layer before and one after the GRU (ours two before); no layer norm"),
    ),
}  # fmt: skip
SOURCES = {"on_policy_train.py": "on-policy", "jaxmarl_train.py": "JaxMARL"}


def arguments() -> Parser:
    parser = Parser(__doc__)
    add_flags(parser)
    parser.add_argument("--rounds", type=whole(1), default=5, help="default: 5")
    parser.add_argument("--iterations", type=whole(1), default=20, help="of a program in a round (default: 20)")
    parser.add_argument("--networks", nargs="+", choices=SCRIPTS, default=["mlp", "gru"], help="default: mlp gru")
    parser.add_argument("--num_envs", type=whole(1), default=128, help="copies (default: 128)")
    parser.add_argument("--rollout_length", type=whole(1), default=25, help="steps an iteration (default: 25)")
    parser.add_argument("--ppo_epoch", type=whole(1), default=10, help="default: 10")
    return parser


def contestants(
    options: argparse.Namespace, peers: Path | None, network: str, further: Sequence[str]
) -> list[Contestant]:
    """Programs of one network; ``further``: configuration of ours, as main.py's flags."""
    keys = ("num_envs", "rollout_length", "ppo_epoch")
    sizes = [word for key in keys for word in (f"--{key}", str(vars(options)[key]))]
    iterations = ("--iterations", str(options.iterations))
    found = [Contestant(OURS, sys.executable, "navrl_train.py", (*iterations, *sizes, "--network", network, *further),
                        " ".join(["joint critic once a step; its own environment", *further]))]  # fmt: skip
    for name, driver, algorithm, differs in SCRIPTS[network] if peers is not None else ():
        words = ("--source", str(peers / SOURCES[driver]), "--algorithm", algorithm, "--hidden_size", "64")
        python = peers / "venv" / "bin" / "python"
        found.append(Contestant(name, python, driver, (*words, *iterations, *sizes), differs))
    return found


def main(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    parser, further = arguments(), argv[end + 1 :]
    options = parser.parse_args(argv[:end])
    try:
        for network in options.networks:
            load(["--config", str(OFFICIAL), "--network", network, *further], {}, validate_settings)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    peers = peers_directory(parser, options, "on-policy/onpolicy", "JaxMARL/baselines")
    sizes = f"{options.num_envs} copies x {options.rollout_length} steps, {options.ppo_epoch} epochs, 1 minibatch"
    print(f"{machine()}; one core, one thread; {options.rounds} rounds of {options.iterations} iterations; {sizes}")
    print(f"{'network':<8}{'program':<20}{'env steps/s':>26}{'ours / it':>24}{'compile s':>10}  what differs")
    seen, missed = {}, []
    try:
        for network in options.networks:
            programs = contestants(options, peers, network, further)
            found = alternate(programs, options.rounds, options.core)
            ours = rates(found[OURS])
            for program in programs:
                results = found[program.name]
                against = ratios(ours, rates(results))
                shown = "" if program.name == OURS else spread(against, 2)
                compiling = [result["compile_seconds"] for result in results]
                compiled = "" if None in compiling else f"{statistics.median(compiling):.0f}"
                print(f"{network:<8}{program.name:<20}{spread(rates(results)):>26}{shown:>24}{compiled:>10}  "
                      f"{program.differs}", flush=True)  # fmt: skip
                target = TARGETS.get((network, program.name), 0.0)
                if statistics.median(against) < target:
                    missed.append(f"{network}: less than {target:g} times {program.name}")
            seen |= found
    except DriverError as error:
        print(error, file=sys.stderr)
        return 1
    print(versions(seen))
    if peers is not None:
        print(f"targets NOT met: {'; '.join(missed)}" if missed else "targets met")
    return int(bool(missed))


if __name__ == "__main__":
    run_program(main)
