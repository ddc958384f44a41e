"""What a benchmark ran on, for the head of its table; not a program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from navrl.metrics.metadata import cpu_model, gpus, versions  # noqa: E402


def machine(*packages: str) -> str:
    """One line: CPU model, cores that this process may use, GPUs, versions of Python, torch, numpy and ``packages``."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = versions(packages)
    parts = [f"{cpu_model()}, {usable} of {os.cpu_count()} cores", *(gpu["name"] for gpu in gpus())]
    names = dict.fromkeys(("python", "torch", "numpy", *packages))
    return "; ".join([*parts, ", ".join(f"{name} {found[name]}" for name in names if name in found)])
