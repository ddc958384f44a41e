"""Where a sweep is: the runs of its trials, the name of its study, and the storage that holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from navrl.config_sources import TaskCheck
from navrl.faults import ConfigError, Fault
from navrl.launch.expand import Planned, planned
from navrl.sweep import spec
from navrl.sweep.spec import Sweep

STORAGE = "sweeps.db"  # under run_dir, where no storage was named: the studies of all sweeps there
# They would be those of every trial.
OF_ONE_RUN = ("WANDB_NAME", "WANDB_RUN_ID")


@dataclass(frozen=True)
class Place:
    """A sweep file with what the command line made of it. base: the run that has no parameter of a trial."""

    sweep: Sweep
    base: Planned
    seeds: tuple[int, ...]
    storage: str
    environ: Mapping[str, str]
    task_check: TaskCheck

    @property
    def study(self) -> str:
        """The study's name: one a group of runs."""
        return f"{self.base.project}/{self.base.group}"

    def plan(self, values: Mapping[str, Any], seed: int) -> Planned:
        """The run of a trial's parameters and one seed. Raises ConfigError where they make no configuration."""
        return planned([*self.sweep.words_of(values), f"--seed={seed}"], self.environ, self.task_check)

    def identity(self) -> dict[str, Any]:
        """What two commands must have in common to share the study, as plain values."""
        searched = {"seed", *(parameter.key for parameter in self.sweep.parameters)}
        base = {key: value for key, value in self.base.config.science().items() if key not in searched}
        return self.sweep.identity() | {"seeds": list(self.seeds)} | base


def locate(
    file: str,
    further: Sequence[str],
    *,
    environ: Mapping[str, str],
    task_check: TaskCheck,
    seeds: Sequence[int] | None,
    storage: str | None,
) -> Place:
    """Read a sweep file for this command line. Raises ConfigError; writes nothing.

    further: words for ``main.py``. seeds: of every trial; None: the one of the configuration.
    """
    faults = [Fault(name, "it names one run and a sweep has many; unset it", "environment") for name in OF_ONE_RUN
              if environ.get(name)]  # fmt: skip
    if faults:
        raise ConfigError(faults)
    sweep = spec.read(file, further)
    base = planned(sweep.words, environ, task_check)
    if seeds is None:
        seeds = [base.config.seed]
    sweep = spec.without_seed(sweep)
    if storage is None:
        storage = f"sqlite:///{Path(base.config.run_dir).expanduser().absolute() / STORAGE}"
    return Place(sweep, base, tuple(seeds), storage, environ, task_check)
