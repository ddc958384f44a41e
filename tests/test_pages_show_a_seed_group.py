"""MLflow's own web page and TensorBoard, looked at with a real browser, show a group of seeds as one group.

The pictures in docs/images are those that this test leaves in its temporary directory (pytest removes it unless told
`-o tmp_path_retention_policy=all`).
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import mlflow_tools
import pytest
import tracking_run
import whole_runs
from browser import Browser
from wandb_stand_in import OPENER, free_port

pytestmark = pytest.mark.requires_service("chromium")
GROUP, NAMES = "spread_smoke", [f"mappo_seed{seed}" for seed in (1, 2, 3)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of one configuration, in an MLflow file and in event files."""
    root = tmp_path_factory.mktemp("pages") / "runs"
    mlflow_tools.empty_store(root / "mlflow.db")
    for seed, name in enumerate(NAMES, 1):
        done = whole_runs.train(
            root, "--logger", "console", "mlflow", "tensorboard", "--group", GROUP, "--experiment_name", name,
            "--seed", str(seed), "--trace", "mlflow", "--log_eval_episodes", "1",
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "mlflow: all " in done.out and "tensorboard: all " in done.out, done.out
    return root


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    browser = Browser(tmp_path / "profile", 1500, 950)
    yield browser
    browser.close()


def test_mlflow_shows_the_group_its_seeds_and_their_curves(root: Path, browser: Browser, tmp_path: Path) -> None:
    server = mlflow_tools.Server(tmp_path / "server", f"sqlite:///{root / 'mlflow.db'}")
    try:
        experiment = mlflow_tools.client(server.url).get_experiment_by_name("NAVRL").experiment_id
        page = f"{server.url}/#/experiments/{experiment}"
        browser.open(f"{page}/runs?workflowType=machine_learning&compareRunsMode=CHART")
        link = f"[...document.querySelectorAll('a')].find(a => a.innerText == '{GROUP}')"
        browser.wait(link + " && 1")
        assert not any(name in browser.text() for name in NAMES)  # the group is one line until it is opened
        browser.run("[...document.querySelectorAll('button[aria-label=Close]')].forEach(button => button.click())")
        browser.run(link + ".parentElement.parentElement.querySelector('button').click()")
        browser.wait_for(*NAMES)
        # The first section of charts is of the evaluations, and each seed has a curve in it.
        drawn = "document.querySelectorAll('.js-plotly-plot .scatterlayer .trace').length"
        browser.wait(f"{drawn} >= {len(NAMES)}")
        lines = browser.run("document.body.innerText").splitlines()
        sections = [line for line in lines if line in ("eval", "final", "final_best", "train")]
        assert sections[0] == "eval"
        assert "eval/episode_reward" in browser.text()
        time.sleep(2)  # the other charts of the picture
        browser.picture(tmp_path / "mlflow.png")

        browser.open(f"{page}/traces?workflowType=machine_learning")
        browser.wait_for(*(f'"run": "{name}", "episode": "eval/episode_0"' for name in NAMES))
        browser.open(f"{server.url}/#/models/navrl_simple_spread_mappo")
        browser.wait_for(*(f"{name}-{alias}" for name in NAMES for alias in ("best", "final")))
    finally:
        server.kill()


def test_tensorboard_shows_the_seeds_and_their_curves(root: Path, browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", str(root / "NAVRL" / GROUP), "--host", "127.0.0.1",
         "--port", str(port), "--load_fast", "false"],
        env=tracking_run.environment(tmp_path / "home"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(url, server)
        browser.open(f"{url}/#timeseries")
        browser.wait_for(*NAMES, "/agent_reward_mean")
        # A line of each run in the first chart.
        card = "document.querySelector('scalar-card')"
        browser.wait(f"{card} && {card}.querySelectorAll('line-chart').length")
        for name in NAMES:
            browser.wait(f"{card}.innerText.includes('{name}')")
        time.sleep(2)
        browser.picture(tmp_path / "tensorboard.png")
        browser.open(f"{url}/#hparams")
        browser.wait_for(*(f"{name} ({GROUP})" for name in NAMES))
    finally:
        server.kill()
        server.wait()


def _wait_for(url: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with OPENER.open(urllib.request.Request(url), timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline and server.poll() is None, "TensorBoard did not start"
            time.sleep(0.1)
