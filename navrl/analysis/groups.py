"""Groups of seeds: which runs count, and what differs inside a group and between groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from navrl.analysis.records import Run


@dataclass(frozen=True)
class Group:
    """One configuration, run with several seeds.

    label: its name, made longer where two groups of a comparison share one; unique in a comparison.
    source: its directory, or the tracker's place.
    runs: those that count, by seed: of one seed and configuration that was run twice the newest finished one.
    config: the result-changing values that all its runs share (``seed`` is none of them).
    mixed: key -> one value a run (None where a run lacks it), of result-changing keys in which its runs differ though
        they should not.
    """

    label: str
    source: str
    runs: tuple[Run, ...]
    config: dict[str, Any] = field(default_factory=dict)
    mixed: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def steps(self) -> np.ndarray:
        """Last recorded environment step of each run, float64 ``[runs]``."""
        return np.array([run.columns["step"][-1] for run in self.runs])

    @property
    def seconds(self) -> np.ndarray:
        """Seconds of training up to the last row of each run, float64 ``[runs]``; NaN where no row says it."""
        return np.array([np.nanmax(run.columns["time"], initial=np.nan) for run in self.runs])
