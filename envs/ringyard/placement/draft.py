"""A scratch copy of who holds what, on which a scheduler plans several placements before it decides."""

from typing import TYPE_CHECKING

import numpy as np

from ringyard.placement.rule import PlacementRule

if TYPE_CHECKING:
    from ringyard.sim.view import SchedulingView

__all__ = ["Draft"]


class Draft:
    """GPUs as they would be after the placements and releases planned so far.

    Args:
        view: the present moment; it is not changed (but for the seed of random rules).
    """

    def __init__(self, view: "SchedulingView") -> None:
        live = view.state
        self._live = live
        self._b = view.b
        self._state = live._replace(
            gpus=live.gpus.copy(), servers=live.servers.copy(), clusters=live.clusters.copy()
        )

    @property
    def num_free_gpus(self) -> int:
        """Free GPUs of the whole cluster."""
        return int(self._state.clusters["free_gpus"][self._b])

    def place(self, rule: PlacementRule, job: int) -> tuple[int, ...]:
        """GPUs the rule gives to the job, now taken in this draft; () if it finds none."""
        b = self._b
        out = np.empty(self._state.gpus.shape[1], np.int32)
        count = rule.place(self._state, b, job, rule.parameters, out)
        self._live.clusters["rng"][b] = self._state.clusters["rng"][b]
        if count:
            self._shift(out[:count], job, -1)
        return tuple(sorted(int(gpu) for gpu in out[:count]))

    def release(self, job: int) -> None:
        """Free the GPUs the job holds."""
        self._shift(np.flatnonzero(self._state.gpus["job"][self._b] == job), -1, 1)

    def _shift(self, gpus: np.ndarray, holder: int, change: int) -> None:
        b = self._b
        self._state.gpus["job"][b, gpus] = holder
        servers, counts = np.unique(self._state.gpus["server"][b, gpus], return_counts=True)
        self._state.servers["free_gpus"][b, servers] += (change * counts).astype(np.int32)
        self._state.clusters["free_gpus"][b] += change * len(gpus)
        if len(servers) > 1:
            self._state.servers["spanning_jobs"][b, servers] -= change
