"""Layer 4: what a run was made of, for ``metadata.json``. Facts, not curves; secrets never enter."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from navrl.redaction import redact_command
from navrl.source import git_facts, project_root

PACKAGES = ("torch", "numpy", "scipy", "gymnasium", "pettingzoo", "mpe2", "pydantic")
GPU_TIMEOUT = 2.0  # seconds that nvidia-smi may take


def collect(
    command: Sequence[str],
    task: Mapping[str, Any],
    *,
    seed: int,
    config_hash: str,
    trackers: Iterable[str] = (),
    torch_settings: Mapping[str, Any] | None = None,
    return_scale: str | None = None,
    absent: Mapping[str, str] | None = None,
    root: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Everything of layer 4 as it is known when a run starts: plain values that JSON takes.

    command: program and arguments as started; recorded redacted. task: environment id, backend, package, version
    and settings. config_hash: ``navrl.config.config_hash``, equal for the runs of one group. trackers: names of those
    in use, which are their packages' names. torch_settings: threads and determinism flags. return_scale: which
    convention rewards follow. absent: metric -> why this task lacks it. root: the project's directory (default: the
    one that holds this code). environ: default the process's.

    ``ended`` is None until the caller sets it; a resume appends its own first segment to those there are. What is not
    known is left out (a GPU, a package) or None with a note that says why (git).
    """
    git = git_facts(project_root() if root is None else Path(root), environ)
    typed, started = redact_command(command, environ), now()
    segment = {  # a stretch of a run, from ``step`` (environment steps) on, made by one process
        "step": 0,
        "started": started,
        "ended": None,
        "command": typed,
        "git_commit": git["git_commit"],
        "git_dirty": git["git_dirty"],
        "hostname": socket.gethostname(),
    }
    return {
        **git,
        "command": typed,
        "seed": seed,
        "config_hash": config_hash,
        "env": dict(task),
        "versions": versions(trackers),
        "machine": machine(),
        "torch": dict(torch_settings or {}),
        "return_scale": return_scale,
        "absent": dict(absent or {}),
        "started": started,
        "ended": None,
        "status": "running",
        "segments": [segment],
    }


def now() -> str:
    """The time in UTC as ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


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
