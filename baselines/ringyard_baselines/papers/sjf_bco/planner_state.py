"""State of trial plans: the load and the exits of each GPU and server, job by job."""

import numpy as np

from ringyard.cluster import Cluster
from ringyard.compiled import FloatMatrix, FloatVector, IntMatrix, IntVector, bundle, kernel
from ringyard.performance.model import Physics, iteration_seconds
from ringyard_baselines.papers.sjf_bco.plan import PlannedJobs

# columns of `PlannerState.clock`
TIME, EXIT, HIGHEST = 0, 1, 2


@bundle
class PlannerState:
    """R trial plans on G GPUs of S servers. Row r is one trial."""

    load: FloatMatrix  #: [R, G] U_s^g, estimated seconds assigned to each GPU
    free_at: FloatMatrix  #: [R, G] exit of the GPU's last planned job
    spans_servers: IntMatrix  #: [R, G] 1 on one GPU of each server held by a job that spans servers
    mean_load: FloatMatrix  #: [R, S] mean load of the server's GPUs
    latest_exit: FloatMatrix  #: [R, S] latest exit of the server's GPUs
    ranked: IntMatrix  #: [R, S] servers by mean load, then by id
    clock: FloatMatrix  #: [R, 3] start of the last job, last exit, largest load that a job has led to
    first_gpu: IntVector  #: [S + 1] first GPU of each server
    server: IntVector  #: [G] server of each GPU
    marks: IntVector  #: [S] scratch
    candidates: IntVector  #: [G] scratch
    values: FloatVector  #: [G] scratch


def empty_planner_state(cluster: Cluster, rows: int) -> PlannerState:
    """Return a state for `rows` trials at once on `cluster`."""
    gpus, servers = (rows, cluster.num_gpus), (rows, cluster.num_servers)
    return PlannerState(
        load=np.zeros(gpus),
        free_at=np.zeros(gpus),
        spans_servers=np.zeros(gpus, np.int64),
        mean_load=np.zeros(servers),
        latest_exit=np.zeros(servers),
        ranked=np.zeros(servers, np.int64),
        clock=np.zeros((rows, 3)),
        first_gpu=np.append(cluster.first_gpu_of_server, cluster.num_gpus).astype(np.int64),
        server=cluster.server_of_gpu.astype(np.int64),
        marks=np.zeros(cluster.num_servers, np.int64),
        candidates=np.zeros(cluster.num_gpus, np.int64),
        values=np.zeros(cluster.num_gpus),
    )


@kernel
def _summarize_server(planner: PlannerState, r: int, s: int) -> None:
    """Update mean load and latest exit of a server."""
    load, free_at = planner.load[r], planner.free_at[r]
    begin, end = planner.first_gpu[s], planner.first_gpu[s + 1]
    total, latest = 0.0, 0.0
    for g in range(begin, end):
        total += load[g]
        latest = max(latest, free_at[g])
    planner.mean_load[r, s] = total / (end - begin)
    planner.latest_exit[r, s] = latest


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
def start_trial(planner: PlannerState, r: int, busy_seconds: FloatVector) -> None:
    """Reset row r of `planner` to a trial without jobs, with GPUs busy for `busy_seconds`."""
    for g in range(len(busy_seconds)):
        planner.load[r, g] = busy_seconds[g]
        planner.free_at[r, g] = busy_seconds[g]
        planner.spans_servers[r, g] = 0
    for s in range(len(planner.marks)):
        _summarize_server(planner, r, s)
        planner.ranked[r, s] = s
    _sort_by_mean_load(planner.mean_load[r], planner.ranked[r])
    planner.clock[r, :] = 0.0


@kernel
def copy_trial(planner: PlannerState, source: int, target: int) -> None:
    """Copy a trial of `planner` from row `source` to row `target`."""
    for g in range(planner.load.shape[1]):
        planner.load[target, g] = planner.load[source, g]
        planner.free_at[target, g] = planner.free_at[source, g]
        planner.spans_servers[target, g] = planner.spans_servers[source, g]
    for s in range(planner.mean_load.shape[1]):
        planner.mean_load[target, s] = planner.mean_load[source, s]
        planner.latest_exit[target, s] = planner.latest_exit[source, s]
        planner.ranked[target, s] = planner.ranked[source, s]
    for k in range(3):
        planner.clock[target, k] = planner.clock[source, k]


@kernel
def assign_job(
    planner: PlannerState, r: int, batch: PlannedJobs, i: int, gpus: IntVector, time: float, physics: Physics
) -> None:
    """Assign GPUs that are free from `time` on until the job's exit, by eq. 8 with links at the start."""
    load, free_at, spans_servers = planner.load[r], planner.free_at[r], planner.spans_servers[r]
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
    highest = planner.clock[r, HIGHEST]
    for g in gpus:
        load[g] += batch.estimates[i]
        free_at[g] = end
        spans_servers[g] = int(num_servers > 1 and marks[server[g]] == 1)  # only the job's first GPU there
        marks[server[g]] = 2
        highest = max(highest, load[g])
    for g in gpus:
        if marks[server[g]] == 2:
            marks[server[g]] = 3
            _summarize_server(planner, r, server[g])
    for g in gpus:
        marks[server[g]] = 0
    _sort_by_mean_load(planner.mean_load[r], planner.ranked[r])
    planner.clock[r, TIME] = time
    planner.clock[r, EXIT] = max(planner.clock[r, EXIT], end)
    planner.clock[r, HIGHEST] = highest
