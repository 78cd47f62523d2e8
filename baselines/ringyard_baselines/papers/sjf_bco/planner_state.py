"""State of a trial plan: the load and the exits of each GPU and server, job by job."""

import numpy as np

from ringyard.cluster import Cluster
from ringyard.compiled import FloatVector, IntVector, bundle, kernel
from ringyard.performance.model import Physics, iteration_seconds
from ringyard_baselines.papers.sjf_bco.plan import PlannedJobs

# entries of `PlannerState.clock`
TIME, EXIT = 0, 1


@bundle
class PlannerState:
    """A trial plan on G GPUs of S servers."""

    load: FloatVector  #: [G] U_s^g, estimated seconds assigned to each GPU
    free_at: FloatVector  #: [G] exit of the GPU's last planned job
    spans_servers: IntVector  #: [G] 1 on one GPU of each server held by a job that spans servers
    mean_load: FloatVector  #: [S] mean load of the server's GPUs
    latest_exit: FloatVector  #: [S] latest exit of the server's GPUs
    ranked: IntVector  #: [S] servers by mean load, then by id
    clock: FloatVector  #: [2] start of the last job, last exit
    first_gpu: IntVector  #: [S + 1] first GPU of each server
    server: IntVector  #: [G] server of each GPU
    marks: IntVector  #: [S] scratch
    candidates: IntVector  #: [G] scratch
    values: FloatVector  #: [G] scratch


def empty_planner_state(cluster: Cluster) -> PlannerState:
    """Return a state for a trial on `cluster`."""
    gpus, servers = cluster.num_gpus, cluster.num_servers
    return PlannerState(
        load=np.zeros(gpus),
        free_at=np.zeros(gpus),
        spans_servers=np.zeros(gpus, np.int64),
        mean_load=np.zeros(servers),
        latest_exit=np.zeros(servers),
        ranked=np.zeros(servers, np.int64),
        clock=np.zeros(2),
        first_gpu=np.append(cluster.first_gpu_of_server, cluster.num_gpus).astype(np.int64),
        server=cluster.server_of_gpu.astype(np.int64),
        marks=np.zeros(servers, np.int64),
        candidates=np.zeros(gpus, np.int64),
        values=np.zeros(gpus),
    )


@kernel
def _summarize_server(planner: PlannerState, s: int) -> None:
    """Update mean load and latest exit of a server."""
    load, free_at = planner.load, planner.free_at
    begin, end = planner.first_gpu[s], planner.first_gpu[s + 1]
    total, latest = 0.0, 0.0
    for g in range(begin, end):
        total += load[g]
        latest = max(latest, free_at[g])
    planner.mean_load[s] = total / (end - begin)
    planner.latest_exit[s] = latest


@kernel
def _precedes(mean_load: FloatVector, one: int, other: int) -> bool:
    """Return whether a server comes before another: by mean load, then by id."""
    return mean_load[one] < mean_load[other] or (mean_load[one] == mean_load[other] and one < other)


@kernel
def _sort_by_mean_load(mean_load: FloatVector, servers: IntVector) -> None:
    """Sort servers that are nearly in order."""
    for i in range(1, len(servers)):
        s = servers[i]
        k = i - 1
        while k >= 0 and _precedes(mean_load, s, servers[k]):
            servers[k + 1] = servers[k]
            k -= 1
        servers[k + 1] = s


@kernel
def start_trial(planner: PlannerState, busy_seconds: FloatVector) -> None:
    """Reset `planner` to a trial without jobs, with GPUs busy for `busy_seconds`."""
    for g in range(len(busy_seconds)):
        planner.load[g] = busy_seconds[g]
        planner.free_at[g] = busy_seconds[g]
        planner.spans_servers[g] = 0
    for s in range(len(planner.marks)):
        _summarize_server(planner, s)
        planner.ranked[s] = s
    _sort_by_mean_load(planner.mean_load, planner.ranked)
    planner.clock[:] = 0.0


@kernel
def copy_trial(source: PlannerState, target: PlannerState) -> None:
    """Copy the trial of `source` to `target`."""
    for g in range(len(source.load)):
        target.load[g] = source.load[g]
        target.free_at[g] = source.free_at[g]
        target.spans_servers[g] = source.spans_servers[g]
    for s in range(len(source.mean_load)):
        target.mean_load[s] = source.mean_load[s]
        target.latest_exit[s] = source.latest_exit[s]
        target.ranked[s] = source.ranked[s]
    for k in range(len(source.clock)):
        target.clock[k] = source.clock[k]


@kernel
def assign_job(
    planner: PlannerState, batch: PlannedJobs, i: int, gpus: IntVector, time: float, physics: Physics
) -> None:
    """Assign GPUs that are free from `time` on until the job's exit, by eq. 8 with links at the start."""
    load, free_at, spans_servers = planner.load, planner.free_at, planner.spans_servers
    marks, server, first_gpu = planner.marks, planner.server, planner.first_gpu
    num_servers, worst = 0, 0
    for g in gpus:
        s = server[g]
        if marks[s] == 0:
            marks[s] = 1
            num_servers += 1
            rings = 1
            for other in range(first_gpu[s], first_gpu[s + 1]):
                rings += spans_servers[other] * int(free_at[other] > time)
            worst = max(worst, rings)
    job = batch.records[i]
    job.num_servers = num_servers
    job.contenders = float(worst) if num_servers > 1 else 0.0
    end = time + job.remaining_iterations * iteration_seconds(job, batch.rows[i], physics)
    for g in gpus:
        load[g] += batch.estimates[i]
        free_at[g] = end
        spans_servers[g] = int(num_servers > 1 and marks[server[g]] == 1)  # only the job's first GPU there
        marks[server[g]] = 2
    for g in gpus:
        if marks[server[g]] == 2:
            marks[server[g]] = 3
            _summarize_server(planner, server[g])
    for g in gpus:
        marks[server[g]] = 0
    _sort_by_mean_load(planner.mean_load, planner.ranked)
    planner.clock[TIME] = time
    planner.clock[EXIT] = max(planner.clock[EXIT], end)
