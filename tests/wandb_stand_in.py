"""The stand-in W&B server as a process for tests: faults, and what it has received."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

KEY = "a1" * 20
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class StandIn:
    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.variables = {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("wandb_stub_server.py")), str(self.port)]
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                self.get("/_fault?name=none")
                return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError("the stand-in server did not start")

    def get(self, path: str) -> Any:
        with OPENER.open(self.url + path, timeout=10) as answer:
            return json.loads(answer.read())

    def fault(self, name: str) -> None:
        self.get("/_fault?name=" + urllib.parse.quote(name))

    def dump(self) -> dict[str, Any]:
        return self.get("/_dump")

    def run(self, run_dir: Path) -> dict[str, Any]:
        uid = json.loads((run_dir / "tracking" / "run.json").read_text())["uid"]
        return self.dump()["runs"][uid]

    def steps(self, run_dir: Path) -> list[int]:
        """Environment steps of the rows that it holds for a run, in the order received; tables and media left out."""
        return [
            row["step"]
            for row in self.run(run_dir)["history"]
            if not any(isinstance(value, dict) for value in row.values())
        ]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
