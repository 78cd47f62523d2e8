"""One decision: from how much jobs matter to what each holds, and where."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import numpy as np

from ringyard.allocator.beside import free_beside, least_beside, most_beside, want_cores
from ringyard.allocator.clearing import count_loose
from ringyard.allocator.dealing import deal_cores
from ringyard.allocator.placing import reach, shrink, sized_shape
from ringyard.allocator.plan import (
    DECISIONS,
    MOVES,
    ORDERED,
    PLACES,
    Estimate,
    Plan,
    Rules,
    give,
    num_live,
    predicted,
)
from ringyard.allocator.sharing import share
from ringyard.allocator.sizes import choose_sizes, pop, queue_up, queue_waiting, weigh
from ringyard.checks import NonNegative, checked
from ringyard.compiled import kernel, linked_kernel, whole
from ringyard.observability import Observability
from ringyard.performance.model import Physics
from ringyard.placement import PlacementRule, consolidate, place
from ringyard.placement.room import cpu_server
from ringyard.placement.rules import fastest_gpus
from ringyard.restart import restart_pause
from ringyard.sim.engine.shape import Shape, asked_shape, set_asked_shape, set_shape
from ringyard.state.arrays import State, waiting_at
from ringyard.state.gpu_effects import slowness_on
from ringyard.state.records import UNLIMITED_CORES, Job, JobKind, JobStatus

#: beyond these, weights are no numbers or all alike
Gamma = Annotated[float, "[0, 10]"]
SizePower = Annotated[float, "(0, 1]"]
Stay = Annotated[float, "[0.001, 1]"]


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
    def takes(self) -> Observability:
        """What it goes by, besides weights."""
        return self.placement.takes | Observability.SIZES


@checked("action.allocator")
@dataclass(frozen=True)
class Allocator:
    """Turns how much jobs matter into the GPUs that each holds, and where.

    A job weighs `seconds left ** -gamma * exp(score_scale * score)`. Every GPU goes where it adds most
    weighted worth; the worth of k GPUs is (speed on k / speed as asked) ** size_power. A job gets one server
    where one would do, else whole ones; jobs that shall hold nothing stop where others need their GPUs, and
    small ones move. GPUs that are left over go to jobs that fit. All figures are assumptions; `move_price`
    and `stay_bonus` were chosen on workloads of Full that no table reports.

    Attributes:
        gamma: 0: all jobs weigh alike; 1: as least remaining work first.
        size_power: 1: GPUs go where they add most speed; less: rather to more jobs.
        resize_price: what a change of size, or of cores, costs a running job's worth: this times its pause
            over its seconds left.
        score_scale: how strong scores are.
        sharing_power: seconds left ** -sharing_power weighs jobs that may share a GPU.
        move_price: a running job moves to a faster GPU type if that saves this many restarts; beside others,
            it moves or makes way if the weighted speed won is more than that of the time these would take.
        stay_bonus: how much faster the type counts that it is on.
        stay: a running job weighs as if it had so much of its seconds left: less than 1 lets jobs that are
            alike take turns less often.
        stop_price: a running job keeps its first GPUs as if it had this many of its restarts less to run, and
            does not move to make room if it has less left than that.
        estimate: says how long jobs would still run.
        starts: not None: jobs are only started, as they ask, in this way; what runs stays as it is.
    """

    gamma: Gamma = 1.0
    size_power: SizePower = 0.7
    resize_price: NonNegative = 5.0
    score_scale: Annotated[float, "(0, 100]"] = 5.0
    sharing_power: Gamma = 0.5
    move_price: NonNegative = 10.0
    stay_bonus: NonNegative = 0.5
    stay: Stay = 1.0
    stop_price: NonNegative = 0.0
    estimate: Estimate = field(default_factory=predicted)
    starts: Starts | None = None

    @property
    def takes(self) -> Observability:
        """What it goes by."""
        if self.starts is not None:
            return self.estimate.takes | self.starts.takes
        return self.estimate.takes | Observability.SIZES | Observability.SPEEDS

    @cached_property
    def rules(self) -> Rules:
        """As kernels read it."""
        starts = self.starts or Starts()
        return Rules(
            estimate=self.estimate,
            gamma=self.gamma,
            resize_price=self.resize_price,
            score_scale=self.score_scale,
            sharing_power=self.sharing_power,
            move_price=self.move_price,
            stay_bonus=self.stay_bonus,
            stay=self.stay,
            stop_price=self.stop_price,
            only_starts=self.starts is not None,
            placement=starts.placement,
            strict=starts.strict,
            hold=starts.hold,
        )


@kernel
def _start_cpu_jobs(state: State, b: int, plan: Plan, physics: Physics) -> None:
    """Start waiting CPU-only jobs, least left first, where there are cores."""
    queue, slope = plan.queue[b, plan.counts[b, ORDERED] :], plan.slope[b]  # behind those in order
    count = 0
    for i in range(state.clusters[b].num_waiting):
        j = waiting_at(state, b, i)
        if state.jobs[b, j].kind == JobKind.CPU_ONLY:
            slope[j] = -plan.left[b, j]
            queue[count] = j
            count += 1
    queue_up(queue, slope, count)
    out = plan.out[b]
    for left in range(count, 0, -1):
        j = pop(queue, slope, left)
        if cpu_server(state, b, j, out) > 0:
            give(state, b, j, asked_shape(state.jobs[b, j]), out, plan, physics)


@kernel
def _by_size(state: State, b: int, plan: Plan) -> None:
    """Queue the jobs that shall hold GPUs, the largest first, then the heaviest."""
    count = 0
    for i in range(plan.counts[b, ORDERED]):
        j = plan.queue[b, i]
        if plan.target[b, j] > 0:
            other = plan.queue[b, count]
            plan.queue[b, count] = j
            plan.queue[b, i] = other
            plan.slope[b, j] = plan.target[b, j] + plan.weight[b, j] / (1.0 + plan.weight[b, j])
            count += 1
    plan.counts[b, ORDERED] = count
    queue_up(plan.queue[b], plan.slope[b], count)
    for left in range(count, 0, -1):
        pop(plan.queue[b], plan.slope[b], left)  # ends up behind the others
    for i in range(count // 2):
        j = plan.queue[b, i]
        plan.queue[b, i] = plan.queue[b, count - 1 - i]
        plan.queue[b, count - 1 - i] = j


@kernel
def _start_as_is(state: State, b: int, j: int, shape: Shape, plan: Plan, physics: Physics) -> bool:
    """Start waiting job j in a shape, if there is room without moving anybody; whether it did."""
    job = state.jobs[b, j]
    out = plan.out[b]
    shape = least_beside(state, b, shape)
    set_shape(job, shape)
    count = fastest_gpus(state, b, j, shape.num_gpus, False, out)
    set_asked_shape(job)
    if count == 0:
        return False
    first = whole(state.gpus[b, out[0]].server)
    if state.gpus[b, out[count - 1]].server == first:
        shape = most_beside(state, b, j, shape, first, free_beside(state, b, first, shape), physics)
    give(state, b, j, shape, out, plan, physics)
    return True


@kernel
def _backfill(state: State, b: int, plan: Plan, physics: Physics) -> None:
    """Start waiting jobs, the heaviest per GPU first, as they ask or smaller, on free GPUs.

    Of equal demands that find no place, one is tried.
    """
    cluster = state.clusters[b]
    if cluster.free_gpus == 0:
        return
    cluster.stamp += 1
    count = queue_waiting(state, b, plan.weight, whole(cluster.num_gpus), plan)
    while count > 0 and cluster.free_gpus > 0:
        j = pop(plan.queue[b], plan.slope[b], count)
        count -= 1
        job = state.jobs[b, j]
        if state.class_stamp[b, job.demand_class] == cluster.stamp:
            continue
        state.class_stamp[b, job.demand_class] = cluster.stamp
        for k in range(min(job.asked_gpus, cluster.free_gpus), job.min_gpus - 1, -1):
            if plan.worth[b, j, k] > 0.0:
                if _start_as_is(state, b, j, sized_shape(job, k, plan.batch[b, j, k]), plan, physics):
                    state.class_stamp[b, job.demand_class] = 0
                    break


@kernel
def _regret(state: State, job: Job) -> float:
    """How much faster the job is on its fastest type than on its slowest, on the reference GPU's scale."""
    least = np.inf
    most = 0.0
    for kind in range(state.slowness.shape[1]):
        slowness = slowness_on(state.slowness, job, kind)
        least = min(least, slowness)
        most = max(most, slowness)
    return 1.0 / least - 1.0 / most


@kernel
def _stays(state: State, job: Job, left: float, present: int, other: int, rules: Rules) -> bool:
    """Whether a move of a running job from its type to another would save too little."""
    here, there = slowness_on(state.slowness, job, present), slowness_on(state.slowness, job, other)
    return left * (here - there) <= rules.move_price * restart_pause(job, job.num_gpus)


@linked_kernel
def _choose_types(state: State, b: int, plan: Plan, rules: Rules) -> None:
    """Give each job that shall hold GPUs a type with room; the job with most to lose chooses first.

    One that no type has room for may go anywhere. A running job goes to another type only if that saves
    `Rules.move_price` times its restart.
    """
    room = plan.type_room[b]
    room[:] = 0
    for s in range(state.servers.shape[1]):
        if state.servers[b, s].up != 0:
            room[state.servers[b, s].gpu_type] += state.servers[b, s].num_gpus
    count = whole(plan.counts[b, ORDERED])
    for i in range(count):
        j = plan.queue[b, i]
        plan.gpu_type[b, j] = -1
        plan.slope[b, j] = plan.weight[b, j] * _regret(state, state.jobs[b, j])
        if plan.target[b, j] == 0:
            plan.slope[b, j] = -1.0
    queue_up(plan.queue[b], plan.slope[b], count)
    for left in range(count, 0, -1):
        j = pop(plan.queue[b], plan.slope[b], left)
        wanted = plan.target[b, j]
        if wanted == 0:
            continue
        job = state.jobs[b, j]
        running = job.status == JobStatus.RUNNING
        best = -1
        fastest = 0.0
        present = whole(state.servers[b, state.slots[b, job.first_slot].server].gpu_type) if running else -1
        for kind in range(len(room)):
            speed = 1.0 / slowness_on(state.slowness, job, kind)
            if kind < len(plan.scored_as) and plan.scored_as[kind] >= 0:
                speed *= np.exp(plan.type_score[b, j, plan.scored_as[kind]])
            if kind == present:
                speed *= 1.0 + rules.stay_bonus
            if room[kind] >= wanted and speed > fastest:
                best = kind
                fastest = speed
        if present >= 0 and best >= 0 and best != present and room[present] >= wanted:
            if _stays(state, job, plan.left[b, j], present, best, rules):
                best = present
        plan.gpu_type[b, j] = best
        if best >= 0:
            room[best] -= wanted


@linked_kernel
def _start_by_weight(state: State, b: int, plan: Plan, rules: Rules, physics: Physics) -> None:
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


@linked_kernel
def allocate(state: State, b: int, plan: Plan, rules: Rules, physics: Physics) -> None:
    """Carry out all that the allocator wants now in cluster b; every step of it leaves a legal state.

    Args:
        state: simulation arrays.
        b: cluster.
        plan: with the scores of its jobs; its notes of the last decision go.
        rules: of an `Allocator`.
        physics: performance model.
    """
    plan.counts[b, DECISIONS] += 1
    plan.counts[b, MOVES] = 0
    plan.counts[b, PLACES] = 0
    if num_live(state, b) == 0:
        return
    weigh(state, b, plan, rules)
    if rules.only_starts:
        _start_cpu_jobs(state, b, plan, physics)
        _start_by_weight(state, b, plan, rules, physics)
        return
    want_cores(state, b, plan, physics)
    choose_sizes(state, b, plan, rules)
    if state.slowness.shape[1] > 1:
        _choose_types(state, b, plan, rules)
    _by_size(state, b, plan)
    count = plan.counts[b, ORDERED]
    for i in range(count):
        shrink(state, b, whole(plan.queue[b, i]), plan, physics)
    _start_cpu_jobs(state, b, plan, physics)
    count_loose(state, b, plan)
    missing = 0
    for i in range(count):
        missing += not reach(state, b, whole(plan.queue[b, i]), plan, physics)
    if missing > 0:
        for i in range(count):
            reach(state, b, whole(plan.queue[b, i]), plan, physics)
    _backfill(state, b, plan, physics)
    if state.clusters[b].jobs_per_gpu > 1:
        share(state, b, plan, rules, physics)
    for s in range(state.servers.shape[1]):
        if state.servers[b, s].num_cores < UNLIMITED_CORES and state.servers[b, s].up != 0:
            deal_cores(state, b, s, plan, rules, physics)
