"""A throw-away Slurm on this machine: munged, slurmctld and slurmd of one node with as many CPUs as asked for.

Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge. Same interface as ``slurm_stand_in.Slurm``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONFIGURATION = """
ClusterName=navrl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
# cred_expire: a requeued job waits as long as an old credential might still be good
AuthInfo=socket={run}/munge.sock,cred_expire=5
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=10
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def is_here() -> bool:
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    return os.geteuid() == 0 and all(shutil.which(program, path=path) for program in PROGRAMS)


class Slurm:
    def __init__(self, directory: Path, cpus: int) -> None:
        self.run, host = directory, socket.gethostname().partition(".")[0]
        for name in ("state", "spool"):
            (directory / name).mkdir(parents=True)
        key, conf = directory / "munge.key", directory / "slurm.conf"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        directory.chmod(0o755)
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = [listener.getsockname()[1] for listener in listeners]
        for listener in listeners:
            listener.close()
        conf.write_text(CONFIGURATION.format(host=host, ports=ports, run=directory, cpus=cpus))
        self.environ = os.environ | {"SLURM_CONF": str(conf), "OMP_NUM_THREADS": "1"}
        self._daemons: list[subprocess.Popen] = []
        self._commands = (
            ["/usr/sbin/munged", "--foreground", "--force", f"--key-file={key}", f"--socket={directory}/munge.sock",
             f"--pid-file={directory}/munged.pid", f"--log-file={directory}/munged.log",
             f"--seed-file={directory}/seed"],
            ["/usr/sbin/slurmctld", "-D"],
            ["/usr/sbin/slurmd", "-D", "-N", host],
        )  # fmt: skip

    def version(self) -> str:
        return self._ask("sinfo", "--version")

    def preempt(self, number: int) -> None:
        """The batch shell alone gets SIGUSR1, as from ``--signal=B:USR1@60`` before the time limit."""
        jobs = dict(
            line.split() for line in self._ask("squeue", "--array", "--noheader", "--format=%K %A").splitlines()
        )
        # While tasks wait, scancel 22.05 signals one that runs, is told to try again and does so for minutes
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["scancel", "--batch", "--signal=USR1", jobs[str(number)]], env=self.environ, timeout=3,
                           capture_output=True)  # fmt: skip

    def wait(self, seconds: float = 600.0) -> None:
        """Until no job is queued or running."""
        deadline = time.monotonic() + seconds
        while self._ask("squeue", "--noheader"):
            assert time.monotonic() < deadline, "the job does not end"
            time.sleep(0.5)

    def __enter__(self) -> Slurm:
        try:
            for number, command in enumerate(self._commands):
                log = open(self.run / f"daemon-{number}.log", "wb")
                self._daemons.append(
                    subprocess.Popen(command, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )
                time.sleep(0.5)
            deadline = time.monotonic() + 60
            while "idle" not in self._ask("sinfo", "--noheader", "--format=%t"):
                assert time.monotonic() < deadline, f"no node: see the logs in {self.run}"
                time.sleep(0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self._ask("scancel", "--full", "--signal=KILL", "--state=RUNNING", "--me")
            self._ask("scancel", "--me")
            self.wait(30)
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _ask(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=180)
        return done.stdout.strip() if done.returncode == 0 else f"error: {done.stderr.strip()}"
