"""Job lists of two experiments, as far as they are public: ONES' artifact and AITurbo's follow-on."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ringyard.checks import Amount, Count, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import model_id
from ringyard.state.records import JobKind
from ringyard.workloads.extensions import ParameterServers


class _Task(NamedTuple):
    """A row of ONES' trace.

    Attributes:
        runs: {epoch size D: epochs until it stopped, of each run in the history}.
        sample_bytes: of one sample; D samples are the data set.
        batch: B0, per GPU.
        growth: most GPUs' worth of B0 in the global batch.
        gpus: asked for.
        rate: samples per second on all of them, measured.
        gradient_bytes: 4 bytes per parameter.
        like: profile whose validation curve it shows.
    """

    runs: dict[int, tuple[int, ...]]
    sample_bytes: float
    batch: int
    growth: int
    gpus: int
    rate: float
    gradient_bytes: float
    like: str


#: bytes of a sample: 32 x 32 x 3; ImageNet's mean (its profiles); 128 tokens, three numbers of 8 bytes each
_CIFAR, _IMAGENET, _TOKENS = 3072.0, 113_959.0, 3072.0

#: ONES' artifact: trace_1.csv and its job history. The history names no models: rows of jobs that came at the
#: same instant are matched by learning rate, initial loss and speed
ONES_TASKS = (
    _Task({20_000: (38,), 40_000: (25,)}, _CIFAR, 256, 16, 4, 14_900, 44.7e6, "resnet18_cifar10"),
    _Task(
        {20_000: (36,), 40_000: (22, 23)}, _CIFAR, 256, 16, 4, 10_700, 26.5e6, "resnet18_cifar10"
    ),  # GoogLeNet
    _Task({20_000: (67,), 40_000: (36,)}, _CIFAR, 128, 16, 4, 2_800, 58.9e6, "resnet18_cifar10"),  # VGG-16
    _Task(
        {10_000: (21,), 20_000: (69,)}, _IMAGENET, 64, 16, 16, 3_050, 244.4e6, "resnet50_imagenet"
    ),  # AlexNet
    _Task({10_000: (27,), 20_000: (44,)}, _IMAGENET, 32, 16, 16, 1_850, 102.2e6, "resnet50_imagenet"),
    _Task(
        {10_000: (11,), 20_000: (58,)}, _IMAGENET, 32, 16, 16, 1_050, 553.4e6, "resnet50_imagenet"
    ),  # VGG-16
    _Task(
        {10_000: (50,), 20_000: (52,)}, _IMAGENET, 32, 16, 16, 1_550, 108.6e6, "resnet50_imagenet"
    ),  # Inception
    _Task({5_000: (5,), 8_000: (6,)}, _TOKENS, 16, 4, 2, 102, 438.0e6, "bert_base_squad"),  # CoLA
    _Task({3_600: (5, 6)}, _TOKENS, 16, 4, 2, 102, 438.0e6, "bert_base_squad"),  # MRPC
    _Task({10_000: (5,), 20_000: (5,)}, _TOKENS, 32, 8, 8, 435, 438.0e6, "bert_base_squad"),  # SST-2
)


#: bytes per second of a ring between the artifact's servers of 4 GPUs
INFINIBAND = 4.97e9


@checked("workload")
@dataclass(frozen=True)
class OnesJobs:
    """ONES' trace: ten kinds of jobs equally likely, gaps of 0 to 60 whole seconds.

    FOUND (artifact): everything in `ONES_TASKS`, the gaps. A job's data set has D samples, which is an epoch,
    and it ends after as many epochs as a run of its model and D did. Assumed: the measured rates include a
    ring over 100Gb InfiniBand (4.97 GB/s, HKBU ddl-benchmarks) between servers, larger batches lose no
    efficiency (the artifact scales the learning rate with the batch), a job may have 1 to 64 GPUs.

    Attributes:
        num_jobs: the artifact runs the first 50.
        longest_gap: seconds between two submissions at most.
    """

    num_jobs: Count = 50
    longest_gap: Count = 60

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Jobs that fit the cluster."""
        fitting = [task for task in ONES_TASKS if task.gpus <= cluster.num_gpus]
        if not fitting:
            raise ConfigurationError("no job of ONES' trace fits the cluster of 1 GPU; expected 2 or more")
        tasks = [fitting[i] for i in rng.integers(0, len(fitting), self.num_jobs)]
        gaps = rng.integers(0, self.longest_gap + 1, self.num_jobs)
        submit = np.cumsum(gaps) - gaps[0]
        gpus = np.array([task.gpus for task in tasks])
        epoch_samples = np.array([rng.choice(list(task.runs)) for task in tasks])
        drawn = zip(tasks, epoch_samples.tolist(), strict=True)
        samples = epoch_samples * np.array([rng.choice(task.runs[size]) for task, size in drawn])
        sample_bytes = np.array([task.sample_bytes for task in tasks])
        each = np.array([task.batch for task in tasks], dtype=np.float64)
        growth = np.array([task.growth for task in tasks])
        batch = each * gpus
        table = JobTable.from_columns(submit.astype(np.float64), gpus, np.ones(self.num_jobs))
        table = table.with_models(np.array([model_id(task.like) for task in tasks]))
        gradient = np.array([task.gradient_bytes for task in tasks])
        ring = np.where(gpus > 4, 2.0 * gradient * (gpus - 1) / gpus / INFINIBAND, 0.0)
        free = np.zeros(self.num_jobs)
        return replace(
            table,
            duration_seconds=np.full(self.num_jobs, np.nan),
            iterations=samples / batch,
            compute_seconds=batch / np.array([task.rate for task in tasks]) - ring,
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


#: models of the 60-job list whose profiles are usable
AITURBO_MODELS = (
    "aiturbo_vgg11",
    "aiturbo_vgg16",
    "aiturbo_vgg19",
    "aiturbo_googlenet",
    "aiturbo_alexnet",
    "aiturbo_inception4",
    "aiturbo_resnet50",
    "aiturbo_resnet101",
    "aiturbo_resnet152",
)


@checked("workload")
@dataclass(frozen=True)
class AITurboJobs:
    """The 60-job list of AITurbo's follow-on: parameter-server jobs that come within four minutes.

    FOUND (public list): models, gaps of 1 to 6 s, 109 to 4,861 steps, 1 or 2 workers and servers, 5 cores
    per pod; 24 of 60 jobs become predictable, at 9 to 89 % of their life. Assumed: uniform draws; `error` of
    the predictions; Inception-v3 is left out (its public coefficients give negative times).

    Attributes:
        num_jobs: jobs.
        error: standard deviation of ln(predicted / true remaining time).
    """

    num_jobs: Count = 60
    error: Amount = 0.05

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """A list."""
        count = self.num_jobs
        gaps = rng.integers(1, 7, count)
        steps = rng.integers(109, 4862, count).astype(np.float64)
        shapes = np.array([(2, 1)] * 28 + [(1, 2)] * 20 + [(2, 2)] * 12)  # (workers, servers)
        workers, servers = shapes[rng.integers(0, len(shapes), count)].T
        table = JobTable.from_columns((np.cumsum(gaps) - gaps[0]).astype(np.float64), workers, np.ones(count))
        dress = ParameterServers(1.0, dict.fromkeys(AITURBO_MODELS, 1.0), elastic=True)
        table = dress.extend(replace(table, kind=np.full(count, int(JobKind.RING))), cluster, rng)
        known = rng.random(count) < 24 / 60
        return replace(
            table,
            duration_seconds=np.full(count, np.nan),
            iterations=steps,
            parameter_servers=servers,
            cores_per_worker=table.cores_per_server_task,  # every pod has as many
            predictable_from=np.where(known, rng.uniform(0.09, 0.89, count), np.inf),
            prediction_factor=np.exp(self.error * rng.standard_normal(count)),
        )
