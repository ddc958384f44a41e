"""What each tracker can do from here, found by trying: versions, keys, servers, stores. `scripts/doctor.py` shows it."""
from __future__ import annotations

import base64
import importlib.metadata
import importlib.util
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from navrl.config import Config
from navrl.redaction import holds_password, redact_secrets
from navrl.tracking import mlflow, wandb
from navrl.tracking.probe import PROBE_SECONDS, Reply, ask
from navrl.tracking.registry import TRACKERS, tracker_class
from navrl.tracking.stores import on_this_machine
from navrl.tracking.tracker import TrackerUnavailable

NOT_ASKED = "not asked"               # what `privacy: strict` leaves in peace, or nobody knows how to ask
UNKNOWN = "unknown"
INSTALL = "pip install -r requirements-trackers.txt"


@dataclass(frozen=True)
class Finding:
    """One tracker. The texts are a table's cells.

    asked: the configuration sends rows there. version: installed (`broken`; `importable`, of one's own), or None. key: whether a key or login is configured.
    reach: what its server said; seconds: how long that took, None where none was asked. store: `writable`, or why not.
    setting: the configuration line that works from here. fault: what the configuration asks for and does not work, "".
    """

    tracker: str
    asked: bool
    version: str | None
    key: str
    reach: str
    seconds: float | None
    store: str
    setting: str
    fault: str = ""


def examine(config: Config, environ: Mapping[str, str]) -> list[Finding]:
    """Look at every tracker, all at once, each server for at most 3 s. With `privacy: strict` none beyond this machine.

    Writes nothing that stays. Never raises for what it finds.
    """
    looks = {"wandb": _wandb, "swanlab": _swanlab, "mlflow": _mlflow, "tensorboard": _tensorboard}
    looks |= {name: partial(_own, name) for name in TRACKERS if name not in looks}
    with ThreadPoolExecutor(len(looks)) as pool:
        return list(pool.map(lambda name: _look(name, looks[name], config, environ), looks))


def why_not_writable(directory: Path | str) -> str:
    """Why files cannot be made in a directory (or in the nearest one above it, where it is not there yet), or ""."""
    try:
        Path(directory).expanduser().exists()     # raises where no file can have such a name
        directory = nearest(directory)
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return f"{directory}: {error.strerror}"


def nearest(path: Path | str) -> Path:
    """The path itself, or the first above it that exists."""
    path = Path(path).expanduser().absolute()
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    return path


# ------------------------------------------------------------------------------------------ one tracker each

Look = Callable[[Config, Mapping[str, str]], Finding]


def _look(name: str, look: Look, config: Config, environ: Mapping[str, str]) -> Finding:
    """What a look finds; where it fails, which takes a broken package, that."""
    try:
        return look(config, environ)
    except (Exception, SystemExit) as error:      # a package's import may do anything
        asked = name in config.trackers and getattr(config, f"{name}_mode", None) != "disabled"
        why = redact_secrets(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
        setting = "log_wandb: False" if name == "wandb" else _without(name, config)
        return Finding(name, asked, "broken", UNKNOWN, NOT_ASKED, None, UNKNOWN, setting,
                       f"cannot be used ({why}); {setting} does without it" if asked else "")


def _own(name: str, config: Config, environ: Mapping[str, str]) -> Finding:
    """A tracker of one's own in the registry: whether it can be imported is all that is known of it."""
    tracker_class(name)
    return Finding(name, name in config.trackers, "importable", UNKNOWN, NOT_ASKED, None, UNKNOWN,
                   f"logger: [console, {name}]")


def _wandb(config: Config, environ: Mapping[str, str]) -> Finding:
    version, key, address = _version("wandb"), wandb.has_key(environ), wandb.server(environ)
    reply = None if config.privacy == "strict" else ask(address + "/healthz", config.wandb_proxy)
    online = bool(version and key and _good(reply))
    store = why_not_writable(environ.get("WANDB_DIR") or config.run_dir)
    asked = "wandb" in config.trackers and config.wandb_mode != "disabled"
    fault = _missing("wandb") if not version else f"WANDB_DIR {store}" if environ.get("WANDB_DIR") and store else ""
    if config.wandb_mode == "online" and not fault:
        fault = ("no key: run `wandb login`, or write wandb_mode: offline" if not key else
                 "" if online else f"{address}: {_said(reply)}; write wandb_mode: offline")
    setting = "log_wandb: False" if not version else f"wandb_mode: {'online' if online else 'offline'}"
    return Finding("wandb", asked, version, "yes" if key else "no", _said(reply), _seconds(reply),
                   store or "writable", setting, fault if asked else "")


def _swanlab(config: Config, environ: Mapping[str, str]) -> Finding:
    version = _version("swanlab")
    address, key = environ.get("SWANLAB_API_HOST") or "https://api.swanlab.cn", bool(environ.get("SWANLAB_API_KEY"))
    if version:
        import swanlab
        known = swanlab.Settings(interactive=False)
        address, key = known.api_host, bool(known.api_key)
    reply = None if config.privacy == "strict" else ask(address + "/healthz")
    online = bool(version and key and _good(reply))
    store = why_not_writable(environ.get("SWANLAB_LOG_DIR") or config.run_dir)
    asked = "swanlab" in config.trackers and config.swanlab_mode != "disabled"
    fault = _missing("swanlab") if not version else ""
    if environ.get("SWANLAB_LOG_DIR") and store:
        fault = fault or f"SWANLAB_LOG_DIR {store}"
    if config.swanlab_mode == "online" and not fault:
        fault = ("no key: run `swanlab login`, or write swanlab_mode: offline" if not key else
                 "" if online else f"{address}: {_said(reply)}; write swanlab_mode: offline")
    if config.swanlab_mode == "local" and not fault and importlib.util.find_spec("swanboard") is None:
        fault = "swanlab_mode: local needs its dashboard: pip install 'swanlab[dashboard]'"
    setting = f"swanlab_mode: {'online' if online else 'offline'}" if version else _without("swanlab", config)
    return Finding("swanlab", asked, version, "yes" if key else "no", _said(reply), _seconds(reply),
                   store or "writable", setting, fault if asked else "")


def _mlflow(config: Config, environ: Mapping[str, str]) -> Finding:
    version, asked = _version("mlflow"), "mlflow" in config.trackers
    root = Path(config.run_dir).expanduser().absolute()
    given = config.mlflow_tracking_uri
    key, reply, store = "not needed", None, ""
    try:
        uri = mlflow.usable_address(given) if given else mlflow.default_address(root)
        strict = config.privacy == "strict" and not on_this_machine(uri)
        if strict:
            reach, store = NOT_ASKED, "privacy: strict sends nothing there"
        elif uri.startswith("http"):
            key = "yes" if _login(environ) or holds_password(uri) else "no"
            reply = ask(f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/search?max_results=1", headers=_login(environ))
            reach = _said(reply)
            answered = f"the server answered {reply.status}" if (reply.status or 0) >= 500 else "no MLflow there"
            store = {None: "no server", 200: "", 401: "login refused", 403: "refused"}.get(reply.status, answered)
        elif uri.startswith("sqlite"):
            reach, store = "a file", _sqlite(Path(uri.split("///", 1)[1]))
        else:
            began = time.monotonic()
            store = _within_bounds(lambda: _database(uri))
            reply = Reply(None, time.monotonic() - began)
            reach = "no connection" if store else "connected"
    except TrackerUnavailable as error:
        uri, reach, store = given or "", "no address", str(error)
    works = bool(version) and not store
    if not version:
        setting = _without("mlflow", config)
    elif not works or not given:
        setting = "mlflow_tracking_uri: null"
    elif holds_password(given):
        setting = "mlflow_tracking_uri: null  # the address with its password in MLFLOW_TRACKING_URI"
    else:
        setting = f"mlflow_tracking_uri: {given}"
    why = f"{redact_secrets(uri)}: {store}" + _way_out(reply, given)
    return Finding("mlflow", asked, version, key, reach, _seconds(reply), store or "writable", setting,
                   "" if works or not asked else why if version else _missing("mlflow"))


def _tensorboard(config: Config, environ: Mapping[str, str]) -> Finding:
    version, asked = _version("tensorboard"), "tensorboard" in config.trackers
    setting = "logger: [console, tensorboard]" if version else _without("tensorboard", config)
    return Finding("tensorboard", asked, version, "not needed", "files", None,
                   why_not_writable(config.run_dir) or "writable", setting,
                   _missing("tensorboard") if asked and not version else "")


# ------------------------------------------------------------------------------------------ stores

def _sqlite(path: Path) -> str:
    """Why an SQLite file takes no rows, or "". One that another process writes at this moment is as good as any."""
    if not path.exists():
        return why_not_writable(path.parent)
    try:
        with tempfile.TemporaryFile(dir=path.parent):         # its journal is made beside it
            pass
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=1)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.rollback()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return "" if "locked" in str(error) else str(error)
    except OSError as error:
        return f"{path.parent}: {error.strerror}"
    return ""


def _database(uri: str) -> str:
    """Why a database takes no rows, or ""."""
    try:
        import sqlalchemy
        engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.pool.NullPool)
        with engine.connect() as connection:
            if uri.startswith("postgresql"):
                if connection.execute(sqlalchemy.text("SHOW transaction_read_only")).scalar() == "on":
                    return "read-only"
            else:
                connection.execute(sqlalchemy.text("SELECT 1"))
        return ""
    except ImportError as error:
        return f"{error.name} is not installed; {INSTALL}"
    except Exception as error:                    # whatever a driver raises
        return redact_secrets(" ".join(str(getattr(error, "orig", None) or error).split()))[:120]


def _within_bounds(check: Callable[[], str]) -> str:
    answer: list[str] = []
    thread = threading.Thread(target=lambda: answer.append(check()), daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answer[0] if answer else f"no answer in {PROBE_SECONDS:g} s"


# ------------------------------------------------------------------------------------------ small things

def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _missing(package: str) -> str:
    return f"not installed: {'pip install -r requirements.txt' if package == 'wandb' else INSTALL}"


def _without(tracker: str, config: Config) -> str:
    return f"logger: [{', '.join(name for name in config.logger if name != tracker)}]"


def _good(reply: Reply | None) -> bool:
    return reply is not None and reply.status is not None and reply.status < 500


def _said(reply: Reply | None) -> str:
    if reply is None:
        return NOT_ASKED
    return reply.why or ("answers" if _good(reply) else f"error {reply.status}")


def _seconds(reply: Reply | None) -> float | None:
    return None if reply is None else round(reply.seconds, 3)


def _way_out(reply: Reply | None, given: str | None) -> str:
    if reply is not None and reply.status == 401:
        return "; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    if reply is not None and reply.status == 403:
        return "; it takes other logins, or its --allowed-hosts lacks this name"
    return "; write mlflow_tracking_uri: null for a file beside the runs" if given else ""


def _login(environ: Mapping[str, str]) -> dict[str, str]:
    """The header that MLflow's own client would send."""
    user, password = environ.get("MLFLOW_TRACKING_USERNAME"), environ.get("MLFLOW_TRACKING_PASSWORD")
    if user and password:
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    token = environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}
