"""AITurbo (HPDC 2021), as its public follow-on shows it: CPU-GPU steps, Borda count, feedback queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.checks import Fraction, Positive, PositiveInt, checked
from ringyard.sim.speeds import fewest_gpus, isolated_iteration_seconds
from ringyard.state.records import JobKind, JobStatus
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.predictions import curve_prediction
from ringyard_baselines.tools.step_model import StepModels, spread_sizes
from ringyard_baselines.tools.targets import Target, apply_sizes, num_gpu_slots
from ringyard_baselines.tools.time_slots import TimeSlots


class WithinLevel(StrEnum):
    """Order of the jobs of one queue level."""

    SCORE = "score"
    SUBMISSION = "submission"


class Predictor(StrEnum):
    """Where predictions come from."""

    WORKLOAD = "workload"
    LOSS_CURVE = "loss_curve"


class JobSize(NamedTuple):
    """What a job is to hold: workers (one GPU each), parameter servers, cores of each worker."""

    workers: int
    servers: int
    cores: int


#: (workers, parameter servers) profiled for parameter-server jobs: the public calibration points with
#: one GPU a worker
CALIBRATION = ((1, 1), (2, 1), (3, 1), (1, 2), (2, 2))

#: single-unit changes of a job in one direction, at most: a worker; a server or a core
_MAX_CHANGES = 2

#: cores counted for a pod where the cluster does not count cores
POD_CORES = 5


#: a loss curve is fitted anew when its log has grown by so much
REFIT_GROWTH = 1.1

#: share of the iterations done that is taken to be left at least, whatever the loss curve says
MIN_REMAINING_SHARE = 0.02


@dataclass(frozen=True)
class _LossForecast:
    """What a job's loss log said last.

    Attributes:
        points: of the log.
        end: iteration at which it ends.
        sure: the confidence was enough, then or before.
    """

    points: int = 0
    end: float = float("inf")
    sure: bool = False


def borda_scores(
    service: NDArray[np.float64],
    add_gain: NDArray[np.float64],
    remove_gain: NDArray[np.float64],
    predictable: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """[jobs] Borda scores, low is urgent: rank by service plus rank by gain, or twice the rank by service.

    Ranks begin at 1; the largest gain of a list ranks first; ties by position.

    Args:
        service: [jobs] attained.
        add_gain: [jobs] drop in cost-to-finish of the best addition, -inf if there is none.
        remove_gain: [jobs] the same of the best removal.
        predictable: [jobs]; the gains of others are not read.
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
    """Predictable jobs change by one unit of CPU or GPU at a time; all jobs queue by Borda count.

    FOUND (the public follow-on and its scripts; no text of the paper was reached): service rate R = 10 per
    GPU + 1 per core, cost-to-finish C = remaining time x R, the single-unit changes +-1 parameter server and
    +-1 worker with its GPU, the list each job joins, Borda scores, thresholds (30, 180) of three levels,
    admission from the top level down with backfill, preemption of the rest, slots of 240 s with a light pass
    at other events. Intended by the public code though its ranks say otherwise: the larger gain ranks
    first. Assumed: while the jobs' sizes exceed the cluster a change is made if its gain is positive; while
    they do not (when fewer GPUs are nearly always cheaper and no job needs them) a job takes the addition
    that shortens its steps most; the speed model's two terms in w/p are one (they are collinear at equal
    cores); sizes that memory, or the empty cluster's cores, cannot hold are no changes, and a job that finds
    no room for more cores starts with those it asks for; a ring's CPU unit is one core for each worker,
    judged by a CPU profile measured in advance. Whether and how well a job is predictable comes with the
    workload, or from its loss curve (FOUND: the curve's form, a job moves to the predictable ones when the
    confidence is 0.5; assumed: `tools.predictions.curve_prediction` instead of the trained classifier, whose
    features and weights are not public).

    Args:
        placement: where jobs go.
        round_seconds: length of a slot.
        thresholds: Borda scores that end the first and the second level, ascending.
        within_level: FOUND is by score, under which levels change nothing as they go by score too; by
            submission (first come first served, as Tiresias' levels) they do.
        gpu_weight: cores one GPU counts for (the public sweep's best).
        max_servers: most parameter servers of a job.
        predictor: "workload": as it says, with its error; "loss_curve": fitted to what the job has logged.
        confidence: in the loss curve, from which on a job is predictable.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "aiturbo"
    observability = Observability.SIZES | Observability.PREDICTIONS | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE | Capabilities.CORES

    def __init__(
        self,
        placement: PlacementRule,
        round_seconds: Positive = 240.0,
        thresholds: Annotated[Sequence[float], "strictly ascending"] = (30.0, 180.0),
        within_level: WithinLevel = WithinLevel.SCORE,
        gpu_weight: Positive = 10.0,
        max_servers: PositiveInt = 10,
        predictor: Predictor = Predictor.WORKLOAD,
        confidence: Fraction = 0.5,
    ) -> None:
        self.placement = placement
        self.round_seconds: float | None = round_seconds
        self._thresholds = np.array(thresholds, dtype=np.float64)
        self._by_score = WithinLevel(within_level) is WithinLevel.SCORE
        self._gpu_weight = gpu_weight
        self._max_servers = max_servers
        self._by_curve = Predictor(predictor) is Predictor.LOSS_CURVE
        self._confidence = confidence
        if self._by_curve:
            self.observability = Observability.SIZES | Observability.TRAINING_CURVES | Observability.SPEEDS

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles, sizes and service."""
        num_jobs = len(jobs)
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._models = StepModels(self._points)
        self._sizes: dict[int, JobSize] = {}
        self._shapes: dict[int, Allocation] = {}
        self._nearby: dict[
            int, tuple[list[JobSize], list[JobSize]]
        ] = {}  # sizes with one unit more, or one less
        self._fewest: dict[int, int] = {}
        self._input: dict[int, NDArray[np.float64]] = {}
        self._predictable = np.zeros(num_jobs, dtype=np.bool_)
        self._curves: dict[int, _LossForecast] = {}
        self._last = 0.0
        self._service = np.zeros(num_jobs)
        self._workers, self._servers, self._worker_cores = np.zeros((3, num_jobs), np.int64)  # of `_sizes`
        self._rates = np.zeros(num_jobs)  # R of `_sizes`
        self._noted = np.full(num_jobs, -1)  # GPUs that were up when what is nearby was noted; -1: not noted
        # of the size, of larger, of smaller ones
        self._seconds_of = np.full((num_jobs, 1 + 2 * _MAX_CHANGES), np.inf)
        self._rate_of = np.zeros((num_jobs, 1 + 2 * _MAX_CHANGES))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Change sizes when a slot begins or a job turned predictable; rank and admit always."""
        jobs = view.gpu_jobs
        self._account(view)
        left = self._left(view, jobs) if self._by_curve else view.select(jobs).predicted_iterations
        known = ~np.isnan(left)
        turned = bool((known & ~self._predictable[jobs]).any())
        self._predictable[jobs[known]] = True
        changing = self._slots.begins(view) or turned
        for job in jobs[self._workers[jobs] == 0].tolist():
            self._fewest[job] = int(fewest_gpus(view, np.array([job]))[0])
            self._resize(view, job, self._asked(view, job))
        crowded = int(self._workers[jobs].sum()) > num_gpu_slots(view, self.placement)
        add, remove = np.full(len(jobs), -np.inf), np.full(len(jobs), -np.inf)
        add[known], remove[known] = self._weigh(view, jobs[known], left[known], changing, crowded)
        scores = borda_scores(self._service[jobs], add, remove, known)
        level = np.searchsorted(self._thresholds, scores, side="left")
        order = np.lexsort((jobs, scores if self._by_score else level))
        return apply_sizes(view, self._admit(view, jobs[order]), self.placement)

    def _weigh(
        self,
        view: SchedulingView,
        jobs: NDArray[np.int64],
        left: NDArray[np.float64],
        changing: bool,
        crowded: bool,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[n] gains of the best addition and of the best removal; sizes change if it is time.

        Args:
            view: the present moment.
            jobs: [n] predictable ones.
            left: [n] base iterations.
            changing: sizes may change.
            crowded: the jobs' sizes exceed the cluster.
        """
        for job in jobs[self._noted[jobs] != view.num_gpus_up].tolist():
            self._note(view, job)
        seconds = self._seconds_of[jobs]
        gains = _gains(seconds, self._rate_of[jobs], left)
        larger, smaller = gains[:, :_MAX_CHANGES], gains[:, _MAX_CHANGES:]
        add, remove = larger.max(axis=1), smaller.max(axis=1)
        if changing and crowded:
            for i in np.flatnonzero(np.maximum(add, remove) > 0).tolist():
                more, fewer = self._nearby[int(jobs[i])]
                sizes, gained = (more, larger[i]) if add[i] > remove[i] else (fewer, smaller[i])
                self._resize(view, int(jobs[i]), sizes[int(np.argmax(gained))])
        elif changing:  # the addition that shortens a step most, if any does
            shortest = np.argmin(seconds[:, : 1 + _MAX_CHANGES], axis=1)
            for i in np.flatnonzero(shortest).tolist():
                self._resize(view, int(jobs[i]), self._nearby[int(jobs[i])][0][shortest[i] - 1])
        return add, remove

    def _resize(self, view: SchedulingView, job: int, size: JobSize) -> None:
        """The job is to have this size from now on."""
        self._sizes[job] = size
        self._shapes[job] = Allocation(job, cores_per_worker=size.cores, parameter_servers=size.servers)
        self._workers[job], self._servers[job], self._worker_cores[job] = size
        self._rates[job] = self._rate(view, job, size)
        self._noted[job] = -1

    def _note(self, view: SchedulingView, job: int) -> None:
        """What the job could hold next; it depends on nothing but its size and the GPUs there are."""
        size = self._sizes[job]
        larger, smaller = (self._changes(view, job, size, sign) for sign in (1, -1))
        self._nearby[job] = (larger, smaller)
        self._seconds_of[job] = np.inf
        self._seconds_of[job, 0] = self._rate_of[job, 0] = 1.0  # stays if the job cannot change
        for first, sizes in (
            (0, [size] if larger or smaller else []),
            (1, larger),
            (1 + _MAX_CHANGES, smaller),
        ):
            for i, one in enumerate(sizes, first):
                self._seconds_of[job, i] = self._seconds(view, job, one)
                self._rate_of[job, i] = self._rate(view, job, one)
        self._noted[job] = view.num_gpus_up

    def _left(self, view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        """[n] base iterations left by loss curves; NaN where the confidence never was enough."""
        done = view.select(jobs).completed_iterations
        left = np.full(len(jobs), np.nan)
        for i, job in enumerate(jobs.tolist()):
            iterations, loss = view.loss_log(job)
            curve = self._curves.get(job, _LossForecast())
            if len(loss) >= REFIT_GROWTH * max(curve.points, 1):
                end, confidence = curve_prediction(iterations, loss)
                sure = curve.sure or confidence >= self._confidence
                curve = self._curves[job] = _LossForecast(len(loss), end if end < np.inf else curve.end, sure)
            if curve.sure:
                left[i] = max(curve.end - done[i], MIN_REMAINING_SHARE * done[i])
        return left

    def _account(self, view: SchedulingView) -> None:
        """Service at rate R since the last decision."""
        elapsed, self._last = view.now - self._last, view.now
        rows = view.running
        self._service[rows] += self._rates[rows] * elapsed

    def _asked(self, view: SchedulingView, job: int) -> JobSize:
        return JobSize(
            int(view.column("asked_gpus")[job]),
            int(view.column("asked_parameter_servers")[job]),
            int(view.column("asked_cores")[job]),
        )

    def _cores(self, view: SchedulingView, job: int, size: JobSize) -> int:
        if not view.cluster.cores_per_server:
            return POD_CORES * (size.workers + size.servers)
        return size.workers * size.cores + size.servers * int(view.column("asked_cores_per_server_task")[job])

    def _rate(self, view: SchedulingView, job: int, size: JobSize) -> float:
        """R."""
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
        """Whether the empty cluster holds the job in this size."""
        if not view.cluster.cores_per_server:
            return True
        cores = np.array(view.cluster.cores_per_server)
        workers = np.minimum(view.cluster.gpus_per_server, cores // max(size.cores, 1)).sum()
        return bool(size.workers <= workers and self._cores(view, job, size) <= cores.sum())

    def _seconds(self, view: SchedulingView, job: int, size: JobSize) -> float:
        """Predicted seconds per step."""
        seconds = self._models.seconds(view, job, size.workers, size.servers)
        if size.cores != view.column("asked_cores")[job]:
            seconds *= self._core_factor(view, job, size.cores)
        return seconds

    def _core_factor(self, view: SchedulingView, job: int, cores: int) -> float:
        """Seconds per step with so many cores over those with the cores asked for (the CPU profile)."""
        if job not in self._input:
            tried = np.arange(1, max(view.cluster.cores_per_server) + 1)
            rows = np.full(len(tried), job)
            asked = float(view.column("isolated_iteration_seconds")[job])
            self._input[job] = isolated_iteration_seconds(view, rows, cores_per_worker=tried) / asked
        return float(self._input[job][cores - 1])

    def _points(self, view: SchedulingView, job: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Allocations profiled."""
        if view.column("kind")[job] == JobKind.PARAMETER_SERVER:
            workers, servers = np.array(CALIBRATION, dtype=np.float64).T
            return workers, servers
        workers = spread_sizes(view, job, 7)
        return workers, np.zeros(len(workers))

    def _admit(self, view: SchedulingView, order: NDArray[np.int64]) -> list[Target]:
        """Admit the jobs that fit what is left; others are skipped (backfill)."""
        gpus = num_gpu_slots(view, self.placement)
        cores = sum(view.cluster.cores_per_server) or np.inf
        targets = []
        has_all = self._has_all(view, order).tolist()
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

    def _has_all(self, view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[n] whether jobs run with all that they are to have."""
        seen = view.select(jobs)
        has = seen.column("status") == JobStatus.RUNNING
        has &= seen.column("num_gpus") == self._workers[jobs]
        has &= seen.column("cores_per_worker") == self._worker_cores[jobs]
        has &= seen.column("parameter_servers") == self._servers[jobs]
        return has


def _gains(
    seconds: NDArray[np.float64], rate: NDArray[np.float64], left: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[n, 2 x ways] what each larger size, then each smaller one would gain; -inf where there is none.

    A gain is a drop of the cost-to-finish C = remaining time x R.

    Args:
        seconds: [n, 1 + 2 x ways] per step, of the present size first; inf where there is none.
        rate: as `seconds`, R.
        left: [n] base iterations.
    """
    with np.errstate(invalid="ignore"):
        cost = left[:, None] * seconds * rate
    gains = cost[:, :1] - np.where(np.isinf(seconds[:, 1:]), np.inf, cost[:, 1:])
    return gains
