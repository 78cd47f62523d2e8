"""`Allocation`: the one kind of decision. It says what one job holds from now on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from ringyard.checks import shown
from ringyard.errors import PlacementError

LinkShare = Annotated[float, "[0.1, 10]"]  #: weight of a ring. Sums of these are exact, see `summable`


def _listed(gpu_ids: Any) -> tuple[int, ...]:
    """Return GPU ids given as a sequence or a one-dimensional array as a tuple."""
    array = isinstance(gpu_ids, np.ndarray) and gpu_ids.ndim == 1
    if not array and not isinstance(gpu_ids, Sequence):
        raise PlacementError(f"gpu_ids is {shown(gpu_ids)}; expected a tuple of GPU numbers, such as (0, 1)")
    return tuple(gpu_ids.tolist() if array else gpu_ids)


@dataclass(frozen=True)
class Allocation:
    """What one job holds from now on. Without GPUs and server it preempts the job.

    * A waiting job starts.
    * A running job with the same GPUs and shape is not touched.
    * Other GPUs, as many as before: a migration. The job restarts, which counts as a preemption.
    * Another number of GPUs, batch or execution plan: a resize, with the pause of a resize.
    * Other parameter servers or cores: the pauses of `ringyard.restart`. Other RAM, another bandwidth cap or
      another link share cost nothing.

    Jobs keep their progress in all cases. Fields that are None stay as the job has them. A waiting job has
    what it asks for. On another number of GPUs a `plan` of None is the fastest.

    Attributes:
        job: row of the job in the job table.
        gpu_ids: [workers] GPU id of each worker. () preempts the job. CPU-only jobs have () and a `server`.
        cores_per_worker: CPU cores of each worker's input pipeline. All cores of a CPU-only job.
        batch_size: global batch in samples, within the job's range.
        parameter_servers: number of parameter servers, for parameter-server jobs.
        cores_per_server_task: CPU cores of each parameter server.
        server: server of a CPU-only job.
        memory_bandwidth_cap: fraction of its memory bandwidth that a CPU-only job may use, in (0, 1].
        ram_per_worker: bytes of main memory of each worker, which cache samples. All RAM of a CPU-only job.
        plan: execution plan, a position in `Transformer.plans` counted from 1. 0: the fastest on these GPUs.
        link_share: weight of the job's ring, in [0.1, 10]. A link is shared by its rings in proportion to it.
        reject: whether the waiting job leaves the system, blocked.

    Raises:
        PlacementError: `gpu_ids` is not a sequence. Numbers are checked by `Simulator.apply`.
    """

    job: int
    gpu_ids: tuple[int, ...] = ()
    cores_per_worker: int | None = None
    batch_size: float | None = None
    parameter_servers: int | None = None
    cores_per_server_task: int | None = None
    server: int | None = None
    memory_bandwidth_cap: float | None = None
    ram_per_worker: int | None = None
    plan: int | None = None
    link_share: float | None = None
    reject: bool = False

    def __post_init__(self) -> None:
        if type(self.gpu_ids) is not tuple:
            object.__setattr__(self, "gpu_ids", _listed(self.gpu_ids))

    def at(self, gpu_ids: tuple[int, ...] = (), server: int | None = None) -> "Allocation":
        """Return the same shape on the GPUs `gpu_ids`, or on `server` for a CPU-only job."""
        made = object.__new__(type(self))  # `replace` takes four times as long
        made.__dict__.update(self.__dict__, gpu_ids=gpu_ids, server=server)
        made.__post_init__()
        return made

    @property
    def preempts(self) -> bool:
        """Whether this allocation takes everything from the job."""
        return not self.gpu_ids and self.server is None and not self.reject
