"""Planned runs as one array job of Slurm: writes the job's script from ``scripts/slurm/array.sh`` and submits it.

Slurm runs, preempts and requeues them then; the command, given again, submits what is not finished.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence

from navrl.faults import show
from navrl.files import write_text
from navrl.launch.expand import Planned
from navrl.launch.state import state_of
from navrl.source import project_root

TEMPLATE = project_root() / "scripts" / "slurm" / "array.sh"


class SlurmError(Exception):
    """Slurm is not here or refuses the job; the message is one line."""


def submit(plan: Sequence[Planned], *, jobs: int | None, cpus: int, gpus: int, retries: int) -> str:
    """Submit what is neither finished nor running; returns what was done, in lines for people.

    jobs: how many run at once (None: as many as Slurm places). cpus, gpus: of each. retries: how often a run that
    failed is requeued; one that was preempted always is. Beside the runs, under ``logs/slurm/NAME``, are the commands,
    the script and what each task says.

    Raises SlurmError, and OSError where nothing can be written beside the runs.
    """
    states = [state_of(run).status for run in plan]
    left = [run for run, status in zip(plan, states) if status not in ("finished", "running")]
    said = f"{states.count('finished')} of {len(plan)} finished, {states.count('running')} running"
    if not left:
        return f"{said}: nothing to submit"
    name = "navrl-" + hashlib.sha256("\n".join(str(run.run_dir) for run in plan).encode()).hexdigest()[:8]
    queued = _call("squeue", "--me", "--noheader", "--format=%F", f"--name={name}").split()
    if queued:
        return f"{said}; job {queued[0]} ({name}) is still queued or running: nothing more is submitted before it ends"
    directory = plan[0].run_dir.parents[2] / "logs" / "slurm" / name
    if "\\" in str(directory):
        raise SlurmError(f"run_dir: {show(str(plan[0].run_dir.parents[2]))} has a backslash, which Slurm takes out of "
                         "names of output files; choose another with --run_dir")  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    commands, script = directory / "commands.txt", directory / "array.sh"
    program = (sys.executable, str(project_root() / "main.py"))
    write_text(commands, "".join(f"{run.line(*program)}\n" for run in left))
    directives = {
        "job-name": name,
        "array": f"1-{len(left)}" + (f"%{jobs}" if jobs else ""),
        "cpus-per-task": str(cpus),
    } | ({"gres": f"gpu:{gpus}"} if gpus else {})
    write_text(script, with_directives(TEMPLATE.read_text(encoding="utf-8"), directives))
    # On the command line, for sbatch takes a directive apart at spaces and quotes. In --output % begins a pattern.
    output = str(directory).replace("%", "%%") + "/%A_%a.log"
    paths = (f"--output={output}", f"--chdir={plan[0].directory}")
    job = _call("sbatch", "--parsable", *paths, str(script), str(commands), str(retries)).strip().partition(";")[0]
    return f"{said}; job {job} ({name}) runs the other {len(left)}: squeue --job {job}; output in {directory}"


def with_directives(script: str, values: Mapping[str, str]) -> str:
    """``script`` with these ``#SBATCH --key=value`` lines in the place of its own of the same keys, else after them."""
    lines, left = [], dict(values)
    for line in script.splitlines():
        key = line.removeprefix("#SBATCH --").partition("=")[0] if line.startswith("#SBATCH --") else ""
        lines.append(f"#SBATCH --{key}={left.pop(key)}" if key in left else line)
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    lines[last + 1 : last + 1] = [f"#SBATCH --{key}={value}" for key, value in left.items()]
    return "\n".join(lines) + "\n"


def _call(program: str, *words: str) -> str:
    try:
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise SlurmError(f"{program} is not on this machine; give the command on a login node of the cluster") from None
    except subprocess.CalledProcessError as error:
        raise SlurmError((error.stderr or error.stdout).strip() or f"{program} ends with {error.returncode}") from None
    return done.stdout
