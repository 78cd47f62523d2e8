"""Fill the state arrays: jobs made ready for the engine, and clusters at time zero."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import announce_compilation, kernel
from ringyard.jobs import JobTable
from ringyard.performance import PerformanceModel
from ringyard.records import JOB, State
from ringyard.restart import RestartCost

__all__ = ["load", "prepare_jobs", "set_up_clusters"]


@kernel
def _isolated_seconds(jobs: Any, fewest_servers: Any, rate: Any) -> None:
    """Seconds per iteration of each job alone on the fewest servers, into the records."""
    for j in range(len(jobs)):
        job = jobs[j]
        job.num_servers = fewest_servers[j]
        job.worst_link_jobs = 1 if fewest_servers[j] > 1 else 0
        job.isolated_iteration_seconds = rate.seconds(job, rate.parameters)
        job.num_servers = 0
        job.worst_link_jobs = 0


def prepare_jobs(
    table: JobTable, cluster: Cluster, performance: PerformanceModel, restart: RestartCost
) -> NDArray[np.void]:
    """[jobs] `JOB` records at time zero, checked against the cluster.

    Raises:
        WorkloadError: a row that makes no sense or does not fit the cluster.
    """
    table.check(cluster)
    announce_compilation(load)
    jobs = np.zeros(len(table), JOB)
    jobs["submit_seconds"] = table.submit_seconds
    jobs["num_gpus"] = table.num_gpus
    jobs["compute_seconds"] = table.compute_seconds
    jobs["gradient_bytes"] = table.gradient_bytes
    jobs["predictable"] = table.predictable
    jobs["restart_seconds"] = restart(table)
    jobs["demand_class"] = np.unique(table.num_gpus, return_inverse=True)[1]
    _isolated_seconds(jobs, cluster.fewest_servers(table.num_gpus), performance.rate)
    iteration = jobs["isolated_iteration_seconds"]
    iterations = np.where(np.isnan(table.iterations), table.duration_seconds / iteration, table.iterations)
    jobs["total_iterations"] = iterations
    jobs["remaining_iterations"] = iterations
    derived = np.isnan(table.duration_seconds) | ~np.isnan(table.iterations)
    jobs["isolated_seconds"] = np.where(derived, iterations * iteration, table.duration_seconds)
    jobs["first_gpu"] = -1
    for name in ("end_seconds", "first_start_seconds", "last_start_seconds", "last_stop_seconds"):
        jobs[name] = np.nan
    return jobs


def set_up_clusters(
    state: State, cluster: Cluster, network_coupled: bool, round_seconds: float | None = None
) -> None:
    """Write what does not change between episodes, in every cluster of the batch."""
    state.gpus["server"] = cluster.server_of_gpu
    state.servers["num_gpus"] = cluster.gpus_per_server
    state.servers["first_gpu"] = cluster.first_gpu_of_server
    state.clusters["num_gpus"] = cluster.num_gpus
    state.clusters["num_servers"] = cluster.num_servers
    state.clusters["network_coupled"] = network_coupled
    state.clusters["round_seconds"] = np.inf if round_seconds is None else round_seconds


@kernel
def load(state: Any, b: int, jobs: Any, limit_seconds: float, seed: int) -> None:
    """Put cluster b at time zero with the given job records; nothing has arrived yet."""
    num_jobs = len(jobs)
    smallest = jobs[0].num_gpus
    num_classes = 0
    for j in range(num_jobs):
        state.jobs[b, j] = jobs[j]
        smallest = min(smallest, jobs[j].num_gpus)
        num_classes = max(num_classes, jobs[j].demand_class + 1)
    for g in range(state.gpus.shape[1]):
        state.gpus[b, g].job = -1
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        server.free_gpus = server.num_gpus
        server.spanning_jobs = 0
    state.class_waiting[b] = 0
    state.class_stamp[b] = 0
    state.integrals[b] = 0.0
    state.timeline[b] = 0.0
    cluster = state.clusters[b]
    cluster.now = 0.0
    cluster.next_round_seconds = cluster.round_seconds
    cluster.wake_seconds = np.inf
    cluster.limit_seconds = limit_seconds
    cluster.inverse_durations = 0.0
    cluster.finished_jct = 0.0
    cluster.rng = seed
    cluster.num_jobs = num_jobs
    cluster.num_classes = num_classes
    cluster.smallest_demand = smallest
    cluster.free_gpus = cluster.num_gpus
    cluster.next_arrival = 0
    cluster.num_waiting = 0
    cluster.num_running = 0
    cluster.num_done = 0
    cluster.demanded_gpus = 0
    cluster.fragmented_gpus = 0
    cluster.num_preemptions = 0
    cluster.num_starts = 0
    cluster.num_decisions = 0
    cluster.stamp = 0
    cluster.num_segments = 0
    cluster.timeline_bin_log2 = 0
