"""MLflow stores and servers for tests, and what is found in them by MLflow's own client."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tracking_run
from wandb_stand_in import OPENER, free_port

for _name, _value in {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}.items():
    os.environ.setdefault(_name, _value)


class Server:
    """A real `mlflow server` on loopback over a database, that keeps artifacts in `directory`."""

    def __init__(self, directory: Path, database: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.database, self.port = directory, database, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port),
             "--workers", "1", "--backend-store-uri", self.database,
             "--artifacts-destination", str(self.directory / "artifacts")],
            env=tracking_run.environment(self.directory / "home", MLFLOW_DISABLE_TELEMETRY="true",
                                        MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"), cwd=self.directory,
            stdin=subprocess.DEVNULL, stdout=open(self.directory / "out.txt", "ab"), stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            try:
                with OPENER.open(urllib.request.Request(self.url + "/health"), timeout=5):
                    return
            except OSError:
                assert time.monotonic() < deadline and self.process.poll() is None, self.log()
                time.sleep(0.1)

    def kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(timeout=10)

    def log(self) -> str:
        return (self.directory / "out.txt").read_text()[-3000:]


class Postgres:
    """A PostgreSQL of its own, with an empty database, in a directory that its user may enter."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="navrl-pg-"))
        self.directory.chmod(0o755)
        self.port = free_port()
        self.url = self._do("start").strip().splitlines()[-1]

    def _do(self, action: str) -> str:
        done = subprocess.run(
            ["sh", str(Path(__file__).with_name("pg_up.sh")), str(self.directory), str(self.port), action],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def close(self) -> None:
        try:
            self._do("stop")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


@functools.cache
def _template() -> bytes:
    """An SQLite store with its tables and nothing in it: MLflow takes seconds to make one."""
    with tempfile.TemporaryDirectory() as directory:
        client(f"sqlite:///{directory}/mlflow.db").search_experiments()
        return Path(directory, "mlflow.db").read_bytes()


def empty_store(path: Path) -> str:
    """Address of a store at `path` whose tables are there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_template())
    return f"sqlite:///{path}"


def client(uri: str) -> Any:
    import mlflow

    return mlflow.MlflowClient(tracking_uri=uri)


def runs(store: Any, wanted: str = "", project: str = "NAVRL") -> list[Any]:
    experiment = store.get_experiment_by_name(project)
    return list(store.search_runs([experiment.experiment_id], wanted, order_by=["attributes.start_time"]))


def children(store: Any, group: str = "group") -> tuple[Any, list[Any]]:
    """The group's parent run, of which there must be one, and its children."""
    every = runs(store)
    (parent,) = [run for run in every if "navrl.parent_of" in run.data.tags and run.data.tags["group"] == group]
    found = [run for run in every if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    return parent, found


def rows(store: Any, run_id: str) -> dict[int, dict[str, float]]:
    """`{step: {metric: value}}`; a metric with two values at one step is a fault."""
    found: dict[int, dict[str, float]] = {}
    for name in store.get_run(run_id).data.metrics:
        for point in store.get_metric_history(run_id, name):
            row = found.setdefault(point.step, {})
            assert name not in row, f"{name} twice at step {point.step}"
            row[name] = point.value
    return found


def expected(record: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Rows of a local record as MLflow is to have them: infinities are NaN there."""
    return {
        row["step"]: {
            name: math.nan if isinstance(value, float) and math.isinf(value) else float(value)
            for name, value in row.items()
            if name != "step"
        }
        for row in record
    }


def assert_same_rows(found: dict[int, dict[str, float]], record: list[dict[str, Any]]) -> None:
    wanted = expected(record)
    assert found.keys() == wanted.keys()
    for step, row in wanted.items():
        assert found[step].keys() == row.keys()
        for name, value in row.items():
            assert found[step][name] == value or (math.isnan(found[step][name]) and math.isnan(value)), (step, name)


def download(uri: str, run_id: str, path: str, to: Path) -> bytes:
    import mlflow

    to.mkdir(parents=True, exist_ok=True)
    where = mlflow.artifacts.download_artifacts(
        artifact_uri=f"runs:/{run_id}/{path}", dst_path=str(to), tracking_uri=uri
    )
    return Path(where).read_bytes()


@contextlib.contextmanager
def registry_at(uri: str) -> Iterator[None]:
    """`models:/...` addresses are looked up here; MLflow keeps that in the process and in its environment."""
    import mlflow

    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)
        if before is not None:
            os.environ["MLFLOW_TRACKING_URI"] = before
        else:
            os.environ.pop("MLFLOW_TRACKING_URI", None)
