"""One worker of a sweep: it takes trials from the shared study, runs them, and stays until all have ended."""

from __future__ import annotations

import contextlib
import signal
import sys
import time

import optuna
from optuna.trial import FrozenTrial, TrialState

from navrl.analysis.records import metric_names
from navrl.faults import ConfigError, Fault, nearest
from navrl.launch.local import EVERY, Halt, signals_to
from navrl.naming import compact
from navrl.redaction import redact
from navrl.sweep import search, slots
from navrl.sweep.place import Place
from navrl.sweep.study import LOST, SharedStudy, cause_of
from navrl.sweep.trial import Active, End, MetricMissing, refusal

RUNS, SEEDS = "runs", "seeds"  # user attributes of a trial: its runs (GROUP/NAME), and the value of each seed
LOOK = 1.0  # seconds between two looks at the study
PATIENCE = 5.0  # seconds before a storage that failed is asked again


class Worker:
    """Begins trials while ``jobs`` run at once leaves room, until ``total`` have ended, here or elsewhere."""

    def __init__(self, place: Place, shared: SharedStudy, *, total: int, jobs: int, retries: int) -> None:
        """retries: how often a run that crashed is gone on with."""
        self.place, self.sweep, self.shared = place, place.sweep, shared
        self.total, self.jobs, self.retries = total, jobs, retries
        self.space = search.space(place.sweep)
        self.active: list[Active] = []
        self.halt = Halt()  # the signals that this worker is sent
        self.hopeless = ""  # why no further trial makes sense,
        self.unfit = False  # here: on another machine it may
        self._said: set[str] = set()

    def run(self) -> int:
        """The exit code: 0 all ended well, 1 some failed, 2 this machine is unfit, 128 + signal."""
        looked = -LOOK
        with signals_to(self.halt), contextlib.closing(self.shared):
            while True:
                try:
                    self._poll()
                    if time.monotonic() - looked >= LOOK or any(active.ended for active in self.active):
                        looked = time.monotonic()
                        if self._look():
                            return self._last_words()
                except LOST as error:
                    if self.halt.signals and not any(active.running for active in self.active):
                        return 128 + self.halt.signals[0]  # others find that this worker is gone
                    self._say_once(f"waiting for the study, runs go on: {cause_of(error)}")
                    time.sleep(PATIENCE)
                time.sleep(EVERY)

    def _poll(self) -> None:
        """Look after the runs: signals passed on, ends taken in, places filled."""
        free = self.jobs - sum(active.running for active in self.active)
        for active in self.active:
            for number in self.halt.signals[active.passed_on :]:
                active.halt.send(number)
            active.passed_on = len(self.halt.signals)
            free -= active.poll(free)

    def _look(self) -> bool:
        """Bring the study and the runs together. True when nothing is left to do."""
        self.shared.beat(active.trial for active in self.active)
        if not self.halt.signals:
            self._rescue()
        states = {trial.number: trial.state for trial in self.shared.trials}
        for active in list(self.active):
            if states[active.trial.number] != TrialState.RUNNING:  # silent for too long: taken over
                active.stop(signal.SIGTERM)
                if active.ended:
                    self.active.remove(active)
                continue
            active.report()
            if self.sweep.hyperband and not active.halt.signals and active.trial.should_prune():
                active.prune()
            if active.ended:
                self._settle(active)
                self.active.remove(active)
        if self.halt.signals or self.hopeless:
            return not self.active
        return self._begin_more()

    def _rescue(self) -> None:
        self.shared.rescue({active.trial.number for active in self.active}, self.total)

    def _board(self) -> list[slots.Slot]:
        """The trials that count, as they are now."""
        return slots.slots_of(self.shared.trials)[: self.total]

    def _begin_more(self) -> bool:
        """Begin trials where places are free. True when all have ended, here and elsewhere."""
        while sum(active.running for active in self.active) < self.jobs and not any(a.waiting for a in self.active):
            board = self._board()
            queued = any(slot.last.state == TrialState.WAITING for slot in board)
            if not queued and (len(board) >= self.total or self._target_reached(board)):
                break
            trial = self.shared.claim(self.space, self.total)
            if trial is not None and not self._begin(trial):
                continue
            self._poll()
        others = [slot for slot in self._board() if slot.result is None]
        if others and not self.active:
            self._say_once(f"{len(others)} trials are other workers': waiting for them")
        return not self.active and not others

    def _begin(self, trial: optuna.Trial) -> bool:
        """Whether there is something to wait for: the trial's runs can be planned."""
        known = next(t for t in self.shared.trials if t.number == trial.number)
        try:
            runs = [self.place.plan(trial.params, seed) for seed in self.place.seeds]
            reason = refusal(runs)
        except ConfigError as error:
            reason = str(error.faults[0])
        if reason:
            self.shared.fail(trial, redact(reason))
            self._say(f"{_name(known)} failed: {redact(reason)}")
            return False
        trial.set_user_attr(RUNS, [run.label for run in runs])
        active = Active(trial, runs, self.sweep.metric, retries=self.retries)
        active.go_on_from(known)
        self.active.append(active)
        verb = "goes on" if slots.SLOT in known.user_attrs else "begins"
        values = " ".join(f"{key}={compact(value)}" for key, value in trial.params.items())
        self._say(f"{_name(known)} {verb}: {values}")
        return True

    def _settle(self, active: Active) -> None:
        """Tell the study how the trial ended. Where another worker took it over meanwhile, that one does."""
        trial, name = active.trial, _name(next(t for t in self.shared.trials if t.number == active.trial.number))
        try:
            end = active.end()
        except MetricMissing as missing:
            known = metric_names([missing.run_dir])
            hint = f"; nearest: {nearest(missing.metric, known)}" if known else ""
            self.hopeless = f"no row of a finished run holds {missing.metric}{hint}"
            end = End(reason=self.hopeless)
        if end.refused and not self.hopeless:
            self.hopeless, self.unfit = end.reason, True
        if self.hopeless:
            for other in self.active:
                other.stop(signal.SIGTERM)
        with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
            if end.refused:
                self._put_back(trial)
                self._say(f"{name} given back: {redact(end.reason)}")
            elif end.reason:
                self.shared.fail(trial, redact(end.reason))
                self._say(f"{name} failed: {redact(end.reason)}")
            elif end.pruned:
                self.shared.study.tell(trial, state=TrialState.PRUNED)
                self._say(f"{name} pruned after {active.reported} values" + self._standing())
            elif end.value is not None:
                trial.set_user_attr(SEEDS, dict(zip(map(str, self.place.seeds), end.seeds)))
                self.shared.study.tell(trial, end.value)
                each = f" (seeds {', '.join(f'{v:.4g}' for v in end.seeds)})" if len(end.seeds) > 1 else ""
                self._say(f"{name} {self.sweep.metric} {end.value:.4g}{each}" + self._standing())
            else:
                self._put_back(trial)
                self._say(f"{name} interrupted: it waits to be gone on with")

    def _put_back(self, trial: optuna.Trial) -> None:
        self.shared.give_back(trial)
        self._rescue()  # at once: others may wait for it

    def _standing(self) -> str:
        board = self._board()
        best = best_of(board, self.sweep.maximize)
        done = sum(slot.result is not None for slot in board)
        return f" | {done} of {self.total}" + (f", best {best.value:.4g} ({_name(best)})" if best is not None else "")

    def _target_reached(self, board: list[slots.Slot]) -> bool:
        best, target = best_of(board, self.sweep.maximize), self.sweep.target
        if target is None or best is None or best.value is None:
            return False
        return best.value >= target if self.sweep.maximize else best.value <= target

    def _last_words(self) -> int:
        board = self._board()
        failed = [slot for slot in board if slot.result is not None and slot.result.state == TrialState.FAIL]
        self._say(f"study {self.shared.study.study_name}{self._standing()}")
        for slot in failed:
            reason = slot.last.user_attrs.get(slots.REASON, f"its worker died {len(slot.trials)} times")
            print(f"trial {slot.number} failed: {reason}", file=sys.stderr)
        if self.halt.signals:
            return 128 + self.halt.signals[0]
        if self.unfit:
            reason = redact(self.hopeless)
            print(f"this machine cannot run the trials, which wait for another: {reason}", file=sys.stderr)
            return 2
        return 1 if failed else 0

    def _say(self, line: str) -> None:
        print(line, flush=True)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def open_worker(place: Place, *, trials: int | None, jobs: int, retries: int, heartbeat: int) -> Worker:
    """A worker of the sweep's study, which is made where there is none. trials: None for the number that the file says.

    Raises ConfigError where nothing says how many trials there are, StudyError where the study cannot be had.
    """
    sweep = place.sweep
    points = len(search.grid_points(sweep)) if sweep.method == "grid" else None
    total = trials or sweep.run_cap or points
    if total is None:
        raise ConfigError([Fault("--trials", f"method {sweep.method} has no end of its own: say how many trials")])
    shared = SharedStudy(
        place.storage, place.study, identity=place.identity(), maximize=sweep.maximize, sampler=search.sampler(sweep),
        pruner=search.pruner(sweep), heartbeat=heartbeat,
    )  # fmt: skip
    return Worker(place, shared, total=min(total, points or total), jobs=jobs, retries=retries)


def best_of(board: list[slots.Slot], maximize: bool) -> FrozenTrial | None:
    """The complete trial with the best value; of equal ones the first."""
    complete = [s.result for s in board if s.result is not None and s.result.state == TrialState.COMPLETE]
    sign = 1.0 if maximize else -1.0
    return max(complete, key=lambda trial: (sign * trial.value, -trial.number), default=None)


def _name(trial: FrozenTrial) -> str:
    """By the number that its slot was begun with, whoever has it now."""
    return f"trial {slots.number_of(trial)}"

