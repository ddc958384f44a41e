"""Runs that exist only in a tracker, as the values that local records give.

    mlflow:URI:EXPERIMENT[:GROUP]     mlflow:http://host:5000:NAVRL, mlflow:sqlite:///runs/mlflow.db:NAVRL:mpe_group
    wandb:ENTITY/PROJECT[:GROUP]

The tracker's client works in a process of its own (``navrl.tracking.client``). Needs no torch.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from navrl.analysis.records import BASE_COLUMNS, LeftOut, Run
from navrl.redaction import redact
from navrl.tracking.client import FILES, ClientError, ask, serve

PATIENCE = 60.0  # seconds: 25 000 points, one answer of MLflow, take a busy server ten
FORMS = ("mlflow:URI:EXPERIMENT[:GROUP]", "wandb:ENTITY/PROJECT[:GROUP]")

# An address holds colons itself: after the host a port (possessive, for it must not be given up to be an experiment).
_MLFLOW = re.compile(
    r"mlflow:(?P<uri>sqlite:///[^:]+"
    r"|[a-z][a-z0-9+.-]*://(?:[^/@\s]*@)?(?:\[[0-9a-fA-F:]+\]|[^/:@\s]+)(?::\d+)?+(?:/[^:]*)?)"
    r":(?P<experiment>[^:]+)(?::(?P<group>.+))?"
)
_WANDB = re.compile(r"wandb:(?P<entity>[^/:\s]+)/(?P<project>[^/:]+)(?::(?P<group>.+))?")


def pull(
    reference: str, metrics: Sequence[str] | None, *, wandb_proxy: str | None = None
) -> tuple[list[Run], list[LeftOut]]:
    """The runs behind a reference, in the order of their groups and names, and what was left out and why.

    metrics: the columns besides ``records.BASE_COLUMNS``; None: all that a run has. wandb_proxy: address of a proxy for
    W&B alone.
    Raises ValueError, in one line, for all that can be wrong: the form, the address, a server that does not answer or
    from which nothing comes for ``PATIENCE``, an experiment, a project or a group that is not there.
    """
    tracker, parts = parse(reference)
    wanted = None if metrics is None else list(dict.fromkeys((*BASE_COLUMNS, *metrics)))
    request = {"tracker": tracker, "parts": parts, "proxy": wandb_proxy, "wanted": wanted}
    with tempfile.TemporaryDirectory(prefix="navrl-pull-") as directory:
        try:
            answer = ask("navrl.analysis.pull", request, Path(directory), PATIENCE)
        except ClientError as error:
            raise ValueError(f"{redact(reference)}: {redact(str(error))}") from None
        runs = [_read(about, Path(directory)) for about in answer["runs"]]
    runs.sort(key=lambda run: (run.group, run.name))
    return runs, [LeftOut(**left) for left in answer["left_out"]]


def is_reference(text: str) -> bool:
    """Whether a tracker is meant, and no directory."""
    return text.startswith(("mlflow:", "wandb:"))


def parse(reference: str) -> tuple[str, dict[str, str | None]]:
    """Tracker and parts of a reference. Raises ValueError."""
    for tracker, form in (("mlflow", _MLFLOW), ("wandb", _WANDB)):
        if match := form.fullmatch(reference):
            return tracker, match.groupdict()
    forms = [form for form in FORMS if form.startswith(f"{reference.partition(':')[0]}:")] or FORMS
    raise ValueError(f"{redact(reference)!r} names no runs; write {' or '.join(forms)}")


def _read(about: dict[str, Any], directory: Path) -> Run:
    values = np.load(directory / about.pop("file"), allow_pickle=False)
    return Run(**about | {"columns": dict(zip(about["columns"], values))})


# ---- the client's process


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    if request["tracker"] == "mlflow":
        from navrl.analysis.pull_mlflow import runs_of

        found = runs_of(**request["parts"], wanted=request["wanted"])
    else:
        from navrl.analysis.pull_wandb import runs_of

        found = runs_of(**request["parts"], proxy=request["proxy"], wanted=request["wanted"])
    return _written(found)


def _written(found: Iterable[Run | LeftOut]) -> dict[str, Any]:
    """Runs as JSON, their columns as files: what has come so far shows that something comes."""
    runs, left_out = [], []
    for number, item in enumerate(found):
        if isinstance(item, LeftOut):
            left_out.append(asdict(item))
            continue
        file = f"{FILES}/{number}.npy"
        np.save(file, np.stack(list(item.columns.values())))
        about = {field.name: getattr(item, field.name) for field in fields(Run)}
        runs.append(about | {"columns": list(item.columns), "file": file})
    return {"runs": runs, "left_out": left_out}


if __name__ == "__main__":
    serve(_answer)
