"""Start-only schedulers: walk the queue in a fixed order and start the jobs that fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementPlan, SchedulingView, Simulator
from ringyard.checks import validate_array
from ringyard.compiled import kernel
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule, place
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.lifecycle import start
from ringyard.sim.engine.livelock import raise_if_livelocked
from ringyard.state.arrays import State, waiting_at
from ringyard_baselines.scheduler import Scheduler


@kernel
def start_in_order(state: State, b: int, rule: PlacementRule, strict: bool, physics: Physics) -> None:
    """Start the waiting jobs of cluster `b` of `state` in the order of its waiting list.

    `rule` places them and `physics` says how fast they run. If a job finds no place, jobs of its demand class
    are skipped, or with `strict` all jobs behind it.
    """
    cluster = state.clusters[b]
    cluster.visit_mark += 1
    visit_mark = cluster.visit_mark
    closed = 0
    i = 0
    out = state.gpu_scratch[b]
    while closed < cluster.num_waiting and cluster.free_gpus >= cluster.min_demand_gpus:
        j = waiting_at(state, b, i)
        demand = state.jobs[b, j].demand_class
        if state.class_marks[b, demand] == visit_mark:
            i += 1
            continue
        if place(state, b, j, rule, out) > 0:
            start(state, b, j, out, physics)
        elif strict:
            break
        else:
            state.class_marks[b, demand] = visit_mark
            closed += state.class_waiting[b, demand]


@kernel
def start_reserving(state: State, b: int, rule: PlacementRule, physics: Physics) -> None:
    """Start the waiting jobs of cluster `b` of `state` in list order. GPUs of unplaced jobs stay idle.

    Each job that fits takes its GPUs out of the budget, whether `rule` finds a place for it or not. `physics`
    says how fast jobs run.
    """
    cluster = state.clusters[b]
    left = cluster.free_gpus
    i = 0
    out = state.gpu_scratch[b]
    while i < cluster.num_waiting and left >= cluster.min_demand_gpus:
        j = waiting_at(state, b, i)
        demand = state.jobs[b, j].num_gpus
        if demand <= left:
            left -= demand
            if place(state, b, j, rule, out) > 0:
                start(state, b, j, out, physics)
                continue
        i += 1


@kernel
def _run_in_order(
    state: State, b: int, rule: PlacementRule, strict: bool, reserve_unplaced: bool, physics: Physics
) -> bool:
    """Simulate until every job has finished. Return False if jobs wait and no event can follow."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        if reserve_unplaced:
            start_reserving(state, b, rule, physics)
        else:
            start_in_order(state, b, rule, strict, physics)
        if not advance(state, b, physics):
            return False
    return True


def raise_stalled(sim: Simulator) -> None:
    """Raise a SchedulerError that names why jobs wait in a simulation and no event can follow."""
    raise_if_livelocked(sim.state, 0)
    waiting = int(sim.state.clusters["num_waiting"][0])
    raise SchedulerError(
        f"{waiting} jobs wait at {sim.now:.0f} s on an idle cluster and the placement rule finds no GPUs"
        " for them; use a placement rule that can split jobs over servers"
    )


@dataclass(eq=False)
class OrderedScheduler(Scheduler):
    """Start waiting jobs in an order fixed at submission. Never preempt a job.

    Raises:
        ConfigurationError: both `strict` and `reserve_unplaced`.
    """

    name: str  #: name in tables
    #: (jobs, rng) -> [jobs] priorities. The lowest starts first, ties by row.
    order: Callable[[JobTable, np.random.Generator], NDArray[np.float64]]
    placement: PlacementRule  #: rule that places a job
    #: let the first job that finds no place block those behind it (head-of-line blocking). False: skip it.
    strict: bool
    observability: Observability  #: what `order` reads. `reserve_unplaced` adds sizes.
    #: leave the GPUs of a job that finds no place idle at this decision, as Lucid's simulator does. Jobs that
    #: ask for more GPUs than are then left are skipped. Not with `strict`.
    reserve_unplaced: bool = False

    def __post_init__(self) -> None:
        if self.strict and self.reserve_unplaced:
            raise ConfigurationError(
                f"{self.name}: strict and reserve_unplaced are both true; expected at most one of them:"
                " with strict nothing starts behind a job that finds no place"
            )
        if self.reserve_unplaced:
            self.observability |= Observability.SIZES
        self._priority = np.zeros(0)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Compute the priorities of all jobs, one number each, or raise a PluginError."""
        found = self.order(jobs, rng)
        self._priority = validate_array(found, len(jobs), self.order, "priority", finite=False)

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start the waiting jobs that find a place, in order."""
        rows = view.waiting
        rows = rows[np.lexsort((rows, self._priority[rows]))]
        if self.reserve_unplaced:
            left, demands, tried = view.num_free_gpus, view.column("num_gpus"), []
            for job in rows.tolist():
                if demands[job] <= left:
                    left -= demands[job]
                    tried.append(job)
            rows = np.array(tried, np.int32)
        plan = PlacementPlan(view)
        if not self.strict:
            return plan.start(self.placement, rows)
        allocations = []
        for job in rows.tolist():
            allocation = plan.place(self.placement, job)
            if allocation is None:
                break
            allocations.append(allocation)
        return allocations

    def run_compiled(self, sim: Simulator) -> None:
        """Simulate until every job has finished, with the decisions of `decide` in compiled code."""
        sim.prioritise(self._priority)
        if not _run_in_order(sim.state, 0, self.placement, self.strict, self.reserve_unplaced, sim.physics):
            raise_stalled(sim)
