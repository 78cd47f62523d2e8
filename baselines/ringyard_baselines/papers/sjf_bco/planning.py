"""Compiled planner of SJF-BCO's family: assign every job to GPUs under a limit on each GPU's time."""

import numpy as np

from ringyard.compiled import FloatVector, IntVector, kernel
from ringyard.sim.engine.physics import Physics, iteration_seconds
from ringyard_baselines.papers.sjf_bco.plan import (
    FIRST_FIT,
    LEAST_LOADED,
    RANDOM,
    SJF_BCO,
    Batch,
    Machine,
    Plan,
    Search,
)

__all__ = ["search"]


@kernel
def _least_loaded(
    plan: Plan,
    servers: IntVector,
    estimate: float,
    theta: float,
    time: float,
    marked_only: bool,
    out: IntVector,
) -> bool:
    """The GPUs with least load that are free at `time` and within theta, as many as `out` holds.

    Among equal loads marked servers come first; with `marked_only` no others count.
    """
    for i in range(len(out)):
        best = -1
        best_mark = 0
        for g in range(len(plan.load)):
            if plan.taken[g] != 0 or plan.free_at[g] > time or plan.load[g] + estimate > theta:
                continue
            mark = plan.marks[servers[g]]
            if marked_only and mark == 0:
                continue
            tie = best >= 0 and plan.load[g] == plan.load[best] and mark > best_mark
            if best < 0 or plan.load[g] < plan.load[best] or tie:
                best = g
                best_mark = mark
        if best < 0:
            return False
        plan.taken[best] = 1
        out[i] = best
    return True


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
def _queue_on(
    plan: Plan, rule: int, priority: FloatVector, estimate: float, theta: float, out: IntVector
) -> bool:
    """FF, LS, RAND: GPUs within theta by id, by load or by random priority; the job queues up on them."""
    for i in range(len(out)):
        best = -1
        for g in range(len(plan.load)):
            if plan.taken[g] != 0 or plan.load[g] + estimate > theta:
                continue
            if best < 0:
                best = g
                if rule == FIRST_FIT:
                    break
            elif rule == LEAST_LOADED and plan.load[g] < plan.load[best]:
                best = g
            elif rule == RANDOM and priority[g] < priority[best]:
                best = g
        if best < 0:
            return False
        plan.taken[best] = 1
        out[i] = best
    return True


@kernel
def _next_exit(plan: Plan, time: float) -> float:
    """Earliest planned exit after `time`; inf if nothing runs then."""
    earliest = np.inf
    for end in plan.free_at:
        if time < end < earliest:
            earliest = end
    return earliest


@kernel
def _commit(
    plan: Plan, servers: IntVector, batch: Batch, i: int, gpus: IntVector, time: float, physics: Physics
) -> float:
    """Occupy the GPUs from `time` on; the job's exit by eq. 8 with the links as planned at its start."""
    job = batch.records[i]
    num_servers = 0
    worst = 0
    for s in range(len(plan.marks)):
        plan.marks[s] = 0
    for g in gpus:
        s = servers[g]
        if plan.marks[s] == 0:
            plan.marks[s] = 1
            num_servers += 1
    for s in range(len(plan.marks)):
        if plan.marks[s] == 1:
            crowd = 1
            for g in range(len(servers)):
                if servers[g] == s and plan.spans[g] == 1 and plan.free_at[g] > time:
                    crowd += 1
            worst = max(worst, crowd)
    job.num_servers = num_servers
    job.contenders = float(worst) if num_servers > 1 else 0.0
    end = time + job.remaining_iterations * iteration_seconds(job, batch.rows[i], physics)
    job.num_servers = 0
    job.contenders = 0.0
    for g in gpus:
        s = servers[g]
        plan.spans[g] = 0
        if num_servers > 1 and plan.marks[s] == 1:
            plan.spans[g] = 1
            plan.marks[s] = 2
        plan.load[g] += batch.estimates[i]
        plan.free_at[g] = end
    return end


@kernel
def _trial(
    plan: Plan, batch: Batch, machine: Machine, search: Search, theta: float, kappa: int, physics: Physics
) -> float:
    """Plan every job in order; the last exit, or inf if a job finds no place (Algorithms 2 and 3)."""
    rule, servers = search.rule, machine.servers
    for g in range(len(servers)):
        plan.load[g] = machine.busy_seconds[g]
        plan.free_at[g] = machine.busy_seconds[g]
        plan.spans[g] = 0
    time = 0.0
    last = 0.0
    for i in range(len(batch.records)):
        estimate = batch.estimates[i]
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        while True:
            plan.taken[:] = 0
            if rule != SJF_BCO:
                found = _queue_on(plan, rule, batch.priorities[i], estimate, theta, out)
            elif len(out) <= kappa:
                _mark_busy_servers(plan, servers, time)
                found = _least_loaded(plan, servers, estimate, theta, time, False, out)
            else:
                _mark_least_busy_servers(plan, servers, search.over_provision * len(out))
                found = _least_loaded(plan, servers, estimate, theta, time, True, out)
            if found:
                break
            later = _next_exit(plan, time) if rule == SJF_BCO else np.inf
            if later == np.inf:
                return np.inf
            time = later
        start = time
        if rule != SJF_BCO:
            for g in out:
                start = max(start, plan.free_at[g])
        plan.start[i] = start
        last = max(last, _commit(plan, servers, batch, i, out, start, physics))
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
        (planned makespan, theta, kappa); makespan inf if even theta = horizon is infeasible.
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
            last = _trial(plan, batch, machine, tried, theta, kappa, physics)
            if last < found:
                found = last
                if found <= best:
                    best_kappa = kappa
        if found <= best and found < np.inf:
            best = found
            best_theta = theta
            right = theta
        else:
            left = theta
        if right - left <= tried.resolution or tried.rule == RANDOM:
            break
        theta = (left + right) / 2.0
    if best < np.inf:
        _trial(plan, batch, machine, tried, best_theta, best_kappa, physics)
    return best, best_theta, best_kappa
