"""Extensions of a workload: elastic ranges, cores, parameter servers, CPU-only jobs, predictions, ...

An `Extended` workload draws a table and applies each extension in turn. Write an own one as a class with
`extend`, as `Groups` does. Numbers without a source are assumptions, which the yaml files state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard import checks
from ringyard.checks import Fraction, NonNegative, NonNegativeInt, Positive, PositiveInt, Weights, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.jobs import HistoricalJobs, JobTable
from ringyard.profiles import catalogue, model_id, profile_values
from ringyard.resources import RESOURCES
from ringyard.state.records import BatchSplit, JobKind, JobOutcome, LossCurve
from ringyard.workloads.synthetic import Arrivals, Durations
from ringyard.workloads.workload import Workload

_BelowOne = Annotated[float, "[0, 1)"]


class Extension(Protocol):
    """A change of a drawn job table."""

    @property
    def extra_jobs(self) -> int:
        """Largest number of jobs that it adds."""
        return 0

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Return the table with the columns or jobs of this extension.

        Args:
            jobs: table of the workload and the extensions before.
            cluster: cluster on which the jobs will run.
            rng: the only source of randomness.
        """


def _draw_keys(weights: Mapping[Any, float], count: int, rng: np.random.Generator) -> NDArray[Any]:
    """[count] keys of `weights`, drawn from `rng` by weight."""
    shares = np.array(list(weights.values()), dtype=np.float64)
    return rng.choice(np.array(list(weights)), count, p=shares / shares.sum())


@checked("workload")
@dataclass(frozen=True)
class Extended:
    """A workload with extensions, applied in order."""

    base: Workload  #: workload that draws the table
    extensions: Sequence[Extension]  #: change the table

    @property
    def num_jobs(self) -> int:
        """Largest number of jobs of a table."""
        return self.base.num_jobs + sum(extension.extra_jobs for extension in self.extensions)

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the jobs of one episode on `cluster` from `rng`."""
        jobs = self.base.sample(cluster, rng)
        for extension in self.extensions:
            jobs = extension.extend(jobs, cluster, rng)
        return jobs


@checked("workload.elastic")
@dataclass(frozen=True)
class Elastic(Extension):
    """Ring jobs of models with a batch range become elastic: their GPUs and batch may change.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    share: Fraction = 1.0  #: share of these jobs that become elastic, in [0, 1]
    min_ratio: Annotated[float, "(0, 1]"] = 0.25  #: fewest GPUs / GPUs asked for, in (0, 1], rounded up
    #: most GPUs / GPUs asked for, at least 1, up to the cluster's GPUs
    max_ratio: Annotated[float, "[1, 1e6]"] = 4.0

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Add ranges of GPUs and batch to `jobs` on `cluster`, drawn from `rng`.

        Raises:
            ConfigurationError: a chosen job's model has no batch range or noise scale.
        """
        chosen = (rng.random(len(jobs)) < self.share) & (jobs.kind == JobKind.RING)
        chosen &= jobs.model_ids >= 0
        for position in np.unique(jobs.model_ids[chosen]):
            for name in ("min_batch", "max_batch", "noise_scale"):
                catalogue()[position].require_value(name)
        low, high = profile_values("min_batch")[jobs.model_ids], profile_values("max_batch")[jobs.model_ids]
        gpus = jobs.num_gpus
        least = np.maximum(np.ceil(gpus * self.min_ratio), 1).astype(np.int64)
        largest = np.minimum(np.floor(gpus * self.max_ratio), cluster.num_gpus)
        most = np.maximum(largest, gpus).astype(np.int64)
        least, most = np.where(chosen, least, jobs.min_gpus), np.where(chosen, most, jobs.max_gpus)
        low = np.where(chosen, np.fmin(low, jobs.batch_size), jobs.min_batch)
        high = np.where(chosen, np.fmax(high, jobs.batch_size), jobs.max_batch)
        return replace(jobs, min_gpus=least, max_gpus=most, min_batch=low, max_batch=high)


@checked("workload.batch_splits")
@dataclass(frozen=True)
class BatchSplits(Extension):
    """Jobs that say how their gang splits a batch on unlike GPUs, whatever the performance model says."""

    by_speed: Fraction  #: share of jobs that split by speed, in [0, 1]. Others: in equal parts

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw `JobTable.batch_split` of `jobs` on `cluster` from `rng`."""
        by_speed = rng.random(len(jobs)) < self.by_speed
        return replace(jobs, batch_split=np.where(by_speed, BatchSplit.BY_SPEED, BatchSplit.EQUAL))


@checked("workload.per_worker")
@dataclass(frozen=True)
class PerWorker(Extension):
    """Cores or RAM of each worker, drawn by weight, at most a server's amount per GPU.

    Raises:
        ConfigurationError: another column.
    """

    column: str  #: column of `JobTable`: cores_per_worker (cores) or ram_per_worker (bytes)
    weights: Annotated[Mapping[checks.Bytes, NonNegative], "of positive sum"]  #: {amount: weight}

    def __post_init__(self) -> None:
        known = [one.per_worker for one in RESOURCES]
        if self.column not in known:
            expected = f"one of {', '.join(known)}"
            raise ConfigurationError(f"workload.per_worker.column is {self.column!r}; expected {expected}")

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the column of `jobs` on `cluster` from `rng`. That of CPU-only jobs does not change."""
        drawn = _draw_keys(dict(sorted(self.weights.items())), len(jobs), rng)
        (resource,) = (one for one in RESOURCES if one.per_worker == self.column)
        per_server = getattr(cluster, resource.capacity)
        if per_server:
            most = np.array(per_server) // np.array(cluster.gpus_per_server)
            drawn = np.minimum(drawn, int(most.min()))
        before: NDArray[Any] = getattr(jobs, self.column)
        columns: dict[str, Any] = {self.column: np.where(jobs.kind != JobKind.CPU_ONLY, drawn, before)}
        return replace(jobs, **columns)


@checked("workload.gradient_cpu_work")
@dataclass(frozen=True)
class GradientCpuWork(Extension):
    """CPU work of gradients: workers of a ring send and receive them on the cores that prepare samples.

    Each of w workers handles 2 (w - 1) / w of the gradients in an iteration. Their CPU seconds are added to
    those of its samples: `samples_per_core_second` falls, as it would at the GPUs and batch asked for.
    """

    #: bytes of gradients, sent and received, that one core handles per second
    bytes_per_core_second: Positive

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Lower `samples_per_core_second` of `jobs` with several workers, without `cluster` and `rng`."""
        workers = np.maximum(jobs.num_gpus, 1)
        sent = 2.0 * jobs.gradient_bytes * (workers - 1) / workers
        handled = np.where(jobs.kind == JobKind.RING, sent, 0.0)
        samples = jobs.batch_size / workers
        core_seconds = samples / jobs.samples_per_core_second + handled / self.bytes_per_core_second
        with np.errstate(divide="ignore"):
            return replace(jobs, samples_per_core_second=samples / core_seconds)


@checked("workload.groups")
@dataclass(frozen=True)
class Groups(Extension):
    """A virtual cluster for each job, drawn by weight, and deadlines in guaranteed ones."""

    weights: Weights  #: {virtual cluster: weight}
    #: {virtual cluster: `JobTable.deadline_seconds` of its jobs / run time as they ask}. Others have none.
    deadlines: Mapping[str, Positive] = field(default_factory=dict)

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw a virtual cluster for each of the `jobs` on `cluster` from `rng`."""
        names = _draw_keys(self.weights, len(jobs), rng)
        deadlines = jobs.deadline_seconds
        for name, factor in self.deadlines.items():
            deadlines = np.where(names == name, factor * jobs.duration_seconds, deadlines)
        return replace(jobs, vc=names, deadline_seconds=deadlines)


@checked("workload.parameter_servers")
@dataclass(frozen=True)
class ParameterServers(Extension):
    """Some small jobs train with parameter servers instead of a ring."""

    share: Fraction  #: share of the jobs of at most `max_gpus` GPUs, in [0, 1]
    models: Weights  #: {model with step_coefficients: weight}
    #: numbers of parameter servers, one of which is drawn uniformly for each job
    servers: Annotated[Sequence[PositiveInt], "not empty"] = (1, 2)
    cores: NonNegativeInt = 5  #: CPU cores of each parameter server
    max_gpus: PositiveInt = 4  #: larger jobs remain rings (AITurbo's follow-on stops at 4)
    #: these jobs may have 1 to `max_gpus` GPUs, at an equal batch. False: as many as they ask for.
    elastic: bool = False

    def __post_init__(self) -> None:
        for name in self.models:
            catalogue()[model_id(name)].require_value("step_coefficients")

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Turn some rings of `jobs` on `cluster`, drawn from `rng`, into parameter-server jobs."""
        chosen = (rng.random(len(jobs)) < self.share) & (jobs.num_gpus <= self.max_gpus)
        chosen &= jobs.kind == JobKind.RING
        weights = {model_id(name): weight for name, weight in self.models.items()}
        drawn = _draw_keys(weights, len(jobs), rng)
        servers = rng.choice(np.asarray(self.servers, dtype=np.int64), len(jobs))
        dressed = jobs.with_models(np.where(chosen, drawn, -1))
        batch = np.where(chosen, profile_values("batch_size")[drawn], jobs.batch_size)
        fixed = profile_values("fixed_seconds")[drawn]
        compute = fixed + profile_values("sample_seconds")[drawn] * batch / jobs.num_gpus
        most = min(self.max_gpus, cluster.num_gpus) if self.elastic else jobs.num_gpus
        return replace(
            dressed,
            compute_seconds=np.where(chosen, compute, jobs.compute_seconds),
            fixed_fraction=np.where(chosen, fixed / compute, jobs.fixed_fraction),
            model_ids=np.where(chosen, drawn, jobs.model_ids),
            kind=np.where(chosen, int(JobKind.PARAMETER_SERVER), jobs.kind),
            batch_size=batch,  # the profiles' batch is global
            min_batch=np.where(chosen, batch, jobs.min_batch),
            max_batch=np.where(chosen, batch, jobs.max_batch),
            min_gpus=np.where(chosen, 1 if self.elastic else jobs.num_gpus, jobs.min_gpus),
            max_gpus=np.where(chosen, most, jobs.max_gpus),
            parameter_servers=np.where(chosen, servers, 0),
            cores_per_server_task=np.where(chosen, self.cores, 0),
        )


@checked("workload.cpu_jobs")
@dataclass(frozen=True)
class CpuJobs(Extension):
    """CPU-only jobs, which arrive while the GPU jobs do."""

    num_jobs: NonNegativeInt  #: number of CPU-only jobs
    durations: Durations  #: run times on the cores asked for
    #: numbers of cores, one of which is drawn uniformly for each job
    cores: Annotated[Sequence[PositiveInt], "not empty"]
    #: (low, high) memory bandwidth per core, bytes per second, uniform
    bandwidth_per_core: Annotated[tuple[NonNegative, NonNegative], "ascending"]
    arrivals: Arrivals = field(default_factory=Arrivals)  #: arrival process

    @property
    def extra_jobs(self) -> int:
        """Number of CPU-only jobs."""
        return self.num_jobs

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Add CPU-only jobs, drawn from `rng`, to `jobs` on `cluster`."""
        if self.num_jobs == 0:
            return jobs
        span = max(float(jobs.submit_seconds[-1]), 1.0)
        submit = np.minimum(self.arrivals.times(self.num_jobs, self.num_jobs / span, rng), span)
        none = np.zeros(self.num_jobs, dtype=np.int64)
        cores = rng.choice(np.asarray(self.cores, dtype=np.int64), self.num_jobs)
        durations, (low, high) = self.durations.draw(none, rng), self.bandwidth_per_core
        return jobs.merged(JobTable.cpu_only(submit, cores, durations, rng.uniform(low, high, self.num_jobs)))


@checked("workload.predictability")
@dataclass(frozen=True)
class Predictability(Extension):
    """From when, and how well, a job's remaining time can be predicted."""

    share: Fraction  #: share of jobs that ever become predictable, in [0, 1]
    #: (low, high) share of its iterations after which a job becomes predictable, uniform
    from_share: Annotated[tuple[_BelowOne, _BelowOne], "ascending"] = (0.0, 0.0)
    error: NonNegative = 0.0  #: standard deviation of the natural log of predicted / true remaining time

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw from `rng` when each of the `jobs` on `cluster` becomes predictable, and its error."""
        count = len(jobs)
        begin = rng.uniform(self.from_share[0], self.from_share[1], count)
        known = rng.random(count) < self.share
        factor = np.exp(self.error * rng.standard_normal(count))
        return replace(jobs, predictable_from=np.where(known, begin, np.inf), prediction_factor=factor)


def _equal_weights(*curves: LossCurve) -> Mapping[str, float]:
    return {curve.name.lower(): 1.0 for curve in curves}


@checked("workload.loss_curves")
@dataclass(frozen=True)
class LossCurves(Extension):
    """Loss curves of several families: jobs that are predictable now or later approach their target.

    Weights are assumptions. Apply it after `Predictability`.

    Raises:
        ConfigurationError: a family that `ringyard.state.records.LossCurve` does not have.
    """

    #: {family: weight} of jobs that are ever predictable
    predictable: Weights = field(default_factory=lambda: _equal_weights(*list(LossCurve)[:5]))
    #: {family: weight} of jobs that never are
    unpredictable: Weights = field(default_factory=lambda: _equal_weights(*list(LossCurve)[5:]))
    #: (low, high) standard deviation of a point about the curve, log-uniform. The scatter of four Pollux runs
    noise: Annotated[tuple[Positive, Positive], "ascending"] = (0.014, 0.076)

    def __post_init__(self) -> None:
        known = [curve.name.lower() for curve in LossCurve]
        for name in (*self.predictable, *self.unpredictable):
            if name not in known:
                raise ConfigurationError(
                    f"workload.loss_curves names {checks.shown(name)}; expected some of {', '.join(known)}"
                )

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw a curve and its noise for each of the `jobs` on `cluster` from `rng`."""
        drawn = [_draw_keys(one, len(jobs), rng) for one in (self.predictable, self.unpredictable)]
        names = np.where(np.isfinite(jobs.predictable_from), *drawn)
        low, high = np.log(self.noise)
        noise = np.exp(rng.uniform(low, high, len(jobs)))
        curves = [int(LossCurve[name.upper()]) for name in names.tolist()]
        return replace(jobs, loss_curve=np.array(curves, np.int64), loss_noise=noise)


@checked("workload.cancellations")
@dataclass(frozen=True)
class Cancellations(Extension):
    """Some users withdraw their job after a time, and some jobs fail when their work is done."""

    cancelled: Fraction  #: share of jobs that are withdrawn, in [0, 1]
    #: (low, high) time from submission to withdrawal / the job's isolated run time, uniform
    after: Annotated[tuple[Positive, Positive], "ascending"]
    failed: Fraction = 0.0  #: share of the other jobs that end as failed, in [0, 1]

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Add cancellations and outcomes, drawn from `rng`, to `jobs` on `cluster`.

        Raises:
            ConfigurationError: the table has no run times.
        """
        count = len(jobs)
        if np.isnan(jobs.duration_seconds).any():
            raise ConfigurationError(
                "workload.cancellations needs run times, and this workload gives iterations; leave it out"
            )
        patience = rng.uniform(self.after[0], self.after[1], count) * jobs.duration_seconds
        cancelled = rng.random(count) < self.cancelled
        failed = rng.random(count) < self.failed
        cancel_seconds = np.where(cancelled, jobs.submit_seconds + patience, jobs.cancel_seconds)
        outcome = np.where(failed, int(JobOutcome.FAILED), jobs.outcome)
        return replace(jobs, cancel_seconds=cancel_seconds, outcome=outcome)


@checked("workload.tenants")
@dataclass(frozen=True)
class Tenants(Extension):
    """Users with sweeps of similar jobs, and the history of their earlier jobs (`JobTable.past`).

    A sweep is a run of jobs of one user. The run times of the table are dealt out anew, in the order of a sum
    of normal effects of the user, the sweep and the job (standard deviation 1). Their distribution stays.
    """

    users: PositiveInt  #: number of users. User k submits a share of the sweeps in proportion to 1 / (k + 1).
    virtual_clusters: PositiveInt  #: number of virtual clusters, to which users belong in turn
    sweep_jobs: Annotated[float, "[1, 1e6]"]  #: mean number of jobs of a sweep
    user_deviation: NonNegative  #: standard deviation of users' effects
    sweep_deviation: NonNegative  #: standard deviation of sweeps' effects
    past_jobs: NonNegativeInt  #: number of jobs in the history

    def extend(self, jobs: JobTable, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw users, run times and the history of `jobs` on `cluster` from `rng`."""
        past, count = self.past_jobs, self.past_jobs + len(jobs)
        sweeps = np.cumsum(rng.random(count) * self.sweep_jobs < 1.0)
        users = _draw_keys({k: 1.0 / (k + 1) for k in range(self.users)}, count + 1, rng)[sweeps]
        sums = rng.normal(0.0, self.user_deviation, self.users)[users] + rng.standard_normal(count)
        sums += rng.normal(0.0, self.sweep_deviation, count + 1)[sweeps]
        ordered, seconds = np.sort(sums[past:]), np.sort(jobs.duration_seconds)
        seconds = seconds[np.minimum(np.searchsorted(ordered, sums), len(jobs) - 1)]
        names = np.char.add("user", users.astype(np.str_))
        vcs = np.char.add("vc", (users % self.virtual_clusters).astype(np.str_))
        history = HistoricalJobs(rng.choice(jobs.num_gpus, past), seconds[:past], vcs[:past], names[:past])
        return replace(jobs, duration_seconds=seconds[past:], vc=vcs[past:], user=names[past:], past=history)
