"""Optimus (Peng et al., EuroSys 2018): fitted speeds, fitted convergence, greedy marginal gains."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.records import JobKind
from ringyard.sim.allocation import Allocation
from ringyard.sim.solo import solo_seconds
from ringyard.sim.view import SchedulingView
from ringyard_baselines.predictors import fit_seconds, gpu_jobs, iterations_from_loss
from ringyard_baselines.scheduler import Information, Slots
from ringyard_baselines.targets import Target, gpus_up, reach

__all__ = ["Optimus", "speed_features"]


def speed_features(batch: float, workers: NDArray[np.float64], servers: NDArray[np.float64]) -> NDArray[np.float64]:
    """[points, 5] terms of seconds per step: M/w, 1, w/p, w, p (Optimus' synchronous form).

    A ring has no parameter servers: its third and fifth terms are 0 (an assumption, the paper knows
    parameter servers only).
    """
    with_servers = servers > 0
    return np.stack(
        [
            batch / workers,
            np.ones(len(workers)),
            np.where(with_servers, workers / np.maximum(servers, 1), 0.0),
            workers,
            servers,
        ],
        axis=1,
    )


class Optimus:
    """Every ten minutes one worker (and server) each, then one more for whoever gains most by it.

    FOUND (public code): the speed form and its non-negative fit from sampled allocations, the loss form and
    its weights, slots of 600 s, the greedy rule: largest drop in remaining time per unit of the dominant
    resource, stopping at the first gain that is not positive or grant that does not fit. Here a job's
    batch stays as asked (fixed global batch), rigid jobs are given what they ask for, and profiling costs
    no time (the paper spends a few minutes a sample).

    Args:
        placement: where jobs go.
        round_seconds: length of a slot.
        samples: allocations profiled for each job, at least 4 for rings and 6 with parameter servers.
        max_servers: most parameter servers of a job. Assumption.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "optimus"
    information = Information.CURVES_AND_SPEEDS

    def __init__(
        self, placement: PlacementRule, round_seconds: float = 600.0, samples: int = 8, max_servers: int = 10
    ) -> None:
        if not round_seconds > 0 or samples < 6 or max_servers < 1:
            raise ConfigurationError(
                f"optimus round_seconds is {round_seconds}, samples {samples}, max_servers {max_servers};"
                " expected above 0, 6 or more, 1 or more"
            )
        self.placement = placement
        self.round_seconds: float | None = round_seconds
        self._samples = samples
        self._max_servers = max_servers
        self._slots = Slots(round_seconds)
        self._fits: dict[int, NDArray[np.float64]] = {}

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget what was profiled."""
        self._slots = Slots(self.round_seconds or np.inf)
        self._fits = {}

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Sizes by marginal gains at the beginning of a slot; nothing in between but on an idle cluster."""
        if not self._slots.begins(view) and len(view.running):
            return []
        jobs = gpu_jobs(view)
        left = dict(zip(jobs.tolist(), iterations_from_loss(view, jobs.tolist()).tolist(), strict=True))
        sizes = self._fewest(view, jobs.tolist())
        self._grow(view, sizes, left)
        targets = [
            Target(job, workers, Allocation(job, parameter_servers=servers or None))
            for job, (workers, servers) in sizes.items()
        ]
        return reach(view, targets, self.placement)

    def _fewest(self, view: SchedulingView, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """{job: (workers, servers)} to begin with, in order of submission while GPUs last."""
        left = gpus_up(view)
        sizes = {}
        least, kind = view.column("min_gpus"), view.column("kind")
        for job in jobs:
            if least[job] <= left:
                left -= int(least[job])
                sizes[job] = (int(least[job]), int(kind[job] == JobKind.PARAMETER_SERVER))
        return sizes

    def _grow(self, view: SchedulingView, sizes: dict[int, tuple[int, int]], left: dict[int, float]) -> None:
        """Grant one worker or one server at a time, in place."""
        most = view.column("max_gpus")
        free = gpus_up(view) - sum(workers for workers, _ in sizes.values())
        cores = float(sum(view.cluster.cores_per_server)) or np.inf
        server_cores = view.column("asked_cores_per_server_task")
        worker_cores = view.column("asked_cores")
        spare = cores - sum(
            workers * worker_cores[job] + servers * server_cores[job] for job, (workers, servers) in sizes.items()
        )

        def best(job: int) -> tuple[float, int, int, int]:
            workers, servers = sizes[job]
            options = [(-np.inf, job, 0, 0)]
            if workers < most[job]:
                share = max(1.0 / view.cluster.num_gpus, worker_cores[job] / cores)
                options.append((self._gain(view, job, sizes[job], (1, 0), left[job]) / share, job, 1, 0))
            if 0 < servers < self._max_servers:
                share = max(server_cores[job] / cores, 1.0 / view.cluster.num_gpus / 10)
                options.append((self._gain(view, job, sizes[job], (0, 1), left[job]) / share, job, 0, 1))
            gain, _, more_workers, more_servers = max(options)
            return -gain, job, more_workers, more_servers

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

    def _gain(
        self, view: SchedulingView, job: int, size: tuple[int, int], more: tuple[int, int], left: float
    ) -> float:
        """Seconds of remaining time saved."""
        now, then = self._seconds(view, job, *size), self._seconds(view, job, size[0] + more[0], size[1] + more[1])
        return left * (now - then)

    def _seconds(self, view: SchedulingView, job: int, workers: int, servers: int) -> float:
        """Fitted seconds per step."""
        if job not in self._fits:
            self._fits[job] = self._fit(view, job)
        a, b, c, d, e = self._fits[job]
        batch = float(view.column("base_batch")[job])
        return a * batch / workers + b + c * workers / max(servers, 1) + d * workers + e * servers

    def _fit(self, view: SchedulingView, job: int) -> NDArray[np.float64]:
        """Coefficients from `samples` allocations, evenly spread over the job's range."""
        low, high = int(view.column("min_gpus")[job]), int(view.column("max_gpus")[job])
        workers = np.unique(np.linspace(low, min(high, view.cluster.num_gpus), self._samples).round())
        servers = np.zeros(len(workers))
        if view.column("kind")[job] == JobKind.PARAMETER_SERVER:
            few = workers[: self._samples // 2]
            workers = np.concatenate([few, few])
            servers = np.repeat([1.0, 2.0], len(few))
        rows = np.full(len(workers), job)
        batch = np.clip(view.column("base_batch")[job], view.column("min_batch")[job], None)
        seconds = solo_seconds(view, rows, workers, batch, parameter_servers=servers)
        return fit_seconds(speed_features(float(batch), workers, servers), seconds)
