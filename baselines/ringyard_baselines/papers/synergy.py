"""Synergy-TUNE (Mohan et al., OSDI 2022): CPU cores by profile, the fair share where they do not fit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Positive, checked
from ringyard.cluster import Cluster
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.draft import Draft
from ringyard.sim.solo import solo_seconds
from ringyard.sim.view import SchedulingView
from ringyard_baselines.scheduler import Information, Scheduler
from ringyard_baselines.tools.predictions import predicted_seconds
from ringyard_baselines.tools.targets import fitting, never_idle, start_cpu_jobs

__all__ = ["SynergyTune", "best_demand"]


def best_demand(seconds: NDArray[np.float64], saturation: float) -> int:
    """Fewest cores (the index) whose speed is at least `saturation` of the best.

    Args:
        seconds: [cores + 1] per iteration; inf where impossible.
        saturation: in (0, 1].
    """
    return int(np.argmax(1.0 / seconds >= saturation * (1.0 / seconds).max()))


#: [jobs] urgency of each order, ascending, and what it takes
ORDERS: Mapping[str, Callable[[SchedulingView], NDArray[np.float64]]] = {
    "srtf": predicted_seconds,
    "fifo": lambda view: view.submit_seconds,
    "las": lambda view: view.attained_service,
}
ORDERS_TAKE = {
    "srtf": Information.PREDICTIONS,
    "fifo": Information.NOTHING,
    "las": Information.ATTAINED_SERVICE,
}


@checked("synergy_tune")
class SynergyTune(Scheduler):
    """Any order of jobs; cores where they help.

    FOUND: the ordering policy stays what it was (FIFO, SRTF or LAS here), throughput is profiled over CPU
    cores. From memory: TUNE packs each job with its best demand and shrinks demands toward the fair share
    (cores x GPUs asked / GPUs of the server) when it does not fit; first the job's own, then those of
    running jobs that hold more than their share. Assumed: the best demand is the fewest cores within
    `saturation` of the largest throughput; memory (RAM) is not simulated. On a cluster that does not count
    cores this is the plain ordering policy.

    Args:
        placement: where a job goes.
        order: "srtf", "fifo" or "las".
        saturation: see above. Assumption.
        round_seconds: decide every this many seconds as well.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "synergy_tune"

    def __init__(
        self,
        placement: PlacementRule,
        order: Literal["srtf", "fifo", "las"] = "srtf",
        saturation: Annotated[float, "(0, 1]"] = 0.95,
        round_seconds: Positive = 300.0,
    ) -> None:
        self.placement = placement
        self.round_seconds: float | None = round_seconds
        self.information = Information.SIZES | Information.SPEEDS | ORDERS_TAKE[order]
        self._order = order
        self._saturation = saturation
        self._demands: dict[int, tuple[int, int]] = {}

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the profiles."""
        self._demands = {}

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Stop who lost its turn, shrink where cores are short, start the others."""
        jobs = view.gpu_jobs
        order = jobs[np.lexsort((jobs, ORDERS[self._order](view)[jobs]))].tolist()
        chosen = [target.job for target in fitting(view, order)]
        draft = Draft(view)
        allocations = []
        running = set(view.running.tolist()) & set(jobs.tolist())
        for job in sorted(running - set(chosen)):
            draft.release(job)
            allocations.append(Allocation(job))
        running &= set(chosen)
        allocations += start_cpu_jobs(view, draft, self.placement)
        waiting = [job for job in chosen if job not in running]
        for job in waiting:
            allocations += self._start(view, draft, job, running)
        return never_idle(view, draft, self.placement, order, allocations)

    def _start(self, view: SchedulingView, draft: Draft, job: int, running: set[int]) -> list[Allocation]:
        """The job with its best demand, else its fair share, else after others shrank to theirs."""
        if not view.cluster.cores_per_server:
            found = draft.place(self.placement, job)
            return [found] if found is not None else []
        best, fair = self._demand(view, job)
        fewest = int(view.cluster.fewest_servers(view.column("asked_gpus")[job : job + 1])[0])
        for cores in dict.fromkeys((best, min(best, fair))):
            found = draft.place(self.placement, job, Allocation(job, self._count(view, job), cores))
            if found is None:
                continue
            servers = np.unique(view.cluster.server_of_gpu[list(found.gpu_ids)])
            if cores <= fair or len(servers) <= fewest:  # cores are not worth spreading a ring for
                return [found]
            draft.release(job)
        return self._make_room(view, draft, job, min(best, fair), running)

    @staticmethod
    def _count(view: SchedulingView, job: int) -> tuple[int, ...]:
        return tuple(range(int(view.column("asked_gpus")[job])))

    def _make_room(
        self, view: SchedulingView, draft: Draft, job: int, cores: int, running: set[int]
    ) -> list[Allocation]:
        """Shrink running jobs to their fair share, the greediest first, until the job fits."""
        held = view.column("cores_per_worker")
        excess = [(int(held[other]) - self._demand(view, other)[1], other) for other in running]
        changes = []
        for more, other in sorted(excess, key=lambda pair: (-pair[0], pair[1])):
            if more <= 0:
                break
            gpus = view.gpus_of(other)
            smaller = Allocation(other, gpus, self._demand(view, other)[1])
            draft.release(other)
            draft.take(smaller)
            changes.append(smaller)
            running.discard(other)
            found = draft.place(self.placement, job, Allocation(job, self._count(view, job), cores))
            if found is not None:
                return [*changes, found]
        return changes

    def _demand(self, view: SchedulingView, job: int) -> tuple[int, int]:
        """(best demand, fair share) in cores per worker."""
        if job not in self._demands:
            cluster = view.cluster
            fair = max(1, int(sum(cluster.cores_per_server) // cluster.num_gpus))
            most = max(cluster.cores_per_server)
            tried = np.arange(1, most + 1)
            seconds = solo_seconds(view, np.full(len(tried), job), cores_per_worker=tried)
            best = 1 + best_demand(seconds, self._saturation)
            self._demands[job] = (best, fair)
        return self._demands[job]
