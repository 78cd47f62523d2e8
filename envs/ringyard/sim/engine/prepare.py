"""Turn job tables into job records at time 0, checked against the cluster."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import validate_array
from ringyard.cluster import Cluster
from ringyard.compiled import FloatCube, FloatVector, Records1, bundle, kernel
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.jobs import JobTable
from ringyard.performance import PerformanceModel
from ringyard.performance.model import Physics
from ringyard.profiles import catalogue
from ringyard.resources import RESOURCES
from ringyard.restart import RestartCost
from ringyard.sim.engine.co_location import PlacementContext, isolated_contexts, seconds_in_context
from ringyard.sim.engine.setup import slowness_table
from ringyard.sim.engine.shape import set_asked_shape
from ringyard.state.gpu_effects import min_slowness
from ringyard.state.records import BatchSplit, Job, JobKind

_BLOCK = 1024  #: number of records written at a time, which stay in a processor's cache


@bundle
class IsolatedRun:
    """What decides how fast jobs run alone."""

    places: Records1[PlacementContext]  #: [most GPUs + 1] placement context for each number of GPUs
    slowness: FloatCube  #: `State.slowness`. Jobs run on the GPU type where they are fastest.
    exponents: FloatVector  #: [models + 1] overlap exponents
    physics: Physics  #: performance model


@kernel
def _write_isolated_times(
    jobs: Records1[Job],
    first: int,
    durations: FloatVector,
    iterations: FloatVector,
    elapsed: FloatVector,
    isolated: IsolatedRun,
) -> None:
    """Give `jobs` their asked shape, and write how long they run `isolated`, per iteration and in all.

    `durations` and `iterations` are NaN where the other is given. `elapsed` are the seconds of the durations
    before time 0. Errors count jobs from `first`.
    """
    for i in range(len(jobs)):
        job = jobs[i]
        job.overlap_exponent = isolated.exponents[job.model]
        set_asked_shape(job)
        place = isolated.places[job.asked_gpus]
        place.gpu_speed = 1.0 / min_slowness(isolated.slowness, job)
        seconds = seconds_in_context(job, first + i, place, isolated.physics)
        job.isolated_iteration_seconds = seconds
        if np.isnan(iterations[i]):
            job.total_iterations = durations[i] / seconds
            job.isolated_seconds = durations[i]
        else:
            job.total_iterations = iterations[i]
            job.isolated_seconds = iterations[i] * seconds
        job.remaining_iterations = job.total_iterations
        if elapsed[i] > 0.0:
            job.remaining_iterations = (durations[i] - elapsed[i]) / seconds
            job.attained_service = elapsed[i] * job.asked_gpus
            job.run_seconds = elapsed[i]
        job.remaining_at_last_stop = job.remaining_iterations


def _overlap_exponents(performance: PerformanceModel) -> NDArray[np.float64]:
    """Return [models + 1] overlap exponents, of the performance model or else of the profiles."""
    of_all = performance.overlap_exponent
    exponents = np.array([*(of_all or model.overlap_exponent or 1.0 for model in catalogue()), of_all or 1.0])
    with np.errstate(divide="ignore"):  # inf: all of the shorter one is hidden
        return exponents / (1.0 - performance.out_of_order_backprop)


_WITHOUT_MEMORY = (
    "choose workload.models of profiles with memory figures (for example workload=sharing),"
    " or a cluster without gpu_type"
)


def _check_models(table: JobTable, cluster: Cluster, performance: PerformanceModel) -> None:
    """Raise ConfigurationError if a model of the table lacks a figure that this simulation needs."""
    models = catalogue()
    occurring = np.zeros(len(models) + 1, np.bool_)
    occurring[table.model_ids] = True
    for position in np.flatnonzero(occurring[:-1]):
        model = models[position]
        for kind in cluster.distinct_gpu_types:
            model.on_gpu(kind)
        if cluster.gpu_types:
            for name in ("fixed_memory_bytes", "sample_memory_bytes"):
                model.require_value(name, _WITHOUT_MEMORY)
    for position in np.unique(table.model_ids[table.kind == JobKind.PARAMETER_SERVER]):
        if position < 0:
            raise ConfigurationError(
                "a parameter-server job has no model; draw one that has step_coefficients"
            )
        models[position].require_value("step_coefficients")
    _check_plans(table, cluster, performance)
    if cluster.jobs_per_gpu > 1:
        performance.interference.check(table.model_ids, cluster.distinct_gpu_types)


def _check_plans(table: JobTable, cluster: Cluster, performance: PerformanceModel) -> None:
    """Raise an error unless plans of the jobs and of the performance model go together."""
    known, planned = performance.plans, table.plan_model >= 0
    if known is None:
        if planned.any():
            raise ConfigurationError("jobs have execution plans; expected performance=plans")
        return
    if not planned.all():
        job = table.job_id[~planned][0]
        raise ConfigurationError(f"job {job} has no execution plan; expected one, for performance=plans")
    servers, gpus = known.servers, known.gpus_per_server
    alike = max(cluster.gpus_per_server) == gpus and not cluster.gpu_types and cluster.jobs_per_gpu == 1
    if cluster.num_servers > servers or not alike:
        raise ConfigurationError(
            f"performance=plans has up to {servers} servers of {gpus} GPUs of one type, with one job each;"
            " set its servers and gpus_per_server for this cluster, no cluster.gpu_types, jobs_per_gpu=1"
        )
    table._refuse(table.min_batch < table.max_batch, "max_batch", "min_batch, since plans keep the batch")
    equal = f"{int(BatchSplit.EQUAL)} (EQUAL), since performance=plans has GPUs of one type"
    table._refuse(table.batch_split == BatchSplit.BY_SPEED, "batch_split", equal)
    table._refuse(table.plan_model >= len(known.models), "plan_model", f"below {len(known.models)}")
    most = np.array([len(model.plans) for model in known.models])[table.plan_model]
    table._refuse(table.plan > most, "plan", "one of its model")
    rows = known.first[table.plan_model]
    table._refuse(~known.fits[rows + table.plan, table.num_gpus], "plan", "one that fits on its num_gpus")
    table._refuse(~known.fits[rows, table.min_gpus], "min_gpus", "a number on which one of its plans fits")


def _columns(
    table: JobTable, cluster: Cluster, performance: PerformanceModel, restart: RestartCost
) -> dict[str, NDArray[Any]]:
    """Return {field of a job record: [jobs] values} from a table, the performance model and restart cost."""
    same = ["submit_seconds", "gradient_bytes", "min_gpus", "max_gpus", "min_batch", "max_batch", "kind"]
    same += ["noise_scale", "samples_per_core_second", "fixed_fraction", "predictable_from", "outcome"]
    same += ["prediction_factor", "fixed_memory_bytes", "sample_memory_bytes", "loading_serial_share"]
    same += ["loss_curve", "loss_noise", "graph", "deadline_seconds"]
    if cluster.storage_bytes_per_second:
        same += ["sample_bytes", "dataset_bytes"]
    columns: dict[str, Any] = {name: getattr(table, name) for name in same}
    columns["blocked_seconds"] = table.submit_seconds + table.acceptable_jct
    columns["cancel_seconds"] = np.minimum(table.cancel_seconds, columns["blocked_seconds"])
    columns["asked_gpus"] = table.num_gpus
    columns["base_compute_seconds"] = table.compute_seconds
    columns["compute_seconds"] = table.compute_seconds
    columns["base_batch"] = table.batch_size
    columns["model"] = np.where(table.model_ids < 0, len(catalogue()), table.model_ids)
    columns["memory_bandwidth"] = np.ceil(table.memory_bandwidth)
    columns["asked_parameter_servers"] = table.parameter_servers
    columns |= {"plan_model": table.plan_model, "asked_plan": table.plan}
    by_split = np.array([performance.batch_split == "by_speed", False, True])  # in the order of `BatchSplit`
    columns["balances_batch"] = by_split[table.batch_split]
    for one in RESOURCES:
        if getattr(cluster, one.capacity):
            columns[one.asked] = np.ceil(getattr(table, one.per_worker))
            if one.per_server_task:
                columns[f"asked_{one.per_server_task}"] = getattr(table, one.per_server_task)
    columns["predictable"] = table.predictable_from <= 0
    pauses = [f"{name}_{part}" for name in ("restart", "resize", "servers") for part in ("seconds", "growth")]
    for name in (*pauses, "cores_seconds"):
        method = getattr(restart, name)
        columns[name] = validate_array(method(table), len(table), method, name.replace("_", " "), low=0.0)
    return columns


def _record_template(restart: RestartCost) -> Records1[Job]:
    """Return [1] job record with the fields that are equal for all jobs at time 0."""
    template: Records1[Job] = Job.zeros(1)
    values = {
        "restart_jump": restart.jump,
        "resize_jump": restart.resize_jump,
        "servers_jump": restart.servers_jump,
        "jump_gpus": restart.jump_gpus,
    }
    for name in ("progress_per_iteration", "sharing_slowdown", "bandwidth_slowdown", "straggler"):
        values[name] = 1.0
    for name in ("first_slot", "server", "next_cpu_job"):
        values[name] = -1
    for name in ("end_seconds", "first_start_seconds", "last_start_seconds", "last_stop_seconds"):
        values[name] = np.nan
    for name, value in values.items():
        template[name] = value
    return template


class JobPreparer:
    """Prepares job tables for simulations with the same cluster, performance model and restart cost."""

    def __init__(self, cluster: Cluster, performance: PerformanceModel, restart: RestartCost) -> None:
        self.cluster, self.performance, self.restart = cluster, performance, restart
        self._template = _record_template(restart)
        self._alone = IsolatedRun(
            places=isolated_contexts(cluster, np.arange(cluster.num_gpus + 1)),
            slowness=slowness_table(cluster),
            exponents=_overlap_exponents(performance),
            physics=performance.physics,
        )

    def write(
        self, tables: JobTable, lengths: Sequence[int], out: Records1[Job], begins: Sequence[int]
    ) -> dict[str, NDArray[Any]]:
        """Prepare concatenated job tables (`draw_tables`), in little more time than one of them.

        Jobs of each table are written to `out` from its position in `begins` on. Returns {field: [jobs of all
        tables]} values in the records that are not equal for all jobs.
        """
        if 0 in lengths:
            raise WorkloadError("a workload has no jobs; expected at least 1")
        firsts = np.cumsum([0, *lengths[:-1]])
        tables.check(self.cluster, firsts.tolist())
        _check_models(tables, self.cluster, self.performance)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        rows = np.arange(len(tables)) - firsts[owner]
        columns = _columns(tables, self.cluster, self.performance, self.restart)
        columns["demand_class"] = demand_classes(tables, self.cluster, owner)
        records = np.asarray(begins, np.int64)[owner] + rows
        template: Any = self._template.copy()
        constant = {name for name, column in columns.items() if column.strides == (0,)}  # broadcast
        for name in constant:
            template[name] = columns[name][0]
        others = columns.keys() - constant
        durations = np.ascontiguousarray(tables.duration_seconds, np.float64)
        iterations = np.ascontiguousarray(tables.iterations, np.float64)
        elapsed = np.ascontiguousarray(tables.elapsed_seconds, np.float64)
        columns["isolated_seconds"] = np.zeros(len(tables))
        room = np.asarray(out).view((np.void, Job.dtype.itemsize))  # NumPy copies records field by field
        for first in range(0, len(tables), _BLOCK):
            here = slice(first, min(first + _BLOCK, len(tables)))
            block: Any = np.repeat(template, here.stop - first)
            for name in others:
                block[name] = columns[name][here]
            block["row"] = rows[here]
            _write_isolated_times(block, first, durations[here], iterations[here], elapsed[here], self._alone)
            room[records[here]] = block.view(room.dtype)
            columns["isolated_seconds"][here] = block["isolated_seconds"]
        return columns


def prepare_jobs(
    table: JobTable,
    cluster: Cluster,
    performance: PerformanceModel,
    restart: RestartCost,
    out: Records1[Job] | None = None,
) -> Records1[Job]:
    """Return [jobs] job records at time 0 (in `out`, if given), checked against the cluster."""
    jobs: Records1[Job] = Job.zeros(len(table)) if out is None else out
    JobPreparer(cluster, performance, restart).write(table, [len(table)], jobs, [0])
    return jobs


def demand_classes(table: JobTable, cluster: Cluster, owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [jobs] demand classes, from 0 per owner: equal for jobs that placement rules treat alike.

    `owner` [jobs] is the number of each job's table, ascending. Only columns that matter here are compared.
    """
    resizes = (table.min_gpus < table.max_gpus) | (table.min_batch < table.max_batch)
    columns: list[NDArray[Any]] = [table.num_gpus, table.kind]
    for one in RESOURCES:
        if getattr(cluster, one.capacity):
            columns.append(getattr(table, one.per_worker))
            columns += (
                [table.parameter_servers, getattr(table, one.per_server_task)] if one.per_server_task else []
            )
    of_models = [table.model_ids, table.batch_size, table.fixed_memory_bytes, table.sample_memory_bytes]
    if cluster.gpu_types or cluster.jobs_per_gpu > 1:
        columns += of_models
    if cluster.gpu_types:
        columns += [table.fixed_fraction, table.batch_split]
    columns += [table.plan_model, table.plan]
    if resizes.any():
        elastic = np.bincount(owner, resizes)[owner] > 0  # whether the job's table has elastic jobs
        sizes = [table.min_gpus, table.max_gpus, table.min_batch, table.max_batch]
        columns += [np.where(elastic, column, column[0]) for column in (*of_models, *sizes)]
    keys = [owner, *(column for column in columns if column.min() < column.max())]
    order = np.lexsort(keys[::-1])
    differs = np.zeros(len(order), np.bool_)  # from the job before in this order
    for key in keys:
        ordered = key[order]
        differs[1:] |= ordered[1:] != ordered[:-1]
    classes = np.zeros(len(order), np.int64)
    classes[order] = np.cumsum(differs)
    firsts = np.flatnonzero(np.concatenate([[True], owner[1:] > owner[:-1]]))
    return np.asarray(classes - np.minimum.reduceat(classes, firsts)[owner])
