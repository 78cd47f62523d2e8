"""Fixed rules for the degree of partitioning, with which PAC-ML (arXiv 2301.13799) is compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import PositiveInt, checked
from ringyard.errors import SchedulerError
from ringyard.observability import Observability
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs


def ramp_blocks(degree: int, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the GPUs of every symmetric block of `degree` servers, in the order in which they are tried.

    FOUND (public code): for degree = a b, blocks of sqrt(a) x sqrt(a) x b, of a x 1 x b and of a x b x 1
    (groups, racks, servers: the `shape`). a, or sqrt(a) for the first, must not exceed the numbers of groups
    and racks, and b not that of servers in a rack. Diagonals follow, with one server in as many groups and
    racks as the degree. GPU ids count group by group and rack by rack.
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
    ids = np.arange(np.prod(shape)).reshape(shape)
    blocks = [
        ids[group : group + of_groups, rack : rack + of_racks, server : server + of_servers]
        for of_groups, of_racks, of_servers in shapes
        for group in range(groups - of_groups + 1)
        for rack in range(racks - of_racks + 1)
        for server in range(servers - of_servers + 1)
    ]
    if shapes:
        blocks += [
            ids[range(group, group + degree), range(rack, rack + degree)][:, server]
            for group in range(groups - degree + 1)
            for rack in range(racks - degree + 1)
            for server in range(servers)
        ]
    return [tuple(block.ravel().tolist()) for block in blocks]


@checked("partitioning")
@dataclass(eq=False)
class PartitioningHeuristic(Scheduler):
    """Accepts or rejects each job at its arrival, with a degree of partitioning (GPUs) by a simple rule.

    FOUND (public code): degrees are 1 and the even numbers up to 16, as far as GPUs are free. Para_max takes
    the largest. Para_min takes the first that is at least ceil(1 / beta), where beta is the job's acceptable
    over its sequential completion time. The random choice may also reject. "sequential" is degree 1. A job
    without room is blocked. RAMP gives a job a symmetric block of (groups, racks, servers). With `ramp_shape`
    (4, 4, 2) degrees 10, 12 and 14 do not exist, and a job is blocked if all its blocks are in use. Not as
    published: a job without an acceptable completion time waits, and degrees outside a job's range of GPUs do
    not exist for it. "fixed" gives every job `max_degree` GPUs.
    """

    capabilities = Capabilities.RESIZE

    placement: PlacementRule  #: where jobs go
    #: "para_max", "para_min", "random", "sequential" or "fixed"
    policy: Literal["para_max", "para_min", "random", "sequential", "fixed"] = "para_max"
    max_degree: Annotated[int, "[1, 1000000]"] = 16  #: largest degree, 1 or more
    #: communication groups, racks in each, servers in each rack, of one GPU each. Jobs take the first free
    #: symmetric block. None: any free GPUs that `placement` finds.
    ramp_shape: tuple[PositiveInt, PositiveInt, PositiveInt] | None = None
    #: whether a job without room waits until its acceptable time can no longer be kept, as it may not in
    #: PAC-ML
    may_wait: bool = False

    def __post_init__(self) -> None:
        self.name, self.observability = self.policy, Observability.SIZES
        if self.policy == "para_min":
            self.observability |= Observability.DURATIONS
        fixed = self.policy == "fixed"
        self._degrees = [self.max_degree] if fixed else [1, *range(2, self.max_degree + 1, 2)]
        self._blocks: dict[int, list[tuple[int, ...]]] = {}
        if self.ramp_shape is not None:
            self._blocks = {degree: ramp_blocks(degree, self.ramp_shape) for degree in self._degrees}
            self._degrees = [degree for degree in self._degrees if self._blocks[degree]]

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Check that jobs have acceptable completion times and the cluster the GPUs of `ramp_shape`."""
        if self.ramp_shape is not None and int(np.prod(self.ramp_shape)) != cluster.num_gpus:
            raise SchedulerError(
                f"{self.name}: ramp_shape is {tuple(self.ramp_shape)} and the cluster has {cluster.num_gpus}"
                f" GPUs; expected {np.prod(self.ramp_shape)} GPUs, or ramp_shape=null"
            )
        if np.isinf(jobs.acceptable_jct).all():
            raise SchedulerError(
                f"{self.name} accepts or rejects jobs by their acceptable completion time, and none has one;"
                " use workload=partitioning, or set the job table's acceptable_jct"
            )
        self._rng = rng

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Accept or reject waiting jobs, by arrival."""
        plan = PlacementPlan(view)
        allocations = start_cpu_jobs(view, plan, self.placement)
        deadline = view.column("blocked_seconds")
        for job in np.intersect1d(view.gpu_jobs, view.waiting).tolist():
            # the job's degrees for which there are free GPUs, ascending
            low, high = int(view.column("min_gpus")[job]), int(view.column("max_gpus")[job])
            own = self._degrees
            if self.ramp_shape is None and self.policy != "fixed":
                own = sorted({*own, int(view.column("asked_gpus")[job])})
            valid = [u for u in own if low <= u <= min(high, plan.num_free_gpus)]
            degrees = [self._degree(view, job, valid)] if valid else []
            if np.isinf(deadline[job]):  # any degree that fits is better than to wait
                degrees += valid[::-1]
            tried = (self._on_block(plan, job, degree) for degree in degrees if degree)
            found = next((one for one in tried if one is not None), None)
            if found is not None:
                allocations.append(found)
            elif np.isfinite(deadline[job]) and not self.may_wait:
                allocations.append(Allocation(job, reject=True))
        return allocations

    def _on_block(self, plan: PlacementPlan, job: int, degree: int) -> Allocation | None:
        """Place the job on `degree` GPUs, in a symmetric block if the cluster has a shape."""
        if self.ramp_shape is None:
            return plan.place(self.placement, job, Allocation(job, tuple(range(degree))))
        taken = set(np.flatnonzero((plan.jobs_of_gpu >= 0).any(axis=1)).tolist())
        for block in self._blocks.get(degree, ()):
            found = Allocation(job, block)
            if taken.isdisjoint(block) and plan.allocate(found):
                return found
        return None

    def _degree(self, view: SchedulingView, job: int, valid: Sequence[int]) -> int:
        """Return the policy's choice among the valid degrees, 0 to reject."""
        if self.policy in ("para_max", "fixed"):
            return valid[-1]
        if self.policy == "random":
            choices = [0, *valid] if np.isfinite(view.column("blocked_seconds")[job]) else valid
            return int(self._rng.choice(choices))
        if self.policy == "sequential":
            return valid[0]
        acceptable = view.column("blocked_seconds")[job] - view.submit_seconds[job]
        least = float(np.ceil(np.round(view.column("isolated_seconds")[job] / acceptable, 9)))
        return next((u for u in valid if u >= least), 0 if np.isfinite(acceptable) else valid[-1])
