"""AITurbo (HPDC 2021), after a public follow-on: unit changes of CPU and GPU, Borda count, feedback queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.checks import Fraction, Positive, PositiveInt, checked
from ringyard.gpu_types import CPU_CORES
from ringyard.placement import pack_on_types
from ringyard.sim.speeds import fewest_gpus, isolated_iteration_seconds
from ringyard.state.records import JobKind, JobStatus
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.predictions import LossCurves
from ringyard_baselines.tools.step_model import StepModels, spread_sizes
from ringyard_baselines.tools.targets import Target, TimeSlots, apply_sizes, num_gpu_slots

#: (workers, parameter servers) profiled for parameter-server jobs: the public calibration points with
#: one GPU a worker
CALIBRATION = ((1, 1), (2, 1), (3, 1), (1, 2), (2, 2))

#: sizes of a job: the present one, those with one unit more, and those with one unit less. A unit is a
#: worker, or else a server if the job has some, a core of each worker if not
_STEPS = (0, 1, 1, -1, -1)
_MORE, _FEWER = slice(1, 3), slice(3, 5)

POD_CORES = 5  #: CPU cores that a pod counts for if the cluster does not count cores


def borda_scores(
    service: NDArray[np.float64],
    add_gain: NDArray[np.float64],
    remove_gain: NDArray[np.float64],
    predictable: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Return [jobs] Borda scores, where a low score is urgent.

    A predictable job scores its rank by attained `service` plus its rank by gain, any other job twice its
    rank by service. Gains are drops in cost-to-finish by the best addition (-inf: none) and removal. Ranks
    begin at 1. The largest gain ranks first, separately among jobs that gain most by an addition and by a
    removal. Ties go by position.
    """
    ranks = np.empty(len(service), dtype=np.int64)
    ranks[np.argsort(service, kind="stable")] = np.arange(1, len(service) + 1)
    scores = 2 * ranks
    increases = add_gain > remove_gain
    for members in (np.flatnonzero(predictable & increases), np.flatnonzero(predictable & ~increases)):
        gains = np.where(increases, add_gain, remove_gain)[members]
        order = members[np.argsort(-gains, kind="stable")]
        scores[order] = ranks[order] + np.arange(1, len(order) + 1)
    return scores


@checked("aiturbo")
@dataclass(eq=False)
class AITurbo(Scheduler):
    """AITurbo (HPDC 2021): predictable jobs change by one unit of CPU or GPU, all jobs queue by Borda count.

    At the beginning of a slot, or when a job turns predictable, predictable jobs may change size. At every
    event jobs are ranked by Borda score and admitted from the top.

    FOUND (a public follow-on and its scripts; no text of the paper was available): service rate R = 10 per
    GPU + 1 per core. Cost-to-finish C = remaining time x R. Changes of one parameter server, or of one worker
    with its GPU. The list each job joins, Borda scores, thresholds (30, 180) of three levels. Admission from
    the top level with backfill, preemption of the rest. Slots of 240 s, a short pass at other events. The
    larger gain ranks first, as the public code intends although its ranks say otherwise. A loss curve's form,
    and a confidence of 0.5 from which a job is predictable.

    Assumed: while the jobs exceed the cluster, a change is made if its gain is positive. Otherwise a
    job takes the addition that shortens its steps most, since fewer GPUs are nearly always cheaper. The speed
    model's two terms in w/p are one, because they are collinear at equal cores. A size must fit the memory
    and the cores of the empty cluster. A job without room for more cores starts with those it requests. A
    ring's CPU unit is one core for each worker, judged by a CPU profile measured in advance.
    The test of `predictions.forecast` replaces the trained classifier. A synchronous job has workers of one
    kind: in Borda order each job gets GPUs, or CPUs (`ringyard.gpu_types.CPU_CORES`) if too few GPUs are
    left, and both only if it asks for more workers than there are of either. docs/research/aiturbo.md has the
    reasons.
    """

    name = "aiturbo"
    observability = Observability.SIZES | Observability.PREDICTIONS | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE | Capabilities.CORES

    #: where jobs go. In a cluster with CPUs that train, `pack` on servers of one kind.
    placement: PlacementRule
    round_seconds: Positive = 240.0  #: length of a slot in seconds
    #: Borda scores that end the first and the second level, ascending
    thresholds: Annotated[Sequence[float], "strictly ascending"] = (30.0, 180.0)
    #: "score" (FOUND, then levels change nothing) or "submission" (first come, first served)
    within_level: Literal["score", "submission"] = "score"
    gpu_weight: Positive = 10.0  #: number of cores that one GPU counts for, best of the public sweep
    max_servers: PositiveInt = 10  #: largest number of parameter servers of a job
    #: "workload" for the workload's predictions, "loss_curve" for a fit to the logged losses, "none" if no
    #: job is predictable
    predictor: Literal["workload", "loss_curve", "none"] = "workload"
    confidence: Fraction = 0.5  #: confidence of the loss curve, 0 to 1, from which a job is predictable
    borda: bool = True  #: whether gains count for the order of jobs. False: attained service alone.
    cpu_workers: bool = True  #: whether jobs may train on CPUs, if the cluster has such

    def __post_init__(self) -> None:
        if self.predictor == "loss_curve":
            self.observability = Observability.SIZES | Observability.TRAINING_CURVES | Observability.SPEEDS

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles, sizes and service (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        num_jobs = len(jobs)
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._models = StepModels(self._points)
        # [jobs, sizes, 3] workers (one GPU each), parameter servers, cores of each worker. 0: not sized yet
        self._sizes = np.zeros((num_jobs, len(_STEPS), 3), np.int64)
        self._fewest: dict[int, int] = {}
        self._targets: dict[int, Target] = {}  # of each job by its present size
        self._core_profile: dict[int, NDArray[np.float64]] = {}
        self._predictable = np.zeros(num_jobs, dtype=np.bool_)
        self._curves = LossCurves(self.confidence)
        self._last = 0.0
        self._service = np.zeros(num_jobs)
        self._profiled_at = np.full(num_jobs, -1)  # GPUs that were up then, -1 if not profiled
        self._seconds_of = np.full((num_jobs, len(_STEPS)), np.inf)  # of a step; inf: there is no such size
        self._rate_of = np.zeros((num_jobs, len(_STEPS)))  # R
        # [servers] cores of the CPU on which a worker trains there, 0 where it has a GPU
        cores = np.array([CPU_CORES.get(kind, 0) for kind in cluster.gpu_types] or [0] * cluster.num_servers)
        self._cpu_cores = cores
        # [kinds of workers] servers [servers] that have them: GPUs, then CPUs
        self._servers = [cores == 0, cores > 0] if self.cpu_workers else [cores == 0]
        self._rules: list[PlacementRule | None] = [None]
        if cores.any():
            types = np.array(cluster.gpu_types)
            self._rules = [pack_on_types(cluster, set(types[those])) for those in self._servers]

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Change sizes if a slot begins or a job turned predictable, then rank and admit all jobs."""
        jobs = view.gpu_jobs
        elapsed, self._last = view.now - self._last, view.now
        held = self._held_cpu_cores(view, jobs)
        more = np.where(held > 0, held - self.gpu_weight, 0.0)  # a CPU's cores in place of a GPU
        rates = self._rate_of[jobs, 0] + more * self._sizes[jobs, 0, 0]
        self._service[jobs] += np.where(held >= 0, rates, 0.0) * elapsed
        logged = self.predictor == "loss_curve"
        left = self._curves.iterations_left(view, jobs) if logged else view.select(jobs).predicted_iterations
        known = ~np.isnan(left) & (self.predictor != "none")
        changing = self._slots.begins(view) or bool((known & ~self._predictable[jobs]).any())
        self._predictable[jobs] = known
        for job in jobs[self._sizes[jobs, 0, 0] == 0].tolist():
            self._fewest[job] = int(fewest_gpus(view, np.array([job]))[0])
            asked = ("asked_gpus", "asked_parameter_servers", "asked_cores")
            self._resize(view, job, np.array([view.column(name)[job] for name in asked]))
        rule = self._rules[0] or self.placement
        slots = [num_gpu_slots(view, rule, servers) for servers in self._servers]
        overloaded = int(self._sizes[jobs, 0, 0].sum()) > slots[0]
        add, remove = np.full(len(jobs), -np.inf), np.full(len(jobs), -np.inf)
        add[known], remove[known] = self._change_sizes(view, jobs[known], left[known], changing, overloaded)
        scores = borda_scores(self._service[jobs], add, remove, known & self.borda)
        level = np.searchsorted(self.thresholds, scores, side="left")
        order = np.lexsort((jobs, scores if self.within_level == "score" else level))
        return apply_sizes(view, self._admit(view, jobs[order], held[order], slots), self.placement)

    def _held_cpu_cores(self, view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [n] cores of the CPU that each worker of a job has, 0 on GPUs, and -1 if the job waits."""
        held = np.where(view.select(jobs).column("status") == JobStatus.RUNNING, 0, -1)
        if self._cpu_cores.any():
            for i in np.flatnonzero(held == 0).tolist():
                held[i] = self._cpu_cores[view.cluster.server_of_gpu[view.gpus_of(int(jobs[i]))[0]]]
        return held

    def _change_sizes(
        self,
        view: SchedulingView,
        jobs: NDArray[np.int64],
        left: NDArray[np.float64],
        changing: bool,
        overloaded: bool,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Change sizes if `changing`, and return [n] gains of the best addition and [n] of the best removal.

        `jobs` [n] are predictable, with `left` base iterations. `overloaded`: all sizes exceed the cluster.
        """
        for job in jobs[self._profiled_at[jobs] != view.num_gpus_up].tolist():
            self._profile_changes(view, job)
        seconds = self._seconds_of[jobs]
        exists = np.isfinite(seconds)
        cost = left[:, None] * np.where(exists, seconds, 0.0) * self._rate_of[jobs]
        gains = np.where(exists, cost[:, :1] - cost, -np.inf)
        if changing:  # with room for all, take the addition that shortens a step most, if any does
            chosen = gains.argmax(axis=1) if overloaded else seconds[:, : _MORE.stop].argmin(axis=1)
            for i in np.flatnonzero(chosen).tolist():
                self._resize(view, int(jobs[i]), self._sizes[jobs[i], chosen[i]])
        return gains[:, _MORE].max(axis=1), gains[:, _FEWER].max(axis=1)

    def _resize(self, view: SchedulingView, job: int, size: NDArray[np.int64]) -> None:
        """Set the size that the job shall have from now on."""
        self._sizes[job, 0] = size
        workers, servers, cores = size.tolist()
        shape = Allocation(job, cores_per_worker=cores, parameter_servers=servers)
        self._targets[job] = Target(job, workers, shape, self._rules[0])
        self._rate_of[job, 0] = self._rate(view, job, size)
        self._profiled_at[job] = -1

    def _profile_changes(self, view: SchedulingView, job: int) -> None:
        """Profile the sizes one unit away, which depend only on the present size and the GPUs that are up."""
        sizes, unit = self._sizes[job], 1 if self._sizes[job, 0, 1] else 2
        low = (self._fewest[job], 1, 1)
        most = max(view.cluster.cores_per_server, default=0)
        high = (min(int(view.column("max_gpus")[job]), view.num_gpus_up), self.max_servers, most)
        self._seconds_of[job] = np.inf
        for i, unit_changed in enumerate((0, unit, 0, unit), 1):
            sizes[i] = sizes[0]
            sizes[i, unit_changed] += _STEPS[i]
            inside = low[unit_changed] <= sizes[i, unit_changed] <= high[unit_changed]
            if sizes[0, unit_changed] and inside and self._fits(view, job, sizes[i]):
                self._seconds_of[job, i] = self._seconds(view, job, sizes[i])
                self._rate_of[job, i] = self._rate(view, job, sizes[i])
        changes = np.isfinite(self._seconds_of[job]).any()
        self._seconds_of[job, 0] = self._seconds(view, job, sizes[0]) if changes else 1.0
        self._profiled_at[job] = view.num_gpus_up

    def _cores(self, view: SchedulingView, jobs: Any, sizes: NDArray[np.int64]) -> Any:
        workers, servers, cores = sizes.T
        if not view.cluster.cores_per_server:
            return POD_CORES * (workers + servers)
        return workers * cores + servers * view.column("asked_cores_per_server_task")[jobs]

    def _rate(self, view: SchedulingView, job: int, size: NDArray[np.int64]) -> float:
        """Return R, the service per second of a job of this size."""
        return float(self.gpu_weight * size[0] + self._cores(view, job, size))

    def _fits(self, view: SchedulingView, job: int, size: NDArray[np.int64]) -> bool:
        """Return whether the GPUs and cores of the empty cluster can hold the job in this size."""
        gpus = np.array(view.cluster.gpus_per_server)[self._servers[0]]
        if not view.cluster.cores_per_server:
            return bool(size[0] <= gpus.sum())
        cores = np.array(view.cluster.cores_per_server)[self._servers[0]]
        workers = np.minimum(gpus, cores // max(size[2], 1)).sum()
        return bool(size[0] <= workers and self._cores(view, job, size) <= cores.sum())

    def _seconds(self, view: SchedulingView, job: int, size: NDArray[np.int64]) -> float:
        """Return the predicted seconds per step."""
        seconds = self._models.seconds(view, job, int(size[0]), int(size[1]))
        if size[2] != view.column("asked_cores")[job]:
            seconds *= self._core_factor(view, job, int(size[2]))
        return seconds

    def _core_factor(self, view: SchedulingView, job: int, cores: int) -> float:
        """Return seconds per step with `cores` / seconds with the requested cores, by the CPU profile."""
        if job not in self._core_profile:
            tried = np.arange(1, max(view.cluster.cores_per_server) + 1)
            seconds = isolated_iteration_seconds(view, np.full(len(tried), job), cores_per_worker=tried)
            self._core_profile[job] = seconds / float(view.column("isolated_iteration_seconds")[job])
        return float(self._core_profile[job][cores - 1])

    def _points(self, view: SchedulingView, job: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the workers and the parameter servers of the allocations that are profiled."""
        if view.column("kind")[job] == JobKind.PARAMETER_SERVER:
            workers, servers = np.array(CALIBRATION, dtype=np.float64).T
            return workers, servers
        workers = spread_sizes(view, job, 7)
        return workers, np.zeros(len(workers))

    def _admit(
        self, view: SchedulingView, order: NDArray[np.int64], held: NDArray[np.int64], slots: Sequence[int]
    ) -> list[Target]:
        """Return the jobs that fit into what is left, in order. Others are skipped (backfill).

        `slots` are the GPUs, and the CPUs that train. `held` [n] is that of `_held_cpu_cores`.
        """
        left, free = list(slots), num_gpu_slots(view, self._rules[0] or self.placement)
        counted = view.cluster.cores_per_server
        cores = [sum(np.array(counted)[one].tolist()) if counted else np.inf for one in self._servers]
        sizes, targets = self._sizes[order, 0], []
        needs = self._cores(view, order, sizes) if counted else np.zeros(len(order), np.int64)
        rows = zip(order.tolist(), held.tolist(), sizes[:, 0].tolist(), needs.tolist(), strict=True)
        for job, present, workers, need in rows:
            kind, target = 0, self._targets[job]
            while kind < len(left) and (workers > left[kind] or need > cores[kind]):
                kind += 1
            if kind < len(left):
                left[kind] -= workers
                cores[kind] -= need
                moves = present >= 0 and (present > 0) != (kind == 1)
                if kind or moves:
                    target = target._replace(rule=self._rules[kind], moves=moves)
            elif max(slots) < workers <= free:  # neither kind has as many
                left = [max(one - workers, 0) for one in left]
                target = target._replace(rule=None)
            else:
                continue
            targets.append(target)
            free -= workers
            if free == 0:
                break
        return targets
