"""The observation for clusters with shared GPUs, cores, memory bandwidth, GPU types or elastic jobs."""

from typing import Annotated

import numpy as np

from ringyard.compiled import Float32Vector, FloatVector, Record, Records1, f4, fills, kernel, take_rows
from ringyard.mdp.episode import Episode, next_running
from ringyard.mdp.observations.observation import Block, Each, Feature, Observation, Observe
from ringyard.mdp.observations.queue import BLOCKS, QUEUE_KNOWS, squash, write_queue_and_cluster
from ringyard.performance.elastic import statistical_efficiency
from ringyard.state.arrays import State, waiting_at
from ringyard.state.progress import predicted_seconds
from ringyard.state.records import JobKind

_CPU_ONLY = int(JobKind.CPU_ONLY)
_PARAMETER_SERVER = int(JobKind.PARAMETER_SERVER)


class WaitingResources(Record):
    """What else is shown of a visible waiting job."""

    cpu_only: Annotated[f4, Feature("1 if CPU-only")]
    parameter_server: Annotated[f4, Feature("1 if it has parameter servers")]
    cores: Annotated[f4, Feature("s(cores per worker, 8)", "cores")]
    ram: Annotated[f4, Feature("s(RAM per worker, 64 GB)", "bytes")]
    gpu_memory: Annotated[f4, Feature("s(GPU memory per worker, 16 GB)", "bytes")]
    gpu_range: Annotated[f4, Feature("log2(most / fewest GPUs) / 4")]
    batch_range: Annotated[f4, Feature("log2(largest / smallest batch) / 4")]
    efficiency: Annotated[f4, Feature("statistical efficiency at twice its batch")]
    time_to_deadline: Annotated[
        f4,
        Feature(
            "s(time until its largest acceptable completion time, predicted run time or 1 h); 1: any will do",
            "s",
        ),
    ]


class PlacementResources(Record):
    """What else is shown of a job where a template would put it."""

    sharing: Annotated[f4, Feature("s(extra time by jobs on the same GPUs / time alone, 1)")]
    gpu_speed: Annotated[f4, Feature("s(speed of its slowest GPU there, 1)")]


class RunningResources(Record):
    """What else is shown of a running job."""

    cpu_only: Annotated[f4, Feature("1 if CPU-only")]
    cores: Annotated[f4, Feature("s(cores per worker, 8)", "cores")]
    ram: Annotated[f4, Feature("s(RAM per worker, 64 GB)", "bytes")]
    storage: Annotated[
        f4, Feature("s(time to read a byte of storage, 10 ns); 0: it reads none, or at no limit", "s")
    ]
    sharing: Annotated[f4, Feature("s(extra time by jobs on the same GPUs / time alone, 1)")]
    bandwidth: Annotated[f4, Feature("s(extra time by memory bandwidth / time alone, 1)")]
    bandwidth_cap: Annotated[f4, Feature("memory bandwidth cap")]
    gpu_speed: Annotated[f4, Feature("s(speed of its slowest GPU, 1)")]
    gpus_to_asked: Annotated[f4, Feature("log2(GPUs / asked) / 4")]
    batch_to_asked: Annotated[f4, Feature("log2(batch / asked) / 4")]


class ServerResources(Record):
    """What else is shown of a server."""

    open_gpus: Annotated[f4, Feature("GPUs with a free slot / GPUs")]
    free_cores: Annotated[f4, Feature("free cores / cores")]
    free_ram: Annotated[f4, Feature("free RAM / RAM")]
    bandwidth: Annotated[f4, Feature("memory bandwidth asked / (asked + there is)")]
    up: Annotated[f4, Feature("1 if up")]
    gpu_memory: Annotated[f4, Feature("s(memory of a GPU, 16 GB)", "bytes")]


class ClusterResources(Record):
    """What else is shown of the cluster."""

    down: Annotated[f4, Feature("GPUs of failed servers / GPUs")]
    shared: Annotated[f4, Feature("GPUs with two jobs or more / GPUs")]


#: what `queue_cluster_and_resources` writes, in this order
_BLOCKS = (
    *BLOCKS,
    Block("waiting_resources", Each.WAITING, WaitingResources),
    Block("placement_resources", Each.PLACEMENT, PlacementResources),
    Block("running_resources", Each.RUNNING, RunningResources),
    Block("server_resources", Each.SERVER, ServerResources),
    Block("cluster_resources", Each.CLUSTER, ClusterResources),
)
_GIGABYTES = 16e9
_HOUR = 3600.0
_SLOW_STORAGE = 1e8  # bytes per second


@kernel
def _log2_ratio(value: float, base: float) -> float:
    """log2(value / base) / 4, at most 1 either way."""
    return min(max(np.log2(value / base) / 4.0, -1.0), 1.0)


@kernel
def _write_waiting(state: State, b: int, visible: int, waiting: Records1[WaitingResources]) -> None:
    for i in range(visible):
        job = state.jobs[b, waiting_at(state, b, i)]
        row = waiting[i]
        row.cpu_only = 1.0 if job.kind == _CPU_ONLY else 0.0
        row.parameter_server = 1.0 if job.kind == _PARAMETER_SERVER else 0.0
        row.cores = squash(float(job.cores_per_worker), 8.0)
        row.ram = squash(float(job.ram_per_worker), 4.0 * _GIGABYTES)
        row.gpu_memory = squash(float(job.gpu_memory_bytes), _GIGABYTES)
        if job.kind != _CPU_ONLY:
            row.gpu_range = _log2_ratio(float(job.max_gpus), float(job.min_gpus))
            row.batch_range = _log2_ratio(job.max_batch, job.min_batch)
        row.efficiency = statistical_efficiency(job.noise_scale, job.base_batch, 2.0 * job.base_batch)
        row.time_to_deadline = 1.0
        if job.deadline_seconds < np.inf:
            scale = predicted_seconds(job) if job.predictable != 0 else _HOUR
            row.time_to_deadline = squash(max(job.deadline_seconds - state.clusters[b].now, 0.0), scale)


@kernel
def _write_placements(
    episode: Episode, b: int, visible: int, placements: Records1[PlacementResources]
) -> None:
    num_templates = episode.placement_contexts.shape[2]
    for i in range(visible):
        for t in range(num_templates):
            found = episode.placement_contexts[b, i, t]
            if found.num_places > 0:
                row = placements[i * num_templates + t]
                row.sharing = squash(found.sharing_slowdown - 1.0, 1.0)
                row.gpu_speed = squash(found.gpu_speed, 1.0)


@kernel
def _write_running(state: State, b: int, shown: int, running: Records1[RunningResources]) -> None:
    j = -1
    for i in range(shown):
        j = next_running(state, b, i, j)
        job = state.jobs[b, j]
        row = running[i]
        row.cpu_only = 1.0 if job.kind == _CPU_ONLY else 0.0
        row.cores = squash(float(job.cores_per_worker), 8.0)
        row.ram = squash(float(job.ram_per_worker), 4.0 * _GIGABYTES)
        row.storage = squash(_SLOW_STORAGE * job.storage_seconds_per_byte, 1.0)
        row.sharing = squash(job.sharing_slowdown - 1.0, 1.0)
        row.bandwidth = squash(job.bandwidth_slowdown - 1.0, 1.0)
        row.bandwidth_cap = job.memory_bandwidth_cap
        if job.kind != _CPU_ONLY:
            row.gpu_speed = squash(job.gpu_speed, 1.0)
            row.gpus_to_asked = _log2_ratio(float(job.num_gpus), float(job.asked_gpus))
            row.batch_to_asked = _log2_ratio(job.batch_size, job.base_batch)


@kernel
def _write_servers(state: State, b: int, servers: Records1[ServerResources]) -> int:
    """Features of every server; how many GPUs of the cluster hold two jobs or more."""
    per_gpu = state.clusters[b].jobs_per_gpu
    shared = 0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        open_gpus = 0
        for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
            jobs = state.gpus[b, g].num_jobs
            if jobs < per_gpu:
                open_gpus += 1
            if 2 <= jobs <= per_gpu:
                shared += 1
        row = servers[s]
        row.open_gpus = open_gpus / server.num_gpus
        row.free_cores = server.free_cores / server.num_cores
        row.free_ram = server.free_ram / server.ram_bytes
        row.bandwidth = squash(float(server.bandwidth_demand), float(server.memory_bandwidth))
        row.up = float(server.up)
        row.gpu_memory = squash(float(server.gpu_memory_bytes), _GIGABYTES)
    return shared


@fills(Observe)
def _queue_cluster_and_resources(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    num_waiting, num_templates = episode.placement_contexts.shape[1], episode.placement_contexts.shape[2]
    cluster = state.clusters[b]
    visible = min(num_waiting, cluster.num_waiting)
    following = out[write_queue_and_cluster(state, episode, b, num_running, out) :]
    waiting, following = take_rows(following, num_waiting, WaitingResources)
    placements, following = take_rows(following, num_waiting * num_templates, PlacementResources)
    running, following = take_rows(following, num_running, RunningResources)
    servers, following = take_rows(following, state.servers.shape[1], ServerResources)
    totals, _ = take_rows(following, 1, ClusterResources)
    _write_waiting(state, b, visible, waiting)
    _write_placements(episode, b, visible, placements)
    _write_running(state, b, min(num_running, cluster.num_running), running)
    shared = _write_servers(state, b, servers)
    totals[0].down = cluster.down_gpus / cluster.num_gpus
    totals[0].shared = shared / cluster.num_gpus


def queue_cluster_and_resources(flat: bool = False) -> Observation:
    """As `queue_and_cluster`, and what else makes jobs fast or slow, in blocks of their own.

    The table of features: docs/observations.md.

    Args:
        flat: one Box row instead of a Dict of blocks.
    """
    return Observation(_queue_cluster_and_resources, _BLOCKS, flat, QUEUE_KNOWS)
