"""scripts/run_seeds.sh runs each seed once, hands arguments on as they are and keeps every call's logs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAIN = """import json, sys
print(json.dumps(sys.argv[1:]))
print("the reason")
sys.exit(int(sys.argv[-1] == "3"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The script beside a main.py that says its arguments and fails for seed 3."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "run_seeds.sh", tmp_path / "scripts")
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "mine.yaml").write_text("")
    for name in ("navrl", "envs", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path


def run_seeds(project: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(project / "scripts" / "run_seeds.sh"), *argv],
        env={key: value for key, value in os.environ.items() if key not in ("LOGS", "JOBS")} | environ,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def started(log: Path) -> list[str]:
    return json.loads(log.read_text().splitlines()[0])


def test_arguments_arrive_as_they_were_given(project: Path) -> None:
    given = ["--group", "SEED of {} seed", "--wandb_name", 'a "quoted"  $HOME \\ word\nand a line', "--lr", "1e-3"]
    done = run_seeds(project, "1", "2", *given, JOBS="2")
    assert (done.returncode, done.stderr) == (0, "")
    logs = sorted((project / "runs" / "logs").iterdir())
    assert [started(log) for log in logs] == [
        ["--config", "configs/train/train_mpe.yaml", *given, "--seed", seed] for seed in ("1", "2")
    ]
    for log, seed in zip(logs, ("1", "2")):
        assert log.name.endswith(f"-seed{seed}.log")
        assert f"seed {seed}: runs/logs/{log.name}" in done.stdout.splitlines()


@pytest.mark.parametrize("config", [("--config", "mine.yaml"), ("--config=mine.yaml",)])
def test_a_given_configuration_replaces_the_default(config: tuple[str, ...], project: Path) -> None:
    assert run_seeds(project, "7", "7", *config).returncode == 0
    (log,) = (project / "runs" / "logs").iterdir()
    assert started(log) == [*config, "--seed", "7"]


def test_a_second_call_keeps_the_logs_of_the_first(project: Path) -> None:
    for rate in ("1e-3", "1e-4"):
        run_seeds(project, "1", "2", "--lr", rate, LOGS="kept")
    logs = list((project / "kept").iterdir())
    assert sorted((started(log)[3], started(log)[-1]) for log in logs) == [
        ("1e-3", "1"), ("1e-3", "2"), ("1e-4", "1"), ("1e-4", "2")]  # fmt: skip


def test_a_seed_that_fails_is_named_and_stops_no_other(project: Path) -> None:
    done = run_seeds(project, "2", "4", JOBS="1")
    assert done.returncode == 1
    assert done.stderr == "seed 3: exit code 1: the reason\n"
    assert len(list((project / "runs" / "logs").iterdir())) == 3


@pytest.mark.parametrize("argv", [(), ("1",), ("2", "1"), ("a", "2"), ("--lr", "1")])
def test_wrong_seeds_are_refused(argv: tuple[str, ...], project: Path) -> None:
    done = run_seeds(project, *argv)
    assert done.returncode == 2 and "usage: scripts/run_seeds.sh FIRST LAST" in done.stderr
    assert not (project / "runs").exists()


@pytest.mark.parametrize(
    ("argv", "jobs", "words"),
    [
        (("--seed", "4"), "1", "seeds are the first two arguments"),
        (("--seed=4",), "1", "seeds are the first two arguments"),
        (("--lrr", "1"), "1", "lrr"),
        (("--lr", "fast"), "1", "lr"),
        ((), "0", "JOBS"),
        ((), "two", "JOBS"),
    ],
)
def test_wrong_settings_are_said_once_and_nothing_is_written(
    argv: tuple[str, ...], jobs: str, words: str, project: Path
) -> None:
    done = run_seeds(project, "1", "3", *argv, JOBS=jobs)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") <= 2, done.stderr
    assert not (project / "runs").exists()


@pytest.mark.parametrize("argv", [("--help",), ("-h",), ("1", "2", "--lr", "1", "--help")])
def test_help_is_its_own_and_starts_nothing(argv: tuple[str, ...], project: Path) -> None:
    done = run_seeds(project, *argv)
    assert (done.returncode, done.stderr) == (0, "") and not (project / "runs").exists()
    assert done.stdout.startswith("usage: scripts/run_seeds.sh FIRST LAST") and "JOBS" in done.stdout
