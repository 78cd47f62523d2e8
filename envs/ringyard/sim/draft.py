"""A scratch copy of who holds what, on which a scheduler plans several placements before it decides."""

import functools
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from ringyard.compiled import Int32Vector, kernel
from ringyard.errors import PlacementError
from ringyard.placement import PlacementRule, place
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.holding import hold, let_go
from ringyard.sim.engine.present import renew
from ringyard.sim.engine.shape import Shape, ask, num_places, set_shape
from ringyard.sim.fits import HELD, check_allocation, wanted
from ringyard.sim.view import SchedulingView, live
from ringyard.state.arrays import State, copy_state
from ringyard.state.records import JobKind

__all__ = ["Draft"]

#: {a simulation: copies of it whose drafts are gone, at most so many, each with the jobs changed in it}
_KEPT = 2
_SPARE: WeakKeyDictionary[State, list[tuple[State, set[int]]]] = WeakKeyDictionary()


@kernel
def _let_go(state: State, b: int, j: int) -> None:
    job = state.jobs[b, j]
    if job.first_slot >= 0 or job.server >= 0:  # else it holds nothing
        let_go(state, b, j)
    job.first_slot = -1
    job.server = -1
    ask(job)


@kernel
def _ask(state: State, b: int, j: int) -> None:
    ask(state.jobs[b, j])


@kernel
def _shape(state: State, b: int, j: int, shape: Shape) -> None:
    set_shape(state.jobs[b, j], shape)


@kernel
def _hold(state: State, b: int, j: int, shape: Shape, places: Int32Vector) -> None:
    set_shape(state.jobs[b, j], shape)
    hold(state, b, j, places, num_places(shape))


class Draft:
    """The cluster as it would be after the placements and releases planned so far.

    Args:
        view: the present moment; it is not changed (but for the seed of random rules). A draft is for
            this moment only.
    """

    def __init__(self, view: SchedulingView) -> None:
        self._live, self._b, _, _ = live(view)
        self._cluster = view.cluster
        self._changed: set[int] = set()
        self._nowhere: set[tuple[object, ...]] = set()  # who has found no place since the last release
        self._latest: int | None = None  # who took the last place, with nothing looked for since

    @functools.cached_property
    def _state(self) -> State:
        """The scratch copy, made when it is first needed: many decisions place nothing."""
        spare = _SPARE.setdefault(self._live, [])
        while spare:
            copy, changed = spare.pop()
            if renew(self._live, self._b, copy, np.fromiter(changed, np.int32, len(changed))):
                return copy
        return copy_state(self._live)

    def __del__(self) -> None:
        """Leave the copy to drafts to come."""
        own = self.__dict__.get("_state")
        spare = _SPARE.get(self._live)
        if own is not None and spare is not None and len(spare) < _KEPT:
            spare.append((own, self._changed))

    @property
    def num_free_gpus(self) -> int:
        """Free GPUs of the whole cluster."""
        return int(self._state.clusters["free_gpus"][self._b])

    @property
    def num_open_gpus(self) -> int:
        """GPUs with room for another job, of servers that are up."""
        return int(self._state.clusters["open_gpus"][self._b])

    @property
    def gpu_is_free(self) -> np.ndarray:
        """[gpus] whether a GPU holds no job and its server is up."""
        return self._state.gpus["num_jobs"][self._b] == 0

    @property
    def jobs_of_gpu(self) -> np.ndarray:
        """[gpus, K] rows of the jobs on each GPU, -1 for a free place."""
        return self._state.slots["job"][self._b].reshape(self._cluster.num_gpus, -1)

    @property
    def free_gpus_per_server(self) -> np.ndarray:
        """[servers] free GPUs, 0 while a server is down."""
        return self._state.servers["free_gpus"][self._b]

    @property
    def free_cores_per_server(self) -> np.ndarray:
        """[servers] free CPU cores; very many where the cluster does not count them."""
        return self._state.servers["free_cores"][self._b]

    def place(self, rule: PlacementRule, job: int, shape: Allocation | None = None) -> Allocation | None:
        """The allocation that starts the job where the rule puts it, taken in this draft; None: nowhere.

        Args:
            rule: says where.
            job: holds nothing in this draft.
            shape: GPUs (their number counts, not which), batch, cores, RAM, parameter servers; what it leaves
                open, or None, is as the job asks.
        """
        b = self._b
        self._changed.add(job)
        record = self._state.jobs[b, job]
        asks: tuple[object, ...] = (rule, int(record["demand_class"]))
        if shape is not None:
            size = len(shape.gpu_ids) or int(record["asked_gpus"])
            asks += (size, *(getattr(shape, name) for name in HELD))
        if asks in self._nowhere:
            return None
        if shape is not None:
            taken, _ = wanted(self._state, b, shape)
            _shape(self._state, b, job, taken._replace(num_gpus=size))
        out = self._state.gpu_scratch[b]
        count = place(self._state, b, job, rule, out)
        self._live.clusters["rng"][b] = self._state.clusters["rng"][b]
        self._latest = job if count else None
        if not count:
            self._nowhere.add(asks)
            if shape is not None:
                _ask(self._state, b, job)
            return None
        places = tuple(sorted(out[:count].tolist()))
        hold(self._state, b, job, out, count)
        found = shape or Allocation(job)
        if record["kind"] == JobKind.CPU_ONLY:
            return replace(found, job=job, gpu_ids=(), server=places[0])
        return replace(found, job=job, gpu_ids=places, server=None)

    def take(self, allocation: Allocation) -> bool:
        """Take exactly these GPUs (or this server); False, and nothing is taken, if there is no room."""
        self._latest = None
        self._changed.add(allocation.job)
        _ask(self._state, self._b, allocation.job)
        try:
            check_allocation(self._state, self._b, self._cluster, allocation)
        except PlacementError:
            return False
        shape, places = wanted(self._state, self._b, allocation)
        _hold(self._state, self._b, allocation.job, shape, places)
        return True

    def release(self, job: int) -> None:
        """Give back all the job holds, if anything."""
        if job != self._latest:  # else all is as it was before that place
            self._nowhere.clear()
        self._latest = None
        self._changed.add(job)
        _let_go(self._state, self._b, job)
