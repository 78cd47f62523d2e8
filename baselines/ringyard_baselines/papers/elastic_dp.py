"""Elastic scaling by dynamic programming (Saxena et al., MASCOTS 2020, arXiv 2006.13878)."""

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Observability, PlacementRule, SchedulingView
from ringyard.checks import Positive, PositiveInt, checked
from ringyard.compiled import FloatMatrix, IntMatrix, kernel
from ringyard.sim.speeds import BatchRule, SpeedTable
from ringyard_baselines.policies.sizing import SizingScheduler
from ringyard_baselines.tools.targets import Target, num_gpu_slots

_UNREACHABLE = -1e4  # as in the public implementation


@kernel
def _fill_table(gain: FloatMatrix, value: FloatMatrix, chosen: IntMatrix) -> None:
    """Fill max over g of S_j(g) + P[j-1][k-g] into `value` P, and the best g into `chosen`. S is `gain`."""
    num_jobs = gain.shape[0]
    columns = value.shape[1]
    value[0, :] = 0.0
    least = 0  # smallest number of GPUs of the jobs so far
    for j in range(1, num_jobs + 1):
        before, here, size = value[j - 1], value[j], chosen[j]
        here[:] = _UNREACHABLE
        fewest = 0
        for g in range(1, gain.shape[1]):
            speedup = gain[j - 1, g]
            if speedup > 0.0:
                fewest = fewest if fewest > 0 else g
                for k in range(least + g, columns):
                    total = speedup + before[k - g]
                    if before[k - g] > _UNREACHABLE and total > here[k]:
                        here[k] = total
                        size[k] = g
        least += fewest


def best_sizes(speedup: NDArray[np.float64], gpus: int) -> NDArray[np.int64] | None:
    """Return [jobs] GPUs with the largest sum of speed-ups, or None. 0 in `speedup`: not allowed."""
    count = len(speedup)
    value = np.zeros((count + 1, gpus + 1))
    chosen = np.zeros((count + 1, gpus + 1), dtype=np.int64)
    _fill_table(speedup, value, chosen)
    k = int(np.argmax(value[count]))
    if count and value[count, k] <= 0:
        return None
    sizes = np.zeros(count, dtype=np.int64)
    for j in range(count, 0, -1):
        sizes[j - 1] = chosen[j, k]
        k -= int(chosen[j, k])
    return sizes


@checked("elastic_dp")
class ElasticDP(SizingScheduler):
    """GPUs and batch of every job by a dynamic program over the sum of speed-ups, every ten minutes.

    Saxena et al., "Effective elastic scaling of deep learning workloads", MASCOTS 2020. FOUND (a public
    implementation that names the paper): the recurrence, at least one GPU for each admitted job, admission in
    order of submission while the program stays feasible. Assumed (the paper's text was not available): S_j(g)
    is the throughput on g GPUs over that on the fewest, both at the best batch. Rounds of 600 s. At most 10
    GPUs.

    Args:
        placement: where jobs go.
        round_seconds: seconds between two optimisations, delta. Assumption.
        max_gpus: largest number of GPUs of a job, unless it requests more. Assumption.
        batch: "throughput" takes the batch with most samples per second, as the paper does, "goodput" the
            batch with most progress, "asked" the requested one (the paper's comparator).
    """

    def __init__(
        self,
        placement: PlacementRule,
        round_seconds: Positive = 600.0,
        max_gpus: PositiveInt = 10,
        batch: BatchRule = BatchRule.THROUGHPUT,
    ) -> None:
        name = "elastic_dp" if batch != BatchRule.ASKED else "elastic_dp_fixed_batch"
        sees, batches = Observability.SIZES | Observability.SPEEDS, BatchRule(batch)
        super().__init__(name, sees, placement, batches, round_seconds, slotted=True, max_gpus=max_gpus)
        self._most = max_gpus

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Return the sizes and batches of the optimum (`view`, `table`: see `SizingScheduler.sizes`)."""
        gpus = num_gpu_slots(view, self.placement)
        rate = table.speed if self.batch is BatchRule.GOODPUT else table.samples
        allowed = np.arange(table.sizes + 1) <= self._most
        jobs, speedup, least = [], [], 0
        for job in view.gpu_jobs.tolist():
            speeds = rate[table.place[job]]
            fewest = int(np.argmax(speeds > 0))
            if least + fewest > gpus:
                break
            least += fewest
            jobs.append(job)
            some = np.where(allowed | (np.arange(len(speeds)) == fewest), speeds, 0.0)
            speedup.append(some / speeds[fewest])
        if not jobs:
            return []
        sizes = best_sizes(np.array(speedup), gpus)
        assert sizes is not None, "each job's fewest GPUs fit together"
        pairs = zip(jobs, sizes.tolist(), strict=True)
        return [Target(job, n, Allocation(job, batch_size=table.batch_of(job, n))) for job, n in pairs]
