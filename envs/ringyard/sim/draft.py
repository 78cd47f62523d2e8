"""A scratch copy of who holds what, on which a scheduler plans several placements before it decides."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.checks import shown
from ringyard.compiled import (
    BoolMatrix,
    BoolVector,
    FloatMatrix,
    FloatVector,
    Int32Vector,
    IntVector,
    kernel,
    linked_kernel,
    whole,
)
from ringyard.errors import PlacementError
from ringyard.placement import PlacementRule, place
from ringyard.resources import RESOURCES
from ringyard.sim.admission import ADMIT_ALL, AdmissionFilter
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.holding import hold, let_go
from ringyard.sim.engine.present import renew
from ringyard.sim.engine.shape import Shape, ask, num_places, set_shape, shape_of
from ringyard.sim.fits import HELD, checked_shape, gpus_of, held, wanted
from ringyard.sim.view import SchedulingView, live
from ringyard.state.arrays import State, copy_state
from ringyard.state.records import Job, JobKind

__all__ = ["Draft"]

_CPU_ONLY = int(JobKind.CPU_ONLY)

_named = attrgetter(*HELD)

#: {what a job holds beside its GPUs: the column with what it asks for}
_ASKED_BESIDE = {one.per_worker: one.asked for one in RESOURCES if one.can_change} | {
    name: f"asked_{name}" for name in ("parameter_servers", "cores_per_server_task")
}

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
def _let_all_go(state: State, b: int, jobs: Int32Vector) -> None:
    for i in range(len(jobs)):
        _let_go(state, b, jobs[i])


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


@kernel
def _hold_found(state: State, b: int, j: int, count: int, places: Int32Vector) -> int:
    """Job j takes the places found for it, which are written down; how many."""
    out = state.gpu_scratch[b]
    hold(state, b, j, out, count)
    for k in range(count):
        places[k] = out[k]
    return count


@linked_kernel
def _start(
    state: State,
    b: int,
    jobs: Int32Vector,
    rule: PlacementRule,
    gate: AdmissionFilter,
    nowhere: BoolVector,
    counts: Int32Vector,
    places: Int32Vector,
) -> int:
    """Start jobs in their order where the rule puts them, if the gate lets them; how many places they took.

    Or -1 - i, if the i-th holds something, at which it ends.

    Args:
        state: theirs.
        b: cluster.
        jobs: [n] rows.
        rule: says where.
        gate: may keep a job from starting.
        nowhere: [demand classes] gets whether one of them has found no place; False at first.
        counts: [n] gets how many places each took, where it is 0; it stays if the job does not start.
        places: [slots + n] gets these places, ascending job by job.
    """
    out = state.gpu_scratch[b]
    taken = 0
    for i in range(len(jobs)):
        j = jobs[i]
        if state.jobs[b, j].first_slot >= 0 or state.jobs[b, j].server >= 0:
            return whole(-1 - i)
        kind = state.jobs[b, j].demand_class
        if nowhere[kind]:
            continue
        count = place(state, b, j, rule, out)
        if count == 0:
            nowhere[kind] = True
        elif gate.admit_start(state, b, j, out, count, gate.of_jobs, gate.parameters):
            counts[i] = count
            taken += _hold_found(state, b, j, count, places[taken:])
    return whole(taken)


@kernel
def _or(named: float, present: float) -> float:
    return present if np.isnan(named) else named


@kernel
def _shape_named(job: Job, named: FloatVector, beside: bool) -> Shape:
    """What a job is to hold; what is not named stays as the job has it.

    Args:
        job: holds nothing.
        named: [7] fields of a `Shape`, NaN: not named.
        beside: what it names of cores, RAM and servers counts.
    """
    own = shape_of(job)
    return Shape(
        whole(named[0]),
        _or(named[1], own.batch_size),
        whole(_or(named[2], own.cores_per_worker)) if beside else own.cores_per_worker,
        whole(_or(named[3], own.parameter_servers)) if beside else own.parameter_servers,
        whole(_or(named[4], own.cores_per_server_task)) if beside else own.cores_per_server_task,
        _or(named[5], own.memory_bandwidth_cap),
        whole(_or(named[6], own.ram_per_worker)) if beside else own.ram_per_worker,
    )


@linked_kernel
def _start_as(
    state: State,
    b: int,
    jobs: Int32Vector,
    named: FloatMatrix,
    rule: PlacementRule,
    alike: IntVector,
    nowhere: BoolMatrix,
    counts: Int32Vector,
    fell_back: BoolVector,
    places: Int32Vector,
) -> int:
    """Start jobs in their order in the shapes named, or beside their GPUs as they ask; as `_start`.

    Args:
        named: [n, 7] as in `_shape_named`.
        alike: [n] equal numbers for jobs of one demand class with the same shape named, from 0.
        nowhere: [numbers, 2] gets whether such a job has found no place, as named and as it asks; False at
            first.
        fell_back: [n] gets whether the job started as it asks; False at first.
        (others): as in `_start`.
    """
    out = state.gpu_scratch[b]
    taken = 0
    for i in range(len(jobs)):
        j = jobs[i]
        job = state.jobs[b, j]
        if job.first_slot >= 0 or job.server >= 0:
            return whole(-1 - i)
        count = 0
        wanted, modest = _shape_named(job, named[i], True), _shape_named(job, named[i], False)
        for k in range(1 if wanted == modest else 2):
            if count > 0 or nowhere[alike[i], k]:
                continue
            set_shape(job, wanted if k == 0 else modest)
            count = place(state, b, j, rule, out)
            if count == 0:
                nowhere[alike[i], k] = True
                ask(job)
            fell_back[i] = k == 1
        if count > 0:
            counts[i] = count
            taken += _hold_found(state, b, j, count, places[taken:])
    return whole(taken)


def _filled(shape: Allocation | None, present: Allocation) -> Allocation:
    """A shape whose open parts are as a job has them."""
    if shape is None:
        return present
    if shape.job != present.job:
        raise PlacementError(f"the shape is of job {shape.job}; expected one of job {present.job}")
    own = {name: getattr(present, name) for name in HELD if getattr(shape, name) is None}
    return replace(shape, **own)


class Draft:
    """The cluster as it would be after the placements and releases planned so far.

    Args:
        view: the present moment; it is not changed (but for the seed of random rules). A draft is for
            this moment only.
    """

    def __init__(self, view: SchedulingView) -> None:
        self._live, self._b, _, _ = live(view)
        self._cluster = view.cluster
        self._num_jobs = int(self._live.clusters["num_jobs"][self._b])
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

        Raises:
            PlacementError: there is no such job.
        """
        b = self._b
        self._require_row(job)
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
        return self._at(shape or Allocation(job), places)

    def start(
        self, rule: PlacementRule, jobs: ArrayLike, gate: AdmissionFilter = ADMIT_ALL
    ) -> list[Allocation]:
        """Place many jobs as they ask in one compiled loop; the allocations of those that start, in order.

        Args:
            rule: says where.
            jobs: [n] rows of jobs that hold nothing in this draft; earlier ones come first.
            gate: may keep a job from starting at the places that it finds, which stay free then.

        Raises:
            PlacementError: these are no rows, or of jobs that hold something in this draft.
        """
        b, state = self._b, self._state
        rows = self._rows(jobs)
        nowhere = np.zeros(state.jobs["demand_class"][b, rows].max(initial=0) + 1, np.bool_)

        def begin(counts: NDArray[np.int32], places: NDArray[np.int32]) -> int:
            return _start(state, b, rows, rule, gate, nowhere, counts, places)

        return [self._at(Allocation(int(rows[i])), places) for i, places in self._started(rows, begin)]

    def start_as(
        self, rule: PlacementRule, num_gpus: Sequence[int], shapes: Sequence[Allocation]
    ) -> list[Allocation]:
        """Place many jobs in one compiled loop, each on so many GPUs; who starts, in order.

        A job that finds no place with the cores, RAM and parameter servers of its shape takes those that it
        asks for.

        Args:
            rule: says where.
            num_gpus: [n] GPUs of each, at least 1.
            shapes: [n] of GPU jobs that hold nothing in this draft: batch, cores, RAM, parameter servers;
                what one leaves open is as the job asks. Earlier ones come first.

        Raises:
            PlacementError: of no jobs, or of jobs that hold something in this draft or use no GPUs.
        """
        b, state = self._b, self._state
        rows = self._rows([shape.job for shape in shapes])
        self._changed.update(rows.tolist())
        named = [(size, *_named(shape)) for size, shape in zip(num_gpus, shapes, strict=True)]
        if min(num_gpus, default=1) < 1 or (state.jobs["kind"][b, rows] == _CPU_ONLY).any():
            raise PlacementError("jobs start on 0 GPUs, or use none; expected GPU jobs and at least 1 each")
        numbers: dict[tuple[Any, ...], int] = {}
        asks = zip(state.jobs["demand_class"][b, rows].tolist(), named, strict=True)
        alike = np.array([numbers.setdefault(one, len(numbers)) for one in asks], np.int64)
        nowhere = np.zeros((len(numbers), 2), np.bool_)
        fell_back = np.zeros(len(rows), np.bool_)
        given = np.array(named, np.float64).reshape(len(rows), 1 + len(HELD))  # None: NaN

        def begin(counts: NDArray[np.int32], places: NDArray[np.int32]) -> int:
            return _start_as(state, b, rows, given, rule, alike, nowhere, counts, fell_back, places)

        return [
            (self._beside_as_asked(shapes[i]) if fell_back[i] else shapes[i]).at(places)
            for i, places in self._started(rows, begin)
        ]

    def _beside_as_asked(self, shape: Allocation) -> Allocation:
        """The same shape with the cores, RAM and servers that the job asks for."""
        job = self._state.jobs[self._b, shape.job]
        asked: dict[str, Any] = {
            name: int(job[column])
            for name, column in _ASKED_BESIDE.items()
            if getattr(shape, name) is not None
        }
        return replace(shape, **asked)

    def _started(
        self, rows: NDArray[np.int32], begin: Callable[[NDArray[np.int32], NDArray[np.int32]], int]
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(position among `rows`, places) of each job that a compiled loop starts.

        Args:
            rows: [n] jobs.
            begin: the loop, given `counts` and `places` as in `_start`.
        """
        counts = np.zeros(len(rows), np.int32)
        places = np.empty(self._state.slots.shape[1] + len(rows), np.int32)
        try:
            taken = begin(counts, places)
            self._live.clusters["rng"][self._b] = self._state.clusters["rng"][self._b]
            self._latest = None
            if taken < 0:
                self._raise_if_held(int(rows[-1 - taken]))
        except Exception:
            for job in rows[counts > 0].tolist():  # nobody starts
                self.release(job)
            raise
        started = np.flatnonzero(counts)
        self._changed.update(rows[started].tolist())
        first, all_places = 0, places[:taken].tolist()
        for i, count in zip(started.tolist(), counts[started].tolist(), strict=True):
            yield i, tuple(all_places[first : first + count])
            first += count

    def _rows(self, jobs: ArrayLike) -> NDArray[np.int32]:
        """[n] rows of jobs as people give them."""
        try:
            given = np.asarray(jobs)
        except ValueError:  # lists of several lengths
            given = np.zeros((0, 0))
        if given.ndim != 1 or (
            len(given) and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= self._num_jobs)
        ):
            raise PlacementError(
                f"jobs is {shown(jobs)}; expected a list of rows of jobs, each in 0..{self._num_jobs - 1}"
            )
        return given.astype(np.int32)

    def _require_row(self, job: int) -> None:
        """Raise PlacementError for what is no row of a job: compiled code would write beyond its arrays."""
        if not isinstance(job, int | np.integer) or not 0 <= job < self._num_jobs:
            raise PlacementError(f"there is no job {shown(job)}; expected a row in 0..{self._num_jobs - 1}")

    def _raise_if_held(self, job: int) -> None:
        record = self._state.jobs[self._b, job]
        if record["first_slot"] >= 0 or record["server"] >= 0:
            raise PlacementError(f"job {job} holds something in this draft; release it first")

    def _at(self, shape: Allocation, places: tuple[int, ...]) -> Allocation:
        """An allocation of this shape at places."""
        if self._state.jobs["kind"][self._b, shape.job] == _CPU_ONLY:
            return shape.at(server=places[0])
        return shape.at(places)

    def take(self, allocation: Allocation) -> bool:
        """Take exactly these GPUs (or this server); False, and nothing is taken, if there is no room.

        Raises:
            PlacementError: there is no such job.
        """
        self._require_row(allocation.job)
        self._latest = None
        self._changed.add(allocation.job)
        _ask(self._state, self._b, allocation.job)
        try:
            taken = checked_shape(self._state, self._b, self._cluster, allocation)
        except PlacementError:
            return False
        if taken is not None:
            _hold(self._state, self._b, allocation.job, *taken)
        return True

    def change(self, first: Allocation, *then: Allocation) -> bool:
        """Let a running job hold exactly this, step by step; False, and it holds what it held: no room.

        As when allocations are carried out, what a step leaves open stays as the job has it.

        Raises:
            PlacementError: steps of several jobs, or of none that there is.
        """
        job, steps = first.job, (first, *then)
        if any(one.job != job for one in steps):
            raise PlacementError(
                f"the steps are of jobs {shown([one.job for one in steps])}; expected one job"
            )
        present = self._held(job)
        for step in steps:
            try:
                taken = checked_shape(self._state, self._b, self._cluster, step)
            except PlacementError:
                self.release(job)
                self.take(present)
                return False
            self.release(job)
            if taken is not None:
                _hold(self._state, self._b, job, *taken)
        return True

    def move(
        self, rule: PlacementRule, job: int, shapes: Sequence[Allocation | None] = (None,)
    ) -> Allocation | None:
        """Let a running job go where the rule puts it; None, and it holds what it held, if that is nowhere.

        Args:
            rule: says where.
            job: holds something in this draft.
            shapes: GPUs (their number counts, not which) and the rest; what one leaves open, or None, stays
                as the job has it. The first that finds places counts.

        Raises:
            PlacementError: there is no such job, or a shape is of another.
        """
        present = self._held(job)
        kept = [_filled(shape, present) for shape in shapes]
        self.release(job)
        for shape in kept:
            found = self.place(rule, job, shape)
            if found is not None:
                return found
        self.take(present)
        return None

    def evict(self, job: int) -> Allocation:
        """Stop a running job: it gives back all it holds.

        Raises:
            PlacementError: there is no such job.
        """
        self.release(job)
        return Allocation(job)

    def evict_all(self, jobs: ArrayLike) -> list[Allocation]:
        """Stop running jobs in one compiled loop.

        Args:
            jobs: [n] rows.

        Raises:
            PlacementError: these are no rows.
        """
        rows = self._rows(jobs)
        if len(rows):
            self._nowhere.clear()
            self._latest = None
            self._changed.update(rows.tolist())
            _let_all_go(self._state, self._b, rows)
        return [Allocation(job) for job in rows.tolist()]

    def evict_for(self, rule: PlacementRule, job: int, others: Iterable[int]) -> list[Allocation]:
        """Stop running jobs, one after the other, until the rule finds places for a job as it asks.

        Args:
            rule: says where.
            job: holds nothing in this draft.
            others: who may be stopped, first comes first; who holds nothing is passed over.

        Returns:
            The stops, then the start; none, and nobody is stopped, where all of them are not enough.

        Raises:
            PlacementError: there is no such job, or it holds something in this draft.
        """
        self._require_row(job)
        self._raise_if_held(job)
        stopped: list[Allocation] = []
        for other in others:
            present = self._held(other)
            if not present.gpu_ids and present.server is None:
                continue
            stopped.append(present)
            self.release(other)
            found = self.place(rule, job)
            if found is not None:
                return [*(Allocation(one.job) for one in stopped), found]
        for one in stopped:
            self.take(one)
        return []

    def _held(self, job: int) -> Allocation:
        """What a job holds in this draft."""
        self._require_row(job)
        return held(self._state, self._b, job, tuple(gpus_of(self._state, self._b, job).tolist()))

    def release(self, job: int) -> None:
        """Give back all the job holds, if anything.

        Raises:
            PlacementError: there is no such job.
        """
        self._require_row(job)
        if job != self._latest:  # else all is as it was before that place
            self._nowhere.clear()
        self._latest = None
        self._changed.add(job)
        _let_go(self._state, self._b, job)
