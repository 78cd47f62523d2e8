"""Workloads of SJF-BCO, Ada-SRSF, PAC-ML, DeepPool, GADGET, ONES and AITurbo, as far as they are public."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from ringyard.burst_plan import burst_plan
from ringyard.checks import Fraction, NonNegative, NonNegativeInt, Positive, PositiveInt, checked
from ringyard.cluster import Cluster
from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import model_id, profile
from ringyard.state.operations import DEPENDENCIES, OPERATIONS, Dependency, Operation, draw_graph, span
from ringyard.state.records import JobKind
from ringyard.workloads.extensions import LossCurves, ParameterServers, Predictability
from ringyard.workloads.workload import CostAssignment, scale_to_load

#: {GPUs: jobs}, a scaled-down Microsoft trace: SJF-BCO's technical report, section 7, and Ada-SRSF's public
#: simulator, "microsoft-160"
_MICROSOFT_160: Mapping[int, int] = {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}


@checked("workload")
@dataclass(frozen=True)
class PublishedMix:
    """Jobs of given sizes in random order."""

    #: (low, high) training iterations, a uniform integer
    iterations: Annotated[tuple[PositiveInt, PositiveInt], "ascending"]
    arrival_seconds: NonNegative  #: arrivals are uniform over this time. 0: all jobs arrive at once.
    models: CostAssignment  #: costs per iteration
    #: {GPUs: jobs} of this size. Default: the 160 jobs that SJF-BCO and Ada-SRSF took from a Microsoft trace.
    jobs_by_gpus: Annotated[Mapping[PositiveInt, NonNegativeInt], "of positive sum"] = field(
        default_factory=lambda: _MICROSOFT_160
    )

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return sum(self.jobs_by_gpus.values())

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the jobs of one episode on `cluster` from `rng`. Iterations determine their run times."""
        sizes = rng.permutation(np.repeat(list(self.jobs_by_gpus), list(self.jobs_by_gpus.values())))
        iterations = rng.integers(self.iterations[0], self.iterations[1], self.num_jobs, endpoint=True)
        submit = np.sort(rng.uniform(0.0, self.arrival_seconds, self.num_jobs))
        jobs = JobTable.from_columns(submit - submit[0], sizes, np.ones(self.num_jobs))
        unknown = np.full(self.num_jobs, np.nan)
        jobs = replace(jobs, iterations=iterations.astype(np.float64), duration_seconds=unknown)
        return self.models.assign(jobs, rng)


#: {model: (sequential seconds of 50 steps on one A100, bytes between operations per step)} of PAC-ML's
#: simulator, five PipeDream profiles
_PARTITIONED_MODELS: Mapping[str, tuple[float, float]] = {
    "resnet18": (36668.35, 1.873e10),
    "vgg16": (34525.35, 2.947e10),
    "gnmt": (4470.8, 1.028e9),
    "squeezenet": (38000.15, 2.791e10),
    "alexnet": (36061.15, 2.422e9),
}

_STEPS = 50
_REFERENCE_DRAWS = 100_000


def _acceptable_ratio(skew: float | None, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[count] beta in [0.1, 1] with two decimals: acceptable / sequential completion time.

    A skew-normal distribution is scaled to [0.1, 1] by its extremes over 100,000 draws. That is an
    assumption, because the public code scales each sample by its own extremes. A `skew` of None: uniform.
    """
    if skew is None:
        return np.round(rng.uniform(0.1, 1.0, count), 2)
    delta = skew / np.sqrt(1.0 + skew**2)

    def skew_normal(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        x, y = np.abs(rng.standard_normal(count)), rng.standard_normal(count)
        return delta * x + np.sqrt(1.0 - delta**2) * y  # Azzalini's form

    reference = skew_normal(_REFERENCE_DRAWS, np.random.default_rng(0))
    low, high = float(reference.min()), float(reference.max())
    share = np.clip((skew_normal(count, rng) - low) / (high - low), 0.0, 1.0)
    return np.round(0.1 + 0.9 * share, 2)


@checked("workload")
@dataclass(frozen=True)
class PartitionedJobs:
    """Jobs of PAC-ML (arXiv 2301.13799) that may be partitioned, with an acceptable completion time each.

    w workers divide a job's operations evenly and exchange the bytes between operations: compute seconds / w,
    and a ring over these bytes. That approximates PAC-ML's partitioning by operation.

    With `quantum_seconds`, each job has a graph of operations of its own (`ringyard.state.operations`). The
    longest path through it, in which an operation counts as one of its parts, is not shortened by workers; by
    Brent's theorem (JACM 21(2), 1974) the seconds on w workers are at most path + (work - path) / w.
    """

    num_jobs: PositiveInt = 1001  #: jobs per table
    gap_seconds: Positive = 1000.0  #: seconds between arrivals
    skew: float | None = None  #: skew of acceptable / sequential completion time (beta). None: uniform.
    max_workers: PositiveInt = 16  #: largest number of workers (GPUs) of a job
    #: least seconds of a part of an operation, in a training step; shorter operations are not split.
    #: Assumption. None: no graphs, all is split evenly.
    quantum_seconds: Positive | None = None

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the jobs of one episode on `cluster` from `rng`. Each round draws all models once."""
        figures = np.array(list(_PARTITIONED_MODELS.values()))
        rounds = -(-self.num_jobs // len(figures))
        kind = np.concatenate([rng.permutation(len(figures)) for _ in range(rounds)])[: self.num_jobs]
        sequential, between = figures[kind].T
        ones = np.ones(self.num_jobs, dtype=np.int64)
        table = JobTable.from_columns(np.arange(self.num_jobs) * self.gap_seconds, ones, sequential)
        seconds, most = sequential / _STEPS, np.minimum(self.max_workers, cluster.num_gpus) * ones
        table = replace(table, compute_seconds=seconds, gradient_bytes=between, max_gpus=most)
        table = replace(table, acceptable_jct=_acceptable_ratio(self.skew, self.num_jobs, rng) * sequential)
        if self.quantum_seconds is None:
            return table
        graphs, fixed = rng.integers(2**31, size=self.num_jobs), np.zeros(self.num_jobs)
        operations, dependencies = Operation.zeros(OPERATIONS), Dependency.zeros(DEPENDENCIES)
        for job, number in enumerate(graphs.tolist()):
            count, used = draw_graph(number, operations, dependencies)
            fixed[job] = span(operations[:count], dependencies[:used], self.quantum_seconds / seconds[job])
        return replace(table, graph=graphs, fixed_fraction=fixed)


@checked("workload")
@dataclass(frozen=True)
class BurstJobs:
    """Foreground jobs on several GPUs by a burst-parallel plan, and background jobs of one GPU (DeepPool).

    FOUND (public code): models, GPUs, batches. Their seconds are those of the models' `layer_groups`; a plan
    includes its transfers. Assumed: all foreground jobs wait from the start, background jobs arrive at random
    (Poisson), models are equally likely, and all jobs have as many samples.
    """

    num_jobs: PositiveInt = 1000  #: jobs per episode
    #: GPU seconds of all jobs by plain data parallelism / (GPUs x time of arrivals)
    load: Positive = 3.0
    foreground: Fraction = 0.5  #: share of foreground jobs
    samples: PositiveInt = 1_281_167  #: samples of a job, an epoch of ImageNet
    models: Sequence[str] = ("vgg16_imagenet", "inception_v3_imagenet")  #: models with `layer_groups`
    num_gpus: PositiveInt = 8  #: GPUs of a foreground job, a power of two
    batch_size: PositiveInt = 32  #: global batch of a foreground job
    background_batch: PositiveInt = 8  #: batch of a background job
    amplification_limit: Positive | None = 2.0  #: see `burst_plan`. None: plain data parallelism

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the jobs of one episode on `cluster` from `rng`. The limit changes no arrival."""
        foreground = np.arange(self.num_jobs) < self.foreground * self.num_jobs
        model = rng.integers(len(self.models), size=self.num_jobs)
        submit = np.cumsum(np.where(foreground, 0.0, rng.exponential(1.0, self.num_jobs)))
        alone, plain, planned = np.array([self._seconds(name) for name in self.models]).T[:, model]
        gpus = np.where(foreground, self.num_gpus, 1)
        batch = np.where(foreground, self.batch_size, self.background_batch).astype(np.float64)
        iterations = np.ceil(self.samples / batch)
        jobs = JobTable.from_columns(submit, gpus, iterations * np.where(foreground, plain, alone))
        return replace(
            scale_to_load(jobs, cluster, self.load),
            model_ids=np.array([model_id(name) for name in self.models])[model],
            compute_seconds=np.where(foreground, planned, alone),
            batch_size=batch,
            min_batch=batch,
            max_batch=batch,
            iterations=iterations,
            duration_seconds=np.full(self.num_jobs, np.nan),
        )

    def _seconds(self, name: str) -> tuple[float, float, float]:
        """Return the seconds of an iteration in the background, by data parallelism, and by the plan."""
        groups = profile(name).require_value("layer_groups")
        alone = sum(group.seconds_on(1, self.background_batch) for group in groups)
        limits = (None, self.amplification_limit)
        plans = [burst_plan(groups, self.num_gpus, self.batch_size, limit).seconds for limit in limits]
        return alone, plans[0], plans[1]


@checked("workload")
@dataclass(frozen=True)
class GadgetJobs:
    """Elastic jobs of GADGET (arXiv 2202.01158), which are withdrawn when the last time slot ends.

    FOUND: 200 slots, F_i in [1000, 6000], 1 to 10 workers for schedulers that do not resize. Assumed: F_i are
    worker slots, draws are uniform, arrivals uniform over the slots (the paper's are of a Google trace), a
    worker is a GPU, and fewer workers are slower in proportion.
    """

    num_jobs: PositiveInt = 100  #: jobs per episode
    slots: PositiveInt = 200  #: number of time slots
    slot_seconds: Positive = 300.0  #: length of a slot, which the paper does not state
    #: (low, high) work of a job, F_i
    worker_slots: Annotated[tuple[PositiveInt, PositiveInt], "ascending"] = (1000, 6000)
    workers: PositiveInt = 10  #: jobs ask for, and may have at most, 1 to this many GPUs

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the jobs of one episode on `cluster` from `rng`."""
        end = self.slots * self.slot_seconds
        submit = np.sort(rng.uniform(0.0, end, self.num_jobs))
        workers = rng.integers(1, min(self.workers, cluster.num_gpus), self.num_jobs, endpoint=True)
        work = rng.integers(self.worker_slots[0], self.worker_slots[1], self.num_jobs, endpoint=True)
        jobs = JobTable.from_columns(submit - submit[0], workers, work / workers * self.slot_seconds)
        least, ends = np.ones(self.num_jobs, dtype=np.int64), np.full(self.num_jobs, end)
        return replace(jobs, min_gpus=least, cancel_seconds=ends)


class OnesTask(NamedTuple):
    """A kind of job in ONES' trace."""

    runs: dict[int, list[int]]  #: {samples D of an epoch: epochs of each run in the history}
    sample_bytes: float  #: bytes of one sample. D samples are the data set.
    batch: int  #: B0, samples per GPU
    growth: int  #: largest global batch / B0
    gpus: int  #: GPUs asked for
    rate: float  #: measured samples per second on all these GPUs
    gradient_bytes: float  #: 4 bytes per parameter
    like: str  #: name of the profile with the same validation curve


#: the kinds of jobs of ONES' artifact, as `conf/ones_trace.yaml` has them
ONES_TASKS = [OnesTask(**row) for row in yaml.safe_load((config_folder() / "ones_trace.yaml").read_text())]

#: bandwidth of a ring between the artifact's servers of 4 GPUs, bytes per second
INFINIBAND = 4.97e9


@checked("workload")
@dataclass(frozen=True)
class OnesJobs:
    """ONES' trace: ten kinds of jobs, equally likely, with gaps of 0 to 60 whole seconds.

    FOUND (artifact): everything in `ONES_TASKS`, and the gaps. A job's data set has D samples, which are an
    epoch. It ends after as many epochs as a run of its model and D did. Assumed: the measured rates include a
    ring over 100Gb InfiniBand (4.97 GB/s, HKBU ddl-benchmarks) between servers, larger batches lose no
    efficiency (the artifact scales the learning rate with the batch), and jobs may have 1 to 64 GPUs.

    Raises:
        ConfigurationError: no kind of job fits the cluster (when jobs are drawn).
    """

    num_jobs: PositiveInt = 50  #: jobs per episode. The artifact runs 50.
    max_gap_seconds: PositiveInt = 60  #: largest gap between two submissions

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw jobs that fit the `cluster` from `rng`."""
        fitting = [task for task in ONES_TASKS if task.gpus <= cluster.num_gpus]
        if not fitting:
            raise ConfigurationError("no job of ONES' trace fits the cluster of 1 GPU; expected 2 or more")
        tasks = [fitting[i] for i in rng.integers(0, len(fitting), self.num_jobs)]
        gaps = rng.integers(0, self.max_gap_seconds + 1, self.num_jobs)
        submit = np.cumsum(gaps) - gaps[0]
        gpus = np.array([task.gpus for task in tasks])
        epoch_samples = np.array([rng.choice(list(task.runs)) for task in tasks])
        drawn = zip(tasks, epoch_samples.tolist(), strict=True)
        samples = epoch_samples * np.array([rng.choice(task.runs[size]) for task, size in drawn])
        measured = [(task.sample_bytes, task.batch, task.rate, task.gradient_bytes) for task in tasks]
        sample_bytes, each, rate, gradient = np.array(measured, dtype=np.float64).T
        growth = np.array([task.growth for task in tasks])
        batch = each * gpus
        table = JobTable.from_columns(submit.astype(np.float64), gpus, np.ones(self.num_jobs))
        table = table.with_models(np.array([model_id(task.like) for task in tasks]))
        ring = np.where(gpus > 4, 2.0 * gradient * (gpus - 1) / gpus / INFINIBAND, 0.0)
        free = np.zeros(self.num_jobs)
        return replace(
            table,
            duration_seconds=np.full(self.num_jobs, np.nan),
            iterations=samples / batch,
            compute_seconds=batch / rate - ring,
            gradient_bytes=gradient,
            sample_bytes=sample_bytes,
            dataset_bytes=sample_bytes * epoch_samples,
            fixed_fraction=free,
            batch_size=batch,
            min_batch=each,
            max_batch=np.maximum(each * growth, batch),
            noise_scale=np.full(self.num_jobs, np.inf),
            min_gpus=np.ones(self.num_jobs, dtype=np.int64),
            max_gpus=np.full(self.num_jobs, min(64, cluster.num_gpus)),
            fixed_memory_bytes=free,
            sample_memory_bytes=free,
        )


#: models of the 60-job list with usable profiles
_VGG = ("aiturbo_vgg11", "aiturbo_vgg16", "aiturbo_vgg19")
_RESNETS = ("aiturbo_resnet50", "aiturbo_resnet101", "aiturbo_resnet152")
AITURBO_MODELS = (*_VGG, "aiturbo_googlenet", "aiturbo_alexnet", "aiturbo_inception4", *_RESNETS)


@checked("workload")
@dataclass(frozen=True)
class AITurboJobs:
    """The 60-job list of AITurbo's follow-on: parameter-server jobs that arrive within four minutes.

    FOUND (public list): models, gaps of 1 to 6 s, 109 to 4,861 steps, 1 or 2 workers and servers, 5 cores
    per pod. 24 of 60 jobs become predictable, after 9 to 89 % of their steps. Assumed: uniform draws, the
    families of `LossCurves`, and the `error` of predictions. Inception-v3 is left out, because its public
    coefficients give negative times.
    """

    num_jobs: PositiveInt = 60  #: jobs per episode
    error: NonNegative = 0.05  #: standard deviation of ln(predicted / true remaining time)

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the jobs of one episode on `cluster` from `rng`."""
        count = self.num_jobs
        gaps = rng.integers(1, 7, count)
        steps = rng.integers(109, 4862, count).astype(np.float64)
        shapes = np.array([(2, 1)] * 28 + [(1, 2)] * 20 + [(2, 2)] * 12)  # (workers, servers)
        workers, servers = shapes[rng.integers(0, len(shapes), count)].T
        table = JobTable.from_columns((np.cumsum(gaps) - gaps[0]).astype(np.float64), workers, np.ones(count))
        dress = ParameterServers(1.0, dict.fromkeys(AITURBO_MODELS, 1.0), elastic=True)
        table = dress.extend(replace(table, kind=np.full(count, int(JobKind.RING))), cluster, rng)
        table = replace(
            table,
            duration_seconds=np.full(count, np.nan),
            iterations=steps,
            parameter_servers=servers,
            cores_per_worker=table.cores_per_server_task,  # every pod has as many
        )
        for extension in (Predictability(24 / 60, (0.09, 0.89), self.error), LossCurves()):
            table = extension.extend(table, cluster, rng)
        return table
