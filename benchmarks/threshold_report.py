"""What time_to_threshold.py shows: tables, what is held against the targets, the picture; not a program."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from timed_checkpoints import SHOWN, Point, first_pair
from timed_runs import Trained

from navrl.analysis.statistics import estimate, iqm

TARGETS = {-10.0: 20.0, -8.8: 35.0, -8.0: 70.0, -7.0: 240.0}  # episode reward, scale A -> seconds, median over seeds
IQM_TARGET, WORST_TARGET, SUCCESS_TARGET, COLLISION_TARGET = -6.7, -7.0, 0.88, 0.4

Curves = dict[int, list[Point]]  # by seed


def seconds_to(curve: Sequence[Point], threshold: float) -> float:
    """Clock of the first of two grid checkpoints in a row at or above the threshold; inf where there are none."""
    index = first_pair(curve, threshold)
    return math.inf if index is None else curve[index].clock


def say_confirmations(curves: Curves) -> None:
    """Both numbers of every checkpoint that decided, and how far apart scan and mpe2 are at most."""
    print("\nWhat decided: mean episode reward on the batched task | on mpe2, of the one before and the two in a row")
    for seed, curve in curves.items():
        for threshold in TARGETS:
            index = first_pair(curve, threshold)
            if index is not None:
                near = [(p.scanned["episode_reward"], p.original["episode_reward"])
                        for p in curve[max(0, index - 1) : index + 2]]  # fmt: skip
                cells = "   ".join(f"{scanned:8.3f} |{original:8.3f}" for scanned, original in near)
                print(f"seed {seed:>3} {threshold:>6} at {curve[index].clock:6.1f} s {cells:>65}")
    both = [point for curve in curves.values() for point in curve if point.original]
    apart = {name: max((abs(p.scanned[name] - p.original[name]) for p in both), default=math.nan) for name in SHOWN}
    print(f"largest difference between the two in {len(both)} evaluations: "
          + ", ".join(f"{name} {value:.2g}" for name, value in apart.items()))  # fmt: skip


def say_times(runs: Sequence[Trained], curves: Curves) -> bool:
    """Seconds to each threshold and to the end, and the final figures on mpe2; whether all targets are met."""
    times = np.array([[*(seconds_to(curves[run.seed], value) for value in TARGETS), run.seconds] for run in runs])
    final = np.array([[run.final["mean"][name] for name in SHOWN] for run in runs])
    print(f"\n{'seconds from Enter to':<22}" + "".join(f"{threshold:>9}" for threshold in TARGETS)
          + f"{'the end':>9}{'final reward':>18}{'success':>9}{'collisions':>12}")  # fmt: skip
    for run, clocks, values in zip(runs, times, final):
        error = run.final["standard_error"]["episode_reward"]
        print(_line(f"seed {run.seed}", clocks, values, f"{values[0]:.2f} ± {error:.2f}"))
    for title, pick in (("median", np.median), ("least", np.min), ("most", np.max)):
        print(_line(title, pick(times, 0), pick(final, 0), f"{pick(final[:, 0]):.2f}       "))
    print(_line("target of the median", np.array(list(TARGETS.values()))))
    middle, worst = estimate(iqm, final[:, 0]), final[:, 0].min()
    print(f"\nfinal reward over {len(runs)} seeds: interquartile mean {middle.value:.3f}, 95 % bootstrap interval "
          f"[{middle.low:.3f}, {middle.high:.3f}], worst seed {worst:.3f}")  # fmt: skip
    return _say_targets(np.median(times, 0), middle.value, worst, *np.median(final[:, 1:], 0))


def _line(title: str, clocks: np.ndarray, values: np.ndarray | None = None, reward: str = "") -> str:
    cells = "".join(f"{clock:>9.1f}" if math.isfinite(clock) else f"{'never':>9}" for clock in clocks)
    return f"{title:<22}{cells}" + ("" if values is None else f"{reward:>18}{values[1]:>9.3f}{values[2]:>12.3f}")


def _say_targets(times: np.ndarray, middle: float, worst: float, success: float, collisions: float) -> bool:
    met = {f"{value:g} in {target:g} s": time <= target for (value, target), time in zip(TARGETS.items(), times)}
    met |= {
        f"interquartile mean >= {IQM_TARGET}": middle >= IQM_TARGET,
        f"worst seed >= {WORST_TARGET}": worst >= WORST_TARGET,
        f"success_rate >= {SUCCESS_TARGET} (median)": success >= SUCCESS_TARGET,
        f"collision_count <= {COLLISION_TARGET} (median)": collisions <= COLLISION_TARGET,
    }
    print("targets: " + ", ".join(f"{name} {'met' if good else 'MISSED'}" for name, good in met.items()))
    return all(met.values())


def draw(curves: Curves, spacing: float, out: Path) -> None:
    """Episode reward over seconds: a thin line a seed, the median of all thick, thresholds and their targets."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    ticks = spacing * np.arange(1, 1 + math.ceil(max(curve[-1].clock for curve in curves.values()) / spacing))
    held = []
    for curve in curves.values():
        clocks, rewards = (np.array(values) for values in zip(*((point.clock, point.reward) for point in curve)))
        panel.plot(clocks, rewards, color="tab:blue", alpha=0.35, linewidth=0.8)
        newest = np.searchsorted(clocks, ticks, side="right") - 1  # after a run's end its last policy stands
        held.append(np.where(newest >= 0, rewards[newest], np.nan))
    inside = np.isfinite(held).all(0)
    panel.plot(ticks[inside], np.median(held, 0)[inside], color="tab:blue", linewidth=2.2,
               label=f"median of {len(curves)} seeds")  # fmt: skip
    for threshold in TARGETS:
        panel.axhline(threshold, color="tab:gray", linewidth=0.8, linestyle="--")
    panel.plot(list(TARGETS.values()), list(TARGETS), "x", color="tab:red", label="to be reached by")
    panel.set_xlabel("seconds from starting the process")
    panel.set_ylabel("episode reward (scale A), evaluated afterwards")
    panel.set_ylim(-16, -5.5)
    panel.set_xlim(0, None)
    panel.grid(alpha=0.3)
    panel.legend(loc="lower right")
    figure.savefig(out, dpi=130)
    plt.close(figure)
