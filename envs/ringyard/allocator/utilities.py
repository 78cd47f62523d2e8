"""What the allocator goes by: how fast jobs are on so many GPUs."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator.allocation_plan import AllocationPlan
from ringyard.sim.speeds import BatchRule, IsolatedJobs, speed_table

#: those of `Rates` with a column for each size
TABLES = ("utility", "batch_size")


class JobUtilities(NamedTuple):
    """Rows of a `AllocationPlan`; sizes are as many as the largest job may hold.

    Attributes:
        worth: [jobs, sizes + 1] (speed on so many GPUs of one server, or of the fewest / speed as asked) **
            `Allocator.size_power`; 0: not possible.
        batch: [jobs, sizes + 1] global batch there, samples.
        most_speed: [jobs] the largest of these ratios, at least 1.
    """

    utility: NDArray[np.float64]
    batch_size: NDArray[np.float64]
    max_speed: NDArray[np.float64]


def job_utilities(profiled: IsolatedJobs, size_power: float) -> JobUtilities:
    """The utilities of all jobs, with the batch of most progress; they hold whatever happens.

    Args:
        profiled: the jobs.
        size_power: of the `Allocator`.
    """
    table = speed_table(profiled, BatchRule.GOODPUT)
    speed, batch_size = (np.zeros((len(table.place), table.sizes + 1)) for _ in range(2))
    asked = profiled.jobs["asked_gpus"][table.rows]
    speed[table.rows] = table.speed / table.speed[np.arange(len(asked)), asked][:, None]
    batch_size[table.rows] = table.batch
    return JobUtilities(speed**size_power, batch_size, np.maximum(speed.max(axis=1), 1.0))


def write_utilities(plan: AllocationPlan, b: int, utilities: JobUtilities) -> None:
    """Into a plan whose tables have room for them; longer rows are as if there were no more sizes."""
    count, width = utilities.utility.shape
    for name in TABLES:
        rows = getattr(plan, name)[b, :count]
        rows[:, :width] = getattr(utilities, name)
        rows[:, width:] = 0.0
    plan.max_speed[b, :count] = utilities.max_speed
    plan.max_utility[b, :count] = utilities.utility.max(axis=1)
    plan.wanted_cores[b] = 0  # of other jobs


def with_capacity_for(plan: AllocationPlan, utilities: JobUtilities) -> AllocationPlan:
    """The plan, or one like it whose tables are as long as those of the utilities."""
    longer = utilities.utility.shape[1] - plan.utility.shape[2]
    if longer <= 0:
        return plan
    more = ((0, 0), (0, 0), (0, longer))
    return replace(plan, **{name: np.pad(getattr(plan, name), more) for name in TABLES})


def with_utilities_of(plan: AllocationPlan, other: AllocationPlan) -> AllocationPlan:
    """A plan for the same jobs as another, with its utilities."""
    names = (*TABLES, "max_speed", "max_utility")
    return replace(plan, **{name: getattr(other, name) for name in names})
