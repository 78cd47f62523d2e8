"""Sia (Jayaram Subramanya et al., SOSP 2023): GPU type and number of GPUs of all jobs by integer program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from ringyard import Allocation, Cluster, JobTable, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import NonNegative, Positive, PositiveInt, checked
from ringyard.observability import Observability
from ringyard.performance.plan_table import FASTEST
from ringyard.placement import pack_on_types
from ringyard.sim.speeds import BatchRule, IsolatedJobs, speed_table
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.targets import TimeSlots, start_cpu_jobs, work_conserving

_MAX_CELLS = 2e7  #: largest number of numbers of GPUs x configurations for which tables are filled


def choose_configurations(
    cost: NDArray[np.float64],
    gpus: NDArray[np.int64],
    gpu_type: NDArray[np.int64],
    capacity: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return [jobs] a configuration of each job, -1 for none, of least total cost.

    It is found by tables of the least cost of the first jobs on each number of GPUs of each type, and if they
    would be too large, by an integer program.

    Args:
        cost: [jobs, configurations] cost, infinite where a job cannot have the configuration. None costs 0.
        gpus: [jobs, configurations] number of GPUs.
        gpu_type: [configurations] position of their type in `capacity`.
        capacity: [types] number of GPUs.
    """
    job, configuration = np.nonzero(cost < 0)
    chosen, kinds = np.full(len(cost), -1), np.arange(len(capacity))
    useful = [np.where(cost < 0, gpus, 0)[:, gpu_type == kind] for kind in kinds]
    room = np.minimum(capacity, [one.max(axis=1, initial=0).sum() for one in useful])
    if len(job) * np.prod(room + 1.0) > _MAX_CELLS:
        rows = np.concatenate([job, len(cost) + gpu_type[configuration]])
        entries = np.concatenate([np.ones(len(job)), gpus[job, configuration]])
        shape = len(cost) + len(capacity), len(job)
        matrix = csc_array((entries, (rows, np.tile(np.arange(len(job)), 2))), shape=shape)
        limits = LinearConstraint(matrix, ub=np.concatenate([np.ones(len(cost)), capacity]))
        options = {"mip_rel_gap": 0.0, "presolve": False}  # presolving takes longer here
        price, whole = cost[job, configuration], np.ones(len(job))
        found = milp(price, integrality=whole, bounds=Bounds(0, 1), constraints=limits, options=options).x
        chosen[job[found > 0.5]] = configuration[found > 0.5]
        return chosen
    columns = (job, configuration, gpu_type[configuration], gpus[job, configuration])
    choices = np.stack(columns, axis=1).tolist()
    tables = [np.zeros(room + 1)]
    for j, c, kind, count in choices:
        tables += [tables[-1].copy() for _ in range(len(tables), j + 2)]
        rest, used = ((slice(None),) * kind + (part,) for part in (slice(-count), slice(count, None)))
        np.minimum(tables[j + 1][used], tables[j][rest] + cost[j, c], out=tables[j + 1][used])
    for j, c, kind, count in reversed(choices):
        here, left = tuple(room), tuple(room - count * (kinds == kind))
        least = tables[j + 1][here]
        if chosen[j] < 0 and min(left) >= 0 and least == tables[j][left] + cost[j, c] < tables[j][here]:
            chosen[j], room = c, np.array(left)
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
        parts = []
        jobs = IsolatedJobs.of_view(view)
        for kind in view.cluster.distinct_gpu_types or ("",):
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
        speed, gpus, servers, batch = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        widths = [part[0].shape[1] for part in parts]
        own = np.cumsum(widths) - 1
        speed[:, own] *= ~np.any(np.delete(speed, own, axis=1) > 0, axis=1, keepdims=True)
        least = np.where(speed > 0, speed, np.inf).min(axis=1, keepdims=True)
        fewest = np.where(speed > 0, gpus, 1 << 30).min(axis=1, keepdims=True)
        return cls(speed / least * fewest, gpus, servers, batch, np.repeat(np.arange(len(widths)), widths))


def _place_together(
    plan: PlacementPlan, rule: PlacementRule, shape: Allocation, servers: int, movable: Sequence[Allocation]
) -> tuple[Allocation | None, list[int]]:
    """Place a job by a rule on at most so many servers. If it finds no room, `movable` jobs leave theirs.

    Those on the servers with most free GPUs leave first, the smallest of a server first. Jobs that left in
    vain return. Returned are the allocation, None if there is no room anyway, and the jobs that have left.
    """
    server_of_gpu, free = plan.cluster.server_of_gpu, plan.free_gpus_per_server

    def urgency(one: Allocation) -> tuple[int, ...]:
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
            left, found = [*left, one], plan.place(rule, shape.job, shape)
    return found, [one.job for one in left if not plan.allocate(one)]


@checked("sia")
@dataclass(eq=False)
class Sia(Scheduler):
    """Sia of Jayaram Subramanya et al. (SOSP 2023): each round an integer program gives GPUs to all jobs.

    A configuration is a GPU type and a number of GPUs on it. Each job gets one or none, so that the sum of
    normalised goodputs to the power p < 0, and `unallocated` for a job without, is least (p > 0: largest).

    FOUND (public code): rounds of 60 s, p = -0.5, 1.1 for a job without GPUs. Configurations are powers of
    two in a server and multiples of whole servers. A job's least goodput counts as its fewest GPUs. Values
    are rounded to two decimals. A running job's other configurations count (age - seconds lost in restarts)
    / (age + seconds of a restart) times, once it is older than a restart. A job begins on its fewest GPUs,
    and at most doubles the most that it has held, up to 64. It does not change while it restarts. Rigid jobs
    have one number of GPUs. Jobs that keep their configuration keep their place, unless another finds no room
    on as few servers as hold it.

    Not as published: goodputs come from profiles, also for types on which a job has not yet run. The optimum
    is exact, by `choose_configurations` (CBC, within 1e-4). A restart costs what a resize costs in the
    simulated cluster (25 to 250 s by model in the public code). Jobs with execution plans run in the fastest.
    Assumed: ties are broken as `tie_break` says. An elastic job with no configuration in its range has the
    GPUs that it asks for. A job that needs GPUs of several types starts where `placement` finds room.
    """

    name = "sia"
    observability = Observability.SIZES | Observability.SPEEDS
    capabilities = Capabilities.PREEMPT | Capabilities.RESIZE

    #: where jobs go if all GPUs are of one type, or if servers lack other resources. Of several types each is
    #: packed (`pack_on_types`).
    placement: PlacementRule
    round_seconds: Positive = 60.0  #: length of a round in seconds
    power: Annotated[float, "[-100, 100]"] = -0.5  #: p
    unallocated: NonNegative = 1.1  #: lambda, what a job without GPUs counts
    #: what a change of a job counts, and the last job in order of submission over the first. Assumption.
    tie_break: NonNegative = 1e-4
    max_gpus: PositiveInt = 64  #: largest number of GPUs of a job, unless it requests more

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles and sizes (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        self._slots = TimeSlots(self.round_seconds or np.inf)
        self._profiles: _Profiles | None = None
        self._most_held = np.zeros(len(jobs), np.int64)  # GPUs
        kinds = cluster.distinct_gpu_types
        self._rules = [pack_on_types(cluster, [kind]) for kind in kinds] if kinds[1:] else [self.placement]

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Solve the program and place the jobs when a round begins, or when no job runs."""
        if not self._slots.begins(view) and len(view.running):
            return []
        known = self._profiles = self._profiles or _Profiles.of_view(view, self.max_gpus)
        held = {job: view.allocation_of(job) for job in view.gpu_jobs.tolist() if view.gpus_of(job)}
        chosen, stays, frozen = self._choose(view, known, held)
        types, type_of_gpu, plan = known.gpu_type, view.type_of_gpu, PlacementPlan(view)
        allocations = plan.preempt([job for job in held if job not in chosen and job not in frozen])
        size = {job: int(known.gpus[job, column]) for job, column in chosen.items()}
        shrinks = {job for job in chosen if job in held and size[job] < len(held[job].gpu_ids)}
        queue, movable = chosen.keys() - stays, chosen.keys() & held.keys()
        while queue:
            job = min(queue, key=lambda one: (one not in shrinks, -size[one], one))
            column, present = chosen[job], held[job] if job in movable else None
            queue, movable = queue - {job}, movable - {job}
            batch, servers = float(known.batch[job, column]), int(known.servers[job, column])
            shape = Allocation(job, tuple(range(size[job])), batch_size=batch, plan=FASTEST)
            rule, kind = self._rules[types[column]], types[column]
            here = [held[one] for one in movable if type_of_gpu[held[one].gpu_ids[0]] == kind]
            plan.release(job)
            found, left = _place_together(plan, rule, shape, servers, here)
            allocations += [Allocation(one) for one in left]
            queue, movable = queue.union(left), movable.difference(left)
            if found is None:
                found = plan.place(rule, job, shape) or plan.place(self.placement, job, shape)
            if found is not None:
                allocations.append(found)
            elif present is not None:
                plan.allocate(present)
        rest = [job for job in view.gpu_jobs.tolist() if not known.goodput[job].any() and job not in held]
        allocations += plan.start(self.placement, rest)
        allocations += start_cpu_jobs(view, plan, self.placement)
        return work_conserving(view, plan, self.placement, None, allocations)

    def _choose(
        self, view: SchedulingView, known: _Profiles, held: dict[int, Allocation]
    ) -> tuple[dict[int, int], set[int], set[int]]:
        """Solve the program for the GPU jobs, which hold the allocations `held`.

        Returns:
            {job: configuration}, the running jobs that keep theirs, and those that are not in the program,
            since they restart or need GPUs of several types.
        """
        jobs, type_of_gpu = view.gpu_jobs, view.type_of_gpu
        rows, seen = np.arange(len(jobs)), view.select(jobs)
        goodput, gpus, frozen = known.goodput[jobs], known.gpus[jobs], set[int]()
        up = np.repeat(view.servers_up, view.cluster.gpus_per_server)
        capacity = np.bincount(type_of_gpu[up], minlength=len(self._rules))
        present, paused_until = np.full(len(jobs), -1), seen.column("pause_ends_seconds")
        for i in np.flatnonzero(np.isin(jobs, [*held])).tolist():
            job, kinds = int(jobs[i]), type_of_gpu[list(held[int(jobs[i])].gpu_ids)]
            self._most_held[job] = max(self._most_held[job], len(kinds))
            same = (goodput[i] > 0) & (gpus[i] == len(kinds)) & (known.gpu_type == kinds[0])
            if paused_until[i] > view.now or not goodput[i].any():
                capacity -= np.bincount(kinds, minlength=len(capacity))
                frozen.add(job)
            elif same.any() and (kinds == kinds[0]).all():
                present[i] = np.argmax(same)
        again, age = seen.column("resize_seconds"), view.now - seen.column("submit_seconds")
        stops, resizes = seen.column("num_preemptions"), seen.column("num_resizes")
        lost = stops * seen.column("restart_seconds") + resizes * again
        factor = np.maximum(age - lost, 0.0) / np.maximum(age + again, 1e-9)
        factor[(age < again) | (present < 0)] = 1.0
        scaled = factor[:, None] * goodput
        runs = rows[present >= 0]
        scaled[runs, present[runs]] = goodput[runs, present[runs]]
        with np.errstate(divide="ignore"):
            values = np.round(scaled**self.power, 2)
        cost = (values if self.power < 0 else -values) - self.unallocated
        cost += self.tie_break * (rows / len(rows))[:, None]
        cost[runs, present[runs]] -= self.tie_break
        fewest = np.where(goodput > 0, gpus, np.inf).min(axis=1, keepdims=True)
        cost[(goodput == 0) | (gpus > np.maximum(2 * self._most_held[jobs][:, None], fewest))] = np.inf
        cost[np.isin(jobs, [*frozen])] = np.inf
        chosen = choose_configurations(cost, gpus, known.gpu_type, capacity)
        found = {int(jobs[i]): int(chosen[i]) for i in np.flatnonzero(chosen >= 0)}
        return found, set(jobs[(chosen == present) & (present >= 0)].tolist()), frozen
