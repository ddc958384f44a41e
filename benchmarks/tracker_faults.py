"""Every fault that a tracker can have, met by real training runs: what is lost, and what it costs.

    python benchmarks/tracker_faults.py                          # the whole of docs/tracker_faults.md
    python benchmarks/tracker_faults.py --only killed/mlflow     # of its rows those whose `fault/place` holds this

Each cell is a `python main.py` of 60 iterations with one tracker, a fault, and then `scripts/sync.py`. Servers are
real (`mlflow server`, PostgreSQL) or the stand-in W&B server of the tests, behind a gate that fails as it is told.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

from gate import Gate
from read_back import ROOT, compare, is_clock
from tracker_places import (
    MlflowFilePlace, MlflowPostgresPlace, MlflowServerPlace, Place, SwanlabPlace, TensorboardPlace, WandbPlace,
)  # fmt: skip
from tracking_run import environment, processes_with, sync

from navrl.tracking.ledger import read_ledger
from navrl.tracking.record import read_events, read_rows, read_summary

PATIENCE = 5.0  # tracker_timeout of these runs, seconds
LONGEST = 600.0  # what is taken for a hang, on a busy machine too, seconds
AWHILE = 2.0  # how long a fault in the middle lasts, seconds
TRAINING = (
    "--num_envs", "16", "--total_env_steps", "24000", "--hidden_size", "16", "--mini_batch_size", "100",
    "--ppo_epoch", "2", "--eval_interval", "10", "--eval_episodes", "8", "--final_eval_episodes", "4",
    "--log_eval_episodes", "1", "--checkpoint_interval", "5", "--keep_artifacts", "all", "--num_workers", "0",
    "--group", "faults", "--tracker_timeout", str(PATIENCE),
)  # fmt: skip
HEAD = "| fault | tracker | training finished | rows lost locally | rows owed at the end | rows lost after sync | " \
       "extra wall time, s |"


# ---------------------------------------------------------------------------------------------- one cell


class Cell:
    """One run with one tracker and one fault."""

    def __init__(self, place: Place, directory: Path) -> None:
        self.place, self.directory = place, directory
        self.root, self.home = directory / "runs", directory / "home"
        self.flags: list[str] = []
        self.variables, self.later = dict(place.variables), dict(place.variables)  # of training, and of the sync
        self.code, self.ended = -1, 0.0  # exit code of training, wall time of its end
        self.resumed = False
        self.process: subprocess.Popen | None = None

    @property
    def run_dir(self) -> Path:
        return self.root / "NAVRL" / "faults" / "run"

    @property
    def ledger(self) -> dict:
        return read_ledger(self.run_dir / "tracking" / self.place.tracker)

    def begin(self, *arguments: str) -> None:
        """Start `python main.py`."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.place.prepare(self.root)
        tracker = self.place.tracker
        loggers = ["--logger", "console", *filter(None, [tracker]), *(["--no_log_wandb"] if tracker != "wandb" else [])]
        where = ["--experiment_name", "run", "--run_dir", str(self.root)]
        argv = arguments or (*TRAINING, *where, *loggers, *self.flags)
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "main.py"), *argv], env=environment(self.home, **self.variables), cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=open(self.directory / "out.txt", "ab"), stderr=subprocess.STDOUT,
        )  # fmt: skip

    def amid(self, rows: int = 17, held: int = 10) -> None:
        """Wait for `rows` rows, hold training until the tracker has `held` of them, and let it go on.

        So a fault that follows meets both at work, however slow this machine is at the moment.
        """
        self.until(lambda: len(read_rows(self.run_dir)) >= rows)
        self.process.send_signal(signal.SIGSTOP)
        try:
            self.until(lambda: self.ledger.get("rows", 0) >= held and self.ledger.get("state") == "publishing")
        finally:
            self.process.send_signal(signal.SIGCONT)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONGEST
        while not condition():
            if time.monotonic() > deadline:
                raise Late(f"it did not come to the fault in {LONGEST:.0f} s:\n{self.said()}")
            if self.process.poll() is not None:
                raise Late(f"training had ended before the fault began:\n{self.said()}")
            time.sleep(0.02)

    def end(self) -> None:
        """Wait for the end of training."""
        self.code = self.process.wait(timeout=LONGEST)
        self.ended = time.time()

    def run(self) -> None:
        self.begin()
        self.end()

    def said(self) -> str:
        return (self.directory / "out.txt").read_text(errors="replace")[-2000:]


class Late(Exception):
    """The fault could not be set in time."""


# ---------------------------------------------------------------------------------------------- the faults


def from_the_start(mode: str) -> Callable[[Cell], None]:
    def fault(cell: Cell) -> None:
        place = cell.place
        if isinstance(place, SwanlabPlace):
            cell.variables |= place.online()
        if isinstance(place, MlflowPostgresPlace):
            with _in_place_of_postgres(place, mode):
                cell.run()
        else:
            place.gate.set(mode)
            try:
                cell.run()
            finally:
                place.gate.set("open")

    return fault


@contextlib.contextmanager
def _in_place_of_postgres(place: MlflowPostgresPlace, mode: str) -> Iterator[None]:
    """PostgreSQL is down; with `hang` somebody who never answers has its port."""
    place.stop()
    gate = Gate(1, port=place.server.port) if mode == "hang" else None
    if gate:
        gate.set(mode)
    try:
        yield
    finally:
        if gate:
            gate.close()
        place.start()


def in_the_middle(mode: str) -> Callable[[Cell], None]:
    def fault(cell: Cell) -> None:
        cell.begin()
        cell.amid()
        cell.place.gate.set(mode)
        try:
            time.sleep(AWHILE)
        finally:
            cell.place.gate.set("open")
        cell.end()

    return fault


def server_restarts(cell: Cell) -> None:
    if isinstance(cell.place, MlflowServerPlace):
        cell.variables = {"MLFLOW_TRACKING_URI": cell.place.server.url}  # no gate, which would answer for it
    cell.begin()
    cell.amid()
    cell.place.stop()
    try:
        time.sleep(AWHILE)
    finally:
        cell.place.start()
    cell.end()


def no_key(cell: Cell) -> None:
    if isinstance(cell.place, SwanlabPlace):
        cell.variables = {"SWANLAB_MODE": "online"}
    else:
        cell.variables.pop("WANDB_API_KEY")
        cell.flags = ["--wandb_mode", "online"]
    cell.run()


def tracker_killed(cell: Cell) -> None:
    cell.begin()
    cell.amid()
    os.killpg(cell.ledger["pid"], signal.SIGKILL)
    cell.end()


def training_killed(cell: Cell) -> None:
    cell.begin()
    cell.amid()  # the last checkpoint is of the 15th iteration, what follows it is cut
    _kill_and_resume(cell)


def everything_killed(cell: Cell) -> None:
    cell.begin()
    cell.amid()
    os.killpg(cell.ledger["pid"], signal.SIGKILL)
    _kill_and_resume(cell)


def _kill_and_resume(cell: Cell) -> None:
    cell.process.send_signal(signal.SIGKILL)
    cell.end()
    cell.begin("--resume", str(cell.run_dir))
    cell.end()
    cell.resumed = True


def disk_full(cell: Cell) -> None:
    """All of a run is on a disk of 64 MB, which somebody fills for a while."""
    cell.root.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(cell.root)], capture_output=True)
    if mounted.returncode:
        raise Late("a small disk cannot be mounted here (root only)")
    cell.begin()
    cell.amid()
    filler = cell.root / "filler"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    time.sleep(AWHILE)
    filler.unlink()
    cell.end()


def not_writable(cell: Cell) -> None:
    """A file stands where the tracker's directory would be, for as long as the run lasts."""
    file = cell.directory / "file"
    file.write_text("no directory\n")
    if isinstance(cell.place, TensorboardPlace):
        cell.begin()
        cell.until((cell.run_dir / "tracking" / "tensorboard").is_dir)
        obstacle = cell.run_dir / "tracking" / "tensorboard" / "events"
        obstacle.write_text("no directory\n")
        cell.end()
        obstacle.unlink()
        return
    if isinstance(cell.place, MlflowFilePlace):
        cell.flags = ["--mlflow_tracking_uri", f"sqlite:///{file}/mlflow.db"]
        cell.later["MLFLOW_TRACKING_URI"] = f"sqlite:///{cell.root}/mlflow.db"
    else:
        cell.variables |= {"WANDB_DIR": f"{file}/wandb", "SWANLAB_LOG_DIR": f"{file}/swanlab"}
    cell.run()


def not_installed(cell: Cell) -> None:
    hidden = cell.directory / "hidden" / cell.place.tracker
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not installed')\n")
    cell.variables["PYTHONPATH"] = str(hidden.parent)
    cell.run()


SERVERS = (WandbPlace, MlflowServerPlace, MlflowPostgresPlace)
FILES = (MlflowFilePlace, SwanlabPlace, TensorboardPlace)
ALL = (*SERVERS, *FILES)
HTTP = (WandbPlace, MlflowServerPlace)
OWN_FILES = (WandbPlace, *FILES)
FAULTS: dict[str, tuple[str, Callable[[Cell], None], tuple[type[Place], ...]]] = {
    "refused": ("server refuses at start", from_the_start("closed"), (*SERVERS, SwanlabPlace)),
    "hangs-at-start": ("server accepts and never answers", from_the_start("hang"), (*SERVERS, SwanlabPlace)),
    "slow": ("server takes 0.3 s more for each request", from_the_start("slow:0.3"), HTTP),
    "401": ("server answers 401", from_the_start("401"), HTTP),
    "no-key": ("no key", no_key, (WandbPlace, SwanlabPlace)),
    "500": (f"server answers 500 for {AWHILE:.0f} s amid the run", in_the_middle("500"), HTTP),
    "hangs-amid": (f"server hangs for {AWHILE:.0f} s amid the run", in_the_middle("hang"), HTTP),
    "restarted": (f"server is killed amid the run and back {AWHILE:.0f} s later", server_restarts, SERVERS),
    "tracker-killed": ("tracker's process killed with -9", tracker_killed, ALL),
    "training-killed": ("training killed with -9, then resumed", training_killed, ALL),
    "both-killed": ("both killed with -9, then resumed", everything_killed, ALL),
    "disk-full": (f"disk full for {AWHILE:.0f} s amid the run", disk_full, OWN_FILES),
    "not-writable": ("tracker's directory cannot be made", not_writable, OWN_FILES),
    "not-installed": ("package not installed", not_installed, OWN_FILES),
}


# ---------------------------------------------------------------------------------------------- measuring


@dataclass
class Outcome:
    fault: str
    place: str
    finished: bool
    lost_locally: int
    owed: int
    lost: int
    extra: float
    why: str = ""
    home: int = 0
    left: int = 0

    @property
    def good(self) -> bool:
        return self.finished and not (self.lost_locally or self.lost or self.why or self.home or self.left)


def measure(key: str, place: Place, directory: Path, reference: list[dict]) -> Outcome:
    """Run one cell. reference: rows of the same training without a tracker."""
    title, fault, _ = FAULTS[key]
    directory.mkdir(parents=True)
    cell = Cell(place, directory)
    try:
        fault(cell)
        record, summary = read_rows(cell.run_dir), read_summary(cell.run_dir)
        found = Outcome(
            title, place.title, cell.code == 0 and summary["status"] == "finished", lost_rows(record, reference),
            summary.get("trackers", {}).get(place.tracker, {}).get("owed", len(record)), -1,
            extra_seconds(cell, record),
        )  # fmt: skip
        if not found.finished:
            found.why = f"exit code {cell.code}, {summary.get('status')}: {cell.said()}"
        done = sync(environment(cell.home, **cell.later), cell.run_dir, to=place.tracker, timeout=LONGEST)
        try:
            difference = compare(place.held(cell.run_dir), record, place.tracker, clock=not cell.resumed)
            found.lost = difference.lost
            found.why += difference.first
        except Exception as error:
            found.lost, found.why = len(record), f"{type(error).__name__}: {error}"
        if done.returncode or found.lost:
            found.why += f" sync: {done.returncode} {done.stdout[-600:]} {done.stderr[-600:]} {cell.said()}"
        found.home = sum(1 for _ in cell.home.rglob("*"))
        found.left = len(processes_with(str(directory)))
        if found.home or found.left:
            found.why += f" left behind: {list(cell.home.rglob('*'))[:5]} {processes_with(str(directory))}"
        return found
    except Exception as error:
        if cell.process is not None and cell.process.poll() is None:
            cell.process.kill()
        return Outcome(title, place.title, False, -1, -1, -1, math.nan, f"{type(error).__name__}: {error}")
    finally:
        if os.path.ismount(cell.root):
            subprocess.run(["umount", "-l", str(cell.root)], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def extra_seconds(cell: Cell, record: list[dict]) -> float:
    """What the tracker added to the wall time: in the loop, and from the end of training to that of the process."""
    ends = [event["wall"] for event in read_events(cell.run_dir) if event["event"] == "finish"]
    if not ends:
        return math.nan
    return sum(row.get("perf/tracking_seconds", 0.0) for row in record) + cell.ended - ends[-1]


def lost_rows(record: list[dict], reference: list[dict]) -> int:
    """Rows that are missing or, clocks apart, have another value than those of the run without a tracker."""

    def plain(row: dict) -> dict:
        return {name: value for name, value in row.items() if not is_clock(name)}

    have = {row["step"]: plain(row) for row in record}
    return sum(have.get(row["step"]) != plain(row) for row in reference)


def measure_place(make: type[Place], keys: list[str], base: Path, reference: list[dict]) -> list[Outcome]:
    place, found = make(base / make.name), []
    try:
        for key in keys:
            outcome = measure(key, place, base / make.name / key, reference)
            found.append(outcome)
            print(f"{'good' if outcome.good else 'BAD '} {key}/{make.name}: lost {outcome.lost_locally} locally, "
                  f"{outcome.lost} after sync, {outcome.owed} owed at the end, {outcome.extra:.1f} s more"
                  + (f"\n     {outcome.why}" if outcome.why else ""), flush=True)  # fmt: skip
    finally:
        place.close()
    return found


def without_tracker(base: Path) -> list[dict]:
    """Rows of the same training with the local record alone."""
    cell = Cell(Place(base), base / "plain")
    cell.directory.mkdir(parents=True)
    cell.run()
    assert cell.code == 0, cell.said()
    print(f"without a tracker: {extra_seconds(cell, read_rows(cell.run_dir)):.1f} s more", flush=True)
    return read_rows(cell.run_dir)


def table(outcomes: list[Outcome], known: Path) -> list[str]:
    """Rows of the table, in the order of the faults; what was not measured now stays as it is in `known`."""
    rows = {}
    if known.exists():
        for line in known.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) == HEAD.count("|") - 1:
                rows[cells[0], cells[1]] = line
    for outcome in outcomes:
        cells = [outcome.fault, outcome.place, "yes" if outcome.finished else "NO", outcome.lost_locally, outcome.owed,
                 outcome.lost, f"{outcome.extra:.1f}"]  # fmt: skip
        rows[outcome.fault, outcome.place] = "| " + " | ".join(str(cell) for cell in cells) + " |"
    cells = ((title, make.title) for title, _, places in FAULTS.values() for make in places)
    return [rows[cell] for cell in cells if cell in rows]


def report(outcomes: list[Outcome], known: Path, rows: int) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("wandb", "mlflow", "swanlab", "tensorboard", "torch"))
    lines = [
        "# What faults of trackers do to a run", "",
        f"Made by `python benchmarks/tracker_faults.py`, last on {date.today()}; {os.cpu_count()} cores, "
        f"{platform.system()}, Python {platform.python_version()}, {packages}.", "",
        f"Every row is a real training (`python main.py`, {rows} rows of metrics) with one tracker and one fault, then "
        "`scripts/sync.py` once the fault is gone.", "",
        "* *Lost locally*: rows that differ from those of the same training without a tracker, `time` and `perf/` "
        "apart.",
        "* *Owed at the end*: rows that, as the run itself says, the tracker does not have when training ends; one "
        "that is offline has none.",
        "* *Lost after sync*: rows of `metrics.jsonl` of which the tracker's own reader finds a value missing, "
        "different or twice. In resumed runs `time` and `perf/` apart: a step that was published before the kill stays "
        "as it was.",
        "* *Extra wall time*: seconds that tracking took in the loop, and from the end of training to that of the "
        f"process (`tracker_timeout` is {PATIENCE:.0f} s here).", "",
        HEAD, "|---|---|---|---|---|---|---|", *table(outcomes, known), "",
        "None left a file in the home directory or a process behind."
        if all(outcome.good for outcome in outcomes)
        else "NOT ALL IS WELL: see what the command prints.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cells whose `fault/place` holds this text")
    parser.add_argument("--list", action="store_true", help="name the cells and end")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "tracker_faults.md")
    options = parser.parse_args()
    plan = {make: [key for key, (_, _, places) in FAULTS.items() if make in places and
                   options.only in f"{key}/{make.name}"] for make in ALL}  # fmt: skip
    plan = {make: keys for make, keys in plan.items() if keys}
    if options.list or not plan:
        print("\n".join(f"{key}/{make.name}" for make, keys in plan.items() for key in keys) or "no such cell")
        return 0 if plan else 2
    with tempfile.TemporaryDirectory(prefix="navrl-faults-") as directory:
        base = Path(directory)
        reference = without_tracker(base)
        with ThreadPoolExecutor(options.jobs) as pool:
            order = sorted(plan, key=lambda make: -len(plan[make]))
            places = pool.map(lambda make: measure_place(make, plan[make], base, reference), order)
            outcomes = [outcome for place in places for outcome in place]
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(report(outcomes, options.out, len(reference)), encoding="utf-8")
    print(f"{options.out}: {len(outcomes)} rows, {sum(not outcome.good for outcome in outcomes)} bad")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
