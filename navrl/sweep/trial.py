"""One trial at work: its seeds as normal runs, the mean of what they log, and how it ends."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import optuna
from optuna.trial import FrozenTrial

from navrl.launch.expand import Planned
from navrl.launch.local import BAD_INPUT, Halt, Job
from navrl.launch.state import conflicts
from navrl.tracking.record import METRICS


class Curve:
    """The finite values of one metric in a run's record, read on as the run writes them."""

    def __init__(self, run_dir: Path, metric: str) -> None:
        self.values: list[float] = []
        self._path, self._metric = run_dir / METRICS, metric
        self._file, self._offset = -1, 0

    def read_on(self) -> None:
        """Take in the rows that were added. A resume puts a shorter file in the place of the old one: begin anew."""
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._file or status.st_size < self._offset:
                    self.values, self._file, self._offset = [], status.st_ino, 0
                file.seek(self._offset)
                added = file.read()
        except OSError:
            return
        added = added[: added.rfind(b"\n") + 1]  # the last row may be half written
        self._offset += len(added)
        for line in added.splitlines():
            try:
                value = json.loads(line).get(self._metric)
            except (ValueError, AttributeError):
                continue
            if type(value) in (int, float) and math.isfinite(value):
                self.values.append(float(value))


@dataclass(frozen=True)
class End:
    """How a trial ended: with a ``value`` (mean over seeds of the last logged one), ``pruned``, with a ``reason`` for
    having failed, or, where all is empty, interrupted: to be gone on with. seeds: the value of each seed. refused: the
    reason is this machine's (main.py's exit code 2), for parameters that no machine takes never become a run."""

    value: float | None = None
    pruned: bool = False
    reason: str = ""
    seeds: tuple[float, ...] = ()
    refused: bool = False


class Active:
    """A trial whose runs are under way. ``poll`` looks after them, ``report`` tells the study, ``end`` how it ended."""

    def __init__(self, trial: optuna.Trial, runs: Sequence[Planned], metric: str, *, retries: int) -> None:
        """runs: one a seed. Nothing is started yet. retries: how often a run that crashed is gone on with."""
        self.trial, self.metric = trial, metric
        self.halt = Halt()
        self.jobs = [Job(run, retries=retries, halt=self.halt) for run in runs]
        self.curves = [Curve(run.run_dir, metric) for run in runs]
        self.reported = 0  # values that the study has
        self.pruned = False
        self.passed_on = 0  # of the signals that the worker was sent

    @property
    def running(self) -> int:
        """Processes that this worker started and that live."""
        return sum(job.running for job in self.jobs)

    @property
    def waiting(self) -> bool:
        """Whether a seed waits for a free place."""
        return any(job.outcome is None and not job.running and not job.elsewhere for job in self.jobs)

    def go_on_from(self, known: FrozenTrial) -> None:
        """What an earlier worker of this trial reported."""
        self.reported = len(known.intermediate_values)

    def poll(self, free: int) -> int:
        """Look after the runs and begin up to ``free`` of them. Returns how many processes were begun."""
        begun = 0
        for job in self.jobs:
            before = job.running
            job.poll(may_start=before or begun < free)
            begun += job.running and not before
            if job.outcome is not None and job.outcome.status == "failed":
                self.stop(signal.SIGTERM)  # its mean will never be there
        return begun

    def report(self) -> None:
        """Read the curves on; tell the study each new mean of the seeds that are at work or done, where all of them
        have logged it. A seed that waits for a free place takes no part until it is begun."""
        started = []
        for job, curve in zip(self.jobs, self.curves):
            curve.read_on()
            finished = job.outcome is not None and job.outcome.status == "finished"
            if job.running or job.elsewhere or finished:
                started.append(curve.values)
        for index in range(self.reported, min(map(len, started), default=0)):
            self.trial.report(fmean(values[index] for values in started), index)
            self.reported = index + 1

    def prune(self) -> None:
        """Ask the runs to stop: their last checkpoints stay."""
        self.pruned = True
        self.stop(signal.SIGTERM)

    def stop(self, number: int) -> None:
        """Pass a signal on, once."""
        if not self.halt.signals:
            self.halt.send(number)

    @property
    def ended(self) -> bool:
        """Whether no run is under way any more."""
        return all(job.outcome is not None for job in self.jobs)

    def end(self) -> End:
        """How a trial that ``ended`` did. Raises MetricMissing where a run that finished never logged the metric."""
        outcomes = [job.outcome for job in self.jobs if job.outcome is not None]
        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        if not all(outcome.status == "finished" for outcome in outcomes):
            if self.pruned or not failed:
                return End(pruned=self.pruned)
            worst = next((outcome for outcome in failed if outcome.code == BAD_INPUT), failed[0])
            return End(reason=f"{worst.run.name}: {worst.reason}", refused=worst.code == BAD_INPUT)
        for curve in self.curves:
            curve.read_on()
        if not all(curve.values for curve in self.curves):
            raise MetricMissing(self.metric, self.jobs[0].run.run_dir)
        seeds = tuple(curve.values[-1] for curve in self.curves)
        return End(value=fmean(seeds), seeds=seeds)


class MetricMissing(Exception):
    """A run finished and no row of it holds the metric: no trial will."""

    def __init__(self, metric: str, run_dir: Path) -> None:
        super().__init__(metric)
        self.metric, self.run_dir = metric, run_dir


def refusal(runs: Sequence[Planned]) -> str:
    """Why these runs cannot be gone on with: their directories hold something else. "" where they can."""
    faults = [fault for run in runs for fault in conflicts(run)]
    return str(faults[0]) if faults else ""
