"""`Simulator`: one cluster and one job table, simulated from decision point to decision point."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ringyard.checks import NonNegativeInt, Positive, Seed, checked, shown
from ringyard.cluster import Cluster
from ringyard.compiled import entry_point
from ringyard.errors import ConfigurationError, PlacementError, SchedulerError
from ringyard.failures import Failures, no_failures
from ringyard.jobs import JobTable
from ringyard.observability import Observability
from ringyard.performance import PerformanceModel
from ringyard.restart import RestartCost, constant
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.livelock import raise_if_livelocked
from ringyard.sim.engine.prepare import prepare_jobs
from ringyard.sim.engine.setup import new_state, reset_cluster
from ringyard.sim.feasibility import FITS, LIVELOCK, carry_out, check_allocation, read_request
from ringyard.sim.metrics import Metrics, Window, measure
from ringyard.sim.scratch import ScratchState
from ringyard.sim.view import SchedulingView
from ringyard.state.arrays import copy_state
from ringyard.state.records import Job

TIMELINE_BINS = 512


@checked("simulator")
class Simulator:
    """An event-driven simulation of one job table on one cluster.

    `fork`, `copy.deepcopy` and `pickle` give an independent simulation at the same moment, with the same
    future. `copy.copy` shares the state with this one.

    Args:
        cluster: servers and GPUs.
        jobs: the jobs, in order of submission.
        performance: seconds of an iteration of a job on given GPUs.
        restart: seconds without progress when a preempted job starts again. None: no such cost.
        round_seconds: add a decision point every so many seconds while jobs are in the system. None: no
            rounds.
        seed: seed of random placement rules, stragglers, failures and learning curves.
        segment_rows: number of past allocations, one (job, server, start, stop) row each, kept for drawing.
        failures: when servers fail and for how long. None: they do not.
        rounds_only: make rounds the only decision points. Jobs arrive, end and free their GPUs between them.
            The first round is at time 0.
        losses: count how much time each job loses to each cause, which is slower (`lost_to_...` of `Metrics`
            and `ringyard.sim.engine.slowdown_accounting`).

    Raises:
        WorkloadError: invalid job data, or a job that does not fit the cluster.
        ConfigurationError: an argument of the wrong type or range, or `rounds_only` without `round_seconds`.

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
                "simulator.rounds_only is True and simulator.round_seconds is None"
                "; give round_seconds, the time between two decision points"
            )
        self.cluster = cluster
        self.performance = performance
        self.physics = performance.physics
        rows = Job.zeros(1, len(jobs) + 1)  # `State.jobs`: records are prepared in place
        records = prepare_jobs(jobs, cluster, performance, restart or constant(0.0), rows[0, :-1])
        #: the job table, with `duration_seconds` of all jobs: run times alone in the cluster, as asked
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
        """Seconds since the start of the simulation."""
        return float(self.state.clusters["now"][0])

    @property
    def done(self) -> bool:
        """Whether all jobs have left the system."""
        return bool(self.state.clusters["num_done"][0] == len(self.jobs))

    def view(self, observability: Observability = Observability.EVERYTHING) -> SchedulingView:
        """Return the running simulation as a scheduler sees it.

        Args:
            observability: flags of what the view may show. Everything by default, for interactive use.

        Raises:
            ConfigurationError: `observability` is not an `Observability`.
        """
        if not isinstance(observability, Observability):
            raise ConfigurationError(
                f"observability is {shown(observability)}; expected flags of Observability"
            )
        source = (self.state, 0, self.cluster, self.jobs, self.performance)
        return SchedulingView(*source, observability, self._scratch)

    def prioritise(self, priority: Any) -> None:
        """Order the waiting list by `priority`, ascending, before the first `advance`. Ties go by row.

        Args:
            priority: [jobs] numbers.

        Raises:
            SchedulerError: jobs are waiting already, or `priority` is not [jobs] numbers.
        """
        values = np.asarray(priority)
        if values.shape != (len(self.jobs),) or values.dtype.kind not in "iuf" or np.isnan(values).any():
            raise SchedulerError(f"priority is {shown(priority)}; expected {len(self.jobs)} numbers")
        if self.state.clusters["num_waiting"][0]:
            raise SchedulerError("jobs wait already; call prioritise before the first advance")
        self.state.jobs["priority"][0, :-1] = priority

    def apply(self, allocations: Sequence[Allocation]) -> None:
        """Carry out allocations in the given order, at the present time.

        Args:
            allocations: one start, change, preemption or rejection each. A later one sees the effect of the
                earlier.

        Raises:
            PlacementError: not a sequence, or an allocation that the cluster cannot hold. The allocations
                before it are in force.
            SchedulerError: the sequence does not end (`livelock.is_livelocked`).
        """
        if not isinstance(allocations, Sequence):
            raise PlacementError(f"allocations is {shown(allocations)}; expected a list of Allocation")
        carry, plans = entry_point(carry_out), self.performance.plans
        for allocation in allocations:
            if plans is not None:
                check_allocation(self.state, 0, self.cluster, allocation, plans)
            cause = carry(self.state, 0, read_request(allocation), self.physics)
            if cause == LIVELOCK:  # a user's Sequence may never end
                raise_if_livelocked(self.state, 0)
            elif cause != FITS:
                check_allocation(self.state, 0, self.cluster, allocation)

    def advance(self) -> None:
        """Let time pass to the next decision point.

        Raises:
            SchedulerError: jobs wait, but no job runs and none will arrive. Or the simulation makes no
                progress (`livelock.is_livelocked`).
        """
        if not entry_point(advance)(self.state, 0, self.physics):
            raise_if_livelocked(self.state, 0)
            waiting = int(self.state.clusters["num_waiting"][0])
            raise SchedulerError(
                f"{waiting} jobs wait at {self.now:.0f} s, no job runs and none will arrive"
                "; expected the scheduler to start a waiting job"
            )

    def metrics(self, measured: Window = (0.0, 1.0)) -> Metrics:
        """Summarise the jobs that have finished so far.

        Args:
            measured: (first, last) fractions of the jobs in order of arrival. Only jobs in between count:
                (0.2, 0.8) leaves out those that find the cluster empty and those that see it drain.

        Raises:
            ConfigurationError: invalid fractions, or no job between them.
        """
        return measure(self.state, 0, self.jobs, measured)

    def fork(self) -> Self:
        """Return an independent copy at the same moment, for look-ahead."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.state = copy_state(self.state)
        copy._scratch = ScratchState()
        return copy
