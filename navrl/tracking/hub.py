"""What a training loop calls. It writes the local record, shows progress, and starts one child process a tracker.

Nothing here waits for a tracker while training goes on; `finish` does, within bounds.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import navrl
from navrl.files import sha256_of
from navrl.naming import runs_root
from navrl.redaction import filter_texts, in_all, redact, redact_all, redact_secrets
from navrl.source import filter_kept, keep_changes, snapshot
from navrl.tracking.console import Console
from navrl.tracking.ledger import read_ledger
from navrl.tracking.publish import FOR_THE_RUN, HARD_CAP, NO_PROGRESS, SETTINGS_VARIABLE, read_run_info, write_run_info
from navrl.tracking.record import LocalRecord, RecordError, RunLock, RunLocked
from navrl.tracking.registry import TRACKERS
from navrl.tracking.tracker import RunInfo, safe_name

LOOK_EVERY = 1.0                      # seconds between looks at what the children report
CLAIM_SECONDS = 30.0                  # that a start waits for another that chooses its W&B run
TRACKER_SETTINGS = ("wandb_entity", "wandb_project", "wandb_group", "wandb_name", "wandb_mode", "wandb_proxy",
                    "swanlab_mode", "mlflow_tracking_uri", "trace", "keep_artifacts", "tracker_timeout",
                    "tracker_disk_budget_mb", "privacy", "log_filter", "seed")


class TrackerHub:
    """The record, the console and the trackers of one run. Only the process of rank 0 has one."""

    def __init__(self, record: LocalRecord, settings: Mapping[str, Any], *, science: Mapping[str, Any],
                 metadata: Mapping[str, Any] | None = None, total_env_steps: int | None = None,
                 source_root: Path | None = None, terminal: bool | None = None):
        """`settings`: the whole flat configuration, with `Config.trackers` as `logger`; `science`: what of it can change
        a result (trackers' run config).

        Raises RecordError where `WANDB_RUN_ID` belongs to another run. `log_filter` holds for this process from here on.
        """
        filter_texts(settings.get("log_filter") or ())
        self.record = record
        self._cost = 0.0
        self._finished: list[str] | None = None
        self._seen: dict[str, int] = {}
        self._gone: set[str] = set()              # children whose early end was told
        self._looked = 0.0
        self._ended: dict[str, str] = {}          # why a child was not waited for any longer
        loggers = [name for name in settings.get("logger") or () if settings.get(f"{name}_mode") != "disabled"]
        self.backends = [name for name in dict.fromkeys(loggers) if name != "console"]
        self._patience = float(settings.get("tracker_timeout") or NO_PROGRESS)
        self.console = Console(total_env_steps, progress="console" in loggers, terminal=terminal,
                               keep=lambda line: record.console(redact(line)),
                               start_step=record.last_step or record.first_step)
        self._children: dict[str, subprocess.Popen] = {}
        with self._timed():
            info = self._describe(settings, science, metadata or {})
            with self._claiming_run_id(info):
                write_run_info(record.run_dir, _without_secrets(info))
            if source_root is not None:
                self._keep_code(Path(source_root))
            for name in self.backends:
                self._start(name, info)
        self._cost = 0.0              # starting is no part of a row's cost

    # ---- what the loop calls

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record metrics at `step` (environment steps). Raises RecordClash only."""
        with self._timed():
            self.record.log(step, metrics)
            self.console.row(int(step), metrics)
            self._look()

    def log_media(self, step: int, name: str, path: Path | str, caption: str | None = None) -> None:
        """A picture or animation (png, jpg, gif, mp4) inside the run directory."""
        self._event("media", step=int(step), name=name, path=path, caption=caption)

    def log_trajectory(self, step: int, name: str, path: Path | str) -> None:
        """An evaluation episode (`.npz`) inside the run directory; a table or a trace, as the tracker has it."""
        self._event("trace", step=int(step), name=name, path=path)

    def log_table(self, step: int, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A small table of numbers and texts."""
        self._event("table", step=int(step), name=name, columns=list(columns), rows=[list(row) for row in rows])

    def log_artifact(self, path: Path | str, *, step: int, episodes: int, score: float | None = None,
                     aliases: Sequence[str] = ("latest",), metadata: Mapping[str, Any] | None = None) -> None:
        """A checkpoint inside the run directory. `aliases` out of latest, best, final; those of the run are added."""
        with self._timed():
            try:
                digest = sha256_of(self._inside(path))
            except OSError as error:
                self.say(f"checkpoint {path} is not published: {error.strerror}")
                return
        own = [safe_name(self._info.name, f"-{alias}") for alias in aliases if alias in ("best", "final")]
        about = {"run": self._info.name, "uid": self._info.uid, "group": self._info.group,
                 "seed": self._info.settings.get("seed"), "step": int(step), "episodes": int(episodes), "score": score,
                 "sha256": digest, **(metadata or {})}
        self._event("artifact", step=int(step), path=path, aliases=[*aliases, *own], metadata=about)

    def alert(self, title: str, text: str, *, step: int | None = None, level: str = "warn") -> None:
        """A health warning: on the console and in every tracker."""
        self.say(f"{level}: {title}: {text}")
        self._event("alert", step=None if step is None else int(step), title=title, text=text, level=level)

    def say(self, line: str) -> None:
        """A line for the person and for console.log."""
        self.console.say(redact(line))

    def cost(self) -> float:
        """Seconds that the loop spent in tracking since the last call (`perf/tracking_seconds`)."""
        spent, self._cost = self._cost, 0.0
        return spent

    def finish(self, status: str, exit_code: int = 0, reason: str = "") -> list[str]:
        """End the run as `finished`, `interrupted` or `failed`; returns and shows one line a tracker.

        Safe to call twice. Waits for trackers that make progress, at most 120 s; one that makes none for
        `tracker_timeout` is ended.
        """
        if self._finished is not None:
            return self._finished
        self._finished = []
        record = self.record
        try:
            record.flush()
            why = {"reason": redact(reason)} if reason else {}
            record.update_summary(status=status, exit_code=int(exit_code), **why)
            record.event("finish", status=status, exit_code=int(exit_code), reason=redact(reason))
            self._wait()
            self._look(now=True)
        finally:
            for child in self._children.values():
                _end(child)
            self._finished = [self._verdict(name) for name in self.backends]
            record.update_summary(trackers={name: self._has(name) for name in self.backends})
            self.console.close()
            for line in self._finished:
                self.say(line)
            if record.lost:
                self.say(f"{record.lost} rows could not be written to {record.run_dir}")
            record.close()
        return self._finished

    # ---- inside

    def _keep_code(self, root: Path) -> None:
        run_dir = self.record.run_dir
        try:
            if (run_dir / "code.diff").exists():      # a resume
                filter_kept(run_dir)                  # its filter may be new
                commits = [part.get("git_commit") for part in self._info.metadata.get("segments", ())]
                if name := keep_changes(root, run_dir, self.record.attempt, commits[-2:]):
                    self.say(f"the code is not that of the run so far; what differs from its commit is in {name}")
                return
            note = snapshot(root, run_dir).note
        except OSError as error:
            self.say(f"the code is not kept: {error}")
        else:
            if note:
                self.say(f"the code is kept without its commit: {note}")

    @contextmanager
    def _claiming_run_id(self, info: RunInfo) -> Iterator[None]:
        """Between the look at the ids that are taken and the note of ours no other run does the same.

        Beside a run directory that was moved away from the others there is none to look at; the server still knows.
        """
        given = os.environ.get("WANDB_RUN_ID") if "wandb" in self.backends else None
        run_id = given or info.settings.get("wandb_run_id")
        root = runs_root(info.run_dir, info.project, info.group) if run_id else None
        with _only_one_chooses(root) if given and root else nullcontext():
            if run_id:
                info.settings["wandb_run_id"] = run_id
            if root:
                refuse_taken_run_id(root, run_id, own=info.run_dir)
            yield

    def _describe(self, settings: Mapping[str, Any], science: Mapping[str, Any],
                  metadata: Mapping[str, Any]) -> RunInfo:
        record = self.record
        chosen = {key: settings.get(key) for key in TRACKER_SETTINGS if settings.get(key) is not None}
        earlier: RunInfo | None = None
        if record.resumed:
            try:
                earlier = read_run_info(record.run_dir)
            except RecordError:
                pass
        if earlier and earlier.settings.get("wandb_run_id"):
            chosen["wandb_run_id"] = earlier.settings["wandb_run_id"]
        tags = settings.get("wandb_tags") or []
        # How and when it ends is not known yet; trackers learn the status when it does.
        facts = {key: value for key, value in (metadata or {}).items() if key not in ("status", "ended")}
        name = settings.get("experiment_name") or record.run_dir.name.removesuffix(record.suffix)
        self._info = RunInfo(
            uid=record.uid,
            project=earlier.project if earlier else str(settings.get("project_name") or "NAVRL"),
            name=earlier.name if earlier else str(name) + record.suffix,
            group=earlier.group if earlier else str(settings.get("group") or record.run_dir.parent.name),
            tags=[tags] if isinstance(tags, str) else [str(tag) for tag in tags],
            config=redact_all(dict(science)), metadata=redact_all(facts), settings=chosen,
            env_id=str(settings.get("env_id", "")), algorithm_name=str(settings.get("algorithm_name", "")),
            run_dir=record.run_dir)
        return self._info

    def _start(self, name: str, info: RunInfo) -> None:
        if name not in TRACKERS:
            self.say(f"logger: {name!r} is no tracker; known are console, {', '.join(sorted(TRACKERS))}")
            return
        directory = self.record.run_dir / "tracking" / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "ledger.json").unlink(missing_ok=True)
            with open(directory / "log.txt", "ab") as log, _held_back():
                self._children[name] = subprocess.Popen(
                    [sys.executable, "-m", "navrl.tracking.publish", str(self.record.run_dir), "--to", name, "--follow",
                     "--attempt", str(self.record.attempt), "--parent", str(os.getpid())],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(info),
                    start_new_session=True)
        except OSError as error:
            self.say(f"{name}: cannot be started ({error}){self._later(name, 'publish later with')}")

    @staticmethod
    def _environment(info: RunInfo) -> dict[str, str]:
        root = str(Path(next(iter(navrl.__path__))).resolve().parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1",
                SETTINGS_VARIABLE: json.dumps(info.settings, default=str)}

    def _event(self, kind: str, *, path: Path | str | None = None, **fields: Any) -> None:
        with self._timed():
            if self.record.full and kind != "alert":
                return                        # the disk is full: media and artifacts stop first
            if path is not None:
                try:
                    fields["path"] = str(self._inside(path).relative_to(self.record.run_dir.resolve()))
                except ValueError:
                    self.say(f"{path} is outside {self.record.run_dir} and is not published")
                    return
            self.record.event(kind, **fields)
            self._look()

    def _inside(self, path: Path | str) -> Path:
        return (self.record.run_dir / path).resolve()

    def _look(self, now: bool = False) -> None:
        """Say what the record and the children have to say; cheap enough for every row."""
        for line in self.record.warnings():
            self.say(line)
        if not now and time.monotonic() - self._looked < LOOK_EVERY:
            return
        self._looked = time.monotonic()
        for name, child in self._children.items():
            messages = read_ledger(self.record.run_dir / "tracking" / name).get("messages", [])
            for line in messages[self._seen.get(name, 0):]:
                self.say(line)
            self._seen[name] = max(len(messages), self._seen.get(name, 0))
            if child.poll() is not None and not messages and child.returncode and name not in self._gone:
                self.say(f"{name}: its process ended early (see tracking/{name}/log.txt); training goes on")
                self._gone.add(name)

    def _wait(self) -> None:
        """Until every child has ended, is stuck or has had all the time there is."""
        began = time.monotonic()
        progress = {name: (None, began) for name in self._children}
        waiting = {name: child for name, child in self._children.items() if child.poll() is None}
        told = False
        while waiting:
            now = time.monotonic()
            for name, child in list(waiting.items()):
                value = read_ledger(self.record.run_dir / "tracking" / name).get("progress")
                if value != progress[name][0]:
                    progress[name] = (value, now)
                if child.poll() is not None:
                    del waiting[name]
                elif now - progress[name][1] > self._patience or now - began > HARD_CAP:
                    self._ended[name] = (f"{HARD_CAP:.0f} s were not enough" if now - began > HARD_CAP else
                                         f"no progress for {self._patience:g} s")
                    _end(child)
                    del waiting[name]
            if waiting and not told and now - began > 2:
                told = True
                self.say(f"waiting for {', '.join(waiting)} to take what is left (at most {HARD_CAP:.0f} s; "
                         "what is left then can be published later)")
            time.sleep(0.05)

    def _has(self, name: str) -> dict[str, Any]:
        ledger = read_ledger(self.record.run_dir / "tracking" / name)
        state = ledger.get("state", "not started")
        if state in ("starting", "publishing", "finishing"):
            state = "set aside"
        if name in self._ended and not ledger.get("error"):
            ledger["error"] = self._ended[name]
        rows = min(int(ledger.get("rows", 0)), self.record.rows)
        owed = self.record.rows if state == "local" else self.record.rows - rows
        return {"state": state, "rows": rows, "owed": owed,
                **{key: ledger[key] for key in ("url", "destination", "error") if ledger.get(key)}}

    def _verdict(self, name: str) -> str:
        has, total = self._has(name), self.record.rows
        if has["state"] == "finished" and has["owed"] == 0:
            return f"{name}: all {total} rows" + (f", {has['url']}" if has.get("url") else "")
        if has["state"] == "local":
            return f"{name}: all {has['rows']} rows are kept offline{self._later(name, 'publish with')}"
        why = f" ({has['error']})" if has.get("error") else ""
        return f"{name}: {has['rows']} of {total} rows{why}{self._later(name, 'publish the rest with')}"

    def _later(self, name: str, words: str) -> str:
        """How to publish later what is kept here; nothing where nothing is to leave this machine."""
        if self._info.settings.get("privacy") == "strict":
            return " (privacy: strict)"
        return f"; {words}: python scripts/sync.py {self.record.run_dir} --to {name}"

    @contextmanager
    def _timed(self) -> Any:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._cost += time.perf_counter() - began


@contextmanager
def _held_back() -> Any:
    """A publisher started in here gets no signal to end before it ignores them (`publish.main`).

    Slurm sends its signals to every process of a job, whatever its session.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_RUN)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _only_one_chooses(root: Path) -> Iterator[None]:
    """Of the runs that start under `root` with a WANDB_RUN_ID. Raises RecordError where another takes too long."""
    path = root / ".wandb_run_id.lock"
    try:
        lock = RunLock(path, patience=CLAIM_SECONDS)
    except RunLocked:
        raise RecordError(f"WANDB_RUN_ID: another run that starts has held {path} for {CLAIM_SECONDS:g} s; start again "
                          "when it runs, or unset WANDB_RUN_ID") from None
    try:
        yield
    finally:
        lock.release()


def _end(child: subprocess.Popen) -> None:
    """End a child with everything that it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass


def _without_secrets(info: RunInfo) -> RunInfo:
    """As it is kept: an address and an expression that the filter itself matches must stay what they are."""
    settings = {key: value if key == "log_filter" else in_all(value, redact_secrets)
                for key, value in info.settings.items()}
    return RunInfo(**{**info.__dict__, "settings": settings})


def refuse_taken_run_id(root: Path, run_id: str, own: Path | None = None) -> None:
    """Raise RecordError if a run under `root` other than `own` has this W&B id. May be called before a run is made."""
    for path in Path(root).glob("*/*/*/tracking/run.json"):
        run_dir = path.parent.parent
        if own is not None and run_dir.resolve() == own.resolve():
            continue
        try:
            taken = json.loads(path.read_text(encoding="utf-8")).get("settings", {}).get("wandb_run_id")
        except (OSError, ValueError, AttributeError):
            continue
        if taken == run_id:
            raise RecordError(f"WANDB_RUN_ID: {run_id!r} is already used by {run_dir}; unset it, "
                              "or continue that run with --resume")
