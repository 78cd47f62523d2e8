"""Dominant resource fairness (Ghodsi et al., NSDI 2011), a comparator of GADGET, Optimus and DL2."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.checks import Positive, checked
from ringyard.sim.speeds import fewest_gpus
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import Target, TimeSlots, apply_sizes, num_gpu_slots


@checked("drf")
@dataclass(eq=False)
class DominantResourceFairness(Scheduler):
    """Progressive filling, slot by slot: the next worker goes to the job with the smallest dominant share.

    A job's dominant share is the larger of its shares of all GPUs and of all CPU cores. From memory of the
    paper: the rule. Assumed, since jobs are gangs: the first grant is the fewest GPUs that hold the job's
    batch. A grant is skipped if too few GPUs are left. Equal shares go by submission.
    """

    name = "drf"
    observability = Observability.SIZES
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE

    placement: PlacementRule  #: where jobs go
    round_seconds: Positive = 600.0  #: length of a slot in seconds. Assumption.
    elastic: bool = True  #: False grants each job exactly the GPUs it requests, so that small jobs come first

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the slots (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._slots = TimeSlots(self.round_seconds or np.inf)

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Fill anew when a slot begins or the cluster is idle."""
        if not self._slots.begins(view) and len(view.running):
            return []
        jobs = view.gpu_jobs
        least, most = view.column("asked_gpus")[jobs], view.column("asked_gpus")[jobs]
        if self.elastic:
            least, most = fewest_gpus(view, jobs), view.column("max_gpus")[jobs]
        cores = sum(view.cluster.cores_per_server)
        core_share = view.column("cores_per_worker")[jobs] / cores if cores else np.zeros(len(jobs))
        share = np.maximum(core_share, 1.0 / max(view.num_gpus_up, 1))
        held = _progressive_filling(num_gpu_slots(view, self.placement), least, most, share)
        targets = [Target(int(jobs[i]), int(held[i])) for i in np.flatnonzero(held)]
        return apply_sizes(view, targets, self.placement)


def _progressive_filling(
    free: int, least: NDArray[np.int64], most: NDArray[np.int64], share: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return [jobs] the number of GPUs after progressive filling of `free` GPUs by dominant `share`.

    The first grant is `least` [jobs] GPUs, later ones are of one GPU, up to `most` [jobs].
    """
    held = np.zeros(len(least), dtype=np.int64)
    heap = [(float(least[i] * share[i]), i) for i in range(len(least))]  # share after the next grant
    heapify(heap)
    while heap and free > 0:
        _, i = heappop(heap)
        more = int(least[i]) if held[i] == 0 else 1
        if more > free:
            continue
        free -= more
        held[i] += more
        if held[i] < most[i]:
            heappush(heap, (float((held[i] + 1) * share[i]), i))
    return held
