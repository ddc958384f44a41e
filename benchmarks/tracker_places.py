"""Where a run can publish to in `tracker_faults.py`: servers of their own, that can go and come back, and files."""

from __future__ import annotations

from pathlib import Path

import read_back
from gate import Gate
from mlflow_tools import Postgres, Server, empty_store
from read_back import Points
from wandb_stand_in import KEY, StandIn


class Place:
    """A tracker, and where it publishes to; `variables` say that to a run, and to the sync that follows."""

    name, tracker, title = "", "", ""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.variables: dict[str, str] = {}

    def held(self, run_dir: Path) -> Points:
        raise NotImplementedError

    def prepare(self, root: Path) -> None:
        """Before a run under `root`."""

    def stop(self) -> None:
        """The server goes away."""

    def start(self) -> None:
        """It comes back, with all that it had."""

    def close(self) -> None:
        """The end of this place."""


class WandbPlace(Place):
    name, tracker, title = "wandb", "wandb", "W&B (stand-in server)"

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.server = StandIn()
        self.gate = Gate(self.server.port)
        self.variables = {"WANDB_BASE_URL": self.gate.url, "WANDB_API_KEY": KEY}
        self.stop, self.start = lambda: self.gate.set("closed"), lambda: self.gate.set("open")

    def held(self, run_dir: Path) -> Points:
        return read_back.from_wandb_server(self.server, run_dir)

    def close(self) -> None:
        self.gate.close()
        self.server.close()


class MlflowServerPlace(Place):
    name, tracker, title = "mlflow-server", "mlflow", "MLflow (its server, SQLite)"

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.server = Server(base / "server", empty_store(base / "server.db"))
        self.gate = Gate(self.server.port)
        self.variables = {"MLFLOW_TRACKING_URI": self.gate.url}
        self.stop, self.start, self.close = self.server.kill, self.server.start, self.server.kill

    def held(self, run_dir: Path) -> Points:
        return read_back.from_mlflow(self.server.url, run_dir)


class MlflowPostgresPlace(Place):
    name, tracker, title = "mlflow-postgres", "mlflow", "MLflow (PostgreSQL)"

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.server = Postgres()
        self.variables = {"MLFLOW_TRACKING_URI": self.server.url}
        read_back.mlflow_tools.client(self.server.url).search_experiments()  # makes the tables, seconds of work
        self.stop, self.start = lambda: self.server._do("stop"), lambda: self.server._do("start")
        self.close = self.server.close

    def held(self, run_dir: Path) -> Points:
        return read_back.from_mlflow(self.server.url, run_dir)


class MlflowFilePlace(Place):
    name, tracker, title = "mlflow-file", "mlflow", "MLflow (SQLite file)"

    def prepare(self, root: Path) -> None:
        empty_store(root / "mlflow.db")

    def held(self, run_dir: Path) -> Points:
        return read_back.from_mlflow(f"sqlite:///{run_dir.parents[2] / 'mlflow.db'}", run_dir)


class SwanlabPlace(Place):
    """Its server is nobody's but its maker's: the faults are met online, and what is kept is what is offline then."""

    name, tracker, title = "swanlab", "swanlab", "SwanLab (offline)"

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.gate = Gate(1)
        self.close = self.gate.close

    def online(self) -> dict[str, str]:
        return {"SWANLAB_MODE": "online", "SWANLAB_API_KEY": "k" * 21, "SWANLAB_API_HOST": self.gate.url}

    def held(self, run_dir: Path) -> Points:
        return read_back.from_swanlab(run_dir)


class TensorboardPlace(Place):
    name, tracker, title = "tensorboard", "tensorboard", "TensorBoard"

    def held(self, run_dir: Path) -> Points:
        return read_back.from_tensorboard(run_dir)
