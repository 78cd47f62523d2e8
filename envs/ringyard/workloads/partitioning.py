"""Jobs that may be partitioned and have an acceptable completion time, as in PAC-ML (arXiv 2301.13799)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Count, Positive, checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable

#: {model: (sequential seconds of 50 steps on one A100, bytes between operations per step)}; PAC-ML's
#: simulator, five PipeDream profiles
PARTITIONED_MODELS: Mapping[str, tuple[float, float]] = {
    "resnet18": (36668.35, 1.873e10),
    "vgg16": (34525.35, 2.947e10),
    "gnmt": (4470.8, 1.028e9),
    "squeezenet": (38000.15, 2.791e10),
    "alexnet": (36061.15, 2.422e9),
}

STEPS = 50
_REFERENCE_DRAWS = 100_000


def requirement(skew: float | None, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[count] beta in [0.1, 1], two decimals: acceptable over sequential completion time.

    Args:
        skew: of a skew-normal distribution scaled to [0.1, 1] by its extremes over 100,000 draws (an
            assumption; the public code scales each sample by its own); None: uniform.
        count: jobs.
        rng: source of randomness.
    """
    if skew is None:
        return np.round(rng.uniform(0.1, 1.0, count), 2)
    reference = _skew_normal(skew, _REFERENCE_DRAWS, np.random.default_rng(0))
    low, high = float(reference.min()), float(reference.max())
    share = np.clip((_skew_normal(skew, count, rng) - low) / (high - low), 0.0, 1.0)
    return np.round(0.1 + 0.9 * share, 2)


def _skew_normal(skew: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Azzalini's form: delta |x| + sqrt(1 - delta^2) y."""
    delta = skew / np.sqrt(1.0 + skew**2)
    x, y = np.abs(rng.standard_normal(count)), rng.standard_normal(count)
    result: NDArray[np.float64] = delta * x + np.sqrt(1.0 - delta**2) * y
    return result


@checked("workload")
@dataclass(frozen=True)
class PartitionedJobs:
    """One job every `gap_seconds`, sequential or on up to `most_workers` GPUs, each with a beta of its own.

    A job's workers share its operations evenly and exchange what lies between them: compute seconds / w, and
    a ring over the bytes between operations (an approximation of the per-operation partitioning of PAC-ML).

    Attributes:
        num_jobs: jobs per table.
        gap_seconds: between arrivals.
        skew: see `requirement`; None: uniform.
        most_workers: largest degree of partitioning.
    """

    num_jobs: Count = 1001
    gap_seconds: Positive = 1000.0
    skew: float | None = None
    most_workers: Count = 16

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """A table; models are drawn without replacement until all have come, then anew."""
        figures = np.array(list(PARTITIONED_MODELS.values()))
        rounds = -(-self.num_jobs // len(figures))
        kind = np.concatenate([rng.permutation(len(figures)) for _ in range(rounds)])[: self.num_jobs]
        sequential, between = figures[kind].T
        ones = np.ones(self.num_jobs, dtype=np.int64)
        table = JobTable.from_columns(np.arange(self.num_jobs) * self.gap_seconds, ones, sequential)
        return replace(
            table,
            compute_seconds=sequential / STEPS,
            gradient_bytes=between,
            max_gpus=np.minimum(self.most_workers, cluster.num_gpus) * ones,
            acceptable_jct=requirement(self.skew, self.num_jobs, rng) * sequential,
        )
