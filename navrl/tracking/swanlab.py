"""SwanLab, whose own files stay in the run directory.

Offline (and on its local dashboard) a run's files are only whole after `finish`, so each session writes all rows into a
directory of its own and then removes the earlier ones: the directory that is there holds the whole run.
"""
from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from navrl.redaction import redact
from navrl.tracking.convert import json_ready
from navrl.tracking.probe import answers
from navrl.tracking.tracker import Receipt, RunInfo, Tracker, TrackerUnavailable, Unpublishable

MODES = ("online", "local", "offline", "disabled")
STATES = {"finished": "success", "interrupted": "aborted", "running": "success"}      # all else is crashed
IMAGES = {".png", ".jpg", ".jpeg", ".bmp"}
LONGEST_KEY = 512
SYNC_HINT = ("it is kept offline; log in with `swanlab login` and publish later with: "
             "python scripts/sync.py {} --to swanlab")


class SwanlabTracker(Tracker):
    name = "swanlab"

    def __init__(self) -> None:
        self._run: Any = None
        self._items = 0               # handed over, as `start` counts them
        self._arrived = 0             # of these, known to the server
        self._left_out: set[str] = set()

    def start(self, run: RunInfo) -> int | None:
        strict = run.settings.get("privacy") == "strict"
        os.environ.setdefault("SWANLAB_LOG_DIR", str(run.run_dir / "tracking" / "swanlab"))
        if strict:
            os.environ.pop("SWANLAB_WEBHOOK", None)
        try:
            import swanlab
        except ImportError:
            raise TrackerUnavailable("not installed, nothing goes to SwanLab; `pip install swanlab==0.10.3`, then "
                                     f"publish with: python scripts/sync.py {run.run_dir} --to swanlab") from None
        if strict or run.settings.get("log_filter"):          # the path of the run directory
            _name_files_from_here()
        known = swanlab.Settings(interactive=False)
        mode, why = choose_mode(run.settings.get("swanlab_mode"), live=run.training_pid is not None,
                                key=bool(known.api_key), strict=strict)
        if mode == "disabled":
            raise TrackerUnavailable("SWANLAB_MODE is disabled")
        if mode == "online" and not answers(known.api_host):
            mode, why = "offline", f"{known.api_host} does not answer"
        if why:
            self.say(f"swanlab: {why}; {SYNC_HINT.format(run.run_dir)}")
        if mode == "local":
            _require_dashboard(run)
            self.say(f"swanlab: look at it with: swanlab watch {os.environ['SWANLAB_LOG_DIR']}")
        # What this process and its machine do says nothing about the training run.
        quiet = swanlab.Settings(
            interactive=False, mode=mode, terminal=swanlab.Settings.Terminal(proxy_type="none"),
            probe=swanlab.Settings.Probe(hardware=False, runtime=False, requirements=False, git=False, swanlab=False,
                                         monitor=False))
        self.local = mode != "online"
        self._run = swanlab.init(
            settings=quiet, mode=mode, project=_project(run.project), name=run.name[:LONGEST_KEY],
            group=run.group[:LONGEST_KEY], tags=[tag[:LONGEST_KEY] for tag in run.tags][:30], job_type="train",
            id=run.uid, resume="never" if self.local else "allow", config=json_ready(run.config))
        self._info, self._state = run, run.run_dir / "tracking" / "swanlab"
        self.destination = f"{mode} {Path(self._run.dir).name}" if self.local else f"{known.api_host} {self._run.path}"
        self.url = str(self._run.dir) if self.local else self._run.url or ""
        if not strict:                # as a text: run config holds only what can change a result
            self._text("metadata", json.dumps(json_ready(run.metadata), indent=1), 0, None, counted=False)
        if self.local:
            return None
        # It never says what it holds. What an earlier session did not see arrive is sent again: SwanLab leaves out
        # steps that it has.
        return None if (self._state / "arrived").exists() else 0

    def begin_at(self, count: int) -> None:
        self._items = self._arrived = count
        if not self.local:
            (self._state / "arrived").unlink(missing_ok=True)

    # ---- the run

    def log_row(self, step: int, wall: float, metrics: Mapping[str, int | float]) -> None:
        """NaN and infinities are left out (one of them breaks SwanLab's summary page); the local record has them."""
        odd = {name for name, value in metrics.items() if not math.isfinite(value)}
        for name in odd - self._left_out:
            print(f"{name} is not finite at step {step}: such values are left out", flush=True)
        self._left_out |= odd
        self._log({name: value for name, value in metrics.items() if name not in odd}, step, wall)

    def log_media(self, step: int, wall: float, name: str, path: Path, caption: str | None) -> None:
        import swanlab
        kind = swanlab.Video if path.suffix == ".gif" else swanlab.Image if path.suffix in IMAGES else None
        if kind is None:
            raise Unpublishable(f"{path.suffix} is no picture that it shows")
        self._log({name: kind(str(path), caption=caption)}, step, wall)

    def log_table(self, step: int, wall: float, name: str, columns: Sequence[str], rows: Sequence[Sequence]) -> None:
        lines = [" | ".join(map(str, columns)), " | ".join("---" for _ in columns)]
        self._text(name, "\n".join(lines + [" | ".join(map(str, row)) for row in rows]), step, wall)

    def log_artifact(self, path: Path, aliases: Sequence[str], metadata: Mapping[str, Any]) -> Receipt | None:
        """It keeps no artifacts: where the file is, and its digest."""
        about = [f"{key}: {value}" for key, value in metadata.items() if value is not None]
        text = "\n".join([f"file: {path.relative_to(self._info.run_dir)}", *about])
        for alias in aliases:
            self._text(f"checkpoint/{alias}", text, int(metadata["step"]), None, counted=False)
        return None

    def alert(self, title: str, text: str, level: str, step: int | None) -> None:
        self._text(f"alerts/{title}", f"{level}: {title}: {text}", step or 0, None, counted=False)

    def finish(self, status: str, exit_code: int, summary: Mapping[str, Any]) -> None:
        state = STATES.get(status, "crashed")
        reason = None if self._info.settings.get("privacy") == "strict" else summary.get("reason")     # may name files
        error = redact(str(reason or f"{status}, exit code {exit_code}")) if state == "crashed" else None
        directory = Path(self._run.dir)
        self._run.config.update({"status": status, "exit_code": exit_code})
        self._run.finish(state=state, error=error)            # waits for every upload
        if self.local:
            for earlier in self._state.glob(f"run-*-{self._info.uid}"):
                if earlier.resolve() != directory.resolve():
                    shutil.rmtree(earlier, ignore_errors=True)
            return
        stats = self._stats()
        if stats is None or stats.uploaded_records < stats.total_records:
            raise ConnectionError("SwanLab did not take all records")
        self._arrived = self._items
        (self._state / "arrived").touch()

    # ---- how far it is

    def progress(self) -> float:
        stats = None if self.local or self._run is None else self._stats()
        return 0.0 if stats is None else float(stats.uploaded_records + stats.uploaded_size // 65536)

    def confirmed(self) -> int | None:
        return None if self.local or self._run is None else self._arrived

    def _stats(self) -> Any:
        try:
            answer = self._run._core.get_operation_stats()
            return getattr(answer, "stats", answer)
        except Exception:
            return None

    # ---- inside

    def _text(self, name: str, text: str, step: int, wall: float | None, counted: bool = True) -> None:
        import swanlab
        self._log({name: swanlab.Text(text)}, step, wall, counted)

    def _log(self, values: Mapping[str, Any], step: int, wall: float | None, counted: bool = True) -> None:
        values = {_key(name): value for name, value in values.items()}
        self._items += counted
        if not values:
            return
        if wall is None:
            self._run.log(values, step=int(step))
            return
        # `run.log` stamps the time of the call; a replay is to keep the time at which things happened.
        from google.protobuf.timestamp_pb2 import Timestamp
        from swanlab.sdk.internal.bus.events import MetricLogEvent
        at = Timestamp()
        at.FromMilliseconds(int(1000 * wall))
        step = self._run._ctx.next_step(int(step))
        self._run._components.emitter.emit(MetricLogEvent(data=values, step=step, timestamp=at))


def choose_mode(told: str | None, *, live: bool, key: bool, strict: bool = False) -> tuple[str, str]:
    """(mode, "" or why it is not online). While training: as told, else SWANLAB_MODE, else offline.

    What is published later is meant to arrive: online where there is a key, unless SWANLAB_MODE or the run's `local`
    say otherwise.
    """
    said = os.environ.get("SWANLAB_MODE")
    said = {"cloud": "online"}.get(said or "", said)
    if live:
        mode = told or said or "offline"
    else:
        mode = said or ("local" if told == "local" else "online")
    if mode not in MODES:
        raise TrackerUnavailable(f"SWANLAB_MODE: {mode!r} is none of {', '.join(MODES)}")
    if mode == "online" and strict:
        return "offline", "privacy: strict sends nothing"
    if mode == "online" and not key:
        return "offline", "no key is configured"
    return mode, ""


def _require_dashboard(run: RunInfo) -> None:
    if importlib.util.find_spec("swanboard") is None:
        raise TrackerUnavailable("swanlab_mode: local needs its dashboard; `pip install 'swanlab[dashboard]'` or use "
                                 "--swanlab_mode offline; publish with: python scripts/sync.py "
                                 f"{run.run_dir} --to swanlab")


def _name_files_from_here() -> None:
    """Its offline file names its other files; relative to the run directory, so that it does not say where that is."""
    from swanlab.proto.swanlab.save.v1.save_pb2 import SaveRecord
    from swanlab.sdk.internal.probe_python import utils as probe
    from swanlab.sdk.internal.run.components.consumer import builder

    def relative(*, source_path: str = "", **named: Any) -> SaveRecord:
        return SaveRecord(source_path=os.path.relpath(source_path) if source_path else "", **named)

    probe.SaveRecord = builder.SaveRecord = relative


def _project(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_+.-]", "-", name)[:100] or "NAVRL"


def _key(name: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", "_", name)[:LONGEST_KEY].strip("./") or "_"
