"""Planned runs on a Ray cluster: Ray places each where its CPUs and GPUs are, and anew where a node is lost.

Every node needs NAVRL, its packages and the runs' directory at the same paths (shared storage): a run that is placed
anew goes on from its last checkpoint there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from navrl.launch.expand import Planned
from navrl.launch.local import EVERY, Halt, Outcome, run_one
from navrl.launch.state import state_of
from navrl.source import project_root


class ClusterError(Exception):
    """There is no cluster to run on; the message is one line."""


class Runner:
    """One run in the cluster: an actor, whose methods are called from afar, ``halt`` while ``run`` goes on."""

    def __init__(self) -> None:
        self._halt = Halt()

    def placed(self) -> None:
        """Returns once Ray has found a place."""

    def run(self, run: Planned, retries: int) -> Outcome:
        return run_one(run, retries=retries, halt=self._halt)

    def halt(self, number: int) -> None:
        self._halt.send(number)


class Remote:
    """One planned run as the launcher sees it."""

    def __init__(self, run: Planned) -> None:
        self.run = run
        finished = state_of(run).status == "finished"
        self.outcome = Outcome(run, "finished", None, 0) if finished else None
        self._actor: Any = None
        self._passed_on = 0  # of the signals

    @property
    def submitted(self) -> bool:
        return self._actor is not None

    @property
    def running(self) -> bool:
        """Whether Ray has found a place for it."""
        import ray

        return self.submitted and bool(ray.wait([self._placed], timeout=0)[0])

    def submit(self, runner: Any, retries: int) -> None:
        self._actor = runner.remote()
        self._placed = self._actor.placed.remote()
        self._result = self._actor.run.remote(self.run, retries)

    def poll(self, halt: Halt) -> None:
        """Take its outcome in, pass signals on; one that has no place yet is taken back."""
        import ray

        if self.outcome is not None:
            return
        if halt.signals and not self.running:
            self._end(Outcome(self.run, "waiting", None, 0))
            return
        if self._actor is None:
            return
        for number in halt.signals[self._passed_on :]:
            self._actor.halt.remote(number)
        self._passed_on = len(halt.signals)
        if ray.wait([self._result], timeout=0)[0]:
            try:
                self._end(ray.get(self._result))
            except ray.exceptions.RayError as error:  # its node was lost more often than it is placed anew
                self._end(Outcome(self.run, "failed", None, 0, str(error).strip().splitlines()[0]))

    def _end(self, outcome: Outcome) -> None:
        import ray

        self.outcome = replace(outcome, run=self.run)  # not the copy that came from afar
        if self._actor is not None:
            ray.kill(self._actor)  # its place is free for the next
            self._actor = None


@contextlib.contextmanager
def connected(cpus: float, gpus: float) -> Iterator[None]:
    """Meanwhile this process is with the cluster of ``RAY_ADDRESS``, else one that is there, else one of its own here.

    Ray takes SIGTERM for itself: whoever wants it looks after signals inside. cpus, gpus: what each run will ask for.
    Raises ClusterError where Ray is not installed or no cluster is to be had.
    """
    _connect(cpus, gpus)
    import ray

    try:
        yield
    finally:
        ray.shutdown()


def run_all(
    plan: Sequence[Planned],
    *,
    jobs: int | None,
    cpus: float,
    gpus: float,
    retries: int,
    halt: Halt,
    look: Callable[[Sequence[Remote]], None] = lambda remotes: None,
) -> list[Outcome]:
    """All of them, inside ``connected``.

    jobs: how many are handed to Ray at once (None: all). cpus, gpus: what each asks for. retries: how often a run that
    crashed is gone on with, and how often one is placed anew whose node was lost.
    """
    import ray

    # Ray counts calls to a node that is just lost as tries, so that what bounds them is max_restarts alone.
    placed = ray.remote(num_cpus=cpus, num_gpus=gpus, max_concurrency=3, max_restarts=retries, max_task_retries=-1)
    runner = placed(Runner)
    remotes = [Remote(run) for run in plan]
    while True:
        for remote in remotes:
            remote.poll(halt)
        room = len(remotes) if jobs is None else jobs - sum(remote.submitted for remote in remotes)
        waiting = [remote for remote in remotes if remote.outcome is None and not remote.submitted]
        for remote in waiting[:room] if not halt.signals else []:
            remote.submit(runner, retries)
        look(remotes)
        outcomes = [remote.outcome for remote in remotes if remote.outcome is not None]
        if len(outcomes) == len(remotes):
            return outcomes
        time.sleep(EVERY)


def _connect(cpus: float, gpus: float) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    try:
        import ray
    except ImportError:
        raise ClusterError("ray is not installed: pip install -r requirements-cluster.txt") from None
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        _require_answer(address)
        ray.init(
            log_to_driver=False, logging_level="ERROR", include_dashboard=False,
            runtime_env={"env_vars": {"PYTHONPATH": str(project_root()), "OMP_NUM_THREADS": "1"}},
        )  # fmt: skip
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ClusterError(f"RAY_ADDRESS: no cluster at {address or 'this machine'}: {reason}") from None
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):  # one may still join
        have = ", ".join(f"{node.get('CPU', 0):g} and {node.get('GPU', 0):g}" for node in nodes)
        asked = f"{cpus:g} CPUs and {gpus:g} GPUs"
        print(f"no node has {asked}, as each run asks for: runs wait for one (there is: {have})", file=sys.stderr)


def _require_answer(address: str) -> None:
    """Raises OSError where nobody listens at HOST:PORT; Ray itself tries that for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "//" not in host:
        with socket.create_connection((host, int(port)), timeout=10):
            pass
