"""What the allocator goes by: how fast jobs are on so many GPUs."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.allocator.plan import Plan
from ringyard.sim.solo import Profiled
from ringyard.sim.speeds import BatchRule, speed_table

__all__ = ["Rates", "put_rates", "rates_of", "with_rates_of"]


class Rates(NamedTuple):
    """Rows of the tables of a `Plan`; sizes are as many as the largest job may hold.

    Attributes:
        speed: [jobs, sizes + 1] on so many GPUs of one server (or of the fewest) / as asked; 0: not possible.
        worth: [jobs, sizes + 1] speed ** `Allocator.size_power`.
        batch: [jobs, sizes + 1] global batch there, samples.
    """

    speed: NDArray[np.float64]
    worth: NDArray[np.float64]
    batch: NDArray[np.float64]


def rates_of(profiled: Profiled, size_power: float) -> Rates:
    """The rates of all jobs, with the batch of most progress; they hold whatever happens.

    Args:
        profiled: whose.
        size_power: of the `Allocator`.
    """
    table = speed_table(profiled, BatchRule.GOODPUT)
    speed, batch = (np.zeros((len(table.place), table.sizes + 1)) for _ in range(2))
    asked = profiled.jobs["asked_gpus"][table.rows]
    speed[table.rows] = table.speed / table.speed[np.arange(len(asked)), asked][:, None]
    batch[table.rows] = table.batch
    return Rates(speed, speed**size_power, batch)


def put_rates(plan: Plan, b: int, rates: Rates) -> None:
    """Into a plan whose tables have room for them; longer rows are as if there were no more sizes."""
    count, width = rates.speed.shape
    for name, table in rates._asdict().items():
        rows = getattr(plan, name)[b, :count]
        rows[:, :width] = table
        rows[:, width:] = 0.0
    plan.top[b, :count] = rates.worth.max(axis=1)
    plan.cores[b] = 0  # of other jobs


def with_rates_of(plan: Plan, other: Plan) -> Plan:
    """A plan for the same jobs as another, with its rates."""
    return replace(plan, top=other.top, **{name: getattr(other, name) for name in Rates._fields})
