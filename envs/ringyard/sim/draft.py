"""A scratch copy of who holds what, on which a scheduler plans several placements before it decides."""

from typing import Any

from ringyard.compiled import kernel
from ringyard.placement import PlacementRule
from ringyard.records import JobKind
from ringyard.sim.allocation import Allocation
from ringyard.sim.holding import hold, let_go
from ringyard.sim.shape import ask
from ringyard.sim.view import SchedulingView
from ringyard.state import copy_state

__all__ = ["Draft"]


@kernel
def _let_go(state: Any, b: int, j: int) -> None:
    let_go(state, b, j)
    ask(state.jobs[b, j])


class Draft:
    """The cluster as it would be after the placements and releases planned so far.

    Args:
        view: the present moment; it is not changed (but for the seed of random rules).
    """

    def __init__(self, view: SchedulingView) -> None:
        self._live = view.state
        self._b = view.b
        self._state = copy_state(view.state)

    @property
    def num_free_gpus(self) -> int:
        """Free GPUs of the whole cluster."""
        return int(self._state.clusters["free_gpus"][self._b])

    def place(self, rule: PlacementRule, job: int) -> Allocation | None:
        """The allocation that starts the job where the rule puts it, taken in this draft; None: nowhere."""
        b = self._b
        out = self._state.gpu_scratch[b]
        count = rule.place(self._state, b, job, rule.parameters, out)
        self._live.clusters["rng"][b] = self._state.clusters["rng"][b]
        if not count:
            return None
        places = tuple(sorted(int(place) for place in out[:count]))
        hold(self._state, b, job, out, count)
        if self._state.jobs["kind"][b, job] == JobKind.CPU_ONLY:
            return Allocation(job, server=places[0])
        return Allocation(job, places)

    def release(self, job: int) -> None:
        """Give back all the job holds."""
        _let_go(self._state, self._b, job)
