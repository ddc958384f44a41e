"""The local record of a run: the truth that resume, comparison, sync and reports read.

    run_dir/config.yaml, metadata.json, metrics.jsonl, summary.json, checkpoints/, media/, console.log
    run_dir/tracking/events.jsonl       journal of all that is not a row: attempts, cuts, media, artifacts, alerts
    run_dir/.lock                       held (flock) by the process that writes the record

`metrics.jsonl` is append-only within an attempt: one strict-JSON object a step, "step", "time", then metrics.

What is kept: a row that was flushed outlives the death of this process, one that was synced (before every checkpoint)
that of the machine; so what a checkpoint continues is on disk whenever the checkpoint is.
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from navrl.files import settle_names, sweep, write_text
from navrl.tracking.convert import from_json, json_ready, plain, scalars

METRICS, EVENTS, SUMMARY, LOCK = "metrics.jsonl", "tracking/events.jsonl", "summary.json", ".lock"
ELSEWHERE = "elsewhere"               # event: what came before is not in this record (`begin_elsewhere`)
RESERVED = ("step", "time")
BUFFER_BYTES = 64 * 2**20             # rows kept in memory while the disk takes none
LOCK_PATIENCE = 1.0                   # seconds; `is_alive` of another process holds the lock for microseconds


class RecordError(Exception):
    """The record cannot be made, opened or extended; the message is one line that says why and what to do."""


class Unwritable(RecordError):
    """No run can be made under this root."""


class RunExists(RecordError):
    """The name is taken and `if_exists` is `error`."""


class RunLocked(RecordError):
    """A live process already writes this run."""


class RecordClash(RecordError):
    """Two different values for one metric at one step, or a step that was already written."""


# ---------------------------------------------------------------------------------------------- files

def write_json(path: Path | str, value: Any) -> None:
    """Atomic, strict JSON (non-finite numbers as strings), two spaces of indent."""
    write_text(path, json.dumps(json_ready(value), indent=2, allow_nan=False) + "\n")


def parse_lines(data: bytes, source: str, *, steps: bool = False) -> tuple[list[dict], int]:
    """Whole rows of a JSON-lines file and the length of the part that holds them.

    What follows the last whole row (a write cut short by a kill or a full disk) is left out. A damaged line with whole
    rows after it is no such tail: RecordError; so is, with `steps`, a row without a whole-number step.
    """
    rows, good, damaged, position = [], 0, None, 0
    for line in data.splitlines(keepends=True):
        position += len(line)
        try:
            row = json.loads(line)
            whole = isinstance(row, dict)
        except ValueError:
            whole = False
        if not whole:
            damaged = damaged or len(rows) + 1
        elif damaged:
            raise RecordError(f"{source}: line {damaged} is damaged and rows follow it; restore the file or remove "
                              "the line")
        else:
            if steps and type(row.get("step")) is not int:
                raise RecordError(f"{source}: line {len(rows) + 1} has no whole-number step; restore the file or remove "
                                  "the line")
            rows.append(row)
            good = position
    return rows, good


class Appender:
    """A JSON-lines file to which whole lines are added, or none: a short write (disk full) is taken back.

    Lines that cannot be written wait in memory and go first once there is space again.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[dict] = []
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.dropped = 0
        self.error: OSError | None = None         # why the last write failed; None = all is on disk
        self._fd = -1
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        data = _read_all(self._fd)
        self.rows, good = parse_lines(data, str(self.path), steps=self.path.name == METRICS)
        if good < len(data):
            os.ftruncate(self._fd, good)
        self.size = good
        if good and data[good - 1:good] != b"\n":  # a whole row whose newline alone is missing
            os.write(self._fd, b"\n")
            self.size += 1

    def add(self, row: Mapping[str, Any]) -> bool:
        """Write one row; False if it has to wait. Never raises for a disk that is full or gone."""
        line = (json.dumps(row, allow_nan=False, separators=(", ", ": ")) + "\n").encode()
        self.waiting.append(line)
        self.waiting_bytes += len(line)
        while self.waiting_bytes > BUFFER_BYTES:
            self.waiting_bytes -= len(self.waiting.popleft())
            self.dropped += 1
        return self.retry()

    def retry(self) -> bool:
        """Write what waits. True when nothing waits any more."""
        try:
            if os.fstat(self._fd).st_nlink == 0:
                self._bring_back()
            while self.waiting:
                line = self.waiting[0]
                if os.write(self._fd, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self.size += len(line)
                self.waiting_bytes -= len(line)
                self.waiting.popleft()
            self.error = None
        except OSError as error:
            self.error = error
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
        return not self.waiting

    def sync(self) -> None:
        """What was written is on the disk itself. A disk that cannot says so in `error`."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            self.error = error

    def _bring_back(self) -> None:
        """The file was deleted under us: its content is still behind the descriptor, so write it anew."""
        data = _read_all(self._fd)[:self.size]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        written = os.write(handle, data)
        if written != len(data):
            os.close(handle)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.close(self._fd)
        self._fd = handle

    def reopen(self) -> None:
        """Follow a file that was replaced."""
        os.close(self._fd)
        self._open()

    def close(self) -> None:
        if self._fd >= 0:
            self.retry()
            os.close(self._fd)
            self._fd = -1


def _read_all(fd: int) -> bytes:
    size, parts, offset = os.fstat(fd).st_size, [], 0
    while offset < size and (part := os.pread(fd, size - offset, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


# ---------------------------------------------------------------------------------------------- lock

class RunLock:
    """An exclusive flock on a file. The kernel lets go of it when the process dies, however it dies.

    So no process id is ever looked up, and one that is used again misleads nobody: what the file says is for people.
    On NFS the server holds the lock for all its clients. Raises RunLocked, and OSError where there are no locks.
    """

    _live: weakref.WeakSet[RunLock] = weakref.WeakSet()

    def __init__(self, path: Path, patience: float = LOCK_PATIENCE):
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = _read_all(self._fd).decode(errors="replace").strip() or "unknown"
                    os.close(self._fd)
                    raise RunLocked(f"{path.parent} is in use by another process (pid {holder}); "
                                    "wait for it, or start a new run with --if_exists new") from None
                time.sleep(0.02)
            except OSError as error:
                os.close(self._fd)
                raise OSError(error.errno, f"its file system gives no locks ({error.strerror})", str(path)) from None
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        RunLock._live.add(self)

    def fileno(self) -> int:
        """Its descriptor: a child process that it is passed to (`pass_fds`) holds the lock as well."""
        return self._fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _forget_locks() -> None:
    """A forked worker shares the lock's descriptor; closing its copy keeps it from outliving the run as the holder."""
    for lock in list(RunLock._live):
        lock.release()


os.register_at_fork(after_in_child=_forget_locks)


def is_locked(path: Path | str) -> bool:
    """Whether some live process holds the lock file `path`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:                               # no locks here: no run either, `RunLock` refused it
        return False
    finally:
        os.close(handle)


# ---------------------------------------------------------------------------------------------- readers

def is_alive(run_dir: Path | str) -> bool:
    """Whether a live process writes this run."""
    return is_locked(Path(run_dir) / LOCK)


def read_rows(run_dir: Path | str) -> list[dict[str, Any]]:
    """Rows of `metrics.jsonl`, non-finite values as floats; a torn last line is left out. [] where there is none.

    Raises RecordError for a damaged line in the middle.
    """
    return [{key: from_json(value) for key, value in row.items()} for row in _read_lines(Path(run_dir) / METRICS)]


def read_events(run_dir: Path | str) -> list[dict[str, Any]]:
    """The journal: attempts, cuts, media, tables, artifacts, alerts, finish, in the order in which they happened."""
    return _read_lines(Path(run_dir) / EVENTS)


def read_summary(run_dir: Path | str) -> dict[str, Any]:
    """`summary.json`; status `running` of a run whose process is gone reads as `crashed`. {} where there is none."""
    try:
        summary = json.loads((Path(run_dir) / SUMMARY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RecordError(f"{Path(run_dir) / SUMMARY} is damaged: {error}") from None
    if not isinstance(summary, dict):
        raise RecordError(f"{Path(run_dir) / SUMMARY} is damaged: it holds no object")
    if summary.get("status") == "running" and not is_alive(run_dir):
        summary["status"] = "crashed"
    return summary


def _read_lines(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return parse_lines(data, str(path), steps=path.name == METRICS)[0]


# ---------------------------------------------------------------------------------------------- the record

def begin_elsewhere(run_dir: Path, *, uid: str, suffix: str, elapsed: float, step: int, source: str) -> None:
    """Make the journal of a run whose earlier directory is gone, so that the next attempt is this run's next.

    elapsed: seconds that it trained there; step: environment steps up to which it is `source` that has the run.
    """
    first = {"wall": round(time.time() - elapsed, 3), "attempt": 1}
    events = [{"event": "attempt", **first, "uid": uid, "suffix": suffix, "base": 0.0},
              {"event": ELSEWHERE, **first, "step": step, "source": source}]
    (run_dir / EVENTS).parent.mkdir(exist_ok=True)
    write_text(run_dir / EVENTS, _as_lines(events))


class LocalRecord:
    """The open record of one run, written by one process. Make it with `create` or `open`."""

    def __init__(self, run_dir: Path, lock: RunLock, *, resumed: bool, suffix: str = ""):
        self.run_dir, self.resumed = run_dir, resumed
        self.checkpoints_dir, self.media_dir = run_dir / "checkpoints", run_dir / "media"
        self.full = False             # True while the disk takes no more: leave media out
        self._lock = lock
        self._said: set[str] = set()
        self._warnings: list[str] = []
        self._pending: dict[str, Any] = {}
        self._pending_step: int | None = None
        self._base, self._started = 0.0, time.monotonic()
        self._closed = False
        for directory in (self.checkpoints_dir, self.media_dir, run_dir / "tracking"):
            directory.mkdir(exist_ok=True)
            sweep(directory)
        sweep(run_dir)
        self._metrics, self._events = Appender(run_dir / METRICS), Appender(run_dir / EVENTS)
        self._written = {row["step"] for row in self._metrics.rows if isinstance(row.get("step"), int)}
        self.last_step = max(self._written, default=None)
        # What came before is not here (`begin_elsewhere`).
        self.first_step = next((event.get("step", 0) for event in self._events.rows if event.get("event") == ELSEWHERE), 0)
        attempts = [event for event in self._events.rows if event.get("event") == "attempt"]
        self.attempt = len(attempts) + 1
        # A journal that was damaged or lost says neither; trackers then have a run more.
        self.uid = next((uid for event in attempts if isinstance(uid := event.get("uid"), str)), secrets.token_hex(6))
        self.suffix = suffix or next((word for event in attempts if isinstance(word := event.get("suffix"), str)), "")
        self._metrics.rows, self._events.rows = [], []
        self._summary = self._load_summary()
        self.update_summary(status="running")
        self._started = time.monotonic()          # what came before, on a slow disk seconds, is no part of the run
        self.event("attempt", uid=self.uid, suffix=self.suffix, base=0.0)
        for directory in (run_dir / "tracking", run_dir, *run_dir.parents[:4]):
            settle_names(directory)

    # ---- life

    @classmethod
    def create(cls, root: Path | str, project_dir: str, group_dir: str, name_dir: str, *,
               if_exists: str = "new", admit: Callable[[Path], None] | None = None) -> LocalRecord:
        """Make `root/project_dir/group_dir/name_dir` and lock it, safe against any number of processes at once.

        `if_exists`: `new` numbers a taken name (`name-2`, `name-3`, ...), `error` raises RunExists, `resume` opens
        the run that is there (see `open` for `admit`). Raises RunLocked when `resume` meets a live run, Unwritable
        when nothing can be written there.
        """
        if if_exists not in ("new", "resume", "error"):
            raise RecordError(f"if_exists: {if_exists!r} is none of new, resume, error")
        for part in (project_dir, group_dir, name_dir):
            if not part or part in (".", "..") or "/" in part or "\0" in part:
                raise RecordError(f"{part!r} is no directory name")
        parent = Path(root).expanduser().absolute() / project_dir / group_dir
        absent = []
        try:
            absent = [directory for directory in (parent, *parent.parents) if not directory.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            number = 1
            while True:
                suffix = "" if number == 1 else f"-{number}"
                run_dir = parent / (name_dir + suffix)
                try:
                    run_dir.mkdir()
                except FileExistsError:
                    if if_exists == "resume":
                        return cls.open(run_dir, admit)
                    if if_exists == "error":
                        raise RunExists(f"{run_dir} exists; choose another --experiment_name, "
                                        "or --if_exists new or resume") from None
                    number += 1
                    continue
                return cls._begin(run_dir, suffix)
        except OSError as error:
            for directory in absent:
                with contextlib.suppress(OSError):        # another run is in it, or it could not be made
                    directory.rmdir()
            raise Unwritable(f"cannot write {error.filename or parent}: {error.strerror}; "
                             "choose a directory that can be written with --run_dir") from None

    @classmethod
    def _begin(cls, run_dir: Path, suffix: str) -> LocalRecord:
        try:
            record = cls(run_dir, RunLock(run_dir / LOCK), resumed=False, suffix=suffix)
            if record._events.error:
                raise record._events.error
            return record
        except OSError:
            shutil.rmtree(run_dir, ignore_errors=True)      # nothing half-made stays behind
            raise

    @classmethod
    def open(cls, run_dir: Path | str, admit: Callable[[Path], None] | None = None) -> LocalRecord:
        """Open an existing run to continue it. Raises RunLocked (in use), RecordError (not there, damaged, read-only).

        `admit` is called with the lock held and before anything is written; what it raises leaves the run as it was.
        """
        run_dir = Path(run_dir).expanduser().absolute()
        if not run_dir.is_dir():
            raise RecordError(f"{run_dir} is no run directory")
        try:
            lock = RunLock(run_dir / LOCK)
            try:
                if admit is not None:
                    admit(run_dir)
                return cls(run_dir, lock, resumed=True)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise RecordError(f"{error.filename or run_dir} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Write what is pending and let go of the lock. Safe to call twice."""
        if self._closed:
            return
        self.flush()
        self._store_summary()
        self._metrics.close()
        self._events.close()
        self._lock.release()
        self._closed = True

    # ---- rows

    def start_clock(self, base: float = 0.0) -> None:
        """`time` counts seconds from this call, added to `base` (the checkpoint's `elapsed()`)."""
        self._base, self._started = float(base), time.monotonic()
        self.event("clock", base=self._base)

    def elapsed(self) -> float:
        """Seconds of training since the run's start, over all attempts."""
        return self._base + time.monotonic() - self._started

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Add metrics to the row of `step` (environment steps); it is written when another step begins or by `flush`.

        Raises RecordClash where the step has another value for a metric, or is already written. What cannot be a number
        is left out and named once in `warnings()`.
        """
        step = _whole_step(step)
        if step != self._pending_step:
            if step in self._written:
                raise RecordClash(f"step {step} is already written; what belongs to one step is logged before the next")
            self.flush()
            self._pending_step = step
            self._pending = {"step": step, "time": round(self.elapsed(), 6)}
        curves, refused = scalars(metrics)
        for name, why in refused.items():
            self._warn(f"value:{name}", f"{name} is not recorded: it is {why}")
        for name, value in curves.items():
            if name in RESERVED:
                raise RecordClash(f"{name!r} is the record's own column; give the metric another name")
            value = json_ready(value)
            if name in self._pending and self._pending[name] != value:
                raise RecordClash(f"{name} is logged twice for step {step}: {self._pending[name]} and {value}")
            self._pending[name] = value

    def flush(self) -> None:
        """Write the pending row."""
        if self._pending_step is None:
            return
        row, self._pending, self._pending_step = self._pending, {}, None
        self._written.add(row["step"])
        self.last_step = row["step"] if self.last_step is None else max(self.last_step, row["step"])
        self._metrics.add(row)
        self._watch_disk()

    def sync(self) -> None:
        """Flush, and wait until the disk has it: before a checkpoint is made, so that its rows are never behind it."""
        self.flush()
        self._metrics.sync()
        self._events.sync()
        self._watch_disk()

    def truncate_after(self, step: int) -> int:
        """Cut rows after `step` (a resume's checkpoint) in one atomic step; they are kept in `metrics.cut-K.jsonl`.

        Returns the number of rows cut.
        """
        self.flush()
        rows = _read_lines(self.run_dir / METRICS)
        kept = [row for row in rows if row["step"] <= step]
        cut = [row for row in rows if row["step"] > step]
        if cut:
            text = _as_lines(cut)
            earlier = sorted(self.run_dir.glob("metrics.cut-*.jsonl"), key=_cut_number)
            # A crash between the two renames leaves the cut rows kept and not yet removed: do not keep them twice.
            if not (earlier and earlier[-1].read_text(encoding="utf-8") == text):
                number = _cut_number(earlier[-1]) + 1 if earlier else 1
                write_text(self.run_dir / f"metrics.cut-{number}.jsonl", text)
            write_text(self.run_dir / METRICS, _as_lines(kept))
            self._metrics.reopen()
            self._metrics.rows = []
        self._written = {row["step"] for row in kept}
        self.last_step = max(self._written, default=None)
        self.event("cut", step=int(step), rows=len(cut))
        return len(cut)

    # ---- everything else

    def event(self, kind: str, **fields: Any) -> None:
        """Add to the journal from which trackers learn of everything that is not a row."""
        self._events.add(json_ready({"event": kind, "wall": round(time.time(), 3), "attempt": self.attempt, **fields}))
        self._watch_disk()

    def update_summary(self, **fields: Any) -> None:
        """Set top-level keys of `summary.json`, atomically. A full disk is warned of; the values are kept for later."""
        self._summary.update(json_ready(fields))
        self._store_summary()

    def forget_summary(self, *keys: str) -> None:
        """Take top-level keys out of `summary.json`."""
        for key in keys:
            self._summary.pop(key, None)
        self._store_summary()

    def write_config(self, text: str) -> None:
        """`config.yaml`, the resolved configuration."""
        self._guarded("config.yaml", lambda: write_text(self.run_dir / "config.yaml", text))

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """`metadata.json`, layer 4."""
        self._guarded("metadata.json", lambda: write_json(self.run_dir / "metadata.json", metadata))

    def console(self, line: str) -> None:
        """Add one line to `console.log`."""
        with contextlib.suppress(OSError), open(self.run_dir / "console.log", "a", encoding="utf-8") as file:
            file.write(line.rstrip("\n") + "\n")

    def warnings(self) -> list[str]:
        """Problems met since the last call, each said once in a run."""
        said, self._warnings = self._warnings, []
        return said

    @property
    def rows(self) -> int:
        """Rows recorded so far, without the pending one."""
        return len(self._written)

    @property
    def lost(self) -> int:
        """Rows that are not on disk: given up, or still waiting for space."""
        return self._metrics.dropped + len(self._metrics.waiting)

    def _load_summary(self) -> dict[str, Any]:
        try:
            return read_summary(self.run_dir)
        except RecordError as error:
            self._warn("summary", f"{error}; it is written anew")
            return {}

    def _store_summary(self) -> None:
        self._guarded(SUMMARY, lambda: write_json(self.run_dir / SUMMARY, self._summary))

    def _guarded(self, name: str, write: Any) -> None:
        try:
            write()
        except OSError as error:
            self._warn(f"file:{name}", f"{self.run_dir / name} cannot be written: {error.strerror}; training goes on")

    def _watch_disk(self) -> None:
        error = self._metrics.error or self._events.error
        if error and not self.full:
            self._warn("disk", f"{self.run_dir} takes no more rows ({error.strerror}): media and artifacts are left "
                               "out, rows wait in memory until there is space; training goes on")
        elif self.full and not error:
            self._warnings.append(f"{self.run_dir} can be written again; the rows that waited are there")
        self.full = error is not None

    def _warn(self, cause: str, line: str) -> None:
        if cause not in self._said:
            self._said.add(cause)
            self._warnings.append(line)


def _whole_step(step: Any) -> int:
    value = plain(step)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or value < 0:
        raise RecordClash(f"step {step!r} is not a whole number of environment steps")
    return value


def _as_lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row, allow_nan=False, separators=(", ", ": ")) + "\n" for row in rows)


def _cut_number(path: Path) -> int:
    number = path.name.removeprefix("metrics.cut-").removesuffix(".jsonl")
    return int(number) if number.isdigit() else 0
