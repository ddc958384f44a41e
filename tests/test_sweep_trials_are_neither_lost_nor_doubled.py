"""Workers that share a study and nothing else, and die at any moment: each trial ends once, a grid is gone through."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from navrl.sweep import search, slots
from navrl.sweep.parameters import Parameter
from navrl.sweep.spec import Sweep
from navrl.sweep.study import WORKER, SharedStudy, _again, quieten

PARAMETERS = (Parameter("lr", choices=(0.1, 0.2, 0.3)), Parameter("gamma", choices=(0.8, 0.9)))
GRID = Sweep("grid", "train/x", True, PARAMETERS, ())
TOTAL = 6
SPACE = search.space(GRID)


class Model:
    """Workers whose every operation on the shared study is one step: a schedule can put a death between any two."""

    def __init__(self, seed: int) -> None:
        quieten()
        self.random = random.Random(seed)
        self.study = optuna.create_study(direction="maximize", sampler=search.sampler(GRID))
        self.held: dict[int, optuna.Trial] = {}  # worker -> the trial that it has just begun or works on
        self.sure: set[int] = set()  # workers that have looked whether their trial counts
        self.snapshots: dict[int, list[optuna.trial.FrozenTrial]] = {}  # what a worker saw and has not acted on yet
        self.next_worker = 0

    @property
    def trials(self) -> list[optuna.trial.FrozenTrial]:
        return self.study.get_trials(deepcopy=True)

    def step(self, worker: int) -> None:
        trial = self.held.get(worker)
        if trial is None:
            self._idle(worker)
        elif worker not in self.sure:
            if slots.is_surplus(self.trials, trial.number, TOTAL):
                trial.set_user_attr(slots.REASON, slots.SURPLUS)
                self.study.tell(trial, state=TrialState.FAIL)
                self._let_go(worker)
            else:
                trial.set_user_attr(WORKER, str(worker))
                self.sure.add(worker)
        elif self.random.random() < 0.3:
            with contextlib.suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):  # taken over
                self.study.tell(trial, 1.0 + trial.number)
            self._let_go(worker)

    def _idle(self, worker: int) -> None:
        """It looks, and acts on what it saw only in a later step, when others may have acted too."""
        seen = self.snapshots.pop(worker, None)
        if seen is None:
            self.snapshots[worker] = self.trials
            return
        lost = [slot for slot in slots.slots_of(seen) if slot.lost]
        queued = any(trial.state == TrialState.WAITING for trial in seen)
        if lost:
            self.study.add_trial(_again(self.random.choice(lost)))
        elif queued or len(slots.slots_of(seen)) < TOTAL:
            self.held[worker] = self.study.ask(SPACE)

    def die(self, worker: int) -> None:
        """kill -9: what it held is found failed by the others (heartbeat, lock)."""
        trial = self.held.get(worker)
        self._let_go(worker)
        self.snapshots.pop(worker, None)
        if trial is not None and self.trials[trial.number].state == TrialState.RUNNING:
            self.study.tell(trial, state=TrialState.FAIL)

    def _let_go(self, worker: int) -> None:
        self.held.pop(worker, None)
        self.sure.discard(worker)

    def run(self, deaths: int) -> None:
        workers = [0, 1, 2]
        for _ in range(3000):
            worker = self.random.choice(workers)
            if deaths and self.random.random() < 0.15:
                self.die(worker)
                deaths -= 1
            else:
                self.step(worker)
            board = slots.slots_of(self.trials)
            if len(board) >= TOTAL and all(slot.result is not None for slot in board) and not self.held:
                return
        raise AssertionError("the sweep does not end")


@pytest.mark.parametrize("seed", range(25))
def test_every_trial_ends_once_whoever_dies_when(seed: int) -> None:
    model = Model(seed)
    model.run(deaths=seed % 5)
    board = slots.slots_of(model.trials)
    results = [slot.result for slot in board]
    assert len(board) == TOTAL
    assert all(trial is not None and trial.state == TrialState.COMPLETE for trial in results)
    complete = [trial for trial in model.trials if trial.state == TrialState.COMPLETE]
    assert sorted(t.number for t in complete) == sorted(t.number for t in results)  # none beside those that count
    points = Counter(tuple(sorted(trial.params.items())) for trial in results)
    assert points == Counter(tuple(sorted(point.items())) for point in search.grid_points(GRID))


def test_the_schedules_meet_what_they_are_for() -> None:
    """Among them are trials taken over, taken over twice by mistake, and begun beyond the last."""
    seen: Counter[str] = Counter()
    for seed in range(25):
        model = Model(seed)
        model.run(deaths=seed % 5)
        surplus = [t for t in model.trials if t.user_attrs.get(slots.REASON) == slots.SURPLUS]
        seen["taken over"] += any(len(slot.trials) > 1 for slot in slots.slots_of(model.trials))
        seen["beyond the last"] += any(slots.SLOT not in t.user_attrs for t in surplus)
        seen["taken over by two"] += any(slots.SLOT in t.user_attrs for t in surplus)
    assert min(seen[case] for case in ("taken over", "beyond the last", "taken over by two")) >= 1, seen


def test_a_trial_that_kills_its_worker_every_time_is_given_up() -> None:
    quieten()
    study = optuna.create_study(sampler=search.sampler(GRID))
    study.ask(SPACE)
    for attempt in range(slots.MAX_TAKEN_OVER + 1):
        study.tell(study.trials[-1].number, state=TrialState.FAIL)
        (slot,) = slots.slots_of(study.trials)
        assert slot.lost == (attempt < slots.MAX_TAKEN_OVER)
        if slot.lost:
            study.add_trial(_again(slot))
            assert study.ask(SPACE).params == study.trials[0].params
    assert slot.result is not None and slot.result.state == TrialState.FAIL


def test_a_trial_that_is_given_back_may_be_so_any_number_of_times(tmp_path: Path) -> None:
    shared = SharedStudy(
        f"journal:{tmp_path}/s.journal", "s", identity={}, maximize=True, sampler=search.sampler(GRID),
        pruner=search.pruner(GRID), heartbeat=1,
    )  # fmt: skip
    for _ in range(slots.MAX_TAKEN_OVER + 3):
        trial = shared.claim(SPACE, 1)
        assert trial is not None
        shared.give_back(trial)
        shared.rescue(set(), 1)
    (slot,) = slots.slots_of(shared.trials)
    assert slot.result is None and slot.last.state == TrialState.WAITING
    assert slots.GIVEN_BACK not in slot.last.user_attrs
    shared.close()


def test_what_was_known_of_a_trial_goes_with_it() -> None:
    quieten()
    study = optuna.create_study(sampler=search.sampler(GRID))
    trial = study.ask(SPACE)
    trial.set_user_attr(WORKER, "one")
    trial.report(1.5, 0)
    study.tell(trial, state=TrialState.FAIL)
    (slot,) = slots.slots_of(study.trials)
    study.add_trial(_again(slot))
    again = study.ask(SPACE)
    frozen = study.trials[again.number]
    assert again.params == trial.params and frozen.intermediate_values == {0: 1.5}
    assert slots.number_of(frozen) == 0 and WORKER not in frozen.user_attrs
    assert slots.index_of(study.trials, again.number) == 0 and not slots.is_surplus(study.trials, again.number, 1)


def test_a_sweep_that_is_cut_to_fewer_trials_ends(tmp_path: Path) -> None:
    """What waits beyond the last is taken out of the queue, once; with more trials again it comes back."""
    quieten()
    shared = SharedStudy(
        f"sqlite:///{tmp_path}/s.db", "s", identity={}, maximize=True, sampler=search.sampler(GRID),
        pruner=search.pruner(GRID), heartbeat=1,
    )  # fmt: skip
    first, second = shared.claim(SPACE, 2), shared.claim(SPACE, 2)
    assert first is not None and second is not None and shared.claim(SPACE, 2) is None
    shared.study.tell(first, 1.0)
    shared.rescue(set(), 2)  # this worker lost sight of the second
    assert [trial.state.name for trial in shared.trials] == ["COMPLETE", "FAIL", "FAIL", "WAITING"]
    assert shared.claim(SPACE, 1) is None
    for _ in range(3):
        shared.rescue(set(), 1)
    assert not any(trial.state == TrialState.WAITING for trial in shared.trials)
    shared.rescue(set(), 2)
    again = shared.claim(SPACE, 2)
    assert again is not None and again.params == second.params
    shared.close()


@pytest.mark.parametrize("kind", ["sqlite:///", "journal:"])
def test_a_study_is_in_the_file_that_was_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a?mode=memory#b" / "50%41 {x} @y.db"
    shared = SharedStudy(
        f"{kind}{path}", "s", identity={}, maximize=True, sampler=search.sampler(GRID), pruner=search.pruner(GRID),
        heartbeat=1,
    )  # fmt: skip
    assert [file for file in tmp_path.rglob("*") if file.is_file() and file.parent.suffix != ".workers"] == [path]
    shared.close()


def test_a_journal_whose_last_line_was_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    def shared() -> SharedStudy:
        return SharedStudy(
            f"journal:{tmp_path}/s.journal", "s", identity={}, maximize=True, sampler=search.sampler(GRID),
            pruner=search.pruner(GRID), heartbeat=1,
        )  # fmt: skip

    first = shared()
    trial = first.claim(SPACE, 3)
    first.study.tell(trial, 1.0)
    with open(tmp_path / "s.journal", "ab") as file:
        file.write(b'{"op_code":4,"worker_id":"x","study')  # the disk was full
    second = shared()
    assert second.claim(SPACE, 3) is not None
    assert [trial.state.name for trial in shared().trials] == ["COMPLETE", "RUNNING"]
    for one in (first, second):
        one.close()
