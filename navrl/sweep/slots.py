"""Which trials of a study count. Pure functions of its trials: every worker that reads them comes to the same answer.

A sweep of T trials has T slots. A slot is begun by a fresh trial; when the worker of a trial dies, Optuna's trial fails
and another one with the same parameters takes its slot over (user attribute ``slot``: the number of the first). Workers
share no lock, so two may begin one trial too many, or take over the same one: of those the lowest number counts, and
each worker looks, once it has begun one, whether its own does. Numbers are given out in order by the storage; all rests
on that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

SLOT = "slot"  # user attribute: number of the trial whose place this one has
REASON = "reason"  # user attribute: why it failed for good; without it its worker died, or gave it back
GIVEN_BACK = "given_back"  # user attribute: its worker lives and stopped it
SURPLUS = "one too many"  # the reason of a trial that never counted
MAX_TAKEN_OVER = 5  # times; what kills its worker every time is not begun again
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Slot:
    """One trial that counts, with those that had its place before (``trials``, by number)."""

    number: int
    trials: tuple[FrozenTrial, ...]

    @property
    def last(self) -> FrozenTrial:
        return self.trials[-1]

    @property
    def result(self) -> FrozenTrial | None:
        """The trial that came to an end: complete, pruned or failed for good."""
        for trial in self.trials:
            if trial.state in ENDED or REASON in trial.user_attrs:
                return trial
        died = sum(GIVEN_BACK not in trial.user_attrs for trial in self.trials)
        return self.last if self.dead and died > MAX_TAKEN_OVER else None

    @property
    def dead(self) -> bool:
        """Nobody works on it and nobody will, unless it is taken over."""
        return all(trial.state == TrialState.FAIL for trial in self.trials)

    @property
    def lost(self) -> bool:
        """It is to be taken over."""
        return self.dead and self.result is None


def slots_of(trials: Sequence[FrozenTrial]) -> list[Slot]:
    """The slots in order, each with its trials that count."""
    places: dict[int, list[FrozenTrial]] = defaultdict(list)
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.user_attrs.get(REASON) != SURPLUS:
            places[number_of(trial)].append(trial)
    return [Slot(number, tuple(found)) for number, found in sorted(places.items())]


def index_of(trials: Sequence[FrozenTrial], number: int) -> int:
    """The place of a trial among the slots, from 0: how many were begun before its own."""
    own = next((number_of(trial) for trial in trials if trial.number == number), number)
    return sum(slot.number < own for slot in slots_of(trials))


def is_surplus(trials: Sequence[FrozenTrial], number: int, total: int) -> bool:
    """Whether a trial that was just begun does not count: ``total`` were begun before, or its slot is another one's."""
    own = next(trial for trial in trials if trial.number == number)
    before = [trial for trial in trials if number_of(trial) == number_of(own) and trial.number < number]
    counting = [trial for trial in before if trial.user_attrs.get(REASON) != SURPLUS]
    taken = any(trial.state != TrialState.FAIL or REASON in trial.user_attrs for trial in counting)
    return taken or index_of(trials, number) >= total


def number_of(trial: FrozenTrial) -> int:
    """The number of its slot: that of the trial which began it."""
    return int(trial.user_attrs.get(SLOT, trial.number))
