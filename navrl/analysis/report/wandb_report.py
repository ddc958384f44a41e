"""The report as a W&B Report: its words and tables, and live panels over the runs that W&B has of each group.

The client (``wandb-workspaces``) works in a process of its own (``navrl.tracking.client``); the runs have to be there
already (scripts/sync.py). Figures that W&B cannot draw from its own data (intervals, profiles, episodes) are not in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from navrl.analysis.comparison import Comparison
from navrl.analysis.records import Run
from navrl.analysis.report import layers
from navrl.analysis.report.directory import directory_of
from navrl.analysis.report.markdown import markdown
from navrl.redaction import redact, redact_all
from navrl.tracking.client import ClientError, ask, serve, wandb_api
from navrl.tracking.publish import read_run_info
from navrl.tracking.record import RecordError

LONGEST_TITLE = 128  # of a W&B Report


def publish(
    document: dict[str, Any],
    comparison: Comparison,
    *,
    entity: str | None,
    project: str | None,
    proxy: str | None = None,
) -> tuple[str, list[str]]:
    """Make a new W&B Report of ``data.document`` -> (its address, notes).

    entity, project: where the runs are; None takes what the runs say (the key's own entity where they say none).
    ValueError, in one line, for runs that W&B cannot have, and for all that goes wrong there.
    """
    places = {run.source: _place(run) for group in comparison.groups for run in group.runs}
    entity = entity or _one({place["entity"] for place in places.values()}, "entity")
    project = project or _one({place["project"] for place in places.values()}, "project")
    request = redact_all({
        "entity": entity or "",
        "project": project,
        "proxy": proxy,
        "title": document["title"][:LONGEST_TITLE],
        "made": f"NAVRL report, {document['made']}",
        "text": _text(document),
        "groups": [{"label": group.label, "ids": {places[run.source]["id"]: run.name for run in group.runs}}
                   for group in comparison.groups],
        "layers": [{"title": f"{layer['number']} {layer['title']}", "question": layer["question"],
                    "panels": {metric: layers.title(metric) for metric in layer["metrics"]}}
                   for layer in document["layers"]],
    })  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="navrl-report-") as directory:
        try:
            answer = ask("navrl.analysis.report.wandb_report", request, Path(directory))
        except ClientError as error:
            raise ValueError(f"wandb: {redact(str(error))}") from None
    return answer["url"], answer["notes"]


def _place(run: Run) -> dict[str, str]:
    """``entity`` ("" where not said), ``project`` and ``id`` of a run on W&B. ValueError where it cannot be there."""
    if run.source.startswith("wandb:"):
        entity, project, identity = run.source.removeprefix("wandb:").split("/")
        return {"entity": entity, "project": project, "id": identity}
    directory = directory_of(run)
    if directory is None:
        raise ValueError(f"{run.source}: W&B does not have it; a W&B Report shows runs that W&B has")
    try:
        info = read_run_info(directory)
    except RecordError as error:
        raise ValueError(str(error)) from None
    if info.settings.get("privacy") == "strict":
        raise ValueError(f"{directory}: privacy: strict sends nothing to W&B; leave its group out, or take --to html")
    return {
        "entity": info.settings.get("wandb_entity") or "",
        "project": info.settings.get("wandb_project") or info.project,
        "id": info.settings.get("wandb_run_id") or info.uid,
    }


def _one(found: set[str], what: str) -> str:
    if len(found) > 1:
        raise ValueError(f"the runs are in more than one W&B {what} ({', '.join(sorted(found))}); say --wandb_{what}")
    return found.pop()


def _text(document: dict[str, Any]) -> str:
    """The Markdown report without its title and without links to files of this machine."""
    runs = [{**run, "checkpoints": [{**checkpoint, "link": None} for checkpoint in run["checkpoints"]]}
            for run in document["runs"]]  # fmt: skip
    return markdown({**document, "runs": runs}).split("\n", 1)[1].strip()


# ---- the client's process


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    api = wandb_api(request["entity"], request["proxy"])
    try:
        import wandb_workspaces.expr as expr
        import wandb_workspaces.reports.v2 as wr
    except ImportError:
        raise ClientError("wandb-workspaces is not installed: pip install -r requirements-wandb-report.txt") from None
    entity, project = request["entity"] or api.default_entity, request["project"]
    try:
        there = {run.id for run in api.runs(f"{entity}/{project}")}
    except ValueError:  # what the client says of a project that is not there
        raise ClientError(f"there is no project {entity}/{project}; publish its runs with scripts/sync.py") from None
    notes = []
    for group in request["groups"]:
        missing = [name for identity, name in group["ids"].items() if identity not in there]
        if missing:
            names = ", ".join(missing)
            notes.append(f"{group['label']}: W&B does not have {names}; publish with scripts/sync.py --to wandb")
    if not any(identity in there for group in request["groups"] for identity in group["ids"]):
        raise ClientError(f"{entity}/{project} has none of these runs; publish them with scripts/sync.py --to wandb")

    def runset(group: Mapping[str, Any]) -> Any:
        only = [expr.Metric("ID").isin(list(group["ids"]))]
        return wr.Runset(entity=entity, project=project, name=group["label"], groupby=["group"], filters=only)

    blocks: list[Any] = [wr.TableOfContents(), wr.MarkdownBlock(request["text"])]
    for layer in request["layers"]:
        if layer["panels"]:
            panels = [wr.LinePlot(title=title, x="step", y=[metric]) for metric, title in layer["panels"].items()]
            grid = wr.PanelGrid(runsets=[runset(group) for group in request["groups"]], panels=panels)
            blocks += [wr.H2(layer["title"]), wr.P(layer["question"]), grid]
    report = wr.Report(entity=entity, project=project, title=request["title"], description=request["made"],
                       width="fluid", blocks=blocks)  # fmt: skip
    report.save()
    return {"url": report.url, "notes": notes}


if __name__ == "__main__":
    serve(_answer)
