"""The part of Slurm that an array job meets, on this machine: sbatch, squeue, scontrol requeue, a preemption signal.

``with Slurm(directory) as slurm`` puts the three programs first on the PATH of ``slurm.environ``. A task is the job's
script in a session of its own, with Slurm's variables; of signals it gets those that Slurm sends (``preempt``). As
there, sbatch returns at once, and a task that is requeued while it runs is ended and started again with
SLURM_RESTART_COUNT one higher.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PROGRAM = """#!{python}
import json, os, sys, time
from pathlib import Path
calls = Path({calls!r})
call = calls / f"{{time.time_ns()}}-{{os.getpid()}}"
call.with_suffix(".new").write_text(json.dumps([{name!r}, sys.argv[1:], os.getcwd()]))
call.with_suffix(".new").rename(call.with_suffix(".call"))
answer = call.with_suffix(".answer")
while not answer.exists():
    time.sleep(0.01)
code, out, err = json.loads(answer.read_text())
sys.stdout.write(out), sys.stderr.write(err)
sys.exit(code)
"""


class Task:
    """One task of the array: ``ends`` are the exit codes of its script so far, ``state`` waiting, running or over."""

    def __init__(self, number: int) -> None:
        self.number, self.state, self.ends = number, "waiting", []
        self.requeued = False
        self.process: subprocess.Popen | None = None


class Slurm:
    def __init__(self, directory: Path) -> None:
        self.calls, programs = directory / "calls", directory / "bin"
        self.calls.mkdir(parents=True), programs.mkdir()
        for name in ("sbatch", "squeue", "scontrol"):
            program = programs / name
            program.write_text(PROGRAM.format(python=sys.executable, calls=str(self.calls), name=name))
            program.chmod(0o755)
        self.environ = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        self.job = 4000
        self.holds = False  # True: nothing is started
        self.name, self.tasks, self.directives = "", [], {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def preempt(self, number: int) -> None:
        """What ``--signal=B:USR1@60`` does a minute before the time limit: the batch shell alone is signalled."""
        self.tasks[number - 1].process.send_signal(signal.SIGUSR1)

    def wait(self, seconds: float = 300.0) -> list[list[int]]:
        """The exit codes of each task's script, once the job is over."""
        deadline = time.monotonic() + seconds
        while any(task.state != "over" for task in self.tasks):
            assert time.monotonic() < deadline, "the job does not end"
            time.sleep(0.05)
        return [task.ends for task in self.tasks]

    def __enter__(self) -> Slurm:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for task in self.tasks:
            if task.process is not None and task.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.process.pid, signal.SIGKILL)
                task.process.wait()

    # ---- the controller

    def _serve(self) -> None:
        while not self._ends.wait(0.02):
            for call in sorted(self.calls.glob("*.call")):
                name, words, directory = json.loads(call.read_text())
                call.unlink()
                answer = call.with_suffix(".part")
                answer.write_text(json.dumps(getattr(self, f"_{name}")(words, Path(directory))))
                answer.rename(call.with_suffix(".answer"))
            for task in self.tasks:
                self._look(task)

    def _sbatch(self, words: list[str], directory: Path) -> tuple[int, str, str]:
        first = next(place for place, word in enumerate(words) if not word.startswith("--"))
        self.script, self.arguments = Path(words[first]), words[first + 1 :]
        lines = re.findall(r"^#SBATCH (.*)$", self.script.read_text(), re.MULTILINE)
        options = [word for line in lines for word in shlex.split(line, comments=True)] + words[:first]
        for word in options:  # the command line is the last to say it
            if not word.startswith("--"):
                return 1, "", f"sbatch: error: Invalid argument: {word}\n"
        self.directives = dict(word.removeprefix("--").partition("=")[::2] for word in options)
        if "parsable" not in self.directives:
            return 1, "", "sbatch: this stand-in wants --parsable\n"
        if self.directives.get("signal") != "B:USR1@60" or "requeue" not in self.directives:
            return 1, "", "sbatch: this stand-in wants --signal=B:USR1@60 and --requeue\n"
        last, _, at_once = self.directives["array"].removeprefix("1-").partition("%")
        self.job += 1
        self.name, self.at_once = self.directives["job-name"], int(at_once or last)
        self.tasks = [Task(number) for number in range(1, int(last) + 1)]
        return 0, f"{self.job}\n", ""

    def _squeue(self, words: list[str], directory: Path) -> tuple[int, str, str]:
        there = f"--name={self.name}" in words and any(task.state != "over" for task in self.tasks)
        return 0, f"{self.job}\n" if there else "", ""

    def _scontrol(self, words: list[str], directory: Path) -> tuple[int, str, str]:
        job, _, number = words[1].partition("_")
        if words[0] != "requeue" or job != str(self.job):
            return 1, "", "slurm_requeue error: Invalid job id specified\n"
        task = self.tasks[int(number) - 1]
        task.requeued = True
        task.process.send_signal(signal.SIGTERM)
        return 0, "", ""

    def _look(self, task: Task) -> None:
        if (
            task.state == "waiting"
            and not self.holds
            and sum(other.state == "running" for other in self.tasks) < self.at_once
        ):
            self._start(task)
        elif task.state == "running" and task.process.poll() is not None:
            task.ends.append(task.process.returncode)
            task.state, task.requeued = ("waiting" if task.requeued else "over"), False

    def _start(self, task: Task) -> None:
        variables = {"SLURM_ARRAY_JOB_ID": str(self.job), "SLURM_ARRAY_TASK_ID": str(task.number),
                     "SLURM_JOB_ID": str(self.job + task.number)}  # fmt: skip
        if task.ends:  # as Slurm has it: no variable in the first start
            variables["SLURM_RESTART_COUNT"] = str(len(task.ends))
        patterns = {"%": "%", "A": str(self.job), "a": str(task.number)}  # the others are names of something else
        said = re.sub("%(.)", lambda found: patterns.get(found[1], "other"), self.directives["output"])
        with open(said, "ab") as output:
            task.process = subprocess.Popen(
                ["bash", str(self.script), *self.arguments], cwd=self.directives["chdir"], env=self.environ | variables,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        task.state = "running"
