"""Synergy-TUNE (Mohan et al., OSDI 2022): cores and RAM by profile, the fair share where they do not fit."""

from collections.abc import Callable, Mapping, Sequence
from operator import floordiv
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import (
    Allocation,
    Cluster,
    JobTable,
    Observability,
    PlacementPlan,
    PlacementRule,
    SchedulingView,
)
from ringyard.checks import Positive, checked
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.predictions import expected_seconds_left
from ringyard_baselines.tools.targets import feasible, start_cpu_jobs, work_conserving


class Demand(NamedTuple):
    """What a worker shall have of its server beside the GPU: cores, and bytes of RAM; None: not counted."""

    cores: int | None
    ram: int | None


def best_demand(seconds: NDArray[np.float64], saturation: float) -> int:
    """Least amount (the index) whose speed is at least `saturation` of the best.

    Args:
        seconds: [amounts] per iteration, by ascending amount; inf where impossible.
        saturation: in (0, 1].
    """
    return int(np.argmax(1.0 / seconds >= saturation * (1.0 / seconds).max()))


#: {order: ([n] urgency of these jobs, ascending; what it takes)}
ORDERS: Mapping[str, tuple[Callable[[SchedulingView, NDArray[np.int64]], NDArray[np.float64]], Observability]]
ORDERS = {
    "srtf": (expected_seconds_left, Observability.PREDICTIONS),
    "fifo": (lambda view, jobs: view.select(jobs).column("submit_seconds"), Observability.NOTHING),
    "las": (lambda view, jobs: view.select(jobs).attained_service, Observability.ATTAINED_SERVICE),
}


def _fair_share(amounts: Sequence[int], cluster: Cluster) -> int:
    """Of one GPU, where servers have so much, on the one that has least for each; 0: not counted."""
    return min(map(floordiv, amounts, cluster.gpus_per_server), default=0)


def _exceeds(demand: Demand, fair: Demand) -> bool:
    """Whether any of it is more than the fair share."""
    return any(
        share is not None and (amount or 0) > share for amount, share in zip(demand, fair, strict=True)
    )


@checked("synergy_tune")
class SynergyTune(Scheduler):
    """Any order of jobs; cores and RAM where they help.

    FOUND (public code): the ordering policy stays what it was (FIFO, SRTF or LAS here); throughput is
    profiled over CPU cores and memory, at the fair share of storage. TUNE gives a job its best demand; where
    that does not fit and any of it is more than the fair share (a server's / its GPUs), all of it becomes the
    fair share; where that does not fit either, running jobs that hold more than their share fall back to it,
    those with most cores per GPU first, then most memory. Assumed: the best demand is the fewest cores within
    `saturation` of the largest throughput with all the RAM, then the least RAM with those cores (a third of
    the fair share or a multiple of it, as profiled); of unequal servers the least share is fair, so that it
    fits on each; jobs that run keep what they have unless they have to shrink. The paper's jobs find GPUs
    wherever some are free; here a rule may make a job wait, and no job stops or shrinks for one that waits.
    What the cluster does not count is not given; if it counts neither, this is the plain order.

    Args:
        placement: where a job goes.
        order: "srtf", "fifo" or "las".
        saturation: see above. Assumption.
        round_seconds: decide every this many seconds as well.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    name = "synergy_tune"
    capabilities = Capabilities.PREEMPT | Capabilities.CORES

    def __init__(
        self,
        placement: PlacementRule,
        order: Literal["srtf", "fifo", "las"] = "srtf",
        saturation: Annotated[float, "(0, 1]"] = 0.95,
        round_seconds: Positive = 300.0,
    ) -> None:
        self.placement = placement
        self.round_seconds: float | None = round_seconds
        self.observability = Observability.SIZES | Observability.SPEEDS | ORDERS[order][1]
        self._order = order
        self._saturation = saturation

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the profiles."""
        self._demands: dict[int, tuple[Demand, Demand]] = {}

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Stop jobs that lost their turn, shrink where cores are short, start the others."""
        jobs = view.gpu_jobs
        order = jobs[np.lexsort((jobs, ORDERS[self._order][0](view, jobs)))].tolist()
        chosen = {target.job for target in feasible(view, order, self.placement)}
        running = set(view.running.tolist()) & set(order)
        draft = PlacementPlan(view)
        without, coming = running - chosen, chosen - running
        losing = [job for job in order if job in without]
        for job in losing:
            draft.release(job)
        changes = start_cpu_jobs(view, draft, self.placement)
        staying = running & chosen
        for job in [job for job in order if job in coming]:
            changes += self._start(view, draft, job, staying)
        # a shrink may trade RAM for cores: after one, changes hold only in the order in which they were found
        shrunk = staying != running & chosen
        kept = [] if shrunk else [job for job in losing if draft.allocate(view.allocation_of(job))]
        stops = [Allocation(job) for job in losing if job not in kept]
        return work_conserving(view, draft, self.placement, order, [*stops, *changes])

    def _start(
        self, view: SchedulingView, draft: PlacementPlan, job: int, running: set[int]
    ) -> list[Allocation]:
        """The job with its best demand, else its fair share, else after others shrank to theirs."""
        best, fair = self._demand(view, job)
        modest = fair if _exceeds(best, fair) else best
        fewest = int(view.cluster.fewest_servers(view.column("asked_gpus")[job : job + 1])[0])
        for demand in dict.fromkeys((best, modest)):
            found = draft.place(self.placement, job, self._shape(view, job, demand))
            if found is None:
                continue
            servers = np.unique(view.cluster.server_of_gpu[list(found.gpu_ids)])
            if not _exceeds(demand, fair) or len(servers) <= fewest:  # not worth spreading a ring for
                return [found]
            draft.release(job)
        return self._make_room(view, draft, job, modest, running)

    @staticmethod
    def _shape(view: SchedulingView, job: int, demand: Demand) -> Allocation:
        gpus = tuple(range(int(view.column("asked_gpus")[job])))  # how many; the rule says which
        return Allocation(job, gpus, demand.cores, ram_per_worker=demand.ram)

    def _make_room(
        self, view: SchedulingView, draft: PlacementPlan, job: int, demand: Demand, running: set[int]
    ) -> list[Allocation]:
        """Shrink running jobs to their fair share, the greediest first, until the job fits; else none."""
        if demand == Demand(None, None):  # nothing to shrink is counted
            return []
        cores, ram = view.column("cores_per_worker"), view.column("ram_per_worker")
        changes: list[Allocation] = []
        for other in sorted(running, key=lambda other: (-int(cores[other]), -int(ram[other]), other)):
            fair = self._demand(view, other)[1]
            if not _exceeds(Demand(int(cores[other]), int(ram[other])), fair):
                continue
            smaller = Allocation(other, view.gpus_of(other), fair.cores, ram_per_worker=fair.ram)
            if not draft.reallocate(smaller):  # less RAM may come with more cores, which others hold
                continue
            changes.append(smaller)
            found = draft.place(self.placement, job, self._shape(view, job, demand))
            if found is not None:
                running.difference_update(change.job for change in changes)
                return [*changes, found]
        for change in changes:
            draft.release(change.job)
        for change in changes:
            draft.allocate(view.allocation_of(change.job))
        return []

    def _demand(self, view: SchedulingView, job: int) -> tuple[Demand, Demand]:
        """(best demand, fair share) of each worker."""
        if job not in self._demands:
            cluster = view.cluster
            fair_cores = max(1, _fair_share(cluster.cores_per_server, cluster))
            fair_ram = _fair_share(cluster.ram_bytes_per_server, cluster)
            cores = np.arange(1, max(cluster.cores_per_server, default=0) + 1)
            most_ram = max(cluster.ram_bytes_per_server, default=0)
            multiples = np.arange(1, most_ram // max(fair_ram, 1) + 1) * fair_ram
            ram = np.append(multiples[:1] // 3, multiples)
            best = self._least(view, job, "cores", cores, Demand(None, most_ram))
            best = best._replace(ram=None) if not len(ram) else self._least(view, job, "ram", ram, best)
            fair = Demand(fair_cores if len(cores) else None, fair_ram if len(ram) else None)
            self._demands[job] = (best, fair)
        return self._demands[job]

    def _least(
        self, view: SchedulingView, job: int, name: str, amounts: NDArray[np.int64], beside: Demand
    ) -> Demand:
        """The least of these amounts that saturates the job's throughput, beside the rest of the demand."""
        if not len(amounts):
            return beside
        tried = beside._asdict() | {name: amounts}
        seconds = isolated_iteration_seconds(
            view,
            np.full(len(amounts), job),
            cores_per_worker=tried["cores"],
            ram_per_worker=tried["ram"],
            storage_readers=max(view.cluster.gpus_per_server),
        )
        return beside._replace(**{name: int(amounts[best_demand(seconds, self._saturation)])})
