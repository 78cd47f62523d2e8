"""Gavel's max-min fairness over GPU types (Narayanan et al., OSDI 2020)."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import Positive, checked
from ringyard.observability import Observability
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import TimeSlots, start_cpu_jobs

#: with fewer jobs the solver keeps more than two variables, so that the program cannot be reduced
_MIN_JOBS_FOR_REDUCTION = 24

_Floats = tuple[float, ...]


def max_min_shares(
    throughput: NDArray[np.float64], scale: NDArray[np.float64], gpus: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return [jobs, types] fractions of time X of each job on each GPU type, by max-min linear program.

    It maximises the minimum over jobs of scale_j x sum_t T_jt X_jt / (T_j under an equal split), with sum_t
    X_jt <= 1 and sum_j scale_j X_jt <= gpus_t. T is the throughput in iterations per second, 0 where a job
    cannot run, scale [jobs] the GPUs of each. The equal split gives every job each type's share of the
    cluster. `_one_type_shares` shortens the program for one type.
    """
    jobs, types = throughput.shape
    equal = throughput @ (gpus / gpus.sum())
    value = scale[:, None] * throughput / np.maximum(equal, 1e-300)[:, None]
    known = _one_type_shares(value[:, 0], scale, gpus[0]) if types == 1 else None
    if known is not None:
        return known[:, None]
    flat = np.arange(jobs * types)
    job, gpu_type = np.divmod(flat, types)
    rows = np.concatenate([job, np.arange(jobs), jobs + job, 2 * jobs + gpu_type])
    columns = np.concatenate([flat, np.full(jobs, jobs * types), flat, flat])
    ones, scales = np.ones((types + 1) * jobs), np.repeat(scale, types)
    entries = np.concatenate([-value.reshape(-1), ones, scales])
    matrix = csc_array((entries, (rows, columns)), shape=(2 * jobs + types, jobs * types + 1))
    limits = np.concatenate([np.zeros(jobs), np.ones(jobs), gpus])
    cost = np.zeros(jobs * types + 1)
    cost[-1] = -1.0
    most = np.append((throughput > 0).reshape(-1), np.inf)
    # no variable is an integer, but `linprog` calls the same solver and takes 1.5 times as long
    solved = milp(cost, constraints=LinearConstraint(matrix, ub=limits), bounds=Bounds(0.0, most))
    return np.clip(solved.x[:-1].reshape(jobs, types), 0.0, 1.0)


def _one_type_shares(
    value: NDArray[np.float64], scale: NDArray[np.float64], gpus: float
) -> NDArray[np.float64] | None:
    """Return [jobs] the solver's shares for one GPU type to the last digit, or None to ask the solver.

    `value` [jobs] is the factor of X_j in the minimum, `scale` [jobs] the GPUs of each job, `gpus` those of
    the type. All jobs run all the time if there are GPUs for that. Otherwise no job gets more than the
    minimum, which is what the job of smallest value reaches when it runs all the time, if there are GPUs for
    that. Otherwise the minimum determines all jobs but the first. The solver is asked for these two, since
    its last digits break ties.
    """
    if scale.sum() <= gpus:
        return np.ones(len(scale))
    least = value.min()
    if len(value) * least <= gpus:
        within_tolerance = value[value < least * (1.0 + 1e-9)]  # the solver may take any of these
        return least / value if within_tolerance.max() == least else None
    if len(value) < _MIN_JOBS_FOR_REDUCTION:
        return None
    # each other job needs one GPU for each unit of the minimum
    matrix = (-float(value[0]), 1.0), (float(scale[0]), len(value) - 1.0)
    first, minimum = _solve((0.0, -1.0), matrix, (0.0, float(gpus)), (1.0, np.inf))
    return np.append(first, minimum / value[1:])


@functools.lru_cache(maxsize=1024)  # jobs come and go, and the first one stays
def _solve(cost: _Floats, matrix: tuple[_Floats, ...], limits: _Floats, most: _Floats) -> _Floats:
    """Return variables from 0 to `most` of least `cost`, where `matrix` x variables are within `limits`."""
    constraints = LinearConstraint(matrix, ub=limits)
    return tuple(milp(cost, constraints=constraints, bounds=Bounds(0.0, most)).x)


@checked("gavel")
@dataclass(eq=False)
class Gavel(Scheduler):
    """Gavel of Narayanan et al. (OSDI 2020): time fractions by linear program, realised in rounds.

    FOUND (public code): the program of `max_min_shares` with weights 1. Rounds pick (job, type) pairs by X
    over the rounds received so far. From memory of the paper: rounds of 6 minutes. The program is solved anew
    when the set of jobs has changed. Assumed: a job that keeps its type from round to round keeps its GPUs.
    GPUs that a round leaves free go to waiting jobs in order of priority, whatever X says of their type. A
    cluster without GPU types has one type. A gang larger than any type runs on mixed GPUs for its equal share
    of time.
    """

    name = "gavel"
    observability = Observability.SIZES | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT

    #: where jobs without a type go: CPU-only jobs, gangs on mixed GPUs, and, when a round leaves GPUs or
    #: places beside other jobs free, jobs that find no room on free GPUs of one type.
    placement: PlacementRule
    round_seconds: Positive = 360.0  #: length of a round in seconds. Assumption.

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the rounds that jobs have received (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        types = cluster.distinct_gpu_types
        by_server = [types.index(name) for name in cluster.gpu_types] if types else [0] * cluster.num_servers
        self._type_of_gpu = np.repeat(by_server, cluster.gpus_per_server)
        self._server_of_gpu = cluster.server_of_gpu
        self._mixed = max(len(types), 1)  # column of jobs that need GPUs of several types, the last
        self._received = np.zeros((len(jobs), self._mixed + 1))
        self._throughput = np.full((len(jobs), self._mixed), np.nan)  # NaN: not yet profiled
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._solved: tuple[NDArray[np.int64], NDArray[np.float64]] = np.zeros(0, np.int64), np.zeros((0, 1))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Begin a round, or between rounds give free GPUs to the next jobs."""
        jobs = view.gpu_jobs
        if not np.array_equal(jobs, self._solved[0]):
            self._solved = (jobs, self._shares(view, jobs))
        plan = PlacementPlan(view)
        allocations: list[Allocation] = []
        chosen: dict[int, int] = {}
        if self._slots.begins(view):
            chosen = self._round(view)
            for job in view.running.tolist():
                gpus = view.gpus_of(job)
                if gpus and chosen.get(job) not in (self._type_of_gpu[gpus[0]], self._mixed):
                    allocations += plan.preempt([job])
        held = set(view.running.tolist()) - {allocation.job for allocation in allocations}
        allocations += start_cpu_jobs(view, plan, self.placement)
        wanted = np.array([pair for pair in chosen.items() if pair[0] not in held], dtype=np.int64)
        pairs = np.concatenate([wanted.reshape(-1, 2), self._by_priority()])
        sizes = view.column("asked_gpus")[pairs[:, 0]]
        room = self._free_by_type(plan)
        fits = sizes <= np.array(room)[pairs[:, 1]]
        for (job, gpu_type), size in zip(pairs[fits].tolist(), sizes[fits].tolist(), strict=True):
            if job in held or size > room[gpu_type]:
                continue
            found = self._place(view, plan, job, gpu_type)
            if found is not None:
                allocations.append(found)
                held.add(job)
                room = self._free_by_type(plan)
        return allocations

    def _shares(self, view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        new = jobs[np.isnan(self._throughput[jobs, 0])]
        if len(new):
            self._throughput[new] = self._profiled(view, new)
        throughput = self._throughput[jobs]
        gpus = np.bincount(self._type_of_gpu, minlength=self._mixed).astype(np.float64)
        scale = view.column("asked_gpus")[jobs].astype(np.float64)
        throughput *= scale[:, None] <= gpus[None, :]  # a gang runs on one type
        typed = (throughput > 0).any(axis=1)
        shares = np.zeros((len(jobs), self._received.shape[1]))
        if typed.any():
            shares[typed, : self._mixed] = max_min_shares(throughput[typed], scale[typed], gpus)
        shares[~typed, self._mixed] = min(1.0, gpus.sum() / max(scale.sum(), 1.0))
        return shares

    def _profiled(self, view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return [jobs, types] iterations per second, 0 where memory is too small."""
        types = [None] if self._mixed == 1 else range(self._mixed)
        throughput = np.stack(
            [1.0 / isolated_iteration_seconds(view, jobs, gpu_type=gpu_type) for gpu_type in types], axis=1
        )
        memory = np.full(self._mixed, np.inf)
        memory[self._type_of_gpu] = view.cluster.gpu_memory_bytes[self._server_of_gpu]
        return throughput * (view.column("gpu_memory_bytes")[jobs][:, None] <= memory[None, :])

    def _by_priority(self) -> NDArray[np.int64]:
        """Return [pairs, 2] (job, type), the most urgent first."""
        jobs, shares = self._solved
        urgency = np.where(shares > 0, shares / np.maximum(self._received[jobs], 1e-9), 0.0)
        row, gpu_type = np.divmod(np.argsort(-urgency, axis=None, kind="stable"), shares.shape[1])
        return np.stack([jobs[row], gpu_type], axis=1)

    def _free_by_type(self, plan: PlacementPlan) -> list[int]:
        """Return [types + 1] free GPUs of each type, then GPUs for jobs on mixed types."""
        free = np.bincount(self._type_of_gpu[plan.gpu_is_free], minlength=self._mixed)
        return [*free.tolist(), plan.num_open_gpus if self.placement.shares else plan.num_free_gpus]

    def _round(self, view: SchedulingView) -> dict[int, int]:
        """Return {job: type} of this round and count it as received."""
        up = np.repeat(view.servers_up, view.cluster.gpus_per_server)
        left = np.bincount(self._type_of_gpu[up], minlength=self._mixed).tolist()
        pairs = self._by_priority()
        sizes = view.column("asked_gpus")[pairs[:, 0]].tolist()
        shares = dict(zip(self._solved[0].tolist(), self._solved[1], strict=True))
        chosen: dict[int, int] = {}
        for (job, gpu_type), size in zip(pairs.tolist(), sizes, strict=True):
            room = sum(left) if gpu_type == self._mixed else left[gpu_type]
            if size > room or job in chosen or shares[job][gpu_type] <= 0:
                continue
            chosen[job] = gpu_type
            self._received[job, gpu_type] += 1
            for one in range(self._mixed) if gpu_type == self._mixed else [gpu_type]:
                taken = min(size, left[one])
                left[one] -= taken
                size -= taken
        return chosen

    def _place(self, view: SchedulingView, plan: PlacementPlan, job: int, gpu_type: int) -> Allocation | None:
        """Place the job on free GPUs of one type: the tightest server that fits, else emptiest first."""
        if gpu_type == self._mixed:
            return plan.place(self.placement, job)
        size = int(view.column("asked_gpus")[job])
        free = np.flatnonzero(plan.gpu_is_free & (self._type_of_gpu == gpu_type))
        if len(free) < size:
            return None
        room = np.bincount(self._server_of_gpu[free], minlength=view.cluster.num_servers)
        servers = np.flatnonzero(room >= size)
        if len(servers):
            server = servers[np.argmin(room[servers])]
            gpus = free[self._server_of_gpu[free] == server][:size]
        else:
            gpus = free[np.lexsort((free, -room[self._server_of_gpu[free]]))][:size]
        found = Allocation(job, tuple(np.sort(gpus).tolist()))
        return found if plan.allocate(found) else None
