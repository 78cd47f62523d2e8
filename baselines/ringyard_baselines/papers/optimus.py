"""Optimus (Peng et al., EuroSys 2018): fitted speeds, fitted convergence, greedy marginal gains."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.checks import Positive, PositiveInt, checked
from ringyard.sim.speeds import fewest_gpus
from ringyard.state.records import JobKind
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.predictions import LossCurves, or_as_many_as_done
from ringyard_baselines.tools.step_model import StepModels, spread_sizes
from ringyard_baselines.tools.targets import Target, TimeSlots, apply_sizes, num_gpu_slots


@checked("optimus")
@dataclass(eq=False)
class Optimus(Scheduler):
    """Optimus of Peng et al. (EuroSys 2018): every ten minutes sizes grow where that saves most time.

    Each job gets one worker (and one parameter server). Then one unit after the other goes to the job with
    the largest gain.

    FOUND (public code): the speed model and its non-negative fit from sampled allocations, the loss model,
    slots of 600 s. The greedy rule: largest drop in remaining time per unit of the dominant resource, until a
    gain is not positive or a grant does not fit. Not as published: a job's batch stays as requested (fixed
    global batch), rigid jobs get what they request, and profiling takes no time (a few minutes a sample
    there). All points of a loss log weigh alike, and `predictions.forecast` tests whether the log can be
    trusted. Assumption: if not, as much is left as is done.
    """

    name = "optimus"
    observability = Observability.SIZES | Observability.TRAINING_CURVES | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE | Capabilities.CORES

    placement: PlacementRule  #: where jobs go
    round_seconds: Positive = 600.0  #: length of a slot in seconds
    samples: Annotated[int, "[6, 100]"] = 8  #: number of allocations profiled for each job, 6 to 100
    max_servers: PositiveInt = 10  #: largest number of parameter servers of a job. Assumption.

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles and loss curves (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._models = StepModels(self._points)
        self._curves = LossCurves()

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Set sizes by marginal gains when a slot begins or the cluster is idle."""
        if not self._slots.begins(view) and len(view.running):
            return []
        jobs = view.gpu_jobs
        remaining = or_as_many_as_done(view, jobs, self._curves.iterations_left(view, jobs))
        left = dict(zip(jobs.tolist(), remaining.tolist(), strict=True))
        sizes = self._fewest(view, jobs.tolist())
        self._grow(view, sizes, left)
        targets = [
            Target(job, workers, Allocation(job, parameter_servers=servers or None))
            for job, (workers, servers) in sizes.items()
        ]
        return apply_sizes(view, targets, self.placement)

    def _fewest(self, view: SchedulingView, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return {job: (workers, servers)} to begin with, in order of submission while GPUs last."""
        left = num_gpu_slots(view, self.placement)
        sizes = {}
        rows = np.array(jobs, dtype=np.int64)
        with_servers = (view.column("kind")[rows] == JobKind.PARAMETER_SERVER).astype(int).tolist()
        for job, least, servers in zip(jobs, fewest_gpus(view, rows).tolist(), with_servers, strict=True):
            if least <= left:
                left -= least
                sizes[job] = (least, servers)
        return sizes

    def _grow(self, view: SchedulingView, sizes: dict[int, tuple[int, int]], left: dict[int, float]) -> None:
        """Grant one worker or one parameter server at a time, in place."""
        most = view.column("max_gpus")
        free = num_gpu_slots(view, self.placement) - sum(workers for workers, _ in sizes.values())
        cores = float(sum(view.cluster.cores_per_server)) or np.inf
        server_cores = view.column("asked_cores_per_server_task")
        worker_cores = view.column("asked_cores")
        spare = cores - sum(
            workers * worker_cores[job] + servers * server_cores[job]
            for job, (workers, servers) in sizes.items()
        )

        def best(job: int) -> tuple[float, int, int, int]:
            """Return the job's best grant: minus its gain, the job, additional workers and servers."""
            workers, servers = sizes[job]
            now = self._models.seconds(view, job, workers, servers)
            found = (np.inf, job, 0, 0)
            for more, held, fewest_share in ((1, 0), worker_cores, 1.0), ((0, 1), server_cores, 0.1):
                if workers < most[job] if more[0] else 0 < servers < self.max_servers:
                    then = self._models.seconds(view, job, workers + more[0], servers + more[1])
                    share = max(fewest_share / view.cluster.num_gpus, held[job] / cores)
                    found = min(found, (left[job] * (then - now) / share, job, *more))
            return found

        heap = [best(job) for job in sizes]
        heapify(heap)
        while heap:
            loss, job, workers, servers = heappop(heap)
            need = workers * worker_cores[job] + servers * server_cores[job]
            if loss >= 0 or workers > free or need > spare:
                return
            free -= workers
            spare -= need
            sizes[job] = (sizes[job][0] + workers, sizes[job][1] + servers)
            heappush(heap, best(job))

    def _points(self, view: SchedulingView, job: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `samples` allocations to profile, evenly spread over the job's range."""
        if view.column("kind")[job] != JobKind.PARAMETER_SERVER:
            workers = spread_sizes(view, job, self.samples)
            return workers, np.zeros(len(workers))
        few = spread_sizes(view, job, self.samples // 2)
        return np.concatenate([few, few]), np.repeat([1.0, 2.0], len(few))
