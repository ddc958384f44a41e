"""A tracker's client at work in a process of its own, inside a directory that is removed afterwards.

So it can be ended when nothing comes any more, leaves nothing behind, and what it needs in its environment (a proxy for
W&B) reaches nobody else. `ask` starts one and waits; a module that serves as one ends with `serve`.
"""
from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from navrl.redaction import redact

PATIENCE = 15.0                       # seconds in which the client gets nothing and does not compute
ANSWER, LOG, FILES = "answer.json", "log.txt", "files"        # of the client's process, inside its directory

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


class ClientError(Exception):
    """What was asked for cannot be had; the message is one line."""


# ------------------------------------------------------------------------------------------ who asks

def ask(module: str, request: Mapping[str, Any], directory: Path, patience: float = PATIENCE) -> dict[str, Any]:
    """What `python -m module` answers to `request`, in `directory`, which is empty and the caller's to remove.

    Its files are then under `directory / FILES`. Raises ClientError for what went wrong there, and where nothing comes
    for `patience` seconds.
    """
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PWD": os.getcwd()}
    with open(directory / LOG, "wb") as log:
        client = subprocess.Popen([sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=log, stderr=log,
                                  cwd=directory, env=environment, start_new_session=True)
    try:
        client.stdin.write(json.dumps(request).encode() + b"\n")
        client.stdin.flush()                      # kept open: its end tells the client that we are gone
        _wait(client, directory / FILES, patience)
        answer = json.loads((directory / ANSWER).read_text(encoding="utf-8"))
    except TimeoutError:
        answer = {"error": f"nothing has come from the server for {patience:.0f} s"}
    except (OSError, ValueError):
        answer = {"error": f"its client ended early{_last_line(directory / LOG)}"}
    finally:
        _end(client)
    if "error" in answer:
        raise ClientError(answer["error"])
    return answer


def _wait(client: subprocess.Popen, files: Path, patience: float) -> None:
    """Until the client ends. Raises TimeoutError when it has got nowhere for so long."""
    before, moved = (0, 0), time.monotonic()
    while client.poll() is None:
        now = (sum(path.stat().st_size for path in files.rglob("*") if path.is_file()), _seconds_of_work(client.pid))
        if now != before:
            before, moved = now, time.monotonic()
        if time.monotonic() - moved > patience:
            raise TimeoutError
        time.sleep(0.05)


def _seconds_of_work(pid: int) -> int:
    """CPU time of a process, whole seconds: on a busy machine MLflow alone takes long to import. 0 where unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0


def _end(client: subprocess.Popen) -> None:
    try:
        os.killpg(client.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    client.wait()
    try:
        client.stdin.close()
    except OSError:                               # it ended before it read
        pass


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f" ({one_line(lines[-1])})" if lines else ""


# ------------------------------------------------------------------------------------------ the client's process

def serve(answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Read a request from stdin, let `answer` do it in the current directory, write there what it returns."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    Path(FILES).mkdir()
    try:
        result = answer(request)
    except ClientError as error:
        result = {"error": str(error)}
    except Exception as error:                    # clients raise many kinds; each means that it cannot be had
        traceback.print_exc()
        result = {"error": one_line(error)}
    Path(ANSWER).write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)                                   # without waiting for what a client still has to say to its server


def _end_with_parent() -> None:
    sys.stdin.read()                              # returns when the process that asked is gone
    shutil.rmtree(os.getcwd(), ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def answered() -> None:
    """Something came that is no file: seen by who waits."""
    with open(f"{FILES}/answers", "ab") as file:
        file.write(b".")


def wandb_api(entity: str, proxy: str | None) -> Any:
    """W&B's public API, whose files stay in the current directory. Raises ClientError where there is no way to it."""
    from navrl.tracking.probe import answers
    from navrl.tracking.wandb import has_key, keep_directories_inside, server
    keep_directories_inside(Path.cwd())
    os.environ.update(WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    if proxy:
        os.environ.update(dict.fromkeys(_PROXIES, proxy))
    if not has_key():
        raise ClientError("no key is configured; log in with `wandb login`")
    if not answers(server(), proxy):
        raise ClientError(f"{server()} does not answer")
    try:
        import wandb
    except ImportError:
        raise ClientError("wandb is not installed; `pip install wandb`") from None
    return wandb.Api({"entity": entity}, timeout=15)


def mlflow_client(uri: str, hint: str) -> Any:
    """MLflow's client of a store that is there. Raises ClientError, with `hint` where there is none to look at."""
    from navrl.tracking.mlflow import keep_to_itself
    keep_to_itself()
    _require_store(uri, hint)
    try:
        import mlflow
    except ImportError:
        raise ClientError("MLflow is not installed; `pip install mlflow==3.17.2`") from None
    mlflow.set_tracking_uri(uri)
    return mlflow.MlflowClient(tracking_uri=uri)


def _require_store(uri: str, hint: str) -> None:
    """Raises ClientError where there is none: MLflow would make one."""
    from navrl.tracking.probe import answers
    if uri.startswith("http"):
        if not answers(uri):
            raise ClientError(f"{redact(uri)} does not answer")
        return
    if uri.startswith("sqlite") and not Path(uri.split("///", 1)[1]).is_file():
        raise ClientError(f"there is no {redact(uri)}; {hint}")
    try:
        import sqlalchemy
    except ImportError:
        raise ClientError("MLflow is not installed; `pip install mlflow==3.17.2`") from None
    try:
        with sqlalchemy.create_engine(uri, poolclass=sqlalchemy.pool.NullPool).connect() as connection:
            if not sqlalchemy.inspect(connection).has_table("model_versions"):
                raise ClientError(f"{redact(uri)} is no MLflow store; {hint}")
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise ClientError(f"{redact(uri)}: {one_line(error)}") from None


def one_line(error: BaseException | str) -> str:
    """The cause in at most 300 characters (a database's own words, without SQLAlchemy's around them)."""
    return " ".join(str(getattr(error, "orig", None) or error).split())[:300] or type(error).__name__
