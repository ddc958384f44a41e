"""`privacy: strict` with every tracker at once: nothing leaves the machine, and no tracker learns whose machine it is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import network_cage
import pytest
from tracking_run import environment
from wandb_stand_in import KEY
from whole_runs import ROOT, run_dirs, tiny_argv

from navrl.tracking.stores import on_this_machine

TRACKERS = ("wandb", "mlflow", "swanlab", "tensorboard")
PROXY = "http://203.0.113.5:3128"  # an address that nobody has


class Place(NamedTuple):
    """A copy of the project with a history and an edit, a home, and what is not to be found out about them."""

    project: Path
    env: dict[str, str]
    needles: dict[str, bytes]
    cage: bool  # whether programs run in a network cage
    asked: Path  # whom Python processes addressed
    sent: Path  # what left the cage


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    base = tmp_path_factory.mktemp("privacy")
    project = base / "hiddenplace"
    for name in ("envs", "navrl", "runners"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "main.py", project)
    git = ["git", "-C", str(project), "-c", "user.name=hiddenauthor", "-c", "user.email=a@hiddenauthor.example"]
    for command in (
        ["init", "-q", "-b", "hiddenbranch"], ["remote", "add", "origin", "https://git.hiddenremote.example/team.git"],
        ["add", "."], ["commit", "-q", "-m", "hiddenmessage"],
    ):  # fmt: skip
        subprocess.run([*git, *command], check=True, capture_output=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True).stdout.strip()
    with open(project / "navrl" / "rollout.py", "a") as file:
        file.write("# hiddenedit\n")
    env = environment(
        base / "hiddenhome", USER="hiddenuser", LOGNAME="hiddenuser", WATCHED=str(base / "asked"), WANDB_API_KEY=KEY,
        SWANLAB_API_KEY=KEY, WANDB_ERROR_REPORTING="true", PYTHONPATH=str(ROOT / "tests" / "watched"),
        **{name: PROXY for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")},
    )  # fmt: skip
    cage = network_cage.possible(base)
    needles = {name: name.encode() for name in ("hiddenuser", "hiddenremote", "hiddenbranch", "hiddenedit")}
    needles |= {"paths": str(base).encode(), "the Python in use": sys.prefix.encode(), "commit": commit}
    if cage:
        needles["host"] = network_cage.HOST.encode()
    return Place(project, env, needles, cage, base / "asked", base / "sent")


def _run(place: Place, *command: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, *command]
    return subprocess.run(
        network_cage.argv(place.sent, *argv) if place.cage else argv, cwd=place.project, env=place.env, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=240,
    )  # fmt: skip


@pytest.fixture(scope="module")
def strict(place: Place) -> Path:
    root = place.project.parent / "hiddenruns"
    argv = tiny_argv(
        root, "--logger", "console", *TRACKERS, "--privacy", "strict", "--trace", "mlflow", "--log_eval_episodes", "1",
        "--group", "group", "--experiment_name", "run",
    )  # fmt: skip
    done = _run(place, "main.py", *(word for word in argv if word != "--no_log_wandb"))
    assert done.returncode == 0, done.stdout + done.stderr
    for tracker in TRACKERS:
        assert re.search(rf"^{tracker}: all \d+ rows", done.stdout, re.MULTILINE), done.stdout
    (run_dir,) = run_dirs(root)
    return run_dir


def held(run_dir: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of all that trackers hold of a run; archives are opened. Their diagnostic logs are not held."""
    root, tracking = run_dir.parents[2], run_dir / "tracking"
    places = [
        root / "mlflow.db", root / "mlartifacts", tracking / "tensorboard" / "events",
        *tracking.glob("wandb/wandb/offline-run-*/*.wandb"), *tracking.glob("wandb/wandb/offline-run-*/files"),
        *tracking.glob("wandb/data"), *tracking.glob("swanlab/run-*/*.swanlab"), *tracking.glob("swanlab/run-*/files"),
        *tracking.glob("swanlab/run-*/media"),
    ]  # fmt: skip
    for path in places:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                name = str(file.relative_to(root))
                content = file.read_bytes()
                yield name, name.encode() + content
                if zipfile.is_zipfile(file):
                    with zipfile.ZipFile(file) as archive:
                        yield from ((f"{name}:{member}", archive.read(member)) for member in archive.namelist())


def leaks(place: Place, run_dir: Path) -> list[str]:
    found = []
    for name, content in held(run_dir):
        if name == "mlflow.db":  # MLflow's file says where its own artifacts lie
            for directory in ((run_dir.parents[2] / "mlartifacts").as_uri(), f"{run_dir}/mlruns"):
                content = content.replace(directory.encode(), b"")
        found += [f"{what} in {name}" for what, needle in place.needles.items() if needle in content]
    return found


def test_no_process_addresses_anything_beyond_this_machine(place: Place, strict: Path) -> None:
    assert not place.asked.exists() or place.asked.read_text() == ""


def test_nothing_is_sent_beyond_loopback(place: Place, strict: Path) -> None:
    if not place.cage:
        pytest.skip("this machine does not let us make a network namespace with a tunnel device")
    assert place.sent.read_text() == ""


def test_no_tracker_holds_host_user_path_remote_or_diff(place: Place, strict: Path) -> None:
    kinds = {name.rsplit(".", 1)[-1] for name, _ in held(strict)}
    assert {"db", "pt", "npz", "gif", "wandb", "swanlab"} <= kinds
    assert any("tfevents" in name for name, _ in held(strict))
    assert leaks(place, strict) == []


@pytest.mark.parametrize(
    "uri, here",
    [
        ("sqlite:///runs/mlflow.db", True),
        ("http://localhost:5000", True),
        ("http://[::1]:5000", True),
        ("postgresql+psycopg2://user@127.0.0.1:5432/runs", True),
        ("http://10.0.0.3:5000", False),
        ("http://127.0.0.1.example:5000", False),
        ("postgresql:///runs?host=10.0.0.3", False),
        ("postgresql://localhost/runs?hostaddr=10.0.0.3", False),
        ("mssql+pyodbc:///?odbc_connect=Server", False),
    ],
)
def test_only_a_store_on_this_machine_is_taken(uri: str, here: bool) -> None:
    assert on_this_machine(uri) is here


def test_a_leak_would_be_seen(place: Place, strict: Path, tmp_path: Path) -> None:
    """What the tests above look with sees an unguarded run, a socket of Python, and one of any other program."""
    root = place.project.parent / "hiddenruns_open"
    done = _run(place, "main.py", *tiny_argv(
        root, "--logger", "console", "tensorboard", "--group", "group", "--experiment_name", "run",
    ))  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = leaks(place, *run_dirs(root))
    for what in place.needles.keys() - {"hiddenedit"}:  # TensorBoard gets metadata and no code
        assert any(leak.startswith(f"{what} in ") for leak in found), what

    other = place._replace(env=place.env | {"WATCHED": str(tmp_path / "asked")}, sent=tmp_path / "sent")
    _run(other, "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('203.0.113.6', 9))")
    assert "203.0.113.6" in (tmp_path / "asked").read_text()
    if place.cage:
        _run(other, "-c", "import os; os.system('timeout 1 bash -c \"echo > /dev/tcp/203.0.113.7/9\"')")
        assert "203.0.113.7" in (tmp_path / "sent").read_text()
