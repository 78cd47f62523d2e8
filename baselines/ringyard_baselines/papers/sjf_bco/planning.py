"""Compiled planner of SJF-BCO's family: assign every job to GPUs under a limit on each GPU's time."""

import numpy as np

from ringyard.compiled import FloatVector, IntVector, kernel
from ringyard.sim.engine.physics import Physics, iteration_seconds
from ringyard_baselines.papers.sjf_bco.plan import (
    FIRST_FIT,
    RANDOM,
    SJF_BCO,
    Batch,
    Machine,
    Plan,
    Search,
)

__all__ = ["search"]


@kernel
def _within(plan: Plan, servers: IntVector, g: int, estimate: float, theta: float, marked_only: bool) -> bool:
    """Whether the GPU's load stays within theta; with `marked_only` its server must be marked as well."""
    return plan.load[g] + estimate <= theta and not (marked_only and plan.marks[servers[g]] == 0)


@kernel
def _earliest(
    plan: Plan, servers: IntVector, estimate: float, theta: float, time: float, marked_only: bool, count: int
) -> float:
    """When `count` GPUs within theta are free: `time`, or an exit after it; inf: there are not as many."""
    while time < np.inf:
        later = np.inf
        free = 0
        for g in range(len(servers)):
            if _within(plan, servers, g, estimate, theta, marked_only):
                if plan.free_at[g] <= time:
                    free += 1
                else:
                    later = min(later, plan.free_at[g])
        if free >= count:
            return time
        time = later
    return np.inf


@kernel
def _comes_before(
    plan: Plan, servers: IntVector, rule: int, priority: FloatVector, one: int, other: int
) -> bool:
    """Whether the rule prefers a GPU to one of smaller id."""
    if rule == FIRST_FIT:
        return False
    if rule == RANDOM:
        return priority[one] < priority[other]
    if rule == SJF_BCO and plan.load[one] == plan.load[other]:
        return plan.marks[servers[one]] > plan.marks[servers[other]]
    return plan.load[one] < plan.load[other]


@kernel
def _choose(
    plan: Plan,
    servers: IntVector,
    rule: int,
    priority: FloatVector,
    estimate: float,
    theta: float,
    time: float,
    marked_only: bool,
    out: IntVector,
) -> None:
    """Fill `out` with the GPUs within theta, free at `time`, that the rule prefers; there are as many.

    FF: by id; LS and SJF-BCO: least load first; RAND: by priority. Among equal loads SJF-BCO prefers marked
    servers.
    """
    plan.taken[:] = 0
    for i in range(len(out)):
        best = -1
        for g in range(len(servers)):
            if plan.taken[g] != 0 or plan.free_at[g] > time:
                continue
            if not _within(plan, servers, g, estimate, theta, marked_only):
                continue
            if best < 0 or _comes_before(plan, servers, rule, priority, g, best):
                best = g
                if rule == FIRST_FIT:
                    break
        plan.taken[best] = 1
        out[i] = best


@kernel
def _mark_busy_servers(plan: Plan, servers: IntVector, time: float) -> None:
    """FA-FFP prefers servers in use."""
    plan.marks[:] = 0
    for g in range(len(servers)):
        if plan.free_at[g] > time:
            plan.marks[servers[g]] = 1


@kernel
def _mark_least_busy_servers(plan: Plan, servers: IntVector, capacity: float) -> None:
    """LBSGF's servers: least mean load first, until they hold `capacity` GPUs."""
    plan.marks[:] = 0
    while capacity > 0:
        best = -1
        best_load = np.inf
        best_size = 0
        g = 0
        while g < len(servers):
            s = servers[g]
            total = 0.0
            size = 0
            while g < len(servers) and servers[g] == s:
                total += plan.load[g]
                size += 1
                g += 1
            if plan.marks[s] == 0 and total / size < best_load:
                best = s
                best_load = total / size
                best_size = size
        if best < 0:
            return
        plan.marks[best] = 1
        capacity -= best_size


@kernel
def _commit(
    plan: Plan, servers: IntVector, batch: Batch, i: int, gpus: IntVector, time: float, physics: Physics
) -> float:
    """Occupy the GPUs from `time` on; the job's exit by eq. 8 with the links as planned at its start."""
    job = batch.records[i]
    num_servers = 0
    plan.marks[:] = 0
    for g in gpus:
        if plan.marks[servers[g]] == 0:
            plan.marks[servers[g]] = 1
            num_servers += 1
    worst = 0
    if num_servers > 1:  # marks of its servers become the rings on their links, its own first
        for g in range(len(servers)):
            s = servers[g]
            if plan.marks[s] > 0 and plan.spans[g] == 1 and plan.free_at[g] > time:
                plan.marks[s] += 1
        for g in gpus:
            worst = max(worst, plan.marks[servers[g]])
    job.num_servers = num_servers
    job.contenders = float(worst)
    end = time + job.remaining_iterations * iteration_seconds(job, batch.rows[i], physics)
    job.num_servers = 0
    job.contenders = 0.0
    for g in gpus:
        s = servers[g]
        plan.spans[g] = 0
        if num_servers > 1 and plan.marks[s] > 0:
            plan.spans[g] = 1
            plan.marks[s] = 0
        plan.load[g] += batch.estimates[i]
        plan.free_at[g] = end
    return end


@kernel
def _trial(
    plan: Plan,
    batch: Batch,
    machine: Machine,
    search: Search,
    theta: float,
    kappa: int,
    limit: float,
    physics: Physics,
) -> float:
    """Plan every job in order (Algorithms 2 and 3); the last exit.

    inf if a job finds no place or ends after `limit`.
    """
    rule, servers = search.rule, machine.servers
    all_free = 0.0
    for g in range(len(servers)):
        plan.load[g] = machine.busy_seconds[g]
        plan.free_at[g] = machine.busy_seconds[g]
        plan.spans[g] = 0
        all_free = max(all_free, machine.busy_seconds[g])
    time = 0.0
    last = 0.0
    for i in range(len(batch.records)):
        estimate = batch.estimates[i]
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        marked_only = rule == SJF_BCO and len(out) > kappa
        if marked_only:
            _mark_least_busy_servers(plan, servers, search.over_provision * len(out))
        since = all_free if search.queues else time  # who queues up takes any
        found = _earliest(plan, servers, estimate, theta, since, marked_only, len(out))
        if found == np.inf:
            return np.inf
        if not search.queues:
            time = found
        if rule == SJF_BCO and not marked_only:
            _mark_busy_servers(plan, servers, time)
        _choose(plan, servers, rule, batch.priorities[i], estimate, theta, found, marked_only, out)
        plan.start[i] = time
        for g in out:
            plan.start[i] = max(plan.start[i], plan.free_at[g])
        last = max(last, _commit(plan, servers, batch, i, out, plan.start[i], physics))
        all_free = max(all_free, last)
        if last > limit:
            return np.inf
    return last


@kernel
def search(
    plan: Plan, batch: Batch, machine: Machine, tried: Search, physics: Physics
) -> tuple[float, float, int]:
    """Bisection on theta_u with the kappa loop inside (Algorithm 1); the best plan stays in `plan`.

    Args:
        plan: work space, holds the best plan afterwards.
        batch: the jobs.
        machine: the GPUs.
        tried: rule and limits.
        physics: how fast jobs run.

    Returns:
        (planned makespan, theta, kappa); makespan inf if no plan ends within the horizon.
    """
    best = np.inf
    best_theta = tried.horizon
    best_kappa = tried.kappas[0]
    left = 0.0
    right = tried.horizon
    theta = tried.horizon if tried.rule == RANDOM else tried.horizon / 2.0
    while True:
        found = np.inf
        for kappa in tried.kappas:
            limit = min(tried.horizon, best, found)  # a trial that ends later changes nothing
            last = _trial(plan, batch, machine, tried, theta, kappa, limit, physics)
            if last < found:
                found = last
                best_kappa = kappa
        if found < np.inf:
            best = found
            best_theta = theta
            right = theta
        else:
            left = theta
        if right - left <= tried.resolution or tried.rule == RANDOM:
            break
        theta = (left + right) / 2.0
    if best < np.inf:
        _trial(plan, batch, machine, tried, best_theta, best_kappa, np.inf, physics)
    return best, best_theta, best_kappa
