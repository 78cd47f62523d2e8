"""AITurbo (HPDC 2021), after a public follow-on: unit changes of CPU and GPU, Borda count, feedback queue."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.checks import Fraction, Positive, PositiveInt, checked
from ringyard.sim.speeds import fewest_gpus, isolated_iteration_seconds
from ringyard.state.records import JobKind, JobStatus
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.predictions import LossCurves
from ringyard_baselines.tools.step_model import StepModels, spread_sizes
from ringyard_baselines.tools.targets import Target, apply_sizes, num_gpu_slots
from ringyard_baselines.tools.time_slots import TimeSlots


class JobSize(NamedTuple):
    """Resources that a job shall hold: workers (one GPU each), parameter servers, cores of each worker."""

    workers: int
    servers: int
    cores: int


#: (workers, parameter servers) profiled for parameter-server jobs: the public calibration points with
#: one GPU a worker
CALIBRATION = ((1, 1), (2, 1), (3, 1), (1, 2), (2, 2))

#: single-unit changes of a job in one direction, at most: a worker, and a server or a core
_MAX_CHANGES = 2

#: CPU cores that a pod counts for if the cluster does not count cores
POD_CORES = 5


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
    The test of `predictions.forecast` replaces the trained classifier (its features and weights are not
    public). A job that fails it later is no longer predictable.

    Args:
        placement: where jobs go.
        round_seconds: length of a slot in seconds.
        thresholds: Borda scores that end the first and the second level, ascending.
        within_level: "score" (FOUND, then levels change nothing) or "submission" (first come, first served).
        gpu_weight: number of cores that one GPU counts for, best of the public sweep.
        max_servers: largest number of parameter servers of a job.
        predictor: "workload" for the workload's predictions, "loss_curve" for a fit to the logged losses,
            "none" if no job is predictable.
        confidence: confidence of the loss curve, 0 to 1, from which a job is predictable.
        borda: whether gains count for the order of jobs. False: attained service alone.
    """

    name = "aiturbo"
    observability = Observability.SIZES | Observability.PREDICTIONS | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE | Capabilities.CORES

    def __init__(
        self,
        placement: PlacementRule,
        round_seconds: Positive = 240.0,
        thresholds: Annotated[Sequence[float], "strictly ascending"] = (30.0, 180.0),
        within_level: Literal["score", "submission"] = "score",
        gpu_weight: Positive = 10.0,
        max_servers: PositiveInt = 10,
        predictor: Literal["workload", "loss_curve", "none"] = "workload",
        confidence: Fraction = 0.5,
        borda: bool = True,
    ) -> None:
        self.placement = placement
        self.round_seconds: float | None = round_seconds
        self._thresholds = np.array(thresholds, dtype=np.float64)
        self._by_score = within_level == "score"
        self._gpu_weight = gpu_weight
        self._max_servers = max_servers
        self._predictor = predictor
        self._confidence = confidence
        self._borda = borda
        if predictor == "loss_curve":
            self.observability = Observability.SIZES | Observability.TRAINING_CURVES | Observability.SPEEDS

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles, sizes and service (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        num_jobs = len(jobs)
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._models = StepModels(self._points)
        self._sizes: dict[int, JobSize] = {}
        self._shapes: dict[int, Allocation] = {}
        # sizes with one unit more, and with one unit less
        self._unit_changes: dict[int, tuple[list[JobSize], list[JobSize]]] = {}
        self._fewest: dict[int, int] = {}
        self._core_profile: dict[int, NDArray[np.float64]] = {}
        self._predictable = np.zeros(num_jobs, dtype=np.bool_)
        self._curves = LossCurves(self._confidence)
        self._last = 0.0
        self._service = np.zeros(num_jobs)
        self._workers, self._servers, self._worker_cores = np.zeros((3, num_jobs), np.int64)  # of `_sizes`
        self._rates = np.zeros(num_jobs)  # R of `_sizes`
        self._profiled_at = np.full(num_jobs, -1)  # GPUs that were up then, -1 if not profiled
        # columns: the present size, larger ones, smaller ones
        self._seconds_of = np.full((num_jobs, 1 + 2 * _MAX_CHANGES), np.inf)
        self._rate_of = np.zeros((num_jobs, 1 + 2 * _MAX_CHANGES))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Change sizes if a slot begins or a job turned predictable, then rank and admit all jobs."""
        jobs = view.gpu_jobs
        elapsed, self._last = view.now - self._last, view.now
        self._service[view.running] += self._rates[view.running] * elapsed
        if self._predictor == "loss_curve":
            left = self._curves.iterations_left(view, jobs)
        else:
            left = view.select(jobs).predicted_iterations
        known = ~np.isnan(left) if self._predictor != "none" else np.zeros(len(jobs), np.bool_)
        newly_predictable = bool((known & ~self._predictable[jobs]).any())
        self._predictable[jobs] = known
        changing = self._slots.begins(view) or newly_predictable
        for job in jobs[self._workers[jobs] == 0].tolist():
            self._fewest[job] = int(fewest_gpus(view, np.array([job]))[0])
            self._resize(view, job, self._requested_size(view, job))
        overloaded = int(self._workers[jobs].sum()) > num_gpu_slots(view, self.placement)
        add, remove = np.full(len(jobs), -np.inf), np.full(len(jobs), -np.inf)
        add[known], remove[known] = self._change_sizes(view, jobs[known], left[known], changing, overloaded)
        scores = borda_scores(self._service[jobs], add, remove, known & self._borda)
        level = np.searchsorted(self._thresholds, scores, side="left")
        order = np.lexsort((jobs, scores if self._by_score else level))
        return apply_sizes(view, self._admit(view, jobs[order]), self.placement)

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
        gains = _gains(seconds, self._rate_of[jobs], left)
        larger, smaller = gains[:, :_MAX_CHANGES], gains[:, _MAX_CHANGES:]
        add, remove = larger.max(axis=1), smaller.max(axis=1)
        if changing and overloaded:
            for i in np.flatnonzero(np.maximum(add, remove) > 0).tolist():
                more, fewer = self._unit_changes[int(jobs[i])]
                sizes, gained = (more, larger[i]) if add[i] > remove[i] else (fewer, smaller[i])
                self._resize(view, int(jobs[i]), sizes[int(np.argmax(gained))])
        elif changing:  # the addition that shortens a step most, if any does
            shortest = np.argmin(seconds[:, : 1 + _MAX_CHANGES], axis=1)
            for i in np.flatnonzero(shortest).tolist():
                self._resize(view, int(jobs[i]), self._unit_changes[int(jobs[i])][0][shortest[i] - 1])
        return add, remove

    def _resize(self, view: SchedulingView, job: int, size: JobSize) -> None:
        """Set the size that the job shall have from now on."""
        self._sizes[job] = size
        self._shapes[job] = Allocation(job, cores_per_worker=size.cores, parameter_servers=size.servers)
        self._workers[job], self._servers[job], self._worker_cores[job] = size
        self._rates[job] = self._rate(view, job, size)
        self._profiled_at[job] = -1

    def _profile_changes(self, view: SchedulingView, job: int) -> None:
        """Profile the sizes one unit away, which depend only on the present size and the GPUs that are up."""
        size = self._sizes[job]
        larger, smaller = (self._changes(view, job, size, sign) for sign in (1, -1))
        self._unit_changes[job] = (larger, smaller)
        self._seconds_of[job] = np.inf
        self._seconds_of[job, 0] = self._rate_of[job, 0] = 1.0  # stays if the job cannot change
        present = [size] if larger or smaller else []
        for first, sizes in ((0, present), (1, larger), (1 + _MAX_CHANGES, smaller)):
            for i, one in enumerate(sizes, first):
                self._seconds_of[job, i] = self._seconds(view, job, one)
                self._rate_of[job, i] = self._rate(view, job, one)
        self._profiled_at[job] = view.num_gpus_up

    def _requested_size(self, view: SchedulingView, job: int) -> JobSize:
        asked = ("asked_gpus", "asked_parameter_servers", "asked_cores")
        return JobSize(*(int(view.column(name)[job]) for name in asked))

    def _cores(self, view: SchedulingView, job: int, size: JobSize) -> int:
        if not view.cluster.cores_per_server:
            return POD_CORES * (size.workers + size.servers)
        return size.workers * size.cores + size.servers * int(view.column("asked_cores_per_server_task")[job])

    def _rate(self, view: SchedulingView, job: int, size: JobSize) -> float:
        """Return R, the service per second of a job of this size."""
        return self._gpu_weight * size.workers + self._cores(view, job, size)

    def _changes(self, view: SchedulingView, job: int, size: JobSize, sign: int) -> list[JobSize]:
        low, high = self._fewest[job], view.column("max_gpus")[job]
        changes = []
        if low <= size.workers + sign <= min(high, view.num_gpus_up):
            changes.append(size._replace(workers=size.workers + sign))
        if size.servers and 1 <= size.servers + sign <= self._max_servers:
            changes.append(size._replace(servers=size.servers + sign))
        most = max(view.cluster.cores_per_server, default=0)
        if not size.servers and size.cores and 1 <= size.cores + sign <= most:
            changes.append(size._replace(cores=size.cores + sign))
        return [change for change in changes if self._fits(view, job, change)]

    def _fits(self, view: SchedulingView, job: int, size: JobSize) -> bool:
        """Return whether the empty cluster can hold the job in this size."""
        if not view.cluster.cores_per_server:
            return True
        cores = np.array(view.cluster.cores_per_server)
        workers = np.minimum(view.cluster.gpus_per_server, cores // max(size.cores, 1)).sum()
        return bool(size.workers <= workers and self._cores(view, job, size) <= cores.sum())

    def _seconds(self, view: SchedulingView, job: int, size: JobSize) -> float:
        """Return the predicted seconds per step."""
        seconds = self._models.seconds(view, job, size.workers, size.servers)
        if size.cores != view.column("asked_cores")[job]:
            seconds *= self._core_factor(view, job, size.cores)
        return seconds

    def _core_factor(self, view: SchedulingView, job: int, cores: int) -> float:
        """Return seconds per step with `cores` / seconds with the requested cores, by the CPU profile."""
        if job not in self._core_profile:
            tried = np.arange(1, max(view.cluster.cores_per_server) + 1)
            rows = np.full(len(tried), job)
            asked = float(view.column("isolated_iteration_seconds")[job])
            self._core_profile[job] = isolated_iteration_seconds(view, rows, cores_per_worker=tried) / asked
        return float(self._core_profile[job][cores - 1])

    def _points(self, view: SchedulingView, job: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the workers and the parameter servers of the allocations that are profiled."""
        if view.column("kind")[job] == JobKind.PARAMETER_SERVER:
            workers, servers = np.array(CALIBRATION, dtype=np.float64).T
            return workers, servers
        workers = spread_sizes(view, job, 7)
        return workers, np.zeros(len(workers))

    def _admit(self, view: SchedulingView, order: NDArray[np.int64]) -> list[Target]:
        """Return the jobs that fit into what is left, in order. Others are skipped (backfill)."""
        gpus = num_gpu_slots(view, self.placement)
        cores = sum(view.cluster.cores_per_server) or np.inf
        targets = []
        has_all = self._runs_as_sized(view, order).tolist()
        for job, workers, has in zip(order.tolist(), self._workers[order].tolist(), has_all, strict=True):
            if workers > gpus:
                continue
            need = self._cores(view, job, self._sizes[job]) if cores < np.inf else 0
            if need <= cores:
                gpus -= workers
                cores -= need
                targets.append(Target(job, workers, None if has else self._shapes[job]))
                if gpus == 0:
                    break
        return targets

    def _runs_as_sized(self, view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return [n] whether a job runs with everything that it shall have."""
        seen = view.select(jobs)
        has = seen.column("status") == JobStatus.RUNNING
        has &= seen.column("num_gpus") == self._workers[jobs]
        has &= seen.column("cores_per_worker") == self._worker_cores[jobs]
        has &= seen.column("parameter_servers") == self._servers[jobs]
        return has


def _gains(
    seconds: NDArray[np.float64], rate: NDArray[np.float64], left: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return [n, 2 x changes] drops in cost-to-finish by larger, then smaller sizes, -inf where none.

    Cost-to-finish is remaining time x R. `seconds` [n, 1 + 2 x changes] per step has the present size first,
    inf where there is no such size. `rate` is R of these sizes, `left` [n] the base iterations left.
    """
    with np.errstate(invalid="ignore"):
        cost = left[:, None] * seconds * rate
    gains = cost[:, :1] - np.where(np.isinf(seconds[:, 1:]), np.inf, cost[:, 1:])
    return gains
