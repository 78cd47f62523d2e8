"""What the allocator goes by: how fast jobs are on so many GPUs."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator.plan import Plan
from ringyard.sim.speeds import BatchRule, IsolatedJobs, speed_table

#: those of `Rates` with a column for each size
TABLES = ("worth", "batch")


class Rates(NamedTuple):
    """Rows of a `Plan`; sizes are as many as the largest job may hold.

    Attributes:
        worth: [jobs, sizes + 1] (speed on so many GPUs of one server, or of the fewest / speed as asked) **
            `Allocator.size_power`; 0: not possible.
        batch: [jobs, sizes + 1] global batch there, samples.
        most_speed: [jobs] the largest of these ratios, at least 1.
    """

    worth: NDArray[np.float64]
    batch: NDArray[np.float64]
    most_speed: NDArray[np.float64]


def rates_of(profiled: IsolatedJobs, size_power: float) -> Rates:
    """The rates of all jobs, with the batch of most progress; they hold whatever happens.

    Args:
        profiled: the jobs.
        size_power: of the `Allocator`.
    """
    table = speed_table(profiled, BatchRule.GOODPUT)
    speed, batch = (np.zeros((len(table.place), table.sizes + 1)) for _ in range(2))
    asked = profiled.jobs["asked_gpus"][table.rows]
    speed[table.rows] = table.speed / table.speed[np.arange(len(asked)), asked][:, None]
    batch[table.rows] = table.batch
    return Rates(speed**size_power, batch, np.maximum(speed.max(axis=1), 1.0))


def put_rates(plan: Plan, b: int, rates: Rates) -> None:
    """Into a plan whose tables have room for them; longer rows are as if there were no more sizes."""
    count, width = rates.worth.shape
    for name in TABLES:
        rows = getattr(plan, name)[b, :count]
        rows[:, :width] = getattr(rates, name)
        rows[:, width:] = 0.0
    plan.most_speed[b, :count] = rates.most_speed
    plan.most_worth[b, :count] = rates.worth.max(axis=1)
    plan.cores[b] = 0  # of other jobs


def with_room_for(plan: Plan, rates: Rates) -> Plan:
    """The plan, or one like it whose tables are as long as those of the rates."""
    longer = rates.worth.shape[1] - plan.worth.shape[2]
    if longer <= 0:
        return plan
    more = ((0, 0), (0, 0), (0, longer))
    return replace(plan, **{name: np.pad(getattr(plan, name), more) for name in TABLES})


def with_rates_of(plan: Plan, other: Plan) -> Plan:
    """A plan for the same jobs as another, with its rates."""
    names = (*TABLES, "most_speed", "most_worth")
    return replace(plan, **{name: getattr(other, name) for name in names})
