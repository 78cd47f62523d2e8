"""The fixed degrees of partitioning that PAC-ML (arXiv 2301.13799) is compared with."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from ringyard import (
    Allocation,
    Cluster,
    JobTable,
    Observability,
    PlacementPlan,
    PlacementRule,
    SchedulingView,
)
from ringyard.checks import PositiveInt, checked
from ringyard.errors import SchedulerError
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs


def ramp_blocks(degree: int, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """GPUs of every symmetric block of that many servers, in the order in which they are tried.

    FOUND (public code): for degree = a b, blocks of sqrt(a) x sqrt(a) x b, of a x 1 x b and of a x b x 1
    (groups, racks, servers), if a (for the first sqrt(a)) is at most the number of groups and of racks, and b
    that of servers in a rack; after them diagonals, one server in as many groups and racks as the degree.

    Args:
        degree: 1 or more.
        shape: groups, racks in each group, servers in each rack.

    Returns:
        GPU ids, counted group by group and rack by rack; none if there is no such block at all.
    """
    groups, racks, servers = shape
    shapes: list[tuple[int, int, int]] = []
    for b in range(1, min(degree, servers) + 1):
        a, rest = divmod(degree, b)
        if rest:
            continue
        root = round(a**0.5)
        if root * root == a and root <= min(groups, racks):
            shapes.append((root, root, b))
        if a <= min(groups, racks):
            shapes += [(a, 1, b), (a, b, 1)]
    blocks = [
        tuple(
            ((group + c) * racks + rack + r) * servers + server + s
            for c in range(of_groups)
            for r in range(of_racks)
            for s in range(of_servers)
        )
        for of_groups, of_racks, of_servers in shapes
        for group in range(groups - of_groups + 1)
        for rack in range(racks - of_racks + 1)
        for server in range(servers - of_servers + 1)
    ]
    if shapes:
        blocks += [
            tuple(((group + n) * racks + rack + n) * servers + server for n in range(degree))
            for group in range(groups - degree + 1)
            for rack in range(racks - degree + 1)
            for server in range(servers)
        ]
    return blocks


@checked("partitioning")
class PartitioningHeuristic(Scheduler):
    """Each job is accepted or rejected when it arrives, on a degree of partitioning that a simple rule names.

    FOUND (public code): degrees 1 and the even numbers up to 16 as far as GPUs are free; Para_max takes the
    largest, Para_min the first that is at least ceil(1 / beta), beta being the job's acceptable over its
    sequential completion time; a random choice may also reject; "sequential" is degree 1. A job that finds
    no room is blocked. RAMP gives a job a symmetric block of (groups, racks, servers): with `ramp_shape`
    (4, 4, 2) degrees 10, 12 and 14 do not exist, and a job all of whose blocks are touched is blocked. Here a
    job without an acceptable completion time waits instead, and degrees outside a job's range of GPUs do not
    exist for it.

    Args:
        placement: where GPUs are taken.
        policy: "para_max", "para_min", "random" or "sequential".
        most_workers: largest degree.
        ramp_shape: communication groups, racks in each, servers in each rack, of one GPU: jobs take the first
            free symmetric block there; None: any free GPUs will do, where `placement` finds them.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    capabilities = Capabilities.RESIZE
    round_seconds: float | None = None

    def __init__(
        self,
        placement: PlacementRule,
        policy: Literal["para_max", "para_min", "random", "sequential"] = "para_max",
        max_degree: Annotated[int, "[1, 1000000]"] = 16,
        ramp_shape: tuple[PositiveInt, PositiveInt, PositiveInt] | None = None,
    ) -> None:
        self.name = policy
        self.observability = Observability.SIZES
        if policy == "para_min":
            self.observability |= Observability.DURATIONS
        self.placement = placement
        self._degrees = [1, *range(2, max_degree + 1, 2)]
        self._ramp_shape = ramp_shape
        self._blocks: dict[int, list[tuple[int, ...]]] = {}
        if ramp_shape is not None:
            self._blocks = {degree: ramp_blocks(degree, ramp_shape) for degree in self._degrees}
            self._degrees = [degree for degree in self._degrees if self._blocks[degree]]

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Draw from `rng` from now on.

        Raises:
            SchedulerError: no job has an acceptable completion time, so that nothing is to be blocked; or the
                cluster has not the GPUs of `ramp_shape`.
        """
        if self._ramp_shape is not None and int(np.prod(self._ramp_shape)) != cluster.num_gpus:
            raise SchedulerError(
                f"{self.name}: ramp_shape is {tuple(self._ramp_shape)} and the cluster has"
                f" {cluster.num_gpus} GPUs; expected as many as the product, or ramp_shape=null"
            )
        if np.isinf(jobs.acceptable_jct).all():
            raise SchedulerError(
                f"{self.name} accepts or rejects jobs by their acceptable completion time, and none has one;"
                " use workload=partitioning, or set the job table's acceptable_jct"
            )
        self._rng = rng

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Accept or reject, by arrival."""
        draft = PlacementPlan(view)
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

    def _placed(self, draft: PlacementPlan, job: int, degrees: Sequence[int]) -> Allocation | None:
        """The job on the first of these degrees that finds room; degree 0 is none."""
        for degree in degrees:
            if degree:
                found = self._on_block(draft, job, degree)
                if found is not None:
                    return found
        return None

    def _on_block(self, draft: PlacementPlan, job: int, degree: int) -> Allocation | None:
        """The job on so many GPUs, in a symmetric block if the cluster has a shape."""
        if self._ramp_shape is None:
            return draft.place(self.placement, job, Allocation(job, tuple(range(degree))))
        taken = set(np.flatnonzero((draft.jobs_of_gpu >= 0).any(axis=1)).tolist())
        for block in self._blocks.get(degree, ()):
            found = Allocation(job, block)
            if taken.isdisjoint(block) and draft.allocate(found):
                return found
        return None

    def _valid(self, view: SchedulingView, job: int, free: int) -> list[int]:
        """Degrees of the job that so many free GPUs allow, ascending."""
        low, high = int(view.column("min_gpus")[job]), int(view.column("max_gpus")[job])
        own = self._degrees
        if self._ramp_shape is None:
            own = sorted({*own, int(view.column("asked_gpus")[job])})
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
