"""The fixed degrees of partitioning that PAC-ML (arXiv 2301.13799) is compared with."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from ringyard.checks import checked
from ringyard.cluster import Cluster
from ringyard.errors import SchedulerError
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.draft import Draft
from ringyard.sim.view import SchedulingView
from ringyard_baselines.scheduler import Information, Powers, Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs

__all__ = ["PartitioningHeuristic"]

POLICIES = ("para_max", "para_min", "random", "sequential")


@checked("partitioning")
class PartitioningHeuristic(Scheduler):
    """Each job is accepted or rejected when it arrives, on a degree of partitioning that a simple rule names.

    FOUND (public code): degrees 1 and the even numbers up to 16 as far as GPUs are free; Para_max takes the
    largest, Para_min the first that is at least ceil(1 / beta), beta being the job's acceptable over its
    sequential completion time; a random choice may also reject; "sequential" is degree 1. A job that finds
    no room is blocked. Here a job without an acceptable completion time waits instead, and degrees outside a
    job's range of GPUs do not exist for it.

    Args:
        placement: where GPUs are taken.
        policy: "para_max", "para_min", "random" or "sequential".
        most_workers: largest degree.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    may = Powers.RESIZES
    round_seconds: float | None = None

    def __init__(
        self,
        placement: PlacementRule,
        policy: Literal["para_max", "para_min", "random", "sequential"] = "para_max",
        most_workers: Annotated[int, "[1, 1000000]"] = 16,
    ) -> None:
        self.name = policy
        self.information = Information.SIZES
        if policy == "para_min":
            self.information |= Information.DURATIONS
        self.placement = placement
        self._degrees = [1, *range(2, most_workers + 1, 2)]
        self._rng = np.random.default_rng(0)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Draw from `rng` from now on.

        Raises:
            SchedulerError: no job has an acceptable completion time, so that nothing is to be blocked.
        """
        if np.isinf(jobs.acceptable_jct).all():
            raise SchedulerError(
                f"{self.name} accepts or rejects jobs by their acceptable completion time, and none has one;"
                " use workload=partitioning, or set the job table's acceptable_jct"
            )
        self._rng = rng

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Accept or reject, by arrival."""
        draft = Draft(view)
        allocations = start_cpu_jobs(view, draft, self.placement)
        deadline = view.column("deadline_seconds")
        for job in np.intersect1d(view.gpu_jobs, view.waiting).tolist():
            valid = self._valid(view, job, draft.num_free_gpus)
            degrees = [self._degree(view, job, valid)] if valid else []
            if np.isinf(deadline[job]):  # what fits, rather than nothing
                degrees += valid[::-1]
            found = self._placed(draft, job, degrees)
            if found is not None:
                allocations.append(found)
            elif np.isfinite(deadline[job]):
                allocations.append(Allocation(job, reject=True))
        return allocations

    def _placed(self, draft: Draft, job: int, degrees: Sequence[int]) -> Allocation | None:
        """The job on the first of these degrees that finds room; degree 0 is none."""
        for degree in degrees:
            if degree:
                found = draft.place(self.placement, job, Allocation(job, tuple(range(degree))))
                if found is not None:
                    return found
        return None

    def _valid(self, view: SchedulingView, job: int, free: int) -> list[int]:
        """Degrees of the job that so many free GPUs allow, ascending."""
        low, high = int(view.column("min_gpus")[job]), int(view.column("max_gpus")[job])
        own = sorted({*self._degrees, int(view.column("asked_gpus")[job])})
        return [u for u in own if low <= u <= min(high, free)]

    def _degree(self, view: SchedulingView, job: int, valid: Sequence[int]) -> int:
        """The policy's choice among the valid degrees; 0: none."""
        if self.name == "para_max":
            return valid[-1]
        if self.name == "random":
            choices = [0, *valid] if np.isfinite(view.column("deadline_seconds")[job]) else valid
            return int(self._rng.choice(choices))
        if self.name == "sequential":
            return valid[0]
        acceptable = view.column("deadline_seconds")[job] - view.submit_seconds[job]
        least = float(np.ceil(np.round(view.column("isolated_seconds")[job] / acceptable, 9)))
        return next((u for u in valid if u >= least), 0 if np.isfinite(acceptable) else valid[-1])
