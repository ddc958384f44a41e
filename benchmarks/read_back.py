"""What each tracker holds of a run, found by the tracker's own reader, and how that differs from the local record.

`Points` is `{(step, metric): [values]}`: a metric that was sent twice for one step shows as two values.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # tests/ has the stand-in servers and the trackers' own readers

import mlflow_tools  # noqa: E402
import read_swanlab  # noqa: E402
import read_wandb  # noqa: E402
from wandb_stand_in import StandIn  # noqa: E402

from navrl.tracking.convert import from_json  # noqa: E402

Points = dict[tuple[int, str], list[float]]


def from_wandb_files(run_dir: Path) -> Points:
    """W&B's offline file, read by `wandb leet inspect`."""
    return _of_history(read_wandb.read_run(run_dir)["history"])


def from_wandb_server(server: StandIn, run_dir: Path) -> Points:
    """What the stand-in server has received."""
    return _of_history(server.run(run_dir)["history"])


def _of_history(history: list[dict[str, Any]]) -> Points:
    points: Points = {}
    for row in read_wandb.curves(history):
        step = row.pop("step")
        for name, value in row.items():
            points.setdefault((step, name), []).append(from_json(value))
    return points


def from_mlflow(uri: str, run_dir: Path) -> Points:
    """The store, asked by MLflow's client; the final result, which is no row of the record, is left out."""
    store = mlflow_tools.client(uri)
    uid = json.loads((run_dir / "tracking" / "run.json").read_text(encoding="utf-8"))["uid"]
    (run,) = mlflow_tools.runs(store, f"tags.`navrl.uid` = '{uid}'")
    points: Points = {}
    for name in run.data.metrics:
        if not name.startswith(("final/", "final_best/")):
            for point in store.get_metric_history(run.info.run_id, name):
                points.setdefault((point.step, name), []).append(point.value)
    return points


def from_swanlab(run_dir: Path) -> Points:
    """SwanLab's offline file, read by its `DataStoreReader`."""
    points: Points = {}
    for scalar in read_swanlab.records(run_dir).get("scalar", []):
        points.setdefault((scalar.step, scalar.key), []).append(scalar.value.number)
    return points


def from_tensorboard(run_dir: Path) -> Points:
    """The event files, read by TensorBoard's `EventAccumulator`, nothing sampled away."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tracking" / "tensorboard" / "events"), {"scalars": 0})
    events.Reload()
    points: Points = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            points.setdefault((event.step, name), []).append(event.value)
    return points


# What is documented to happen to a value on its way; None = it is left out.
TREATMENT: dict[str, Callable[[float], float | None]] = {
    "wandb": lambda value: value,
    "mlflow": lambda value: math.nan if math.isinf(value) else value,
    "swanlab": lambda value: value if math.isfinite(value) else None,
    "tensorboard": lambda value: float(np.float32(value)),
}


@dataclass
class Difference:
    """rows, values: expected of the tracker. lost: rows of which a value is missing, different or there twice."""

    rows: int
    values: int
    lost: int
    twice: int
    foreign: int  # values that the record does not have
    first: str = ""


def compare(points: Points, record: list[dict[str, Any]], tracker: str, *, clock: bool = True) -> Difference:
    """Hold what a tracker has against the rows of the local record.

    clock: False leaves out `time` and `perf/`, which differ where a step was played again after a kill.
    """
    treat, expected = TREATMENT[tracker], {}
    lost: set[int] = set()
    first = ""
    for row in record:
        for name, value in row.items():
            if name != "step" and (clock or not is_clock(name)):
                expected[row["step"], name] = treat(value)
    for (step, name), value in expected.items():
        got = points.get((step, name), [])
        if not (got == [] if value is None else len(got) == 1 and same(got[0], value)):
            lost.add(step)
            first = first or f"{name} at step {step}: {value} became {got}"
    return Difference(
        rows=len(record), values=sum(value is not None for value in expected.values()), lost=len(lost),
        twice=sum(len(values) > 1 for values in points.values()),
        foreign=sum(point not in expected and (clock or not is_clock(point[1])) for point in points), first=first,
    )  # fmt: skip


def is_clock(name: str) -> bool:
    return name == "time" or name.startswith("perf/")


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
