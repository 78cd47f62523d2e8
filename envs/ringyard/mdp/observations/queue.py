"""Observations for `Actions`: `queue_and_cluster`, `queue_cluster_and_resources`, `operation_graph`."""

from typing import Annotated

import numpy as np

from ringyard.compiled import Float32Vector, FloatVector, Record, Records1, f4, implements, kernel, take_rows
from ringyard.mdp.episode import Episode, next_running
from ringyard.mdp.job_features import Feature, squash
from ringyard.mdp.observations.observation import Block, ItemAxis, Observation, Observe, Present, mark_present
from ringyard.observability import Observability
from ringyard.performance.model import statistical_efficiency
from ringyard.state.arrays import State, waiting_at
from ringyard.state.operations import DEPENDENCIES, OPERATIONS, draw_graph
from ringyard.state.progress import (
    attained_service,
    predicted_iterations,
    predicted_seconds,
    predicted_share,
    relative_slowdown,
)
from ringyard.state.records import JobKind


class WaitingFeatures(Record):
    """Features of a visible waiting job."""

    run_time: Annotated[f4, Feature("(ln predicted isolated run time - 6) / 2.5, 0 if not predictable", "s")]
    gpus: Annotated[f4, Feature("log2(GPUs) / 3 - 0.5, CPU-only as an eighth of a GPU", "GPUs")]
    work: Annotated[f4, Feature("(ln (run time x GPUs) - 7) / 3, 0 if not predictable", "GPU s")]
    waited: Annotated[f4, Feature("s(time since submission, 1 h)", "s")]
    run_time_rank: Annotated[f4, Feature("rank of run_time among the visible, in [0, 1)")]
    gpus_rank: Annotated[f4, Feature("rank of gpus, likewise")]
    work_rank: Annotated[f4, Feature("rank of work, likewise")]
    waited_rank: Annotated[f4, Feature("rank of waited, likewise")]
    communication: Annotated[f4, Feature("ln(1 + gradient bytes / (1 GB/s x compute seconds)) - 1")]
    predictable: Annotated[f4, Feature("1 if predictable")]
    share_left: Annotated[f4, Feature("predicted share of iterations left, 1 if not predictable")]
    attained_service: Annotated[f4, Feature("s(GPU time held, 10 h)", "GPU s")]


class PlacementFeatures(Record):
    """Features of a visible waiting job with the GPUs of a start template."""

    fits: Annotated[f4, Feature("1 if the template finds GPUs for the job now")]
    servers: Annotated[f4, Feature("s(servers spanned - 1, 2)", "servers")]
    slowdown: Annotated[
        f4,
        Feature("1 - isolated / predicted seconds per iteration there. If faster, predicted / isolated - 1"),
    ]


class RunningFeatures(Record):
    """Features of a running job."""

    time_left: Annotated[f4, Feature("s(predicted time left at its speed, 1 h), 0 if not predictable", "s")]
    predictable: Annotated[f4, Feature("1 if predictable")]
    gpus: Annotated[f4, Feature("s(GPUs, 4)", "GPUs")]
    time_since_start: Annotated[f4, Feature("s(time since its last start, 1 h)", "s")]
    attained_service: Annotated[f4, Feature("s(GPU time held, 10 h)", "GPU s")]
    servers: Annotated[f4, Feature("s(servers spanned - 1, 2)", "servers")]
    slowdown: Annotated[
        f4, Feature("1 - isolated / present seconds per iteration. If faster, present / isolated - 1")
    ]


class ServerFeatures(Record):
    """Features of a server."""

    free: Annotated[f4, Feature("free GPUs / GPUs")]
    spanning: Annotated[f4, Feature("s(jobs here that span servers, 2)", "jobs")]
    gpus: Annotated[f4, Feature("s(GPUs, 8)", "GPUs")]


class ClusterFeatures(Record):
    """Features of the cluster."""

    free: Annotated[f4, Feature("free GPUs / GPUs")]
    fragmented: Annotated[f4, Feature("free GPUs on partly used servers / GPUs")]
    waiting: Annotated[f4, Feature("s(waiting jobs, 16)", "jobs")]
    hidden: Annotated[f4, Feature("s(waiting jobs beyond the visible, 16)", "jobs")]
    running: Annotated[f4, Feature("s(running jobs, 16)", "jobs")]
    demand: Annotated[f4, Feature("s(GPUs asked for by waiting jobs / GPUs, 1)")]
    preemptions: Annotated[f4, Feature("preemptions / (preemptions + starts + 1)")]
    load: Annotated[f4, Feature("s(sum over live predictable jobs of 1 / predicted run time, 0.01)", "1/s")]


class WaitingResources(Record):
    """Resource features of a visible waiting job."""

    cpu_only: Annotated[f4, Feature("1 if CPU-only")]
    parameter_server: Annotated[f4, Feature("1 if it has parameter servers")]
    cores: Annotated[f4, Feature("s(cores per worker, 8)", "cores")]
    ram: Annotated[f4, Feature("s(RAM per worker, 64 GB)", "bytes")]
    gpu_memory: Annotated[f4, Feature("s(GPU memory per worker, 16 GB)", "bytes")]
    gpu_range: Annotated[f4, Feature("log2(most / fewest GPUs) / 4")]
    batch_range: Annotated[f4, Feature("log2(largest / smallest batch) / 4")]
    efficiency: Annotated[f4, Feature("statistical efficiency at twice its batch")]
    time_to_deadline: Annotated[f4, Feature("s(time to deadline, predicted run time or 1 h). 1: none", "s")]


class PlacementResources(Record):
    """Resource features of a visible waiting job with the GPUs of a start template."""

    sharing: Annotated[f4, Feature("s(extra time by jobs on the same GPUs / isolated time, 1)")]
    gpu_speed: Annotated[f4, Feature("s(speed of its slowest GPU there, 1)")]


class RunningResources(Record):
    """Resource features of a running job."""

    cpu_only: Annotated[f4, Feature("1 if CPU-only")]
    cores: Annotated[f4, Feature("s(cores per worker, 8)", "cores")]
    ram: Annotated[f4, Feature("s(RAM per worker, 64 GB)", "bytes")]
    storage: Annotated[f4, Feature("s(time to read a byte from storage, 10 ns). 0: no limit or no read", "s")]
    sharing: Annotated[f4, Feature("s(extra time by jobs on the same GPUs / isolated time, 1)")]
    bandwidth: Annotated[f4, Feature("s(extra time by memory bandwidth / isolated time, 1)")]
    bandwidth_cap: Annotated[f4, Feature("memory bandwidth cap")]
    gpu_speed: Annotated[f4, Feature("s(speed of its slowest GPU, 1)")]
    gpus_to_asked: Annotated[f4, Feature("log2(GPUs / asked for) / 4")]
    batch_to_asked: Annotated[f4, Feature("log2(batch / asked for) / 4")]


class ServerResources(Record):
    """Resource features of a server."""

    open_gpus: Annotated[f4, Feature("GPUs with a free slot / GPUs")]
    free_cores: Annotated[f4, Feature("free cores / cores")]
    free_ram: Annotated[f4, Feature("free RAM / RAM")]
    bandwidth: Annotated[f4, Feature("memory bandwidth asked for / (asked for + available)")]
    up: Annotated[f4, Feature("1 if up")]
    gpu_memory: Annotated[f4, Feature("s(memory of a GPU, 16 GB)", "bytes")]


class ClusterResources(Record):
    """Resource features of the cluster."""

    down: Annotated[f4, Feature("GPUs of failed servers / GPUs")]
    shared: Annotated[f4, Feature("GPUs with two jobs or more / GPUs")]


class GraphTotals(Record):
    """Features of the operation graph of the first visible waiting job, without its edges."""

    operations: Annotated[f4, Feature("operations / 16")]
    dependencies: Annotated[f4, Feature("dependencies / 32")]
    longest: Annotated[f4, Feature("seconds of its longest operation / of all operations")]
    largest: Annotated[f4, Feature("output bytes of its largest operation / of all operations")]


class OperationFeatures(Record):
    """Features of an operation of this job."""

    work: Annotated[f4, Feature("seconds / those of the longest operation")]
    is_longest: Annotated[f4, Feature("1 if it is the longest")]
    output: Annotated[f4, Feature("output bytes / those of the largest")]
    is_largest: Annotated[f4, Feature("1 if it has the largest output")]
    depth: Annotated[f4, Feature("most dependencies on a way to it / the most of any operation")]


class DependencyFeatures(Record):
    """Features of a dependency between two of these operations."""

    source: Annotated[f4, Feature("number of the operation before / 16")]
    target: Annotated[f4, Feature("number of the operation after / 16")]
    output: Annotated[f4, Feature("output bytes of the one before / those of the largest")]
    is_largest: Annotated[f4, Feature("1 if that is the largest output")]


#: blocks of `queue_and_cluster`, in the order of the row
BLOCKS = (
    Block("waiting", ItemAxis.WAITING, WaitingFeatures),
    Block("waiting_mask", ItemAxis.WAITING, Present),
    Block("placements", ItemAxis.PLACEMENT, PlacementFeatures),
    Block("running", ItemAxis.RUNNING, RunningFeatures),
    Block("running_mask", ItemAxis.RUNNING, Present),
    Block("servers", ItemAxis.SERVER, ServerFeatures),
    Block("cluster", ItemAxis.CLUSTER, ClusterFeatures),
)
#: further blocks of `queue_cluster_and_resources`
_RESOURCE_BLOCKS = (
    Block("waiting_resources", ItemAxis.WAITING, WaitingResources),
    Block("placement_resources", ItemAxis.PLACEMENT, PlacementResources),
    Block("running_resources", ItemAxis.RUNNING, RunningResources),
    Block("server_resources", ItemAxis.SERVER, ServerResources),
    Block("cluster_resources", ItemAxis.CLUSTER, ClusterResources),
)
#: further blocks of `operation_graph`
_GRAPH_BLOCKS = (
    Block("graph", ItemAxis.CLUSTER, GraphTotals),
    Block("operations", ItemAxis.OPERATION, OperationFeatures),
    Block("dependencies", ItemAxis.DEPENDENCY, DependencyFeatures),
)
_GRAPH_NUMBERS = 4 + 5 * OPERATIONS + 4 * DEPENDENCIES
#: what all blocks show. Durations are predictions
_SHOWN = Observability.SIZES | Observability.ATTAINED_SERVICE | Observability.PREDICTIONS
_OBSERVABILITY = _SHOWN | Observability.SPEEDS

_GIGABYTES = 16e9
_HOUR = 3600.0
_SLOW_STORAGE = 1e8  # bytes per second


@kernel
def _log2_ratio(value: float, base: float) -> float:
    """Return log2(value / base) / 4, clipped to [-1, 1]."""
    return min(max(np.log2(value / base) / 4.0, -1.0), 1.0)


@kernel
def _is_before(other: float, value: float, k: int, i: int) -> int:
    return 1 if other < value or (other == value and k < i) else 0


@kernel
def _write_ranks(visible: int, waiting: Records1[WaitingFeatures]) -> None:
    """Write the rank in [0, 1) of each visible job by each of four features."""
    for i in range(visible):
        row = waiting[i]
        run_time = gpus = work = waited = 0
        for k in range(visible):
            other = waiting[k]
            run_time += _is_before(other.run_time, row.run_time, k, i)
            gpus += _is_before(other.gpus, row.gpus, k, i)
            work += _is_before(other.work, row.work, k, i)
            waited += _is_before(other.waited, row.waited, k, i)
        row.run_time_rank = run_time / visible
        row.gpus_rank = gpus / visible
        row.work_rank = work / visible
        row.waited_rank = waited / visible


@kernel
def _write_waiting(
    state: State,
    episode: Episode,
    b: int,
    waiting: Records1[WaitingFeatures],
    resources: Records1[WaitingResources],
) -> None:
    now = state.clusters[b].now
    for i in range(min(len(waiting), state.clusters[b].num_waiting)):
        j = waiting_at(state, b, i)
        job = state.jobs[b, j]
        static = episode.static[b, j]
        row = waiting[i]
        known = job.predictable != 0
        row.run_time = static.run_time if known else 0.0
        row.gpus = static.gpus
        row.work = static.work if known else 0.0
        row.waited = squash(now - job.submit_seconds, _HOUR)
        row.communication = static.communication
        row.predictable = 1.0 if known else 0.0
        row.share_left = predicted_share(job) if known else 1.0
        row.attained_service = squash(job.attained_service, 10.0 * _HOUR)
        if len(resources) == 0:
            continue
        more = resources[i]
        more.cpu_only = 1.0 if job.kind == JobKind.CPU_ONLY else 0.0
        more.parameter_server = 1.0 if job.kind == JobKind.PARAMETER_SERVER else 0.0
        more.cores = squash(float(job.cores_per_worker), 8.0)
        more.ram = squash(float(job.ram_per_worker), 4.0 * _GIGABYTES)
        more.gpu_memory = squash(float(job.gpu_memory_bytes), _GIGABYTES)
        if job.kind != JobKind.CPU_ONLY:
            more.gpu_range = _log2_ratio(float(job.max_gpus), float(job.min_gpus))
            more.batch_range = _log2_ratio(job.max_batch, job.min_batch)
        more.efficiency = statistical_efficiency(job.noise_scale, job.base_batch, 2.0 * job.base_batch)
        more.time_to_deadline = 1.0
        deadline = min(job.blocked_seconds, job.submit_seconds + job.deadline_seconds)
        if deadline < np.inf:
            scale = predicted_seconds(job) if known else _HOUR
            more.time_to_deadline = squash(max(deadline - now, 0.0), scale)


@kernel
def _write_placements(
    episode: Episode,
    b: int,
    visible: int,
    placements: Records1[PlacementFeatures],
    resources: Records1[PlacementResources],
) -> None:
    num_templates = episode.placement_contexts.shape[2]
    for i in range(visible):
        for t in range(num_templates):
            found = episode.placement_contexts[b, i, t]
            if found.num_places > 0:
                row = placements[i * num_templates + t]
                row.fits = 1.0
                row.servers = squash(found.num_servers - 1.0, 2.0)
                row.slowdown = episode.template_slowdown[b, i, t]
                if len(resources) > 0:
                    more = resources[i * num_templates + t]
                    more.sharing = squash(found.sharing_slowdown - 1.0, 1.0)
                    more.gpu_speed = squash(found.gpu_speed, 1.0)


@kernel
def _write_running(
    state: State, b: int, running: Records1[RunningFeatures], resources: Records1[RunningResources]
) -> None:
    now = state.clusters[b].now
    j = -1
    for i in range(min(len(running), state.clusters[b].num_running)):
        j = next_running(state, b, i, j)
        job = state.jobs[b, j]
        row = running[i]
        known = job.predictable != 0
        left = predicted_iterations(job, now) * job.iteration_seconds
        row.time_left = squash(left, _HOUR) if known else 0.0
        row.predictable = 1.0 if known else 0.0
        row.gpus = squash(float(job.num_gpus), 4.0)
        row.time_since_start = squash(now - job.last_start_seconds, _HOUR)
        row.attained_service = squash(attained_service(job, now), 10.0 * _HOUR)
        row.servers = squash(float(job.num_servers - 1), 2.0)
        row.slowdown = relative_slowdown(job.isolated_iteration_seconds, job.iteration_seconds)
        if len(resources) == 0:
            continue
        more = resources[i]
        more.cpu_only = 1.0 if job.kind == JobKind.CPU_ONLY else 0.0
        more.cores = squash(float(job.cores_per_worker), 8.0)
        more.ram = squash(float(job.ram_per_worker), 4.0 * _GIGABYTES)
        more.storage = squash(_SLOW_STORAGE * job.storage_seconds_per_byte, 1.0)
        more.sharing = squash(job.sharing_slowdown - 1.0, 1.0)
        more.bandwidth = squash(job.bandwidth_slowdown - 1.0, 1.0)
        more.bandwidth_cap = job.memory_bandwidth_cap
        if job.kind != JobKind.CPU_ONLY:
            more.gpu_speed = squash(job.gpu_speed, 1.0)
            more.gpus_to_asked = _log2_ratio(float(job.num_gpus), float(job.asked_gpus))
            more.batch_to_asked = _log2_ratio(job.batch_size, job.base_batch)


@kernel
def _write_servers(
    state: State, b: int, servers: Records1[ServerFeatures], resources: Records1[ServerResources]
) -> int:
    """Write the features of all servers, and return the number of GPUs with two jobs or more."""
    per_gpu = state.clusters[b].jobs_per_gpu
    shared = 0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        servers[s].free = server.free_gpus / server.num_gpus
        servers[s].spanning = squash(float(server.spanning_jobs), 2.0)
        servers[s].gpus = squash(float(server.num_gpus), 8.0)
        if len(resources) == 0:
            continue
        open_gpus = 0
        for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
            jobs = state.gpus[b, g].num_jobs
            if jobs < per_gpu:
                open_gpus += 1
            if 2 <= jobs <= per_gpu:
                shared += 1
        more = resources[s]
        more.open_gpus = open_gpus / server.num_gpus
        more.free_cores = server.free_cores / server.num_cores
        more.free_ram = server.free_ram / server.ram_bytes
        more.bandwidth = squash(float(server.bandwidth_demand), float(server.memory_bandwidth))
        more.up = float(server.up)
        more.gpu_memory = squash(float(server.gpu_memory_bytes), _GIGABYTES)
    return shared


@kernel
def _write_cluster(state: State, b: int, visible: int, out: ClusterFeatures) -> None:
    cluster = state.clusters[b]
    num_gpus = float(cluster.num_gpus)
    running_gpus = num_gpus - cluster.free_gpus - cluster.down_gpus
    out.free = cluster.free_gpus / num_gpus
    out.fragmented = cluster.fragmented_gpus / num_gpus
    out.waiting = squash(float(cluster.num_waiting), 16.0)
    out.hidden = squash(float(cluster.num_waiting - visible), 16.0)
    out.running = squash(float(cluster.num_running), 16.0)
    out.demand = squash((cluster.demanded_gpus - running_gpus) / num_gpus, 1.0)
    out.preemptions = cluster.num_preemptions / (cluster.num_preemptions + float(cluster.num_starts) + 1.0)
    out.load = squash(cluster.predicted_inverse_durations, 0.01)


@kernel
def _write_graph(number: int, out: Float32Vector) -> None:
    """Write the blocks of the graph of a `number`."""
    rows, rest = take_rows(out, 1, GraphTotals)
    operations, rest = take_rows(rest, OPERATIONS, OperationFeatures)
    dependencies, _ = take_rows(rest, DEPENDENCIES, DependencyFeatures)
    count, used = draw_graph(number, operations, dependencies)
    totals, deepest = rows[0], 0.0
    totals.operations, totals.dependencies = count / OPERATIONS, used / 32.0
    for i in range(count):
        totals.longest = max(totals.longest, operations[i].work)
        totals.largest = max(totals.largest, operations[i].output)
        deepest = max(deepest, operations[i].depth)
    for i in range(count):
        operations[i].work /= totals.longest
        operations[i].output /= totals.largest
        operations[i].depth /= deepest
        operations[i].is_longest = 1.0 if operations[i].work == 1.0 else 0.0
        operations[i].is_largest = 1.0 if operations[i].output == 1.0 else 0.0
    for k in range(used):
        dependencies[k].source /= OPERATIONS
        dependencies[k].target /= OPERATIONS
        dependencies[k].output /= totals.largest
        dependencies[k].is_largest = 1.0 if dependencies[k].output == 1.0 else 0.0


@kernel
def _write(
    state: State, episode: Episode, b: int, num_running: int, shows_resources: int, out: Float32Vector
) -> None:
    """Write the row, with the resource blocks if `shows_resources` is 1 and without them if it is 0."""
    out[:] = 0.0
    cluster = state.clusters[b]
    num_waiting, num_servers = episode.placement_contexts.shape[1], state.servers.shape[1]
    num_starts = num_waiting * episode.placement_contexts.shape[2]
    visible = min(num_waiting, cluster.num_waiting)
    waiting, rest = take_rows(out, num_waiting, WaitingFeatures)
    waiting_mask, rest = take_rows(rest, num_waiting, Present)
    placements, rest = take_rows(rest, num_starts, PlacementFeatures)
    running, rest = take_rows(rest, num_running, RunningFeatures)
    running_mask, rest = take_rows(rest, num_running, Present)
    servers, rest = take_rows(rest, num_servers, ServerFeatures)
    totals, rest = take_rows(rest, 1, ClusterFeatures)
    more_waiting, rest = take_rows(rest, shows_resources * num_waiting, WaitingResources)
    more_placements, rest = take_rows(rest, shows_resources * num_starts, PlacementResources)
    more_running, rest = take_rows(rest, shows_resources * num_running, RunningResources)
    more_servers, rest = take_rows(rest, shows_resources * num_servers, ServerResources)
    more_totals, _ = take_rows(rest, shows_resources, ClusterResources)
    mark_present(waiting_mask, visible)
    mark_present(running_mask, min(num_running, cluster.num_running))
    _write_waiting(state, episode, b, waiting, more_waiting)
    _write_ranks(visible, waiting)
    _write_placements(episode, b, visible, placements, more_placements)
    _write_running(state, b, running, more_running)
    shared = _write_servers(state, b, servers, more_servers)
    _write_cluster(state, b, visible, totals[0])
    if len(more_totals) > 0:
        more_totals[0].down = cluster.down_gpus / cluster.num_gpus
        more_totals[0].shared = shared / cluster.num_gpus


@implements(Observe)
def _queue_and_cluster(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    _write(state, episode, b, num_running, int(parameters[0]), out)


@implements(Observe)
def _operation_graph(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    _write(state, episode, b, num_running, 1, out)
    num_waiting = episode.placement_contexts.shape[1]
    _, rest = take_rows(out, num_waiting, WaitingFeatures)
    _, rest = take_rows(rest, num_waiting, Present)
    placements, _ = take_rows(rest, num_waiting * episode.placement_contexts.shape[2], PlacementFeatures)
    for i in range(len(placements)):
        placements[i].slowdown = 0.0
    if state.clusters[b].num_waiting > 0 and state.jobs[b, waiting_at(state, b, 0)].graph >= 0:
        _write_graph(state.jobs[b, waiting_at(state, b, 0)].graph, out[len(out) - _GRAPH_NUMBERS :])


def queue_and_cluster(flat: bool = False) -> Observation:
    """Create the observation of waiting jobs, their possible placements, running jobs, servers and totals.

    `help(ringyard.ClusterEnv)` and docs/observations.md have the table of features.

    Args:
        flat: one Box row (for an MLP) instead of a Dict of blocks (for a set or pointer policy).
    """
    return Observation(_queue_and_cluster, BLOCKS, flat, _OBSERVABILITY)


def queue_cluster_and_resources(flat: bool = False) -> Observation:
    """Create `queue_and_cluster` with further blocks of resource features.

    They are for clusters with shared GPUs, cores, memory bandwidth, GPU types or elastic jobs.
    docs/observations.md has the table of features.

    Args:
        flat: one Box row instead of a Dict of blocks.
    """
    return Observation(_queue_and_cluster, (*BLOCKS, *_RESOURCE_BLOCKS), flat, _OBSERVABILITY, np.ones(1))


def operation_graph(flat: bool = False) -> Observation:
    """Create `queue_cluster_and_resources` with the operation graph of the first waiting job.

    The feature `slowdown` of placements is 0: how fast a job would run there follows from its graph.
    docs/observations.md has the table of features.

    Args:
        flat: one Box row (for an MLP) instead of a Dict of blocks (for a graph network).
    """
    return Observation(_operation_graph, (*BLOCKS, *_RESOURCE_BLOCKS, *_GRAPH_BLOCKS), flat, _OBSERVABILITY)
