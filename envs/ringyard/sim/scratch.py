"""The spare copy of a simulation's state on which placement plans are made."""

from typing import Any
from weakref import ref

import numpy as np

from ringyard.sim.engine.present import renew
from ringyard.state.arrays import State, copy_state

__all__ = ["ScratchState"]


class ScratchState:
    """One copy of a simulation's state, lent to one plan at a time.

    Renewing it takes a fraction of the time of a fresh copy. Forks, pickles and deep copies of a simulation
    begin without one.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._changed: set[int] = set()
        self._user: ref[object] | None = None

    def lend(self, live: State, b: int, plan: object, changed: set[int]) -> State:
        """A copy of the present for a plan to change: the scratch, or a fresh copy while another plan has it.

        Args:
            live: the simulation.
            b: cluster.
            plan: the scratch is free again when this plan is gone.
            changed: rows of the jobs that the plan changes, which it goes on filling.
        """
        if self._user is not None and self._user() is not None:
            return copy_state(live)
        rows = np.fromiter(self._changed, np.int32, len(self._changed))
        if self._state is None or not renew(live, b, self._state, rows):
            self._state = copy_state(live)
        self._user, self._changed = ref(plan), changed
        return self._state

    def __reduce__(self) -> tuple[Any, ...]:
        return ScratchState, ()
