"""Synergy-TUNE (Mohan et al., OSDI 2022): cores and RAM by profile, the fair share where these do not fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import floordiv
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import Positive, checked
from ringyard.observability import Observability
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.predictions import expected_seconds_left
from ringyard_baselines.tools.targets import feasible, start_cpu_jobs, work_conserving


class Demand(NamedTuple):
    """Resources of a worker besides the GPU: cores, and bytes of RAM. None: not counted by the cluster."""

    cores: int | None
    ram: int | None


def best_demand(seconds: NDArray[np.float64], saturation: float) -> int:
    """Return the index of the smallest amount with `saturation` of the best speed, of ascending `seconds`."""
    return int(np.argmax(1.0 / seconds >= saturation * (1.0 / seconds).max()))


#: {order: (function that returns [n] sort keys of jobs, observability that it takes)}
ORDERS: Mapping[str, tuple[Callable[[SchedulingView, NDArray[np.int64]], NDArray[np.float64]], Observability]]
ORDERS = {
    "srtf": (expected_seconds_left, Observability.PREDICTIONS),
    "fifo": (lambda view, jobs: view.select(jobs).column("submit_seconds"), Observability.NOTHING),
    "las": (lambda view, jobs: view.select(jobs).attained_service, Observability.ATTAINED_SERVICE),
}


def _fair_share(amounts: Sequence[int], cluster: Cluster) -> int:
    """Return one GPU's share of a server's amount, on the server with the smallest one. 0: not counted."""
    return min(map(floordiv, amounts, cluster.gpus_per_server), default=0)


def _exceeds(demand: Demand, fair: Demand) -> bool:
    """Return whether any resource of the demand exceeds the fair share."""
    return any(share is not None and (need or 0) > share for need, share in zip(demand, fair, strict=True))


@checked("synergy_tune")
@dataclass(eq=False)
class SynergyTune(Scheduler):
    """Synergy-TUNE of Mohan et al. (OSDI 2022): a job order of choice, with cores and RAM where they help.

    FOUND (public code): the order stays what it was (FIFO, SRTF or LAS here). Throughput is profiled over CPU
    cores and memory, at the fair share of storage. A job gets its best demand. If that does not fit and
    exceeds the fair share (a server's / its GPUs) in any resource, all of it becomes the fair share. If that
    does not fit either, running jobs above their share fall back to it, most cores per GPU first, then most
    memory.

    Assumed: the best demand is the fewest cores within `saturation` of the largest throughput with all the
    RAM, then the least RAM with those cores (a third of the fair share, or a multiple of it, as profiled). On
    unequal servers the smallest share is fair, so that it fits everywhere. Running jobs keep what they have
    unless they must shrink. In the paper jobs take any free GPUs. Here a placement rule may make a job wait,
    and no job stops or shrinks for one that waits. Resources that the cluster does not count are not
    assigned.
    """

    name = "synergy_tune"
    capabilities = Capabilities.PREEMPT | Capabilities.CORES

    placement: PlacementRule  #: where jobs go
    order: Literal["srtf", "fifo", "las"] = "srtf"  #: "srtf", "fifo" or "las"
    #: share of the largest throughput that is enough, in (0, 1]. Assumption.
    saturation: Annotated[float, "(0, 1]"] = 0.95
    round_seconds: Positive = 300.0  #: seconds between decisions besides those at events

    def __post_init__(self) -> None:
        self.observability = Observability.SIZES | Observability.SPEEDS | ORDERS[self.order][1]

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the profiles (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._demands: dict[int, tuple[Demand, Demand]] = {}

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Preempt jobs that lost their turn, shrink jobs where cores are short, start the others."""
        jobs = view.gpu_jobs
        order = jobs[np.lexsort((jobs, ORDERS[self.order][0](view, jobs)))].tolist()
        chosen = {target.job for target in feasible(view, order, self.placement)}
        running = set(view.running.tolist()) & set(order)
        plan = PlacementPlan(view)
        without, coming = running - chosen, chosen - running
        losing = [job for job in order if job in without]
        for job in losing:
            plan.release(job)
        changes = start_cpu_jobs(view, plan, self.placement)
        staying = running & chosen
        for job in [job for job in order if job in coming]:
            changes += self._start(view, plan, job, staying)
        # a shrink may trade RAM for cores: after one, changes hold only in the order in which they were found
        shrunk = staying != running & chosen
        kept = [] if shrunk else [job for job in losing if plan.allocate(view.allocation_of(job))]
        stops = [Allocation(job) for job in losing if job not in kept]
        return work_conserving(view, plan, self.placement, order, [*stops, *changes])

    def _start(
        self, view: SchedulingView, plan: PlacementPlan, job: int, running: set[int]
    ) -> list[Allocation]:
        """Start the job with its best demand, else its fair share, else after other jobs shrank to theirs."""
        best, fair = self._demand(view, job)
        modest = fair if _exceeds(best, fair) else best
        fewest = int(view.cluster.fewest_servers(view.column("asked_gpus")[job : job + 1])[0])
        for demand in dict.fromkeys((best, modest)):
            found = plan.place(self.placement, job, self._shape(view, job, demand))
            if found is None:
                continue
            servers = np.unique(view.cluster.server_of_gpu[list(found.gpu_ids)])
            if (
                not _exceeds(demand, fair) or len(servers) <= fewest
            ):  # more cores are not worth a ring over several servers
                return [found]
            plan.release(job)
        return self._make_room(view, plan, job, modest, running)

    @staticmethod
    def _shape(view: SchedulingView, job: int, demand: Demand) -> Allocation:
        gpus = tuple(range(int(view.column("asked_gpus")[job])))  # the rule replaces these ids
        return Allocation(job, gpus, demand.cores, ram_per_worker=demand.ram)

    def _make_room(
        self, view: SchedulingView, plan: PlacementPlan, job: int, demand: Demand, running: set[int]
    ) -> list[Allocation]:
        """Shrink jobs to their fair share, largest first, until the job fits. Empty: it never does."""
        if demand == Demand(None, None):  # the cluster counts neither cores nor RAM
            return []
        cores, ram = view.column("cores_per_worker"), view.column("ram_per_worker")
        changes: list[Allocation] = []
        for other in sorted(running, key=lambda other: (-int(cores[other]), -int(ram[other]), other)):
            fair = self._demand(view, other)[1]
            if not _exceeds(Demand(int(cores[other]), int(ram[other])), fair):
                continue
            smaller = Allocation(other, view.gpus_of(other), fair.cores, ram_per_worker=fair.ram)
            if not plan.reallocate(smaller):  # less RAM may come with more cores, which others hold
                continue
            changes.append(smaller)
            found = plan.place(self.placement, job, self._shape(view, job, demand))
            if found is not None:
                running.difference_update(change.job for change in changes)
                return [*changes, found]
        for change in changes:
            plan.release(change.job)
        for change in changes:
            plan.allocate(view.allocation_of(change.job))
        return []

    def _demand(self, view: SchedulingView, job: int) -> tuple[Demand, Demand]:
        """Return the best demand and the fair share of each worker."""
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
        self, view: SchedulingView, job: int, name: str, amounts: NDArray[np.int64], others: Demand
    ) -> Demand:
        """Return `others` with the smallest amount of resource `name` that saturates the throughput."""
        if not len(amounts):
            return others
        tried = others._asdict() | {name: amounts}
        own = {"cores_per_worker": tried["cores"], "ram_per_worker": tried["ram"]}
        readers = max(view.cluster.gpus_per_server)
        rows = np.full(len(amounts), job)
        seconds = isolated_iteration_seconds(view, rows, storage_readers=readers, **own)
        return others._replace(**{name: int(amounts[best_demand(seconds, self.saturation)])})
