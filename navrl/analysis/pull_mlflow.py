"""Runs of an MLflow experiment, as ``navrl.tracking.mlflow`` publishes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from navrl import fields
from navrl.analysis.pulled import config_in, metadata_in, missing, outcome, run_of
from navrl.analysis.records import LeftOut, Run
from navrl.config import EARLIER, Config
from navrl.redaction import redact
from navrl.tracking.client import FILES, ClientError, answered, mlflow_client
from navrl.tracking.mlflow import PARENT_OF, STATUS, UID, mlflow_name, usable_address
from navrl.tracking.tracker import TrackerUnavailable

RUNS_A_PAGE, REQUEST_SECONDS = 200, "25"
SECTIONS = {"final": "final", "best": "final_best"}  # of the summary -> among the metrics
STATES = {there: here for here, there in STATUS.items()} | {"FAILED": "failed"}


def runs_of(uri: str, experiment: str, group: str | None, wanted: Sequence[str] | None) -> Iterator[Run | LeftOut]:
    """Every run of the experiment (of one group of it). Raises ClientError."""
    try:
        uri = usable_address(uri)
    except TrackerUnavailable as error:
        raise ClientError(str(error).removeprefix("mlflow_tracking_uri: ")) from None
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", REQUEST_SECONDS)  # else that of a run, which is not to wait
    client = mlflow_client(uri, "name the database of the runs")
    there = client.get_experiment_by_name(experiment)
    if there is None:
        raise missing("experiment", experiment, (each.name for each in client.search_experiments()))
    if there.lifecycle_stage != "active":
        raise ClientError(f"experiment {experiment!r} is deleted; restore it with `mlflow experiments restore "
                          f"--experiment-id {there.experiment_id}`")  # fmt: skip
    every = list(_every_run(client, there.experiment_id))
    groups = {run.data.tags.get("group", "") for run in every if UID in run.data.tags}
    if group is not None and group not in groups:
        raise missing("group", group, groups)
    for run in every:
        tags, source = run.data.tags, f"mlflow:{redact(uri)}:{experiment}/{run.info.run_id}"
        # What holds a group together is no run of its own
        if PARENT_OF in tags or group not in (None, tags.get("group")):
            continue
        if UID in tags:
            yield _run(client, run, source, wanted)
        else:
            yield LeftOut(f"{source} ({run.info.run_name})", "NAVRL did not make it (no tag navrl.uid)")


def _every_run(client: Any, experiment_id: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment_id], max_results=RUNS_A_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _run(client: Any, run: Any, source: str, wanted: Sequence[str] | None) -> Run | LeftOut:
    tags, run_id = run.data.tags, run.info.run_id
    running = run.info.status in ("RUNNING", "SCHEDULED")  # the tag may be that of an earlier attempt
    names = [name for name in run.data.metrics if not name.startswith(tuple(f"{each}/" for each in SECTIONS.values()))]
    metrics = {mlflow_name(metric): metric for metric in wanted} if wanted is not None else dict(zip(names, names))
    points = {metrics[name]: _points(client, run_id, name) for name in names if name in metrics}
    return run_of(
        source=source, group=tags.get("group", ""), name=run.info.run_name or run_id,
        seed=_typed("seed", tags.get("seed", "null")),
        status="running" if running else tags.get("status") or STATES.get(run.info.status, "failed"),
        config=config_in(_artifact(client, run_id, "config.yaml")) or EARLIER | _parameters(run.data),
        metadata=metadata_in(_artifact(client, run_id, "metadata.json")),
        outcome={} if running else _outcome(client, run), points=points, wanted=wanted,
    )  # fmt: skip


def _points(client: Any, run_id: str, name: str) -> dict[int, float]:
    found = {point.step: point.value for point in client.get_metric_history(run_id, name)}
    answered()
    return found


def _outcome(client: Any, run: Any) -> dict[str, Any]:
    values = dict(run.data.metrics)
    for section in SECTIONS.values():
        if f"{section}/episodes" in values:  # the step is that of the section's points
            values[f"{section}/step"] = client.get_metric_history(run.info.run_id, f"{section}/episodes")[-1].step
    return outcome(values, SECTIONS)


def _artifact(client: Any, run_id: str, name: str) -> Path | None:
    """A text of the run, fetched; None where there is none (``privacy: strict``) or its place is out of reach."""
    from mlflow.exceptions import MlflowException

    folder = Path(FILES) / run_id
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return Path(client.download_artifacts(run_id, name, str(folder)))
    except (MlflowException, OSError):
        return None


def _parameters(data: Any) -> dict[str, Any]:
    """The configuration out of parameters, typed as the schema says; what has changed since is in tags."""
    changed = {name.removeprefix("changed."): text for name, text in data.tags.items() if name.startswith("changed.")}
    return {name: _typed(name, text) for name, text in {**data.params, **changed}.items()}


def _typed(key: str, text: str) -> Any:
    info = Config.model_fields.get(key)
    try:
        return text if info is None else fields.from_words([text], info)
    except ValueError:
        return text
