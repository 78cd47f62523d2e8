"""The allocator as a scheduler: jobs are weighted by an estimate of their seconds left."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.allocator import (
    UNKNOWN_SECONDS,
    AllocationPlan,
    Allocator,
    AllocatorConfig,
    Gamma,
    RunningFactor,
    SizePower,
    UnknownSeconds,
    attained,
    empty_allocation_plan,
    job_utilities,
    logged_moves,
    predicted,
    run_allocator,
    write_utilities,
)
from ringyard.checks import NonNegative, Positive, checked
from ringyard.compiled import kernel
from ringyard.observability import check_reads
from ringyard.performance.model import Physics
from ringyard.sim.engine.events import advance
from ringyard.sim.speeds import IsolatedJobs
from ringyard.sim.view import SchedulingView, unrestricted
from ringyard.state.arrays import State, copy_state
from ringyard_baselines.policies.ordered import raise_stalled
from ringyard_baselines.scheduler import Capabilities, Scheduler


@kernel
def _run(state: State, b: int, plan: AllocationPlan, config: AllocatorConfig, physics: Physics) -> bool:
    """Simulate until every job has finished. Return False if jobs wait and no event can follow."""
    cluster = state.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        run_allocator(state, b, plan, config, physics)
        if not advance(state, b, physics):
            return False
    return True


def allocator_capabilities(allocator: Allocator) -> Capabilities:
    """Return what an allocator may do to jobs."""
    if allocator.start_only is not None:
        return Capabilities.START
    return Capabilities.PREEMPT | Capabilities.RESIZE | Capabilities.CORES


@checked("scheduler")
@dataclass(eq=False)
class AllocatingScheduler(Scheduler):
    """The allocator (`ringyard.allocator`) with a score of 0 for every job.

    Raises:
        ConfigurationError: an argument of another kind.
    """

    published = False

    allocator: Allocator  #: parameters of the allocator
    name: str = "allocator"  #: name in tables
    #: length of a round, seconds. A round's end is a decision point. None: no rounds.
    round_seconds: Positive | None = None

    def __post_init__(self) -> None:
        self.capabilities = allocator_capabilities(self.allocator)
        self.observability = self.allocator.observability
        self._plan: AllocationPlan | None = None
        self._memory = np.zeros((0, 0))

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget the speeds of jobs, and clear the memory of the estimate."""
        estimate = self.allocator.estimate
        check_reads(estimate.seconds, self.observability, f"{self.name}'s estimate {estimate.name}")
        self._plan, self._memory = None, estimate.memory_of(jobs)

    def _plan_for(self, view: SchedulingView, logged: bool) -> AllocationPlan:
        if self._plan is None:
            view.check("asked_gpus")  # shown by the same flag as all that profiling reads
            utilities = job_utilities(IsolatedJobs.of_view(view), self.allocator.size_power)
            sizes = utilities.utility.shape[1] - 1
            state, memory = unrestricted(view).state, self.allocator.estimate.memory
            self._plan = empty_allocation_plan(state, sizes, memory, logged)
            write_utilities(self._plan, 0, utilities)
            self._plan.estimate_memory[0] = self._memory
        return self._plan

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Return the moves that the allocator makes on a copy of the simulation."""
        plan = self._plan_for(view, True)
        now, b, physics, _ = unrestricted(view)
        state = copy_state(now)
        run_allocator(state, b, plan, self.allocator.config, physics)
        return logged_moves(plan, state, b)

    def run_compiled(self, sim: Simulator) -> None:
        """Simulate until every job has finished, with the decisions of `decide` in one compiled loop."""
        plan = self._plan_for(sim.view(self.observability), False)
        if not _run(sim.state, 0, plan, self.allocator.config, sim.physics):
            raise_stalled(sim)


@checked("scheduler")
def allocator(
    gamma: Gamma = 1.0,
    size_power: SizePower = 0.7,
    running_factor: RunningFactor = 1.0,
    unknown_seconds: UnknownSeconds = UNKNOWN_SECONDS,
    preemption_price: NonNegative = 0.0,
    estimate: Literal["predicted", "attained"] = "predicted",
) -> AllocatingScheduler:
    """Return the allocator with predicted or attained service as its estimate of the seconds left.

    Args:
        gamma: see `Allocator`.
        size_power: see `Allocator`.
        running_factor: see `Allocator`.
        unknown_seconds: see `ringyard.allocator.predicted` and `attained`.
        preemption_price: see `Allocator`.
        estimate: "predicted": predicted seconds left. "attained": as many seconds as the job has run.

    Raises:
        ConfigurationError: an argument out of its range.
    """
    by_prediction = estimate == "predicted"
    seconds_left = (predicted if by_prediction else attained)(unknown_seconds)
    options = Allocator(
        gamma,
        size_power,
        running_factor=running_factor,
        preemption_price=preemption_price,
        estimate=seconds_left,
    )
    return AllocatingScheduler(options, "allocator" if by_prediction else "allocator_attained")
