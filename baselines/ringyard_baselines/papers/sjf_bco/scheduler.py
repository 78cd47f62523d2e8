"""SJF-BCO (Yu, Ji, Rajan, Liu; MobiHoc 2022, arXiv 2207.07817) and its comparators FF, LS and RAND."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementPlan, SchedulingView, pack
from ringyard.checks import Positive, PositiveInt, checked
from ringyard.errors import SchedulerError
from ringyard.state.records import JobKind, JobStatus
from ringyard_baselines.papers.sjf_bco.bisection import bisect_theta, find_certain_starts
from ringyard_baselines.papers.sjf_bco.plan import (
    FIRST_FIT,
    LEAST_LOADED,
    RANDOM,
    SJF_BCO,
    PlannedJobs,
    PlanningProblem,
    empty_gpu_plan,
    find_ready,
)
from ringyard_baselines.papers.sjf_bco.planner_state import empty_planner_state
from ringyard_baselines.scheduler import Scheduler


@checked("sjf_bco")
@dataclass(eq=False)
class PlannedScheduler(Scheduler):
    """Plans all known jobs on GPU queues, then starts each job when its GPUs are free for it.

    When jobs have arrived since the last plan, the waiting ones are planned anew around the running ones.
    With all jobs submitted at time 0 this is the offline algorithm as published, otherwise its online form.
    Plans use estimated run times. A job starts when it is first in the queue of each of its GPUs and these
    are free, whatever time the plan says. The published plan knows GPUs only. A job that lacks cores, RAM or
    GPU memory there is packed elsewhere, or waits (an assumption).
    """

    observability = Observability.SIZES | Observability.DURATIONS | Observability.SPEEDS

    name: str  #: shown in tables
    rule: int  #: how GPUs are chosen, a constant of `ringyard_baselines.papers.sjf_bco.plan`
    over_provision: Annotated[float, "[1, inf)"] = 1.0  #: lambda of LBSGF, at least 1 (1 in the paper)
    #: threshold between small and large jobs in GPUs. None tries every job size, as Algorithm 1 does.
    kappa: PositiveInt | None = None
    #: u in rhohat / u, at least 1. 1 trusts the estimates. Assumption, not in the paper.
    estimate_factor: Annotated[float, "[1, inf)"] = 1.0
    #: T, the largest theta_u and the latest planned exit (T_j <= T). It is doubled until a plan exists. None:
    #: twice (total work / GPUs + longest job) over the planned jobs.
    horizon_seconds: Positive | None = None
    #: length of the interval of theta at which bisection ends, as a share of the horizon
    resolution: Positive = 1e-3
    #: number of waiting jobs to plan, in planning order. The rest follow when these have started. Assumption
    #: of the online form, which bounds decision time.
    max_planned: PositiveInt = 256
    #: a job queues on its GPUs even if they are taken. False: it waits for free GPUs, and all jobs behind it
    #: wait too, as in Algorithm 2. SJF-BCO itself never queues.
    queue_on_busy_gpus: bool = False
    offline: bool = False  #: refuse jobs that arrive after time 0

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the plan, and refuse CPU-only jobs, and later ones in an offline batch (SchedulerError)."""
        if self.offline and (jobs.submit_seconds > 0).any():
            raise SchedulerError(
                f"{self.name} plans an offline batch and these jobs arrive over time; submit all at 0, as"
                " workload=sjf_bco does, or use fifo_backfill with placement=first_fit, spread or random"
            )
        if (jobs.kind == JobKind.CPU_ONLY).any():
            raise SchedulerError(f"{self.name} plans GPUs only; leave CPU-only jobs out of the workload")
        self._rng = rng
        self._cluster = cluster
        self._planner, self._after_small = empty_planner_state(cluster), empty_planner_state(cluster)
        no_jobs = np.zeros(0, dtype=np.int64)
        self._plan = empty_gpu_plan(no_jobs)
        self._rows = no_jobs  # [n] of the planned jobs, in planning order
        self._waits = np.zeros(0, dtype=bool)  # [n] whether they still wait
        self._order = no_jobs  # positions of the jobs with GPUs, by planned start
        self._task: PlanningProblem | None = None  # what is left to plan if only certain starts are planned
        self._choice: tuple[float, int, float] = (0.0, 0, 0.0)
        self._seen = 0
        self._failures = (0, 0)

    @property
    def last_choice(self) -> tuple[float, int, float]:
        """Theta in seconds, kappa in GPUs, and makespan in seconds of the last plan."""
        self._plan_the_rest()
        return self._choice

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Plan if there is something new, then start the jobs that are first on free GPUs."""
        status = view.select(self._rows).column("status")
        self._waits &= status == JobStatus.WAITING  # else withdrawn, or too late
        if len(view.waiting) and (self._has_news(view) or not self._waits.any()):
            self._make_plan(view)
        free = view.gpu_is_free
        ready = self._ready_jobs(free)
        if len(self._order) < len(self._rows):
            demands = np.diff(self._plan.begin)
            if free.sum() - demands[ready].sum() >= demands[len(self._order)]:  # else no other job can start
                self._plan_the_rest()
                ready = self._ready_jobs(free)
        gpus, begin = self._plan.gpus, self._plan.begin
        places = [tuple(sorted(gpus[begin[i] : begin[i + 1]].tolist())) for i in ready]
        planned = [Allocation(int(self._rows[i]), ids) for i, ids in zip(ready, places, strict=True)]
        # what fits: if its planned GPUs lack cores, RAM or memory, a job goes elsewhere or waits
        plan = PlacementPlan(view)
        placed = [one if plan.allocate(one) else plan.place(pack(), one.job) for one in planned]
        allocations = [allocation for allocation in placed if allocation is not None]
        started = [allocation.job for allocation in allocations]
        self._waits &= ~np.isin(self._rows, started)
        return allocations

    def _has_news(self, view: SchedulingView) -> bool:
        """Return whether jobs have arrived or lost their servers since the last call."""
        failures, lost = self._failures
        if view.num_server_failures != failures:
            lost = int(view.column("num_failures").sum())
            self._failures = (view.num_server_failures, lost)
        seen, self._seen = self._seen, view.num_arrived + lost
        return self._seen > seen

    def _ready_jobs(self, free: NDArray[np.bool_]) -> list[int]:
        """Return positions of the jobs that may start, by row."""
        ready = np.zeros(len(self._rows), dtype=np.int64)
        found = ready[: find_ready(self._plan, self._order, self._waits, free.copy(), ready)]
        return found[np.argsort(self._rows[found])].tolist()

    def _make_plan(self, view: SchedulingView) -> None:
        """Plan the waiting jobs around the running ones; of SJF-BCO first those with certain starts."""
        waiting = view.waiting.astype(np.int64)
        if self.rule == SJF_BCO:
            order = waiting[np.lexsort((waiting, view.num_gpus[waiting]))]
        else:
            order = np.sort(waiting)
        order = order[: self.max_planned]
        records = view.records(order)
        estimates = records["remaining_iterations"] * records["isolated_iteration_seconds"]
        estimates = estimates / self.estimate_factor
        demands = view.num_gpus[order].astype(np.int64)
        self._plan = empty_gpu_plan(demands)
        self._rows, self._waits = order, np.ones(len(order), dtype=bool)
        drawn = (len(order), self._cluster.num_gpus)
        draws = self._rng.random(drawn) if self.rule == RANDOM else np.zeros((len(order), 1))
        batch = PlannedJobs(order, records, estimates, draws)
        busy = self._busy_seconds(view)
        horizon = self._horizon(busy, estimates, demands)
        searched = (self.rule, self._kappas(demands), float(self.over_provision), self.queue_on_busy_gpus)
        lengths = (horizon, self.resolution * horizon)
        self._task = PlanningProblem(batch, busy, view.physics, *searched, *lengths)
        if self.rule == SJF_BCO:
            self._order = np.arange(find_certain_starts(self._planner, self._plan, self._task))
        else:
            self._plan_the_rest()

    def _plan_the_rest(self) -> None:
        """Make the whole plan if only its certain starts are planned."""
        task = self._task
        if task is None:
            return
        makespan = np.inf
        while makespan == np.inf:
            makespan, theta, kappa = bisect_theta(self._planner, self._after_small, self._plan, task)
            task = replace(task, horizon=2.0 * task.horizon, resolution=2.0 * task.resolution)
        self._choice = (theta, int(kappa), makespan)
        self._order = np.argsort(self._plan.start, kind="stable")
        self._task = None

    def _horizon(
        self, load: NDArray[np.float64], estimates: NDArray[np.float64], demands: NDArray[np.int64]
    ) -> float:
        """Return T, the largest theta to try."""
        if self.horizon_seconds is not None:
            return float(self.horizon_seconds)
        work = float(load.sum() + (estimates * demands).sum()) / self._cluster.num_gpus
        return 2.0 * (work + float(load.max()) + float(estimates.max()))

    def _kappas(self, demands: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the thresholds to try: job sizes, since those between two sizes split the jobs alike."""
        if self.kappa is not None or self.rule != SJF_BCO:
            return np.array([self.kappa or 1], dtype=np.int64)
        return np.unique(np.concatenate([[1], demands])).astype(np.int64)

    def _busy_seconds(self, view: SchedulingView) -> NDArray[np.float64]:
        """Return [GPUs] seconds until each is free, by the running jobs' expected ends."""
        left = np.zeros(self._cluster.num_gpus)
        ends = view.column("end_seconds")
        holder = view.job_of_gpu
        busy = holder >= 0
        left[busy] = np.maximum(ends[holder[busy]] - view.now, 0.0)
        return left


def sjf_bco(
    over_provision: float = 1.0,
    kappa: int | None = None,
    estimate_factor: float = 1.0,
    horizon_seconds: float | None = None,
    resolution: float = 1e-3,
    max_planned: int = 256,
) -> PlannedScheduler:
    """SJF-BCO (MobiHoc 2022): smallest jobs first, bisection on theta_u, FA-FFP and LBSGF.

    FA-FFP chooses the GPUs of small jobs and LBSGF those of large ones. FOUND (technical report, section 6,
    Algorithms 1-3). A trial in which a job finds no place is infeasible as a whole (the listing compares its
    partial makespan). Among GPUs of equal load FA-FFP prefers servers in use, as the prose says. A job's
    planned exit follows from eq. 8 with the links as planned at its start. `over_provision`, `kappa`,
    `estimate_factor`, `horizon_seconds`, `resolution` and `max_planned` are as in `PlannedScheduler`.
    """
    return PlannedScheduler(
        "sjf_bco", SJF_BCO, over_provision, kappa, estimate_factor, horizon_seconds, resolution, max_planned
    )


_RULES = {"sjf_bco_ff": FIRST_FIT, "sjf_bco_ls": LEAST_LOADED, "sjf_bco_rand": RANDOM}


@checked("sjf_bco")
def sjf_bco_comparator(
    name: Literal["sjf_bco_ff", "sjf_bco_ls", "sjf_bco_rand"],
    horizon_seconds: Positive | None = None,
    queue_on_busy_gpus: bool = False,
    max_planned: PositiveInt = 256,
) -> PlannedScheduler:
    """FF, LS or RAND of SJF-BCO's section 7, for jobs that are all there at time 0, in order of submission.

    By `name`, "sjf_bco_ff" takes the first GPUs within theta (a limit on accumulated time), server by server,
    "sjf_bco_ls" those with the least accumulated time, within theta, and "sjf_bco_rand" random ones within
    theta = T, the whole horizon. `horizon_seconds`, `queue_on_busy_gpus` and `max_planned` are as in
    `PlannedScheduler`.
    """
    return PlannedScheduler(
        name,
        _RULES[name],
        horizon_seconds=horizon_seconds,
        max_planned=max_planned,
        queue_on_busy_gpus=queue_on_busy_gpus,
        offline=True,
    )
