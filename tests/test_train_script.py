"""``scripts/train.sh`` hands over what was typed: its own default never clashes with it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from whole_runs import ROOT

from navrl.config_sources import load


def argv_of(tmp_path: Path, *typed: str) -> list[str]:
    """The words that main.py gets, without an installation and without a training."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "train.sh", tmp_path / "scripts")
    (tmp_path / "scripts" / "setup.sh").write_text("setup() { :; }\n")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    script = ["bash", str(tmp_path / "scripts" / "train.sh"), *typed]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    program, *words = done.stdout.splitlines()
    assert program == "main.py"
    return words


@pytest.mark.parametrize(
    ("typed", "seed"),
    [((), 1), (("--seed", "2"), 2), (("--seed=3", "--wandb_name", "two words"), 3),
     (("--config", "configs/train/mappo_official.yaml"), 1), (("--config=configs/train/mappo_official.yaml",), 1)],
)  # fmt: skip
def test_what_is_typed_is_a_configuration(typed: tuple[str, ...], seed: int, tmp_path: Path, monkeypatch) -> None:
    words = argv_of(tmp_path, *typed)
    monkeypatch.chdir(ROOT)
    assert words[-len(typed):] == list(typed) if typed else words == ["--config", "configs/train/train_mpe.yaml"]
    config = load(words, {}).config
    assert config.seed == seed
    assert (config.total_env_steps == load(["--config", "configs/train/train_mpe.yaml"], {}).config.total_env_steps) \
        == (not any(word.startswith("--config") for word in typed))


def test_a_resumed_run_keeps_its_own_configuration(tmp_path: Path) -> None:
    assert argv_of(tmp_path, "--resume", "runs/a/b/c") == ["--resume", "runs/a/b/c"]
