"""How fast jobs would be alone on consolidated GPUs, in any shape: what profiling them would measure."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import FloatCube, FloatMatrix, FloatVector, IntVector, Records1, kernel, whole
from ringyard.performance import PerformanceModel
from ringyard.sim.engine.physics import Physics, physics_of
from ringyard.sim.engine.setup import slowness_of
from ringyard.sim.engine.shape import Shape, set_shape
from ringyard.sim.engine.surroundings import Surroundings, alone, seconds_in
from ringyard.sim.view import SchedulingView, live
from ringyard.state.on_gpus import least_slowness, slowness_on
from ringyard.state.records import Job

__all__ = ["Profiled", "solo_seconds"]


class Profiled(NamedTuple):
    """Whose speeds are asked for, and on which GPUs.

    Attributes:
        jobs: [jobs + 1] `Job`, the last row is scratch.
        cluster: its servers.
        slowness: `State.slowness` of its GPU types.
        physics: performance model.
    """

    jobs: Records1[Job]
    cluster: Cluster
    slowness: FloatCube
    physics: Physics

    @classmethod
    def seen(cls, view: SchedulingView) -> Self:
        """The jobs of a running simulation.

        Raises:
            InformationError: the view's reader did not declare to know speeds.
        """
        view.check("solo_seconds")
        state, b, physics, _ = live(view)
        return cls(state.jobs[b], view.cluster, state.slowness, physics)

    @classmethod
    def prepared(cls, jobs: Records1[Job], cluster: Cluster, performance: PerformanceModel) -> Self:
        """Jobs that no simulation has, as `prepare_jobs` gives them, or copies of those of one."""
        with_scratch = Job.zeros(len(jobs) + 1)
        with_scratch[:-1] = jobs
        return cls(with_scratch, cluster, slowness_of(cluster), physics_of(performance))


@kernel
def _solo(
    jobs: Records1[Job],
    slowness: FloatCube,
    rows: IntVector,
    shapes: FloatMatrix,
    places: Records1[Surroundings],
    gpu_type: int,
    physics: Physics,
    out: FloatVector,
) -> None:
    """Seconds per base iteration of job rows[i] in shape shapes[i] and place places[i], into out[i].

    On GPUs of the type; -1: of the job's fastest.
    """
    scratch = jobs[len(jobs) - 1]
    for i in range(len(rows)):
        if i == 0 or rows[i] != rows[i - 1]:
            jobs[len(jobs) - 1] = jobs[rows[i]]
        num_gpus, cores = whole(shapes[i, 0]), whole(shapes[i, 2])
        servers, server_cores, ram = whole(shapes[i, 3]), whole(shapes[i, 4]), whole(shapes[i, 5])
        set_shape(scratch, Shape(num_gpus, shapes[i, 1], cores, servers, server_cores, 1.0, ram))
        scratch.straggler = 1.0
        if gpu_type < 0:
            places[i].gpu_speed = 1.0 / least_slowness(slowness, scratch)
        else:
            places[i].gpu_speed = 1.0 / slowness_on(slowness, scratch, gpu_type)
        out[i] = seconds_in(scratch, rows[i], places[i], physics)


def solo_seconds(
    asked: SchedulingView | Profiled,
    rows: NDArray[np.int64],
    num_gpus: ArrayLike | None = None,
    batch_size: ArrayLike | None = None,
    cores_per_worker: ArrayLike | None = None,
    parameter_servers: ArrayLike | None = None,
    cores_per_server_task: ArrayLike | None = None,
    gpu_type: int | None = None,
    num_servers: ArrayLike | None = None,
    ram_per_worker: ArrayLike | None = None,
    storage_readers: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """[queries] seconds per iteration of the base batch, alone; None: as the job asks.

    Args:
        asked: the present moment, or jobs of no simulation.
        rows: [queries] rows of GPU jobs.
        num_gpus: [queries] or one number, at least 1, as all that follow.
        batch_size: global, samples.
        cores_per_worker: CPU cores of each worker.
        parameter_servers: of parameter-server jobs.
        cores_per_server_task: cores of each of them.
        gpu_type: position in `Cluster.distinct_gpu_types`; None: the job's fastest.
        num_servers: servers spanned; None: the fewest that hold so many GPUs.
        ram_per_worker: bytes of main memory of each worker.
        storage_readers: workers that read from storage on each of its servers; None: its own.

    Raises:
        InformationError: the view's reader did not declare to know speeds.
    """
    jobs, cluster, slowness, physics = asked if isinstance(asked, Profiled) else Profiled.seen(asked)

    def given(value: ArrayLike | None, name: str) -> NDArray[np.float64]:
        values = jobs[name][rows] if value is None else value
        return np.broadcast_to(np.asarray(values, dtype=np.float64), rows.shape)

    shapes = np.stack(
        [
            given(num_gpus, "asked_gpus"),
            given(batch_size, "base_batch"),
            given(cores_per_worker, "asked_cores"),
            given(parameter_servers, "asked_parameter_servers"),
            given(cores_per_server_task, "asked_cores_per_server_task"),
            given(ram_per_worker, "asked_ram"),
        ],
        axis=1,
    )
    spans = None if num_servers is None else np.asarray(num_servers, dtype=np.int64)
    places = alone(cluster, shapes[:, 0].astype(np.int64), spans, storage_readers)
    out = np.zeros(len(rows))
    kind = -1 if gpu_type is None else gpu_type
    _solo(jobs, slowness, rows.astype(np.int64), shapes, places, kind, physics, out)
    return out
