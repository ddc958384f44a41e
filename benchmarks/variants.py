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

from envs.registry import validate_settings  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.launch.expand import Planned, expand  # noqa: E402
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


def plan_of(
    variants: Mapping[str, str], names: Sequence[str], config: str, seeds: Sequence[int], out: Path, further: Sequence[str]
) -> Plan:
    """The runs of each variant, whose words of main.py ``variants`` has. Raises ConfigError."""
    plan = {}
    for name in dict.fromkeys(names):
        words = ["--processes", "1", "--run_dir", str(out.absolute()), "--group", name, *further]
        plan[name] = expand([config], seeds, {}, [*shlex.split(variants[name]), *words], os.environ, validate_settings)
    faults = [fault for runs in plan.values() for run in runs for fault in conflicts(run)]
    if faults:
        raise ConfigError(faults)
    return plan


def train(plan: Plan, jobs: int | None) -> int:
    """Train what is not trained; the exit code of the launch."""
    everything = [run for runs in plan.values() for run in runs]
    return launch.run_here(everything, Namespace(engine="local", jobs=jobs, retries=2, cpus=None, gpus=None))
