"""`PlacementPlan`: a scheduler tries placements on a copy of the cluster before it decides."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.checks import shown
from ringyard.compiled import FloatVector, Int32Vector, entry_point, kernel, linked_kernel, to_int
from ringyard.errors import PlacementError
from ringyard.performance.plan_table import FASTEST
from ringyard.placement import PlacementRule, place
from ringyard.sim.admission import ADMIT_ALL, AdmissionFilter
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.allocation import allocate, release
from ringyard.sim.engine.shape import current_shape, num_places, override_shape, set_asked_shape, set_shape
from ringyard.sim.feasibility import (
    FITS,
    PLACE,
    SHAPE_FIELDS,
    Request,
    check_allocation,
    current_allocation,
    find_problem,
    read_request,
    requested_shape,
    shape_values,
)
from ringyard.sim.view import Occupancy, SchedulingView, unrestricted
from ringyard.state.arrays import State
from ringyard.state.records import JobKind

_A_RULE = "a PlacementRule, such as pack()"
_NO_OVERRIDES = np.full(1 + len(SHAPE_FIELDS), np.nan)  # overrides nothing of a shape


@kernel
def _release(state: State, b: int, j: int) -> None:
    """Release what job `j` of cluster `b` of `state` holds, if anything, and reset its shape."""
    job = state.jobs[b, j]
    if job.first_slot >= 0 or job.server >= 0:
        release(state, b, j)
    job.first_slot = -1
    job.server = -1
    set_asked_shape(job)


@linked_kernel
def _reallocate(state: State, b: int, request: Request) -> bool:
    """Replace what the job of a request holds by the request. False: there is no room for it."""
    if find_problem(state, b, request).cause != FITS:
        return False
    shape = requested_shape(state, b, request)
    _release(state, b, request.job)
    if request.kind == PLACE:
        set_shape(state.jobs[b, request.job], shape)
        allocate(state, b, request.job, request.places, num_places(shape))
    return True


@linked_kernel
def _place(state: State, b: int, j: int, overrides: FloatVector, rule: PlacementRule) -> int:
    """Let `rule` place job `j`, which holds nothing; return the number of places in `State.gpu_scratch`.

    `overrides` are those of `override_shape`. A job without a place gets its asked shape back.
    """
    job, out = state.jobs[b, j], state.gpu_scratch[b]
    own = current_shape(job)
    wanted = override_shape(own, overrides, True)
    if wanted != own:
        set_shape(job, wanted)
    count = place(state, b, j, rule, out)
    if count > 0:
        allocate(state, b, j, out, count)
    elif wanted != own:
        set_asked_shape(job)
    return count


@linked_kernel
def _start(
    state: State,
    b: int,
    jobs: Int32Vector,
    rule: PlacementRule,
    admission: AdmissionFilter,
    counts: Int32Vector,
    places: Int32Vector,
) -> int:
    """Start jobs in their order where the rule places them, if the filter admits them.

    Once a job finds no place, the others of its demand class are not tried. `counts` [n] and `places` [slots
    + n] get the places of each job that starts, ascending within a job.

    Returns the number of places, or -1 - i if the i-th job holds something, at which the loop ends.
    """
    cluster, out = state.clusters[b], state.gpu_scratch[b]
    cluster.visit_mark += 1
    taken = 0
    for i in range(len(jobs)):
        j = jobs[i]
        job = state.jobs[b, j]
        if job.first_slot >= 0 or job.server >= 0:
            return to_int(-1 - i)
        if state.class_marks[b, job.demand_class] == cluster.visit_mark:
            continue
        count = place(state, b, j, rule, out)
        if count == 0:
            state.class_marks[b, job.demand_class] = cluster.visit_mark
        elif admission.admit_start(state, b, j, out, count, admission.of_jobs, admission.parameters):
            counts[i] = count
            allocate(state, b, j, out, count)
            for k in range(count):
                places[taken + k] = out[k]
            taken += count
    return to_int(taken)


def _filled(shape: Allocation | None, present: Allocation) -> Allocation:
    """Return `shape` with its open fields as in `present`, the allocation of the same job."""
    if shape is None:
        return present
    if shape.job != present.job:
        raise PlacementError(f"the shape is of job {shape.job}; expected one of job {present.job}")
    own = {name: getattr(present, name) for name in SHAPE_FIELDS if getattr(shape, name) is None}
    if shape.plan is None and len(shape.gpu_ids) not in (0, len(present.gpu_ids)):
        own["plan"] = FASTEST
    return replace(shape, **own)


def _require(name: str, value: object, kind: type, expected: str) -> None:
    if not isinstance(value, kind):
        raise PlacementError(f"{name} is {shown(value)}; expected {expected}")


class PlacementPlan(Occupancy):
    """The cluster after the placements and releases planned so far. Nothing is carried out.

    A scheduler tries placements on a plan and returns the allocations that it likes.

    Args:
        view: the present, for which alone the plan is valid. Plans advance its seed of random placement
            rules.
    """

    def __init__(self, view: SchedulingView) -> None:
        self._live, self._b, _, performance = unrestricted(view)
        self._plans = performance.plans
        self._scratch = view._scratch
        self.cluster = view.cluster
        self._num_jobs = int(self._live.clusters["num_jobs"][self._b])
        #: rows of the jobs with records that differ from those of the simulation
        self._changed: set[int] = set()
        #: (rule, demand class, shape) that found no place since the last release, and need no new try
        self._unplaced: set[tuple[object, ...]] = set()
        #: the job placed last, if no other was tried since
        self._last_placed: int | None = None

    @functools.cached_property
    def _state(self) -> State:  # type: ignore[override]
        """The copy that is planned on. It is made at first use, since many decisions place nothing."""
        return self._scratch.lend(self._live, self._b, self, self._changed)

    @property
    def num_open_gpus(self) -> int:
        """Number of GPUs with room for another job, on servers that are up."""
        return int(self._state.clusters["open_gpus"][self._b])

    def place(self, rule: PlacementRule, job: int, shape: Allocation | None = None) -> Allocation | None:
        """Place a job by a rule, allocate the places in this plan, and return the allocation that starts it.

        Args:
            rule: placement rule.
            job: row of a job that holds nothing in this plan.
            shape: number of GPUs (their ids do not matter), batch, cores, RAM and parameter servers. Fields
                that are None, or all of them, are as the job asks.

        Returns:
            The allocation, or None if the rule finds no place.

        Raises:
            PlacementError: there is no such job, or it holds something in this plan.
        """
        b = self._b
        _require("rule", rule, PlacementRule, _A_RULE)
        self._raise_if_held(job)
        self._changed.add(job)
        record = self._state.jobs[b, job]
        asks: tuple[object, ...] = (rule, int(record["demand_class"]))
        overrides = _NO_OVERRIDES
        if shape is not None:
            asks += (len(shape.gpu_ids) or int(record["asked_gpus"]), *shape_values(shape))
            overrides = np.array(asks[2:], np.float64)  # None becomes NaN
        if asks in self._unplaced:
            return None
        count = entry_point(_place)(self._state, b, job, overrides, rule)
        self._live.clusters["rng"][b] = self._state.clusters["rng"][b]
        self._last_placed = job if count else None
        if not count:
            self._unplaced.add(asks)
            return None
        return self._at(shape or Allocation(job), tuple(self._state.gpu_scratch[b, :count].tolist()))

    def start(
        self, rule: PlacementRule, jobs: ArrayLike, admission: AdmissionFilter = ADMIT_ALL
    ) -> list[Allocation]:
        """Place many jobs as they ask, in one compiled loop.

        Args:
            rule: placement rule.
            jobs: [n] rows of jobs that hold nothing in this plan, the first to be placed first.
            admission: may keep a job from starting on the places found for it, which then stay free.

        Returns:
            The allocations of the jobs that start, in order.

        Raises:
            PlacementError: `jobs` are not rows, or one holds something in this plan.
        """
        _require("rule", rule, PlacementRule, _A_RULE)
        _require("admission", admission, AdmissionFilter, "an AdmissionFilter")
        rows = self._rows(jobs)
        if not len(rows):
            return []
        b, state = self._b, self._state
        counts = np.zeros(len(rows), np.int32)
        places = np.empty(state.slots.shape[1] + len(rows), np.int32)
        try:
            taken = entry_point(_start)(state, b, rows, rule, admission, counts, places)
            self._live.clusters["rng"][b] = state.clusters["rng"][b]
            self._last_placed = None
            if taken < 0:
                self._raise_if_held(int(rows[-1 - taken]))
        except Exception:
            for job in rows[counts > 0].tolist():  # an error must leave the plan as it was
                self.release(job)
            raise
        started = rows[counts > 0].tolist()
        self._changed.update(started)
        ends = np.cumsum(counts[counts > 0]).tolist()
        every = places[:taken].tolist()
        return [
            self._at(Allocation(job), tuple(every[begin:end]))
            for job, begin, end in zip(started, [0, *ends], ends, strict=False)
        ]

    def _rows(self, jobs: ArrayLike) -> NDArray[np.int32]:
        """Return users' `jobs` as [n] rows."""
        try:
            given = np.asarray(jobs)
        except ValueError:  # lists of several lengths
            given = np.zeros((0, 0))
        if given.ndim != 1 or (
            len(given) and (given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= self._num_jobs)
        ):
            expected = f"a list of rows of jobs, each in 0..{self._num_jobs - 1}"
            raise PlacementError(f"jobs is {shown(jobs)}; expected {expected}")
        return given.astype(np.int32)

    def _require_row(self, job: int) -> None:
        """Raise PlacementError if `job` is not a row. Compiled code would write beyond its arrays."""
        if not isinstance(job, int | np.integer) or not 0 <= job < self._num_jobs:
            raise PlacementError(f"there is no job {shown(job)}; expected a row in 0..{self._num_jobs - 1}")

    def _raise_if_held(self, job: int) -> None:
        self._require_row(job)
        record = self._state.jobs[self._b, job]
        if record["first_slot"] >= 0 or record["server"] >= 0:
            raise PlacementError(f"job {job} holds something in this plan; release it first")

    def _at(self, shape: Allocation, places: tuple[int, ...]) -> Allocation:
        """Return an allocation of this shape at the places."""
        if int(self._state.jobs["kind"][self._b, shape.job]) == JobKind.CPU_ONLY:
            return shape.at(server=places[0])
        return shape.at(places)

    def allocate(self, allocation: Allocation) -> bool:
        """Allocate exactly the GPUs, or the server, of `allocation` to its job, which holds nothing yet.

        Returns:
            Whether there was room. If not, nothing is allocated.

        Raises:
            PlacementError: there is no such job, or it holds something in this plan.
        """
        self._raise_if_held(allocation.job)
        self._last_placed = None
        self._changed.add(allocation.job)
        entry_point(_release)(self._state, self._b, allocation.job)
        return self._try(allocation)

    def _try(self, allocation: Allocation) -> bool:
        """Let a job hold an allocation in place of what it holds. Returns whether there was room."""
        try:
            request = read_request(allocation)
            if self._plans is not None:
                check_allocation(self._state, self._b, self.cluster, allocation, self._plans)
        except PlacementError:
            return False
        return bool(entry_point(_reallocate)(self._state, self._b, request))

    def reallocate(self, first: Allocation, *then: Allocation) -> bool:
        """Change what a running job holds, step by step. Open fields of a step stay as the job has them.

        Args:
            first: first allocation of the job.
            *then: further allocations of the same job.

        Returns:
            Whether there was room for each step. If not, the job holds what it held before.

        Raises:
            PlacementError: there is no such job, or the steps are of several jobs.
        """
        job, steps = first.job, (first, *then)
        if any(one.job != job for one in steps):
            named = shown([one.job for one in steps])
            raise PlacementError(f"the steps are of jobs {named}; expected one job")
        present = self._held(job)
        self._forget(job)
        if all(map(self._try, steps)):
            return True
        self.release(job)
        self.allocate(present)
        return False

    def migrate(
        self, rule: PlacementRule, job: int, shapes: Sequence[Allocation | None] = (None,)
    ) -> Allocation | None:
        """Migrate or resize a job to the place that a rule finds.

        Args:
            rule: placement rule.
            job: row of a job that holds something in this plan.
            shapes: shapes to try in order. Numbers of GPUs count, their ids do not. Fields that are None, or
                all of them, stay as the job has them.

        Returns:
            The allocation in the first shape that finds a place. None if none does: the job holds what it
                held.

        Raises:
            PlacementError: there is no such job, or a shape is of another job.
        """
        present = self._held(job)
        kept = [_filled(shape, present) for shape in shapes]
        self.release(job)
        for shape in kept:
            found = self.place(rule, job, shape)
            if found is not None:
                return found
        self.allocate(present)
        return None

    def preempt(self, jobs: ArrayLike) -> list[Allocation]:
        """Preempt running jobs and return their [n] empty allocations.

        Args:
            jobs: [n] rows.

        Raises:
            PlacementError: `jobs` are not rows.
        """
        rows = self._rows(jobs).tolist()
        for job in rows:
            self.release(job)
        return [Allocation(job) for job in rows]

    def preempt_for(self, rule: PlacementRule, job: int, others: Iterable[int]) -> list[Allocation]:
        """Preempt running jobs one by one until a rule finds a place for a job as it asks.

        Args:
            rule: placement rule.
            job: row of a job that holds nothing in this plan.
            others: rows of jobs that may be preempted, in this order. Those that hold nothing are skipped.

        Returns:
            The preemptions and then the start. Empty if preempting all of them is not enough.

        Raises:
            PlacementError: there is no such job, or it holds something in this plan.
        """
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
            self.allocate(one)
        return []

    def _held(self, job: int) -> Allocation:
        """Return what a job holds in this plan."""
        self._require_row(job)
        return current_allocation(self._state, self._b, job)

    def release(self, job: int) -> None:
        """Release everything that a job holds in this plan, if anything.

        Raises:
            PlacementError: there is no such job.
        """
        self._require_row(job)
        self._forget(job)
        entry_point(_release)(self._state, self._b, job)

    def _forget(self, job: int) -> None:
        """Note that a job gives something up, which may make room for others."""
        if job != self._last_placed:  # that job's places were free before
            self._unplaced.clear()
        self._last_placed = None
        self._changed.add(job)
