"""Records of SJF-BCO's planner: jobs, settings and the plan, all legal in kernels."""

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import BoolVector, FloatMatrix, FloatVector, IntVector, Records1, bundle, kernel
from ringyard.performance.model import Physics
from ringyard.state.records import Job

# how GPUs are chosen
SJF_BCO, FIRST_FIT, LEAST_LOADED, RANDOM = 0, 1, 2, 3


@bundle
class PlannedJobs:
    """The n jobs to plan, in planning order."""

    rows: IntVector  #: [n] rows of the job table
    records: Records1[Job]  #: [n] `Job` records
    estimates: FloatVector  #: [n] estimated seconds, rhohat / u
    draws: FloatMatrix  #: [n, G] random numbers, read by RANDOM only


@bundle
class PlanningProblem:
    """Jobs to plan, GPUs, speeds, and settings of the search."""

    batch: PlannedJobs  #: jobs
    busy_seconds: FloatVector  #: [G] seconds until each GPU is free, its first U
    physics: Physics  #: performance model
    rule: int  #: SJF_BCO, FIRST_FIT, LEAST_LOADED or RANDOM
    kappas: IntVector  #: thresholds between small and large jobs, ascending, of SJF-BCO only
    over_provision: float  #: lambda, of SJF-BCO only
    queue_on_busy_gpus: bool  #: for the other rules, whether jobs queue on any GPUs or wait for free ones
    horizon: float  #: T, upper limit of theta and of every job's exit, in seconds
    resolution: float  #: length of the interval of theta at which bisection ends, in seconds


@bundle
class GpuPlan:
    """Planned GPUs and starts of n jobs."""

    start: FloatVector  #: [n] planned start in seconds
    begin: IntVector  #: [n + 1] position in `gpus` where each job's GPUs begin
    gpus: IntVector  #: [sum of demands] planned GPU ids, job after job


def empty_gpu_plan(demands: NDArray[np.int64]) -> GpuPlan:
    """Return a plan with room for jobs of these demands, in planning order."""
    begin = np.concatenate([[0], np.cumsum(demands)]).astype(np.int64)
    return GpuPlan(np.zeros(len(demands)), begin, np.zeros(begin[-1], np.int64))


@kernel
def find_ready(plan: GpuPlan, order: IntVector, waits: BoolVector, free: BoolVector, ready: IntVector) -> int:
    """Fill `ready` with the jobs that are first on all their GPUs, which are free, and return their number.

    `order` [m] are positions of planned jobs by planned start, the queue of each GPU. `free` [G] says whether
    a GPU holds nothing, False afterwards where a job waits for it.
    """
    count = 0
    for i in order:
        if not waits[i]:
            continue
        is_first = True
        for g in plan.gpus[plan.begin[i] : plan.begin[i + 1]]:
            is_first = is_first and free[g]
            free[g] = False
        if is_first:
            ready[count] = i
            count += 1
    return count
