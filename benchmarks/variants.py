"""Variants of the main job, a group of seeds each, every run in one process on one core; not a program.

Used by other_cells.py and recipe.py. Given again, what is finished is skipped and what was stopped goes on, as
scripts/launch.py does, whose engine it is.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import launch  # noqa: E402
from machine import machine  # noqa: E402

from envs.registry import validate_settings  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.launch.expand import Planned, expand, read_seeds  # noqa: E402
from navrl.launch.state import conflicts  # noqa: E402
from navrl.pipes import Parser, whole  # noqa: E402

Plan = dict[str, list[Planned]]


def arguments(description: str, variants: Mapping[str, str], seeds: str) -> Parser:
    """What both programs take; the words after ``--`` are main.py's, for all variants."""
    parser = Parser(description)
    parser.add_argument("--out", type=Path, required=True, help="a directory for the runs")
    parser.add_argument("--seeds", nargs="+", default=[seeds], metavar="SEED", help=f"1-5, or 1,2,9 (default: {seeds})")
    parser.add_argument("--config", default=str(ROOT / "configs/train/train_mpe.yaml"), help="default: the main job")
    parser.add_argument("--only", nargs="+", choices=list(variants), default=list(variants), metavar="VARIANT",
                        help=f"default: all, {', '.join(variants)}")  # fmt: skip
    parser.add_argument("--jobs", type=whole(1), help="runs at once (default: one a core)")
    return parser


def trained(parser: Parser, variants: Mapping[str, str], argv: Sequence[str]) -> tuple[Namespace, Plan]:
    """What ``argv`` asks for, with every run finished; prints the head of the table: machine and command.

    Raises SystemExit: 2 for bad input, else the launch's exit code where a run is not finished.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:end])
    try:
        plan = _plan_of(variants, options, argv[end + 1 :])
    except ConfigError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    everything = [run for runs in plan.values() for run in runs]
    code = launch.run_here(everything, Namespace(engine="local", jobs=options.jobs, retries=2, cpus=None, gpus=None))
    if code:
        raise SystemExit(code)
    print(machine("mpe2", "pettingzoo"))
    print(f"python benchmarks/{Path(sys.argv[0]).name} {shlex.join(argv)}")
    return options, plan


def _plan_of(variants: Mapping[str, str], options: Namespace, further: Sequence[str]) -> Plan:
    """The runs of each variant, whose words of main.py ``variants`` has. Raises ConfigError."""
    plan, seeds = {}, read_seeds(options.seeds)
    for name in dict.fromkeys(options.only):
        words = ["--processes", "1", "--run_dir", str(options.out.absolute()), "--group", name, *further]
        words = [*shlex.split(variants[name]), *words]
        plan[name] = expand([options.config], seeds, {}, words, os.environ, validate_settings)
    faults = [fault for runs in plan.values() for run in runs for fault in conflicts(run)]
    if faults:
        raise ConfigError(faults)
    return plan
