"""Records on disk and runs in memory for tests of comparisons: as small as a record can be, or like a real one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from navrl.analysis.records import BASE_COLUMNS, Run
from navrl.config import Config, dump


def add_record(
    directory: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    seed: int | None = 1,
    status: str = "finished",
    final: Mapping[str, float] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """A run directory. rows: with "step"; time and episodes are filled in. config: keys that are not at their defaults.

    seed None: no configuration and no metadata, as of a record that lost them.
    """
    directory.mkdir(parents=True)
    whole = [{"time": row["step"] / 100, "train/episode_count": row["step"] // 25} | dict(row) for row in rows]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in whole), encoding="utf-8")
    summary: dict[str, Any] = {"status": status}
    if final is not None:
        summary["final"] = {"episodes": 500, "env": "mpe2 1.1.1", "mean": dict(final),
                            "standard_error": dict.fromkeys(final, 0.01)}  # fmt: skip
    (directory / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    if seed is not None:
        (directory / "config.yaml").write_text(dump(Config(seed=seed, **config)), encoding="utf-8")
        about = {"seed": seed, "git_commit": "c0ffee", "git_dirty": False, "started": "2026-01-01T00:00:00.000+00:00"}
        (directory / "metadata.json").write_text(json.dumps(about | dict(metadata or {})), encoding="utf-8")
    return directory


def make_run(
    group: str,
    seed: int | None,
    points: Mapping[int, float],
    *,
    metric: str = "m",
    name: str = "",
    status: str = "finished",
    final: float | None = None,
    root: str = "runs",
    metadata: Mapping[str, Any] | None = None,
    **config: Any,
) -> Run:
    """A run in memory: metric at steps (values that are not finite count as recorded so), and its final value."""
    steps = np.array(sorted(points), dtype=float)
    values = np.array([points[int(step)] for step in steps], dtype=float)
    columns = dict(zip(BASE_COLUMNS, (steps, steps / 100, steps // 25))) | {metric: values}
    bad = int((~np.isfinite(values)).sum())
    name = name or f"seed{seed}"
    short = metric.partition("/")[2]
    summary = {} if final is None else {"final": {"mean": {short: final}, "standard_error": {short: 0.01}}}
    return Run(
        source=f"{root}/{group}/{name}", group=group, name=name, seed=seed, status=status,
        config=Config(seed=seed or 0, **config).model_dump(mode="json"), metadata={"seed": seed} | dict(metadata or {}),
        summary={"status": status} | summary, columns=columns, non_finite={metric: bad} if bad else {},
    )  # fmt: skip
