"""Runs of a W&B project, as ``navrl.tracking.wandb`` publishes them. The server is asked by W&B's own client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from navrl.analysis.pulled import config_in, metadata_in, missing, outcome, run_of
from navrl.analysis.records import LeftOut, Run
from navrl.config import EARLIER
from navrl.tracking.client import FILES, answered, wandb_api
from navrl.tracking.convert import from_json
from navrl.tracking.wandb import CONFIG_FILE

OWN_KEYS = {"env_id", "algorithm_name", "seed"}  # of the configuration that NAVRL sends
ROWS_A_PAGE = 1000
SECTIONS = {"final": "final", "best": "best"}  # of the summary -> in W&B's
STATES = {"killed": "interrupted", "preempted": "interrupted", "preempting": "running", "pending": "running"}


def runs_of(
    entity: str, project: str, group: str | None, proxy: str | None, wanted: Sequence[str] | None
) -> Iterator[Run | LeftOut]:
    """Every run of the project (of one group of it). Raises ClientError."""
    api = wandb_api(entity, proxy)
    try:
        every = list(api.runs(f"{entity}/{project}"))
    except ValueError:  # what the client says of a project that is not there
        raise missing("project", project, (each.name for each in api.projects(entity))) from None
    groups = {run.group or "" for run in every}
    if group is not None and group not in groups:
        raise missing("group", group, groups)
    for run in every:
        if group not in (None, run.group):
            continue
        source = f"wandb:{entity}/{project}/{run.id}"
        if OWN_KEYS <= run.config.keys():
            yield _run(run, source, wanted)
        else:
            yield LeftOut(f"{source} ({run.name})", "NAVRL did not make it (its config names no env_id, algorithm_name "
                                                  "and seed)")  # fmt: skip


def _run(run: Any, source: str, wanted: Sequence[str] | None) -> Run | LeftOut:
    """The whole history in one scan: asked for some keys alone, W&B gives only rows that have all of them."""
    points: dict[str, dict[int, float]] = {}
    for number, row in enumerate(run.scan_history(page_size=ROWS_A_PAGE)):
        if number % ROWS_A_PAGE == 0:
            answered()
        for metric, value in row.items():
            value = from_json(value)
            if isinstance(value, (int, float)) and "step" in row and _is_wanted(metric, wanted):
                points.setdefault(metric, {})[int(row["step"])] = value
    said = run.summary_metrics
    status = "running" if run.state == "running" else said.get("status") or STATES.get(run.state, run.state)
    return run_of(
        source=source, group=run.group or "", name=run.name or run.id, seed=run.config.get("seed"), status=status,
        config=config_in(_file(run, CONFIG_FILE)) or EARLIER | dict(run.config),
        metadata=metadata_in(_file(run, "metadata.json")),
        outcome={} if status == "running" else outcome(said, SECTIONS), points=points, wanted=wanted,
    )  # fmt: skip


def _is_wanted(metric: str, wanted: Sequence[str] | None) -> bool:
    return metric != "step" and (metric in wanted if wanted is not None else not metric.startswith("_"))


def _file(run: Any, name: str) -> Path | None:
    """A text file of the run, fetched; None where there is none."""
    import wandb

    try:
        for file in run.files(names=[name]):
            file.download(root=f"{FILES}/{run.id}", replace=True).close()
            return Path(FILES, run.id, name)
    except (wandb.errors.CommError, OSError, ValueError):
        pass
    return None
