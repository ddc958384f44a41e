"""A policy from a W&B artifact: checked against its digest, and nothing of it is left on the disk."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from navrl.checkpoint import CheckpointStore
from navrl.faults import ConfigError
from runners.loading import read_checkpoint


@pytest.mark.parametrize("damaged", [False, True])
def test_an_artifact_is_read_and_its_download_removed(damaged: bool, tmp_path: Path, monkeypatch) -> None:
    """The client alone is a stand-in: it copies the file as a download does."""
    state = {"config": "seed: 1\n", "runner": {"w": torch.arange(3.0)}}
    (tmp_path / "store").mkdir()
    file = CheckpointStore(tmp_path / "store").save(state, step=1, episodes=7, score=None, best=False)
    digest = hashlib.sha256(file.read_bytes() + b"x" * damaged).hexdigest()
    downloads = []

    def download(root: str) -> str:
        downloads.append(Path(root))
        return str(Path(shutil.copy(file, root)).parent)

    artifact = SimpleNamespace(download=download, metadata={"sha256": digest})
    client = SimpleNamespace(Api=lambda timeout: SimpleNamespace(artifact=lambda name: artifact))
    monkeypatch.setitem(sys.modules, "wandb", client)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    if damaged:
        with pytest.raises(ConfigError, match="damaged on the way"):
            read_checkpoint("wandb:team/project/model:best")
    else:
        back, path = read_checkpoint("wandb:team/project/model:best")
        assert torch.equal(back["runner"]["w"], state["runner"]["w"]) and path.name == "checkpoint_ep7.pt"
    assert downloads and downloads[0].parent == scratch and list(scratch.iterdir()) == []
