"""A checkpoint of an earlier format is loaded, evaluated and continued as one of today's.

tests/data/checkpoint_format1.pt was written at step 120 of 200 by the version of commit 59c5a95:

    python main.py --total_env_steps 200 --num_envs 2 --rollout_length 10 --hidden_size 4 --mini_batch_size 10
        --ppo_epoch 1 --eval_episodes 2 --checkpoint_interval 3 --eval_interval 3 --privacy strict --no_log_wandb
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from whole_runs import ROOT, metadata, resume, rows, summary

import navrl.checkpoint as checkpoint
from navrl.checkpoint import FORMAT, MIGRATIONS, CheckpointError, CheckpointStore, load
from navrl.config_sources import load as load_config
from navrl.files import sha256_of

OLD = Path(__file__).parent / "data" / "checkpoint_format1.pt"
pytestmark = pytest.mark.usefixtures("no_code_copy")


def test_the_old_file_is_of_an_older_format_and_is_read_as_todays() -> None:
    raw = torch.load(OLD, weights_only=True)
    assert raw["format"] == 1 < FORMAT and 1 in MIGRATIONS
    state = load(OLD)
    assert state["format"] == FORMAT and state["owed"] is None
    assert (state["runner"]["env_steps"], state["runner"]["iteration"]) == (120, 6)


def test_it_evaluates_to_what_its_run_recorded(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    import evaluate

    file = tmp_path / "result.json"
    assert evaluate.main(["--checkpoint", str(OLD), "--episodes", "4", "--json", str(file)]) == 0
    found = json.loads(file.read_text())["mean"]
    assert found["episode_reward"] == pytest.approx(-62.2835, abs=1e-3)


def test_its_run_goes_on_to_the_end(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "NAVRL" / "g" / "old"
    (run_dir / "checkpoints").mkdir(parents=True)
    file = Path(shutil.copy(OLD, run_dir / "checkpoints" / "checkpoint_ep4.pt"))
    entry = {"file": file.name, "step": 120, "episodes": 4, "score": -49.8, "sha256": sha256_of(file)}
    (run_dir / "checkpoints" / "index.json").write_text(json.dumps({"best": file.name, "checkpoints": [entry]}))
    (run_dir / "config.yaml").write_text(load(file)["config"])
    result = resume(run_dir)
    assert result.code == 0, result.err
    assert summary(run_dir)["status"] == "finished" and summary(run_dir)["final"]["step"] == 200
    assert [row["step"] for row in rows(run_dir)] == [140, 160, 180, 200]
    assert metadata(run_dir)["segments"][0]["step"] == 120
    newest = CheckpointStore(run_dir / "checkpoints").path("last")
    assert torch.load(newest, weights_only=True)["format"] == FORMAT


def test_an_old_runs_own_configuration_means_what_it_meant(tmp_path: Path) -> None:
    """Keys that came later are as they were; a person's file takes today's defaults."""
    written = torch.load(OLD, weights_only=True)["config"]
    assert "optimizer" not in written
    (tmp_path / "config.yaml").write_text(written)
    (tmp_path / "mine.yaml").write_text("seed: 1\n")
    config = load_config(["--config", str(tmp_path / "config.yaml")], {}).config
    assert config.optimizer == "adam" and not config.canonical_frame
    assert (config.critic_width, config.final_ppo_epoch) == (config.hidden_size, config.ppo_epoch)
    assert load_config(["--config", str(tmp_path / "mine.yaml")], {}).config.optimizer == "muon"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("runner", [None, {}, {"algorithm": None}, 3])
def test_an_old_file_without_its_parts_is_refused(version: int, runner: object, tmp_path: Path) -> None:
    state = {"format": version, "config": "", "owed": None} | ({} if runner is None else {"runner": runner})
    torch.save(state, tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match="odd.pt: not a whole checkpoint of format 2"):
        load(tmp_path / "odd.pt")


def test_steps_lead_from_each_format_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout of its own for each format: 3 has `lengths`, 2 had their sum as `size`, 1 had that as text."""
    monkeypatch.setattr(checkpoint, "FORMAT", 3)
    monkeypatch.setattr(checkpoint, "MIGRATIONS", {
        1: lambda state: {**state, "size": int(state["size"])},
        2: lambda state: {"format": 2, "config": state["config"], "lengths": [state["size"]]},
    })  # fmt: skip
    for version, part in ((1, {"size": "7"}), (2, {"size": 7}), (3, {"lengths": [7]})):
        torch.save({"format": version, "config": "", **part}, tmp_path / "old.pt")
        assert load(tmp_path / "old.pt") == {"format": 3, "config": "", "lengths": [7]}


@pytest.mark.parametrize(("version", "words"), [
    (0, "format 0 is not read here"), (-5, "format -5 is not read here"), (FORMAT + 1, "is newer"),
    (True, "not a checkpoint"), (1.0, "not a checkpoint"), ("1", "not a checkpoint"), (None, "not a checkpoint"),
])  # fmt: skip
def test_a_format_that_nothing_leads_from_is_refused(version: object, words: str, tmp_path: Path) -> None:
    torch.save({"format": version, "config": ""}, tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match=words):
        load(tmp_path / "odd.pt")
