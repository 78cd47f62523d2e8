"""Morphling (Zhang et al., MLSys 2025): GPUs and execution plans together, by what a GPU more brings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.checks import NonNegative, NonNegativeInt, Positive, PositiveInt, checked
from ringyard.errors import ConfigurationError
from ringyard.performance.execution_plans import plan_models
from ringyard.performance.plan_table import FASTEST
from ringyard.sim.speeds import BatchRule, SpeedTable
from ringyard_baselines.policies.sizing import SizingScheduler
from ringyard_baselines.tools.targets import Target

_LEAST_GAIN = 1.01  # throughput with one more GPU / without, or the job does without it
_GUARANTEED_SHARE = 1 / 1.5  # of the throughput asked for
_LARGE = 32  # GPUs


@dataclass(eq=False)
class _Servers:
    """GPUs of each server that jobs shall hold, while sizes are chosen."""

    free: NDArray[np.int64]  #: [servers] GPUs that no job shall hold
    of_job: dict[int, NDArray[np.int64]]  #: {job: [servers] GPUs that it shall hold}

    def give(self, job: int, gpus: NDArray[np.int64]) -> None:
        """Let `job` hold `gpus` [servers] and nothing else."""
        self.free += self.of_job[job] - gpus
        self.of_job[job] = gpus

    def give_on(self, job: int, server: int, gpus: int) -> None:
        """Let `job` hold so many GPUs of a server and nothing else."""
        self.give(job, np.where(np.arange(len(self.free)) == server, gpus, 0))

    def place(self, job: int, placements: Sequence[Sequence[int]]) -> None:
        """Let `job` hold the first of some placements, with one of its sizes on a server, that has room."""
        free = self.free + self.of_job[job]
        for placement in placements:
            gpus, left = np.zeros(len(free), np.int64), sorted(placement, reverse=True)
            for server in np.argsort(free, kind="stable").tolist():
                if fits := [size for size in left if size <= free[server]]:
                    gpus[server] = fits[0]
                    left.remove(fits[0])
            if not left:
                self.give(job, gpus)
                return


@checked("morphling")
class Morphling(SizingScheduler):
    """Morphling of Zhang et al. (MLSys 2025), as its public scheduler decides once a minute.

    FOUND (public code): each job runs in its fastest plan. Guaranteed jobs come first. Of each class, the
    jobs to which a GPU more brings least, relative to their throughput, come first, and waiting large models
    last. Small jobs take the free GPUs of the server with most of these, or of their own. They do without
    GPUs that bring less than 1 %. A guaranteed job starts where it has at least two thirds of the throughput
    that it asks for. Large models run in fixed placements: the first that there is room for, then the
    largest. Those on 32 GPUs or more are placed anew each time, up to 7 restarts. Free GPUs of a server go to
    the small job there that gains most.

    Not as published: gains are relative to the job's own throughput as asked, not to a constant of its model.
    The rule `placement` says which GPUs jobs get. Jobs that ask for more GPUs than a server has, of models
    without listed placements, run as they ask. The public code takes GPUs from no job, because a condition
    (`if "llama" or ...`) is always true. So does this one. CPU cores are not counted.

    Args:
        placement: where jobs go.
        round_seconds: seconds between two decisions.
        placements: {model: placements of a large model, in the order in which they are tried}.
        guaranteed: virtual cluster of the guaranteed jobs.
        most_restarts: a large job on 32 GPUs and more stays after so many restarts, unless more than
            `many_guaranteed` guaranteed jobs are there.
        many_guaranteed: number of guaranteed jobs.
        patience: a job that is older comes last, seconds.
    """

    def __init__(
        self,
        placement: PlacementRule,
        round_seconds: Positive = 60.0,
        placements: Mapping[str, Sequence[Annotated[Sequence[PositiveInt], "not empty"]]] | None = None,
        guaranteed: str = "sla",
        most_restarts: NonNegativeInt = 7,
        many_guaranteed: NonNegativeInt = 12,
        patience: NonNegative = 200_000.0,
    ) -> None:
        sees = Observability.SIZES | Observability.SPEEDS
        super().__init__("morphling", sees, placement, BatchRule.ASKED, round_seconds, True, None, FASTEST)
        self._placements, self._guaranteed = placements or {}, guaranteed
        if unknown := self._placements.keys() - plan_models().keys():
            raise ConfigurationError(f"placements has {min(unknown)}; expected some of {[*plan_models()]}")
        self._most_restarts, self._many_guaranteed, self._patience = most_restarts, many_guaranteed, patience

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        super().reset(cluster, jobs, rng)
        self._most = max(cluster.gpus_per_server)
        self._useful_sizes: dict[int, list[int]] = {}
        listed = [self._placements.get(name, ()) for name in plan_models()]
        self._listed: list[Sequence[Sequence[int]]] = [*listed, ()]  # the last of jobs without plans

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Return the GPUs of every job (`view`, `table`: see `SizingScheduler.sizes`)."""
        count, server_of_gpu = view.cluster.num_servers, view.cluster.server_of_gpu
        jobs = view.gpu_jobs.tolist()
        held = {job: np.bincount(server_of_gpu[list(view.gpus_of(job))], minlength=count) for job in jobs}
        goal = _Servers(view.free_gpus_per_server.astype(np.int64), held)
        models, asked = view.column("plan_model"), view.column("asked_gpus")
        placements = {job: self._listed[models[job]] for job in jobs}
        large = {job for job in jobs if placements[job] or asked[job] > self._most}
        gains = {job: self._gain(view, table, job, int(held[job].sum()), job in large) for job in jobs}
        by_gain = sorted(jobs, key=lambda job: gains[job])
        guaranteed = {job for job in jobs if view.vc[job] == self._guaranteed}
        order = sorted(by_gain, key=lambda job: job not in guaranteed)
        restarts = view.column("num_preemptions") + view.column("num_resizes")
        for job in order:
            again = restarts[job] < self._most_restarts or len(guaranteed) > self._many_guaranteed
            if placements[job] and goal.of_job[job].sum() >= _LARGE and again:
                goal.give(job, np.zeros(count, np.int64))
        for job in order:
            if job not in large:
                self._take_server(view, table, job, goal, job in guaranteed)
            elif placements[job] and not goal.of_job[job].any():
                goal.place(job, placements[job])
            elif not goal.of_job[job].any() and asked[job] <= goal.free.sum():
                before = np.cumsum(goal.free) - goal.free
                goal.give(job, np.clip(asked[job] - before, 0, goal.free))
        for server in range(count):
            here = [job for job in by_gain if job not in large and goal.of_job[job][server] > 0]
            self._grow_on(view, table, server, goal, here)
        for job in by_gain:
            more = [one for one in placements[job] if sum(one) > goal.of_job[job].sum()]
            goal.place(job, sorted(more, key=sum, reverse=True))
        plan = {job: Allocation(job, plan=FASTEST) for job in order}
        return [Target(job, int(goal.of_job[job].sum()), plan[job]) for job in order]

    def _useful(self, table: SpeedTable, job: int, gpus: int) -> int:
        """Return how many of so many GPUs of a server a job makes use of."""
        if job not in self._useful_sizes:
            found, speed = [0], table.speeds_of(np.array([job]))[0]
            for size in range(1, min(self._most, table.sizes) + 1):
                gains = speed[size] > _LEAST_GAIN * speed[found[-1]]
                found.append(size if gains else found[-1])
            self._useful_sizes[job] = found
        return self._useful_sizes[job][min(gpus, len(self._useful_sizes[job]) - 1)]

    def _throughput(self, view: SchedulingView, table: SpeedTable, job: int, gpus: int) -> float:
        """Return the speed of a job on so many GPUs of a server over its speed as it asks to run."""
        speed = table.speeds_of(np.array([job]))[0, self._useful(table, job, gpus)]
        return float(speed * view.column("isolated_iteration_seconds")[job])

    def _gain(self, view: SchedulingView, table: SpeedTable, job: int, gpus: int, large: bool) -> float:
        """Return what one GPU more than `gpus` brings a job."""
        if large or view.now - view.submit_seconds[job] > self._patience:
            return 0.0 if large and gpus else np.inf
        return self._throughput(view, table, job, gpus + 1) - self._throughput(view, table, job, gpus)

    def _take_server(
        self, view: SchedulingView, table: SpeedTable, job: int, goal: _Servers, guaranteed: bool
    ) -> None:
        """Let a small job hold the free GPUs of its server, or else of the one with most of them."""
        own = goal.of_job[job]
        server = int(np.argmax(own if own.any() else goal.free))
        gpus = int(goal.free[server] + own[server])
        enough = _GUARANTEED_SHARE <= self._throughput(view, table, job, gpus)
        if (guaranteed and enough) or (not guaranteed and gpus > own.sum()):
            goal.give_on(job, server, self._useful(table, job, gpus))

    def _grow_on(
        self, view: SchedulingView, table: SpeedTable, server: int, goal: _Servers, jobs: Sequence[int]
    ) -> None:
        """Give the free GPUs of a server to the one of some `jobs` there that gains most."""
        free = int(goal.free[server])
        if not free or not jobs:
            return
        now = {job: int(goal.of_job[job][server]) for job in jobs}
        gain = {
            job: self._throughput(view, table, job, held + free) - self._throughput(view, table, job, held)
            for job, held in now.items()
        }
        best = max(jobs, key=lambda job: gain[job])
        goal.give_on(best, server, max(self._useful(table, best, now[best] + free), now[best]))
