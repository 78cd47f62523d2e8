"""ONES (Bian et al., SC 2021): online evolutionary search over schedules with elastic batches."""

from collections.abc import Collection, Sequence
from typing import Annotated, Literal, NamedTuple

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
from ringyard.checks import Fraction, NonNegative, NonNegativeInt, Positive, checked
from ringyard.sim.job_columns import JobColumns
from ringyard.sim.speeds import BatchRule, SpeedTable, speed_table
from ringyard.state.records import JobKind, JobStatus
from ringyard_baselines.papers.ones.deployment import (
    Deployment,
    gpus_by_job,
    gpus_of_running_jobs,
    jobs_blocked_as_whole,
    jobs_blocked_in_parts,
)
from ringyard_baselines.papers.ones.evolution import evolve
from ringyard_baselines.papers.ones.progress import BetaProgress, ProgressHistory, earlier_job_rows
from ringyard_baselines.papers.ones.schedules import (
    FREE,
    ClusterGpus,
    SearchJobs,
    Workspace,
    fill_without_search,
)
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs, work_conserving

#: epochs that a job has completed before it may grow, be predicted and be moved by mutation, artifact
_MIN_EPOCHS = 2

#: numbers of jobs in the history that the predictor has seen, artifact
_NUM_EARLIER_JOBS = 20


class _JobSnapshot(NamedTuple):
    """GPU jobs at a decision.

    Attributes:
        jobs: [n] rows of those waiting and running, ascending.
        seen: their columns.
        running: [n] whether they run.
        epochs: [n] epochs done.
        completed: [n] whole ones, the validation before training counted.
        features: [n, 5] what the predictor sees.
    """

    jobs: NDArray[np.int64]
    seen: JobColumns
    running: NDArray[np.bool_]
    epochs: NDArray[np.float64]
    completed: NDArray[np.float64]
    features: NDArray[np.float64]


@checked("ones")
class Ones(Scheduler):
    """Population of schedules, evolved while jobs run; the best is deployed when it may be.

    FOUND (the artifact, as its code runs): one gene per GPU; a job begins with a limit R of one GPU; with two
    epochs completed in all (the validation before training is the first) R doubles whenever the job holds
    R GPUs; present limit min(R, 4 x GPUs asked); of the largest running job, if it holds half the cluster and
    ran longer than the median of all jobs that have started, the present limit is 2 n / (sigma t / t_median +
    1), made even; R of a stopped job halves at every decision that may deploy and does not resume it. rho ~
    Beta(epochs done, predicted epochs left + 1), sampled anew each time; SRUF score; refresh and uniform
    crossover within present limits, uniform mutation, padding to the present limits, then to R, reordering
    into contiguous blocks with least displacement; K = 16, xi = 0.5, theta = 0.3. A job whose GPUs are all
    free starts at once; a schedule that changes running jobs is deployed as a whole or not at all, when each
    that it changes has completed delta = 1 epochs since the last deployment, whosever that was. A running job
    moves, grows and shrinks by elastic scaling, also to as many other GPUs. Global batch = base batch x GPUs
    up to a limit. The predictor has seen 590 epochs of earlier jobs.

    Not as published: speeds are profiles instead of means of measured epochs; generations at every event and
    every `round_seconds` instead of one about every second; the batch limit is the job's own; the predictor
    (see it); running jobs without their second epoch are padded as new ones. Assumed: jobs that cannot run on
    one GPU begin with their fewest; among blocks that displace equally many, a job's own GPUs and fewer
    servers win; epochs, where they are not the data set's.

    Args:
        placement: of CPU-only jobs; GPU jobs go where their genes are.
        predictor: of progress; None: as many epochs are left as are done.
        population: K.
        crossover: xi.
        mutation: theta.
        redeploy_epochs: delta; 0: whenever a schedule is better.
        scale_down: sigma.
        epochs: what an epoch is: "data_set", D samples, for jobs whose data set is known; or "seconds" of the
            job's work as it asks to run (public traces say nothing of epochs, and many of their jobs end
            before they have seen ImageNet once).
        epoch_seconds: those, and for jobs without a data set. Assumption.
        begin: first R: "one" GPU, or those "asked" for (for comparison).
        growth_clock: R doubles from two epochs in all on ("total", as the artifact runs: it tests a key that
            is never written), or two epochs after the job's last change ("since_change", as it is named).
        deploy: "whole", or "parts": each change judged by itself, with all that it displaces.
        clock: delta epochs pass since "any" deployment, or since a job's "own" last change.
        resume_halving: R of a stopped job halves while it waits; else it keeps what it had.
        elastic_moves: a move to as many other GPUs is elastic; else it is a restart.
        earlier_jobs: the predictor begins with the artifact's earlier jobs.
        progress: "sampled" from the Beta distribution, its "mean", or "predicted" by the workload (for
            comparison; true where predictions are exact).
        switch_seconds: what a change of a running job's GPUs costs each of them in the score. Ours; 0: off.
        generations: evolved at each decision; 0: no search, free GPUs are padded (for comparison).
        round_seconds: decide every this many seconds as well.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "ones"
    observability = (
        Observability.SIZES
        | Observability.ATTAINED_SERVICE
        | Observability.TRAINING_CURVES
        | Observability.SPEEDS
    )
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE

    def __init__(
        self,
        placement: PlacementRule,
        predictor: BetaProgress | None = None,
        population: Annotated[int, "[2, 2147483647]"] = 16,
        crossover: Fraction = 0.5,
        mutation: Fraction = 0.3,
        redeploy_epochs: NonNegative = 1.0,
        scale_down_factor: Positive = 1.0,
        epoch_unit: Literal["data_set", "seconds"] = "seconds",
        epoch_seconds: Positive = 60.0,
        initial_size: Literal["one", "asked"] = "one",
        growth_clock: Literal["total", "since_change"] = "total",
        deploy: Literal["whole", "parts"] = "whole",
        redeploy_clock: Literal["any", "own"] = "any",
        resume_halving: bool = True,
        elastic_migration: bool = True,
        earlier_jobs: bool = True,
        progress: Literal["sampled", "mean", "predicted"] = "sampled",
        switch_seconds: NonNegative = 0.0,
        generations: NonNegativeInt = 2,
        round_seconds: Positive = 120.0,
    ) -> None:
        self.placement = placement
        self.round_seconds: float | None = round_seconds
        self._learns = predictor is not None
        self._predictor = predictor or BetaProgress()
        self._size = population
        self._rates = (float(crossover), float(mutation))
        self._delta = redeploy_epochs
        self._sigma = scale_down_factor
        self._by_data_set = epoch_unit == "data_set"
        self._epoch_seconds = epoch_seconds
        self._begin_as_asked = initial_size == "asked"
        self._growth_since_change = growth_clock == "since_change"
        self._whole = deploy == "whole"
        self._one_clock = redeploy_clock == "any"
        self._resume_halving = resume_halving
        self._elastic_migration = elastic_migration
        self._earlier_jobs = earlier_jobs
        self._progress = progress
        if progress == "predicted":
            self.observability |= Observability.PREDICTIONS
        self._switch_seconds = float(switch_seconds)
        self._generations = generations

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget population, limits and what the predictor has learnt."""
        self._predictor.reset(rng)
        num_jobs = len(jobs)
        self._epoch_samples = np.full(num_jobs, np.nan)  # [jobs] D, NaN where it is not known
        if self._by_data_set:
            known = (jobs.sample_bytes > 0) & np.isfinite(jobs.dataset_bytes)
            self._epoch_samples[known] = jobs.dataset_bytes[known] / jobs.sample_bytes[known]
        self._rng = rng
        self._table: SpeedTable | None = None
        self._least = np.zeros(num_jobs)  # speed on the fewest GPUs
        self._limit = np.zeros(num_jobs, dtype=np.int64)  # R; 0: not seen yet
        self._completed = np.zeros(num_jobs)  # epochs, of waiting and running jobs
        self._deployed_at = np.zeros(num_jobs)  # epochs completed when a schedule with it was last deployed
        self._changed_at = np.zeros(num_jobs)  # epochs completed when its GPUs last changed
        self._stopped: set[int] = set()  # jobs that wait to resume
        self._live = np.zeros(0, dtype=np.int64)  # rows of waiting and running jobs
        self._position = np.full(num_jobs + 1, FREE)  # in `_live`; FREE for others, and for FREE
        self._finished = _NUM_EARLIER_JOBS * self._earlier_jobs
        self._population: NDArray[np.int64] | None = None  # job rows
        self._history = ProgressHistory(
            earlier_job_rows() if self._earlier_jobs else np.zeros((0, 6)), num_jobs
        )
        self._fitted = 0

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Evolve, then deploy the best schedule as far as it may be."""
        if self._table is None:
            self._table = speed_table(view, BatchRule.PER_GPU)
            self._least[self._table.rows] = self._table.min_size_speeds_of(self._table.rows)
            asked = self._epoch_seconds / view.column("isolated_iteration_seconds")
            known = ~np.isnan(self._epoch_samples)
            self._epoch_samples = np.where(known, self._epoch_samples, asked * view.column("base_batch"))
        draft = PlacementPlan(view)
        now = self._now(view)
        self._learn(view, now)
        if not len(now.jobs):
            return start_cpu_jobs(view, draft, self.placement)
        best = self._best(view, now, self._known(view, now, self._limits(view, now.jobs, now.completed)))
        allocations = self._deploy(view, draft, best)
        allocations += start_cpu_jobs(view, draft, self.placement)
        return work_conserving(view, draft, self.placement, now.jobs.tolist(), allocations)

    def _now(self, view: SchedulingView) -> _JobSnapshot:
        """What is known of the GPU jobs; losses are normalised and begin at 1."""
        jobs = view.gpu_jobs
        seen = view.select(jobs)
        epochs = self._epochs(jobs, seen)
        completed = np.floor(epochs + 1e-9) + (~np.isnan(seen.column("first_start_seconds")))
        size, metric = np.log(self._epoch_samples[jobs]), np.nan_to_num(seen.validation_metric)
        features = np.stack([size, np.ones(len(jobs)), epochs, 1.0 - seen.training_loss, metric], axis=1)
        self._completed[jobs] = completed
        return _JobSnapshot(
            jobs, seen, seen.column("status") == JobStatus.RUNNING, epochs, completed, features
        )

    def _epochs(self, rows: NDArray[np.int64], seen: JobColumns) -> NDArray[np.float64]:
        """[n] epochs done by the jobs of these rows."""
        return seen.completed_iterations * seen.column("base_batch") / self._epoch_samples[rows]

    def _learn(self, view: SchedulingView, now: _JobSnapshot) -> None:
        """Note what running jobs show; refit when a tenth more jobs have finished than at the last fit."""
        ended = np.setdiff1d(self._live, now.jobs, assume_unique=True)
        for job, epochs in zip(ended.tolist(), self._epochs(ended, view.select(ended)).tolist(), strict=True):
            self._history.finish(job, epochs)
        self._finished += len(ended)
        self._position[self._live] = FREE
        self._position[now.jobs] = np.arange(len(now.jobs))
        self._live = now.jobs
        self._history.note(now.jobs[now.running], now.features[now.running])
        if self._learns and self._history.rows and self._finished > 1.1 * self._fitted:
            self._fitted = self._finished
            rows = np.array(self._history.rows)
            self._predictor.fit(rows[:, :5], rows[:, 2], rows[:, 5])

    def _limits(
        self, view: SchedulingView, jobs: NDArray[np.int64], completed: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """[n] present limits of the rows `jobs`, which have completed so many epochs; R grows as it may."""
        seen, limit = view.select(jobs), self._limit[jobs]
        low, high, asked, held = map(seen.column, ("min_gpus", "max_gpus", "asked_gpus", "num_gpus"))
        limit = np.where(limit == 0, np.maximum(asked if self._begin_as_asked else low, 1), limit)
        running = seen.column("status") == JobStatus.RUNNING
        epochs = completed - (self._changed_at[jobs] if self._growth_since_change else 0.0)
        grown = running & (epochs >= _MIN_EPOCHS) & (held >= limit)
        most = np.minimum(high, view.cluster.num_gpus)
        self._limit[jobs] = limit = np.where(grown, np.minimum(2 * limit, most), limit)
        ripe = running & (completed >= _MIN_EPOCHS)
        present = np.where(ripe, np.minimum(limit, 4 * asked), np.where(running, held, limit))
        if ripe.any():
            largest = int(np.argmax(np.where(ripe, held, 0)))
            if held[largest] >= view.cluster.num_gpus // 2:
                present[largest] = self._scaled_down(view, int(jobs[largest]), int(present[largest]))
        return np.maximum(present, low)

    def _scaled_down(self, view: SchedulingView, job: int, limit: int) -> int:
        """Present limit of a job that holds half the cluster: less if it ran longer than the median job."""
        running = view.column("status") == JobStatus.RUNNING
        ran = view.column("run_seconds") + np.where(running, view.now - view.column("updated_seconds"), 0.0)
        started = ~np.isnan(view.column("first_start_seconds")) & (view.column("kind") != JobKind.CPU_ONLY)
        median = float(np.median(ran[started]))
        if not ran[job] > median > 0:
            return limit
        size = max(1, int(2 * view.num_gpus[job] / (self._sigma * ran[job] / median + 1.0)))
        return size + size % 2

    def _left(self, now: _JobSnapshot) -> NDArray[np.float64]:
        """[n] iterations left, as predicted; NaN before the second epoch."""
        if self._progress == "predicted":
            left = now.seen.predicted_iterations
        else:
            done = np.maximum(now.epochs, 1e-3)
            b = self._predictor.beta(now.features, now.epochs)
            rho = done / (done + b) if self._progress == "mean" else self._rng.beta(done, b)
            left = now.seen.completed_iterations * (1.0 / np.clip(rho, 1e-6, 1.0) - 1.0)
        return np.where(now.completed >= _MIN_EPOCHS, left, np.nan)

    def _best(self, view: SchedulingView, now: _JobSnapshot, known: SearchJobs) -> NDArray[np.int64]:
        """[GPUs] job row of each GPU in the best schedule, -1 free; the population evolves."""
        jobs, position = now.jobs, self._position
        present = position[view.job_of_gpu]
        num_gpus = view.cluster.num_gpus
        machine = ClusterGpus(
            present=present,
            server=view.cluster.server_of_gpu.astype(np.int64),
            up=np.repeat(view.servers_up, view.cluster.gpus_per_server).astype(np.int64),
            widest=max(view.cluster.gpus_per_server),
            switch_seconds=self._switch_seconds,
        )
        rows = np.append(jobs, FREE)
        if self._generations == 0:
            genome = present.copy()
            fill_without_search(genome, known, machine, Workspace.empty(1, num_gpus, len(jobs)))
            return rows[genome]
        population = np.empty((self._size, num_gpus), dtype=np.int64)
        population[:] = present if self._population is None else position[self._population]
        work = Workspace.empty(self._size, num_gpus, len(jobs))
        generator = self._rng.integers(1, 2**63, 1).astype(np.uint64)
        for _ in range(self._generations):
            evolve(population, known, machine, *self._rates, work, generator)
        self._population = rows[population]
        return self._population[0]

    def _known(self, view: SchedulingView, now: _JobSnapshot, present_limit: NDArray[np.int64]) -> SearchJobs:
        """What evolution knows of the jobs."""
        assert self._table is not None
        jobs, left, held = now.jobs, self._left(now), now.seen.column("num_gpus")
        seconds = np.where(np.isnan(left), 0.0, left / self._least[jobs])
        order = np.lexsort((jobs, seconds, ~np.isnan(left)))
        first = np.full(len(jobs) + 1, view.cluster.num_gpus)  # GPU of each, the last of free ones
        np.minimum.at(first, self._position[view.job_of_gpu], np.arange(view.cluster.num_gpus))
        return SearchJobs(
            fewest=now.seen.column("min_gpus").astype(np.int64),
            held=np.where(now.running, held, 0).astype(np.int64),
            present_limit=present_limit,
            limit=self._limit[jobs],
            mutable=(~np.isnan(left)).astype(np.int64),
            left=left,
            place=self._table.place[jobs],
            speed=self._table.speed,
            padding=order,
            sequence=np.lexsort((jobs, first[:-1])),
        )

    def _deploy(
        self, view: SchedulingView, draft: PlacementPlan, best: NDArray[np.int64]
    ) -> list[Allocation]:
        """The changes that may be made now; clocks and the limits of jobs that wait to resume follow."""
        assert self._table is not None
        wanted, held = gpus_by_job(best), gpus_of_running_jobs(view)
        touched = [job for job, gpus in held.items() if wanted.get(job) != gpus]
        unripe = [job for job in touched if self._completed[job] < self._deployed_at[job] + self._delta]
        if self._whole:
            blocked = jobs_blocked_as_whole(wanted, held, bool(unripe))
        else:
            blocked = jobs_blocked_in_parts(wanted, held, unripe)
        moving = {job: wanted[job] for job in touched if job in wanted and job not in blocked}
        stopping = [job for job in touched if job not in wanted and job not in blocked]
        starting = {job: wanted[job] for job in wanted if job not in held and job not in blocked}
        plan = Deployment(draft, held, self._table, self._elastic_migration)
        for job in stopping:
            plan.stop(job)
        plan.move(moving)
        plan.start(starting)
        if self._resume_halving and not (self._whole and unripe):
            self._halve(view, [job for job in self._stopped if job not in wanted])
        self._stopped = (self._stopped | set(stopping)) - set(starting)
        self._note(plan.allocations, held)
        return plan.allocations

    def _halve(self, view: SchedulingView, jobs: Sequence[int]) -> None:
        """The limit of stopped jobs that are not resumed."""
        low = view.column("min_gpus")
        for job in jobs:
            self._limit[job] = max(int(self._limit[job]) // 2, int(low[job]), 1)

    def _note(self, allocations: Sequence[Allocation], held: Collection[int]) -> None:
        """A deployment starts the clock of every job in it anew; with own clocks, of those that change."""
        changed = [allocation.job for allocation in allocations if not allocation.preempts]
        self._changed_at[changed] = self._completed[changed]
        restarted = [*held, *changed] if self._one_clock and allocations else changed
        self._deployed_at[restarted] = self._completed[restarted]
