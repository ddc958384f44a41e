"""Runs on a Ray cluster of two nodes: each has its place, and one whose node is lost goes on on the other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launch_tools import LAUNCH
from ray_tools import Cluster
from whole_runs import rows, run_dirs, summary, tiny_argv

from navrl.tracking.record import read_events

STEPS = 12000


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start the launcher with two tiny runs; what is left of it at the end is killed."""
    processes = []

    def start(environ: dict[str, str], *words: str) -> subprocess.Popen:
        processes.append(launcher(environ, tmp_path, *words))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def launcher(cluster_environ: dict[str, str], root: Path, *words: str) -> subprocess.Popen:
    (root / "tiny.yaml").write_text("env_id: simple_spread\n")
    own = ("--total_env_steps", str(STEPS), "--checkpoint_interval", "2", "--eval_interval", "1000")
    flags = tiny_argv(root / "runs", *own, "--privacy", "strict")
    return subprocess.Popen(
        [*LAUNCH, "--config", "tiny.yaml", "--seeds", "1-2", "--engine", "ray", *words, "--", *flags],
        cwd=root, env=cluster_environ, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_a_run_whose_node_is_lost_goes_on_elsewhere(tmp_path: Path, launch: Callable[..., subprocess.Popen]) -> None:
    """Before that, a launcher is stopped whose runs ask for more than there is: none of them begins."""
    with Cluster(2) as cluster:
        first = launch(cluster.environ, "--cpus", "2")
        assert first.stdout.readline().startswith("no node has 2 CPUs and 0 GPUs, as each run asks for")
        time.sleep(1)  # until it looks after signals
        first.send_signal(signal.SIGTERM)
        said = first.communicate(timeout=120)[0]
        assert first.returncode == 143 and "2 of 2 runs are to be gone on with" in said
        assert run_dirs(tmp_path / "runs") == []
        second = launch(cluster.environ)
        wait_for(lambda: have_rows(cluster, 1), second)
        (lost,) = cluster.runs(1)
        cluster.kill(1)
        said = second.communicate(timeout=240)[0]
        assert second.returncode == 0 and said.count(": finished") == 2, said
    for run_dir in run_dirs(tmp_path / "runs"):
        assert summary(run_dir)["status"] == "finished"
        assert [row["step"] for row in rows(run_dir)] == list(range(0, STEPS + 1, 400))
        assert sum(event["event"] == "attempt" for event in read_events(run_dir)) == 1 + (run_dir == lost)


def have_rows(cluster: Cluster, node: int) -> bool:
    return any(len(rows(run_dir)) > 2 for run_dir in cluster.runs(node))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate(timeout=10)[0]
        time.sleep(0.1)


def test_no_cluster_at_the_address(tmp_path: Path, launch: Callable[..., subprocess.Popen]) -> None:
    environ = os.environ | {"RAY_ADDRESS": "127.0.0.1:1", "OMP_NUM_THREADS": "1"}
    process = launch(environ)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 2 and "RAY_ADDRESS" in said.splitlines()[-1] and "Traceback" not in said, said
    assert not (tmp_path / "runs").exists()
