"""ONES (Bian et al., SC 2021): online evolutionary search over schedules with elastic batches."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import Fraction, NonNegative, NonNegativeInt, Positive, checked
from ringyard.observability import Observability
from ringyard.sim.speeds import BatchRule, SpeedTable, speed_table
from ringyard.sim.view import JobColumns
from ringyard.state.records import JobKind, JobStatus
from ringyard_baselines.papers.ones import deployment
from ringyard_baselines.papers.ones.evolution import evolve
from ringyard_baselines.papers.ones.progress import BetaProgress, ProgressHistory, earlier_job_rows
from ringyard_baselines.papers.ones.schedules import FREE, ClusterGpus, SearchJobs, Workspace, greedy_fill
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs, work_conserving

#: epochs that a job has completed before it may grow, be predicted and be moved by mutation, artifact
_MIN_EPOCHS = 2

_NUM_EARLIER_JOBS = 20  #: number of earlier jobs in the artifact's history


class _Snapshot(NamedTuple):
    """GPU jobs at a decision."""

    jobs: NDArray[np.int64]  #: [n] rows of those waiting and running, ascending
    seen: JobColumns  #: their columns
    running: NDArray[np.bool_]  #: [n] whether they run
    epochs: NDArray[np.float64]  #: [n] epochs done
    completed: NDArray[np.float64]  #: [n] whole epochs, with the validation before training counted as one
    features: NDArray[np.float64]  #: [n, 5] inputs of the predictor


@checked("ones")
@dataclass(eq=False)
class Ones(Scheduler):
    """ONES of Bian et al. (SC 2021): a population of schedules evolves while jobs run. The best is deployed.

    FOUND (the artifact, as its code runs):

    * Sizes: a job begins with a limit R of one GPU. With two epochs completed in all (the validation before
      training is the first) R doubles whenever the job holds R GPUs. The current limit is min(R, 4 x
      requested GPUs). If the largest running job holds half the cluster and ran longer than the median of all
      jobs that have started, its current limit is 2 n / (sigma t / t_median + 1), made even. R of a preempted
      job halves at every decision that may deploy and does not resume it. Global batch = base batch x GPUs,
      up to a limit.
    * Search: one gene per GPU. rho ~ Beta(epochs done, predicted epochs left + 1), sampled anew each time.
      SRUF score. Refresh and uniform crossover within current limits, uniform mutation, padding to the
      current limits, then to R, reordering into contiguous blocks with least displacement. K = 16, xi = 0.5,
      theta = 0.3. The predictor has seen 590 epochs of earlier jobs.
    * Deployment: a job whose GPUs are all free starts at once. A schedule that changes running jobs is
      deployed as a whole or not at all, when each of these jobs has completed delta = 1 epochs since the last
      deployment of any job. A running job moves, grows and shrinks by elastic scaling, also to as many other
      GPUs.

    Not as published: speeds are profiles instead of means of measured epochs. Generations evolve at every
    event and every `round_seconds`, not about once a second. The batch limit is the job's own. The predictor
    differs (`BetaProgress`). Running jobs without their second epoch are padded as new ones. Assumed: jobs
    that cannot run on one GPU begin with their fewest. Among blocks that displace equally many, a job's own
    GPUs and fewer servers win. The length of an epoch, where the data set is unknown.
    """

    name = "ones"
    observability = Observability.SIZES | Observability.ATTAINED_SERVICE | Observability.SPEEDS
    observability |= Observability.TRAINING_CURVES
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE

    placement: PlacementRule  #: where CPU-only jobs go. GPU jobs go where their genes are.
    predictor: BetaProgress | None = None  #: of progress. None: as many epochs are left as are done.
    population: Annotated[int, "[2, 2147483647]"] = 16  #: K, 2 or more
    crossover: Fraction = 0.5  #: xi, 0 to 1
    mutation: Fraction = 0.3  #: theta, 0 to 1
    redeploy_epochs: NonNegative = 1.0  #: delta. 0: whenever a schedule is better.
    scale_down_factor: Positive = 1.0  #: sigma
    #: "data_set": an epoch is D samples where the data set is known. "seconds": it is `epoch_seconds` of the
    #: job as requested. (Public traces say nothing of epochs, and many of their jobs end before they have
    #: seen ImageNet once.)
    epoch_unit: Literal["data_set", "seconds"] = "seconds"
    epoch_seconds: Positive = 60.0  #: seconds of an epoch where it is not a data set. Assumption.
    #: first R, "one" GPU or as many as "asked" for (for comparison)
    initial_size: Literal["one", "asked"] = "one"
    #: R doubles from two epochs in "total" on, as the artifact runs, since it tests a key that is never
    #: written. "since_change": two epochs after the job's last change, as the key is named.
    growth_clock: Literal["total", "since_change"] = "total"
    #: "whole", or "parts": each change is accepted or refused by itself, with all that it displaces.
    deploy: Literal["whole", "parts"] = "whole"
    #: delta counts from "any" deployment, or from a job's "own" last change
    redeploy_clock: Literal["any", "own"] = "any"
    resume_halving: bool = True  #: whether R of a preempted job halves while it waits
    elastic_migration: bool = True  #: whether a move to as many other GPUs is elastic. False: a restart.
    earlier_jobs: bool = True  #: whether the predictor begins with the artifact's earlier jobs
    #: "sampled" from the Beta distribution, its "mean", or "predicted" by the workload (for comparison)
    progress: Literal["sampled", "mean", "predicted"] = "sampled"
    #: seconds that a change costs each GPU of a running job in the score. Ours, 0 is off.
    switch_seconds: NonNegative = 0.0
    #: generations at each decision. 0: no search, free GPUs are padded (for comparison).
    generations: NonNegativeInt = 2
    round_seconds: Positive = 120.0  #: seconds between decisions besides those at events

    def __post_init__(self) -> None:
        self._predictor = self.predictor or BetaProgress()
        if self.progress == "predicted":
            self.observability |= Observability.PREDICTIONS

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget population, limits and predictor (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._predictor.reset(rng)
        num_jobs = len(jobs)
        self._epoch_samples = np.full(num_jobs, np.nan)  # [jobs] D, NaN where it is not known
        if self.epoch_unit == "data_set":
            known = (jobs.sample_bytes > 0) & np.isfinite(jobs.dataset_bytes)
            self._epoch_samples[known] = jobs.dataset_bytes[known] / jobs.sample_bytes[known]
        self._rng = rng
        self._table: SpeedTable | None = None
        self._least = np.zeros(num_jobs)  # speed on the fewest GPUs
        self._limit = np.zeros(num_jobs, dtype=np.int64)  # R, 0 before the first decision
        self._completed = np.zeros(num_jobs)  # epochs, of waiting and running jobs
        self._deployed_at = np.zeros(num_jobs)  # epochs completed at the last deployment with the job
        self._changed_at = np.zeros(num_jobs)  # epochs completed when its GPUs last changed
        self._preempted: set[int] = set()  # jobs that wait to resume
        self._active = np.zeros(0, dtype=np.int64)  # rows of waiting and running jobs
        self._position = np.full(num_jobs + 1, FREE)  # in `_active`, FREE for other jobs and for FREE
        self._finished = _NUM_EARLIER_JOBS * self.earlier_jobs
        self._population: NDArray[np.int64] | None = None  # job rows
        rows = earlier_job_rows() if self.earlier_jobs else np.zeros((0, 6))
        self._history = ProgressHistory(rows, num_jobs)
        self._fitted = 0

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Evolve, then deploy the best schedule as far as it may be deployed."""
        if self._table is None:
            self._table = speed_table(view, BatchRule.PER_GPU)
            self._least[self._table.rows] = self._table.min_size_speeds_of(self._table.rows)
            asked = self.epoch_seconds / view.column("isolated_iteration_seconds")
            known = ~np.isnan(self._epoch_samples)
            self._epoch_samples = np.where(known, self._epoch_samples, asked * view.column("base_batch"))
        plan = PlacementPlan(view)
        # the present GPU jobs. Losses are normalised and begin at 1
        jobs = view.gpu_jobs
        seen = view.select(jobs)
        epochs = self._epochs(jobs, seen)
        completed = np.floor(epochs + 1e-9) + (~np.isnan(seen.column("first_start_seconds")))
        size, metric = np.log(self._epoch_samples[jobs]), np.nan_to_num(seen.validation_metric)
        features = np.stack([size, np.ones(len(jobs)), epochs, 1.0 - seen.training_loss, metric], axis=1)
        self._completed[jobs] = completed
        now = _Snapshot(jobs, seen, seen.column("status") == JobStatus.RUNNING, epochs, completed, features)
        self._update_predictor(view, now)
        if not len(now.jobs):
            return start_cpu_jobs(view, plan, self.placement)
        known = self._search_jobs(view, now, self._limits(view, now.jobs, now.completed))
        best = self._best_schedule(view, now, known)
        allocations = self._deploy(view, plan, best)
        allocations += start_cpu_jobs(view, plan, self.placement)
        return work_conserving(view, plan, self.placement, now.jobs.tolist(), allocations)

    def _epochs(self, rows: NDArray[np.int64], seen: JobColumns) -> NDArray[np.float64]:
        """Return [n] epochs done by the jobs of these rows."""
        return seen.completed_iterations * seen.column("base_batch") / self._epoch_samples[rows]

    def _update_predictor(self, view: SchedulingView, now: _Snapshot) -> None:
        """Record running jobs, and refit when a tenth more jobs have finished than at the last fit."""
        ended = np.setdiff1d(self._active, now.jobs, assume_unique=True)
        for job, epochs in zip(ended.tolist(), self._epochs(ended, view.select(ended)).tolist(), strict=True):
            self._history.finish(job, epochs)
        self._finished += len(ended)
        self._position[self._active] = FREE
        self._position[now.jobs] = np.arange(len(now.jobs))
        self._active = now.jobs
        self._history.record(now.jobs[now.running], now.features[now.running])
        if self.predictor is not None and self._history.rows and self._finished > 1.1 * self._fitted:
            self._fitted = self._finished
            rows = np.array(self._history.rows)
            self._predictor.fit(rows[:, :5], rows[:, 2], rows[:, 5])

    def _limits(
        self, view: SchedulingView, jobs: NDArray[np.int64], completed: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Let R grow where it may, and return [n] current limits of jobs after so many `completed` epochs."""
        seen, limit = view.select(jobs), self._limit[jobs]
        low, high, asked, held = map(seen.column, ("min_gpus", "max_gpus", "asked_gpus", "num_gpus"))
        limit = np.where(limit == 0, np.maximum(asked if self.initial_size == "asked" else low, 1), limit)
        running = seen.column("status") == JobStatus.RUNNING
        epochs = completed - (self._changed_at[jobs] if self.growth_clock == "since_change" else 0.0)
        grown = running & (epochs >= _MIN_EPOCHS) & (held >= limit)
        most = np.minimum(high, view.cluster.num_gpus)
        self._limit[jobs] = limit = np.where(grown, np.minimum(2 * limit, most), limit)
        past_min_epochs = running & (completed >= _MIN_EPOCHS)
        present = np.where(past_min_epochs, np.minimum(limit, 4 * asked), np.where(running, held, limit))
        if past_min_epochs.any():
            largest = int(np.argmax(np.where(past_min_epochs, held, 0)))
            if held[largest] >= view.cluster.num_gpus // 2:
                present[largest] = self._scaled_down(view, int(jobs[largest]), int(present[largest]))
        return np.maximum(present, low)

    def _scaled_down(self, view: SchedulingView, job: int, limit: int) -> int:
        """Return the current limit of a job with half the cluster: less if it ran longer than the median."""
        running = view.column("status") == JobStatus.RUNNING
        ran = view.column("run_seconds") + np.where(running, view.now - view.column("updated_seconds"), 0.0)
        started = ~np.isnan(view.column("first_start_seconds")) & (view.column("kind") != JobKind.CPU_ONLY)
        median = float(np.median(ran[started]))
        if not ran[job] > median > 0:
            return limit
        size = max(1, int(2 * view.num_gpus[job] / (self.scale_down_factor * ran[job] / median + 1.0)))
        return size + size % 2

    def _left(self, now: _Snapshot) -> NDArray[np.float64]:
        """Return [n] predicted iterations left, NaN before the second epoch."""
        if self.progress == "predicted":
            left = now.seen.predicted_iterations
        else:
            done = np.maximum(now.epochs, 1e-3)
            b = self._predictor.beta(now.features, now.epochs)
            rho = done / (done + b) if self.progress == "mean" else self._rng.beta(done, b)
            left = now.seen.completed_iterations * (1.0 / np.clip(rho, 1e-6, 1.0) - 1.0)
        return np.where(now.completed >= _MIN_EPOCHS, left, np.nan)

    def _best_schedule(self, view: SchedulingView, now: _Snapshot, known: SearchJobs) -> NDArray[np.int64]:
        """Evolve the population and return [GPUs] the job row of each GPU in the best schedule, -1 free."""
        jobs, position = now.jobs, self._position
        present = position[view.job_of_gpu]
        num_gpus = view.cluster.num_gpus
        widths = view.cluster.gpus_per_server
        up = np.repeat(view.servers_up, widths).astype(np.int64)
        servers = view.cluster.server_of_gpu.astype(np.int64)
        gpus = ClusterGpus(present, servers, up, max(widths), float(self.switch_seconds))
        rows = np.append(jobs, FREE)
        if self.generations == 0:
            genome = present.copy()
            greedy_fill(genome, known, gpus, Workspace.empty(1, num_gpus, len(jobs)))
            return rows[genome]
        population = np.empty((self.population, num_gpus), dtype=np.int64)
        population[:] = present if self._population is None else position[self._population]
        work = Workspace.empty(self.population, num_gpus, len(jobs))
        generator = self._rng.integers(1, 2**63, 1).astype(np.uint64)
        for _ in range(self.generations):
            evolve(population, known, gpus, float(self.crossover), float(self.mutation), work, generator)
        self._population = rows[population]
        return self._population[0]

    def _search_jobs(self, view: SchedulingView, now: _Snapshot, limits: NDArray[np.int64]) -> SearchJobs:
        """Return the jobs as evolution reads them."""
        assert self._table is not None
        jobs, left, held = now.jobs, self._left(now), now.seen.column("num_gpus")
        seconds = np.where(np.isnan(left), 0.0, left / self._least[jobs])
        order = np.lexsort((jobs, seconds, ~np.isnan(left)))
        first = np.full(len(jobs) + 1, view.cluster.num_gpus)  # the first GPU of each job
        np.minimum.at(first, self._position[view.job_of_gpu], np.arange(view.cluster.num_gpus))
        return SearchJobs(
            fewest=now.seen.column("min_gpus").astype(np.int64),
            held=np.where(now.running, held, 0).astype(np.int64),
            current_limit=limits,
            limit=self._limit[jobs],
            mutable=(~np.isnan(left)).astype(np.int64),
            left=left,
            place=self._table.place[jobs],
            speed=self._table.speed,
            padding=order,
            sequence=np.lexsort((jobs, first[:-1])),
        )

    def _deploy(self, view: SchedulingView, plan: PlacementPlan, best: NDArray[np.int64]) -> list[Allocation]:
        """Return the changes that may be made now, and update clocks and the limits of preempted jobs."""
        assert self._table is not None
        wanted, held = deployment.gpus_by_job(best), deployment.gpus_of_running_jobs(view)
        touched = [job for job, gpus in held.items() if wanted.get(job) != gpus]
        too_recent = [
            job for job in touched if self._completed[job] < self._deployed_at[job] + self.redeploy_epochs
        ]
        if self.deploy == "whole":
            blocked = deployment.jobs_blocked_as_whole(wanted, held, bool(too_recent))
        else:
            blocked = deployment.jobs_blocked_in_parts(wanted, held, too_recent)
        moving = {job: wanted[job] for job in touched if job in wanted and job not in blocked}
        preempting = [job for job in touched if job not in wanted and job not in blocked]
        starting = {job: wanted[job] for job in wanted if job not in held and job not in blocked}
        deployed = deployment.Deployment(plan, held, self._table, self.elastic_migration)
        for job in preempting:
            deployed.preempt(job)
        deployed.migrate(moving)
        deployed.start(starting)
        if self.resume_halving and not (self.deploy == "whole" and too_recent):
            self._halve(view, self._preempted.difference(wanted))
        self._preempted = (self._preempted | set(preempting)) - set(starting)
        # Restart the clock of all jobs in a deployment, or with own clocks of the jobs that change
        changed = [allocation.job for allocation in deployed.allocations if not allocation.preempts]
        self._changed_at[changed] = self._completed[changed]
        restarted = [*held, *changed] if self.redeploy_clock == "any" and deployed.allocations else changed
        self._deployed_at[restarted] = self._completed[restarted]
        return deployed.allocations

    def _halve(self, view: SchedulingView, jobs: Collection[int]) -> None:
        """Halve the limit of preempted jobs that are not resumed."""
        low = view.column("min_gpus")
        for job in jobs:
            self._limit[job] = max(int(self._limit[job]) // 2, int(low[job]), 1)
