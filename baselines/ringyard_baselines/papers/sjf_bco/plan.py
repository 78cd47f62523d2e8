"""What SJF-BCO's planner works with: jobs, machine, what is tried, and the plan; all legal in kernels."""

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import BoolVector, FloatMatrix, FloatVector, IntVector, Records1, bundle, kernel
from ringyard.performance.model import Physics
from ringyard.state.records import Job

# how GPUs are chosen
SJF_BCO, FIRST_FIT, LEAST_LOADED, RANDOM = 0, 1, 2, 3


@bundle
class PlannedJobs:
    """The n jobs to plan, in planning order.

    Attributes:
        rows: [n] of the job table.
        records: [n] `Job` records.
        estimates: [n] rhohat / u, seconds.
        draws: [n, G] random numbers, read by RANDOM only.
    """

    rows: IntVector
    records: Records1[Job]
    estimates: FloatVector
    draws: FloatMatrix


@bundle
class SearchSettings:
    """What is tried.

    Attributes:
        rule: SJF_BCO, FIRST_FIT, LEAST_LOADED or RANDOM.
        kappas: thresholds, ascending; SJF-BCO's alone, as the next.
        over_provision: lambda.
        queues: FF, LS, RAND: jobs queue up on any GPUs; else they wait for GPUs that are free.
        horizon: T, upper limit of theta and of every job's exit, seconds.
        resolution: stop when the interval is this short, seconds.
    """

    rule: int
    kappas: IntVector
    over_provision: float
    queue_on_busy_gpus: bool
    horizon: float
    resolution: float


@bundle
class PlanningProblem:
    """What to plan, with what, and how fast jobs run.

    Attributes:
        batch: the jobs.
        busy_seconds: [G] until each GPU is free, its first U.
        settings: what is tried.
        physics: performance model.
    """

    batch: PlannedJobs
    busy_seconds: FloatVector
    settings: SearchSettings
    physics: Physics


@bundle
class GpuPlan:
    """The plan of n jobs.

    Attributes:
        start: [n] planned start.
        begin: [n + 1] where each job's GPUs begin in `gpus`.
        gpus: [sum of demands] planned GPU ids, job after job.
    """

    start: FloatVector
    begin: IntVector
    gpus: IntVector


def empty_gpu_plan(demands: NDArray[np.int64]) -> GpuPlan:
    """A plan for jobs of the given demands, in planning order."""
    begin = np.concatenate([[0], np.cumsum(demands)]).astype(np.int64)
    return GpuPlan(np.zeros(len(demands)), begin, np.zeros(begin[-1], np.int64))


@kernel
def find_ready_jobs(
    plan: GpuPlan, order: IntVector, waits: BoolVector, free: BoolVector, turns: IntVector
) -> int:
    """Find the jobs that are first on all their GPUs, which are free: how many, their numbers in `turns`.

    Args:
        plan: the GPUs of each job.
        order: [m] numbers of the planned jobs, in order of their planned starts: each GPU's queue.
        waits: [n] whether a job still does.
        free: [G] whether a GPU holds nothing; False afterwards where a job waits for it.
        turns: [n] is filled from the beginning on.
    """
    count = 0
    for i in order:
        if not waits[i]:
            continue
        ready = True
        for g in plan.gpus[plan.begin[i] : plan.begin[i + 1]]:
            ready = ready and free[g]
            free[g] = False
        if ready:
            turns[count] = i
            count += 1
    return count
