"""A Ray cluster of several nodes on this machine, each a process tree that can be killed as a machine would be."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launch_tools import open_records
from stop_tools import descendants

RAY = Path(sys.executable).with_name("ray")


class Cluster:
    """``with Cluster(2) as cluster``: a head and a further node, one CPU each. ``cluster.environ`` leads there."""

    def __init__(self, nodes: int) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="ray"))  # short: sockets lie in it
        self.port = _free_port()
        self.environ = os.environ | {
            "RAY_ADDRESS": f"127.0.0.1:{self.port}", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "3",
        }  # fmt: skip
        self.nodes: list[subprocess.Popen] = []
        head = ["--head", f"--port={self.port}", f"--temp-dir={self.scratch}", "--include-dashboard=false",
                f"--ray-client-server-port={_free_port()}"]  # fmt: skip
        try:
            for words in [head, *[[f"--address=127.0.0.1:{self.port}"]] * (nodes - 1)]:
                self._start(*words)
        except BaseException:
            self.__exit__()
            raise

    def _start(self, *words: str) -> None:
        environ = {key: value for key, value in self.environ.items() if key != "RAY_ADDRESS"}
        node = subprocess.Popen(
            [str(RAY), "start", *words, "--block", "--num-cpus=1", "--object-store-memory=80000000",
             "--node-ip-address=127.0.0.1", "--dashboard-agent-listen-port=0"],
            env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.nodes.append(node)
        said = []
        for line in node.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                return
        raise AssertionError("no Ray node:\n" + "".join(said))

    def kill(self, number: int) -> list[int]:
        """End a node and everything that runs on it, at once. Returns the process ids."""
        node = self.nodes[number]
        whole = [node.pid, *descendants(node.pid)]
        for pid in whole:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()
        return whole

    def runs(self, number: int) -> list[Path]:
        """Directories of the runs that train on a node."""
        return sorted(open_records(self.nodes[number].pid))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for number in reversed(range(len(self.nodes))):
            self.kill(number)
        time.sleep(0.2)
        shutil.rmtree(self.scratch, ignore_errors=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
