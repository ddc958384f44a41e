"""A checkpoint file back from a tracker, verified by the SHA-256 that was published with it.

    wandb:entity/project/artifact:alias
    mlflow:models:/name@alias    mlflow:models:/name/VERSION    mlflow:runs:/RUN_ID[/path]

The tracker's client works in a process of its own (`client.py`; here `python -m navrl.tracking.fetch`).
"""
from __future__ import annotations

import math
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from navrl.files import sha256_of
from navrl.redaction import redact
from navrl.tracking.client import FILES, PATIENCE, ClientError, ask, mlflow_client, serve, wandb_api

FORMS = {
    "wandb": ("wandb:entity/project/artifact:alias",),
    "mlflow": ("mlflow:models:/name@alias", "mlflow:models:/name/VERSION", "mlflow:runs:/RUN_ID[/path]"),
}
SETTINGS = ("mlflow_tracking_uri", "run_dir", "wandb_proxy", "privacy")  # keys that decide how one is reached
MAX_LISTED = 5

_WANDB = re.compile(r"wandb:(?P<entity>[^/:\s]+)/(?P<project>[^/:]+)/(?P<artifact>[\w.-]+):(?P<alias>[^/:\s]+)")
_MODEL = re.compile(r"mlflow:models:/(?P<name>[^/@:]+)(?:@(?P<alias>[^/@\s]+)|/(?P<version>\d+))")
_RUN = re.compile(r"mlflow:runs:/(?P<run>[A-Za-z0-9][\w-]*)(?:/(?P<path>[^/].*?))?/?")
_CHECKPOINT = re.compile(r"checkpoint_ep\d+\w*\.pt")


class FetchError(ClientError):
    """The checkpoint cannot be had; the message is one line."""


@dataclass(frozen=True)
class Published:
    """What was published with a checkpoint: `uid` and display name `run` of its run, where in the run it is
    (environment steps, episodes), `eval/episode_reward` there where it was measured, and its SHA-256."""

    uid: str
    run: str
    step: int
    episodes: int
    score: float | None
    sha256: str

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Published:
        """From an artifact's metadata or a model version's tags. Raises FetchError where NAVRL did not write them."""
        try:
            score = metadata.get("score")
            about = cls(uid=str(metadata["uid"]), run=str(metadata["run"]), step=int(metadata["step"]),
                        episodes=int(metadata["episodes"]), score=None if score is None else float(score),
                        sha256=str(metadata["sha256"]))
        except (KeyError, TypeError, ValueError):
            about = None
        if about is None or not re.fullmatch(r"[0-9a-f]{64}", about.sha256) or not re.fullmatch(r"[\w-]+", about.uid):
            raise FetchError("NAVRL did not publish it: the sha256, uid and step to verify it by are not with it; "
                             "download it yourself and name the file")
        return about


@dataclass(frozen=True)
class Fetched:
    """A verified file. wandb_run: id of its W&B run, where W&B was asked; `about.uid` unless WANDB_RUN_ID chose one."""

    path: Path
    about: Published
    wandb_run: str | None


def is_reference(text: str) -> bool:
    """Whether a tracker is meant, and no path: `wandb` alone is a directory's name."""
    tracker, colon, _ = text.partition(":")
    return bool(colon) and tracker in FORMS


def fetch(reference: str, directory: Path, settings: Mapping[str, Any], *, with_best: bool = False) -> list[Fetched]:
    """Download the checkpoint that `reference` names into `directory`, which is empty and the caller's to remove.

    settings: values of the keys in SETTINGS. with_best: also, as second, the best checkpoint that the run had up to
    there, where that is another one and the tracker has it. Raises FetchError for all that can be wrong: form, address,
    server (none that answers within seconds, or nothing that comes for PATIENCE), name, contents, digest.
    """
    _parse(reference)
    request = {"reference": reference, "settings": {key: settings.get(key) for key in SETTINGS}, "best": with_best}
    try:
        answer = ask("navrl.tracking.fetch", request, directory, PATIENCE)
        return [_verified(directory / found["path"], found) for found in answer["found"]]
    except ClientError as error:
        raise FetchError(f"{reference}: {redact(str(error))}") from None


def _parse(reference: str) -> tuple[str, dict[str, str | None]]:
    """Kind (`wandb`, `model`, `run`) and parts of a reference. Raises FetchError."""
    for kind, form in (("wandb", _WANDB), ("model", _MODEL), ("run", _RUN)):
        match = form.fullmatch(reference)
        if match and ".." not in (match.groupdict().get("path") or "").split("/"):
            return kind, match.groupdict()
    forms = FORMS.get(reference.partition(":")[0], ())
    raise FetchError(f"{redact(reference)!r} names no checkpoint; write {' or '.join(forms)}")


def _verified(path: Path, found: Mapping[str, Any]) -> Fetched:
    about = Published.of(found["metadata"])
    if sha256_of(path) != about.sha256:
        raise FetchError(f"{path.name} is damaged: its SHA-256 is not the one that was published with it")
    return Fetched(path, about, found.get("wandb_run"))


# ------------------------------------------------------------------------------------------ the client's process

Found = dict[str, Any]                # path (inside the directory), metadata; wandb_run


def _from_wandb(parts: Mapping[str, Any], settings: Mapping[str, Any], with_best: bool) -> Iterator[Found]:
    if settings["privacy"] == "strict":
        raise FetchError("privacy: strict asks no W&B server; name a file, a run directory or an MLflow store on this "
                         "machine")
    api = wandb_api(parts["entity"], settings["wandb_proxy"])
    artifact = api.artifact("{entity}/{project}/{artifact}:{alias}".format(**parts))
    found = _download_from_wandb(artifact)
    try:
        run = artifact.logged_by() if with_best else None
    except ValueError:                            # deleted since
        run = None
    yield found | {"wandb_run": run.id if run else None}
    if run is not None:
        best = _best(artifact.metadata, ((each.metadata, each) for each in run.logged_artifacts()))
        if best is not None:
            yield _download_from_wandb(best)


def _download_from_wandb(artifact: Any) -> Found:
    file = _only(list(artifact.manifest.entries), f"version {artifact.version}")
    folder = f"{FILES}/{artifact.version}"
    artifact.download(root=folder, path_prefix=file, skip_cache=True)
    return {"path": f"{folder}/{file}", "metadata": artifact.metadata}


def _from_mlflow(parts: Mapping[str, Any], settings: Mapping[str, Any], with_best: bool) -> Iterator[Found]:
    from navrl.tracking.mlflow import default_address, usable_address
    from navrl.tracking.stores import on_this_machine
    told = settings["mlflow_tracking_uri"]
    runs = Path(os.environ["PWD"], Path(settings["run_dir"]).expanduser())
    uri = usable_address(told) if told else default_address(runs)
    strict = settings["privacy"] == "strict"
    if strict:
        from navrl.tracking.probe import ask_no_proxy

        ask_no_proxy()
        os.environ.pop("MLFLOW_REGISTRY_URI", None)
        if not on_this_machine(uri):
            raise FetchError(f"privacy: strict reads nothing from {redact(uri)}")
    client = mlflow_client(uri, "name it with --mlflow_tracking_uri or MLFLOW_TRACKING_URI, or the directory of its "
                                "runs with --run_dir")
    version = _model_version(client, **parts) if "name" in parts else None
    run_id = parts["run"] if version is None else version.run_id
    where = client.get_run(run_id).info.artifact_uri
    if strict and not _artifacts_on_this_machine(where):
        raise FetchError(f"privacy: strict reads nothing from {redact(where)}, where the store keeps its files")
    versions = list(client.search_model_versions(f"run_id = '{run_id}'"))
    if version is None:
        file = _only(_files(client, run_id, parts["path"] or "checkpoints"), parts["path"] or "the run")
        version = next((each for each in versions if each.source == f"runs:/{run_id}/{os.path.dirname(file)}"), None)
        metadata = version.tags if version is not None else {}
        yield _download_from_mlflow(client, run_id, file, metadata)
    else:
        metadata = version.tags
        yield _download_version(client, version)
    if with_best:
        best = _best(metadata, ((each.tags, each) for each in versions))
        if best is not None:
            yield _download_version(client, best)


def _artifacts_on_this_machine(uri: str) -> bool:
    from navrl.tracking.stores import LOOPBACK
    parts = urllib.parse.urlsplit(uri)
    return parts.scheme in ("", "file", "mlflow-artifacts") and not parts.hostname or parts.hostname in LOOPBACK


def _model_version(client: Any, name: str, alias: str | None, version: str | None) -> Any:
    model = client.get_registered_model(name)
    if alias is not None:
        if alias not in model.aliases:
            have = ", ".join(sorted(model.aliases)) or "none"
            raise FetchError(f"{name} has no alias {alias!r}; it has {have}")
        version = model.aliases[alias]
    found = client.get_model_version(name, version)
    if not (found.source or "").startswith(f"runs:/{found.run_id}/"):
        raise FetchError(f"version {found.version} of {name} is no checkpoint of NAVRL; it comes from {found.source}")
    return found


def _download_version(client: Any, version: Any) -> Found:
    folder = version.source.removeprefix(f"runs:/{version.run_id}/")
    file = _only(_files(client, version.run_id, folder), f"version {version.version} of {version.name}")
    return _download_from_mlflow(client, version.run_id, file, version.tags)


def _download_from_mlflow(client: Any, run_id: str, file: str, metadata: Mapping[str, str]) -> Found:
    path = Path(client.download_artifacts(run_id, file, FILES))
    return {"path": os.path.relpath(path), "metadata": dict(metadata)}


def _files(client: Any, run_id: str, path: str) -> list[str]:
    """Files at a path of a run's artifacts, in all directories below it."""
    if path.endswith(".pt"):
        parent = os.path.dirname(path) or None
        return [item.path for item in client.list_artifacts(run_id, parent) if item.path == path]
    found = []
    for item in client.list_artifacts(run_id, path):
        found += _files(client, run_id, item.path) if item.is_dir else [item.path]
    return found


def _only(files: list[str], place: str) -> str:
    """The checkpoint among files. Raises FetchError where it is not exactly one."""
    checkpoints = [file for file in files if _CHECKPOINT.fullmatch(os.path.basename(file))]
    if len(checkpoints) == 1:
        return checkpoints[0]
    if not checkpoints:
        raise FetchError(f"there is no checkpoint (checkpoint_ep*.pt) in {place}")
    more = f" and {len(checkpoints) - MAX_LISTED} more" if len(checkpoints) > MAX_LISTED else ""
    shown = sorted(checkpoints, key=lambda file: (len(file), file))[:MAX_LISTED]
    raise FetchError(f"{place} holds {len(checkpoints)} checkpoints; name one: {', '.join(shown)}{more}")


def _best(own: Mapping[str, Any], others: Iterable[tuple[Mapping[str, Any], Any]]) -> Any:
    """Of the checkpoints of one run (metadata, what to return) the first with the highest score up to the step of
    `own`; None where that is `own` itself or nothing was scored."""
    about, best, result = Published.of(own), None, None
    for metadata, other in others:
        try:
            found = Published.of(metadata)
        except FetchError:                        # something else that the run published
            continue
        if found.uid != about.uid or found.step > about.step or found.score is None or math.isnan(found.score):
            continue
        if best is None or (-found.score, found.step) < (-best.score, best.step):
            best, result = found, other
    return None if best is None or best.sha256 == about.sha256 else result


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    kind, parts = _parse(request["reference"])
    client = _from_wandb if kind == "wandb" else _from_mlflow
    return {"found": list(client(parts, request["settings"], request["best"]))}


if __name__ == "__main__":
    serve(_answer)
