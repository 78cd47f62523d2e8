"""The observation for clusters with shared GPUs, cores, memory bandwidth, GPU types or elastic jobs."""

from typing import Any

import numpy as np

from ringyard.cluster import Cluster
from ringyard.compiled.functions import function_value, kernel
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.observations.queue import (
    OBSERVE,
    QUEUE_KNOWS,
    Observation,
    queue_and_cluster_blocks,
    squash,
    write_queue_and_cluster,
)
from ringyard.mdp.slots import next_running
from ringyard.performance.elastic import statistical_efficiency
from ringyard.state.records import JobKind

__all__ = ["queue_cluster_and_resources"]

_CPU_ONLY = int(JobKind.CPU_ONLY)
_PARAMETER_SERVER = int(JobKind.PARAMETER_SERVER)

WAITING_RESOURCES = 8
PLACEMENT_RESOURCES = 2
RUNNING_RESOURCES = 8
SERVER_RESOURCES = 5
CLUSTER_RESOURCES = 2
_GIGABYTES = 16e9
_HOUR = 3600.0


def _blocks(cluster: Cluster, actions: Actions) -> dict[str, int]:
    return queue_and_cluster_blocks(cluster, actions) | {
        "waiting_resources": actions.num_waiting * WAITING_RESOURCES,
        "placement_resources": actions.num_starts * PLACEMENT_RESOURCES,
        "running_resources": actions.num_running * RUNNING_RESOURCES,
        "server_resources": cluster.num_servers * SERVER_RESOURCES,
        "cluster_resources": CLUSTER_RESOURCES,
    }


@kernel
def _log2_ratio(value: float, base: float) -> float:
    """log2(value / base) / 4, at most 1 either way."""
    return min(max(np.log2(value / base) / 4.0, -1.0), 1.0)


@kernel
def _write_waiting(state: Any, b: int, visible: int, out: Any) -> None:
    for i in range(visible):
        job = state.jobs[b, state.waiting[b, i]]
        row = i * WAITING_RESOURCES
        out[row] = 1.0 if job.kind == _CPU_ONLY else 0.0
        out[row + 1] = 1.0 if job.kind == _PARAMETER_SERVER else 0.0
        out[row + 2] = squash(float(job.cores_per_worker), 8.0)
        out[row + 3] = squash(float(job.gpu_memory_bytes), _GIGABYTES)
        if job.kind != _CPU_ONLY:
            out[row + 4] = _log2_ratio(float(job.max_gpus), float(job.min_gpus))
            out[row + 5] = _log2_ratio(job.max_batch, job.min_batch)
        out[row + 6] = statistical_efficiency(job.noise_scale, job.base_batch, 2.0 * job.base_batch)
        out[row + 7] = 1.0
        if job.deadline_seconds < np.inf:
            scale = job.isolated_seconds * job.prediction_factor if job.predictable != 0 else _HOUR
            out[row + 7] = squash(max(job.deadline_seconds - state.clusters[b].now, 0.0), scale)


@kernel
def _write_placements(state: Any, episode: Any, b: int, visible: int, out: Any) -> None:
    num_templates = episode.looks.shape[2]
    for i in range(visible):
        for t in range(num_templates):
            found = episode.looks[b, i, t]
            if found.num_gpus > 0:
                row = (i * num_templates + t) * PLACEMENT_RESOURCES
                out[row] = squash(found.sharing_slowdown - 1.0, 1.0)
                out[row + 1] = squash(found.gpu_speed, 1.0)


@kernel
def _write_running(state: Any, b: int, shown: int, out: Any) -> None:
    j = -1
    for i in range(shown):
        j = next_running(state, b, i, j)
        job = state.jobs[b, j]
        row = i * RUNNING_RESOURCES
        out[row] = 1.0 if job.kind == _CPU_ONLY else 0.0
        out[row + 1] = squash(float(job.cores_per_worker), 8.0)
        out[row + 2] = squash(job.sharing_slowdown - 1.0, 1.0)
        out[row + 3] = squash(job.bandwidth_slowdown - 1.0, 1.0)
        out[row + 4] = job.memory_bandwidth_cap
        if job.kind != _CPU_ONLY:
            out[row + 5] = squash(job.gpu_speed, 1.0)
            out[row + 6] = _log2_ratio(float(job.num_gpus), float(job.asked_gpus))
            out[row + 7] = _log2_ratio(job.batch_size, job.base_batch)


@kernel
def _write_servers(state: Any, b: int, out: Any) -> int:
    """Features of every server; how many GPUs of the cluster hold two jobs or more."""
    per_gpu = state.clusters[b].jobs_per_gpu
    shared = 0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        row = s * SERVER_RESOURCES
        open_gpus = 0
        for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
            jobs = state.gpus[b, g].num_jobs
            if jobs < per_gpu:
                open_gpus += 1
            if 2 <= jobs <= per_gpu:
                shared += 1
        out[row] = open_gpus / server.num_gpus
        out[row + 1] = server.free_cores / server.num_cores
        out[row + 2] = squash(float(server.bandwidth_demand), float(server.memory_bandwidth))
        out[row + 3] = float(server.up)
        out[row + 4] = squash(float(server.gpu_memory_bytes), _GIGABYTES)
    return shared


@function_value(OBSERVE)
def _queue_cluster_and_resources(state: Any, episode: Any, b: int, num_running: int, out: Any) -> None:
    begin = write_queue_and_cluster(state, episode, b, num_running, out)
    cluster = state.clusters[b]
    num_waiting = episode.looks.shape[1]
    visible = min(num_waiting, cluster.num_waiting)
    _write_waiting(state, b, visible, out[begin:])
    begin += num_waiting * WAITING_RESOURCES
    _write_placements(state, episode, b, visible, out[begin:])
    begin += num_waiting * episode.looks.shape[2] * PLACEMENT_RESOURCES
    _write_running(state, b, min(num_running, cluster.num_running), out[begin:])
    begin += num_running * RUNNING_RESOURCES
    shared = _write_servers(state, b, out[begin:])
    begin += state.servers.shape[1] * SERVER_RESOURCES
    out[begin] = cluster.down_gpus / cluster.num_gpus
    out[begin + 1] = shared / cluster.num_gpus


def queue_cluster_and_resources(flat: bool = False) -> Observation:
    """As `queue_and_cluster`, and what else makes jobs fast or slow, in blocks of their own.

    | block | feature | meaning (unit before scaling); s(x, c) is x / (x + c) |
    |---|---|---|
    | waiting_resources [V x 8] | 0, 1 | 1 if CPU-only; 1 if it has parameter servers |
    | | 2 | s(cores per worker, 8) |
    | | 3 | s(GPU memory per worker, 16 GB) |
    | | 4, 5 | log2(most / fewest GPUs) / 4; log2(largest / smallest batch) / 4 |
    | | 6 | statistical efficiency at twice its batch |
    | | 7 | s(time until its largest acceptable completion time, predicted run time or 1 h); 1: any |
    | placement_resources [V x T x 2] | 0 | s(extra time by jobs on the same GPUs, 1) |
    | | 1 | s(speed of its slowest GPU there, 1) |
    | running_resources [R x 8] | 0 | 1 if CPU-only |
    | | 1 | s(cores per worker, 8) |
    | | 2, 3 | s(extra time by sharing GPUs, 1); s(extra time by memory bandwidth, 1) |
    | | 4 | memory bandwidth cap |
    | | 5 | s(speed of its slowest GPU, 1) |
    | | 6, 7 | log2(GPUs / asked) / 4; log2(batch / asked) / 4 |
    | server_resources [S x 5] | 0 | GPUs with a free slot / GPUs |
    | | 1 | free cores / cores |
    | | 2 | memory bandwidth asked / (asked + there is) |
    | | 3 | 1 if up |
    | | 4 | s(memory of a GPU, 16 GB) |
    | cluster_resources [2] | 0, 1 | GPUs of failed servers / GPUs; GPUs with two jobs or more / GPUs |

    Args:
        flat: one Box row instead of a Dict of blocks.
    """
    return Observation(_queue_cluster_and_resources, _blocks, flat, QUEUE_KNOWS)
