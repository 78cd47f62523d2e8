"""The observation for clusters with shared GPUs, cores, memory bandwidth, GPU types or elastic jobs."""

import numpy as np

from ringyard.compiled import Float32Vector, FloatVector, fills, kernel
from ringyard.mdp.episode import Episode
from ringyard.mdp.observations.blocks import Block, Each, Feature
from ringyard.mdp.observations.observation import Observation, Observe
from ringyard.mdp.observations.queue import BLOCKS, QUEUE_KNOWS, squash, write_queue_and_cluster
from ringyard.mdp.positions import next_running
from ringyard.performance.elastic import statistical_efficiency
from ringyard.state.arrays import State
from ringyard.state.progress import predicted_seconds
from ringyard.state.records import JobKind
from ringyard.state.waiting import waiting_at

__all__ = ["queue_cluster_and_resources"]

_CPU_ONLY = int(JobKind.CPU_ONLY)
_PARAMETER_SERVER = int(JobKind.PARAMETER_SERVER)

_WAITING = Block(
    "waiting_resources",
    Each.WAITING,
    (
        Feature("cpu_only", "1 if CPU-only"),
        Feature("parameter_server", "1 if it has parameter servers"),
        Feature("cores", "s(cores per worker, 8)", "cores"),
        Feature("ram", "s(RAM per worker, 64 GB)", "bytes"),
        Feature("gpu_memory", "s(GPU memory per worker, 16 GB)", "bytes"),
        Feature("gpu_range", "log2(most / fewest GPUs) / 4"),
        Feature("batch_range", "log2(largest / smallest batch) / 4"),
        Feature("efficiency", "statistical efficiency at twice its batch"),
        Feature(
            "time_to_deadline",
            "s(time until its largest acceptable completion time, predicted run time or 1 h); 1: any will do",
            "s",
        ),
    ),
)
_PLACEMENTS = Block(
    "placement_resources",
    Each.PLACEMENT,
    (
        Feature("sharing", "s(extra time by jobs on the same GPUs / time alone, 1)"),
        Feature("gpu_speed", "s(speed of its slowest GPU there, 1)"),
    ),
)
_RUNNING = Block(
    "running_resources",
    Each.RUNNING,
    (
        Feature("cpu_only", "1 if CPU-only"),
        Feature("cores", "s(cores per worker, 8)", "cores"),
        Feature("ram", "s(RAM per worker, 64 GB)", "bytes"),
        Feature("storage", "s(time to read a byte of storage, 10 ns); 0: it reads none, or at no limit", "s"),
        Feature("sharing", "s(extra time by jobs on the same GPUs / time alone, 1)"),
        Feature("bandwidth", "s(extra time by memory bandwidth / time alone, 1)"),
        Feature("bandwidth_cap", "memory bandwidth cap"),
        Feature("gpu_speed", "s(speed of its slowest GPU, 1)"),
        Feature("gpus_to_asked", "log2(GPUs / asked) / 4"),
        Feature("batch_to_asked", "log2(batch / asked) / 4"),
    ),
)
_SERVERS = Block(
    "server_resources",
    Each.SERVER,
    (
        Feature("open_gpus", "GPUs with a free slot / GPUs"),
        Feature("free_cores", "free cores / cores"),
        Feature("free_ram", "free RAM / RAM"),
        Feature("bandwidth", "memory bandwidth asked / (asked + there is)"),
        Feature("up", "1 if up"),
        Feature("gpu_memory", "s(memory of a GPU, 16 GB)", "bytes"),
    ),
)
_CLUSTER = Block(
    "cluster_resources",
    Each.CLUSTER,
    (
        Feature("down", "GPUs of failed servers / GPUs"),
        Feature("shared", "GPUs with two jobs or more / GPUs"),
    ),
)

WAITING_RESOURCES = len(_WAITING.features)
PLACEMENT_RESOURCES = len(_PLACEMENTS.features)
RUNNING_RESOURCES = len(_RUNNING.features)
SERVER_RESOURCES = len(_SERVERS.features)
_GIGABYTES = 16e9
_HOUR = 3600.0
_SLOW_STORAGE = 1e8  # bytes per second


@kernel
def _log2_ratio(value: float, base: float) -> float:
    """log2(value / base) / 4, at most 1 either way."""
    return min(max(np.log2(value / base) / 4.0, -1.0), 1.0)


@kernel
def _write_waiting(state: State, b: int, visible: int, out: Float32Vector) -> None:
    for i in range(visible):
        job = state.jobs[b, waiting_at(state, b, i)]
        row = i * WAITING_RESOURCES
        out[row] = 1.0 if job.kind == _CPU_ONLY else 0.0
        out[row + 1] = 1.0 if job.kind == _PARAMETER_SERVER else 0.0
        out[row + 2] = squash(float(job.cores_per_worker), 8.0)
        out[row + 3] = squash(float(job.ram_per_worker), 4.0 * _GIGABYTES)
        out[row + 4] = squash(float(job.gpu_memory_bytes), _GIGABYTES)
        if job.kind != _CPU_ONLY:
            out[row + 5] = _log2_ratio(float(job.max_gpus), float(job.min_gpus))
            out[row + 6] = _log2_ratio(job.max_batch, job.min_batch)
        out[row + 7] = statistical_efficiency(job.noise_scale, job.base_batch, 2.0 * job.base_batch)
        out[row + 8] = 1.0
        if job.deadline_seconds < np.inf:
            scale = predicted_seconds(job) if job.predictable != 0 else _HOUR
            out[row + 8] = squash(max(job.deadline_seconds - state.clusters[b].now, 0.0), scale)


@kernel
def _write_placements(state: State, episode: Episode, b: int, visible: int, out: Float32Vector) -> None:
    num_templates = episode.looks.shape[2]
    for i in range(visible):
        for t in range(num_templates):
            found = episode.looks[b, i, t]
            if found.num_places > 0:
                row = (i * num_templates + t) * PLACEMENT_RESOURCES
                out[row] = squash(found.sharing_slowdown - 1.0, 1.0)
                out[row + 1] = squash(found.gpu_speed, 1.0)


@kernel
def _write_running(state: State, b: int, shown: int, out: Float32Vector) -> None:
    j = -1
    for i in range(shown):
        j = next_running(state, b, i, j)
        job = state.jobs[b, j]
        row = i * RUNNING_RESOURCES
        out[row] = 1.0 if job.kind == _CPU_ONLY else 0.0
        out[row + 1] = squash(float(job.cores_per_worker), 8.0)
        out[row + 2] = squash(float(job.ram_per_worker), 4.0 * _GIGABYTES)
        out[row + 3] = squash(_SLOW_STORAGE * job.storage_seconds_per_byte, 1.0)
        out[row + 4] = squash(job.sharing_slowdown - 1.0, 1.0)
        out[row + 5] = squash(job.bandwidth_slowdown - 1.0, 1.0)
        out[row + 6] = job.memory_bandwidth_cap
        if job.kind != _CPU_ONLY:
            out[row + 7] = squash(job.gpu_speed, 1.0)
            out[row + 8] = _log2_ratio(float(job.num_gpus), float(job.asked_gpus))
            out[row + 9] = _log2_ratio(job.batch_size, job.base_batch)


@kernel
def _write_servers(state: State, b: int, out: Float32Vector) -> int:
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
        out[row + 2] = server.free_ram / server.ram_bytes
        out[row + 3] = squash(float(server.bandwidth_demand), float(server.memory_bandwidth))
        out[row + 4] = float(server.up)
        out[row + 5] = squash(float(server.gpu_memory_bytes), _GIGABYTES)
    return shared


@fills(Observe)
def _queue_cluster_and_resources(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
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

    The table of features: docs/observations.md.

    Args:
        flat: one Box row instead of a Dict of blocks.
    """
    blocks = (*BLOCKS, _WAITING, _PLACEMENTS, _RUNNING, _SERVERS, _CLUSTER)
    return Observation(_queue_cluster_and_resources, blocks, flat, QUEUE_KNOWS)
