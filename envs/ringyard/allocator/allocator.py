"""The allocator: its options, and one decision from job scores to GPU assignments."""

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from ringyard.allocator.allocation_plan import (
    DECISIONS,
    MOVES,
    PLACES,
    QUEUED,
    AllocationPlan,
    AllocatorConfig,
    place_job,
)
from ringyard.allocator.core_allocation import divide_cores
from ringyard.allocator.estimates import Estimate, num_live, predicted
from ringyard.allocator.gpu_placement import place_target, shape_with_gpus, shrink_to_target
from ringyard.allocator.gpu_sharing import share_gpus
from ringyard.allocator.reclaim import count_preemptible_gpus
from ringyard.allocator.target_sizes import (
    build_heap,
    pop_largest,
    queue_waiting_jobs,
    set_target_gpus,
    set_weights,
)
from ringyard.allocator.worker_resources import (
    free_per_worker,
    set_wanted_cores,
    with_least_resources,
    with_saturating_resources,
)
from ringyard.checks import NonNegative, checked
from ringyard.compiled import kernel, linked_kernel, to_int
from ringyard.observability import Observability
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule, consolidate, place
from ringyard.placement.availability import find_cpu_server
from ringyard.placement.rules import fastest_gpus
from ringyard.restart import restart_pause
from ringyard.sim.engine.shape import Shape, asked_shape, set_asked_shape, set_shape
from ringyard.state.arrays import State, waiting_at
from ringyard.state.gpu_effects import slowness_on
from ringyard.state.records import UNLIMITED_CORES, Job, JobKind, JobStatus

# Outside of these ranges, weights overflow or are all alike.
Gamma = Annotated[float, "[0, 10]"]
SizePower = Annotated[float, "(0, 1]"]
RunningFactor = Annotated[float, "[0.001, 1]"]
Score = Annotated[float, "[-1, 1]"]


@checked("action.allocator.start_only")
@dataclass(frozen=True)
class StartOnly:
    """Options of an `Allocator` that only starts waiting jobs, as they ask, and changes no running job.

    Jobs start in descending order of weight per GPU. With gamma 1 and every score at 0, that is the order of
    ascending GPU seconds left (smallest work first).
    """

    placement: PlacementRule = field(default_factory=consolidate)  #: finds the GPUs of a job
    strict: bool = False  #: the first job that finds no place blocks those behind it. False: they are tried.
    min_score: Score = -1.0  #: as `Allocator.min_score`. The larger of the two counts.

    @property
    def observability(self) -> Observability:
        """What the order and the placement rule read of jobs, besides weights."""
        return self.placement.observability | Observability.SIZES


@checked("action.allocator")
@dataclass(frozen=True)
class Allocator:
    """Turns job scores into GPU assignments: starts, preemptions, migrations and resizes.

    A job's weight is `seconds left ** -gamma * exp(score_scale * score)`. GPUs are granted one by one where
    they add most weight x utility. The utility of k GPUs is (speed on k / speed as asked) ** size_power. The
    package's docstring lists the steps of a decision. All defaults are assumptions. `migration_price` and
    `same_type_bonus` were chosen on workloads of experiment `full` that no table reports.
    """

    gamma: Gamma = 1.0  #: 0: seconds left do not matter. 1: weights of least remaining work first.
    size_power: SizePower = 0.7  #: 1: GPUs go where they add most speed. Lower: GPUs spread over more jobs.
    #: factor of what a change of GPUs or cores costs a running job's utility, which is the pause of the
    #: change / seconds left
    resize_price: NonNegative = 5.0
    score_scale: Annotated[float, "(0, 100]"] = 5.0  #: factor of scores in the logarithm of weights
    #: weights on shared GPUs are seconds left ** -sharing_power * exp(score_scale * score)
    sharing_power: Gamma = 0.5
    #: price of a migration, in restarts. To a faster GPU type, it has to save their seconds. On shared
    #: GPUs, it has to gain more weighted speed than weight x their seconds / seconds left.
    migration_price: NonNegative = 10.0
    #: a running job's speed on its present GPU type counts 1 + same_type_bonus times
    same_type_bonus: NonNegative = 0.5
    #: factor of a running job's seconds left in its weight. Below 1, similar jobs preempt one another
    #: less often.
    running_factor: RunningFactor = 1.0
    #: price of a preemption, in restarts. A running job is granted its first GPUs as if it had so many less
    #: to run. It does not migrate to make room if it has less left than they take.
    preemption_price: NonNegative = 0.0
    #: waiting jobs with a lower score do not start while any job runs, even where they fit, so that an agent
    #: holds back capacity. -1: none waits.
    min_score: Score = -1.0
    estimate: Estimate = field(default_factory=predicted)  #: estimate of the seconds left
    #: only start jobs, with these options. None: also preempt, migrate and resize.
    start_only: StartOnly | None = None

    @property
    def observability(self) -> Observability:
        """What decisions depend on, besides scores."""
        if self.start_only is not None:
            return self.estimate.observability | self.start_only.observability
        return self.estimate.observability | Observability.SIZES | Observability.SPEEDS

    @cached_property
    def config(self) -> AllocatorConfig:
        """The options as kernels read them."""
        options: Any = self.start_only or StartOnly()
        names = [one.name for one in fields(AllocatorConfig) if hasattr(self, one.name)]
        own = {name: getattr(self, name) for name in names}
        rest = {one.name: getattr(options, one.name) for one in fields(options)}
        least = max(self.min_score, options.min_score)
        return AllocatorConfig(**own | rest | {"start_only": self.start_only is not None, "min_score": least})


@kernel
def _start_cpu_jobs(state: State, b: int, plan: AllocationPlan, physics: Physics) -> None:
    """Start waiting CPU-only jobs where there are cores, in ascending order of seconds left."""
    # The front of the queue holds GPU jobs in their order.
    queue, priority = plan.queue[b, plan.counts[b, QUEUED] :], plan.priority[b]
    count = 0
    for i in range(state.clusters[b].num_waiting):
        j = waiting_at(state, b, i)
        if state.jobs[b, j].kind == JobKind.CPU_ONLY:
            priority[j] = -plan.seconds_left[b, j]
            queue[count] = j
            count += 1
    build_heap(queue, priority, count)
    out = plan.out[b]
    for left in range(count, 0, -1):
        j = pop_largest(queue, priority, left)
        if find_cpu_server(state, b, j, out) > 0:
            place_job(state, b, j, asked_shape(state.jobs[b, j]), out, plan, physics)


@kernel
def _order_by_size(state: State, b: int, plan: AllocationPlan) -> None:
    """Sort the jobs with a target into the queue, in descending order of target GPUs, then of weight."""
    count = 0
    for i in range(plan.counts[b, QUEUED]):
        j = plan.queue[b, i]
        if plan.target_gpus[b, j] > 0:
            other = plan.queue[b, count]
            plan.queue[b, count] = j
            plan.queue[b, i] = other
            plan.priority[b, j] = plan.target_gpus[b, j] + plan.weight[b, j] / (1.0 + plan.weight[b, j])
            count += 1
    plan.counts[b, QUEUED] = count
    build_heap(plan.queue[b], plan.priority[b], count)
    for left in range(count, 0, -1):
        pop_largest(plan.queue[b], plan.priority[b], left)  # leaves the popped job behind the heap
    for i in range(count // 2):
        j = plan.queue[b, i]
        plan.queue[b, i] = plan.queue[b, count - 1 - i]
        plan.queue[b, count - 1 - i] = j


@kernel
def _start_job(state: State, b: int, j: int, shape: Shape, plan: AllocationPlan, physics: Physics) -> bool:
    """Start waiting job `j` in `shape` on free GPUs, if there are enough. Return whether it started."""
    job = state.jobs[b, j]
    out = plan.out[b]
    shape = with_least_resources(state, b, shape)
    set_shape(job, shape)
    count = fastest_gpus(state, b, j, shape.num_gpus, False, out)
    set_asked_shape(job)
    if count == 0:
        return False
    first = to_int(state.gpus[b, out[0]].server)
    if state.gpus[b, out[count - 1]].server == first:
        free = free_per_worker(state, b, first, shape)
        shape = with_saturating_resources(state, b, j, shape, first, free, physics)
    place_job(state, b, j, shape, out, plan, physics)
    return True


@kernel
def _backfill(state: State, b: int, plan: AllocationPlan, physics: Physics) -> None:
    """Start waiting jobs on GPUs left free, as they ask or on fewer, in descending order of weight per GPU.

    Once a job finds no place, the others of its demand class are not tried.
    """
    cluster = state.clusters[b]
    if cluster.free_gpus == 0:
        return
    cluster.visit_mark += 1
    count = queue_waiting_jobs(state, b, plan.weight, to_int(cluster.num_gpus), plan)
    while count > 0 and cluster.free_gpus > 0:
        j = pop_largest(plan.queue[b], plan.priority[b], count)
        count -= 1
        job = state.jobs[b, j]
        if plan.weight[b, j] == 0.0:
            return
        if state.class_marks[b, job.demand_class] == cluster.visit_mark:
            continue
        state.class_marks[b, job.demand_class] = cluster.visit_mark
        for k in range(min(job.asked_gpus, cluster.free_gpus), job.min_gpus - 1, -1):
            if plan.utility[b, j, k] > 0.0:
                if _start_job(state, b, j, shape_with_gpus(state, b, j, k, plan), plan, physics):
                    state.class_marks[b, job.demand_class] = 0
                    break


@kernel
def _type_regret(state: State, job: Job) -> float:
    """Speed on the job's fastest GPU type less that on its slowest, relative to the reference GPU."""
    least = np.inf
    most = 0.0
    for kind in range(state.slowness.shape[1]):
        slowness = slowness_on(state.slowness, job, kind)
        least = min(least, slowness)
        most = max(most, slowness)
    return 1.0 / least - 1.0 / most


@linked_kernel
def _set_target_types(state: State, b: int, plan: AllocationPlan, config: AllocatorConfig) -> None:
    """Assign each target a GPU type with enough GPUs, in descending order of weight x `_type_regret`.

    Without such a type any will do. Changing it must save `Allocator.migration_price` restarts.
    """
    room = plan.unassigned_gpus[b]
    room[:] = 0
    for s in range(state.servers.shape[1]):
        if state.servers[b, s].up != 0:
            room[state.servers[b, s].gpu_type] += state.servers[b, s].num_gpus
    count = to_int(plan.counts[b, QUEUED])
    for i in range(count):
        j = plan.queue[b, i]
        plan.target_gpu_type[b, j] = -1
        plan.priority[b, j] = plan.weight[b, j] * _type_regret(state, state.jobs[b, j])
        if plan.target_gpus[b, j] == 0:
            plan.priority[b, j] = -1.0
    build_heap(plan.queue[b], plan.priority[b], count)
    for left in range(count, 0, -1):
        j = pop_largest(plan.queue[b], plan.priority[b], left)
        wanted = plan.target_gpus[b, j]
        if wanted == 0:
            continue
        job = state.jobs[b, j]
        running = job.status == JobStatus.RUNNING
        best = -1
        fastest = 0.0
        present = to_int(state.servers[b, state.slots[b, job.first_slot].server].gpu_type) if running else -1
        for kind in range(len(room)):
            speed = 1.0 / slowness_on(state.slowness, job, kind)
            if kind < len(plan.type_score_columns) and plan.type_score_columns[kind] >= 0:
                speed *= np.exp(plan.type_score[b, j, plan.type_score_columns[kind]])
            if kind == present:
                speed *= 1.0 + config.same_type_bonus
            if room[kind] >= wanted and speed > fastest:
                best = kind
                fastest = speed
        if present >= 0 and best >= 0 and best != present and room[present] >= wanted:
            saved = slowness_on(state.slowness, job, present) - slowness_on(state.slowness, job, best)
            if plan.seconds_left[b, j] * saved <= config.migration_price * restart_pause(job, job.num_gpus):
                best = present
        plan.target_gpu_type[b, j] = best
        if best >= 0:
            room[best] -= wanted


@linked_kernel
def _start_waiting_jobs(
    state: State, b: int, plan: AllocationPlan, config: AllocatorConfig, physics: Physics
) -> None:
    """Start waiting GPU jobs as they ask, in descending order of weight per GPU (`StartOnly`).

    Once a job finds no place, the others of its demand class are not tried.
    """
    cluster = state.clusters[b]
    cluster.visit_mark += 1
    out = plan.out[b]
    count = queue_waiting_jobs(state, b, plan.weight, to_int(cluster.num_gpus), plan)
    while count > 0:
        j = pop_largest(plan.queue[b], plan.priority[b], count)
        count -= 1
        if plan.weight[b, j] == 0.0:
            return
        demand = state.jobs[b, j].demand_class
        if state.class_marks[b, demand] == cluster.visit_mark:
            continue
        if place(state, b, j, config.placement, out) > 0:
            place_job(state, b, j, asked_shape(state.jobs[b, j]), out, plan, physics)
        elif config.strict:
            return
        else:
            state.class_marks[b, demand] = cluster.visit_mark


@linked_kernel
def run_allocator(
    state: State, b: int, plan: AllocationPlan, config: AllocatorConfig, physics: Physics
) -> None:
    """Make one decision by the scores and utilities in `plan`. Every step leaves a legal state."""
    plan.counts[b, DECISIONS] += 1
    plan.counts[b, MOVES] = 0
    plan.counts[b, PLACES] = 0
    if num_live(state, b) == 0:
        return
    set_weights(state, b, plan, config)
    if config.start_only:
        _start_cpu_jobs(state, b, plan, physics)
        _start_waiting_jobs(state, b, plan, config, physics)
        return
    set_wanted_cores(state, b, plan, physics)
    set_target_gpus(state, b, plan, config)
    if state.slowness.shape[1] > 1:
        _set_target_types(state, b, plan, config)
    _order_by_size(state, b, plan)
    count = plan.counts[b, QUEUED]
    for i in range(count):
        shrink_to_target(state, b, to_int(plan.queue[b, i]), plan, physics)
    _start_cpu_jobs(state, b, plan, physics)
    count_preemptible_gpus(state, b, plan)
    missing = 0
    for i in range(count):
        missing += not place_target(state, b, to_int(plan.queue[b, i]), plan, physics)
    if missing > 0:  # once more: later jobs of the first pass have freed GPUs
        for i in range(count):
            place_target(state, b, to_int(plan.queue[b, i]), plan, physics)
    _backfill(state, b, plan, physics)
    if state.clusters[b].jobs_per_gpu > 1:
        share_gpus(state, b, plan, config, physics)
    for s in range(state.servers.shape[1]):
        if state.servers[b, s].num_cores < UNLIMITED_CORES and state.servers[b, s].up != 0:
            divide_cores(state, b, s, plan, config, physics)
