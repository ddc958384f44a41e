"""A checkpoint that is damaged, foreign or hostile ends in one clear line; loading it runs no code."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import navrl.checkpoint as checkpoint
from navrl.checkpoint import CheckpointError, CheckpointStore, load


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as the store writes it, away from its index."""
    directory = tmp_path_factory.mktemp("real")
    state = {"config": "seed: 1\n", "runner": {"w": torch.arange(300.0), "moments": [torch.ones(3)] * 4, "n": 3}}
    path = CheckpointStore(directory).save(state, step=1, episodes=1, score=None, best=False)
    return path


def refusal(path: Path) -> str:
    """The one line with which ``path`` is refused."""
    with pytest.raises(CheckpointError) as error:
        load(path)
    message = str(error.value)
    assert message.startswith(str(path)) and "\n" not in message and len(message) < 400
    return message


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_runs_code_runs_nothing(protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "owned"
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps({"format": 1, "config": "", "x": Touch(marker)}, protocol=protocol))
    assert "no checkpoint at all" in refusal(plain)
    zipped = tmp_path / "zipped.pt"
    torch.save({"format": 1, "config": "", "x": Touch(marker)}, zipped)
    assert "NAVRL did not write it" in refusal(zipped)
    old = tmp_path / "old.pt"
    torch.save({"format": 1, "config": "", "x": Touch(marker)}, old, _use_new_zipfile_serialization=False)
    refusal(old)
    assert not marker.exists()


def test_files_that_are_no_checkpoints(tmp_path: Path, real: Path) -> None:
    cases = {"empty": b"", "text": b"hello\n" * 50, "zip": _zip({"a.txt": b"x"}), "half": real.read_bytes()[:2000],
             "gif": b"GIF89a" + bytes(100)}  # fmt: skip
    for name, data in cases.items():
        path = tmp_path / f"{name}.pt"
        path.write_bytes(data)
        assert "truncated, damaged or no checkpoint at all" in refusal(path)
    assert "no such file" in refusal(tmp_path / "missing.pt")
    assert "cannot be read" in refusal(tmp_path)
    for name, content in {"list": [1, 2], "tensor": torch.ones(3), "foreign": {"model": torch.ones(3)},
                          "no format": {"config": ""}, "odd format": {"config": "", "format": "1"}}.items():  # fmt: skip
        path = tmp_path / f"{name}.pt"
        torch.save(content, path)
        assert "not a checkpoint of NAVRL" in refusal(path)


def _zip(members: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def test_a_newer_format_says_to_update(tmp_path: Path) -> None:
    path = tmp_path / "new.pt"
    torch.save({"config": "", "format": checkpoint.FORMAT + 1}, path)
    assert f"format {checkpoint.FORMAT + 1} is newer" in refusal(path) and "update NAVRL" in refusal(path)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SIZE_LIMIT", 1 << 20)
    path = tmp_path / "bomb.pt"
    path.write_bytes(_zip({"archive/data/0": bytes(8 << 20)}))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(torch, "load", lambda *a, **k: pytest.fail("it was unpacked"))
    assert "unpacks to more than" in refusal(path)


def test_a_changed_byte_is_seen_by_the_digest_and_the_one_before_is_used(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for number in (1, 2):
        state = {"config": "", "runner": {"w": torch.full((500,), float(number))}}
        store.save(state, step=number, episodes=number, score=None, best=False)
    newest = store.path("last")
    data = bytearray(newest.read_bytes())
    at = data.index(torch.full((500,), 2.0).numpy().tobytes()) + 1000  # inside the weights
    data[at] ^= 1
    newest.write_bytes(data)
    assert "its SHA-256 is not the one in index.json" in refusal(newest)
    state, path, problems = store.newest()
    assert path.name == "checkpoint_ep1.pt" and float(state["runner"]["w"][0]) == 1
    assert len(problems) == 1 and str(newest) in problems[0]
    path.unlink()
    with pytest.raises(CheckpointError, match="no checkpoint that can be used") as error:
        store.newest()
    assert "no such file" in str(error.value) and "SHA-256" in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"best": null}', '{"best": null, "checkpoints": [{"file": 3}]}',
                                  '{"best": null, "checkpoints": 7}', "\xff"])  # fmt: skip
def test_a_damaged_index_is_one_clear_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match="index.json: damaged") as error:
        CheckpointStore(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", ["../../outside.pt", "/etc/passwd", "a/b.pt", "..", ""])
def test_an_index_that_points_elsewhere_is_refused(file: str, tmp_path: Path) -> None:
    entry = {"file": file, "step": 1, "episodes": 1, "score": None, "sha256": "0" * 64}
    (tmp_path / "index.json").write_text(json.dumps({"best": None, "checkpoints": [entry]}))
    with pytest.raises(CheckpointError, match="damaged"):
        CheckpointStore(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps({"best": None, "checkpoints": [], "dropped": [file]}))
    with pytest.raises(CheckpointError, match="damaged"):  # else a resume would remove that file
        CheckpointStore(tmp_path)


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def loads_or_is_refused(path: Path) -> dict | None:
    """A file away from its index has no digest: damage is refused, or else leaves plain values and tensors."""
    try:
        state = load(path)
    except CheckpointError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
        return None
    assert isinstance(state, dict) and state["format"] <= checkpoint.FORMAT
    return state


@FUZZ
@given(flips=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 7)), min_size=1, max_size=4))
def test_flipped_bits(flips: list[tuple[int, int]], real: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.getbasetemp() / "flips"
    directory.mkdir(exist_ok=True)
    data = bytearray(real.read_bytes())
    for position, bit in flips:
        data[position % len(data)] ^= 1 << bit
    alone = directory / "alone.pt"
    alone.write_bytes(data)
    loads_or_is_refused(alone)
    if bytes(data) == real.read_bytes():
        return
    indexed = directory / "indexed" / real.name
    indexed.parent.mkdir(exist_ok=True)
    indexed.write_bytes(data)
    shutil.copy(real.with_name("index.json"), indexed.parent)
    assert loads_or_is_refused(indexed) is None


@FUZZ
@given(cut=st.integers(0, 10**9), tail=st.binary(max_size=20))
def test_truncated(cut: int, tail: bytes, real: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = real.read_bytes()
    path = tmp_path_factory.getbasetemp() / "truncated.pt"
    path.write_bytes(data[: cut % len(data)] + tail)
    state = loads_or_is_refused(path)
    # a zip file ends in its directory and zeros: a tail may stand for what was cut of that, never for a value
    assert state is None or same(state, load(real))


def same(one: object, other: object) -> bool:
    """Equal plain values and bit-equal tensors, at any depth."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return one == other
