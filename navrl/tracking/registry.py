"""Which class serves which name in `logger`. A new backend is one file and one line here."""
from __future__ import annotations

import importlib

TRACKERS = {
    "wandb": "navrl.tracking.wandb:WandbTracker",
    "swanlab": "navrl.tracking.swanlab:SwanlabTracker",
    "mlflow": "navrl.tracking.mlflow:MlflowTracker",
    "tensorboard": "navrl.tracking.tensorboard:TensorboardTracker",
}


def tracker_class(name: str) -> type:
    """The Tracker class of a backend. Raises ValueError naming the known ones."""
    if name not in TRACKERS:
        raise ValueError(f"logger: {name!r} is no tracker; known are {', '.join(sorted(TRACKERS))}")
    module, _, attribute = TRACKERS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
