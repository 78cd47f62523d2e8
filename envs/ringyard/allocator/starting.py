"""Only starting jobs: what runs stays as it is, and who waits starts as it asks, in order of weight."""

from dataclasses import dataclass, field
from typing import Annotated

from ringyard.allocator.moves import give
from ringyard.allocator.plan import Plan, Rules
from ringyard.allocator.sizes import pop, queue_waiting
from ringyard.checks import checked
from ringyard.compiled import linked_kernel, whole
from ringyard.information import Information
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule, consolidate, place
from ringyard.sim.engine.shape import asked_shape
from ringyard.state.arrays import State


@checked("action.allocator.starts")
@dataclass(frozen=True)
class Starts:
    """How an `Allocator` starts jobs where those that run shall stay as they are.

    The heaviest job per GPU comes first. With gamma 1 and every score at 0 that is the one with the least GPU
    time left: smallest work first.

    Attributes:
        placement: where a job goes.
        strict: the first job that finds no place blocks those behind it; else they are tried.
        hold: a job that scores less waits while any job runs, even where it would fit; -1: none does.
    """

    placement: PlacementRule = field(default_factory=consolidate)
    strict: bool = False
    hold: Annotated[float, "[-1, 1]"] = -1.0

    @property
    def takes(self) -> Information:
        """What it goes by, besides weights."""
        return self.placement.takes | Information.SIZES


@linked_kernel
def start_by_weight(state: State, b: int, plan: Plan, rules: Rules, physics: Physics) -> None:
    """Start waiting jobs that ask for GPUs; of equal demands that find no place, one is tried."""
    cluster = state.clusters[b]
    cluster.stamp += 1
    out = plan.out[b]
    running = cluster.num_running > 0
    count = queue_waiting(state, b, plan.weight, whole(cluster.num_gpus), plan)
    while count > 0:
        j = pop(plan.queue[b], plan.slope[b], count)
        count -= 1
        if running and plan.score[b, j] < rules.hold:
            continue
        demand = state.jobs[b, j].demand_class
        if state.class_stamp[b, demand] == cluster.stamp:
            continue
        if place(state, b, j, rules.placement, out) > 0:
            give(state, b, j, asked_shape(state.jobs[b, j]), out, plan, physics)
        elif rules.strict:
            return
        else:
            state.class_stamp[b, demand] = cluster.stamp
