"""Environment steps a second of simple_spread on one core: ours, JaxMARL, VMAS and mpe2, by number of copies.

    benchmarks/peers/setup.sh .venv-peers                                      # once; then, on a quiet machine:
    python benchmarks/env_throughput.py --peers .venv-peers [--rounds 5] [--num_envs 1 64 128 1024 4096]
    python benchmarks/env_throughput.py --peers none --num_agents 2 8 32 64    # ours alone

One environment step is one joint step of one copy: physics, rewards, observations and the reset after 25 steps.
Actions are random and drawn beforehand, compilation is left out. In each round every program runs once, in a fresh
process on the same core with one thread; given are median (min .. max) over the rounds, ratios from within rounds.

Exit code: 0 · 1 at 128 or more copies ours is not twice the faster of JaxMARL and VMAS, or a program failed · 2 bad
input.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from alternation import OURS, Contestant, DriverError, add_flags, alternate, peers_directory  # noqa: E402
from alternation import rates, ratios, spread, versions  # noqa: E402
from machine import machine  # noqa: E402

from navrl.pipes import Parser, run_program, whole  # noqa: E402

TARGET, FROM_COPIES = 2.0, 128
VECTORISED = ("JaxMARL", "VMAS")


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 3600")
    return value


def arguments() -> Parser:
    parser = Parser(__doc__)
    add_flags(parser)
    parser.add_argument("--rounds", type=whole(1), default=5, help="default: 5")
    parser.add_argument("--num_envs", type=whole(1), nargs="+", default=[1, 64, 128, 1024, 4096], help="copies")
    parser.add_argument("--num_agents", type=whole(2), nargs="+", default=[3], help="default: 3")
    parser.add_argument("--seconds", type=seconds, default=2.0, help="a program, round and size (default: 2)")
    parser.add_argument("--continuous", action="store_true", help="continuous actions; with --peers none")
    parser.add_argument("--device", default="cpu", help="as torch names it; other than cpu with --peers none")
    return parser


def contestants(options: argparse.Namespace, peers: Path | None, agents: int, copies: int) -> list[Contestant]:
    words = ("--num_agents", str(agents), "--seconds", str(options.seconds))
    sized = (*words, "--num_envs", str(copies))
    how = (*(["--continuous"] if options.continuous else []), "--device", options.device)
    found = [Contestant(OURS, sys.executable, "navrl_env.py", (*sized, *how))]
    if peers is not None:
        python = peers / "venv" / "bin" / "python"
        found.append(Contestant("JaxMARL", python, "jaxmarl_env.py", sized))
        found.append(Contestant("VMAS", python, "vmas_env.py", sized))
        if copies == 1:
            found.append(Contestant("mpe2", python, "mpe2_env.py", words))
    return found


def main(argv: list[str]) -> int:
    parser = arguments()
    options = parser.parse_args(argv)
    peers = peers_directory(parser, options)
    if peers is not None and (options.continuous or options.device != "cpu"):
        parser.error("--peers: they are measured with discrete actions on the CPU; add --peers none")
    print(f"{machine()}; one core, one thread; {options.rounds} rounds of {options.seconds:g} s")
    print(f"{'agents':>6} {'copies':>6}  {'program':<8}{'env steps/s':>36}{'ours / it':>24}")
    seen, met = {}, True
    try:
        for agents in options.num_agents:
            for copies in options.num_envs:
                found = alternate(contestants(options, peers, agents, copies), options.rounds, options.core)
                ours = rates(found[OURS])
                for name, results in found.items():
                    against = "" if name == OURS else spread(ratios(ours, rates(results)), 2)
                    print(f"{agents:6} {copies:6}  {name:<8}{spread(rates(results)):>36}{against:>24}", flush=True)
                if peers is not None and copies >= FROM_COPIES:
                    faster = [max(pair) for pair in zip(*(rates(found[name]) for name in VECTORISED))]
                    met &= statistics.median(ratios(ours, faster)) >= TARGET
                seen |= found
    except DriverError as error:
        print(error, file=sys.stderr)
        return 1
    print(versions(seen))
    if peers is not None:
        target = f"at least {TARGET:g} times the faster of {' and '.join(VECTORISED)} from {FROM_COPIES} copies on"
        print(f"target, {target}: {'met' if met else 'NOT met'}")
    return int(not met)


if __name__ == "__main__":
    run_program(main)
