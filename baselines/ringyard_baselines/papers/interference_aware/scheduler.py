"""Interference-aware parallelization (Geng et al., Cluster Computing 2020): CLWP and NLWP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import Fraction, NonNegative, checked
from ringyard.gpu_types import REFERENCE_GPU
from ringyard.observability import Observability
from ringyard.profiles import catalogue
from ringyard.state.gpu_effects import Workers
from ringyard.state.records import JobKind
from ringyard_baselines.papers.interference_aware.networks import (
    InterferenceNetworks,
    ProfiledJob,
    job_profiles,
    reference_workers,
)
from ringyard_baselines.scheduler import Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs


class _PredictedLosses(NamedTuple):
    """Predicted losses of speed, by GPU type and kind of job (model and samples per GPU as requested)."""

    kind: NDArray[np.int64]  #: [jobs] kind of each job
    similarity: NDArray[np.float64]  #: [GPU types, kinds, kinds] loss of the first beside the second, by IASP
    performance: NDArray[np.float64]  #: [GPU types, kinds, kinds] the same by IAPP


Losses = Literal["predicted", "mean", "exact"]


def _losses(kind: Losses, predicted: NDArray[np.float64], excess: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [...] losses of speed, of `predicted` speeds and of the true `excess` of time."""
    if kind == "exact":
        return excess / (1.0 + excess)
    return 1.0 - (predicted if kind == "predicted" else np.full_like(predicted, predicted.mean()))


@checked("interference_aware")
@dataclass(eq=False)
class InterferenceAware(Scheduler):
    """Geng et al. (Cluster Computing 2020): servers by predicted similarity, GPUs by predicted performance.

    Jobs go first come, first served. FOUND (abstract): a cluster-level stage (CLWP) assigns jobs to servers
    with IASP, a similarity predictor by deep collaborative filtering. A node-level stage (NLWP) places tasks
    on GPUs with IAPP, a network that predicts performance under co-location, plus the communication cost
    between tasks.

    Assumed, since no text was available: the networks' shapes and inputs (`networks`). A server's score is
    the mean loss of speed that the job and the jobs there are predicted to suffer, plus `communication_cost`
    for each further server that the job needs. CLWP names the best servers, as many as the job has tasks.
    NLWP takes the GPUs of smallest mean loss plus `communication_cost` for each server beyond the first
    (`place_tasks`). A job waits if it or a neighbour would run below `min_speed`.
    """

    name = "interference_aware"
    observability = Observability.SIZES | Observability.SPEEDS

    placement: PlacementRule  #: where CPU-only jobs go, and jobs for which the chosen servers lack cores
    #: file that `python -m tools.interference` wrote: trained networks and measured profiles. None takes
    #: the shipped one. Jobs without a measured profile get the one that the performance model gives.
    weights: str | None = None
    #: what CLWP takes for the losses: those that IASP predicts, their mean for every pair (the choice of
    #: servers without interference), or the exact ones of the performance model.
    similarity: Losses = "predicted"
    performance: Losses = "predicted"  #: the same for NLWP and IAPP
    communication_cost: NonNegative = 0.5  #: cost of a further server as a loss of speed. Assumption.
    #: smallest predicted speed / isolated speed, 0 to 1. At 0.5 two jobs are as well off one after the other.
    #: Assumption.
    min_speed: Fraction = 0.5

    def __post_init__(self) -> None:
        self._networks = InterferenceNetworks.load(self.weights)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the predictions (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._predicted: _PredictedLosses | None = None

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start the jobs for which a place is predicted to be good enough."""
        if self._predicted is None:
            self._predicted = self._predict(view)
        plan = PlacementPlan(view)
        allocations = start_cpu_jobs(view, plan, self.placement)
        waiting = np.sort(view.waiting)
        jobs = waiting[view.column("kind")[waiting] != JobKind.CPU_ONLY]
        found = (self._place(view, plan, job) for job in jobs.tolist())
        return [*allocations, *(allocation for allocation in found if allocation is not None)]

    def _predict(self, view: SchedulingView) -> _PredictedLosses:
        """Predict the losses of every kind of job beside every other on every GPU type."""
        asked = view.column("base_batch") / np.maximum(view.column("asked_gpus"), 1)
        kinds, first, kind_of_job = np.unique(
            np.stack([view.column("model"), asked], axis=1), axis=0, return_index=True, return_inverse=True
        )
        share = np.ones(len(kinds))
        ratio = view.column("base_compute_seconds") / view.column("isolated_iteration_seconds")
        share[kind_of_job] = np.minimum(ratio, 1.0)  # that of the kind's last job, for all of the kind
        own = view.workers(first)._replace(samples=kinds[:, 1])
        by_type = [
            self._predicted_losses(view, own, share, kind) for kind in np.unique(view.type_of_gpu).tolist()
        ]
        similarity, performance = zip(*by_type, strict=True)
        return _PredictedLosses(kind_of_job, np.array(similarity), np.array(performance))

    def _predicted_losses(
        self, view: SchedulingView, own: Workers, share: NDArray[np.float64], gpu_type: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return [kinds, kinds] losses by IASP and by IAPP on one GPU type."""
        each, others = Workers(own.models[:, None], own.samples[:, None]), reference_workers()
        suffered = view.interference(each, others, gpu_type)
        profiles = job_profiles(suffered, view.interference(others, each, gpu_type))
        type_name = (view.cluster.distinct_gpu_types or (REFERENCE_GPU,))[gpu_type]
        for row, (model, samples) in enumerate(zip(*own, strict=True)):
            if model < len(catalogue()):  # the last position is of jobs without a model
                job = ProfiledJob(type_name, catalogue()[model].name, float(samples))
                profiles[row] = self._networks.profiles.get(job, profiles[row])
        mine, theirs = np.broadcast_arrays(profiles[:, None], profiles[None])
        computing = np.broadcast_to(share[:, None], mine.shape[:2])
        excess = view.interference(each, Workers(own.models[None], own.samples[None]), gpu_type)
        similarity = self._networks.similarity(mine, theirs)
        performance = self._networks.performance(mine, theirs, computing)
        return (
            _losses(self.similarity, similarity, excess),
            _losses(self.performance, performance, computing * excess),
        )

    def _place(self, view: SchedulingView, plan: PlacementPlan, job: int) -> Allocation | None:
        """Place a job by CLWP, then by NLWP on the servers that CLWP names."""
        size = int(view.column("asked_gpus")[job])
        if size > plan.num_open_gpus:
            return None
        losses = self._gpu_losses(view, plan, job)
        open_gpus = np.isfinite(losses)
        if int(open_gpus.sum()) < size:
            return None
        servers = self._servers(view, plan, job, open_gpus, size)
        gpus = place_tasks(losses, view.cluster.server_of_gpu, servers, size, self.communication_cost)
        found = Allocation(job, tuple(sorted(gpus)))
        return found if plan.allocate(found) else plan.place(self.placement, job)

    def _gpu_losses(self, view: SchedulingView, plan: PlacementPlan, job: int) -> NDArray[np.float64]:
        """Return [GPUs] NLWP's losses of all jobs on a GPU if the job joined. inf: no place, or too slow."""
        assert self._predicted is not None
        loss, kind = self._predicted.performance, self._predicted.kind
        holders = plan.jobs_of_gpu
        own = int(kind[job])
        present = holders >= 0
        others = kind[np.maximum(holders, 0)]
        gpu_type = view.type_of_gpu[:, None]
        mine = np.where(present, loss[gpu_type, own, others], 0.0).sum(axis=1)
        theirs = np.where(present, loss[gpu_type, others, own], 0.0)
        up = np.repeat(view.servers_up, view.cluster.gpus_per_server)
        bad = present.all(axis=1) | ~up
        bad |= (1.0 - np.maximum(mine, theirs.max(axis=1))) < self.min_speed
        return np.where(bad, np.inf, mine + theirs.sum(axis=1))

    def _servers(
        self, view: SchedulingView, plan: PlacementPlan, job: int, open_gpus: NDArray[np.bool_], size: int
    ) -> list[int]:
        """Return CLWP's best servers, as many as the job has tasks, or more if these cannot hold it."""
        assert self._predicted is not None
        kind = self._predicted.kind
        own = kind[job]
        holders, server = plan.jobs_of_gpu[open_gpus], view.cluster.server_of_gpu[open_gpus]
        num_jobs = np.int64(len(kind))
        pairs = np.unique((server[:, None] * num_jobs + holders)[holders >= 0])  # (server, job) as one number
        gpu_type = view.type_of_gpu[view.cluster.first_gpu_of_server[pairs // num_jobs]]
        there = kind[pairs % num_jobs]
        loss = self._predicted.similarity
        met, first, count = np.unique(pairs // num_jobs, return_index=True, return_counts=True)
        score = np.zeros(view.cluster.num_servers)
        score[met] = np.add.reduceat(loss[gpu_type, own, there] + loss[gpu_type, there, own], first) / count
        room = np.bincount(server, minlength=view.cluster.num_servers)
        candidates = np.flatnonzero(room > 0)
        score[candidates] += self.communication_cost * (-(-size // room[candidates]) - 1)
        candidates = candidates[np.lexsort((room[candidates], score[candidates]))]
        enough = int(np.searchsorted(np.cumsum(room[candidates]), size)) + 1
        return candidates[: max(size, enough)].tolist()


def place_tasks(
    losses: NDArray[np.float64],
    server_of_gpu: NDArray[np.integer[Any]],
    servers: Sequence[int],
    size: int,
    communication_cost: float,
) -> list[int]:
    """Return NLWP's GPUs: smallest mean loss plus `communication_cost` for each server beyond the first.

    Starting from each server that CLWP named, tasks go one by one where the cost grows least. The best of
    these plans wins. `losses` [GPUs] are those of all jobs on a GPU if a task joined, inf without a place.
    """
    named = np.flatnonzero(np.isin(server_of_gpu, servers))
    server, firsts, plans = server_of_gpu[named], np.array(servers), np.arange(len(servers))
    cost = losses[named] / size + communication_cost * (server != firsts[:, None])
    reached = np.zeros((len(firsts), int(server.max()) + 1), dtype=bool)
    reached[plans, firsts] = True
    chosen, totals = np.zeros((len(firsts), size), dtype=np.int64), np.zeros(len(firsts))
    for task in range(size):
        chosen[:, task] = taken = np.argmin(cost, axis=1)
        totals += cost[plans, taken]
        cost[plans, taken] = np.inf
        taken_server = server[taken]
        new = ~reached[plans, taken_server]
        cost -= communication_cost * (new[:, None] & (server == taken_server[:, None]))
        reached[plans, taken_server] = True
    best: list[int] = named[chosen[np.argmin(totals)]].tolist()
    return best
