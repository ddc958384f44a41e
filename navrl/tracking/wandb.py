"""Weights & Biases.

Each row is one history line whose W&B step is its place in the order sent (0, 1, 2, ...); the axis is the logged field
`step`. So rows of any order are taken, and a server's count of lines says exactly which of ours it holds.
"""
from __future__ import annotations

import json
import netrc
import os
import re
import sys
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from navrl.redaction import redact
from navrl.tracking.convert import flat, json_ready
from navrl.tracking.episodes import episode_table
from navrl.tracking.probe import answers
from navrl.tracking.tracker import Receipt, RunInfo, Tracker, TrackerUnavailable, Unpublishable, safe_name

DEFAULT_SERVER = "https://api.wandb.ai"
INIT_SECONDS = 15
WEAVE_TRIES = 3                       # of a trace, 10 s each, before the rows behind it go on
CONFIG_FILE = "navrl_config.yaml"     # config.yaml; W&B keeps that name to itself
LEVELS = {"info": "INFO", "warn": "WARN", "error": "ERROR"}
VIDEO, IMAGE = {".gif", ".mp4", ".webm", ".ogg"}, {".png", ".jpg", ".jpeg", ".bmp"}
SYNC_HINT = "it is kept offline; log in with `wandb login` and publish later with: python scripts/sync.py {} --to wandb"


class WandbTracker(Tracker):
    name = "wandb"

    def __init__(self) -> None:
        self.run: Any = None
        self._line = 0                # W&B step of the next history line
        self._done = False
        self._first = 0               # lines that the server already had
        self._had: dict[str, Any] = {}            # and its summary then
        self._code: tuple[Receipt, Path] | None = None
        self._core_log: _UploadLog | None = None
        self._weave: Any = None       # False where it cannot be used
        self._weave_failures = 0      # since it last took a trace, of those that may pass
        self._weave_tries = 0         # that failed, all of them

    # ---- start

    def start(self, run: RunInfo) -> int | None:
        try:
            return self._begin(run)
        except BaseException:
            if "wandb" in sys.modules:        # a failed start leaves a service that holds the run's id
                self.run = None
                sys.modules["wandb"].teardown(exit_code=1)
            raise

    def _begin(self, run: RunInfo) -> int | None:
        settings = run.settings
        keep_directories_inside(run.run_dir)
        strict = settings.get("privacy") == "strict"
        if strict or "WANDB_ERROR_REPORTING" not in os.environ:        # else an unreachable host costs 15 s at exit
            os.environ["WANDB_ERROR_REPORTING"] = "false"
        os.environ.setdefault("WANDB_SILENT", "true")
        try:
            import wandb
        except ImportError:
            raise TrackerUnavailable("not installed, nothing goes to W&B; `pip install wandb`, then publish with: "
                                     f"python scripts/sync.py {run.run_dir} --to wandb") from None
        mode, why = choose_mode(settings.get("wandb_mode"), settings.get("wandb_proxy"), strict=strict)
        if why:
            self.say(f"wandb: {why}; {'it is kept offline' if strict else SYNC_HINT.format(run.run_dir)}")
        # W&B's settings alone do not reach its public API. This process is W&B's only, so nobody else is affected.
        if settings.get("wandb_proxy"):
            for variable in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
                os.environ[variable] = settings["wandb_proxy"]
        self.local = mode == "offline"
        live = run.training_pid is not None   # else what this machine is and does says nothing about the run
        closed = strict or not live or bool(settings.get("log_filter"))        # what W&B finds out passes no filter
        proxy = settings.get("wandb_proxy")
        options = wandb.Settings(
            console="off", silent=True, save_code=False, disable_git=True, disable_job_creation=True,
            init_timeout=INIT_SECONDS, login_timeout=5, x_service_wait=INIT_SECONDS,
            x_transaction_log_flush_interval=1,                        # a kill loses one second, not fifteen
            x_file_stream_transmit_interval=2,
            x_file_stream_retry_wait_max_seconds=10, x_graphql_retry_wait_max_seconds=10, x_graphql_retry_max=5,
            program="main.py", host="" if closed else None, http_proxy=proxy, https_proxy=proxy,
            x_disable_meta=closed, x_disable_machine_info=closed, x_disable_stats=closed, x_save_requirements=not closed,
            x_stats_pid=run.training_pid or os.getpid(), x_start_time=run.started,
            git_commit=None if strict else run.metadata.get("git_commit"))
        # Never resume another's run by accident: an id given from outside must be new the first time.
        run_id = settings.get("wandb_run_id") or run.uid
        taken = settings.get("wandb_run_id") and not os.environ.get("WANDB_SWEEP_ID") and not _was_started(run.run_dir)
        try:
            self.run = wandb.init(
                entity=settings.get("wandb_entity") or None, project=settings.get("wandb_project") or run.project,
                name=(settings.get("wandb_name") or run.name)[:128],
                group=(settings.get("wandb_group") or run.group)[:128], job_type="train",
                tags=[tag[:64] for tag in run.tags] or None, id=run_id,
                config=json_ready(run.config), mode=mode, reinit="create_new", dir=os.environ["WANDB_DIR"],
                resume=None if self.local else "never" if taken else "allow", settings=options)
        except wandb.errors.UsageError as error:
            if taken and "resume" in str(error):
                raise TrackerUnavailable(f"WANDB_RUN_ID: {run_id!r} is already used on the server; unset it") from None
            raise TrackerUnavailable(f"{_one_line(error)}; log in with `wandb login`, or use --wandb_mode offline; "
                                     f"publish with: python scripts/sync.py {run.run_dir} --to wandb") from None
        _name_files_from_here(self.run)
        (run.run_dir / "tracking" / "wandb" / "started").touch()
        self.destination = "offline" if self.local else f"{server()}/{self.run.entity}/{self.run.project}/{run_id}"
        self.url = "" if self.local else self.run.url or ""
        self.run.define_metric("step", hidden=True)
        self.run.define_metric("*", step_metric="step")
        self._info = run
        self._line = self._first = 0 if self.local else self.run.starting_step
        self._had = dict(self.run.summary) if self._first else {}
        if not self.local:
            self._core_log = _UploadLog(Path(self.run.settings.log_internal), self._first)
        if not strict:
            self._describe(run)
        return None if self.local else self._first

    def holds(self, kind: str, name: str, step: int) -> bool:
        """Rows arrive by step, and what belongs to a step after its row; the summary has the last of each name."""
        last = self._had.get("step", -1)
        return step < last or step == last and (kind in ("row", "alert") or _media_name(name) in self._had)

    def begin_at(self, count: int) -> None:
        """Offline there is no server to ask: lines go on after those that an earlier attempt has written."""
        self._line = count

    def _describe(self, run: RunInfo) -> None:
        """Metadata, resolved config, diff as files; the code as an artifact of type `code`."""
        self.run.summary["metadata"] = json_ready(run.metadata)
        diffs = sorted(path.name for path in run.run_dir.glob("code*.diff"))        # one more where a resume changed it
        for name in ("config.yaml", "metadata.json", *diffs):
            self._keep_text(name)
        code = run.run_dir / "code"
        marker = run.run_dir / "tracking" / "wandb" / ("code-offline" if self.local else "code-online")
        if code.is_dir() and not marker.exists():
            # W&B keeps the type `code` to itself; `run.log_code` makes it too, but copies every file.
            from wandb.sdk.artifacts._internal_artifact import InternalArtifact
            artifact = InternalArtifact(safe_name(f"source-{run.project}", "-main.py"), "code")
            for path in sorted(code.rglob("*")):
                if path.is_file():
                    _add(artifact, run.run_dir, path, str(path.relative_to(code)))
            self._code = (self._receipt(self.run._log_artifact(artifact)), marker)

    def _keep_text(self, name: str) -> None:
        """A text file of the run directory among W&B's, with what is there now."""
        path = self._info.run_dir / name
        if path.is_file() and path.stat().st_size:
            target = Path(self.run.dir) / (CONFIG_FILE if name == "config.yaml" else name)
            target.write_text(redact(path.read_text(encoding="utf-8", errors="replace")), encoding="utf-8")
            self.run.save(str(target), base_path=self.run.dir, policy="now")

    # ---- the run

    def log_row(self, step: int, wall: float, metrics: Mapping[str, int | float]) -> None:
        self._log({**metrics, "step": step}, wall)

    def log_media(self, step: int, wall: float, name: str, path: Path, caption: str | None) -> None:
        import wandb
        kind = wandb.Video if path.suffix in VIDEO else wandb.Image if path.suffix in IMAGE else None
        if kind is None:
            raise Unpublishable(f"{path.suffix} is neither picture nor animation")
        self._log({_media_name(name): kind(str(path), caption=caption), "step": step}, wall)

    def log_table(self, step: int, wall: float, name: str, columns: Sequence[str], rows: Sequence[Sequence]) -> None:
        import wandb
        self._log({_media_name(name): wandb.Table(columns=list(columns), data=[list(row) for row in rows],
                                                  allow_mixed_types=True), "step": step}, wall)

    def log_trace(self, step: int, wall: float, name: str, path: Path) -> None:
        self._log_weave(step, wall, name, path)
        self.log_table(step, wall, name, *episode_table(path))

    def _log_weave(self, step: int, wall: float, name: str, path: Path) -> None:
        """With `trace: weave`, a trace, before the table: the item can be handed over again until the table is there.

        What Weave does not take is said and costs no row. While its server is down only the first trace is tried more
        than once, each later one once. Raises what the client raises where trying again may help.
        """
        if self._info.settings.get("trace") != "weave" or self._weave is False:
            return
        if self.local:
            self.say("wandb: trace: weave is online only; the traces go with the run when it is published")
            return
        from navrl.tracking.weave import WeaveTraces, WeaveUnavailable, may_pass
        try:
            if self._weave is None:
                self._weave = WeaveTraces(self.run.entity, self.run.project, self.run.id)
            self._weave.send(path, name=name, step=step, wall=wall, run=self._info.name)
            self._weave_failures = 0
        except WeaveUnavailable as error:
            self.say(f"wandb: {error}")
            self._weave = False
        except Unpublishable:
            raise
        except Exception as error:
            self._weave_tries += 1
            self._weave_failures += may_pass(error)
            if may_pass(error) and self._weave_failures < WEAVE_TRIES:
                raise                 # the publisher waits and hands the item over again
            self.say(f"wandb: trace: weave: {name} at step {step} is left out, its table is there ({_one_line(error)})")

    def log_artifact(self, path: Path, aliases: Sequence[str], metadata: Mapping[str, Any]) -> Receipt | None:
        import wandb
        artifact = wandb.Artifact(self._info.artifact_name, type="model", metadata=json_ready(metadata))
        _add(artifact, self._info.run_dir, path, path.name)
        return self._receipt(self.run.log_artifact(artifact, aliases=[safe_name(alias) for alias in aliases]))

    def alert(self, title: str, text: str, level: str, step: int | None) -> None:
        import wandb
        if step is not None:
            text = f"step {step}: {text}"
        self.run.alert(title=title[:64], text=text, level=wandb.AlertLevel[LEVELS.get(level, "WARN")], wait_duration=0)

    def _log(self, row: dict[str, Any], wall: float) -> None:
        self.run.log({**row, "_timestamp": wall}, step=self._line, commit=True)
        self._line += 1

    def _receipt(self, artifact: Any) -> Receipt:
        if self.local:
            return lambda: True
        outcome: list[str] = []

        def wait() -> None:           # its own thread: a wait with a timeout cancels the upload
            try:
                answer = artifact._save_handle.wait_or(timeout=None).response.log_artifact_response
                outcome.append(answer.error_message)
            except Exception as error:
                outcome.append(_one_line(error))

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()

        def arrived() -> bool:
            if self._done:
                thread.join(2)
            if outcome and outcome[0]:
                raise RuntimeError(outcome[0])
            return bool(outcome)

        return arrived

    # ---- how far it is

    def progress(self) -> float:
        return self._weave_tries + (0.0 if self._core_log is None else self._core_log.moved())

    def confirmed(self) -> int | None:
        if self.run is None or self.local:
            return None
        return self._core_log.lines()

    def finish(self, status: str, exit_code: int, summary: Mapping[str, Any]) -> None:
        import wandb
        for part in ("final", "best"):
            for name, value in flat(summary.get(part)).items():
                if isinstance(value, (int, float, str)):
                    self.run.summary[f"{part}/{name}"] = value
        self.run.summary["status"] = status
        if self._info.settings.get("privacy") != "strict":
            self._keep_text("metadata.json")          # now with how and when it ended
        self.run.finish(exit_code=exit_code)          # waits for every upload
        self._done = True
        if self._code is not None:
            arrived, marker = self._code
            try:
                if arrived():
                    marker.touch()
            except Exception as error:
                self.say(f"wandb: the code snapshot did not arrive ({_one_line(error)})")
        wandb.teardown()                              # only then is an offline file whole


# ------------------------------------------------------------------------------------------ mode, key, server

def choose_mode(asked: str | None, proxy: str | None = None, environ: Mapping[str, str] | None = None, *,
                strict: bool = False) -> tuple[str, str]:
    """(`online` or `offline`, "" or why not online). `auto` obeys WANDB_MODE, else asks for a key and a server.

    strict (`privacy`): offline whatever is asked, also when it is published later, and no server is asked.
    """
    environ = os.environ if environ is None else environ
    asked = asked or "auto"
    if strict:
        return "offline", "" if asked == "offline" else "privacy: strict sends nothing"
    if asked == "auto" and environ.get("WANDB_MODE"):
        asked = {"dryrun": "offline", "run": "online"}.get(environ["WANDB_MODE"], environ["WANDB_MODE"])
    if asked in ("online", "shared"):
        return "online", ""
    if asked == "offline":
        return "offline", ""
    if not has_key(environ):
        return "offline", "no key is configured"
    return ("online", "") if answers(server(environ), proxy) else ("offline", f"{server(environ)} does not answer")


def server(environ: Mapping[str, str] | None = None) -> str:
    """Address of the W&B server: WANDB_BASE_URL, else what `wandb login --host` left, else the public one."""
    environ = os.environ if environ is None else environ
    address = environ.get("WANDB_BASE_URL") or _login_setting("base_url") or DEFAULT_SERVER
    return address.rstrip("/")


def has_key(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a key is configured, without asking for one: environment, identity token, netrc, settings file."""
    environ = os.environ if environ is None else environ
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_IDENTITY_TOKEN_FILE") or _login_setting("api_key"):
        return True
    host = urllib.parse.urlsplit(server(environ)).hostname or ""
    files = [environ["NETRC"]] if environ.get("NETRC") else ["~/.netrc", "~/_netrc"]
    for file in files:
        try:
            if (netrc.netrc(os.path.expanduser(file)).hosts).get(host):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def _login_setting(key: str) -> str | None:
    directory = os.environ.get("WANDB_CONFIG_DIR") or os.path.expanduser("~/.config/wandb")
    try:
        text = (Path(directory) / "settings").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(rf"^\s*{key}\s*=\s*(\S+)", text, re.MULTILINE)
    return match[1] if match else None


def keep_directories_inside(run_dir: Path) -> None:
    """All that W&B writes stays in the run directory, unless the user's variables say otherwise."""
    root = run_dir / "tracking" / "wandb"
    os.environ.setdefault("WANDB_DIR", str(root))
    for variable, name in (("WANDB_DATA_DIR", "data"), ("WANDB_CACHE_DIR", "cache"),
                           ("WANDB_ARTIFACT_DIR", "artifacts")):
        os.environ.setdefault(variable, str(root / name))
    if not (Path(os.path.expanduser("~/.config/wandb")) / "settings").exists():      # else it holds the login's server
        os.environ.setdefault("WANDB_CONFIG_DIR", str(root / "config"))
    for variable in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_ARTIFACT_DIR"):
        Path(os.environ[variable]).mkdir(parents=True, exist_ok=True)


def _was_started(run_dir: Path) -> bool:
    return (run_dir / "tracking" / "wandb" / "started").exists()


# ------------------------------------------------------------------------------------------ what the service has sent

class _UploadLog:
    """Follows the log of W&B's service: the only place that says which history lines the server has acknowledged."""

    def __init__(self, path: Path, first: int):
        self.path, self._first, self._end = path, first, first
        self._offset, self._asked, self._answers, self._lock = 0, None, 0, threading.Lock()

    def lines(self) -> int:
        """History lines that the server holds."""
        self._read()
        return self._end

    def moved(self) -> float:
        """Grows with every answer of the server and every 64 KiB that the service writes (a file is one request)."""
        self._read()
        return self._answers + self._written() // 65536

    def _read(self) -> None:
        with self._lock:
            try:
                with open(self.path, "rb") as file:
                    file.seek(self._offset)
                    data = file.read()
            except OSError:
                return
            whole = data[:data.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.splitlines():
                if b"filestream: " not in line:
                    continue
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if entry.get("msg") == "filestream: sending request":
                    lines = entry.get("history_lines", 0)
                    self._asked = entry.get("history_offset", 0) + lines if lines else None
                elif entry.get("msg") == "filestream: request sent" and str(entry.get("status", "")).startswith("2"):
                    self._answers += 1
                    if self._asked is not None:
                        self._end, self._asked = max(self._end, self._asked), None

    def _written(self) -> int:
        """Bytes written by the children of this process (W&B's service)."""
        total, own = 0, os.getpid()
        try:
            for task in os.listdir(f"/proc/{own}/task"):
                for child in Path(f"/proc/{own}/task/{task}/children").read_text().split():
                    for line in Path(f"/proc/{child}/io").read_text().splitlines():
                        if line.startswith("wchar:"):
                            total += int(line.split()[1])
        except (OSError, ValueError):
            pass
        return total


# ------------------------------------------------------------------------------------------ small things

def _add(artifact: Any, run_dir: Path, path: Path, name: str) -> None:
    """Without a copy, and relative to the run directory (the working directory), so that a moved run still syncs.

    W&B's cache would be a second copy of what the run directory has.
    """
    artifact.add_file(os.path.relpath(path, run_dir), name=name, policy="immutable", skip_cache=True)


def _name_files_from_here(run: Any) -> None:
    """Also the files of tables, which W&B makes itself: relative to the run directory, like those of `_add`."""
    log_artifact = run._log_artifact

    def log_relative(artifact: Any, *arguments: Any, **named: Any) -> Any:
        for entry in artifact.manifest.entries.values():
            if entry.local_path:
                entry.local_path = os.path.relpath(entry.local_path)
        return log_artifact(artifact, *arguments, **named)

    run._log_artifact = log_relative


def _media_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_./ -]+", "_", name)


def _one_line(error: BaseException) -> str:
    return redact(" ".join(str(error).split())[:200]) or type(error).__name__
