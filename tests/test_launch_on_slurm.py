"""The array job runs the planned commands, a preempted or killed run is requeued; shell scripts are clean."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch_tools import LAUNCH
from slurm_stand_in import Slurm
from whole_runs import ROOT, rows, run_dirs, summary, tiny_argv

from navrl.launch.slurm import TEMPLATE, with_directives
from navrl.tracking.record import read_events

FILES = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
SCRIPTS = sorted(path for path in FILES if path.endswith(".sh") or path == ".ci/run")


@pytest.fixture
def slurm(tmp_path: Path):
    with Slurm(tmp_path / "slurm") as slurm:
        yield slurm


def launch(slurm: Slurm, root: Path, *words: str, further: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    (root / "tiny.yaml").write_text("env_id: simple_spread\n")
    flags = tiny_argv(root / "runs", "--privacy", "strict", *further)
    return subprocess.run(
        [*LAUNCH, "--config", "tiny.yaml", "--engine", "slurm", *words, "--", *flags],
        cwd=root, env=slurm.environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_the_array_is_the_plan(slurm: Slurm, tmp_path: Path) -> None:
    words = ("--seeds", "1-3", "--set", "lr=1e-3,2e-3")
    dry = launch(slurm, tmp_path, *words, "--dry-run").stdout.splitlines()
    assert len(dry) == 6 and not (tmp_path / "runs").exists()
    slurm.holds = True
    done = launch(slurm, tmp_path, *words, "--jobs", "2", "--cpus", "3", "--gpus", "1")
    assert done.returncode == 0 and f"job {slurm.job} ({slurm.name}) runs the other 6" in done.stdout, done.stderr
    (commands,) = (tmp_path / "runs").rglob("commands.txt")
    planned = [["python", "main.py", *shlex.split(line)[2:]] for line in commands.read_text().splitlines()]
    assert planned == [shlex.split(line) for line in dry]
    wanted = {"array": "1-6%2", "cpus-per-task": "3", "gres": "gpu:1", "chdir": str(tmp_path), "open-mode": "append"}
    assert {key: slurm.directives[key] for key in wanted} == wanted
    again = launch(slurm, tmp_path, *words)
    assert again.returncode == 0 and "is still queued or running" in again.stdout


def test_paths_with_spaces_quotes_and_percent_signs_stay_what_they_are(slurm: Slurm, tmp_path: Path) -> None:
    root = tmp_path / "50%a of # 'it\"s"
    root.mkdir()
    done = launch(slurm, root, "--seeds", "1", further=("--total_env_steps", "many"))
    assert done.returncode == 2 and slurm.tasks == []
    refused = ("--device", "cuda:99", "--processes", "2")  # by the run, which says so
    done = launch(slurm, root, "--seeds", "1", further=refused)
    assert done.returncode == 0, done.stderr
    assert slurm.wait() == [[2]] and slurm.directives["chdir"] == str(root)
    assert slurm.directives["cpus-per-task"] == "2"
    (said,) = root.rglob(f"{slurm.job}_1.log")
    assert "cuda:99" in said.read_text().splitlines()[-1] and sorted(tmp_path.iterdir()) == [root, tmp_path / "slurm"]
    done = launch(slurm, root, "--seeds", "1", further=("--run_dir", str(root / "a\\b")))
    assert done.returncode == 2 and "backslash" in done.stderr and done.stderr.count("\n") == 1
    assert not (root / "a\\b").exists()


def test_a_preempted_run_goes_on_where_it_was(slurm: Slurm, tmp_path: Path) -> None:
    longer = ("--total_env_steps", "12000", "--checkpoint_interval", "1000", "--eval_interval", "1000")
    assert launch(slurm, tmp_path, "--seeds", "1", further=longer).returncode == 0
    while not ((found := run_dirs(tmp_path / "runs")) and len(rows(found[0])) > 3):
        time.sleep(0.1)
    slurm.preempt(1)
    ((first, last),) = slurm.wait()
    assert first in (138, 143) and last == 0  # Slurm ends a task that is requeued; its own end may be faster
    (run_dir,) = found
    assert summary(run_dir)["status"] == "finished"
    assert [row["step"] for row in rows(run_dir)] == list(range(0, 12001, 400))
    cut = [event for event in read_events(run_dir) if event["event"] == "cut"]
    assert sum(event["event"] == "attempt" for event in read_events(run_dir)) == 2 and cut[0]["step"] > 0
    assert (
        launch(slurm, tmp_path, "--seeds", "1", further=longer).stdout
        == "1 of 1 finished, 0 running: nothing to submit\n"
    )


def test_a_run_that_fails_is_requeued_as_often_as_was_said(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "array.sh"
    script.write_text(
        with_directives(
            TEMPLATE.read_text(), {"array": "1-4", "output": str(tmp_path / "%A_%a.log"), "chdir": str(tmp_path)}
        )
    )
    bodies = [
        "import sys; sys.exit(1)",
        "import sys; sys.exit(2)",
        "import os; os.kill(os.getpid(), 9)",
        "print('it is $HOME')",
    ]
    commands = tmp_path / "commands.txt"
    commands.write_text("".join(shlex.join([sys.executable, "-c", body]) + "\n" for body in bodies))
    subprocess.run(["sbatch", "--parsable", str(script), str(commands), "1"], env=slurm.environ, check=True, timeout=60)
    failed, refused, killed, good = slurm.wait()
    assert (
        len(failed) == 2
        and failed[-1] == 1
        and refused == [2]
        and len(killed) == 2
        and killed[-1] == 137
        and good == [0]
    )
    assert (tmp_path / f"{slurm.job}_4.log").read_text().splitlines()[-1] == "it is $HOME"


def test_without_slurm_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text("")
    done = subprocess.run(
        [*LAUNCH, "--config", "tiny.yaml", "--seeds", "1", "--engine", "slurm", "--", "--run_dir", "runs"],
        cwd=tmp_path, env=os.environ | {"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "runs").exists()
    assert done.stderr == "squeue is not on this machine; give the command on a login node of the cluster\n"


@pytest.mark.parametrize("script", SCRIPTS)
def test_shell_scripts_are_clean(script: str) -> None:
    text = (ROOT / script).read_text()
    assert ("set -euo pipefail" if "bash" in text.splitlines()[0] else "set -eu") in text
    shellcheck = Path(sys.executable).with_name("shellcheck")
    for command in (["bash", "-n"], [str(shellcheck), "--external-sources", "--source-path=SCRIPTDIR"]):
        done = subprocess.run([*command, script], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
