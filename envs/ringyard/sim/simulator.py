"""`Simulator`: one cluster, one job table, driven decision by decision."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ringyard.checks import NonNegativeInt, Positive, Seed, checked, shown
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError, PlacementError, SchedulerError
from ringyard.failures import Failures, no_failures
from ringyard.jobs import JobTable
from ringyard.observability import Observability
from ringyard.performance import PerformanceModel
from ringyard.restart import RestartCost, constant
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.lifecycle import apply_allocation, end_job, preempt
from ringyard.sim.engine.livelock import count_step, raise_if_livelocked
from ringyard.sim.engine.prepare import prepare_jobs
from ringyard.sim.engine.setup import new_state, reset_cluster
from ringyard.sim.feasibility import validate_allocation
from ringyard.sim.metrics import Metrics, Window, measure
from ringyard.sim.scratch import ScratchState
from ringyard.sim.view import SchedulingView
from ringyard.state.arrays import copy_state
from ringyard.state.records import Job, JobOutcome

TIMELINE_BINS = 512


@checked("simulator")
class Simulator:
    """An event-driven simulation of one job table on one cluster.

    `fork`, `copy.deepcopy` and `pickle` give an independent simulation at the same moment, which goes on as
    this one would; `copy.copy` a second name for this one.

    Args:
        cluster: servers and GPUs.
        jobs: what arrives.
        performance: how fast jobs run where they are placed.
        restart: seconds without progress when a stopped job starts again; none by default.
        round_seconds: also decide every this many seconds while jobs are in the system.
        seed: of the random placement rule.
        failures: servers that fail and return; none by default.
        rounds_only: decide at no other time; jobs arrive, end and free their GPUs between rounds. The first
            round is at 0.
        segment_rows: how many (job, server, start, stop) rows to keep for drawing; 0 keeps none.
        losses: count what each job's time is lost to (`Metrics.lost_to_contention` and its neighbours); costs
            some more time.

    Raises:
        WorkloadError: job data that makes no sense or does not fit the cluster.
        ConfigurationError: an argument of the wrong kind, `round_seconds` not above 0, or none although
            `rounds_only`.

    Examples:
        >>> from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
        >>> jobs = JobTable.from_columns([0.0], [2], [60.0])
        >>> sim = Simulator(Cluster.homogeneous(1, 4), jobs, ideal())
        >>> while not sim.done:
        ...     sim.apply([Allocation(int(j), (0, 1)) for j in sim.view().waiting])
        ...     sim.advance()
        >>> sim.metrics().mean_jct
        60.0
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: JobTable,
        performance: PerformanceModel,
        restart: RestartCost | None = None,
        round_seconds: Positive | None = None,
        seed: Seed = 0,
        segment_rows: NonNegativeInt = 0,
        failures: Failures | None = None,
        rounds_only: bool = False,
        losses: bool = False,
    ) -> None:
        if rounds_only and round_seconds is None:
            raise ConfigurationError(
                "simulator.rounds_only is True, but simulator.round_seconds is None; expected the seconds"
                " between two rounds"
            )
        self.cluster = cluster
        self.performance = performance
        self.physics = performance.physics
        rows = Job.zeros(1, len(jobs) + 1)  # `State.jobs`, prepared where they stay
        records = prepare_jobs(jobs, cluster, performance, restart or constant(0.0), rows[0, :-1])
        #: the table with every `duration_seconds` filled in
        self.jobs = replace(jobs, duration_seconds=records["isolated_seconds"].copy())
        self.state = new_state(
            cluster,
            performance,
            failures or no_failures(),
            num_clusters=1,
            num_jobs=len(jobs),
            num_classes=int(records["demand_class"].max()) + 1,
            round_seconds=round_seconds,
            rounds_only=rounds_only,
            timeline_bins=TIMELINE_BINS,
            segment_rows=segment_rows,
            losses=losses,
            jobs=rows,
        )
        reset_cluster(self.state, 0, len(records), np.inf, seed)
        self._scratch = ScratchState()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return float(self.state.clusters["now"][0])

    @property
    def done(self) -> bool:
        """Whether every job has finished."""
        return bool(self.state.clusters["num_done"][0] == len(self.jobs))

    def view(self, observability: Observability = Observability.EVERYTHING) -> SchedulingView:
        """What a scheduler sees now.

        Args:
            observability: flags of what the view may show. Everything by default, for interactive use.

        Raises:
            ConfigurationError: no `Observability`.
        """
        if not isinstance(observability, Observability):
            raise ConfigurationError(
                f"observability is {shown(observability)}; expected flags of Observability"
            )
        return SchedulingView(
            self.state, 0, self.cluster, self.jobs, self.performance, observability, self._scratch
        )

    def prioritise(self, priority: Any) -> None:
        """Order the waiting list by `priority` ascending, ties by row; before the first `advance`.

        Args:
            priority: [jobs] float64.

        Raises:
            SchedulerError: jobs wait already, or another number of priorities, or one that is no number.
        """
        values = np.asarray(priority)
        if values.shape != (len(self.jobs),) or values.dtype.kind not in "iuf" or np.isnan(values).any():
            raise SchedulerError(f"priority is {shown(priority)}; expected {len(self.jobs)} numbers")
        if self.state.clusters["num_waiting"][0]:
            raise SchedulerError("the order of the waiting list is set before the simulation begins")
        self.state.jobs["priority"][0, :-1] = priority

    def apply(self, allocations: Sequence[Allocation]) -> None:
        """Carry out allocations in the given order, at the present time.

        Raises:
            PlacementError: no list, or an allocation the cluster cannot hold; those before it are in force.
            SchedulerError: there is no end of allocations at this moment (`livelock.is_livelocked`).
        """
        if not isinstance(allocations, Sequence):
            raise PlacementError(f"allocations is {shown(allocations)}; expected a list of Allocation")
        for allocation in allocations:
            checked = validate_allocation(self.state, 0, self.cluster, allocation)
            if not count_step(self.state, 0, self.now):  # a sequence may have no end
                raise_if_livelocked(self.state, 0)
            if checked is not None:
                apply_allocation(self.state, 0, allocation.job, *checked, self.physics)
            elif allocation.reject:
                end_job(self.state, 0, allocation.job, int(JobOutcome.BLOCKED), self.physics)
            else:
                preempt(self.state, 0, allocation.job, self.physics)

    def advance(self) -> None:
        """Move to the next decision point.

        Raises:
            SchedulerError: jobs wait, but nothing runs and nothing will arrive; or time stands still
                (`livelock.is_livelocked`).
        """
        if not advance(self.state, 0, self.physics):
            raise_if_livelocked(self.state, 0)
            waiting = int(self.state.clusters["num_waiting"][0])
            raise SchedulerError(
                f"{waiting} jobs wait at {self.now:.0f} s, nothing runs and nothing will arrive;"
                " the scheduler must start one"
            )

    def metrics(self, measured: Window = (0.0, 1.0)) -> Metrics:
        """Measures over the jobs finished so far.

        Args:
            measured: shares of the jobs, in order of arrival, between which a job's times count: (0.2, 0.8)
                leaves out those that find the cluster empty and those that see it drain.

        Raises:
            ConfigurationError: no such shares, or no job is between them.
        """
        return measure(self.state, 0, self.jobs, measured)

    def fork(self) -> Self:
        """An independent copy at the same moment, for look-ahead."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.state = copy_state(self.state)
        copy._scratch = ScratchState()
        return copy
