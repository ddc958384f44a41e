"""A Bayesian sweep by two workers on one study, killed again and again: is a trial lost or doubled?

    python benchmarks/sweep_soak.py [--trials 14] [--seeds 2] [--workers 2] [--kills 6] [--storage postgresql]

Each worker is ``scripts/sweep.py``, as on a machine of its own. At random moments one is killed (kill -9): it alone, so
that its runs go on, or with its runs. It is started again with the same command a moment later, or only once the other
one has had the time to take its trials over. In the end the study is held against the records of the runs: each trial
ended once, each run belongs to one trial and has each step once, and every value is the mean over seeds of the last
logged ones. Then the command is given once more and has nothing to do, and the sweep is reported (ROOT/report).
--storage postgresql (a throw-away server), sqlite or journal. Exit code 1 where anything is lost or doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import sweep_tools  # noqa: E402
from mlflow_tools import Postgres  # noqa: E402

from navrl.sweep import slots  # noqa: E402


def soak(options: argparse.Namespace, root: Path, storage: str) -> int:
    draw = random.Random(options.seed)
    # some ten seconds a run, so that kills meet trials in every phase
    metric, changes = sweep_tools.METRIC, {}
    if options.prune:  # a metric whose noise does not hide which trial is worse
        metric = "train/entropy"
        changes = {"metric": {"name": metric}, "early_terminate": {"type": "hyperband", "min_iter": 10, "eta": 3}}
    file = sweep_tools.sweep_file(root, {"total_env_steps": options.steps}, method="bayes", **changes)
    command = ("--trials", str(options.trials), "--jobs", "1", "--seeds", f"1-{options.seeds}", "--storage", storage,
               "--heartbeat", "1")  # fmt: skip

    def start(number: int):
        return sweep_tools.worker(file, *command, stdout=open(root / f"worker{number}.log", "a"))

    began = time.monotonic()
    workers = [start(number) for number in range(options.workers)]
    counts: Counter[str] = Counter()
    while counts["kills"] < options.kills and any(worker.poll() is None for worker in workers):
        time.sleep(draw.uniform(1, options.every))
        number = draw.randrange(len(workers))
        if workers[number].poll() is not None:
            break
        with_runs = draw.random() < 0.5
        counts["processes killed"] += sweep_tools.kill(workers[number], with_runs=with_runs)
        counts["kills"] += 1
        counts["kills with runs" if with_runs else "kills of the worker alone"] += 1
        time.sleep(draw.choice([0.1, 8.0]))  # heartbeats: dead after four seconds
        workers[number] = start(number)
    for worker in workers:
        worker.wait(timeout=options.timeout)
    seconds = time.monotonic() - began

    trials = sweep_tools.trials_of(storage)
    board = slots.slots_of(trials)
    wrong = sweep_tools.problems(trials, root / "runs", options.trials, options.seeds, metric)
    wrong += [f"worker {i} ended with {w.returncode}" for i, w in enumerate(workers) if w.returncode]
    again = sweep_tools.worker(file, *command)
    said = sweep_tools.finish(again)
    if len(sweep_tools.trials_of(storage)) != len(trials):
        wrong.append(f"given again it began something: {said}")
    for line in (
        f"{options.storage}, {options.workers} workers, {options.seeds} seeds a trial, {seconds:.0f} s",
        "kills -9: " + ", ".join(f"{value} {key}" for key, value in sorted(counts.items())),
        f"trials that count {len(board)}: " + ", ".join(
            f"{n} {state}" for state, n in Counter(s.result.state.name.lower() for s in board if s.result).items()),
        f"taken over: {sum(len(slot.trials) > 1 for slot in board)} trials, "
        f"{sum(len(slot.trials) - 1 for slot in board)} times",
        f"begun too many and given back {sum(t.user_attrs.get(slots.REASON) == slots.SURPLUS for t in trials)}",
        f"runs {len(sweep_tools.records(root / 'runs'))}, of {options.trials * options.seeds}",
        "lost or doubled: " + ("; ".join(wrong) or "nothing"),
    ):  # fmt: skip
        print(line)
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "sweep_report.py"), str(file), "--storage", storage, "--seeds",
         f"1-{options.seeds}", "--out", str(root / "report")], text=True, capture_output=True,
    )  # fmt: skip
    print(done.stdout + done.stderr)
    return int(bool(wrong) or done.returncode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"trials": 14, "seeds": 2, "workers": 2, "kills": 6, "seed": 0, "steps": 8000, "timeout": 900}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--every", type=float, default=15.0, help="at most so many seconds between two kills")
    parser.add_argument("--prune", action="store_true", help="with early termination")
    parser.add_argument("--storage", choices=("postgresql", "sqlite", "journal"), default="postgresql")
    parser.add_argument("--root", type=Path, help="keep everything there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        root = options.root or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="navrl-sweep-")))
        root.mkdir(parents=True, exist_ok=True)
        if options.storage == "postgresql":
            server = Postgres()
            stack.callback(server.close)
            storage = server.url
        else:
            storage = f"sqlite:///{root}/study.db" if options.storage == "sqlite" else f"journal:{root}/study.journal"
        return soak(options, root, storage)


if __name__ == "__main__":
    sys.exit(main())
