"""Utilities of jobs by number of GPUs: what the allocator reads of their speeds."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator.allocation_plan import AllocationPlan
from ringyard.performance.plan_table import FASTEST
from ringyard.sim.speeds import BatchRule, IsolatedJobs, speed_table

TABLES = ("utility", "batch_size")  #: fields of `JobUtilities` with a column for each number of GPUs


class JobUtilities(NamedTuple):
    """Utilities of a table of jobs, for sizes of 0 to as many GPUs as the largest job may hold."""

    #: [jobs, sizes + 1] (speed on so many GPUs of as few servers as can be / speed as asked) **
    #: `Allocator.size_power`, 0: not possible
    utility: NDArray[np.float64]
    batch_size: NDArray[np.float64]  #: [jobs, sizes + 1] global batch there, samples
    max_speed: NDArray[np.float64]  #: [jobs] largest of these speed ratios, at least 1


def job_utilities(isolated: IsolatedJobs, size_power: float) -> JobUtilities:
    """Return the utilities of jobs at the batch of `BatchRule.GOODPUT`. They do not change in an episode."""
    table = speed_table(isolated, BatchRule.GOODPUT, plan=FASTEST)
    speed, batch_size = (np.zeros((len(table.place), table.sizes + 1)) for _ in range(2))
    jobs = isolated.jobs[table.rows]
    asked = table.speed[np.arange(len(jobs)), jobs["asked_gpus"]]
    asked = np.where(jobs["plan_model"] < 0, asked, 1.0 / jobs["isolated_iteration_seconds"])
    speed[table.rows] = table.speed / asked[:, None]
    batch_size[table.rows] = table.batch
    return JobUtilities(speed**size_power, batch_size, np.maximum(speed.max(axis=1), 1.0))


def write_utilities(plan: AllocationPlan, b: int, utilities: JobUtilities) -> None:
    """Write utilities of a cluster's jobs into a plan; those of its further sizes become 0."""
    count, width = utilities.utility.shape
    for name in TABLES:
        rows = getattr(plan, name)[b, :count]
        rows[:, :width] = getattr(utilities, name)
        rows[:, width:] = 0.0
    plan.max_speed[b, :count] = utilities.max_speed
    plan.max_utility[b, :count] = utilities.utility.max(axis=1)
    plan.wanted_cores[b] = 0  # those of the jobs before are no longer valid


def with_capacity_for(plan: AllocationPlan, utilities: JobUtilities) -> AllocationPlan:
    """Return `plan`, or a copy with more sizes, so that `utilities` can be written into it."""
    longer = utilities.utility.shape[1] - plan.utility.shape[2]
    if longer <= 0:
        return plan
    more = ((0, 0), (0, 0), (0, longer))
    return replace(plan, **{name: np.pad(getattr(plan, name), more) for name in TABLES})


def with_utilities_of(plan: AllocationPlan, other: AllocationPlan) -> AllocationPlan:
    """Return a copy of `plan` with the utilities of an `other` plan for the same jobs."""
    names = (*TABLES, "max_speed", "max_utility")
    return replace(plan, **{name: getattr(other, name) for name in names})
