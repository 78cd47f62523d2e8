"""Job tables made ready for the engine: held to the cluster, one record a job, at time zero."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.answers import numbers
from ringyard.cluster import Cluster
from ringyard.compiled import (
    FloatCube,
    FloatVector,
    Int32Matrix,
    IntMatrix,
    IntVector,
    Records1,
    bundle,
    kernel,
)
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.jobs import JobTable
from ringyard.performance import PerformanceModel
from ringyard.profiles import catalogue
from ringyard.resources import RESOURCES
from ringyard.restart import RestartCost
from ringyard.sim.engine.demand import demand_classes
from ringyard.sim.engine.physics import Physics, physics_of
from ringyard.sim.engine.setup import slowness_of
from ringyard.sim.engine.shape import ask
from ringyard.sim.engine.surroundings import Surroundings, alone, seconds_in
from ringyard.state.on_gpus import least_slowness
from ringyard.state.records import Job, JobKind

__all__ = ["Preparation", "prepare_jobs"]

#: jobs whose columns are laid side by side at a time: few enough to stay in a processor's cache
_BLOCK = 8192


@bundle
class Block:
    """Some of the columns of a few jobs, as words of their records.

    Attributes:
        like: [8-byte words] a record with what is the same for all jobs.
        longs: [8-byte fields, block] the others, whatever their types.
        long_words: [8-byte fields] where in a record each is.
        shorts: [4-byte fields, block].
        short_words: [4-byte fields] where in a record each is.
    """

    like: IntVector
    longs: IntMatrix
    long_words: IntVector
    shorts: Int32Matrix
    short_words: IntVector


@bundle
class Alone:
    """What says how fast jobs are alone.

    Attributes:
        places: [most GPUs + 1] where a job of so many would be.
        slowness: as `State.slowness`: it is on the GPU type where it is fastest.
        exponents: [models + 1] of overlap.
        physics: performance model.
    """

    places: Records1[Surroundings]
    slowness: FloatCube
    exponents: FloatVector
    physics: Physics


@kernel
def _write(longs: IntMatrix, shorts: Int32Matrix, record: int, block: Block, i: int) -> None:
    """Let a record be what is known of the i-th job of a block."""
    for word in range(len(block.like)):
        longs[record, word] = block.like[word]
    for k in range(len(block.long_words)):
        longs[record, block.long_words[k]] = block.longs[k, i]
    for k in range(len(block.short_words)):
        shorts[record, block.short_words[k]] = block.shorts[k, i]


@kernel
def _isolate(job: Job, j: int, duration: float, iterations: float, solo: Alone) -> None:
    """Shape job j as it asks, and say how long it takes alone, per iteration and in all."""
    job.overlap_exponent = solo.exponents[job.model]
    ask(job)
    place = solo.places[job.asked_gpus]
    place.gpu_speed = 1.0 / least_slowness(solo.slowness, job)
    seconds = seconds_in(job, j, place, solo.physics)
    job.isolated_iteration_seconds = seconds
    if np.isnan(iterations):
        job.total_iterations = duration / seconds
        job.isolated_seconds = duration
    else:
        job.total_iterations = iterations
        job.isolated_seconds = iterations * seconds
    job.remaining_iterations = job.total_iterations
    job.saved_iterations = job.total_iterations


@kernel
def _make_ready(
    jobs: Records1[Job],
    longs: IntMatrix,
    shorts: Int32Matrix,
    records: IntVector,
    rows: IntVector,
    durations: FloatVector,
    iterations: FloatVector,
    block: Block,
    first: int,
    solo: Alone,
    isolated_seconds: FloatVector,
) -> None:
    """Write the records of a block.

    Args:
        jobs: [room] records, some of which become those of the block's jobs.
        longs: [room, 8-byte words] the same memory.
        shorts: [room, 4-byte words] the same memory.
        records: [block] which record is each job's.
        rows: [block] of their tables.
        durations: [block] seconds, NaN where the iterations are known.
        iterations: [block] NaN where the durations are known.
        block: their columns.
        first: number of the block's first job among all.
        solo: how fast they are alone.
        isolated_seconds: [block] how long each takes alone, to be written.
    """
    for i in range(len(records)):
        _write(longs, shorts, records[i], block, i)
        job = jobs[records[i]]
        job.row = rows[i]
        _isolate(job, first + i, durations[i], iterations[i], solo)
        isolated_seconds[i] = job.isolated_seconds


def _overlap_exponents(performance: PerformanceModel) -> NDArray[np.float64]:
    """[models + 1] of each model, by the performance model or its profile."""
    if performance.overlap_exponent is not None:
        return np.full(len(catalogue()) + 1, performance.overlap_exponent, np.float64)
    return np.array([*(model.overlap_exponent or 1.0 for model in catalogue()), 1.0], np.float64)


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


def _columns(table: JobTable, cluster: Cluster, restart: RestartCost) -> dict[str, NDArray[Any]]:
    """{field of a record: [jobs] what a table says of it}."""
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
    for one in RESOURCES:
        if getattr(cluster, one.capacity):
            columns[one.asked] = np.ceil(getattr(table, one.per_worker))
            if one.per_server_task:
                columns[f"asked_{one.per_server_task}"] = getattr(table, one.per_server_task)
    columns["predictable"] = table.predictable_from <= 0
    pauses = [f"{what}_{part}" for what in ("restart", "resize", "servers") for part in ("seconds", "growth")]
    for name in (*pauses, "cores_seconds"):
        method = getattr(restart, name)
        columns[name] = numbers(method(table), len(table), method, name.replace("_", " "), low=0.0)
    return columns


def _like(restart: RestartCost) -> Records1[Job]:
    """[1] a record with what is the same for all jobs at time zero."""
    like: Records1[Job] = Job.zeros(1)
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
    for name, value in everyone.items():
        like[name] = value
    return like


class Preparation:
    """What makes job tables ready for simulations that differ in nothing else.

    Args:
        cluster: jobs are for.
        performance: model.
        restart: cost.
    """

    def __init__(self, cluster: Cluster, performance: PerformanceModel, restart: RestartCost) -> None:
        self.cluster, self.performance, self.restart = cluster, performance, restart
        self._like = _like(restart)
        self._alone = Alone(
            places=alone(cluster, np.arange(cluster.num_gpus + 1)),
            slowness=slowness_of(cluster),
            exponents=_overlap_exponents(performance),
            physics=physics_of(performance),
        )

    def write(
        self, tables: JobTable, lengths: Sequence[int], out: Records1[Job], begins: Sequence[int]
    ) -> dict[str, NDArray[Any]]:
        """Make tables that stand one after the other ready, many in little more time than one.

        Args:
            tables: see `ringyard.workloads.draw_together`.
            lengths: jobs of each.
            out: [room] records, some of which become those of the jobs.
            begins: which record is that of each table's first job; the others follow.

        Returns:
            {field: [jobs of all tables]} what the records say, but for what is the same for all jobs.

        Raises:
            RingyardError: as `prepare_jobs`; rows that it names are counted over all tables.
        """
        if 0 in lengths:
            raise WorkloadError("a workload has no jobs; expected at least 1")
        firsts = np.cumsum([0, *lengths[:-1]])
        tables.check(self.cluster, firsts.tolist())
        _check_models(tables, self.cluster, self.performance)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        rows = np.arange(len(tables)) - firsts[owner]
        columns = _columns(tables, self.cluster, self.restart)
        columns["demand_class"] = demand_classes(tables, self.cluster, owner)
        records = np.asarray(begins, np.int64)[owner] + rows
        columns["isolated_seconds"] = self._write(tables, columns, out, records, rows)
        return columns

    def _write(
        self,
        table: JobTable,
        columns: Mapping[str, NDArray[Any]],
        out: Records1[Job],
        records: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Write records out[records] of jobs that are rows `rows` of their tables.

        Returns:
            [jobs] how long each takes alone, seconds.
        """
        like = self._like.copy()
        alike = [name for name, column in columns.items() if column.strides == (0,)]
        for name in alike:
            like[name] = columns[name][0]
        others = [name for name in columns if name not in alike]
        longs, shorts = ([name for name in others if Job.dtype[name].itemsize == size] for size in (8, 4))
        count, size = len(table), min(len(table), _BLOCK)
        block = Block(
            like=_words(like, np.int64)[0],
            longs=np.empty((len(longs), size), np.int64),
            long_words=_where(longs),
            shorts=np.empty((len(shorts), size), np.int32),
            short_words=_where(shorts),
        )
        fields = {name: block.longs[k].view(Job.dtype[name]) for k, name in enumerate(longs)}
        fields |= {name: block.shorts[k].view(Job.dtype[name]) for k, name in enumerate(shorts)}
        durations = np.ascontiguousarray(table.duration_seconds, np.float64)
        iterations = np.ascontiguousarray(table.iterations, np.float64)
        isolated_seconds = np.zeros(count)
        long_room, short_room = _words(out, np.int64), _words(out, np.int32)
        for first in range(0, count, size):
            here = slice(first, min(first + size, count))
            for name, field in fields.items():
                field[: here.stop - first] = columns[name][here]
            _make_ready(
                out,
                long_room,
                short_room,
                records[here],
                rows[here],
                durations[here],
                iterations[here],
                block,
                first,
                self._alone,
                isolated_seconds[here],
            )
        return isolated_seconds


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
        out: [jobs] records that are to become these; None: new ones.

    Raises:
        WorkloadError: a row that makes no sense or does not fit the cluster.
        ConfigurationError: a model without a figure that this simulation needs.
        PluginError: the performance model or the restart cost answer what is no time.
    """
    jobs: Records1[Job] = Job.zeros(len(table)) if out is None else out
    Preparation(cluster, performance, restart).write(table, [len(table)], jobs, [0])
    return jobs


def _words(records: Records1[Job], kind: type[np.generic]) -> NDArray[Any]:
    """[records, words] the same memory as whole numbers of this type."""
    memory: Any = records
    return memory.view(kind).reshape(len(records), -1)


def _where(names: Sequence[str]) -> NDArray[np.int64]:
    """[names] which word of a record each field is, if all words are as long as it is."""
    fields: Any = Job.dtype.fields
    return np.array([fields[name][1] // fields[name][0].itemsize for name in names], np.int64)
