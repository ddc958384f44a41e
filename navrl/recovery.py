"""A run whose directory is gone, taken up again from a checkpoint that a tracker has.

``recover`` fetches it and knows what the run was; ``make_directory`` makes a directory that is, to everything else,
that of the run stopped at this checkpoint: same uid, so trackers go on with the same run; no rows, for those are theirs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from navrl.checkpoint import CheckpointError, CheckpointStore, load
from navrl.faults import ConfigError, Fault
from navrl.files import settle_names, write_text
from navrl.naming import Names, safe_directory
from navrl.tracking.convert import json_ready
from navrl.tracking.fetch import Fetched, FetchError, Published, fetch
from navrl.tracking.publish import write_run_info
from navrl.tracking.record import RunExists, Unwritable, begin_elsewhere
from navrl.tracking.tracker import RunInfo


@dataclass(frozen=True)
class LostRun:
    """What a tracker's checkpoint says of its run.

    reference: as it was typed. state: of the checkpoint to go on from. files: (name, content, what was published with
    it, whether it is the best so far), the one to go on from last. name: display name. wandb_run: its id in W&B where
    that is known and not the uid. notices: lines for the console.
    """

    reference: str
    state: dict[str, Any]
    files: tuple[tuple[str, bytes, Published, bool], ...]
    uid: str
    name: str
    wandb_run: str | None
    notices: tuple[str, ...] = ()

    @property
    def origin(self) -> dict[str, Any]:
        """Where the run goes on from, for ``metadata.json``."""
        file, _, about, _ = self.files[-1]
        return {"from": self.reference, "checkpoint": file, "sha256": about.sha256}


def recover(reference: str, settings: Mapping[str, Any]) -> LostRun:
    """Fetch a checkpoint and the best one before it. settings: as ``fetch`` takes them.

    Raises ConfigError (key ``resume``) where no run can go on from it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="navrl-fetch-") as directory:
            own, *others = fetch(reference, Path(directory), settings, with_best=True)
            return _lost_run(reference, own, others)
    except CheckpointError as error:
        message = str(error).replace(f"{directory}/", "")
        raise ConfigError([Fault("resume", f"{reference}: {message}")]) from error
    except FetchError as error:
        raise ConfigError([Fault("resume", str(error))]) from error
    except OSError as error:
        raise ConfigError([Fault("resume", f"{reference}: {error.strerror} ({error.filename})")]) from error


def _lost_run(reference: str, own: Fetched, others: list[Fetched]) -> LostRun:
    state, about = load(own.path), own.about
    if not isinstance(state.get("best_score"), float) or not isinstance(state.get("elapsed"), float):
        raise CheckpointError(f"{own.path}: holds a policy and no run; evaluate it, or start a new run")
    best_score, notices = state["best_score"], []
    best = next((other for other in others if other.about.score == best_score), None)
    is_best = about.score == best_score and best is None  # of equal ones the first counts
    files = [(own.path.name, own.path.read_bytes(), about, is_best)]
    if not is_best and best_score > -math.inf:
        if best is not None:
            load(best.path)
            files.insert(0, (best.path.name, best.path.read_bytes(), best.about, True))
        else:
            notices.append(f"the best checkpoint so far (eval reward {best_score:.2f}) is not in the tracker: the best "
                           "is chosen among later ones")
    wandb_run = own.wandb_run if own.wandb_run != about.uid else None
    return LostRun(reference, state, tuple(files), about.uid, about.run, wandb_run, tuple(notices))


def make_directory(lost: LostRun, root: Path, names: Names, *, if_exists: str) -> Path:
    """Make the run's directory under ``root``, whole at once, and return it.

    Raises RunExists where the run's directory is still there, or where another run has its name and ``if_exists`` is
    ``error`` (else the directory is numbered, as that of a new run); Unwritable. Nothing is left then.
    """
    parent = root / safe_directory(names.project) / safe_directory(names.group)
    suffix = lost.name.removeprefix(names.experiment_name)
    suffix = suffix if re.fullmatch(r"-\d+", suffix) else ""
    scratch = parent / f".{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        made = [directory for directory in (parent, *parent.parents) if not directory.exists()]
        try:
            parent.mkdir(parents=True, exist_ok=True)
            scratch.mkdir()
            _fill(scratch, lost, names, suffix)
            with _alone_in(parent):
                return _place(scratch, parent, safe_directory(names.experiment_name) + suffix, lost.uid, if_exists)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            for directory in made:
                with contextlib.suppress(OSError):
                    directory.rmdir()
            raise
    except OSError as error:
        raise Unwritable(f"cannot write {error.filename or parent}: {error.strerror}; "
                         "choose a directory that can be written with --run_dir") from None


def _fill(run_dir: Path, lost: LostRun, names: Names, suffix: str) -> None:
    (run_dir / "checkpoints").mkdir()
    store = CheckpointStore(run_dir / "checkpoints")
    for file, content, about, best in lost.files:
        store.adopt(file, content, step=about.step, episodes=about.episodes, score=about.score, best=best)
    write_text(run_dir / "config.yaml", lost.state["config"])
    step = store.entries[-1].step
    begin_elsewhere(run_dir, uid=lost.uid, suffix=suffix, elapsed=lost.state["elapsed"], step=step,
                    source=lost.reference)
    if lost.state.get("owed"):  # the row of a stop amid an evaluation: what it held already is not news to trackers
        row = {"step": step, "time": lost.state["elapsed"], **lost.state["owed"]}
        write_text(run_dir / "metrics.cut-1.jsonl", json.dumps(json_ready(row), allow_nan=False) + "\n")
    settings = {"wandb_run_id": lost.wandb_run} if lost.wandb_run else {}
    write_run_info(run_dir, RunInfo(lost.uid, names.project, names.experiment_name + suffix, names.group,
                                    settings=settings))
    if lost.wandb_run:  # a chosen id: W&B is to go on with it
        (run_dir / "tracking" / "wandb").mkdir()
        (run_dir / "tracking" / "wandb" / "started").touch()


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Of the processes that bring a run back here one at a time, so that one run gets one directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _place(scratch: Path, parent: Path, name: str, uid: str, if_exists: str) -> Path:
    number = 1
    while True:
        for path in parent.glob("[!.]*/tracking/run.json"):
            if _uid_of(path) == uid:
                there = path.parent.parent
                raise RunExists(f"the run's directory is still there; continue it with --resume {there}")
        run_dir = parent / (name if number == 1 else f"{name}-{number}")
        try:
            run_dir.mkdir()
        except FileExistsError:
            if if_exists == "error":
                raise RunExists(f"{run_dir} exists and is another run's; choose --if_exists new") from None
            number += 1
            continue
        os.rename(scratch, run_dir)  # over the empty one, in one step
        settle_names(parent)
        return run_dir


def _uid_of(path: Path) -> str | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))["uid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
