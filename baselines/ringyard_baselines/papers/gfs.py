"""Guaranteed jobs first, spot jobs within a quota: GFS (Duan et al., ASPLOS 2026) and fixed quotas."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementPlan, PlacementRule
from ringyard.checks import Fraction, Positive, PositiveInt, checked
from ringyard.sim.view import SchedulingView
from ringyard.state.records import JobStatus
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import TimeSlots, num_gpu_slots, start_cpu_jobs, work_conserving

_HOUR = 3600.0
_LARGEST_ETA = 10.0  # assumption: the public code has no limit


@dataclass(eq=False)
class _GuaranteedFirst(Scheduler):
    """Guaranteed jobs first, which may evict spot jobs. Spot jobs start as far as a quota allows.

    Jobs with a deadline (`JobTable.deadline_seconds`) are guaranteed. All others are spot jobs.
    """

    observability = Observability.SIZES
    capabilities = Capabilities.PREEMPT

    placement: PlacementRule  #: where jobs go

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Number the users (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        names, self._user = np.unique(jobs.user, return_inverse=True)
        self._num_users = len(names)

    def _order(self, view: SchedulingView, jobs: NDArray[np.int64]) -> list[int]:
        """Return waiting `jobs` in the order in which they start: by submission."""
        return jobs.tolist()

    def _victims(self, view: SchedulingView, plan: PlacementPlan, job: int, spots: list[int]) -> list[int]:
        """Return running `spots` in the order in which they are evicted for `job`: the youngest first."""
        started = view.column("last_start_seconds")
        return sorted(spots, key=lambda one: (-started[one], -one))

    def _quotas(self, view: SchedulingView, slots: int, evicted: int) -> tuple[float, float]:
        """Return how many of the GPUs (`slots`) all spot jobs may hold, and those of one user.

        `evicted` is the number of spot jobs that are evicted now.
        """
        raise NotImplementedError

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start guaranteed jobs, evicting spot jobs where that makes room. Then start spot jobs."""
        plan, sizes, jobs = PlacementPlan(view), view.num_gpus, view.gpu_jobs
        guaranteed = np.isfinite(view.column("deadline_seconds")[jobs])
        runs = view.column("status")[jobs] == JobStatus.RUNNING
        spots = jobs[runs & ~guaranteed].tolist()
        allocations: list[Allocation] = []
        unplaced = np.inf  # GPUs of the smallest job that found no place
        for job in self._order(view, jobs[~runs & guaranteed]):
            if sizes[job] < unplaced:
                found = plan.place(self.placement, job)
                steps = [] if found is None else [found]
                steps = steps or plan.preempt_for(self.placement, job, self._victims(view, plan, job, spots))
                allocations += steps
                unplaced = unplaced if steps else sizes[job]
        evicted = {one.job for one in allocations if one.preempts}
        quota, tenant_quota = self._quotas(view, num_gpu_slots(view, self.placement), len(evicted))
        kept = [job for job in spots if job not in evicted]
        held = np.bincount(self._user[kept], sizes[kept], self._num_users)
        unplaced = np.inf
        for job in self._order(view, jobs[~runs & ~guaranteed]):
            more, user = sizes[job], self._user[job]
            if more >= unplaced or held.sum() + more > quota or held[user] + more > tenant_quota:
                continue
            found = plan.place(self.placement, job)
            if found is None:
                unplaced = more
                continue
            allocations.append(found)
            held[user] += more
        allocations += start_cpu_jobs(view, plan, self.placement)
        return work_conserving(view, plan, self.placement, None, allocations)


@checked("fixed_quota")
@dataclass(eq=False)
class FixedQuota(_GuaranteedFirst):
    """Guaranteed jobs first. Spot jobs start within a share of the GPUs. The youngest are evicted first.

    Jobs with a deadline (`JobTable.deadline_seconds`) are guaranteed. All others are spot jobs. Both classes
    start by submission and first fit: where a job finds no place, smaller ones are tried. A guaranteed job
    that finds none evicts the spot jobs that started last, one by one, until it does. Spot jobs evict none.
    The GPUs beyond the quota are held back for guaranteed jobs, except that the cluster is never left idle.

    Source: first fit with a static quota, which GFS (Duan et al., ASPLOS 2026) sets out to improve. The size
    of the quota is not public.
    """

    #: share of the GPUs of servers that are up, for all spot jobs. Assumption. 1: no quota.
    quota: Fraction = 0.5
    tenant_quota: Fraction = 1.0  #: share of them for the spot jobs of one user. 1: no quota of users.
    name: str = "fixed_quota"  #: name in tables

    def _quotas(self, view: SchedulingView, slots: int, evicted: int) -> tuple[float, float]:
        return self.quota * slots, self.tenant_quota * slots


@checked("gfs")
@dataclass(eq=False)
class Gfs(_GuaranteedFirst):
    """GFS of Duan et al. (ASPLOS 2026): a quota by a forecast of what guaranteed jobs will need.

    FOUND (public code, Xu-Sheng-lin/GFS-asplos-26): jobs with more GPUs start first. Every 5 minutes, the
    demand of guaranteed jobs is forecast for each organisation as a normal distribution. The quota of spot
    jobs is the GPUs above the `guarantee_rate` quantile of their sum, times eta. An hour in which a spot job
    ran on, or its end, counts as a success, and an eviction as a failure. eta falls where at least 1.5 times
    1 - `guarantee_rate` of the last 4 hours' counts are failures. It grows where at most half of that are,
    and a spot job has waited for an hour. A guaranteed job that finds no place takes the server with the
    fewest GPUs that are free or held by spot jobs, and of those the one with the fewest evictions, then the
    least GPU time since the starts of these jobs. The spot jobs there with most of it stay if enough GPUs
    remain.

    Not as published: a network forecasts each hour of the next 4 from 4 weeks of demand and the calendar.
    Such a history does not exist here. The forecast is the mean and variance of each organisation's last
    hourly peaks, and organisations are users. eta changes once an hour, not with each forecast: in a small
    cluster one eviction would count many times. When it grows, the public code multiplies it by the
    target over the rate of failures, which may be 0. Here the factor is 1.5 - rate / target. The rule
    `placement` says which GPUs jobs get, and a job on several servers evicts the spot jobs with the least GPU
    time lost.
    """

    name = "gfs"

    round_seconds: Positive = 300.0  #: time between two forecasts
    guarantee_rate: Annotated[float, "(0, 1)"] = 0.9  #: share of a spot job's hours that no eviction ends
    history_hours: PositiveInt = 4  #: hours of demand that the forecast is made from. Assumption.
    eta_seconds: Positive = 3600.0  #: time between two changes of eta. Assumption.
    rate_hours: Positive = 4.0  #: hours of evictions that eta is set by

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget demand and evictions (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        super().reset(cluster, jobs, rng)
        self._slots, self._clock = TimeSlots(self.round_seconds), TimeSlots(self.eta_seconds)
        self._peaks = deque([np.zeros(self._num_users)], self.history_hours)
        self._demand: NDArray[np.float64] = np.zeros(self._num_users)
        self._hour = 0
        self._hours_run: dict[int, int] = {}  # {running spot job: hours since its start}
        self._counts: deque[tuple[float, int, int]] = deque()  # (second, successes, failures)
        self._eta, self._needed = 1.0, 0.0

    def _order(self, view: SchedulingView, jobs: NDArray[np.int64]) -> list[int]:
        """Return waiting `jobs`, those with most GPUs first."""
        return jobs[np.argsort(-view.num_gpus[jobs], kind="stable")].tolist()

    def _victims(self, view: SchedulingView, plan: PlacementPlan, job: int, spots: list[int]) -> list[int]:
        """Return the spot jobs to evict on the best server for `job`, then the other `spots` by lost time."""
        seconds = view.now - view.column("last_start_seconds")
        lost = {one: float(view.num_gpus[one] * seconds[one]) for one in spots}
        by_loss, need = sorted(spots, key=lambda one: lost[one]), int(view.num_gpus[job])
        here = np.zeros((view.cluster.num_servers, len(by_loss)), np.int64)
        held, server_of_gpu = plan.jobs_of_gpu, view.cluster.server_of_gpu
        for i, one in enumerate(by_loss):
            np.add.at(here[:, i], server_of_gpu[(held == one).any(axis=1)], 1)
        room = plan.free_gpus_per_server + here.sum(axis=1)
        enough = np.flatnonzero(room >= need)
        choices = []
        for server in enough[room[enough] == room[enough].min()].tolist() if len(enough) else ():
            left, chosen = int(room[server]), []
            for i in reversed(np.flatnonzero(here[server]).tolist()):
                stays = left - here[server, i] >= need
                left -= int(here[server, i]) if stays else 0
                chosen += [] if stays else [by_loss[i]]
            choices.append((len(chosen), sum(lost[one] for one in chosen), chosen))
        first = min(choices)[2] if choices else []
        return [*first, *(one for one in by_loss if one not in first)]

    def _quotas(self, view: SchedulingView, slots: int, evicted: int) -> tuple[float, float]:
        self._count(view, evicted)
        if self._slots.begins(view):
            if self._clock.begins(view):
                self._set_eta(view)
            peaks = np.array(self._peaks)
            demand = peaks.mean(axis=0).sum() + NormalDist().inv_cdf(self.guarantee_rate) * np.sqrt(
                peaks.var(axis=0).sum()
            )
            self._needed = np.clip(np.floor(demand), 0.0, np.inf)
        return max(slots - self._needed, 0.0) * self._eta, float(slots)

    def _count(self, view: SchedulingView, evicted: int) -> None:
        """Record the demand of guaranteed jobs, and successes and failures of spot jobs up to now."""
        jobs, status = view.gpu_jobs, view.column("status")
        spot = np.isinf(view.column("deadline_seconds")[jobs])
        hour = int(view.now // _HOUR)
        for _ in range(min(hour - self._hour, self.history_hours)):
            self._peaks.append(self._demand)
        rows = jobs[~spot & (status[jobs] == JobStatus.RUNNING)]
        self._demand = np.bincount(self._user[rows], view.num_gpus[rows], self._num_users).astype(np.float64)
        self._peaks[-1], self._hour = np.maximum(self._peaks[-1], self._demand), hour
        running = jobs[spot & (status[jobs] == JobStatus.RUNNING)]
        hours = (view.now - view.column("last_start_seconds")[running]) // _HOUR
        before, self._hours_run = self._hours_run, dict(zip(running.tolist(), hours.tolist(), strict=True))
        successes = sum(status[job] == JobStatus.DONE for job in before)
        successes += sum(max(ran - before.get(job, 0), 0) for job, ran in self._hours_run.items())
        self._counts.append((view.now, int(successes), evicted))
        while self._counts[0][0] < view.now - self.rate_hours * _HOUR:
            self._counts.popleft()

    def _set_eta(self, view: SchedulingView) -> None:
        """Let the quota shrink if many spot jobs are evicted, and grow if few are and one waits long."""
        successes, failures = (sum(one[i] for one in self._counts) for i in (1, 2))
        rate, target = failures / max(successes + failures, 1), 1.0 - self.guarantee_rate
        waiting = view.waiting[np.isinf(view.column("deadline_seconds")[view.waiting])]
        stopped = view.column("last_stop_seconds")[waiting]
        since = np.fmax(view.submit_seconds[waiting], stopped)
        if rate >= 1.5 * target:
            self._eta *= target / rate
        elif rate <= 0.5 * target and (view.now - since > _HOUR).any():
            self._eta = min(self._eta * (1.5 - rate / target), _LARGEST_ETA)
