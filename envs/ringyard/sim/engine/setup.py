"""Create the state arrays of a batch of simulations, and put clusters at time 0."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import Records1, Records2, kernel, linked_kernel
from ringyard.errors import ConfigurationError
from ringyard.failures import Failures
from ringyard.gpu_types import REFERENCE_GPU
from ringyard.performance import PerformanceModel
from ringyard.performance.interference import no_interference
from ringyard.profiles import catalogue
from ringyard.resources import NUM_RESOURCES, RESOURCES
from ringyard.sim.engine.events import draw_first_failures
from ringyard.sim.engine.network import clear_links
from ringyard.state.arrays import State, empty_state
from ringyard.state.free_servers import index_servers
from ringyard.state.records import UNLIMITED, Job, Network, set_free, total_on


def slowness_table(cluster: Cluster) -> NDArray[np.float64]:
    """Return `State.slowness` for the cluster's GPU types, NaN where a profile has no figure."""
    types = cluster.distinct_gpu_types
    found = np.ones((len(catalogue()) + 1, max(len(types), 1), 2))  # without types: the reference GPU
    for row, model in enumerate(catalogue()):
        for column, kind in enumerate(types):
            found[row, column] = model.relative_seconds(kind) if kind in model.gpus else np.nan
    return found


def kernel_share_table(cluster: Cluster) -> NDArray[np.float64]:
    """Return `State.kernel_shares` for the cluster's GPU types, 1 at any batch where nothing was measured."""
    types = cluster.distinct_gpu_types or (REFERENCE_GPU,)
    found = [[(1.0, 1.0)]] * len(types) * (len(catalogue()) + 1)
    for row, model in enumerate(catalogue()):
        for column, kind in enumerate(types if model.kernel_share else ()):
            shares = model.kernel_share.get(kind, next(iter(model.kernel_share.values())))
            found[row * len(types) + column] = sorted(shares.items())
    most = max(map(len, found))
    return np.array([points + [(np.inf, np.nan)] * (most - len(points)) for points in found])


def new_state(
    cluster: Cluster,
    performance: PerformanceModel,
    failures: Failures,
    num_clusters: int,
    num_jobs: int,
    num_classes: int,
    round_seconds: float | None = None,
    rounds_only: bool = False,
    timeline_bins: int = 0,
    segment_rows: int = 0,
    losses: bool = False,
    jobs: Records2[Job] | None = None,
) -> State:
    """Return state arrays of a batch of simulations, with all that does not change between episodes.

    `num_jobs` and `num_classes` (`prepare.demand_classes`) are the largest numbers of one simulation.
    `timeline_bins` and `segment_rows` are lengths of `State.timeline` and `State.segments`, 0: none. `losses`
    counts how much time each job loses to each cause. `jobs` [clusters, num_jobs + 1] are used as
    `State.jobs`.
    """
    interference = performance.interference if cluster.jobs_per_gpu > 1 else no_interference()
    sharing = interference.sharing_on(cluster.distinct_gpu_types)
    state = empty_state(
        num_clusters,
        jobs=num_jobs,
        gpus=cluster.num_gpus,
        servers=cluster.num_servers,
        racks=cluster.num_racks,
        jobs_per_gpu=cluster.jobs_per_gpu,
        classes=num_classes,
        models=len(catalogue()),
        gpu_types=max(len(cluster.distinct_gpu_types), 1),
        sharing_batches=sharing.shape[1],
        paired=interference.pairs is not None,
        losses=losses,
        gpus_of_server=max(cluster.gpus_per_server),
        timeline_bins=timeline_bins,
        segment_rows=segment_rows,
    )
    state = replace(
        state, memory_slowdowns=performance.memory.slowdowns, jobs=state.jobs if jobs is None else jobs
    )
    state.slowness[:] = slowness_table(cluster)
    state.sharing_table[:] = sharing
    if interference.pairs is not None:
        state.pairwise_excess[:] = np.nan_to_num(interference.pairs)
    if losses:
        state = replace(state, kernel_shares=kernel_share_table(cluster))
        state.fewest_servers[:] = cluster.fewest_servers(np.arange(cluster.num_gpus + 1))
    _write_hardware(state, cluster)
    if failures.outages:
        if len(failures.outages) != cluster.num_servers:
            raise ConfigurationError(
                f"failures.outages has {len(failures.outages)} rows; expected one for each of the"
                f" {cluster.num_servers} servers (recorded: failures.num_servers={cluster.num_servers})"
            )
        state.servers["num_outage_times"] = [len(times) for times in failures.outages]
        outages = np.full((cluster.num_servers, max(map(len, failures.outages))), np.inf)
        for row, times in zip(outages, failures.outages, strict=True):
            row[: len(times)] = times
        state = replace(state, outages=outages)
    clusters = state.clusters
    clusters["num_gpus"] = cluster.num_gpus
    clusters["num_servers"] = cluster.num_servers
    clusters["jobs_per_gpu"] = cluster.jobs_per_gpu
    clusters["min_gpus_per_server"] = min(cluster.gpus_per_server)
    clusters["max_gpus_per_server"] = max(cluster.gpus_per_server)
    clusters["min_gpu_memory_bytes"] = state.servers["gpu_memory_bytes"].min(initial=UNLIMITED)
    clusters["round_seconds"] = np.inf if round_seconds is None else round_seconds
    clusters["rounds_only"] = rounds_only
    clusters["network"] = performance.network
    beyond_servers = performance.network in (Network.LIVE_TRANSFERS, Network.MAX_MIN)
    racks = cluster.num_racks > 0 and performance.network is not Network.NONE
    clusters["global_links"] = beyond_servers or racks
    state.between_servers[:] = performance.between_servers.row
    clusters["sharing_slows"] = interference.slows
    clusters["bandwidth_limited"] = bool(cluster.memory_bandwidth_bytes_per_second)
    clusters["storage_limited"] = bool(cluster.storage_bytes_per_second)
    clusters["straggler_cv"] = performance.straggler_cv
    clusters["mean_up_seconds"] = failures.mean_up_seconds
    clusters["mean_repair_seconds"] = failures.mean_repair_seconds
    clusters["outage_period_seconds"] = failures.period_seconds
    clusters["checkpoint_seconds"] = failures.checkpoint_seconds
    clusters["checkpoint_on_preemption"] = failures.checkpoint_on_preemption
    for name in ("wake_seconds", "next_cancel_seconds"):
        clusters[name] = np.inf
    clusters["next_round_seconds"] = 0.0 if rounds_only else clusters["round_seconds"]
    clusters["work_at_last_check"] = np.nan
    clusters["free_gpus"] = clusters["open_gpus"] = cluster.num_gpus
    state.initial_cluster[: len(clusters)] = clusters[:1]
    return state


def _write_hardware(state: State, cluster: Cluster) -> None:
    """Write the cluster's GPUs, servers and links to the state."""
    state.gpus["server"] = cluster.server_of_gpu
    state.slots["gpu"] = np.repeat(np.arange(cluster.num_gpus), cluster.jobs_per_gpu)
    state.slots["server"] = np.repeat(cluster.server_of_gpu, cluster.jobs_per_gpu)
    servers = state.servers
    servers["num_gpus"] = cluster.gpus_per_server
    servers["first_gpu"] = cluster.first_gpu_of_server
    for one in RESOURCES:
        servers[one.total] = getattr(cluster, one.capacity) or one.unlimited
    servers["storage_bytes_per_second"] = cluster.storage_bytes_per_second or np.inf
    servers["memory_bandwidth"] = cluster.memory_bandwidth_bytes_per_second or UNLIMITED
    memory = cluster.gpu_memory_bytes
    servers["gpu_memory_bytes"] = np.where(np.isfinite(memory), np.minimum(memory, UNLIMITED), UNLIMITED)
    kinds = cluster.distinct_gpu_types
    servers["gpu_type"] = [kinds.index(kind) for kind in cluster.gpu_types] or 0
    servers["rack"] = cluster.rack_of_server or 0
    state.links["capacity"] = 1.0
    if cluster.num_racks:
        per_rack = np.bincount(cluster.rack_of_server)
        state.links["capacity"][:, cluster.num_servers :] = per_rack / cluster.uplink_oversubscription


@kernel
def _reset_servers(state: State, b: int) -> None:
    """Put all servers of cluster `b` up and empty."""
    for i in range(state.slots.shape[1]):
        state.slots[b, i].job = -1
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        server.free_gpus = server.num_gpus
        server.open_gpus = server.num_gpus
        server.spanning_jobs = 0
        server.bandwidth_demand = 0
        for r in range(NUM_RESOURCES):
            set_free(server, r, total_on(server, r))
        server.storage_readers = 0
        server.first_cpu_job = -1
        server.up = 1
        server.num_failures = 0
        for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
            state.gpus[b, g].num_jobs = 0
            state.gpus[b, g].free_memory_bytes = server.gpu_memory_bytes
    clear_links(state, b)
    index_servers(state, b)


@linked_kernel
def load_jobs(state: State, b: int, jobs: Records1[Job], limit_seconds: float, seed: int) -> None:
    """Put cluster `b` of `state` at time 0 with records `jobs` (`limit_seconds`, `seed`: `reset_cluster`)."""
    for j in range(len(jobs)):
        state.jobs[b, j] = jobs[j]
    reset_cluster(state, b, len(jobs), limit_seconds, seed)


@linked_kernel
def reset_cluster(state: State, b: int, num_jobs: int, limit_seconds: float, seed: int) -> None:
    """Put a cluster at time 0 with its first `num_jobs` prepared records, to end at `limit_seconds`."""
    jobs = state.jobs[b]
    smallest = jobs[0].min_gpus
    num_classes = 0
    perfect_predictions = 1
    for j in range(num_jobs):
        if jobs[j].predictable_from > 0.0 or jobs[j].prediction_factor != 1.0:
            perfect_predictions = 0
        smallest = min(smallest, jobs[j].min_gpus)
        num_classes = max(num_classes, jobs[j].demand_class + 1)
    _reset_servers(state, b)
    state.class_waiting[b] = 0
    state.class_marks[b] = 0
    state.integrals[b] = 0.0
    state.timeline[b] = 0.0
    state.losses[b] = 0.0
    state.kernels_counted[b] = 0.0
    state.clusters[b] = state.initial_cluster[0]
    cluster = state.clusters[b]
    cluster.limit_seconds = limit_seconds
    cluster.rng = seed
    cluster.seed = seed
    cluster.num_jobs = num_jobs
    cluster.perfect_predictions = perfect_predictions
    cluster.num_classes = num_classes
    cluster.min_demand_gpus = smallest if cluster.jobs_per_gpu == 1 else 0
    cluster.first_waiting = num_jobs // 2
    draw_first_failures(state, b)
