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
from ringyard.checks import Fraction, NonNegative, Positive, PositiveInt, checked
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
    gap: float = 0.0,
    time_limit: float | None = None,
) -> NDArray[np.int64] | None:
    """Return [jobs] a configuration of each job, -1 for none, of least total cost.

    Args:
        cost: [jobs, configurations] cost, infinite where a job cannot have the configuration. None costs 0.
        gpus: [jobs, configurations] number of GPUs.
        gpu_type: [configurations] position of their type in `capacity`.
        capacity: [types] number of GPUs.
        fixed: [jobs] whether a job must have a configuration.
        gap: accepted relative distance from the optimum.
        time_limit: seconds after which the solver stops. None: it does not.

    Returns:
        The configurations, or None if the solver found none in time.
    """
    job, configuration = np.nonzero((cost < 0) | (fixed[:, None] & np.isfinite(cost)))
    chosen = np.full(len(cost), -1)
    if not len(job):
        return chosen
    cheapest = np.argmin(cost, axis=1)
    wanted = np.unique(job)
    best = cheapest[wanted]
    if (np.bincount(gpu_type[best], gpus[wanted, best], len(capacity)) <= capacity).all():
        chosen[wanted] = best
        return chosen
    variable = np.arange(len(job))
    rows = np.concatenate([job, len(cost) + gpu_type[configuration]])
    entries = np.concatenate([np.ones(len(job)), gpus[job, configuration]])
    shape = len(cost) + len(capacity), len(job)
    matrix = csc_array((entries, (rows, np.concatenate([variable, variable]))), shape=shape)
    least = np.concatenate([fixed.astype(np.float64), np.zeros(len(capacity))])
    most = np.concatenate([np.ones(len(cost)), capacity])
    solved = milp(
        cost[job, configuration],
        integrality=np.ones(len(job)),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, least, most),
        options={"mip_rel_gap": gap} | ({} if time_limit is None else {"time_limit": time_limit}),
    )
    if solved.x is None:
        return None
    taken = solved.x > 0.5
    chosen[job[taken]] = configuration[taken]
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
    plan: PlacementPlan, rule: PlacementRule, shape: Allocation, servers: int
) -> Allocation | None:
    """Place a job by a rule on at most so many servers, and return its allocation, None without room."""
    found = plan.place(rule, shape.job, shape)
    if found is not None and len(set(plan.cluster.server_of_gpu[list(found.gpu_ids)])) > servers:
        plan.release(shape.job)
        return None
    return found


def _make_room(
    plan: PlacementPlan, rule: PlacementRule, shape: Allocation, servers: int, movable: Sequence[Allocation]
) -> tuple[Allocation | None, list[int]]:
    """Place a job as `_place_together` does once some of the `movable` jobs have left their GPUs.

    These leave the servers with most free GPUs first, of a server the smallest first, and return if they can.

    Returns:
        The allocation, None if there is no room anyway, and the rows of the jobs that have left.
    """
    cluster, wanted = plan.cluster, len(shape.gpu_ids)
    free = plan.free_gpus_per_server

    def urgency(one: Allocation) -> tuple[bool, int, int, int, int]:
        there = cluster.server_of_gpu[list(one.gpu_ids)]
        server = int(there[0])
        small = servers == 1 and cluster.gpus_per_server[server] < wanted
        return small or there[-1] != server, -int(free[server]), server, len(there), one.job

    left, found = list[Allocation](), None
    for one in sorted(movable, key=urgency):
        plan.release(one.job)
        left.append(one)
        found = _place_together(plan, rule, shape, servers)
        if found is not None:
            break
    return found, [one.job for one in left if not plan.allocate(one)]


def _in_order(
    view: SchedulingView, rule: PlacementRule, stopped: Sequence[int], wanted: Sequence[Allocation]
) -> list[Allocation]:
    """Return preemptions and the wanted allocations in an order in which each finds its GPUs free.

    A job that waits for GPUs of a job that waits for its own is preempted and then starts. If nothing would
    run, a job starts by the rule.
    """
    plan = PlacementPlan(view)
    done = plan.preempt(stopped)
    held = set(view.running.tolist()) - set(stopped)
    while wanted:
        later = list[Allocation]()
        for one in wanted:
            fits = plan.reallocate(one) if one.job in held else plan.allocate(one)
            (done if fits else later).append(one)
        if len(later) == len(wanted):
            first = next((one.job for one in later if one.job in held), None)
            if first is None:
                break
            done += plan.preempt([first])
            held.remove(first)
        wanted = later
    return work_conserving(view, plan, rule, None, done)


@checked("sia")
class Sia(Scheduler):
    """Sia of Jayaram Subramanya et al. (SOSP 2023): each round an integer program gives GPUs to all jobs.

    A configuration is a GPU type and a number of GPUs on it. Each job gets one or none, so that the sum of
    normalised goodputs to the power p, with `unallocated` for each job that gets none, is least (p < 0) or
    largest (p > 0).

    FOUND (public code): rounds of 60 s, p = -0.5, 1.1 for a job without GPUs, a gap of 1e-4. Configurations
    are powers of two in a server and multiples of whole servers. A job's least goodput counts as its fewest
    GPUs. Values are rounded to two decimals and at most 3000. A running job's other configurations count (age
    - seconds lost in restarts) / (age + seconds of a restart) times, if it is older than a restart. A job
    begins on its fewest GPUs and at most doubles the most that it has held, up to 64. It is not changed while
    it restarts. Rigid jobs have one number of GPUs on each type. Jobs that keep their configuration keep
    their place, and the smallest of them leave a server where a larger job finds none otherwise. `lambda_a`
    (a penalty for changes) is set in the public code, but not used.

    Not as published: goodputs come from profiles, also of types on which a job has not yet run. A job with
    execution plans has the fastest plan on each number of GPUs. Seconds of a restart are those of a resize in
    the simulated cluster (30 s and more in the public code). The solver is HiGHS in place of CBC. Assumed: an
    elastic job in whose range there is no configuration has the number of GPUs that it asks for. A job that
    needs GPUs of several types starts when the placement rule finds room, and then stays.

    Args:
        placement: where jobs go in a cluster with one GPU type, or where GPUs of their type lack cores. Of
            several types each is packed (`pack_on_types`).
        round_seconds: seconds between two programs.
        power: p, -100 to 100, not 0.
        unallocated: lambda, what a job without GPUs counts.
        max_gpus: largest number of GPUs of a job, unless it requests more.
        gap: accepted relative distance from the optimum.
        time_limit: seconds after which the solver stops. Results then depend on the machine. None: no limit.

    Raises:
        ConfigurationError: power is 0.
    """

    name = "sia"
    observability = Observability.SIZES | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE

    def __init__(
        self,
        placement: PlacementRule,
        round_seconds: Positive = 60.0,
        power: Annotated[float, "[-100, 100]"] = -0.5,
        unallocated: NonNegative = 1.1,
        max_gpus: PositiveInt = 64,
        gap: Fraction = 1e-4,
        time_limit: Positive | None = None,
    ) -> None:
        if power == 0:
            raise ConfigurationError("sia.power is 0; expected in [-100, 0) or (0, 100]")
        self.placement, self.round_seconds = placement, round_seconds
        self._power, self._unallocated, self._max_gpus = power, unallocated, max_gpus
        self._gap, self._time_limit = gap, time_limit

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
        if self._profiles is None:
            self._profiles = _Profiles.of_view(view, self._max_gpus)
        known, jobs, type_of_gpu = self._profiles, view.gpu_jobs, view.type_of_gpu
        up = np.repeat(view.servers_up, view.cluster.gpus_per_server)
        capacity = np.bincount(type_of_gpu[up], minlength=len(self._rules))
        typed = (known.goodput[jobs] > 0).any(axis=1)
        present = np.full(len(jobs), -1)  # configurations
        for i in np.flatnonzero(np.isin(jobs, view.running)).tolist():
            row, kinds = jobs[i], type_of_gpu[list(view.gpus_of(jobs[i]))]
            self._most_held[row] = max(self._most_held[row], len(kinds))
            same = (known.goodput[row] > 0) & (known.gpus[row] == len(kinds)) & (known.gpu_type == kinds[0])
            if not typed[i]:
                capacity -= np.bincount(kinds, minlength=len(capacity))
            elif same.any() and (kinds == kinds[0]).all():
                present[i] = np.argmax(same)
        cost, restarts = self._cost(view, known, jobs, present)
        solved = choose_configurations(
            cost, known.gpus[jobs], known.gpu_type, capacity, restarts, self._gap, self._time_limit
        )
        chosen = present if solved is None else solved
        keeps = (chosen == present) & (present >= 0)
        targets = {int(job): int(column) for job, column in zip(jobs, chosen, strict=True) if column >= 0}
        stays = {int(job): not fixed for job, fixed in zip(jobs[keeps], restarts[keeps], strict=True)}
        stays |= {int(job): False for job in jobs[~typed] if view.gpus_of(job)}
        return self._place(view, known, targets, stays, jobs[~typed].tolist())

    def _cost(
        self, view: SchedulingView, known: _Profiles, jobs: NDArray[np.int64], present: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return [n, configurations] costs over those of no GPUs, and [n] whether a job restarts now."""
        seen, rows = view.select(jobs), np.arange(len(jobs))
        runs = present >= 0
        again = seen.column("resize_seconds")
        age = view.now - seen.column("submit_seconds")
        lost = seen.column("num_preemptions") * seen.column("restart_seconds")
        lost = lost + seen.column("num_resizes") * again
        factor = np.maximum(age - lost, 0.0) / np.maximum(age + again, 1e-9)
        factor = np.where(age < again, 1.0, factor)
        goodput, gpus = known.goodput[jobs], known.gpus[jobs]
        scaled = np.where(runs[:, None], factor[:, None] * goodput, goodput)
        scaled[rows[runs], present[runs]] = goodput[rows[runs], present[runs]]
        possible = goodput > 0
        fewest = np.empty_like(gpus)
        for kind in range(len(self._rules)):
            those = known.gpu_type == kind
            sizes = np.where(possible[:, those], gpus[:, those], _MOST)
            fewest[:, those] = sizes.min(axis=1, keepdims=True)
        possible &= gpus <= np.maximum(_GROWTH * self._most_held[jobs][:, None], fewest)
        fixed = runs & (seen.column("pause_ends_seconds") > view.now)
        possible[fixed] = False
        possible[rows[fixed], present[fixed]] = True
        with np.errstate(divide="ignore"):
            values = np.round(np.minimum(scaled**self._power, _LARGEST_VALUE), _DECIMALS)
        signed = values if self._power < 0 else -values
        return np.where(possible, signed - self._unallocated, np.inf), fixed

    def _place(
        self,
        view: SchedulingView,
        known: _Profiles,
        targets: dict[int, int],
        stays: dict[int, bool],
        untyped: Sequence[int],
    ) -> list[Allocation]:
        """Return the allocations that give jobs their configurations, the one with most GPUs placed first.

        `targets` is {job: configuration}. `stays` has the running jobs that keep their GPUs, and whether they
        may make room for others. `untyped` jobs need GPUs of several types.
        """
        plan, types, goal = PlacementPlan(view), known.gpu_type, list[Allocation]()
        now = {job: view.allocation_of(job) for job in view.running.tolist() if view.gpus_of(job)}
        for job in now.keys() - stays.keys():
            plan.release(job)
        queue = targets.keys() - stays.keys()
        while queue:
            job = min(queue, key=lambda one: (-known.gpus[one, targets[one]], one))
            queue.remove(job)
            column = targets[job]
            gpus = tuple(range(known.gpus[job, column]))
            shape = Allocation(job, gpus, batch_size=float(known.batch[job, column]), plan=FASTEST)
            rule, servers = self._rules[types[column]], int(known.servers[job, column])
            found = _place_together(plan, rule, shape, servers)
            if found is None:
                movable = [one for one in stays if stays[one] and types[targets[one]] == types[column]]
                found, left = _make_room(plan, rule, shape, servers, [now[one] for one in movable])
                queue |= set(left)
                stays = {one: moves for one, moves in stays.items() if one not in left}
            if found is None:
                found = plan.place(rule, job, shape) or plan.place(self.placement, job, shape)
            if found is None and job in now and plan.allocate(now[job]):
                found = now[job]
            goal += [found] if found else []
        goal += plan.start(self.placement, [job for job in untyped if job not in stays])
        goal += start_cpu_jobs(view, plan, self.placement)
        del plan  # the next one reuses its copy of the state
        stopped = sorted(now.keys() - stays.keys() - {one.job for one in goal})
        return _in_order(view, self.placement, stopped, goal)
