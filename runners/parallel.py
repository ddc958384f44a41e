"""One run across ranks: rank 0 runs the experiment, the others do with it what it does (data-parallel, synchronous)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from envs.base import EnvironmentFault
from navrl.ranks import RankFailed, RankLost
from runners.guards import NonFiniteError, require_finite, rollout_tensors
from runners.on_policy import OnPolicyRunner
from runners.stopping import StopRequest

ITERATE, SAVE, LOAD, END = 1, 2, 3, 4


class LeadingRunner(OnPolicyRunner):
    """Rank 0's runner: before it does what takes every rank, it says so to the others."""

    def __init__(self, *parts: Any, stop: StopRequest) -> None:
        super().__init__(*parts)
        self._stop = stop

    def iterate(self, check: Callable[[], None] = lambda: None) -> Any:
        self._order(ITERATE)
        return super().iterate(check)

    def state_dict(self) -> dict[str, Any]:
        self._order(SAVE)
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)  # raises where it does not fit, before the others hear of it
        self._order(LOAD)
        self.ranks.from_first(state)
        with self.ranks.together():
            pass

    def end(self, code: int) -> None:
        """Let the others go with this exit code; nothing where they are gone already."""
        with contextlib.suppress(RankLost):
            self._order(END)
            self.ranks.from_first(code)

    def _order(self, order: int) -> None:
        _, signal = self.ranks.largest(order, 0)
        if signal:
            self._stop.request(signal)


def follow(runner: OnPolicyRunner, stop: StopRequest) -> int:
    """A rank other than 0: do what rank 0 says until it lets go; returns the exit code. It prints and writes nothing.

    A signal that came here is told to rank 0, which ends the run after its iteration.
    """
    try:
        while True:
            order, _ = runner.ranks.largest(0, stop.number or 0)
            if order == ITERATE:
                runner.iterate(lambda: require_finite(rollout_tensors(runner.rollout)))
            elif order == SAVE:
                runner.state_dict()
            elif order == LOAD:
                state = runner.ranks.from_first()
                with runner.ranks.together():
                    runner.load_state_dict(state)
            else:
                return runner.ranks.from_first()
    except (RankLost, RankFailed, EnvironmentFault, NonFiniteError):  # rank 0 says why
        return 1
