"""Themis (Mahajan et al., NSDI 2020): finish-time fairness by leases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.checks import Positive, checked
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.predictions import expected_seconds_left
from ringyard_baselines.tools.targets import TimeSlots, apply_sizes, feasible


def finish_time_fairness(
    elapsed: NDArray[np.float64], left: NDArray[np.float64], done: NDArray[np.float64], contention: float
) -> NDArray[np.float64]:
    """Return [jobs] rho = T_shared / T_isolated, if jobs ran on from now with the GPUs they request.

    Seconds `elapsed` are since submission, those `left` and `done` isolated. `contention` is GPUs requested
    by all jobs / GPUs of the cluster, at least 1. T_isolated assumes one such share.
    """
    return (elapsed + left) / ((left + done) * contention)


@checked("themis")
@dataclass(eq=False)
class Themis(Scheduler):
    """Themis of Mahajan et al. (NSDI 2020): leases of GPUs to the jobs with the worst finish-time fairness.

    FOUND (its form in other public code): minimise the worst rho = T_shared / T_isolated. GPUs are leased,
    and offered to the fraction 1 - f of jobs with the largest rho. From memory of the paper: f = 0.8 and
    leases of 20 minutes. Assumed: jobs request fixed gangs and bids for parts have no value, so that the
    auction goes by rho. What is left over goes to running jobs, then to the others at random, as the paper
    hands out left-overs. When a lease ends all GPUs are offered anew.
    """

    name = "themis"
    observability = Observability.SIZES | Observability.PREDICTIONS
    capabilities = Capabilities.PREEMPT

    placement: PlacementRule  #: where jobs go
    lease_seconds: Positive = 1200.0  #: seconds for which a job certainly keeps its GPUs. Assumption.
    #: f in [0, 1). The share 1 - f of the jobs is invited, at least one. Assumption.
    fairness_knob: Annotated[float, "[0, 1)"] = 0.8

    def __post_init__(self) -> None:
        self.round_seconds = self.lease_seconds

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the leases (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._rng = rng

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Offer all GPUs when leases end, free GPUs at other events."""
        jobs = view.gpu_jobs
        rho = self._rho(view, jobs)
        worst_first = jobs[np.lexsort((jobs, -rho))]
        running = np.isin(worst_first, view.running)
        if not self._slots.begins(view):
            order = np.concatenate([worst_first[running], worst_first[~running]])
            return apply_sizes(view, feasible(view, order, self.placement), self.placement)
        invited = max(1, int(np.ceil((1.0 - self.fairness_knob) * len(jobs))))
        rest, running = worst_first[invited:], running[invited:]
        order = np.concatenate([worst_first[:invited], rest[running], self._rng.permutation(rest[~running])])
        return apply_sizes(view, feasible(view, order, self.placement), self.placement)

    @staticmethod
    def _rho(view: SchedulingView, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
        done = view.select(jobs).completed_iterations * view.column("isolated_iteration_seconds")[jobs]
        demanded = float(view.column("asked_gpus")[jobs].sum())
        contention = max(1.0, demanded / max(view.num_gpus_up, 1))
        elapsed = view.now - view.submit_seconds[jobs]
        return finish_time_fairness(elapsed, expected_seconds_left(view, jobs), done, contention)
