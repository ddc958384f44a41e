"""Checkpoints: everything that a run is, written whole or not at all, safe to load from a stranger.

One file is one ``torch.save`` of tensors and plain Python values (read back with ``weights_only=True``, which runs no
code). ``index.json`` beside the files names each with its digest; a file that does not match it is not used.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from navrl.files import replacing, sha256_of, write_text

FORMAT = 3
INDEX = "index.json"
# A policy of this project takes about a megabyte; a file that unpacks to more than this is not one of ours.
SIZE_LIMIT = 4 << 30


def _owes_nothing(state: dict[str, Any]) -> dict[str, Any]:
    """Format 1 could not say that the evaluation of its step is not done."""
    return {"owed": None} | state


def _one_optimizer(state: dict[str, Any]) -> dict[str, Any]:
    """Format 2 knew Adam alone."""
    runner = dict(state["runner"])
    runner["algorithm"] = algorithm = dict(runner["algorithm"])
    if "optimiser" in algorithm:  # a policy alone can still be evaluated
        algorithm["optimizers"] = {"adam": algorithm.pop("optimiser")}
    return state | {"runner": runner}


# A format -> what makes its state one of the next format. Who changes what a state holds raises FORMAT, adds a step
# here, and keeps a file of the old format in tests/data.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _owes_nothing,
    2: _one_optimizer,
}


class CheckpointError(Exception):
    """A checkpoint cannot be used; the message is one line for people."""


@dataclass(frozen=True)
class Entry:
    """One line of the index. step: environment steps; score: ``eval/episode_reward`` there, where it was measured."""

    file: str
    step: int
    episodes: int
    score: float | None
    sha256: str


class CheckpointStore:
    """The checkpoints of one run directory: the newest, the one before it, and the best; with ``keep_all`` all."""

    def __init__(self, directory: Path, *, keep_all: bool = False) -> None:
        self.directory, self.keep_all = directory, keep_all
        self.entries: list[Entry] = []  # oldest first
        self.best: str | None = None
        self.dropped: list[str] = []  # files to remove once the index is written; a kill may come between
        self._read_index()

    def save(self, state: dict[str, Any], *, step: int, episodes: int, score: float | None, best: bool) -> Path:
        """Write ``checkpoint_ep{episodes}.pt`` (temporary file, fsync, rename), then the index, then drop old files.

        A second checkpoint within one episode is ``checkpoint_ep{episodes}_step{step}.pt``: no other one is replaced.
        Raises OSError where the disk does not take it; nothing half-written stays under a final name, and the store
        is as it was.
        """
        path = self.directory / f"checkpoint_ep{episodes}.pt"
        if any(entry.file == path.name and entry.step != step for entry in self.entries):
            path = path.with_name(f"checkpoint_ep{episodes}_step{step}.pt")
        present = self._beside(path)
        digest = _write(path, state | {"format": FORMAT})
        entry = Entry(path.name, step, episodes, score, digest)
        best = best or any(e.step == step and e.file == self.best for e in self.entries)
        best_file = path.name if best else self.best
        entries = [e for e in self.entries if e.step != step] + [entry]
        kept = {e.file for e in (entries if self.keep_all else entries[-2:])} | {best_file}
        entries = [e for e in entries if e.file in kept]
        self.dropped = sorted({e.file for e in present} - kept)
        self._write_index(entries, best_file)
        self.entries, self.best = entries, best_file
        self._remove_dropped()
        return path

    def adopt(self, file: str, content: bytes, *, step: int, episodes: int, score: float | None, best: bool) -> None:
        """Take in a checkpoint that was read elsewhere, as it is, as the newest. Raises OSError."""
        with replacing(self.directory / file) as temporary:
            temporary.write_bytes(content)
        self.entries.append(Entry(file, step, episodes, score, hashlib.sha256(content).hexdigest()))
        self.best = file if best else self.best
        self._write_index(self.entries, self.best)

    def _beside(self, path: Path) -> list[Entry]:
        """The index as it now is. Where it named ``path``, which is to be replaced, it names a copy of it.

        So it names only files that are as it says, wherever the process is killed.
        """
        if path.name not in {entry.file for entry in self.entries}:
            return self.entries
        copy = path.with_name(f"{path.stem}_before.pt")
        with replacing(copy) as temporary:
            shutil.copyfile(path, temporary)
        entries = [replace(entry, file=copy.name) if entry.file == path.name else entry for entry in self.entries]
        self._write_index(entries, copy.name if self.best == path.name else self.best)
        return entries

    def path(self, which: str) -> Path:
        """Path of ``"last"`` or ``"best"``. Raises CheckpointError where there is none."""
        name = self.best if which == "best" else self.entries[-1].file if self.entries else None
        if name is None:
            raise CheckpointError(f"{self.directory}: holds no {which} checkpoint")
        return self.directory / name

    def newest(self) -> tuple[dict[str, Any], Path, list[str]]:
        """The newest usable checkpoint: (state, path, what was wrong with newer ones)."""
        problems: list[str] = []
        for entry in reversed(self.entries):
            path = self.directory / entry.file
            try:
                return load(path), path, problems
            except CheckpointError as error:
                problems.append(str(error))
        detail = f" ({'; '.join(problems)})" if problems else ""
        raise CheckpointError(f"{self.directory}: no checkpoint that can be used{detail}")

    def forget_after(self, step: int) -> None:
        """Leave out what lies beyond ``step``: a resume from there writes it anew."""
        self.entries = [entry for entry in self.entries if entry.step <= step]
        if self.best not in {entry.file for entry in self.entries}:
            self.best = None
        self._write_index(self.entries, self.best)
        self._remove_dropped()

    def _remove_dropped(self) -> None:
        copies = {path.name for path in self.directory.glob("checkpoint_ep*_before.pt")}
        for name in copies.union(self.dropped) - {entry.file for entry in self.entries}:
            (self.directory / name).unlink(missing_ok=True)

    def _read_index(self) -> None:
        try:
            index = json.loads((self.directory / INDEX).read_text(encoding="utf-8"))
            self.entries = [Entry(**entry) for entry in index["checkpoints"]]
            self.best, self.dropped = index["best"], index.get("dropped", [])
            for name in (self.best, *self.dropped, *(entry.file for entry in self.entries)):
                if name is not None and (Path(name).name != name or name in ("", "..")):
                    raise ValueError(f"{name!r} is no file name")
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{self.directory / INDEX}: damaged ({error})") from None

    def _write_index(self, entries: list[Entry], best: str | None) -> None:
        index = {"best": best, "dropped": self.dropped, "checkpoints": [asdict(entry) for entry in entries]}
        write_text(self.directory / INDEX, json.dumps(index, indent=1) + "\n")


def load(path: Path | str) -> dict[str, Any]:
    """Read one checkpoint onto the CPU. Raises CheckpointError: missing, damaged, foreign, of an unknown format."""
    path = Path(path)
    expected = _indexed_digest(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(item.file_size for item in archive.infolist()) > SIZE_LIMIT:
                raise CheckpointError(f"{path}: unpacks to more than {SIZE_LIMIT >> 30} GiB; no checkpoint of NAVRL does")
        if expected is not None and sha256_of(path) != expected:
            raise CheckpointError(f"{path}: damaged (its SHA-256 is not the one in {INDEX})")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except pickle.UnpicklingError:
        raise CheckpointError(f"{path}: holds more than tensors and plain values, so NAVRL did not write it") from None
    except (Exception, MemoryError):  # a damaged file can make torch raise anything
        raise CheckpointError(f"{path}: truncated, damaged or no checkpoint at all") from None
    known = isinstance(state, dict) and type(state.get("format")) is int and isinstance(state.get("config"), str)
    if not known:
        raise CheckpointError(f"{path}: not a checkpoint of NAVRL")
    return _migrated(state, path)


def _migrated(state: dict[str, Any], path: Path) -> dict[str, Any]:
    """The state in today's format. Raises CheckpointError for a format from which no steps lead here."""
    version = state["format"]
    if version > FORMAT:
        raise CheckpointError(f"{path}: format {version} is newer than what is read here ({FORMAT}); update NAVRL")
    while version < FORMAT:
        if version not in MIGRATIONS:
            formats = f"{min(MIGRATIONS)} to {FORMAT}"
            raise CheckpointError(f"{path}: format {version} is not read here; formats {formats} are")
        try:
            state = MIGRATIONS[version](state)
        except (KeyError, TypeError, ValueError, AttributeError):  # a part that each file of that format has
            raise CheckpointError(f"{path}: not a whole checkpoint of format {version}") from None
        version += 1
    return state | {"format": FORMAT}


def _indexed_digest(path: Path) -> str | None:
    try:
        index = json.loads((path.parent / INDEX).read_text(encoding="utf-8"))
        return next((e["sha256"] for e in index["checkpoints"] if e["file"] == path.name), None)
    except (OSError, ValueError, TypeError, KeyError):
        return None  # a single file that was copied away from its run


def _write(path: Path, state: dict[str, Any]) -> str:
    # torch's own file writer dies of a full disk with a RuntimeError that does not say so
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())
    return hashlib.sha256(buffer.getbuffer()).hexdigest()
