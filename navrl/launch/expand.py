"""What is to run: configuration files × a grid of values × seeds, each one ``main.py`` command with its own directory.

Nothing here starts or writes anything: equal arguments give the same plan, run by run and directory by directory, so
that a launch which is repeated finds what the first one made.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from navrl.command_line import without
from navrl.config import SCIENCE_KEYS, Config
from navrl.config_sources import ENVIRONMENT, TaskCheck, load
from navrl.faults import ConfigError, Fault, nearest, show, show_key
from navrl.fields import MAX_INT
from navrl.naming import compact, names, safe_directory

MAX_RUNS = 10_000  # of one plan; a larger one is a typing mistake
# What the plan itself says of every run, and the flag of the launcher that decides it
DECIDED = {"config": "--config", "seed": "--seeds", "resume": "--config", "if_exists": "repeating the command"}


@dataclass(frozen=True)
class Planned:
    """One run that is to be.

    argv: the words after ``main.py``. config: what they come to. project, group, name: display names.
    run_dir: the run's directory, absolute, now and whenever the command is given again.
    directory: where relative paths in ``argv`` start. environ: the environment variables that decide a part of it.
    """

    argv: tuple[str, ...]
    config: Config
    project: str
    group: str
    name: str
    run_dir: Path
    directory: Path
    environ: Mapping[str, str]

    @property
    def label(self) -> str:
        """What people call it: group and name."""
        return f"{self.group}/{self.name}"

    def line(self, *program: str) -> str:
        """The command for a shell; program: what stands for ``python main.py``."""
        return shlex.join([*(program or ("python", "main.py")), *self.argv])


def planned(words: Sequence[str], environ: Mapping[str, str], task_check: TaskCheck | None = None) -> Planned:
    """The run that ``main.py`` makes of these words, always in the same directory.

    ``--if_exists resume`` is added: the command begins the run, goes on from its last checkpoint, or begins again what
    died before it had one. Raises ConfigError.
    """
    argv = (*words, "--if_exists", "resume")
    loaded = load(argv, environ, task_check)
    name = names(loaded)
    parts = [safe_directory(part) for part in (name.project, name.group, name.experiment_name)]
    return Planned(
        argv=argv, config=loaded.config, project=name.project, group=name.group, name=name.experiment_name,
        run_dir=Path(loaded.config.run_dir).expanduser().absolute().joinpath(*parts), directory=Path.cwd(),
        environ={variable: environ[variable] for variable in ENVIRONMENT if environ.get(variable)},
    )  # fmt: skip


def expand(
    configs: Sequence[str],
    seeds: Sequence[int],
    grid: Mapping[str, Sequence[str]],
    further: Sequence[str],
    environ: Mapping[str, str],
    task_check: TaskCheck | None = None,
) -> list[Planned]:
    """Every file with every combination of the grid's values and every seed, in this order, seeds innermost.

    configs: YAML files. grid: key -> its values as words. further: words for all of them. One configuration is one
    group: where several files, or several values in a group that was named, would share one, the file's stem and the
    values become part of its name. Raises ConfigError with the faults of all runs, each once.
    """
    faults = [
        Fault(f"--{key}", f"{by} decides that; take it out of the words after --", "command line")
        for key, by in (DECIDED | dict.fromkeys(grid, "--set")).items()
        if any(word.partition("=")[0] == f"--{key}" for word in further)
    ]
    if faults:
        raise ConfigError(faults)
    count = len(configs) * len(seeds)
    for values in grid.values():
        count *= len(values)
    if count > MAX_RUNS:
        raise ConfigError([Fault("--set", f"{count} runs; at most {MAX_RUNS} are launched by one command")])
    plan: list[Planned] = []
    for file in configs:
        for values in itertools.product(*grid.values()):
            words = ["--config", file, *(f"--{key}={value}" for key, value in zip(grid, values)), *further]
            try:
                one = planned(words, environ, task_check)
                words = _with_group(words, one, grid, Path(file).stem if len(configs) > 1 else "")
                plan += [planned([*words, "--seed", str(seed)], environ, task_check) for seed in seeds]
            except ConfigError as error:
                faults += error.faults
    faults = list(dict.fromkeys(faults)) or _shared(plan, environ)
    if faults:
        raise ConfigError(faults)
    return plan


def _with_group(words: list[str], one: Planned, grid: Mapping[str, Sequence[str]], stem: str) -> list[str]:
    """``words`` with the group's name in them, where the name that the run builds or was given does not do."""
    config = one.config
    file = f"_{stem}" if stem else ""
    values = "".join(f"_{key}{compact(getattr(config, key))}" for key in SCIENCE_KEYS if key in grid)
    given = {key: name for key in ("group", "wandb_group") if (name := getattr(config, key))}
    if given:
        group = {key: name + file + values for key, name in given.items() if file + values}
    else:  # a built name tells the grid's values already
        group = {"group": one.group + file} if file else {}
    return [*without(words, group), *(word for key, name in group.items() for word in (f"--{key}", name))]


def _shared(plan: Sequence[Planned], environ: Mapping[str, str]) -> list[Fault]:
    """Faults of runs that would meet in one directory or one run of W&B."""
    faults, owners = [], {}
    for run in plan:
        other = owners.setdefault(run.run_dir, run)
        if other is not run:
            what = [key for key in ("experiment_name", "wandb_name") if getattr(run.config, key)]
            why = f"{what[0]} names every run {show(run.name)}; leave it null" if what else \
                "two files of one name, or one value twice"  # fmt: skip
            faults.append(Fault(what[0] if what else "--config", f"two of the runs would be {run.label}: {why}"))
    if len(plan) > 1 and environ.get("WANDB_RUN_ID") and any("wandb" in run.config.trackers for run in plan):
        faults.append(Fault("WANDB_RUN_ID", "is the id of one run and more are planned; unset it", "environment"))
    return list(dict.fromkeys(faults))


def read_seeds(words: Sequence[str]) -> list[int]:
    """``1-5``, ``1,2,9``, ``1 2 9`` and mixtures, in the order given. Raises ConfigError."""
    seeds: list[int] = []
    for part in [part for word in words for part in re.split(r"[,\s]+", word) if part]:
        match = re.fullmatch(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= MAX_INT:
            raise ConfigError([Fault("--seeds", f"{show(part)} is no seed and no range FIRST-LAST of whole numbers")])
        if last - first >= MAX_RUNS:
            raise ConfigError([Fault("--seeds", f"{part} are more than {MAX_RUNS} seeds")])
        seeds += range(first, last + 1)
    twice = [seed for seed, count in Counter(seeds).items() if count > 1]
    if not seeds or twice:
        message = f"seed {twice[0]} is given twice; keep one" if twice else "none is given; write 1-5 or 1,2,3"
        raise ConfigError([Fault("--seeds", message)])
    return seeds


def read_grid(words: Sequence[str]) -> dict[str, list[str]]:
    """``lr=3e-4,7e-4`` a word: key -> its values. A list as a value is written ``[1,2]``. Raises ConfigError."""
    grid: dict[str, list[str]] = {}
    faults = []
    for word in words:
        key, joined, text = word.partition("=")
        values = [value.strip() for value in re.split(r",(?![^\[]*\])", text)]
        if not joined or not all(values):
            faults.append(Fault("--set", f"{show(word)} is not KEY=VALUE,VALUE,..."))
        elif key == "seed":
            faults.append(Fault("--set", "seeds are given by --seeds"))
        elif key not in Config.model_fields:
            faults.append(
                Fault("--set", f"{show_key(key)}: there is no such key; nearest: {nearest(key, SCIENCE_KEYS)}")
            )
        elif key not in SCIENCE_KEYS:
            faults.append(Fault("--set", f"{key} changes no result, so that its values make no two configurations; "
                                         f"give one value after --"))  # fmt: skip
        elif key in grid:
            faults.append(Fault("--set", f"{key} is given twice; keep one"))
        else:
            grid[key] = values
    if faults:
        raise ConfigError(faults)
    return grid
