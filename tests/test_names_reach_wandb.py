"""The names that a run is given are those that W&B's own file holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import read_wandb
from whole_runs import call, run_dirs, tiny_argv

pytest.importorskip("wandb")
pytestmark = pytest.mark.usefixtures("no_code_copy")

NEUTRAL = ("--project_name", "foo", "--group", "bar", "--experiment_name", "baz")
BOTH = (*NEUTRAL, "--wandb_project", "P", "--wandb_group", "G", "--wandb_name", "N")


@pytest.mark.parametrize(
    ("given", "expected"),
    [(NEUTRAL, [("foo", "bar", "baz")]), (BOTH, [("P", "G", "N"), ("P", "G", "N-2")])],
)
def test_names_reach_wandb(given: tuple, expected: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_ARTIFACT_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    words = tiny_argv(tmp_path / "runs", "--total_env_steps", "400", "--logger", "console,wandb", *given)
    words.remove("--no_log_wandb")
    for _ in expected:  # a name that is taken gets a number in W&B too
        assert call([*words, "--wandb_mode", "offline"], tmp_path).code == 0
    found = []
    for run_dir in run_dirs(tmp_path / "runs"):
        about = read_wandb.read_run(run_dir)["run"]
        found.append((about["project"], about["run_group"], about["display_name"]))
    assert sorted(found) == expected
