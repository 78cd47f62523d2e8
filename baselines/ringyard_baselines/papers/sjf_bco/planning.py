"""Compiled planner of SJF-BCO's family: assign every job to GPUs under a limit on each GPU's time."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled.functions import kernel

__all__ = ["FIRST_FIT", "LEAST_LOADED", "RANDOM", "SJF_BCO", "Plan", "empty_plan", "search"]

# how GPUs are chosen
SJF_BCO, FIRST_FIT, LEAST_LOADED, RANDOM = 0, 1, 2, 3


class Plan(NamedTuple):
    """Work space and result of one trial; G GPUs, S servers, n jobs.

    Attributes:
        load: [G] U_s^g, estimated seconds assigned to each GPU.
        free_at: [G] when the GPU's last planned job exits.
        spans: [G] 1 on the first GPU of a server held by a job that spans servers.
        taken: [G] scratch.
        marks: [S] scratch.
        start: [n] planned start.
        begin: [n + 1] where each job's GPUs begin in `gpus`.
        gpus: [sum of demands] planned GPU ids, job after job.
    """

    load: NDArray[np.float64]
    free_at: NDArray[np.float64]
    spans: NDArray[np.int64]
    taken: NDArray[np.int64]
    marks: NDArray[np.int64]
    start: NDArray[np.float64]
    begin: NDArray[np.int64]
    gpus: NDArray[np.int64]


def empty_plan(cluster: Cluster, demands: NDArray[np.int64]) -> Plan:
    """A plan for jobs of the given demands, in planning order."""
    gpus, count = cluster.num_gpus, len(demands)
    return Plan(
        np.zeros(gpus),
        np.zeros(gpus),
        np.zeros(gpus, np.int64),
        np.zeros(gpus, np.int64),
        np.zeros(cluster.num_servers, np.int64),
        np.zeros(count),
        np.concatenate([[0], np.cumsum(demands)]).astype(np.int64),
        np.zeros(int(demands.sum()), np.int64),
    )


@kernel
def _least_loaded(
    plan: Any,
    servers: Any,
    demand: int,
    estimate: float,
    theta: float,
    time: float,
    marked_only: bool,
    out: Any,
) -> bool:
    """The `demand` GPUs with least load that are free at `time` and within theta.

    Among equal loads marked servers come first; with `marked_only` no others count.
    """
    for i in range(demand):
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
def _mark_busy_servers(plan: Any, servers: Any, time: float) -> None:
    """FA-FFP prefers servers in use."""
    plan.marks[:] = 0
    for g in range(len(servers)):
        if plan.free_at[g] > time:
            plan.marks[servers[g]] = 1


@kernel
def _mark_least_busy_servers(plan: Any, servers: Any, capacity: float) -> None:
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
    plan: Any, rule: int, priority: Any, demand: int, estimate: float, theta: float, out: Any
) -> bool:
    """FF, LS, RAND: GPUs within theta by id, by load or by random priority; the job queues up on them."""
    for i in range(demand):
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
def _next_exit(plan: Any, time: float) -> float:
    """Earliest planned exit after `time`; inf if nothing runs then."""
    earliest = np.inf
    for end in plan.free_at:
        if time < end < earliest:
            earliest = end
    return earliest


@kernel
def _commit(plan: Any, servers: Any, job: Any, gpus: Any, estimate: float, time: float, rate: Any) -> float:
    """Occupy the GPUs from `time` on; the job's exit by eq. 8 with the links as planned at its start."""
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
    end = time + job.remaining_iterations * rate.seconds(job, rate.parameters)
    job.num_servers = 0
    job.contenders = 0.0
    for g in gpus:
        s = servers[g]
        plan.spans[g] = 0
        if num_servers > 1 and plan.marks[s] == 1:
            plan.spans[g] = 1
            plan.marks[s] = 2
        plan.load[g] += estimate
        plan.free_at[g] = end
    return end


@kernel
def _trial(
    plan: Any,
    rule: int,
    servers: Any,
    jobs: Any,
    estimates: Any,
    priorities: Any,
    theta: float,
    kappa: int,
    over: float,
    rate: Any,
) -> float:
    """Plan every job in order; the last exit, or inf if a job finds no place (Algorithms 2 and 3)."""
    time = 0.0
    last = 0.0
    for i in range(len(jobs)):
        demand = jobs[i].num_gpus
        out = plan.gpus[plan.begin[i] : plan.begin[i + 1]]
        while True:
            plan.taken[:] = 0
            if rule != SJF_BCO:
                found = _queue_on(plan, rule, priorities[i], demand, estimates[i], theta, out)
            elif demand <= kappa:
                _mark_busy_servers(plan, servers, time)
                found = _least_loaded(plan, servers, demand, estimates[i], theta, time, False, out)
            else:
                _mark_least_busy_servers(plan, servers, over * demand)
                found = _least_loaded(plan, servers, demand, estimates[i], theta, time, True, out)
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
        last = max(last, _commit(plan, servers, jobs[i], out, estimates[i], start, rate))
    return last


@kernel
def _begin_trial(plan: Any, load: Any, free_at: Any) -> None:
    for g in range(len(load)):
        plan.load[g] = load[g]
        plan.free_at[g] = free_at[g]
        plan.spans[g] = 0


@kernel
def search(
    plan: Any,
    rule: int,
    servers: Any,
    jobs: Any,
    estimates: Any,
    priorities: Any,
    kappas: Any,
    over: float,
    load: Any,
    free_at: Any,
    horizon: float,
    resolution: float,
    rate: Any,
) -> tuple[float, float, int]:
    """Bisection on theta_u with the kappa loop inside (Algorithm 1); the best plan stays in `plan`.

    Args:
        plan: work space, holds the best plan afterwards.
        rule: SJF_BCO, FIRST_FIT, LEAST_LOADED or RANDOM.
        servers: [G] server of each GPU.
        jobs: [n] `JOB` records in planning order.
        estimates: [n] rhohat / u.
        priorities: [n, G] random numbers, read by RANDOM only.
        kappas: thresholds to try; one dummy for rules without.
        over: lambda.
        load: [G] U at the start; free_at: [G] when the GPUs become free.
        horizon: T, upper limit of theta; resolution: stop when the interval is this short.
        rate: performance model.

    Returns:
        (planned makespan, theta, kappa); makespan inf if even theta = horizon is infeasible.
    """
    best = np.inf
    best_theta = horizon
    best_kappa = kappas[0]
    left = 0.0
    right = horizon
    theta = horizon if rule == RANDOM else horizon / 2.0
    while True:
        found = np.inf
        for kappa in kappas:
            _begin_trial(plan, load, free_at)
            last = _trial(plan, rule, servers, jobs, estimates, priorities, theta, kappa, over, rate)
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
        if right - left <= resolution or rule == RANDOM:
            break
        theta = (left + right) / 2.0
    if best < np.inf:
        _begin_trial(plan, load, free_at)
        _trial(plan, rule, servers, jobs, estimates, priorities, best_theta, best_kappa, over, rate)
    return best, best_theta, best_kappa
