"""Start-only schedulers: walk the queue in a fixed order and start what fits."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementPlan, SchedulingView, Simulator
from ringyard.compiled import kernel
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule, place
from ringyard.plugin_checks import validate_array
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.lifecycle import start
from ringyard.sim.engine.livelock import raise_if_livelocked
from ringyard.state.arrays import State, waiting_at
from ringyard_baselines.scheduler import Scheduler
from ringyard_baselines.tools.demand_classes import start_by_demand_class


@kernel
def start_in_order(state: State, b: int, rule: PlacementRule, strict: bool, physics: Physics) -> None:
    """Start waiting jobs in list order; a class of equal demands that finds no place is closed."""
    cluster = state.clusters[b]
    cluster.stamp += 1
    stamp = cluster.stamp
    closed = 0
    i = 0
    out = state.gpu_scratch[b]
    while closed < cluster.num_waiting and cluster.free_gpus >= cluster.smallest_demand:
        j = waiting_at(state, b, i)
        demand = state.jobs[b, j].demand_class
        if state.class_stamp[b, demand] == stamp:
            i += 1
            continue
        if place(state, b, j, rule, out) > 0:
            start(state, b, j, out, physics)
        elif strict:
            break
        else:
            state.class_stamp[b, demand] = stamp
            closed += state.class_waiting[b, demand]


@kernel
def start_reserving(state: State, b: int, rule: PlacementRule, physics: Physics) -> None:
    """Start waiting jobs in list order; GPUs counted for a job that finds no place stay idle."""
    cluster = state.clusters[b]
    left = cluster.free_gpus
    i = 0
    out = state.gpu_scratch[b]
    while i < cluster.num_waiting and left >= cluster.smallest_demand:
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
    state: State, b: int, rule: PlacementRule, strict: bool, counted: bool, physics: Physics
) -> bool:
    """Whole simulation; False if it stalls."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        if counted:
            start_reserving(state, b, rule, physics)
        else:
            start_in_order(state, b, rule, strict, physics)
        if not advance(state, b, physics):
            return False
    return True


def raise_stalled(sim: Simulator) -> None:
    """Raise the SchedulerError for a simulation that cannot go on."""
    raise_if_livelocked(sim.state, 0)
    waiting = int(sim.state.clusters["num_waiting"][0])
    raise SchedulerError(
        f"{waiting} jobs wait at {sim.now:.0f} s on an idle cluster and the placement rule finds no GPUs"
        " for them; use a rule that can split jobs over servers"
    )


class OrderedScheduler(Scheduler):
    """Starts waiting jobs by a priority fixed at submission; never stops one.

    Args:
        name: shown in tables.
        order: (jobs, rng) -> [jobs] priority, ascending; ties by row.
        placement: where a job goes.
        strict: stop at the first job that finds no place (head of line blocks); else skip it.
        observability: what `order` uses; `counted` adds sizes.
        counted: subtract a job's GPUs from the free ones before its place is looked for, and leave them idle
            at this decision if there is none (as Lucid's simulator does); jobs that ask for more than is left
            are skipped. Not with `strict`.

    Raises:
        ConfigurationError: both `strict` and `counted`.
    """

    round_seconds: float | None = None

    def __init__(
        self,
        name: str,
        order: Callable[[JobTable, np.random.Generator], NDArray[np.float64]],
        placement: PlacementRule,
        strict: bool,
        observability: Observability,
        counted: bool = False,
    ) -> None:
        if strict and counted:
            raise ConfigurationError(
                f"{name} is strict and counted; expected one of them: nothing starts behind a job that finds"
                " no place, so that there are no GPUs to count"
            )
        self.counted = counted
        self.name = name
        self.order = order
        self.placement = placement
        self.strict = strict
        self.observability = observability | Observability.SIZES if counted else observability
        self._priority = np.zeros(0)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Rank the jobs.

        Raises:
            PluginError: the order is not one number for each job.
        """
        self._priority = validate_array(
            self.order(jobs, rng), len(jobs), self.order, "priority", finite=False
        )

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start what fits, in order."""
        rows = view.waiting
        rows = rows[np.lexsort((rows, self._priority[rows]))]
        if self.counted:
            return self._decide_counted(view, rows)
        draft = PlacementPlan(view)
        classes = view.column("demand_class")[rows]
        if self.strict:
            classes = np.zeros_like(classes)  # one that finds no place speaks for all
        return start_by_demand_class(rows, classes, partial(draft.place, self.placement))

    def _decide_counted(self, view: SchedulingView, rows: NDArray[np.int32]) -> Sequence[Allocation]:
        draft = PlacementPlan(view)
        left = view.num_free_gpus
        demands = view.column("num_gpus")
        allocations = []
        for job in rows.tolist():
            if demands[job] <= left:
                left -= demands[job]
                allocation = draft.place(self.placement, job)
                if allocation is not None:
                    allocations.append(allocation)
        return allocations

    def run_compiled(self, sim: Simulator) -> None:
        """The same decisions in one compiled loop."""
        sim.prioritise(self._priority)
        if not _run_in_order(sim.state, 0, self.placement, self.strict, self.counted, sim.physics):
            raise_stalled(sim)
