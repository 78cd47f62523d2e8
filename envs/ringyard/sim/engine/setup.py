"""Fill the state arrays: jobs made ready for the engine, and clusters at time zero."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.answers import numbers
from ringyard.cluster import Cluster
from ringyard.compiled import (
    FloatCube,
    FloatVector,
    Records1,
    Records2,
    kernel,
    linked_kernel,
)
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.failures import Failures
from ringyard.gpu_types import REFERENCE_GPU
from ringyard.jobs import JobTable
from ringyard.performance import PerformanceModel
from ringyard.performance.interference import no_interference
from ringyard.profiles import catalogue
from ringyard.restart import RestartCost
from ringyard.sim.engine.events import first_failures
from ringyard.sim.engine.links import clear_links
from ringyard.sim.engine.losses import empty_losses
from ringyard.sim.engine.physics import Physics, physics_of
from ringyard.sim.engine.shape import ask
from ringyard.sim.engine.surroundings import Surroundings, alone, seconds_in
from ringyard.state.arrays import Sizes, State, empty_state
from ringyard.state.free_servers import file_servers
from ringyard.state.on_gpus import least_slowness
from ringyard.state.records import UNLIMITED, UNLIMITED_CORES, Job, JobKind, Network

__all__ = ["begin", "load", "new_state", "prepare_jobs", "prepare_together", "slowness_of"]

#: records filled together, column by column: few enough to stay in a processor's cache
_BLOCK = 1024


@kernel
def _isolate(
    jobs: Records1[Job],
    places: Records1[Surroundings],
    slowness: FloatCube,
    exponents: FloatVector,
    durations: FloatVector,
    iterations: FloatVector,
    physics: Physics,
) -> None:
    """Shape jobs as they ask, and say how long each takes alone, per iteration and in all.

    Args:
        jobs: [jobs] records with the columns of a table.
        places: [jobs] where each would be alone.
        slowness: as `State.slowness`: they are on the GPU type where they are fastest.
        exponents: [models] of overlap.
        durations: [jobs] seconds, NaN where the iterations are known.
        iterations: [jobs] NaN where the durations are known.
        physics: performance model.
    """
    for j in range(len(jobs)):
        job = jobs[j]
        job.overlap_exponent = exponents[job.model]
        ask(job)
        places[j].gpu_speed = 1.0 / least_slowness(slowness, job)
        seconds = seconds_in(job, j, places[j], physics)
        job.isolated_iteration_seconds = seconds
        if np.isnan(iterations[j]):
            job.total_iterations = durations[j] / seconds
            job.isolated_seconds = durations[j]
        else:
            job.total_iterations = iterations[j]
            job.isolated_seconds = iterations[j] * seconds
        job.remaining_iterations = job.total_iterations
        job.saved_iterations = job.total_iterations


def slowness_of(cluster: Cluster) -> NDArray[np.float64]:
    """`State.slowness` of the cluster's types, NaN where a profile has no figure."""
    types = cluster.distinct_gpu_types or (REFERENCE_GPU,)
    found = np.ones((len(catalogue()) + 1, len(types), 2))
    for row, model in enumerate(catalogue()):
        for column, kind in enumerate(types):
            found[row, column] = model.slowness(kind) if kind in model.gpus else np.nan
    return found


def _overlap_exponents(performance: PerformanceModel) -> NDArray[np.float64]:
    """[models + 1] of each model, by the performance model or its profile."""
    if performance.overlap_exponent is not None:
        return np.full(len(catalogue()) + 1, performance.overlap_exponent)
    return np.array([*(model.overlap_exponent or 1.0 for model in catalogue()), 1.0])


_WITHOUT_MEMORY = (
    "choose workload.models of profiles with memory figures (for example workload=sharing),"
    " or a cluster without gpu_type"
)


def _check_models(table: JobTable, cluster: Cluster, performance: PerformanceModel) -> None:
    """Raise ConfigurationError if a model of the table lacks a figure that this simulation needs."""
    models = catalogue()
    for position in np.unique(table.model_ids[table.model_ids >= 0]):
        model = models[position]
        for kind in cluster.distinct_gpu_types:
            model.on(kind)
        if cluster.gpu_types:
            for name in ("fixed_memory_bytes", "sample_memory_bytes"):
                model.need(name, _WITHOUT_MEMORY)
    for position in np.unique(table.model_ids[table.kind == JobKind.PARAMETER_SERVER]):
        if position < 0:
            raise ConfigurationError(
                "a parameter-server job has no model; draw one that has step_coefficients"
            )
        models[position].need("step_coefficients")
    if cluster.jobs_per_gpu > 1:
        performance.interference.check(table.model_ids, cluster.distinct_gpu_types)


def _demand_class(table: JobTable, cluster: Cluster, owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """[jobs] equal for jobs of one owner that any placement rule treats alike, from 0 on for each owner.

    Only columns that matter are compared.
    """
    elastic = (table.min_gpus < table.max_gpus).any() or (table.min_batch < table.max_batch).any()
    columns: list[NDArray[Any]] = [owner, table.num_gpus, table.kind]
    if cluster.cores_per_server:
        columns += [table.cores_per_worker, table.parameter_servers, table.cores_per_server_task]
    if cluster.ram_bytes_per_server:
        columns.append(table.ram_per_worker)
    if cluster.gpu_types or cluster.jobs_per_gpu > 1 or elastic:
        columns += [table.model_ids, table.batch_size, table.fixed_memory_bytes, table.sample_memory_bytes]
    if cluster.gpu_types:
        columns += [table.fixed_fraction]
    if elastic:
        columns += [table.min_gpus, table.max_gpus, table.min_batch, table.max_batch]
    classes = np.zeros(len(table), dtype=np.int64)
    for column in columns:
        if column.min() == column.max():
            continue
        values, codes = np.unique(column, return_inverse=True)
        classes = np.unique(classes * len(values) + codes, return_inverse=True)[1]
    firsts = np.flatnonzero(np.diff(owner, prepend=-1))
    return np.asarray(classes - np.minimum.reduceat(classes, firsts)[owner])


def _fill(jobs: Records1[Job], table: JobTable, cluster: Cluster, restart: RestartCost) -> None:
    """Write the columns of a table into [jobs] records of zeros."""
    same: tuple[str, ...] = (
        "submit_seconds",
        "gradient_bytes",
        "min_gpus",
        "max_gpus",
        "min_batch",
        "max_batch",
        "kind",
    )
    same += ("noise_scale", "samples_per_core_second", "fixed_fraction", "predictable_from", "outcome")
    same += ("prediction_factor", "fixed_memory_bytes", "sample_memory_bytes", "loading_serial_share")
    if cluster.storage_bytes_per_second:
        same += ("sample_bytes", "dataset_bytes")
    columns: dict[str, Any] = {name: getattr(table, name) for name in same}
    columns["deadline_seconds"] = table.submit_seconds + table.acceptable_jct
    columns["cancel_seconds"] = np.minimum(table.cancel_seconds, columns["deadline_seconds"])
    columns["asked_gpus"] = table.num_gpus
    columns["base_compute_seconds"] = table.compute_seconds
    columns["compute_seconds"] = table.compute_seconds
    columns["base_batch"] = table.batch_size
    columns["model"] = np.where(table.model_ids < 0, len(catalogue()), table.model_ids)
    columns["memory_bandwidth"] = np.ceil(table.memory_bandwidth)
    columns["asked_parameter_servers"] = table.parameter_servers
    if cluster.cores_per_server:
        columns["asked_cores"] = table.cores_per_worker
        columns["asked_cores_per_server_task"] = table.cores_per_server_task
    if cluster.ram_bytes_per_server:
        columns["asked_ram"] = np.ceil(table.ram_per_worker)
    columns["predictable"] = table.predictable_from <= 0
    pauses = [f"{what}_{part}" for what in ("restart", "resize", "servers") for part in ("seconds", "growth")]
    for name in (*pauses, "cores_seconds"):
        method = getattr(restart, name)
        columns[name] = numbers(method(table), len(table), method, name.replace("_", " "), low=0.0)
    everyone = {
        "restart_jump": restart.jump,
        "resize_jump": restart.resize_jump,
        "servers_jump": restart.servers_jump,
        "jump_gpus": restart.jump_gpus,
    }
    for name in ("progress_per_iteration", "sharing_slowdown", "bandwidth_slowdown", "straggler"):
        everyone[name] = 1.0
    for name in ("first_slot", "server", "next_cpu_job"):
        everyone[name] = -1
    for name in ("end_seconds", "first_start_seconds", "last_start_seconds", "last_stop_seconds"):
        everyone[name] = np.nan
    for first in range(0, len(jobs), _BLOCK):
        block, rows = jobs[first : first + _BLOCK], slice(first, first + _BLOCK)
        for name, column in columns.items():
            block[name] = column[rows]
        for name, value in everyone.items():
            block[name] = value


def prepare_jobs(
    table: JobTable,
    cluster: Cluster,
    performance: PerformanceModel,
    restart: RestartCost,
    out: Records1[Job] | None = None,
) -> Records1[Job]:
    """[jobs] `Job` records at time zero, checked against the cluster.

    Args:
        table: of them.
        cluster: they are for.
        performance: model.
        restart: cost.
        out: [jobs] records of zeros that are to become these; None: new ones.

    Raises:
        WorkloadError: a row that makes no sense or does not fit the cluster.
        ConfigurationError: a model without a figure that this simulation needs.
        PluginError: the performance model or the restart cost answer what is no time.
    """
    return prepare_together(table, [len(table)], cluster, performance, restart, out)


def prepare_together(
    tables: JobTable,
    lengths: Sequence[int],
    cluster: Cluster,
    performance: PerformanceModel,
    restart: RestartCost,
    out: Records1[Job] | None = None,
) -> Records1[Job]:
    """`prepare_jobs` of many tables that stand one after the other, in little more time than of one.

    Args:
        tables: see `ringyard.workloads.draw_together`.
        lengths: jobs of each.
        (others): as in `prepare_jobs`.

    Raises:
        RingyardError: as `prepare_jobs`; rows that it names are counted over all tables.
    """
    if 0 in lengths:
        raise WorkloadError("a workload has no jobs; expected at least 1")
    firsts = np.cumsum([0, *lengths[:-1]])
    tables.check(cluster, firsts.tolist())
    _check_models(tables, cluster, performance)
    jobs: Records1[Job] = Job.zeros(len(tables)) if out is None else out
    _fill(jobs, tables, cluster, restart)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    jobs["demand_class"] = _demand_class(tables, cluster, owner)
    jobs["row"] = np.arange(len(jobs)) - firsts[owner]
    _measure(jobs, tables, cluster, performance)
    return jobs


def _measure(jobs: Records1[Job], table: JobTable, cluster: Cluster, performance: PerformanceModel) -> None:
    """Write how long jobs take alone, per iteration and in all."""
    _isolate(
        jobs,
        alone(cluster, table.num_gpus),
        slowness_of(cluster),
        _overlap_exponents(performance),
        np.ascontiguousarray(table.duration_seconds, np.float64),
        np.ascontiguousarray(table.iterations, np.float64),
        physics_of(performance),
    )


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
    """Arrays for a batch of simulations, with all that does not change between episodes written.

    Args:
        cluster: the same in every simulation.
        performance: as well.
        failures: as well.
        num_clusters: simulations.
        num_jobs: most jobs of any of them.
        num_classes: most demand classes.
        round_seconds: None: no rounds.
        rounds_only: nobody decides between rounds.
        timeline_bins: see `State`.
        segment_rows: see `State`.
        losses: whether they are counted.
        jobs: [clusters, num_jobs + 1] `State.jobs`, made elsewhere; None: zeroed.
    """
    interference = performance.interference if cluster.jobs_per_gpu > 1 else no_interference()
    sharing = interference.sharing_on(cluster.distinct_gpu_types)
    sizes = Sizes(
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
    )
    state = empty_state(num_clusters, sizes, timeline_bins, segment_rows)
    if jobs is not None:
        state = replace(state, jobs=jobs)
    state.slowness[:] = slowness_of(cluster)
    state.sharing[:] = sharing
    if interference.pairs is not None:
        state.pairs[:] = np.nan_to_num(interference.pairs)
    if losses:
        state.fewest_servers[:] = cluster.fewest_servers(np.arange(cluster.num_gpus + 1))
    _describe_servers(state, cluster)
    clusters = state.clusters
    clusters["num_gpus"] = cluster.num_gpus
    clusters["num_servers"] = cluster.num_servers
    clusters["jobs_per_gpu"] = cluster.jobs_per_gpu
    clusters["fewest_gpus_of_server"] = min(cluster.gpus_per_server)
    clusters["most_gpus_of_server"] = max(cluster.gpus_per_server)
    clusters["least_gpu_memory"] = state.servers["gpu_memory_bytes"].min(initial=UNLIMITED)
    clusters["round_seconds"] = np.inf if round_seconds is None else round_seconds
    clusters["rounds_only"] = rounds_only
    clusters["network"] = performance.network
    beyond_servers = performance.network in (Network.LIVE_TRANSFERS, Network.MAX_MIN)
    racks = cluster.num_racks > 0 and performance.network is not Network.NONE
    clusters["global_links"] = beyond_servers or racks
    state.between_servers[:] = performance.between_servers.row
    clusters["sharing"] = interference.slows
    clusters["bandwidth_limited"] = bool(cluster.memory_bandwidth_bytes_per_second)
    clusters["storage_limited"] = bool(cluster.storage_bytes_per_second)
    clusters["crowded"] = clusters["sharing"] | clusters["bandwidth_limited"] | bool(cluster.gpu_types)
    clusters["crowded"] |= clusters["storage_limited"]
    clusters["straggler_cv"] = performance.straggler_cv
    clusters["mean_up_seconds"] = failures.mean_up_seconds
    clusters["mean_repair_seconds"] = failures.mean_repair_seconds
    clusters["checkpoint_seconds"] = failures.checkpoint_seconds
    return state


def _describe_servers(state: State, cluster: Cluster) -> None:
    """Write what the cluster says of its GPUs, servers and links."""
    state.gpus["server"] = cluster.server_of_gpu
    state.slots["gpu"] = np.repeat(np.arange(cluster.num_gpus), cluster.jobs_per_gpu)
    state.slots["server"] = np.repeat(cluster.server_of_gpu, cluster.jobs_per_gpu)
    servers = state.servers
    servers["num_gpus"] = cluster.gpus_per_server
    servers["first_gpu"] = cluster.first_gpu_of_server
    servers["num_cores"] = cluster.cores_per_server or UNLIMITED_CORES
    servers["ram_bytes"] = cluster.ram_bytes_per_server or UNLIMITED
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
def _empty_servers(state: State, b: int) -> None:
    """Nothing runs anywhere and every server is up."""
    for i in range(state.slots.shape[1]):
        state.slots[b, i].job = -1
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        server.free_gpus = server.num_gpus
        server.open_gpus = server.num_gpus
        server.spanning_jobs = 0
        server.free_cores = server.num_cores
        server.bandwidth_demand = 0
        server.free_ram = server.ram_bytes
        server.storage_readers = 0
        server.first_cpu_job = -1
        server.up = 1
        server.num_failures = 0
        for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
            state.gpus[b, g].num_jobs = 0
            state.gpus[b, g].free_memory_bytes = server.gpu_memory_bytes
    clear_links(state, b)
    file_servers(state, b)


@linked_kernel
def load(state: State, b: int, jobs: Records1[Job], limit_seconds: float, seed: int) -> None:
    """Put cluster b at time zero with the given job records; nothing has arrived yet."""
    for j in range(len(jobs)):
        state.jobs[b, j] = jobs[j]
    begin(state, b, len(jobs), limit_seconds, seed)


@linked_kernel
def begin(state: State, b: int, num_jobs: int, limit_seconds: float, seed: int) -> None:
    """Put cluster b at time zero with the first so many of its job records, which are as prepared."""
    jobs = state.jobs[b]
    smallest = jobs[0].min_gpus
    num_classes = 0
    certain = 1
    for j in range(num_jobs):
        if jobs[j].predictable_from > 0.0 or jobs[j].prediction_factor != 1.0:
            certain = 0
        smallest = min(smallest, jobs[j].min_gpus)
        num_classes = max(num_classes, jobs[j].demand_class + 1)
    _empty_servers(state, b)
    state.class_waiting[b] = 0
    state.class_stamp[b] = 0
    state.integrals[b] = 0.0
    state.timeline[b] = 0.0
    empty_losses(state, b)
    cluster = state.clusters[b]
    cluster.now = 0.0
    cluster.next_round_seconds = 0.0 if cluster.rounds_only else cluster.round_seconds
    cluster.wake_seconds = np.inf
    cluster.limit_seconds = limit_seconds
    cluster.moment_ends_seconds = 0.0
    cluster.next_cancel_seconds = np.inf
    cluster.inverse_durations = 0.0
    cluster.predicted_inverse_durations = 0.0
    cluster.served_jct = 0.0
    cluster.rng = seed
    cluster.seed = seed
    cluster.num_jobs = num_jobs
    cluster.certain = certain
    cluster.num_classes = num_classes
    cluster.smallest_demand = smallest if cluster.jobs_per_gpu == 1 else 0
    cluster.free_gpus = cluster.num_gpus
    cluster.open_gpus = cluster.num_gpus
    cluster.down_gpus = 0
    cluster.may_be_late = 0
    cluster.next_arrival = 0
    cluster.num_waiting = 0
    cluster.first_waiting = num_jobs // 2
    cluster.num_running = 0
    cluster.num_done = 0
    cluster.demanded_gpus = 0
    cluster.fragmented_gpus = 0
    cluster.num_preemptions = 0
    cluster.num_starts = 0
    cluster.num_resizes = 0
    cluster.num_decisions = 0
    cluster.steps_now = 0
    cluster.moves_in_vain = 0
    cluster.moves_to_look = 0
    cluster.work_at_look = np.nan
    cluster.stamp = 0
    cluster.num_segments = 0
    cluster.timeline_bin_log2 = 0
    first_failures(state, b)
