"""Publish a run from its local record: `python -m navrl.tracking.publish RUN_DIR --to wandb [--follow]`.

With `--follow` it is the child process that a training run starts for each tracker: it reads on until the run ends, or
its parent dies. Without, it publishes what is still owed and ends, which is all that `scripts/sync.py` does.

What went where is kept by `ledger.py`, so that publishing twice is publishing once.
"""
from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from navrl.files import sha256_of, sweep
from navrl.redaction import HIDDEN, filter_texts, hide_matches, in_all, redact, redact_all
from navrl.tracking.convert import from_json
from navrl.tracking.ledger import COUNTED, EARLIER, Ledger
from navrl.tracking.record import (
    ELSEWHERE, EVENTS, METRICS, RecordError, RunLock, RunLocked, parse_lines, read_summary, write_json,
)  # fmt: skip
from navrl.tracking.registry import TRACKERS, tracker_class
from navrl.tracking.tracker import Receipt, RunInfo, Tracker, TrackerUnavailable, Unpublishable

PUBLISHED = (*COUNTED, "artifact", "alert")
POLL, FLUSH_EVERY, BATCH = 0.2, 1.0, 500          # seconds, seconds, items
PAUSES = (1, 2, 4, 8, 15)                         # seconds between tries of what failed
NO_PROGRESS, HARD_CAP = 15.0, 120.0               # seconds; `tracker_timeout`, and the end of all patience
UNHURRIED = 45.0                                  # seconds without progress, where no training run waits for the end
LOCK_WAIT = HARD_CAP + 30                         # an earlier publisher of this run may be ending

# The run decides when to end: a signal to all of its processes, or a closed terminal, must not cut the upload.
FOR_THE_RUN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
SETTINGS_VARIABLE = "NAVRL_TRACKER_SETTINGS"      # how a child gets settings that may hold a password (a proxy's)
SHOWN_SETTINGS = ("wandb_project", "wandb_group", "wandb_name")
IDENTITY = ("sha256", "uid")                      # of an artifact: what it is found and verified by
NOT_STORED = {"run_dir", "started", "training_pid"}           # fields of RunInfo that belong to this moment
EXIT_OK, EXIT_OWED, EXIT_UNAVAILABLE = 0, 1, 3


# ------------------------------------------------------------------------------------------ what there is to send

@dataclass
class Item:
    kind: str
    key: str
    step: int | None
    wall: float
    data: dict[str, Any]


class Source:
    """Follows `metrics.jsonl` and the journal; `pending` is what is not sent, of each step the last row."""

    def __init__(self, run_dir: Path):
        self.run_dir = run_dir
        self.pending: dict[str, Item] = {}
        self.sent: set[str] = set()
        self.finish: dict[str, Any] | None = None
        self.elsewhere = False                    # an earlier directory of the run is gone, and with it what was sent
        self.held: Callable[[Item], bool] = lambda item: False        # what the backend has of it
        self.rows_held: set[str] = set()
        self.rows = 0
        self._tails = {name: _Tail(run_dir / name) for name in (EVENTS, METRICS)}
        self._cut = _names_cut(run_dir)
        self._clocks: list[tuple[float, float]] = []          # (base seconds of training, wall time) of each attempt

    @property
    def started(self) -> float | None:
        """Wall time at which training began."""
        return self._clocks[0][1] if self._clocks else None

    def poll(self) -> None:
        events, _ = self._tails[EVENTS].read()
        for event in events:
            self._take_event(event)
        rows, anew = self._tails[METRICS].read()
        if anew:
            self.rows, self._cut = 0, _names_cut(self.run_dir)
            self.pending = {key: item for key, item in self.pending.items() if item.kind != "row"}
        for row in rows:
            self.rows += 1
            step = row.pop("step")
            seconds = row.pop("time", 0.0)
            values = {name: from_json(value) for name, value in row.items()}
            earlier = self._cut.get(step, values.keys())
            first = {name: value for name, value in values.items() if name in earlier}
            self._offer(Item("row", f"row {step}", step, self._wall(seconds), {"time": seconds, **first}))
            if rest := {name: value for name, value in values.items() if name not in earlier}:
                self._offer(Item("row", f"rest {step}", step, self._wall(seconds), rest))

    def _take_event(self, event: dict[str, Any]) -> None:
        kind, step = event.get("event"), event.get("step")
        if kind == "clock" or (kind == "attempt" and not self._clocks):
            self._clocks.append((event.get("base", 0.0), event["wall"]))
        elif kind == "cut":
            self.pending = {key: item for key, item in self.pending.items()
                            if item.kind == "row" or item.step is None or item.step <= step}
        elif kind == "finish":
            self.finish = event
        elif kind == ELSEWHERE:
            self.elsewhere = True
        elif kind in PUBLISHED:
            aliases = "+".join(event.get("aliases", ()))
            key = " ".join(str(part) for part in (kind, step, event.get("name") or event.get("path") or
                                                  event.get("title"), aliases) if part not in (None, ""))
            self._offer(Item(kind, key.replace("\n", " "), step, event["wall"], event))

    def _offer(self, item: Item) -> None:
        if item.key in self.sent:
            return
        if not self.held(item):
            self.pending[item.key] = item
        elif item.key.startswith("row "):
            self.rows_held.add(item.key)

    def leave_out(self, held: Callable[[Item], bool]) -> None:
        """Nothing of what the backend has is pending, now or later."""
        self.held, offered, self.pending = held, self.pending, {}
        for item in offered.values():
            self._offer(item)

    def _wall(self, seconds: float) -> float:
        for base, wall in reversed(self._clocks):
            if seconds >= base:
                return wall + seconds - base
        return time.time()

    def in_order(self) -> list[Item]:
        """What is pending, as it happened, the same in every replay; artifacts last: no row waits for an upload."""
        return sorted(self.pending.values(), key=lambda item: (item.kind == "artifact", item.wall))

    def mark_sent(self, keys: list[str]) -> None:
        self.sent.update(keys)
        for key in keys:
            self.pending.pop(key, None)


def _names_cut(run_dir: Path) -> dict[int, set[str]]:
    """step -> names in the first version of a row that resumes have cut.

    A row that was cut has perhaps been sent, and has perhaps more names now: a stop amid an evaluation leaves the
    evaluation to the resume. So such a row is always sent in two parts, what it had first and the rest, each once.
    """
    names: dict[int, set[str]] = {}
    for path in sorted(run_dir.glob("metrics.cut-*.jsonl"), key=lambda path: (len(path.name), path.name)):
        try:
            rows, _ = parse_lines(path.read_bytes(), str(path))
        except (OSError, RecordError):
            continue
        for row in rows:
            names.setdefault(row.get("step"), set(row))
    return names


class _Tail:
    """New whole lines of a growing file; says when the file was replaced (a resume's cut) and reads it anew."""

    def __init__(self, path: Path):
        self.path, self.offset, self.inode = path, 0, None

    def read(self) -> tuple[list[dict], bool]:
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                anew = self.inode is not None and (status.st_ino != self.inode or status.st_size < self.offset)
                if anew:
                    self.offset = 0
                self.inode = status.st_ino
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return [], False
        whole = data[:data.rfind(b"\n") + 1]
        self.offset += len(whole)
        rows = []
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue                              # a torn line that the writer has not yet taken back
            if isinstance(row, dict):
                rows.append(row)
        return rows, anew


# ------------------------------------------------------------------------------------------ the run as trackers see it

def write_run_info(run_dir: Path, info: RunInfo) -> None:
    values = {key: value for key, value in asdict(info).items() if key not in NOT_STORED}
    write_json(run_dir / "tracking" / "run.json", values)


def read_run_info(run_dir: Path) -> RunInfo:
    """Raises RecordError where the directory holds no run that can be published."""
    path = run_dir / "tracking" / "run.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in fields(RunInfo)} - NOT_STORED
        info = RunInfo(run_dir=run_dir, **{key: value for key, value in values.items() if key in known})
        if not (isinstance(info.uid, str) and all(isinstance(part, dict) for part in (info.settings, info.config,
                                                                                      info.metadata))):
            raise TypeError("values of another kind")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RecordError(f"{run_dir} is no run that can be published ({path.name}: {error})") from None
    return info


# ------------------------------------------------------------------------------------------ publishing

class Publisher:
    """Hands one run to one tracker."""

    def __init__(self, run_dir: Path, backend: str, *, attempt: int | None = None, parent: int | None = None,
                 overrides: Mapping[str, Any] | None = None):
        self.run_dir, self.backend, self.attempt, self.parent = run_dir, backend, attempt, parent
        self.info = read_run_info(run_dir)
        self.info.settings.update(overrides or {})
        # A password is not stored, so an address that had one is no use without it.
        self.info.settings = {key: value for key, value in self.info.settings.items()
                              if HIDDEN not in str(value) or key == "log_filter"}
        filter_texts(self.info.settings.get("log_filter") or ())
        _hide_in(self.info)
        if self.info.settings.get("privacy") == "strict":
            from navrl.tracking.probe import ask_no_proxy  # not in the training process, which imports this module

            ask_no_proxy()
        self.patience = float(self.info.settings.get("tracker_timeout") or NO_PROGRESS)
        if parent is None:            # it is how long a run may be held at its end; nobody is held now
            self.patience = max(self.patience, UNHURRIED)
        self.source = Source(run_dir)
        self.ledger = Ledger(run_dir / "tracking" / backend)
        self.tracker: Tracker = tracker_class(backend)()
        self.tracker.say = self.ledger.say
        self.under_way: dict[str, Receipt] = {}   # artifacts handed over that have not arrived yet
        self.ending = False
        self._over = threading.Event()
        self._moved = time.monotonic()
        self._progress = (0, 0.0)
        self._started, self._spent = False, 0
        self._ended_at: float | None = None

    @property
    def follow(self) -> bool:
        return self.parent is not None

    def run(self) -> int:
        """Publish until the run has ended (follow) or all that is there is sent. Returns the exit code."""
        # A sync may go elsewhere than what was here before it: no address until it is reached
        address = {} if self.follow else {"url": ""}
        self.ledger.update(state="starting", pid=os.getpid(), attempt=self.attempt, error="", messages=[], **address)
        reporter = threading.Thread(target=self._report, daemon=True)
        reporter.start()
        try:
            return self._run()
        finally:
            self._over.set()
            reporter.join()
            self.ledger.close()

    def _run(self) -> int:
        try:
            if not self._start():
                return EXIT_UNAVAILABLE
            status, exit_code = self._pump()
            self.ending = True
            self.ledger.update(state="finishing")
            self.tracker.finish(status, exit_code, redact_all(read_summary(self.run_dir)))
        except TrackerUnavailable as error:
            self._count()
            self.ledger.update(state="failed", error=redact(str(error)))
            self.ledger.say(f"{self.backend}: {error}")
            return EXIT_UNAVAILABLE
        except _SetAside as error:
            self._count()
            self.ledger.update(state="set aside", error=redact(str(error)))
            self.ledger.say(f"{self.backend}: set aside, {error}")
            return EXIT_OWED
        except Exception as error:                # a fault of the tracker, or ours: the record has all, the run goes on
            traceback.print_exc()
            self.ledger.update(state="set aside", error=redact(_short(error)))
            self.ledger.say(f"{self.backend}: set aside, {_short(error)}")
            return EXIT_OWED
        self._arrivals()
        self._count()
        confirmed = self.tracker.confirmed()
        complete = not self.source.pending and not self.under_way and (confirmed is None or
                                                                       confirmed >= self.ledger.counted())
        if complete:
            self.ledger.update(rows=self.source.rows)
        self.ledger.update(state=("local" if self.tracker.local else "finished") if complete else "set aside",
                           status=status)
        return EXIT_OK if complete else EXIT_OWED

    # ---- start

    def _start(self) -> bool:
        """Start the tracker, again and again while the run lasts: a server may come back."""
        self.source.poll()
        self.info.started = self.source.started
        self.info.training_pid = self.parent
        tries = 0
        while True:
            try:
                held = self.tracker.start(self.info)
                break
            except TrackerUnavailable as error:
                self.ledger.update(state="failed", error=redact(str(error)))
                self.ledger.say(f"{self.backend}: {error}")
                return False
            except Exception as error:
                if self.follow:                   # into the log; a person who syncs reads the line below
                    traceback.print_exc()
                self.ledger.update(error=redact(_short(error)))
                meanwhile = "training goes on, trying again" if self.follow else "trying again"
                self.ledger.say(f"{self.backend}: cannot start ({_short(error)}); {meanwhile}")
                pause = PAUSES[min(tries, len(PAUSES) - 1)]
                tries += 1
                if not self.follow and tries >= 3:
                    raise _SetAside(_short(error)) from None
                until = time.monotonic() + pause
                while time.monotonic() < until:
                    self.source.poll()
                    if self._end() is not None and tries > 1:
                        raise _SetAside(_short(error)) from None
                    if self._end() is not None:
                        break
                    time.sleep(POLL)
        keys = self.ledger.begin(self.tracker.destination)
        if held is not None and held < self.ledger.counted():
            self.ledger.keep_first(held)
            keys = self.ledger.keys
        self.source.mark_sent(keys)
        if self.source.elsewhere:
            self.ledger.add([f"{EARLIER} {number}" for number in range(self.ledger.counted(), held or 0)])
            self.source.leave_out(self._held)
        elif held is not None and held > self.ledger.counted():
            # Sent by another copy of this run directory: the order is the same, so these are the next ones.
            extra = [item.key for item in self.source.in_order() if item.kind in COUNTED]
            extra = extra[:held - self.ledger.counted()]
            self.ledger.add(extra)
            self.source.mark_sent(extra)
        self.tracker.begin_at(self.ledger.counted())
        self._started = True
        self.ledger.update(state="publishing", url=self.tracker.url, local=self.tracker.local, error="")
        return True

    def _held(self, item: Item) -> bool:
        kind = item.key.split(" ", 1)[0]
        if kind == "artifact" or item.step is None:
            return False
        return self.tracker.holds(kind, item.data.get("name", ""), item.step)

    # ---- the loop

    def _pump(self) -> tuple[str, int]:
        flushed, dirty = time.monotonic(), False
        while True:
            end = self._end()                 # asked before polling, so that nothing written before the end is missed
            self.source.poll()
            pending = self.source.in_order()
            for start in range(0, len(pending), BATCH):
                self._hand_over(pending[start:start + BATCH])
                dirty = True
            self._arrivals()
            if dirty and (time.monotonic() - flushed > FLUSH_EVERY or end is not None):
                self._flush()
                flushed, dirty = time.monotonic(), False
            if end is not None:
                return end
            time.sleep(POLL)

    def _hand_over(self, batch: list[Item]) -> None:
        """Send a batch and list what was sent, in the order sent.

        Where the backend confirms, a row is listed before it is handed over: what the backend holds is then always a
        part of the list. Else a batch is listed when the backend has flushed it.
        """
        confirms, keys = self.tracker.confirmed() is not None, []
        for item in batch:
            if confirms and item.kind == "row":
                self.ledger.add([item.key])
            try:
                receipt = self._retrying(item)
            except Unpublishable as error:        # not listed: a later sync may find what is missing now
                print(f"left out {item.key}: {error}", flush=True)
                continue
            if receipt is not None:
                self.under_way[item.key] = receipt
            elif not (confirms and item.kind == "row"):
                keys.append(item.key)
                if confirms:
                    self.ledger.add([keys.pop()])
        if not confirms:
            self._flush()
            self.ledger.add(keys)
        self.source.mark_sent([item.key for item in batch])

    def _arrivals(self) -> None:
        """List the artifacts that have arrived. One that failed stays owed."""
        for key, arrived in list(self.under_way.items()):
            try:
                if arrived():
                    self.ledger.add([key])
                    del self.under_way[key]
            except Exception as error:
                self.ledger.say(f"{self.backend}: {key} did not arrive ({_short(error)})")

    def _end(self) -> tuple[str, int] | None:
        """Status and exit code once there is nothing more to wait for."""
        if not self.follow:
            status = read_summary(self.run_dir).get("status", "crashed")
            finish = self.source.finish or {}
            return status, int(finish.get("exit_code", 0 if status in ("finished", "running") else 1))
        finish = self.source.finish
        if finish is not None and finish.get("attempt") == self.attempt:
            self._ended_at = self._ended_at or time.monotonic()
            return finish["status"], int(finish["exit_code"])
        if os.getppid() != self.parent:
            self._ended_at = self._ended_at or time.monotonic()
            return "crashed", 1
        return None

    def _flush(self) -> None:
        try:
            self.tracker.flush()
        except Exception as error:
            traceback.print_exc()
            raise _SetAside(_short(error)) from None

    def _retrying(self, item: Item) -> Receipt | None:
        for pause in (*PAUSES, None):
            try:
                return self._send(item)
            except (Unpublishable, TrackerUnavailable):
                raise
            except (TypeError, ValueError) as error:
                if item.kind == "row":
                    raise
                traceback.print_exc()             # trying again cannot help, and the rest must not wait for it
                self.ledger.say(f"{self.backend}: {item.key} is left out ({_short(error)})")
                raise Unpublishable(_short(error)) from None
            except Exception as error:
                traceback.print_exc()
                self.ledger.say(f"{self.backend}: {_short(error)}; training goes on, trying again")
                if pause is None:
                    raise _SetAside(_short(error)) from None
                time.sleep(pause)

    def _send(self, item: Item) -> Receipt | None:
        tracker, data = self.tracker, item.data
        if item.kind in ("media", "trace"):
            self._check_budget(self._file(data).stat().st_size)
        elif item.kind == "table":
            self._check_budget(len(json.dumps(data)))
        if item.kind == "row":
            tracker.log_row(item.step, item.wall, data)
        elif item.kind == "media":
            tracker.log_media(item.step, item.wall, data["name"], self._file(data), redact_all(data.get("caption")))
        elif item.kind == "trace":
            tracker.log_trace(item.step, item.wall, data["name"], self._file(data))
        elif item.kind == "table":
            tracker.log_table(item.step, item.wall, data["name"], data["columns"],
                              [[redact_all(from_json(cell)) for cell in row] for row in data["rows"]])
        elif item.kind == "alert":
            tracker.alert(redact(data["title"]), redact(data["text"]), data.get("level", "warn"), item.step)
        elif item.kind == "artifact":
            if wanted(self.info.settings.get("keep_artifacts"), data["aliases"]):
                about = data["metadata"]
                kept = {key: about[key] for key in IDENTITY if key in about}
                return tracker.log_artifact(self._file(data), redact_all(data["aliases"]), redact_all(about) | kept)
        return None

    def _check_budget(self, more: int) -> None:
        """`tracker_disk_budget_mb` bounds what all trackers keep of this run on this machine; rows are always kept.

        more: bytes that are to come. Checkpoints do not count, also where a tracker had to copy them.
        """
        budget = self.info.settings.get("tracker_disk_budget_mb")
        if budget:
            places = [self.run_dir / "tracking", *self.tracker.directories()]
            if sum(map(directory_bytes, places)) + more > float(budget) * 2**20:
                self.ledger.say(f"{self.backend}: tracker_disk_budget_mb: {budget} MB are used by trackers; further "
                                "media and tables stay in the run directory alone, rows and checkpoints go on")
                raise Unpublishable("the disk budget is used up")

    def _file(self, data: Mapping[str, Any]) -> Path:
        path = (self.run_dir / data["path"]).resolve()
        if not path.is_relative_to(self.run_dir.resolve()):
            raise Unpublishable(f"{data['path']} is outside the run directory")
        if not path.is_file():
            raise Unpublishable(f"{data['path']} is gone")
        digest = data.get("metadata", {}).get("sha256") if data["event"] == "artifact" else None
        if digest and sha256_of(path) != digest:
            self.ledger.say(f"{self.backend}: {data['path']} is not the file that was recorded (digest differs); "
                            "left out")
            raise Unpublishable("digest differs")
        return path

    # ---- reporting

    def _report(self) -> None:
        """Keep the ledger's counts fresh, and end this process when it is on its own and gets nowhere."""
        while not self._over.wait(POLL):
            try:
                moved = self._count()
            except Exception:
                continue
            if moved:
                self._moved = time.monotonic()
            alone = not self.follow or (self._ended_at is not None and os.getppid() != self.parent)
            stuck = time.monotonic() - self._moved > self.patience + 5
            capped = self.follow and self._ended_at is not None and time.monotonic() - self._ended_at > HARD_CAP
            if alone and (stuck and (self.ending or self.ledger.state.get("state") != "publishing") or capped):
                self.ledger.update(state="set aside", error=f"no progress for {self.patience:g} s")
                self.ledger.say(f"{self.backend}: set aside, no progress for {self.patience:g} s")
                os.killpg(os.getpgid(0), signal.SIGKILL) if self.follow else os._exit(EXIT_OWED)

    def _count(self) -> bool:
        confirmed = self.tracker.confirmed()
        rows = self.ledger.rows(confirmed) + len(self.source.rows_held)
        progress = (len(self.ledger.keys), self.tracker.progress() + rows)
        moved, self._progress = progress != self._progress, progress
        self.ledger.update(rows=rows, progress=progress[0] + progress[1])
        return moved


def _hide_in(info: RunInfo) -> None:
    """What `log_filter` matches, out of all that a tracker shows of a run; metric names and addresses stay."""
    for field in fields(info):
        if field.name not in NOT_STORED | {"uid", "settings"}:
            setattr(info, field.name, in_all(getattr(info, field.name), hide_matches))
    names = {key: hide_matches(info.settings[key]) for key in SHOWN_SETTINGS if info.settings.get(key)}
    info.settings.update(names)


class _SetAside(Exception):
    """Trying again did not help; the rest is owed."""


def wanted(keep: str | None, aliases: list[str]) -> bool:
    """Whether `keep_artifacts` (`final`, `best`, `all`) lets a checkpoint with these aliases be uploaded."""
    return keep in (None, "all") or "final" in aliases or (keep == "best" and "best" in aliases)


def directory_bytes(directory: Path) -> int:
    """Bytes of the files below a directory without its checkpoints; one that has a second name elsewhere takes no
    space of its own."""
    total = 0
    for path in directory.rglob("*"):
        if path.suffix == ".pt":
            continue
        try:
            status = path.lstat()
        except OSError:               # removed meanwhile
            continue
        total += status.st_size if status.st_nlink == 1 else 0
    return total


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def publish(run_dir: Path, backend: str, *, attempt: int | None = None, parent: int | None = None,
            overrides: Mapping[str, Any] | None = None) -> int:
    """Publish one run to one backend, with no other publisher of the pair at work. Returns the exit code."""
    directory = run_dir / "tracking" / backend
    directory.mkdir(parents=True, exist_ok=True)
    lock = RunLock(directory / ".lock", patience=LOCK_WAIT if parent is not None else 1.0)
    try:
        sweep(directory)
        return Publisher(run_dir, backend, attempt=attempt, parent=parent, overrides=overrides).run()
    finally:
        lock.release()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Publish a run from its local record.")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--to", required=True, choices=sorted(TRACKERS))
    parser.add_argument("--follow", action="store_true", help="read on until the run ends")
    parser.add_argument("--wandb_mode", default="online", choices=["online", "offline"], help="without --follow")
    parser.add_argument("--attempt", type=int)
    parser.add_argument("--parent", type=int, help="process whose end is the end of the run")
    arguments = parser.parse_args(argv)
    run_dir = arguments.run_dir.absolute()
    if arguments.follow:
        for number in FOR_THE_RUN:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_RUN)      # held back by who started us
    os.environ["PWD"] = os.getcwd()               # relative addresses of stores are meant from here
    os.chdir(run_dir)                             # relative artifact paths survive a move of the directory
    overrides = json.loads(os.environ.pop(SETTINGS_VARIABLE, "{}"))
    if not arguments.follow:
        overrides["wandb_mode"] = arguments.wandb_mode        # what is published later is meant to arrive
    try:
        parent = (arguments.parent or os.getppid()) if arguments.follow else None
        return publish(run_dir, arguments.to, attempt=arguments.attempt, parent=parent, overrides=overrides)
    except RunLocked:
        print(f"{arguments.to}: another process publishes {run_dir}", file=sys.stderr)
    except (RecordError, TrackerUnavailable, OSError) as error:
        print(f"{arguments.to}: {error}", file=sys.stderr)
    return EXIT_OWED


if __name__ == "__main__":
    sys.exit(main())
