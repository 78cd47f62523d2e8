"""ONES (Bian et al., SC 2021): online evolutionary search over schedules with elastic batches."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Count, Positive, Share, checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.draft import Draft
from ringyard.sim.view import SchedulingView
from ringyard.state.records import JobKind
from ringyard_baselines.papers.ones.evolution import evolve
from ringyard_baselines.papers.ones.inputs import FREE, Jobs, Machine, Rates, Workspace
from ringyard_baselines.papers.ones.progress import History, ProgressPredictor, SameAgain
from ringyard_baselines.scheduler import Information, Powers, Scheduler
from ringyard_baselines.tools.speeds import BatchRule, SpeedTable, speed_table
from ringyard_baselines.tools.targets import never_idle, start_cpu_jobs

__all__ = ["Ones"]


@checked("ones")
class Ones(Scheduler):
    """Population of schedules, evolved while jobs run; the best is deployed when it may be.

    FOUND (the artifact): one gene per GPU; the limits R (start, scale-up, scale-down, resume); rho ~
    Beta(epochs done, predicted epochs left + 1), sampled anew each time; SRUF score; refresh, uniform
    crossover, uniform mutation, padding first to the present limit min(R, 4 x GPUs asked), then to R,
    reordering into contiguous blocks with least displacement; K = 16, xi = 0.5, theta = 0.3; a change is
    deployed when every running job it touches has finished delta = 1 epochs since it was last scheduled, at
    once if it touches none; global batch = base batch x GPUs up to a limit. The artifact's errors are not
    copied: the "2 epochs since the last scaling" test reads a key that is never written (here it is tested
    as meant), and prediction gives the predictor D where training gave it log D.

    Our reading: a schedule may be deployed in parts, each change judged with all that it displaces. Not as
    published: speeds are profiles instead of means of measured epochs; generations at every event and every
    `round_seconds` instead of one every second; the batch limit is the job's own. Assumed: an epoch is
    `epoch_seconds` of the job's work as it asks to run (workloads have no data set sizes; the artifact's
    CIFAR epochs take 4 to 7 s); jobs that cannot run on one GPU begin with their fewest; among blocks that
    displace equally many, a job's own GPUs and fewer servers win.

    Args:
        placement: of CPU-only jobs; GPU jobs go where their genes are.
        predictor: of progress.
        population: K.
        crossover: xi.
        mutation: theta.
        redeploy_epochs: delta.
        scale_down: sigma.
        epoch_seconds: see above. Assumption.
        generations: evolved at each decision.
        round_seconds: decide every this many seconds as well.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "ones"
    information = (
        Information.SIZES | Information.ATTAINED_SERVICE | Information.TRAINING_CURVES | Information.SPEEDS
    )
    may = Powers.STOPS | Powers.RESIZES

    def __init__(
        self,
        placement: PlacementRule,
        predictor: ProgressPredictor | None = None,
        population: Annotated[int, "[2, 2147483647]"] = 16,
        crossover: Share = 0.5,
        mutation: Share = 0.3,
        redeploy_epochs: Positive = 1.0,
        scale_down: Positive = 1.0,
        epoch_seconds: Positive = 60.0,
        generations: Count = 2,
        round_seconds: Positive = 120.0,
    ) -> None:
        self.placement = placement
        self.round_seconds: float | None = round_seconds
        self._predictor = predictor or SameAgain()
        self._size = population
        self._rates = Rates(float(crossover), float(mutation))
        self._delta = redeploy_epochs
        self._sigma = scale_down
        self._epoch_seconds = epoch_seconds
        self._generations = generations
        self._begin(0, np.random.default_rng(0))

    def _begin(self, num_jobs: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self._table: SpeedTable | None = None
        self._limit = np.zeros(num_jobs, dtype=np.int64)  # R; 0: not seen yet
        self._scaled_at = np.zeros(num_jobs)  # epochs done when it was last scheduled
        self._live: set[int] = set()
        self._population: NDArray[np.int64] | None = None  # job rows
        self._history = History()
        self._fitted = 0

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget population, limits and what the predictor has learnt."""
        self._begin(len(jobs), rng)
        self._predictor.reset(rng)

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Evolve, then deploy the best schedule as far as it may be."""
        if self._table is None:
            self._table = speed_table(view, BatchRule.PER_GPU)
        draft = Draft(view)
        jobs = view.gpu_jobs
        epochs = self._epochs(view)
        self._learn(view, jobs, epochs)
        if not len(jobs):
            return start_cpu_jobs(view, draft, self.placement)
        self._set_limits(view, jobs, epochs)
        best = self._evolved(view, jobs, epochs)
        allocations = self._deploy(view, draft, best, epochs)
        allocations += start_cpu_jobs(view, draft, self.placement)
        return never_idle(view, draft, self.placement, jobs.tolist(), allocations)

    def _epochs(self, view: SchedulingView) -> NDArray[np.float64]:
        """[jobs] epochs done."""
        return view.completed_iterations * view.column("isolated_iteration_seconds") / self._epoch_seconds

    def _features(
        self, view: SchedulingView, jobs: NDArray[np.int64], epochs: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """[n, 5]; the normalised loss begins at 1."""
        iteration = view.column("isolated_iteration_seconds")[jobs]
        samples = self._epoch_seconds / iteration * view.column("base_batch")[jobs]
        metric = np.nan_to_num(view.validation_metric[jobs])
        loss = view.training_loss[jobs]
        return np.stack([np.log(samples), np.ones(len(jobs)), epochs[jobs], 1.0 - loss, metric], axis=1)

    def _learn(self, view: SchedulingView, jobs: NDArray[np.int64], epochs: NDArray[np.float64]) -> None:
        """Note what running jobs show; refit when a tenth more jobs have finished than at the last fit."""
        live = set(jobs.tolist())
        for job in sorted(self._live - live):
            self._history.finish(job, float(epochs[job]))
        finished = len(self._limit) - int((self._limit == 0).sum()) - len(live)
        self._live = live
        running = jobs[np.isin(jobs, view.running) & (epochs[jobs] >= 1.0)]
        for job, row in zip(running.tolist(), self._features(view, running, epochs), strict=True):
            self._history.note(job, row)
        if self._history.rows and finished > 1.1 * self._fitted:
            self._fitted = finished
            rows = np.array(self._history.rows)
            self._predictor.fit(rows[:, :5], rows[:, 2], rows[:, 5])

    def _set_limits(self, view: SchedulingView, jobs: NDArray[np.int64], epochs: NDArray[np.float64]) -> None:
        """Start, scale-up and scale-down."""
        low, high = view.column("min_gpus"), view.column("max_gpus")
        new = jobs[self._limit[jobs] == 0]
        self._limit[new] = np.maximum(low[new], 1)
        running = jobs[np.isin(jobs, view.running)]
        held = view.num_gpus
        ripe = running[epochs[running] - self._scaled_at[running] >= 2.0]
        grown = ripe[held[ripe] == self._limit[ripe]]
        self._limit[grown] = np.minimum(
            2 * self._limit[grown], np.minimum(high[grown], view.cluster.num_gpus)
        )
        if not len(running):
            return
        largest = int(running[np.argmax(held[running])])
        ran = view.column("run_seconds") + view.now - view.column("synced_seconds")
        median = float(np.median(ran[running]))
        if 2 * held[largest] >= view.cluster.num_gpus and ran[largest] > median > 0:
            ratio = self._sigma * ran[largest] / median
            limit = max(1, int(2 * held[largest] / (ratio + 1.0)))
            self._limit[largest] = max(low[largest], limit + limit % 2)

    def _left(
        self, jobs: NDArray[np.int64], epochs: NDArray[np.float64], view: SchedulingView
    ) -> NDArray[np.float64]:
        """[n] iterations left by one sample of progress; NaN before the second epoch."""
        done = epochs[jobs]
        b = self._predictor.beta(self._features(view, jobs, epochs), done)
        rho = np.clip(self._rng.beta(np.maximum(done, 1e-3), np.maximum(b, 1e-3)), 1e-6, 1.0)
        return np.where(done >= 2.0, view.completed_iterations[jobs] * (1.0 / rho - 1.0), np.nan)

    def _evolved(
        self, view: SchedulingView, jobs: NDArray[np.int64], epochs: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """[GPUs] job row of each GPU in the best schedule, -1 free."""
        position = np.full(len(self._limit) + 1, FREE)
        position[jobs] = np.arange(len(jobs))
        present = position[view.job_of_gpu]
        population = np.full((3 * self._size, view.cluster.num_gpus), FREE)
        population[: self._size] = present if self._population is None else position[self._population]
        population[0] = present
        machine = Machine(
            present=present,
            server=view.cluster.server_of_gpu.astype(np.int64),
            up=np.repeat(view.servers_up, view.cluster.gpus_per_server).astype(np.int64),
            widest=max(view.cluster.gpus_per_server),
        )
        known = self._known(view, jobs, epochs, present)
        work = Workspace.empty(len(population), view.cluster.num_gpus, len(jobs))
        generator = self._rng.integers(1, 2**63, 1).astype(np.uint64)
        for _ in range(self._generations):
            evolve(population, known, machine, self._rates, work, generator)
        rows = np.append(jobs, FREE)
        self._population = rows[population[: self._size]]
        return self._population[0]

    def _known(
        self,
        view: SchedulingView,
        jobs: NDArray[np.int64],
        epochs: NDArray[np.float64],
        present: NDArray[np.int64],
    ) -> Jobs:
        """What evolution knows of the jobs; `present` [GPUs] is the position of each GPU's job, -1 free."""
        assert self._table is not None
        limit = self._limit[jobs]
        left = self._left(jobs, epochs, view)
        order = np.lexsort((jobs, np.where(np.isnan(left), 0.0, left / self._table.least_of(jobs))))
        where = np.full(len(jobs), float(view.cluster.num_gpus))
        np.minimum.at(where, present[present >= 0], np.flatnonzero(present >= 0))
        return Jobs(
            fewest=view.column("min_gpus")[jobs].astype(np.int64),
            present_limit=np.minimum(limit, 4 * view.column("asked_gpus")[jobs].astype(np.int64)),
            limit=limit,
            allowed=self._table.allowed_of(jobs),
            mutable=(~np.isnan(left)).astype(np.int64),
            left=left,
            speed=np.ascontiguousarray(self._table.of(jobs)),
            padding=np.concatenate([order[np.isnan(left[order])], order[~np.isnan(left[order])]]),
            sequence=np.lexsort((jobs, where)),
        )

    def _deploy(
        self, view: SchedulingView, draft: Draft, best: NDArray[np.int64], epochs: NDArray[np.float64]
    ) -> list[Allocation]:
        """Every change that touches no running job which is not ripe."""
        wanted = {
            job: tuple(np.flatnonzero(best == job).tolist()) for job in np.unique(best[best >= 0]).tolist()
        }
        held = {
            job: view.gpus_of(job)
            for job in view.running.tolist()
            if view.column("kind")[job] != JobKind.CPU_ONLY
        }
        touched = [job for job, gpus in held.items() if wanted.get(job) != gpus]
        frozen = {job for job in touched if epochs[job] - self._scaled_at[job] < self._delta}
        blocked = self._blocked(wanted, held, view.job_of_gpu, frozen)
        touched = [job for job in touched if job not in blocked]
        wanted = {job: gpus for job, gpus in wanted.items() if job not in blocked}
        allocations = []
        for job in [job for job in touched if job not in wanted]:
            draft.release(job)
            allocations.append(Allocation(job))
            self._limit[job] = max(int(self._limit[job]) // 2, int(view.column("min_gpus")[job]), 1)
        shapes = {
            job: Allocation(job, gpus, batch_size=self._batch(job, len(gpus))) for job, gpus in wanted.items()
        }
        moving = [shapes[job] for job in touched if job in wanted]
        allocations += self._moved(view, draft, moving)
        new = [shapes[job] for job in wanted if job not in held]
        allocations += [shape for shape in new if draft.take(shape)]
        for allocation in allocations:
            if not allocation.stops:
                self._scaled_at[allocation.job] = epochs[allocation.job]
        return allocations

    @staticmethod
    def _blocked(
        wanted: Mapping[int, tuple[int, ...]],
        held: Mapping[int, tuple[int, ...]],
        present: NDArray[np.int32],
        frozen: set[int],
    ) -> set[int]:
        """Jobs that cannot change now: the frozen, whoever wants their GPUs, and so on."""
        blocked = set(frozen)
        while True:
            kept = [job for job in held if job in blocked]
            more = {
                job
                for job, gpus in wanted.items()
                if job not in blocked
                and np.isin(present[list(gpus)], [one for one in kept if one != job]).any()
            }
            if not more:
                return blocked
            blocked |= more

    def _batch(self, job: int, num_gpus: int) -> float:
        assert self._table is not None
        return self._table.batch_of(job, num_gpus)

    def _moved(self, view: SchedulingView, draft: Draft, moving: list[Allocation]) -> list[Allocation]:
        """Running jobs to their new GPUs as these become free, one by one; the rest shrink in between."""
        allocations = []
        progress = True
        while moving and progress:
            waiting = []
            for shape in moving:
                draft.release(shape.job)
                if draft.take(shape):
                    allocations.append(shape)
                else:
                    draft.take(view.allocation_of(shape.job))
                    waiting.append(shape)
            progress = len(waiting) < len(moving)
            moving = waiting
        parts = []
        for shape in moving:
            draft.release(shape.job)
            parts.append(self._part(view, draft, shape))
        allocations += parts
        for part, shape in zip(parts, moving, strict=True):
            draft.release(shape.job)
            if draft.take(shape):
                allocations.append(shape)
            elif not part.stops:
                draft.take(part)
        return allocations

    def _part(self, view: SchedulingView, draft: Draft, shape: Allocation) -> Allocation:
        """What a job keeps while others make room: GPUs it has and will have; a stop if too few."""
        kept = tuple(sorted(set(view.gpus_of(shape.job)) & set(shape.gpu_ids)))
        part = Allocation(shape.job, kept)
        if kept and self._allows(shape.job, len(kept)):
            part = Allocation(shape.job, kept, batch_size=self._batch(shape.job, len(kept)))
            if draft.take(part):
                return part
        return Allocation(shape.job)

    def _allows(self, job: int, num_gpus: int) -> bool:
        assert self._table is not None
        return bool(self._table.speed[self._table.place[job], num_gpus] > 0)
