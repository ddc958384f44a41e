"""Layer 4: what a run was made of, for ``metadata.json``. Facts, not curves; secrets never enter."""

from __future__ import annotations

import getpass
import hashlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from navrl.redaction import redact, redact_command
from navrl.metrics.source import code_snapshot, git_diff, git_facts, project_root

__all__ = ["code_snapshot", "collect", "config_hash", "git_diff", "new_segment", "now", "redact", "redact_command"]

PACKAGES = ("torch", "numpy", "scipy", "gymnasium", "pettingzoo", "mpe2", "pydantic")
GPU_TIMEOUT = 2.0  # seconds that nvidia-smi may take


def collect(
    config: Mapping[str, Any],
    command: Sequence[str],
    task: Mapping[str, Any],
    *,
    seed: int | None = None,
    trackers: Iterable[str] = (),
    torch_settings: Mapping[str, Any] | None = None,
    return_scale: str | None = None,
    absent: Mapping[str, str] | None = None,
    root: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Everything of layer 4 as it is known when a run starts: plain values that JSON takes.

    config: resolved values that can change a result (hashed; ``seed`` is taken from it unless given).
    command: program and arguments as started; recorded redacted. task: environment id, backend, package, version
    and settings. trackers: names of those in use, which are their packages' names. torch_settings: threads and
    determinism flags. return_scale: which convention rewards follow. absent: metric -> why this task lacks it.
    root: the project's directory (default: the one that holds this code). environ: default the process's.

    ``ended`` is None until the caller sets it; a resume appends ``new_segment(...)`` to ``segments``. What is not
    known is left out (a GPU, a package) or None with a note that says why (git).
    """
    git = git_facts(project_root() if root is None else Path(root), environ)
    started = now()
    return {
        **git,
        "command": redact_command(command, environ),
        "seed": config.get("seed") if seed is None else seed,
        "config_hash": config_hash(config),
        "env": dict(task),
        "versions": versions(trackers),
        "machine": machine(),
        "torch": dict(torch_settings or {}),
        "return_scale": return_scale,
        "absent": dict(absent or {}),
        "started": started,
        "ended": None,
        "status": "running",
        "segments": [_segment(command, 0, started, git["git_commit"], git["git_dirty"], environ)],
    }


def new_segment(
    command: Sequence[str], step: int, root: Path | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A stretch of a run, from ``step`` (environment steps) on, made by one process: its code, host and start."""
    git = git_facts(project_root() if root is None else Path(root), environ)
    return _segment(command, step, now(), git["git_commit"], git["git_dirty"], environ)


def now() -> str:
    """The time in UTC as ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 (hexadecimal) of the config, whatever the order of its keys. TypeError where a value is not plain."""
    text = json.dumps(dict(config), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def versions(trackers: Iterable[str] = ()) -> dict[str, str]:
    """Versions of Python, of what computes and of the trackers in use; packages that are not installed are left out."""
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *trackers):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Operating system, CPU model, cores (of the machine, and usable by this process), GPUs, host and user."""
    facts: dict[str, Any] = {"os": platform.platform(), "cpu": cpu_model(), "cores": os.cpu_count()}
    if hasattr(os, "sched_getaffinity"):
        facts["cores_usable"] = len(os.sched_getaffinity(0))
    found = gpus()
    if found:
        facts["gpus"] = found
    facts["hostname"] = socket.gethostname()
    try:
        facts["user"] = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        facts["user"] = str(os.getuid())
    return facts


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def gpus() -> list[dict[str, str]]:
    """``name`` and ``driver`` of each NVIDIA GPU; empty where there is none or nvidia-smi does not answer in 2 s."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        process = subprocess.Popen(
            query, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:
        return []
    try:
        output, _ = process.communicate(timeout=GPU_TIMEOUT)
    except subprocess.TimeoutExpired:
        # Not waited for: a broken driver can hold the process where even a kill does not reach it.
        process.kill()
        return []
    if process.returncode:
        return []
    rows = [line.split(",") for line in output.splitlines()]
    return [{"name": row[0].strip(), "driver": row[1].strip()} for row in rows if len(row) == 2]


def _segment(
    command: Sequence[str],
    step: int,
    started: str,
    git_commit: str | None,
    git_dirty: bool | None,
    environ: Mapping[str, str] | None,
) -> dict[str, Any]:
    return {
        "step": step,
        "started": started,
        "ended": None,
        "command": redact_command(command, environ),
        "git_commit": git_commit,
        "git_dirty": git_dirty,
        "hostname": socket.gethostname(),
    }
