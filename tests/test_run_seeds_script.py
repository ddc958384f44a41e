"""scripts/run_seeds.sh hands a configuration, its seeds and all arguments to launch.py as they were given."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from whole_runs import ROOT

from envs.registry import validate_settings
from navrl.config_sources import load
from navrl.naming import names

spec = importlib.util.spec_from_file_location("launch_script", ROOT / "scripts" / "launch.py")
launch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launch)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The script beside a launch.py that says its arguments; the rest is this project's."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "run_seeds.sh", tmp_path / "scripts")
    (tmp_path / "scripts" / "launch.py").write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit(7)\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "mine.yaml").write_text("gamma: 0.8\n")
    return tmp_path


def run_seeds(project: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(project / "scripts" / "run_seeds.sh"), *argv],
        env={key: value for key, value in os.environ.items() if key != "JOBS"} | environ,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def handed_on(project: Path, *argv: str, **environ: str) -> list[str]:
    done = run_seeds(project, *argv, **environ)
    assert (done.returncode, done.stderr) == (7, "")  # the launcher's own code
    return json.loads(done.stdout)


def test_arguments_arrive_as_they_were_given(project: Path) -> None:
    given = ["--group", "SEED of {} seed", "--wandb_name", 'a "quoted"  $HOME \\ word\nand a line', "--lr", "1e-3", ""]
    config = ["--config", str(project / "configs" / "train" / "train_mpe.yaml")]
    assert handed_on(project, "1", "2", *given) == [*config, "--seeds", "1-2", "--", *given]
    assert handed_on(project, "1", "2", JOBS="2") == [*config, "--seeds", "1-2", "--jobs", "2", "--"]
    assert launch.read_seeds([handed_on(project, "08", "10")[3]]) == [8, 9, 10]


def test_files_are_taken_from_where_one_stands(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("gamma: 0.8\nrun_dir: mine\n")
    for argv, seed in ((("mine.yaml", "7"), "7"), (("1", "1", "--run_dir", "mine"), "1")):
        done = subprocess.run(
            ["bash", str(ROOT / "scripts" / "run_seeds.sh"), *argv, "--device", "cuda:99"], cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 1 and "cuda:99" in done.stderr, done.stderr  # each refuses it, and says so here
        assert list((tmp_path / "mine" / "logs").rglob(f"*seed{seed}*.log"))


@pytest.mark.parametrize("argv", [
    ("mine.yaml", "7 9"), ("mine.yaml", "7,9"), ("1", "2", "--config", "mine.yaml"), ("1", "2", "--config=mine.yaml"),
])  # fmt: skip
def test_the_same_runs_as_a_loop_of_ones_own(
    argv: tuple[str, ...], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = handed_on(project, *argv, "--num_agents", "2")
    monkeypatch.chdir(project)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        at = words.index("--")
        assert launch.main([*words[:at], "--dry-run", *words[at:]]) == 0
    planned = launch.expand(
        ["mine.yaml"], launch.read_seeds([words[3]]), {}, ["--num_agents", "2"], os.environ, validate_settings
    )
    assert said.getvalue().splitlines() == [run.line() for run in planned]
    for run, seed in zip(planned, [7, 9] if argv[0] == "mine.yaml" else [1, 2], strict=True):
        own = load(["--config", "mine.yaml", "--num_agents", "2", "--seed", str(seed)], os.environ, validate_settings)
        assert own.config == run.config.model_copy(update={"if_exists": "new"})
        name = names(own)
        assert (run.project, run.group, run.name) == (name.project, name.group, name.experiment_name)


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("1",),
        ("2", "1"),
        ("a", "2"),
        ("--lr", "1"),
        ("mine.yaml",),
        ("mine.yaml", "one"),
        ("mine.yaml", "--lr", "1"),
    ],
)
def test_wrong_seeds_are_refused(argv: tuple[str, ...], project: Path) -> None:
    done = run_seeds(project, *argv)
    assert done.returncode == 2 and "usage: scripts/run_seeds.sh FIRST LAST" in done.stderr and done.stdout == ""


@pytest.mark.parametrize(("argv", "jobs", "words"), [
    (("--seed", "4"), "1", "seeds are the first two arguments"),
    (("--seed=4",), "1", "seeds are the first two arguments"),
    (("--config",), "1", "--config: needs a file"),
    ((), "0", "JOBS"),
    ((), "two", "JOBS"),
])  # fmt: skip
def test_wrong_settings_are_said_in_a_line(argv: tuple[str, ...], jobs: str, words: str, project: Path) -> None:
    done = run_seeds(project, "1", "3", *argv, JOBS=jobs)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


@pytest.mark.parametrize("argv", [("--help",), ("-h",), ("1", "2", "--lr", "1", "--help")])
def test_help_is_its_own_and_starts_nothing(argv: tuple[str, ...], project: Path) -> None:
    done = run_seeds(project, *argv)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: scripts/run_seeds.sh FIRST LAST") and "JOBS" in done.stdout
