"""Sia (Jayaram Subramanya et al., SOSP 2023): GPU type and number of GPUs of all jobs by integer program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from ringyard import (
    Allocation,
    Cluster,
    JobTable,
    Observability,
    PlacementPlan,
    PlacementRule,
    SchedulingView,
)
from ringyard.checks import NonNegative, Positive, PositiveInt, checked
from ringyard.errors import ConfigurationError
from ringyard.performance.plan_table import FASTEST
from ringyard.placement import pack_on_types
from ringyard.sim.speeds import BatchRule, IsolatedJobs, speed_table
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import start_cpu_jobs, work_conserving
from ringyard_baselines.tools.time_slots import TimeSlots

_LARGEST_VALUE = 3000.0  # of a normalised goodput to the power p
_DECIMALS = 2  # to which these values are rounded
_GROWTH = 2  # most GPUs of a job / most that it has held
_MOST = 1 << 30  # more GPUs than there are


def choose_configurations(
    cost: NDArray[np.float64],
    gpus: NDArray[np.int64],
    gpu_type: NDArray[np.int64],
    capacity: NDArray[np.int64],
    fixed: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Return [jobs] a configuration of each job, -1 for none, of least total cost.

    Args:
        cost: [jobs, configurations] cost, infinite where a job cannot have the configuration. None costs 0.
        gpus: [jobs, configurations] number of GPUs.
        gpu_type: [configurations] position of their type in `capacity`.
        capacity: [types] number of GPUs.
        fixed: [jobs] whether a job must have a configuration.
    """
    job, configuration = np.nonzero((cost < 0) | (fixed[:, None] & np.isfinite(cost)))
    chosen = np.full(len(cost), -1)
    if not len(job):
        return chosen
    rows = np.concatenate([job, len(cost) + gpu_type[configuration]])
    entries = np.concatenate([np.ones(len(job)), gpus[job, configuration]])
    shape = len(cost) + len(capacity), len(job)
    matrix = csc_array((entries, (rows, np.tile(np.arange(len(job)), 2))), shape=shape)
    least = np.concatenate([fixed, np.zeros(len(capacity))])
    most = np.concatenate([np.ones(len(cost)), capacity])
    solved = milp(
        cost[job, configuration],
        integrality=np.ones(len(job)),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, least, most),
        options={"mip_rel_gap": 0.0, "presolve": False},  # presolving takes longer here
    )
    chosen[job[solved.x > 0.5]] = configuration[solved.x > 0.5]
    return chosen


@dataclass(frozen=True, eq=False)
class _Profiles:
    """What jobs gain by each configuration. The last one of each type is the number of GPUs asked for."""

    goodput: NDArray[np.float64]  #: [jobs, configurations] normalised. 0: the job cannot have it
    gpus: NDArray[np.int64]  #: [jobs, configurations] number of GPUs
    servers: NDArray[np.int64]  #: [jobs, configurations] fewest servers that hold so many
    batch: NDArray[np.float64]  #: [jobs, configurations] global batch in samples
    gpu_type: NDArray[np.int64]  #: [configurations] position in `Cluster.distinct_gpu_types`, or 0

    @classmethod
    def of_view(cls, view: SchedulingView, max_gpus: int) -> "_Profiles":
        """Profile all jobs of the workload on up to `max_gpus` GPUs of each type."""
        asked = view.column("asked_gpus").astype(np.int64)
        fixed, each = view.column("fixed_memory_bytes"), view.column("sample_memory_bytes")
        parts, of_type, last = [], list[int](), list[bool]()
        jobs = IsolatedJobs.of_view(view)
        for position, kind in enumerate(view.cluster.distinct_gpu_types or ("",)):
            here = jobs.on_type(kind) if kind else jobs
            table = speed_table(here, BatchRule.GOODPUT, max_gpus, FASTEST)
            server = max(here.cluster.gpus_per_server)
            sizes = [1 << k for k in range((server - 1).bit_length())]
            sizes += range(server, table.sizes + 1, server)
            gpus = np.tile([*(size for size in sizes if size <= table.sizes), 0], (len(asked), 1))
            gpus[:, -1] = np.where(asked <= table.sizes, asked, 0)
            rows = np.maximum(table.place, 0)[:, None]
            batch = table.batch[rows, gpus]
            needed = fixed[:, None] + each[:, None] * batch / np.maximum(gpus, 1)
            fits = (needed <= here.cluster.gpu_memory_bytes.min()) & (table.place >= 0)[:, None]
            speed = np.where(fits, np.nan_to_num(table.speed[rows, gpus]), 0.0)
            parts.append((speed, gpus, here.cluster.fewest_servers(gpus), batch))
            of_type += [position] * gpus.shape[1]
            last += [False] * (gpus.shape[1] - 1) + [True]
        speed, gpus, servers, batch = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        own = np.array(last)
        speed[:, own] *= ~(speed[:, ~own] > 0).any(axis=1, keepdims=True)
        least = np.where(speed > 0, speed, np.inf).min(axis=1, keepdims=True)
        fewest = np.where(speed > 0, gpus, _MOST).min(axis=1, keepdims=True)
        return cls(speed / least * fewest, gpus, servers, batch, np.array(of_type))


def _place_together(
    plan: PlacementPlan, rule: PlacementRule, shape: Allocation, servers: int, movable: Sequence[Allocation]
) -> tuple[Allocation | None, list[int]]:
    """Place a job by a rule on at most so many servers. If it finds no room, `movable` jobs leave theirs.

    Those on the servers with most free GPUs leave first, the smallest of a server first. Jobs that left in
    vain return. Returned are the allocation, None if there is no room anyway, and the jobs that have left.
    """
    server_of_gpu, free = plan.cluster.server_of_gpu, plan.free_gpus_per_server

    def urgency(one: Allocation) -> tuple[int, int, int, int]:
        server = int(server_of_gpu[one.gpu_ids[0]])
        return -int(free[server]), server, len(one.gpu_ids), one.job

    left, found = list[Allocation](), plan.place(rule, shape.job, shape)
    for one in [*sorted(movable, key=urgency), None]:
        if found is not None and len(set(server_of_gpu[list(found.gpu_ids)])) <= servers:
            break
        plan.release(shape.job)
        found = None
        if one is not None:
            plan.release(one.job)
            left.append(one)
            found = plan.place(rule, shape.job, shape)
    return found, [one.job for one in left if not plan.allocate(one)]


@checked("sia")
@dataclass(eq=False)
class Sia(Scheduler):
    """Sia of Jayaram Subramanya et al. (SOSP 2023): each round an integer program gives GPUs to all jobs.

    A configuration is a GPU type and a number of GPUs on it. Each job gets one or none, so that the sum of
    normalised goodputs to the power p, with `unallocated` for each job that gets none, is least (p < 0) or
    largest (p > 0).

    FOUND (public code): rounds of 60 s, p = -0.5, 1.1 for a job without GPUs. Configurations are powers of
    two in a server and multiples of whole servers. A job's least goodput counts as its fewest GPUs. Values
    are rounded to two decimals and at most 3000. A running job's other configurations count (age - seconds
    lost in restarts) / (age + seconds of a restart) times, once it is older than a restart. A job begins on
    its fewest GPUs, and at most doubles the most that it has held, up to 64. It does not change while it
    restarts. Rigid jobs have one number of GPUs on each type. Jobs that keep their configuration keep their
    place, unless another finds no room on as few servers as hold it. A penalty for changes, `lambda_a`, is
    set in the public code and not used.

    Not as published: goodputs come from profiles, also for types on which a job has not yet run. The solver
    is HiGHS, and the optimum is exact (CBC, within 1e-4). A restart costs what a resize costs in the
    simulated cluster (25 to 250 s by model in the public code). Jobs with execution plans run in the fastest.
    Assumed: ties are broken as `tie_break` says. An elastic job with no configuration in its range has the
    GPUs that it asks for. A job that needs GPUs of several types starts where `placement` finds room, and
    stays.

    Raises:
        ConfigurationError: power is 0.
    """

    name = "sia"
    observability = Observability.SIZES | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE

    #: where jobs go if all GPUs are of one type, or if servers lack other resources. Of several types each is
    #: packed (`pack_on_types`).
    placement: PlacementRule
    round_seconds: Positive = 60.0  #: length of a round in seconds
    power: Annotated[float, "[-100, 100]"] = -0.5  #: p, not 0
    unallocated: NonNegative = 1.1  #: lambda, what a job without GPUs counts
    #: what a change of a job counts, and the last job in order of submission over the first. Assumption.
    tie_break: NonNegative = 1e-4
    max_gpus: PositiveInt = 64  #: largest number of GPUs of a job, unless it requests more

    def __post_init__(self) -> None:
        if self.power == 0:
            raise ConfigurationError("sia.power is 0; expected in [-100, 0) or (0, 100]")

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles and sizes (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._profiles: _Profiles | None = None
        self._most_held = np.zeros(len(jobs), np.int64)  # GPUs
        kinds = cluster.distinct_gpu_types
        several = len(kinds) > 1
        self._rules = [pack_on_types(cluster, [kind]) for kind in kinds] if several else [self.placement]

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Solve the program and place the jobs when a round begins, or when no job runs."""
        if not self._slots.begins(view) and len(view.running):
            return []
        known = self._profiles = self._profiles or _Profiles.of_view(view, self.max_gpus)
        jobs = view.gpu_jobs
        held = {job: view.allocation_of(job) for job in jobs.tolist() if view.gpus_of(job)}
        typed = np.any(known.goodput[jobs] > 0, axis=1)
        chosen, stays = self._choose(view, known, jobs, held, typed)
        types, type_of_gpu, plan = known.gpu_type, view.type_of_gpu, PlacementPlan(view)
        allocations = plan.preempt([job for job in held if job not in chosen and job not in stays])
        queue = chosen.keys() - stays.keys()

        def order(job: int) -> tuple[bool, int, int]:
            """Jobs that shrink come first, then those with most GPUs."""
            size = int(known.gpus[job, chosen[job]])
            return job not in held or size > len(held[job].gpu_ids), -size, job

        while queue:
            job = min(queue, key=order)
            queue.remove(job)
            column = chosen[job]
            gpus = tuple(range(known.gpus[job, column]))
            shape = Allocation(job, gpus, batch_size=float(known.batch[job, column]), plan=FASTEST)
            rule, servers = self._rules[types[column]], int(known.servers[job, column])
            others = held.keys() & (queue | {one for one in stays if stays[one]})
            movable = [held[one] for one in others if type_of_gpu[held[one].gpu_ids[0]] == types[column]]
            plan.release(job)
            found, left = _place_together(plan, rule, shape, servers, movable)
            allocations += [Allocation(one) for one in left]
            for one in left:
                del held[one]
            queue |= set(left)
            if found is None:
                found = plan.place(rule, job, shape) or plan.place(self.placement, job, shape)
            if found is not None:
                allocations.append(found)
            elif job in held:
                plan.allocate(held[job])
        allocations += plan.start(self.placement, [job for job in jobs[~typed].tolist() if job not in held])
        allocations += start_cpu_jobs(view, plan, self.placement)
        return work_conserving(view, plan, self.placement, None, allocations)

    def _choose(
        self,
        view: SchedulingView,
        known: _Profiles,
        jobs: NDArray[np.int64],
        held: dict[int, Allocation],
        typed: NDArray[np.bool_],
    ) -> tuple[dict[int, int], dict[int, bool]]:
        """Return {job: configuration} of the program, and {job that keeps its GPUs: whether it may move}.

        `held` are the allocations of `jobs` [n]. Those that are not `typed` [n] need GPUs of several types.
        """
        type_of_gpu, rows, seen = view.type_of_gpu, np.arange(len(jobs)), view.select(jobs)
        up = np.repeat(view.servers_up, view.cluster.gpus_per_server)
        capacity = np.bincount(type_of_gpu[up], minlength=len(self._rules))
        goodput, gpus = known.goodput[jobs], known.gpus[jobs]
        present = np.full(len(jobs), -1)  # configurations
        for i in np.flatnonzero(np.isin(jobs, [*held])).tolist():
            kinds = type_of_gpu[list(held[int(jobs[i])].gpu_ids)]
            self._most_held[jobs[i]] = max(self._most_held[jobs[i]], len(kinds))
            same = (goodput[i] > 0) & (gpus[i] == len(kinds)) & (known.gpu_type == kinds[0])
            if not typed[i]:
                capacity -= np.bincount(kinds, minlength=len(capacity))
            elif same.any() and (kinds == kinds[0]).all():
                present[i] = np.argmax(same)
        again, age = seen.column("resize_seconds"), view.now - seen.column("submit_seconds")
        lost = seen.column("num_preemptions") * seen.column("restart_seconds")
        lost = lost + seen.column("num_resizes") * again
        factor = np.maximum(age - lost, 0.0) / np.maximum(age + again, 1e-9)
        factor[(age < again) | (present < 0)] = 1.0
        scaled = factor[:, None] * goodput
        runs = rows[present >= 0]
        scaled[runs, present[runs]] = goodput[runs, present[runs]]
        possible = goodput > 0
        fewest = np.where(possible, gpus, _MOST).min(axis=1, keepdims=True)
        possible &= gpus <= np.maximum(_GROWTH * self._most_held[jobs][:, None], fewest)
        restarts = (present >= 0) & (seen.column("pause_ends_seconds") > view.now)
        possible[restarts] = np.arange(gpus.shape[1]) == present[restarts, None]
        with np.errstate(divide="ignore"):
            values = np.round(np.minimum(scaled**self.power, _LARGEST_VALUE), _DECIMALS)
        cost = (values if self.power < 0 else -values) - self.unallocated
        cost += self.tie_break * (rows / len(rows))[:, None]
        cost[runs, present[runs]] -= self.tie_break
        cost[~possible] = np.inf
        chosen = choose_configurations(cost, gpus, known.gpu_type, capacity, restarts)
        keeps = (chosen == present) & (present >= 0)
        stays = dict(zip(jobs[keeps].tolist(), (~restarts[keeps]).tolist(), strict=True))
        stays |= {job: False for job in jobs[~typed].tolist() if job in held}
        return {int(jobs[i]): int(chosen[i]) for i in np.flatnonzero(chosen >= 0)}, stays
