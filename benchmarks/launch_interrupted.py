"""Kill a launcher, then a run of its successor, and repeat the command: is each run there once, and the right one?

    python benchmarks/launch_interrupted.py [--steps 20000] [--root DIRECTORY]

2 configurations × 3 seeds, --jobs 2. The launcher is killed (-9) while two runs train; the same command is given again
at once and one of its runs is killed (-9) as soon as that one has a checkpoint; the command ends, and is given a third
time. Every run is compared with the same run that nobody killed. Exit code 1 where anything is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from exactness import compare
from machine import machine

from launch_tools import LAUNCH, open_records, until  # noqa: E402
from whole_runs import run_dirs, summary, tiny_argv  # noqa: E402

from navrl.tracking.record import is_alive, read_events, read_rows  # noqa: E402


def launcher(root: Path, steps: int, out: Path) -> subprocess.Popen:
    """2 × 3 runs under ``root``; what it says goes to ``out``."""
    files = [root.parent / name for name in ("narrow.yaml", "wide.yaml")]
    for file, size in zip(files, (16, 32)):
        file.write_text(f"hidden_size: {size}\n")
    flags = tiny_argv(root, "--total_env_steps", str(steps), "--checkpoint_interval", "5")
    at = flags.index("--hidden_size")
    own = [*flags[:at], *flags[at + 2 :]]
    words = [*LAUNCH, "--config", *map(str, files), "--seeds", "1-3", "--jobs", "2", "--", *own]
    with open(out, "a", encoding="utf-8") as file:
        return subprocess.Popen(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, stdout=file,
                                stderr=file)  # fmt: skip


def training(root: Path) -> list[Path]:
    """Runs that have a checkpoint and go on."""
    return [run for run in run_dirs(root) if list(run.glob("checkpoints/*.pt")) and is_alive(run)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20000, help="of each run, a multiple of 400 (default: 20000)")
    parser.add_argument(
        "--root", type=Path, default=None, help="an empty directory for the runs (default: a temporary one)"
    )
    options = parser.parse_args()
    facts: dict[str, tuple[object, object]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        top = (options.root or Path(scratch)).absolute()
        root, said = top / "runs", top / "said.txt"
        top.mkdir(parents=True, exist_ok=True)
        first = launcher(root, options.steps, said)
        until(lambda: len(training(root)) == 2, first)
        first.kill()
        first.wait()
        orphans = training(root)
        print(f"killed the launcher; {len(orphans)} runs train on without it")

        second = launcher(root, options.steps, said)
        until(lambda: [run for run in training(root) if run not in orphans], second)
        victim = next(run for run in training(root) if run not in orphans)
        process = open_records(second.pid)[victim]
        step = read_rows(victim)[-1]["step"]
        os.kill(process, signal.SIGKILL)
        print(f"killed {victim.parent.name}/{victim.name} at step {step}")
        facts["exit code of the second launcher"] = (second.wait(), 0)
        third = launcher(root, options.steps, said)
        facts["exit code of the third, with nothing to do"] = (third.wait(), 0)
        text = said.read_text()
        facts["runs that were found running and waited for"] = (text.count(": elsewhere"), 2)

        (top / "whole").mkdir()
        whole = launcher(top / "whole" / "runs", options.steps, top / "whole" / "said.txt")
        facts["exit code of a launcher that nobody killed"] = (whole.wait(), 0)
        runs, equals = run_dirs(root), run_dirs(top / "whole" / "runs")
        facts["runs"] = (len(runs), 6)
        facts["finished"] = (sum(summary(run)["status"] == "finished" for run in runs), 6)
        attempts = [sum(event["event"] == "attempt" for event in read_events(run)) for run in runs]
        facts["processes that wrote a run"] = (sorted(attempts), [1, 1, 1, 1, 1, 2])
        steps = list(range(0, options.steps + 1, 400))
        facts["runs with each step once"] = (sum([row["step"] for row in read_rows(run)] == steps for run in runs), 6)
        same = [max(compare(a, b).values()) for a, b in zip(equals, runs)]
        facts["largest difference to the runs that nobody killed"] = (max(same), 0.0)
    print(machine("mpe2"))
    for name, (value, wanted) in facts.items():
        print(f"{name:<52}{value}{'' if value == wanted else f'   NOT {wanted}'}")
    return int(any(value != wanted for value, wanted in facts.values()))


if __name__ == "__main__":
    sys.exit(main())
