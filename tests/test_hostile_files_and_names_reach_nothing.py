"""Whatever a stranger puts into a file or a name: one line, in bounded time, and nothing outside is touched."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import navrl.checkpoint as checkpoint
from navrl.checkpoint import CheckpointError, CheckpointStore, load
from navrl.config_sources import load as load_config
from navrl.faults import ConfigError
from navrl.naming import safe_directory
from navrl.tracking.fetch import FetchError, _parse
from navrl.tracking.publish import Publisher, write_run_info
from navrl.tracking.record import LocalRecord
from navrl.tracking.tracker import RunInfo, Unpublishable

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
STEPS = st.lists(st.sampled_from(["..", ".", "", "a", "etc", "passwd", "~", "checkpoints", "\\", "%2e%2e", "C:"]),
                 min_size=1, max_size=6)  # fmt: skip
PATHS = st.tuples(st.sampled_from(["", "/", "./", "../"]), STEPS.map("/".join)).map("".join)


def refusal(text: str | bytes) -> str:
    """The one fault of a configuration file with this content."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "c.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError) as error:
            load_config(["--config", str(file)], {})
    (fault,) = error.value.faults
    assert "\n" not in str(fault) and len(str(fault)) < 500
    return str(fault)


@FUZZ
@given(depth=st.integers(1, 30), width=st.integers(2, 12), flow=st.booleans(), key=st.sampled_from(["lr", "logger"]))
def test_a_bomb_of_aliases_is_refused_before_it_goes_off(depth: int, width: int, flow: bool, key: str) -> None:
    """30 levels of 12 are 10^32 words; the first anchor ends it."""
    lines = [f"{key}0: &a0 [x]" if flow else f"{key}0: &a0\n  - x"]
    for level in range(1, depth):
        names = [f"*a{level - 1}"] * width
        lines.append(f"{key}{level}: &a{level} [{', '.join(names)}]" if flow else
                     f"{key}{level}: &a{level}\n" + "\n".join(f"  - {name}" for name in names))  # fmt: skip
    assert "anchors and aliases" in refusal("\n".join(lines) + "\n")


@FUZZ
@given(before=st.text(st.characters(codec="utf-8", exclude_characters="\r\x85\u2028\u2029\ufeff"), max_size=40),
       bad=st.sampled_from([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xe4", b"\xf5\x80\x80\x80", b"\x80"]))  # fmt: skip
def test_bytes_that_are_not_utf8_are_named_with_their_line(before: str, bad: bytes) -> None:
    data = b"# " + before.encode() + bad + b"\nseed: 1\n"
    fault = refusal(data)
    assert f"line {before.count(chr(10)) + 1}: byte 0x{bad[0]:02x} is not UTF-8" in fault


@FUZZ
@given(sizes=st.lists(st.integers(1, 1 << 20), min_size=1, max_size=5), nested=st.booleans())
def test_a_zip_bomb_is_refused_by_what_it_says_it_unpacks_to(sizes: list[int], nested: bool) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, size in enumerate(sizes):
            archive.writestr(f"{'archive/data/' if nested else '../' * 3}{number}", bytes(size))
    limit = max(sum(sizes) - 1, 0)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        path = Path(directory) / "bomb.pt"
        path.write_bytes(data.getvalue())
        patch.setattr(checkpoint, "SIZE_LIMIT", limit)
        patch.setattr(checkpoint.torch, "load", lambda *a, **k: pytest.fail("it was unpacked"))
        with pytest.raises(CheckpointError, match="unpacks to more than"):
            load(path)
        assert [entry.name for entry in Path(directory).iterdir()] == ["bomb.pt"]


@FUZZ
@given(file=PATHS, best=st.booleans())
def test_an_index_reads_nothing_outside_its_directory(file: str, best: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        entry = {"file": "a.pt" if best else file, "step": 1, "episodes": 1, "score": None, "sha256": "0" * 64}
        index = {"best": file if best else None, "checkpoints": [entry]}
        (Path(directory) / "index.json").write_text(json.dumps(index))
        try:
            store = CheckpointStore(Path(directory))
            path = store.path("best" if best else "last")
        except CheckpointError as error:
            assert "damaged" in str(error) and "\n" not in str(error)
        else:
            assert path.parent == Path(directory) and path.resolve().parent == Path(directory).resolve()


@FUZZ
@given(name=PATHS | st.text(max_size=30))
def test_a_name_stays_one_directory(name: str) -> None:
    assert Path(safe_directory(name)).name == safe_directory(name) not in ("", ".", "..")


@FUZZ
@given(kind=st.sampled_from(["wandb:", "wandb:team/", "mlflow:models:/", "mlflow:runs:/", "mlflow:runs:/abc/"]),
       rest=PATHS, end=st.sampled_from(["", ":best", "@best", "/1"]))  # fmt: skip
def test_an_artifacts_name_climbs_out_of_nothing(kind: str, rest: str, end: str) -> None:
    try:
        _, parts = _parse(f"{kind}{rest}{end}")
    except FetchError as error:
        assert "\n" not in str(error) and "names no checkpoint" in str(error)
        return
    for name, part in parts.items():
        inside = (part or "").split("/") if name == "path" else [part or ""]
        assert ".." not in inside or name in ("entity", "project", "alias", "name"), parts


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Publisher:
    root = tmp_path_factory.mktemp("published")
    (root / "secret").write_text("not for trackers")
    record = LocalRecord.create(root, "p", "g", "run")
    (record.run_dir / "link").symlink_to(root / "secret")
    (record.run_dir / "checkpoints" / "a").write_text("a checkpoint")
    info = RunInfo(uid=record.uid, project="p", name="run", group="g", tags=[], config={}, metadata={}, settings={},
                   env_id="e", algorithm_name="a", run_dir=record.run_dir)  # fmt: skip
    write_run_info(record.run_dir, info)
    record.close()
    return Publisher(record.run_dir, "tensorboard")


@FUZZ
@given(path=PATHS | st.sampled_from(["link", "checkpoints/a", "../../../secret", "checkpoints/../../../../secret"]))
def test_a_journal_makes_no_tracker_send_what_is_outside_the_run(path: str, publisher: Publisher) -> None:
    """A run directory from a stranger, published with sync.py."""
    try:
        found = publisher._file({"event": "media", "path": path})
    except Unpublishable:
        return
    assert found.is_relative_to(publisher.run_dir.resolve()) and found.read_text() == "a checkpoint"
