"""Lose a node of a Ray cluster amid its run: do all runs finish, and is each the run that nobody disturbed?

    python benchmarks/ray_node_loss.py [--seeds 4] [--steps 20000]

Two node processes with one CPU each on this machine, as many runs as seeds. The launcher is stopped (SIGTERM) while a
run is on each node, and the command given again. Once the run on the second node has a checkpoint, everything on that
node is killed (-9) at once, as when a machine goes down. Every run is compared with the same run by a local launcher.
Exit code 1 where anything is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from exactness import compare
from machine import machine

from launch_tools import LAUNCH, until  # noqa: E402
from ray_tools import Cluster  # noqa: E402
from whole_runs import run_dirs, summary, tiny_argv  # noqa: E402

from navrl.tracking.record import read_events, read_rows  # noqa: E402


def launch(root: Path, options: argparse.Namespace, *words: str, environ: dict[str, str]) -> subprocess.Popen:
    (root.parent / "tiny.yaml").write_text("env_id: simple_spread\n")
    flags = tiny_argv(root, "--total_env_steps", str(options.steps), "--checkpoint_interval", "5")
    return subprocess.Popen(
        [*LAUNCH, "--config", str(root.parent / "tiny.yaml"), "--seeds", f"1-{options.seeds}", *words, "--", *flags],
        env=environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def with_checkpoint(cluster: Cluster, node: int) -> bool:
    return any(list(run.glob("checkpoints/*.pt")) for run in cluster.runs(node))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20000, help="of each run, a multiple of 400 (default: 20000)")
    options = parser.parse_args()
    facts: dict[str, tuple[object, object]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        root, local = Path(scratch) / "ray" / "runs", Path(scratch) / "local" / "runs"
        root.parent.mkdir(), local.parent.mkdir()
        with Cluster(2) as cluster:
            began = time.monotonic()
            first = launch(root, options, "--engine", "ray", environ=cluster.environ)
            until(lambda: all(with_checkpoint(cluster, node) for node in range(2)), first)
            first.send_signal(signal.SIGTERM)
            facts["exit code of a launcher that is stopped"] = (first.wait(), 143)
            states = [summary(run)["status"] for run in run_dirs(root)]
            facts["runs that it stopped"] = (states, ["interrupted"] * 2)
            process = launch(root, options, "--engine", "ray", environ=cluster.environ)
            until(lambda: with_checkpoint(cluster, 1), process)
            there = cluster.runs(1)
            step = read_rows(there[0])[-1]["step"]
            print(
                f"killed {len(cluster.kill(1))} processes of the second node, with {there[0].name} at step {step}",
                flush=True,
            )
            facts["exit code of the launcher"] = (process.wait(), 0)
            took = time.monotonic() - began
        runs = run_dirs(root)
        facts["runs"] = (len(runs), options.seeds)
        facts["finished"] = (sum(summary(run)["status"] == "finished" for run in runs), options.seeds)
        attempts = {run: sum(event["event"] == "attempt" for event in read_events(run)) for run in runs}
        facts["processes that wrote the run of the lost node"] = (attempts[there[0]], 3)
        others = sorted(attempts[run] for run in runs if run != there[0])
        facts["of the other runs"] = (others, [1] * (options.seeds - 2) + [2])
        cut = [event["step"] for event in read_events(there[0]) if event["event"] == "cut"]
        facts["it went on from a checkpoint (a step above 0)"] = (cut[0] > 0, True)
        steps = list(range(0, options.steps + 1, 400))
        facts["runs with each step once"] = (
            sum([row["step"] for row in read_rows(run)] == steps for run in runs),
            options.seeds,
        )
        facts["exit code of a local launcher"] = (launch(local, options, environ=dict(os.environ)).wait(), 0)
        same = [max(compare(a, b).values()) for a, b in zip(run_dirs(local), runs)]
        facts["largest difference to its runs"] = (max(same), 0.0)
    print(f"{machine('mpe2')}, Ray's part took {took:.0f} s")
    for name, (value, wanted) in facts.items():
        print(f"{name:<52}{value}{'' if value == wanted else f'   NOT {wanted}'}")
    return int(any(value != wanted for value, wanted in facts.values()))


if __name__ == "__main__":
    sys.exit(main())
