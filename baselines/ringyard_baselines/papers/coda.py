"""CODA (Zhao et al., ICDCS 2020): CPU cores by feedback, caps on memory bandwidth, CPU jobs in the gaps."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import Fraction, Positive, PositiveInt, checked
from ringyard.observability import Observability
from ringyard.state.records import JobKind
from ringyard_baselines.scheduler import Capabilities, Scheduler


@dataclass
class _CoreTuning:
    """State of the search for a training job's number of cores."""

    step_seconds: float  #: time of the last step
    first_cores: int  #: cores per worker before the first step
    utilisation: float = float("nan")  #: GPU utilisation before the last step
    last_step: int = 0  #: 1 more core, -1 one core fewer, 0 nothing to judge
    more_helps: bool = True  #: whether every step up has raised utilisation so far
    fewer_hurts: bool = False  #: whether a step down has cost utilisation


@checked("coda")
@dataclass(eq=False)
class Coda(Scheduler):
    """CODA of Zhao et al. (ICDCS 2020): tunes cores, caps memory bandwidth, shares the cluster among groups.

    FOUND (abstracts): groups share the cluster. An adaptive allocator sets a training job's cores by feedback
    on GPU utilisation. A real-time eliminator removes CPU-side contention. A multi-array scheduler keeps CPU
    jobs from waiting longer. All numbers and details are assumptions from memory of the paper. Its text was
    not available:

    * Groups: the waiting job of the group (virtual cluster) with the smallest dominant share of GPUs and
      cores is tried first, the oldest of each group first. Training and CPU-only jobs are counted separately.
    * Allocator: a job starts with the cores at which the last job of its model settled, or with those it
      requests. Every window it gets one core per worker more while utilisation rises, else one step back,
      then fewer while utilisation does not fall. Without a free core it tries fewer once, then asks again.
    * Eliminator: if a server's demand for memory bandwidth exceeds `bandwidth_limit` and a training job there
      uses its GPUs less than before, the server's CPU jobs are capped. Caps end when the uncapped demand
      fits.
    * Arrays: a share of each server's cores is the CPU array. CPU jobs may borrow idle cores of the GPU array
      and are evicted, last started first, if a training job needs them. The allocator takes no cores of the
      CPU array and none of the fair share of free GPUs. A job starts with fewer cores rather than on several
      servers. Small and large training jobs have servers of their own and go elsewhere only if there is no
      room.
    """

    name = "coda"
    observability = Observability.SIZES
    capabilities = Capabilities.PREEMPT | Capabilities.CORES

    placement: PlacementRule  #: where training jobs go
    adaptive: bool = True  #: False leaves each job the cores it requests
    regrow: bool = False  #: steps up take reserved cores until a job has as many as it started with
    fewer_cores: bool = True  #: start a job with 1 core per worker rather than let it wait for more
    window_seconds: Positive = 90.0  #: seconds between two steps of the allocator
    min_utilisation_change: Positive = 0.02  #: smallest change of GPU utilisation that counts, a share of 1
    bandwidth_limit: Positive = 0.75  #: share of the peak memory bandwidth from which the eliminator acts
    cpu_array_share: Fraction = 0.25  #: share of each server's cores in the CPU array, 0 to 1
    large_job_servers: Fraction = 0.5  #: share of servers reserved for large jobs, 0 to 1
    large_job_gpus: PositiveInt = 4  #: smallest number of GPUs of a large training job
    #: share of its bandwidth that a capped CPU job keeps, between 0 and 1
    throttled_bandwidth: Annotated[float, "(0, 1)"] = 0.5

    def __post_init__(self) -> None:
        self.round_seconds = self.window_seconds

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget what was learnt of the models (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._tuning: dict[int, _CoreTuning] = {}
        self._cores_of_model: dict[int, int] = {}
        self._best_utilisation: dict[int, float] = {}
        self._groups = np.unique(jobs.vc, return_inverse=True)[1]

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Tune running jobs, cap CPU jobs, start training jobs, then CPU jobs."""
        if not view.cluster.cores_per_server:
            return PlacementPlan(view).start(self.placement, np.sort(view.waiting))  # no cores to tune
        plan, rows = PlacementPlan(view), view.running
        utilisation = dict(zip(rows.tolist(), view.select(rows).gpu_activity.tolist(), strict=True))
        allocations = self._tune_cores(view, plan, utilisation)
        allocations += self._cap_bandwidth(view, plan, utilisation)
        changed = {allocation.job for allocation in allocations}
        evictable = [job for job in self._borrowers(view) if job not in changed]
        training = np.intersect1d(view.gpu_jobs, view.waiting).tolist()
        allocations += _start_by_dominant_share(
            view, self._groups, training, self._tuning, lambda job: self._start(view, plan, job, evictable)
        )
        evicted = {allocation.job for allocation in allocations if allocation.preempts}
        kept = [job for job in self._running_cpu_jobs(view) if job not in evicted]
        waiting = {*np.setdiff1d(view.waiting, view.gpu_jobs).tolist(), *evicted}
        return allocations + _start_by_dominant_share(
            view, self._groups, waiting, kept, lambda job: [plan.place(self.placement, job)]
        )

    def _tune_cores(
        self, view: SchedulingView, plan: PlacementPlan, utilisation: Mapping[int, float]
    ) -> list[Allocation]:
        """Make at most one step for each running training job after its window."""
        allocations = []
        held, model = view.column("cores_per_worker"), view.column("model")
        training = view.running[view.column("kind")[view.running] != JobKind.CPU_ONLY].tolist()
        started, reserved = view.column("last_start_seconds"), self._reserved_cores(view)
        self._tuning = {job: self._tuning.get(job, _CoreTuning(started[job], held[job])) for job in training}
        for job in training:
            tuning = self._tuning[job]
            self._best_utilisation[job] = max(self._best_utilisation.get(job, 0.0), utilisation[job])
            if not self.adaptive or held[job] == 0 or view.now - tuning.step_seconds < self.window_seconds:
                continue
            steps = self._steps(tuning, utilisation[job], int(held[job]))
            # the model's next job starts with the settled cores, or with the most that one wanted so far
            most = self._cores_of_model.get(int(model[job]), 0) if steps else 0
            self._cores_of_model[int(model[job])] = max(int(held[job]), most)
            closed = reserved * (not self.regrow or held[job] >= tuning.first_cores)
            resized = (self._resized(view, plan, job, step, closed) for step in steps)
            if made := next(filter(None, resized), None):
                allocations.append(made)
                tuning.step_seconds, tuning.utilisation = view.now, utilisation[job]
                tuning.last_step = 1 if made.cores_per_worker > held[job] else -1
        return allocations

    def _steps(self, tuning: _CoreTuning, utilisation: float, held: int) -> list[int]:
        """Judge the last step and return the next ones to try, in order: 1 or -1 core per worker.

        A job that gets no core tries fewer once, and asks again after every window. A job that needs all its
        cores and no more tries nothing: it has settled.
        """
        no_gain = tuning.last_step > 0 and utilisation <= tuning.utilisation + self.min_utilisation_change
        if no_gain:
            tuning.more_helps = False
        if tuning.last_step < 0 and utilisation < tuning.utilisation - self.min_utilisation_change:
            tuning.fewer_hurts = tuning.more_helps = True
        tuning.last_step = 0
        fewer = held > 1 and (no_gain or not tuning.fewer_hurts)
        return [1] * tuning.more_helps + [-1] * fewer

    def _resized(
        self, view: SchedulingView, plan: PlacementPlan, job: int, step: int, reserved: NDArray[np.int64]
    ) -> Allocation | None:
        """Give a running job `step` cores more per worker in `plan`. None: there is no room."""
        workers = np.bincount(view.cluster.server_of_gpu[list(view.gpus_of(job))], minlength=len(reserved))
        if step > 0 and (plan.free_cores_per_server - workers < reserved)[workers > 0].any():
            return None
        cores = int(view.column("cores_per_worker")[job]) + step
        changed = replace(view.allocation_of(job), cores_per_worker=cores)
        return changed if plan.reallocate(changed) else None

    def _reserved_cores(self, view: SchedulingView) -> NDArray[np.int64]:
        """Return [servers] cores closed to steps up: unused ones of the CPU array, a share per free GPU."""
        fair = np.array(view.cluster.cores_per_server) // np.array(view.cluster.gpus_per_server)
        return np.maximum(-self._borrowed_cores(view), 0) + fair * view.free_gpus_per_server

    def _running_cpu_jobs(self, view: SchedulingView) -> list[int]:
        """Return running CPU-only jobs, the last started first."""
        jobs = view.running[view.column("kind")[view.running] == JobKind.CPU_ONLY]
        return jobs[np.lexsort((-jobs, -view.column("last_start_seconds")[jobs]))].tolist()

    def _borrowed_cores(self, view: SchedulingView) -> NDArray[np.int64]:
        """Return [servers] cores that CPU-only jobs hold beyond the CPU array; below 0: what they leave."""
        jobs = self._running_cpu_jobs(view)
        held = np.zeros(view.cluster.num_servers, dtype=np.int64)
        np.add.at(held, view.column("server")[jobs], view.column("cores_per_worker")[jobs])
        return held - (self.cpu_array_share * np.array(view.cluster.cores_per_server)).astype(np.int64)

    def _borrowers(self, view: SchedulingView) -> list[int]:
        """Return CPU-only jobs that hold cores of the GPU array, in order of eviction."""
        excess = self._borrowed_cores(view)
        borrowers = []
        for job in self._running_cpu_jobs(view):
            server = int(view.column("server")[job])
            if excess[server] > 0:
                borrowers.append(job)
                excess[server] -= int(view.column("cores_per_worker")[job])
        return borrowers

    def _cap_bandwidth(
        self, view: SchedulingView, plan: PlacementPlan, utilisation: Mapping[int, float]
    ) -> list[Allocation]:
        """Cap the bandwidth of CPU jobs where they slow training down, and lift caps where there is room."""
        demand = view.bandwidth_demand
        suffering = np.zeros(view.cluster.num_servers, dtype=bool)
        for job in self._tuning:
            if utilisation[job] < self._best_utilisation[job] - self.min_utilisation_change:
                suffering[view.cluster.server_of_gpu[list(view.gpus_of(job))]] = True
        allocations = []
        caps, cores = view.column("memory_bandwidth_cap"), view.column("cores_per_worker")
        wanted = view.column("memory_bandwidth") * cores
        for job in self._running_cpu_jobs(view):
            server = int(view.column("server")[job])
            if demand[server] > self.bandwidth_limit and suffering[server]:
                cap = self.throttled_bandwidth
            else:
                uncapped = demand[server] + wanted[job] * (1.0 - caps[job]) / view.memory_bandwidth[server]
                cap = 1.0 if uncapped <= self.bandwidth_limit else float(caps[job])
            if cap != caps[job]:
                changed = replace(view.allocation_of(job), memory_bandwidth_cap=cap)
                if plan.reallocate(changed):
                    allocations.append(changed)
        return allocations

    def _start(
        self, view: SchedulingView, plan: PlacementPlan, job: int, evictable: list[int]
    ) -> list[Allocation]:
        """Start a training job in its sub-array, elsewhere, or after evictions. Empty if it must wait."""
        asked, count, model = (int(view.column(name)[job]) for name in ("asked_cores", "asked_gpus", "model"))
        last = self._cores_of_model.get(model, asked)  # fewer cores, rather than a ring over servers
        least = 1 if self.fewer_cores else last
        for cores in sorted({last, min(last, asked), least}, reverse=True) if asked else [0]:
            if found := self._on_one_server(view, plan, Allocation(job, cores_per_worker=cores), count):
                return [found]
        if found := plan.place(self.placement, job):
            return [found]
        return [] if plan.num_free_gpus < count else plan.preempt_for(self.placement, job, evictable)

    def _on_one_server(
        self, view: SchedulingView, plan: PlacementPlan, shape: Allocation, count: int
    ) -> Allocation | None:
        """Place a job on the tightest server of its sub-array, else of the other. None: it fits nowhere."""
        first_large = round(view.cluster.num_servers * (1.0 - self.large_job_servers))
        large = np.arange(view.cluster.num_servers) >= first_large
        free = plan.free_gpus_per_server
        for server in np.lexsort((free, large != (count >= self.large_job_gpus))).tolist():
            if free[server] >= count:
                mine = view.cluster.server_of_gpu == server
                found = shape.at(tuple(np.flatnonzero(mine & plan.gpu_is_free)[:count].tolist()))
                if plan.allocate(found):
                    return found
        return None


def _start_by_dominant_share(
    view: SchedulingView,
    groups: NDArray[np.int64],
    waiting: Iterable[int],
    running: Iterable[int],
    start: Callable[[int], Sequence[Allocation | None]],
) -> list[Allocation]:
    """Try every waiting job once, always the oldest of the group with the smallest dominant share.

    A group's dominant share is the larger of its shares of all GPUs and of all cores. `groups` [jobs] has the
    group of each job. Resources of `running` jobs count from the beginning. `start` returns the allocations
    that start a job, none if it finds no room.
    """
    gpus, cores = view.num_gpus, view.column("cores_per_worker")
    of_cluster = [view.cluster.num_gpus, sum(view.cluster.cores_per_server)]
    parts = np.stack([gpus, cores * np.maximum(gpus, 1)], axis=1) / of_cluster
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
        if found := [one for one in start(job) if one]:
            held[group] = held[group] + parts[job]
        allocations += found
    return allocations
