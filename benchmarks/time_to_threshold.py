"""How long from Enter to a return, default recipe: seconds until mpe2's episode reward reaches each threshold.

    python benchmarks/time_to_threshold.py --out thresholds [--seeds 1-10] [--grid 3] [--figure curves.png]
    python benchmarks/time_to_threshold.py --out thresholds -- --total_env_steps 400000    # after --: main.py's flags
    python benchmarks/time_to_threshold.py --out thresholds --evaluate-only                # runs that are there, anew

Each seed is one `python main.py`, one after the other, timed from starting the process: imports and all that a run
does by default count, so nothing else may run on the machine. It keeps a checkpoint every few iterations, whose clock
is when its file appeared. Afterwards, on a grid of seconds, the newest checkpoint at each point plays fresh episodes
that no run uses (stream AFTERWARDS of envs/seeding.py) with deterministic actions; a threshold is reached at the first
of two such checkpoints in a row at or above it. All are scanned on the batched task from mpe2's own start states; what
decides (the two, and the one before them) is measured on mpe2 itself, as a run's final evaluation is
(timed_checkpoints.py). Of sets of 500 episodes some are 0.3 harder than others, for each policy alike; 2000 are enough
for that to matter little.

Given again it skips seeds that are done. OUT/curves.json has every grid checkpoint, OUT/seedN.json when each run began.
Exit code: 0 all targets are met · 1 one is not, or a run failed · 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from machine import machine  # noqa: E402
from threshold_report import TARGETS, Curves, draw, say_confirmations, say_times  # noqa: E402
from timed_checkpoints import Judge, Point, confirmed, on_grid, timed  # noqa: E402
from timed_runs import Trained, train, trained  # noqa: E402

from envs.registry import validate_settings  # noqa: E402
from envs.seeding import AFTERWARDS  # noqa: E402
from navrl.checkpoint import CheckpointError  # noqa: E402
from navrl.config_sources import load  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.files import require_writable, write_text  # noqa: E402
from navrl.launch.expand import read_seeds  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402

DECIDED = ("config", "seed", "run_dir", "checkpoint_interval", "keep_artifacts", "resume", "if_exists")


def arguments() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a directory for the runs and for what is found")
    parser.add_argument("--seeds", nargs="+", default=["1-10"], metavar="SEED", help="1-5, or 1,2,9 (default: 1-10)")
    parser.add_argument("--config", default="configs/train/train_mpe.yaml", help="default: the main job")
    parser.add_argument("--checkpoint_interval", type=whole(1), default=3, help="iterations (default: 3)")
    parser.add_argument("--grid", type=whole(1), default=3, help="seconds between evaluated checkpoints (default: 3)")
    parser.add_argument("--episodes", type=whole(2), default=2000, help="an evaluation (default: 2000)")
    parser.add_argument("--figure", type=Path, help="image of the curves (pip install -r requirements-plots.txt)")
    parser.add_argument("--evaluate-only", action="store_true", help="start no run, evaluate anew those that are there")
    return parser


def main(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    parser, further = arguments(), argv[end + 1 :]
    options = parser.parse_args(argv[:end])
    for key in DECIDED:
        if any(word.partition("=")[0] == f"--{key}" for word in further):
            parser.error(f"--{key}: the benchmark decides that; take it out of the words after --")
    options.out = options.out.absolute()
    words = ["--config", options.config, *further, "--checkpoint_interval", str(options.checkpoint_interval)]
    try:
        seeds = read_seeds(options.seeds)
        if load(words, os.environ, validate_settings).config.env_id != "simple_spread":
            parser.error("env_id: the thresholds are those of simple_spread")
        options.out.mkdir(parents=True, exist_ok=True)
        if options.figure:
            require_writable(options.figure)
            import matplotlib  # noqa: F401
        found = [run for seed in seeds if (run := trained(options.out, seed))]
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except ImportError:
        parser.error("--figure: matplotlib is not installed (pip install -r requirements-plots.txt)")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    expected = found[0].words if options.evaluate_only and found else words
    for run in found:
        if run.words != expected:
            parser.error(f"--out: seed {run.seed} ran with {shlex.join(run.words)}; take another directory")
    if options.evaluate_only and not found:
        parser.error(f"--evaluate-only: {options.out} holds no finished run of these seeds")
    print(machine("mpe2", "pettingzoo"))
    print(f"python benchmarks/time_to_threshold.py {shlex.join(argv)}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the run under way is stopped too
    try:
        runs = found if options.evaluate_only else [_finished(options.out, seed, words) for seed in seeds]
        curves = evaluate_all(runs, options)
    except (RuntimeError, CheckpointError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    say_confirmations(curves)
    met = say_times(runs, curves)
    if options.figure:
        draw(curves, options.grid, options.figure)
        print(options.figure)
    return 0 if met else 1


def _finished(out: Path, seed: int, words: Sequence[str]) -> Trained:
    if trained(out, seed) is None:
        train(out, seed, words)
    run = trained(out, seed)
    assert run is not None
    print(f"seed {seed}: {run.seconds:.1f} s, final reward {run.final['mean']['episode_reward']:.3f}", flush=True)
    return run


def evaluate_all(runs: Sequence[Trained], options: argparse.Namespace) -> Curves:
    """Curves by seed, also in ``OUT/curves.json``: those that are there are kept, unless they are to be made anew."""
    path = options.out / "curves.json"
    how = {"grid_seconds": options.grid, "episodes": options.episodes, "stream": AFTERWARDS}
    found = how | {"curves": {}} if options.evaluate_only else _earlier(path, how)
    curves = found["curves"]
    torch.set_num_threads(1)
    judge: Judge | None = None
    try:
        for run in runs:
            if curves.get(str(run.seed), {}).get("started") == run.started:
                continue
            points = on_grid(timed(run.run_dir, run.started), options.grid)
            if judge is None:
                judge = Judge(points[-1], options.episodes)
                found["luck"] = judge.luck()
            for point in points:
                point.scanned = judge.scan(point)
            points[-1].original = judge.measure(points[-1])  # also where no threshold was reached scan and mpe2 meet
            for threshold in TARGETS:
                confirmed(points, threshold, judge.measure)
            curves[str(run.seed)] = {"started": run.started, "points": [asdict(point) for point in points]}
            write_text(path, json.dumps(found, indent=1) + "\n")
            print(f"seed {run.seed}: {len(points)} checkpoints evaluated, {options.episodes} episodes each", flush=True)
    finally:
        if judge is not None:
            judge.close()
    print(found["luck"])
    return {run.seed: [Point(**point) for point in curves[str(run.seed)]["points"]] for run in runs}


def _earlier(path: Path, how: dict[str, Any]) -> dict[str, Any]:
    """What an earlier call has left, where it was made alike."""
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if {key: found.get(key) for key in how} == how:
            return found
    return how | {"curves": {}}


if __name__ == "__main__":
    run_program(main)
