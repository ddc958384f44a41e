"""Evaluation episodes as W&B Weave traces: `trace: weave`, beside the tables that W&B gets anyway.

Weave keeps its traces on a server of its own, beside W&B's (WF_TRACE_SERVER_URL), under the same project and login.
"""
from __future__ import annotations

import hashlib
import os
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from navrl.tracking.convert import json_ready
from navrl.tracking.episodes import ACTED, episode_arrays

MILLISECOND = timedelta(milliseconds=1)


class WeaveUnavailable(Exception):
    """No trace can be sent; the message is one line with the way out."""


class WeaveTraces:
    """Sends episodes of one run. Nothing of Weave but its HTTP client is used: no patched libraries, no threads."""

    def __init__(self, entity: str, project: str, run_id: str):
        """Raises WeaveUnavailable where the package or a login is missing."""
        os.environ["WANDB_DISABLE_WEAVE"] = "true"        # else its import patches libraries and starts a client
        for variable, value in (("WEAVE_RETRY_MAX_ATTEMPTS", "1"), ("WEAVE_HTTP_TIMEOUT", "10")):
            os.environ.setdefault(variable, value)
        try:
            from weave.trace_server_bindings.remote_http_trace_server import RemoteHTTPTraceServer
            from weave.wandb_interface.auth import get_wandb_credentials
        except ImportError:
            raise WeaveUnavailable("trace: weave: not installed, episodes go to W&B as tables only; "
                                   "`pip install weave==0.54.0` (not beside mlflow) before the next run") from None
        self._server = RemoteHTTPTraceServer.from_env()
        credentials = get_wandb_credentials()
        if credentials is None:
            raise WeaveUnavailable("trace: weave: no key is configured; log in with `wandb login`")
        self._server.set_auth(credentials)
        if (client := getattr(self._server, "_stainless_client", None)) is not None:
            client.max_retries = 0            # the publisher tries again, and others wait meanwhile for 10 s, not 60
        self._project, self._run = f"{entity}/{project}", f"{entity}/{project}/{run_id}"

    def send(self, path: Path, *, name: str, step: int, wall: float, run: str) -> None:
        """One episode (`.npz`) as one trace. Raises what the client raises where the server does not take it."""
        self._server.calls_complete({"batch": episode_calls(
            path, name=name, step=step, wall=wall, run=run, project_id=self._project, run_id=self._run)})


def may_pass(error: Exception) -> bool:
    """Whether sending again can help: no answer came, or one of 408, 429 and 5xx."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return not isinstance(error, (TypeError, ValueError)) and (status in (None, 408, 429) or status >= 500)


def episode_calls(path: Path, *, name: str, step: int, wall: float, run: str, project_id: str,
                  run_id: str) -> list[dict[str, Any]]:
    """The calls of an episode as Weave's `calls/complete` takes them: a root, and under it one a step and agent, a
    millisecond each.

    Ids follow from run, step and name: the same episode is the same trace, however often it is sent. Raises
    Unpublishable where the file holds no episode.
    """
    arrays = episode_arrays(path)
    steps, agents = next(iter(arrays.values())).shape[:2]
    digest = hashlib.sha256(f"{run_id} {step} {name}".encode()).digest()
    begin = datetime.fromtimestamp(wall, timezone.utc)

    def identity(number: int) -> str:
        return str(uuid.UUID(bytes=hashlib.sha256(digest + number.to_bytes(4, "big")).digest()[:16], version=4))

    def call(number: int, op: str, title: str, first: int, last: int, inputs: Any, output: Any) -> dict[str, Any]:
        return {"id": identity(number), "trace_id": identity(0), "parent_id": identity(1) if number > 1 else None,
                "project_id": project_id, "op_name": op, "display_name": title, "attributes": {"run": run},
                "started_at": (begin + first * MILLISECOND).isoformat(),
                "ended_at": (begin + last * MILLISECOND).isoformat(),
                "inputs": json_ready(inputs), "output": json_ready(output), "summary": {}, "wb_run_id": run_id,
                "wb_run_step": step}

    rewards = next((arrays[key] for key in ("reward", "rewards") if key in arrays), None)
    total = {} if rewards is None else {"episode_reward": float(rewards.sum(axis=0).mean())}
    asked = {"run": run, "episode": name, "step": step, "steps": steps, "agents": agents}
    calls = [call(1, "episode", f"{name} at step {step}", 0, steps, asked, total)]
    for t in range(steps):
        for agent in range(agents):
            now = {key: array[t, agent].tolist() for key, array in arrays.items()}
            calls.append(call(
                len(calls) + 1, "step", f"step {t + 1} agent {agent}", t, t + 1,
                {"t": t + 1, "agent": agent} | {key: value for key, value in now.items() if key not in ACTED},
                {key: value for key, value in now.items() if key in ACTED}))
    return calls
