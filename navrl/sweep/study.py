"""The study that all workers of a sweep share: where it is, whose each trial is, who takes over from the dead.

storage                  a trial's worker is dead when
sqlite file, journal     the lock that each worker holds beside the file is free (the kernel frees it, however it died)
database server          it has sent no heartbeat for GRACE intervals
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import time
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
import sqlalchemy.exc
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState

from navrl.redaction import redact
from navrl.sweep import slots
from navrl.tracking.record import RunLock, is_locked

JOURNAL = "journal:"
SQLITE_URL = "sqlite:///"
WORKER = "worker"  # user attribute: whose trial it is
GRACE = 4  # missed heartbeats after which a worker counts as dead
UNCLAIMED = 30.0  # seconds; a worker writes its name on a trial milliseconds after it began it
IDENTITY = "sweep"  # user attribute of the study: what is searched
ATTEMPTS = 5
SQLITE: dict[str, Any] = {"connect_args": {"timeout": 60}}  # seconds to wait for other workers' writing
SERVER: dict[str, Any] = {"pool_pre_ping": True}  # a connection that the server has closed is opened again
LOST = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, OSError)  # it may come back
STORAGE_ERRORS = (*LOST, ValueError, RuntimeError)


class StudyError(Exception):
    """The study cannot be had; the message is one line."""


class SharedStudy:
    """One worker's view of the study."""

    def __init__(
        self,
        storage: str,
        name: str,
        *,
        identity: dict[str, Any],
        maximize: bool,
        sampler: optuna.samplers.BaseSampler,
        pruner: optuna.pruners.BasePruner,
        heartbeat: int,
    ) -> None:
        """storage: an SQLAlchemy URL, or ``journal:PATH``. heartbeat: seconds.

        Raises StudyError where it cannot be reached or is of another sweep.
        """
        quieten()
        self._storage, place = open_storage(storage, heartbeat)
        self._lock: RunLock | None = None
        self._workers = place
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        with told(storage):
            if place is not None:
                place.mkdir(exist_ok=True)
                self._lock = RunLock(place / self.worker)
            self.study = optuna.create_study(
                storage=self._storage, study_name=name, sampler=sampler, pruner=pruner, load_if_exists=True,
                direction="maximize" if maximize else "minimize",
            )  # fmt: skip
            known = self.study.user_attrs.get(IDENTITY)
            if known is None:
                self.study.set_user_attr(IDENTITY, identity)
        if known not in (None, identity):
            differing = [key for key in identity if known.get(key) != identity[key]]
            what = f"study {name} is of another sweep ({', '.join(differing)} differ)"
            raise StudyError(f"{what}; give this one another --group")
        self._unclaimed: dict[int, float] = {}
        self._beaten = -float("inf")

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials, as they are now. Not to be changed."""
        return self.study.get_trials(deepcopy=False)

    def claim(self, space: dict[str, optuna.distributions.BaseDistribution], total: int) -> optuna.Trial | None:
        """Begin a trial that waits, or a fresh one; None where others were faster and none is left."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that heartbeats are for Study.optimize: `beat` sends them
            trial = self.study.ask(space)
        if slots.is_surplus(self.trials, trial.number, total):
            self.fail(trial, slots.SURPLUS)
            return None
        self._beat([trial])
        trial.set_user_attr(WORKER, self.worker)
        return trial

    def fail(self, trial: optuna.Trial, reason: str) -> None:
        """It ended without a value, for good."""
        trial.set_user_attr(slots.REASON, reason)
        self.study.tell(trial, state=TrialState.FAIL)

    def give_back(self, trial: optuna.Trial) -> None:
        """It is nobody's any more: whoever looks next puts it back into the queue."""
        trial.set_user_attr(slots.GIVEN_BACK, True)
        self.study.tell(trial, state=TrialState.FAIL)

    def beat(self, trials: Iterable[optuna.Trial]) -> None:
        """Say that this worker lives. Call it often; it writes when a heartbeat is due."""
        interval = getattr(self._storage, "heartbeat_interval", None)
        if interval is not None and time.monotonic() - self._beaten >= interval:
            self._beat(trials)
            self._beaten = time.monotonic()

    def _beat(self, trials: Iterable[optuna.Trial]) -> None:
        if getattr(self._storage, "heartbeat_interval", None) is not None:
            for trial in trials:
                self._storage.record_heartbeat(trial._trial_id)

    def rescue(self, held: Collection[int], total: int) -> None:
        """Put the trials of dead workers back into the queue. Any number of workers may do so at once.

        held: numbers of the trials that this worker works on. total: how many trials there are to be.
        """
        optuna.storages.fail_stale_trials(self.study)
        trials = self.trials
        for trial in trials:
            if trial.state == TrialState.RUNNING and self._is_orphan(trial, held):
                with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # another was faster
                    self.study.tell(trial.number, state=TrialState.FAIL)
        for slot in slots.slots_of(self.trials)[:total]:
            if slot.lost:
                self.study.add_trial(_again(slot))

    def _is_orphan(self, trial: FrozenTrial, held: Collection[int]) -> bool:
        worker = trial.user_attrs.get(WORKER)
        if worker == self.worker:  # not held: the storage failed while it was begun
            return trial.number not in held
        if worker is None:  # it died between beginning the trial and writing its name, or does so just now
            return time.monotonic() - self._unclaimed.setdefault(trial.number, time.monotonic()) > UNCLAIMED
        return self._workers is not None and not is_locked(self._workers / worker)

    def close(self) -> None:
        if self._lock is not None and self._workers is not None:
            (self._workers / self.worker).unlink(missing_ok=True)
            self._lock.release()


def quieten() -> None:
    """What Optuna prints of its own; which of its parts are experimental is known, and its version pinned."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def open_storage(storage: str, heartbeat: int | None = None) -> tuple[optuna.storages.BaseStorage, Path | None]:
    """The storage and, for one in a file, the directory of its workers' locks. Raises StudyError."""
    path = file_of(storage)
    with told(storage):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            workers = path.with_name(path.name + ".workers")
            if storage.startswith(JOURNAL):
                _mend(path)
                return JournalStorage(JournalFileBackend(str(path))), workers
            # Not pasted together: in a URL ? begins a query, and % a code
            return _database(str(sqlalchemy.URL.create("sqlite", database=str(path))), SQLITE), workers
        grace = None if heartbeat is None else GRACE * heartbeat
        url = storage.replace("postgresql://", "postgresql+psycopg2://", 1)
        return _database(url, SERVER, heartbeat_interval=heartbeat, grace_period=grace), None


def file_of(storage: str) -> Path | None:
    """The file that holds it, absolute; None for a database server. Raises StudyError for what is neither."""
    for kind in (JOURNAL, SQLITE_URL):
        if storage.startswith(kind) and storage != kind:
            return Path(storage.removeprefix(kind)).expanduser().absolute()
    if re.match(r"postgresql(\+\w+)?://", storage):
        return None
    given = redact(f"--storage {storage}")
    kinds = "sqlite:///FILE, postgresql://USER@HOST/DATABASE or journal:FILE"
    raise StudyError(f"{given}: no study can be there; write {kinds}")


def _database(url: str, engine: dict[str, Any], **options: Any) -> RDBStorage:
    """Of several workers that make the tables at one moment all but one fail, and find them made a moment later."""
    for attempt in range(ATTEMPTS):
        try:
            return RDBStorage(url, engine_kwargs=dict(engine), **options)
        except sqlalchemy.exc.SQLAlchemyError:
            if attempt + 1 == ATTEMPTS:
                raise
            time.sleep(0.5)
    raise AssertionError("not reached")


def _mend(path: Path) -> None:
    """Take away a last line that was cut short (the disk was full): what is added to it would make it unreadable."""
    if not path.exists():
        return
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()
    try:
        with open(path, "r+b") as file:
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)
    finally:
        lock.release()


def _again(slot: slots.Slot) -> FrozenTrial:
    """A waiting trial that takes the slot over, with what is known of it."""
    last = slot.last
    own = (WORKER, slots.GIVEN_BACK)  # what is that trial's alone
    attrs = {key: value for key, value in last.user_attrs.items() if key not in own} | {slots.SLOT: slot.number}
    return optuna.create_trial(
        state=TrialState.WAITING, params=last.params, distributions=last.distributions, user_attrs=attrs,
        intermediate_values=last.intermediate_values,
    )  # fmt: skip


@contextlib.contextmanager
def told(storage: str) -> Iterator[None]:
    """What goes wrong with the storage, as a StudyError of one line without a password."""
    try:
        yield
    except ImportError as error:
        raise StudyError(f"{error.name or error} is not installed: pip install -r requirements-sweep.txt") from error
    except STORAGE_ERRORS as error:
        raise StudyError(redact(f"--storage {storage} cannot be used: {cause_of(error)}")) from error


def cause_of(error: BaseException) -> str:
    """What a storage has to say, in one line without a password: the driver's words, not those of who called it."""
    words = (line.strip() for line in str(error.__cause__ or error).splitlines())
    return redact(next((line for line in words if line), type(error).__name__))
