"""CODA (Zhao et al., ICDCS 2020): CPU cores by feedback, contention eliminated, CPU jobs in the gaps."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import (
    Allocation,
    Cluster,
    JobTable,
    Observability,
    PlacementPlan,
    PlacementRule,
    SchedulingView,
)
from ringyard.checks import Fraction, Positive, PositiveInt, checked
from ringyard.state.records import JobKind
from ringyard_baselines.scheduler import Capabilities, Scheduler


@dataclass
class _CoreTuning:
    """What is known of a job's need of cores.

    Attributes:
        since: seconds at which the last step was made.
        before: GPU utilisation before it.
        last: that step: 1 more, -1 fewer, 0 none to be judged.
        more_helps: no step up was for nothing yet.
        fewer_hurts: a step down cost utilisation.
    """

    since: float
    before: float = float("nan")
    last: int = 0
    more_helps: bool = True
    fewer_hurts: bool = False


@checked("coda")
class Coda(Scheduler):
    """Fair shares for groups; three parts look after cores and memory bandwidth.

    FOUND (abstracts): groups share the cluster; an adaptive allocator that sets a training job's cores by
    feedback on GPU utilisation, a real-time eliminator of CPU-side contention, a multi-array scheduler in
    which CPU jobs do not wait longer. All numbers and details are assumptions from memory of the paper (its
    text was not reached):

    * groups: the waiting job of the group (virtual cluster) with the least dominant share of GPUs and cores
      is tried first, the oldest of each group first; training and CPU-only jobs are counted apart;
    * allocator: a job begins with the cores at which the last of its model settled, else those it asks for;
      every 90 s one core per worker more while utilisation rises, else one step back and then fewer while
      it does not fall; where there is no core to be had it tries fewer once, and asks again;
    * eliminator: where memory bandwidth asked exceeds 75 % of the peak and a training job's GPUs are used
      less than before, the server's CPU jobs are capped to half their bandwidth; caps are lifted
      when the demand without them fits;
    * arrays: a share of each server's cores is the CPU array; CPU jobs may borrow what the GPU array leaves
      idle and are evicted, last started first, when a training job needs it; steps of the allocator never
      take the CPU array's cores or the fair share of free GPUs; a job rather begins with fewer cores than on
      several servers; servers are divided between small and large training
      jobs, each going elsewhere only if there is no room.

    Args:
        placement: where training jobs go.
        adaptive: cores by feedback; else each job keeps those it asks for.
        window_seconds: between two steps of the allocator.
        gain: least change in GPU utilisation that counts.
        bandwidth_limit: share of peak memory bandwidth above which the eliminator looks.
        cpu_array: share of each server's cores.
        large_servers: share of servers kept for large jobs.
        large_gpus: GPUs from which on a training job is large.
        throttled: share of its bandwidth that a throttled CPU job keeps.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "coda"
    observability = Observability.SIZES
    capabilities = Capabilities.PREEMPT | Capabilities.CORES

    def __init__(
        self,
        placement: PlacementRule,
        adaptive: bool = True,
        window_seconds: Positive = 90.0,
        min_utilisation_change: Positive = 0.02,
        bandwidth_limit: Positive = 0.75,
        cpu_array_share: Fraction = 0.25,
        large_job_servers: Fraction = 0.5,
        large_job_gpus: PositiveInt = 4,
        throttled_bandwidth: Annotated[float, "(0, 1)"] = 0.5,
    ) -> None:
        self.placement = placement
        self.round_seconds: float | None = window_seconds
        self._adaptive = adaptive
        self._window = window_seconds
        self._min_change = min_utilisation_change
        self._limit = bandwidth_limit
        self._cpu_array_share = cpu_array_share
        self._large_job_servers = large_job_servers
        self._large_job_gpus = large_job_gpus
        self._throttled_bandwidth = throttled_bandwidth

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget what was learnt of the models; note the group of each job."""
        self._tuning: dict[int, _CoreTuning] = {}
        self._history: dict[int, int] = {}
        self._best_use: dict[int, float] = {}
        self._groups = np.unique(jobs.vc, return_inverse=True)[1]

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Tune running jobs, throttle CPU jobs, start training jobs, then CPU jobs."""
        if not view.cluster.cores_per_server:
            return self._plain(view)
        draft = PlacementPlan(view)
        rows = view.running
        use = dict(zip(rows.tolist(), view.select(rows).gpu_activity.tolist(), strict=True))
        allocations = self._allocate(view, draft, use)
        allocations += self._eliminate(view, draft, use)
        changed = {allocation.job for allocation in allocations}
        evictable = [job for job in self._borrowers(view) if job not in changed]
        training = np.intersect1d(view.gpu_jobs, view.waiting).tolist()
        allocations += _start_by_dominant_share(
            view, self._groups, training, self._tuning, lambda job: self._start(view, draft, job, evictable)
        )
        evicted = {allocation.job for allocation in allocations if allocation.preempts}
        helpers = view.waiting[view.column("kind")[view.waiting] == JobKind.CPU_ONLY]
        kept = [job for job in self._cpu_running(view) if job not in evicted]
        return allocations + _start_by_dominant_share(
            view, self._groups, {*helpers.tolist(), *evicted}, kept, lambda job: self._helper(draft, job)
        )

    def _plain(self, view: SchedulingView) -> list[Allocation]:
        """Where cores are not counted nothing is left but first come, first served."""
        draft = PlacementPlan(view)
        return draft.start(self.placement, np.sort(view.waiting))

    def _allocate(
        self, view: SchedulingView, draft: PlacementPlan, use: Mapping[int, float]
    ) -> list[Allocation]:
        """At most one step for each running training job whose window has passed."""
        allocations = []
        held, model = view.column("cores_per_worker"), view.column("model")
        training = view.running[view.column("kind")[view.running] != JobKind.CPU_ONLY].tolist()
        started = view.column("last_start_seconds")
        self._tuning = {job: self._tuning.get(job, _CoreTuning(float(started[job]))) for job in training}
        reserved = self._reserved_cores(view)
        for job in training:
            tuning = self._tuning[job]
            self._best_use[job] = max(self._best_use.get(job, 0.0), use[job])
            if not self._adaptive or held[job] == 0 or view.now - tuning.since < self._window:
                continue
            steps = self._steps(tuning, use[job], int(held[job]))
            self._learn(int(model[job]), int(held[job]), settled=not steps)
            resized = (self._resized(view, draft, job, step, reserved) for step in steps)
            made = next((one for one in resized if one is not None), None)
            if made is not None:
                allocations.append(made)
                tuning.since, tuning.before = view.now, use[job]
                tuning.last = 1 if made.cores_per_worker > held[job] else -1
        return allocations

    def _learn(self, model: int, cores: int, settled: bool) -> None:
        """What the next job of the model begins with: where one settled, or the most one still wanted."""
        self._history[model] = cores if settled else max(cores, self._history.get(model, 0))

    def _steps(self, tuning: _CoreTuning, use: float, held: int) -> list[int]:
        """Judge the last step; then cores more or fewer for each worker, to be tried in order.

        A job that is refused more tries fewer once, and asks again whenever its window has passed; one
        that needs all it has and no more tries nothing: it has settled.
        """
        for_nothing = tuning.last > 0 and use <= tuning.before + self._min_change
        if for_nothing:
            tuning.more_helps = False
        if tuning.last < 0 and use < tuning.before - self._min_change:
            tuning.fewer_hurts = tuning.more_helps = True
        tuning.last = 0
        fewer = held > 1 and (for_nothing or not tuning.fewer_hurts)
        return [1] * tuning.more_helps + [-1] * fewer

    def _resized(
        self, view: SchedulingView, draft: PlacementPlan, job: int, step: int, reserved: NDArray[np.int64]
    ) -> Allocation | None:
        """The running job with so many cores more for each worker, taken in the draft; None: no room."""
        if step > 0:
            workers = np.bincount(view.cluster.server_of_gpu[list(view.gpus_of(job))])
            left = draft.free_cores_per_server[: len(workers)] - workers * step
            if (left < reserved[: len(workers)])[workers > 0].any():
                return None
        cores = int(view.column("cores_per_worker")[job]) + step
        changed = replace(view.allocation_of(job), cores_per_worker=cores)
        return changed if draft.reallocate(changed) else None

    def _reserved_cores(self, view: SchedulingView) -> NDArray[np.int64]:
        """[servers] the CPU array's unused cores, and a fair share for each free GPU: not for steps up."""
        unused = np.maximum(self._array_cores(view) - self._cpu_cores(view), 0)
        fair = np.array(view.cluster.cores_per_server) // np.array(view.cluster.gpus_per_server)
        reserved: NDArray[np.int64] = unused + fair * view.free_gpus_per_server
        return reserved

    def _array_cores(self, view: SchedulingView) -> NDArray[np.int64]:
        """[servers] cores of the CPU array."""
        return np.floor(self._cpu_array_share * np.array(view.cluster.cores_per_server)).astype(np.int64)

    def _cpu_running(self, view: SchedulingView) -> list[int]:
        """Running CPU-only jobs, the last started first."""
        jobs = view.running[view.column("kind")[view.running] == JobKind.CPU_ONLY]
        order = np.lexsort((-jobs, -view.column("last_start_seconds")[jobs]))
        return jobs[order].tolist()

    def _cpu_cores(self, view: SchedulingView) -> NDArray[np.int64]:
        """[servers] cores that CPU-only jobs hold."""
        jobs = self._cpu_running(view)
        held = np.bincount(
            view.column("server")[jobs],
            view.column("cores_per_worker")[jobs].astype(np.float64),
            view.cluster.num_servers,
        )
        return held.astype(np.int64)

    def _borrowers(self, view: SchedulingView) -> list[int]:
        """CPU-only jobs that hold cores of the GPU array, those to be evicted first in front."""
        excess = self._cpu_cores(view) - self._array_cores(view)
        borrowers = []
        for job in self._cpu_running(view):
            server = int(view.column("server")[job])
            if excess[server] > 0:
                borrowers.append(job)
                excess[server] -= int(view.column("cores_per_worker")[job])
        return borrowers

    def _eliminate(
        self, view: SchedulingView, draft: PlacementPlan, use: Mapping[int, float]
    ) -> list[Allocation]:
        """Throttle CPU jobs where they harm, and lift caps where there is room."""
        demand = view.bandwidth_demand
        suffering = np.zeros(view.cluster.num_servers, dtype=bool)
        for job in self._tuning:
            if use[job] < self._best_use[job] - self._min_change:
                suffering[view.cluster.server_of_gpu[list(view.gpus_of(job))]] = True
        allocations = []
        caps, cores = view.column("memory_bandwidth_cap"), view.column("cores_per_worker")
        wanted = view.column("memory_bandwidth") * cores
        for job in self._cpu_running(view):
            server = int(view.column("server")[job])
            if demand[server] > self._limit and suffering[server]:
                cap = self._throttled_bandwidth
            else:
                uncapped = demand[server] + wanted[job] * (1.0 - caps[job]) / view.memory_bandwidth[server]
                cap = 1.0 if uncapped <= self._limit else float(caps[job])
            if cap != caps[job]:
                changed = Allocation(
                    job, cores_per_worker=int(cores[job]), server=server, memory_bandwidth_cap=cap
                )
                if draft.reallocate(changed):
                    allocations.append(changed)
        return allocations

    def _start(
        self, view: SchedulingView, draft: PlacementPlan, job: int, evictable: list[int]
    ) -> list[Allocation]:
        """A training job in its sub-array, elsewhere, or after evictions; [] if it must wait."""
        asked = int(view.column("asked_cores")[job])
        count = int(view.column("asked_gpus")[job])
        for cores in self._first_cores(view, job, asked):
            for own in (True, False):
                found = self._on_one_server(view, draft, Allocation(job, cores_per_worker=cores), count, own)
                if found is not None:
                    return [found]
        found = draft.place(self.placement, job)
        if found is not None:
            return [found]
        if draft.num_free_gpus < count:
            return []
        allocations = draft.preempt_for(self.placement, job, evictable)
        for stopped in allocations[:-1]:
            evictable.remove(stopped.job)
        return allocations

    def _helper(self, draft: PlacementPlan, job: int) -> list[Allocation]:
        """A CPU-only job, if there is room."""
        found = draft.place(self.placement, job)
        return [] if found is None else [found]

    def _first_cores(self, view: SchedulingView, job: int, asked: int) -> list[int]:
        """Cores per worker to begin with, the most wanted first: fewer rather than a ring over servers."""
        if asked == 0:
            return [0]
        last = self._history.get(int(view.column("model")[job]), asked)
        return sorted({last, min(last, asked), 1}, reverse=True)

    def _on_one_server(
        self, view: SchedulingView, draft: PlacementPlan, shape: Allocation, count: int, own_array: bool
    ) -> Allocation | None:
        """The tightest server of the job's own sub-array, or of the other; None if none holds it whole."""
        first_large = round(view.cluster.num_servers * (1.0 - self._large_job_servers))
        large = np.arange(view.cluster.num_servers) >= first_large
        right = (large == (count >= self._large_job_gpus)) == own_array
        free = draft.free_gpus_per_server
        servers = np.flatnonzero(right & (free >= count))
        for server in servers[np.argsort(free[servers], kind="stable")].tolist():
            mine = view.cluster.server_of_gpu == server
            gpus = np.flatnonzero(mine & draft.gpu_is_free)[:count]
            found = shape.at(tuple(gpus.tolist()))
            if draft.allocate(found):
                return found
        return None


def _resource_shares(view: SchedulingView) -> NDArray[np.float64]:
    """[jobs, 2] parts of all GPUs and of all cores that jobs hold; that waiting ones ask for."""
    gpus = view.num_gpus
    cores = view.column("cores_per_worker") * np.maximum(gpus, 1)
    return np.stack([gpus / view.cluster.num_gpus, cores / sum(view.cluster.cores_per_server)], axis=1)


def _start_by_dominant_share(
    view: SchedulingView,
    groups: NDArray[np.int64],
    waiting: Iterable[int],
    running: Iterable[int],
    start: Callable[[int], list[Allocation]],
) -> list[Allocation]:
    """Try every waiting job once, always the oldest of the group with the least dominant share.

    Dominant resource fairness: a group's share is the larger of its parts of all GPUs and of all cores.

    Args:
        view: the present moment.
        groups: [jobs] number of each one's group.
        waiting: rows of waiting jobs.
        running: rows of jobs whose parts count from the beginning.
        start: the allocations that start a job, none if it finds no room.
    """
    parts = _resource_shares(view)
    held: dict[int, NDArray[np.float64]] = defaultdict(lambda: np.zeros(2))
    for job in running:
        held[groups[job]] = held[groups[job]] + parts[job]
    queues: dict[int, deque[int]] = defaultdict(deque)
    for job in sorted(waiting):
        queues[groups[job]].append(job)
    allocations = []
    while queues:
        group = min(queues, key=lambda one: (held[one].max(), queues[one][0]))
        job = queues[group].popleft()
        if not queues[group]:
            del queues[group]
        found = start(job)
        if found:
            held[group] = held[group] + parts[job]
        allocations += found
    return allocations
