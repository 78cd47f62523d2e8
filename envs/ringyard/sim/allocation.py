"""The one decision: give job j this allocation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ringyard.checks import shown
from ringyard.errors import PlacementError


def _listed(gpu_ids: Any) -> tuple[int, ...]:
    """GPU numbers as people write them: a list, an array."""
    array = isinstance(gpu_ids, np.ndarray) and gpu_ids.ndim == 1
    if not array and not isinstance(gpu_ids, Sequence):
        raise PlacementError(f"gpu_ids is {shown(gpu_ids)}; expected a tuple of GPU numbers, such as (0, 1)")
    return tuple(gpu_ids.tolist() if array else gpu_ids)


@dataclass(frozen=True)
class Allocation:
    """What one job shall hold; an allocation without GPUs and server stops it.

    A waiting job starts. A running job on the same GPUs in the same shape is left alone; otherwise it goes
    on in its new place or shape, its progress kept: other GPUs of the same number cost a restart (a
    migration, counted as a preemption), another number of GPUs or another batch costs a resize, another
    number of parameter servers and other cores their pauses (`ringyard.restart`); other RAM or another cap
    cost nothing.

    Attributes:
        job: row of the job in the table.
        gpu_ids: [workers] GPU of each worker; () stops the job (or says that it is CPU-only: give `server`).
        cores_per_worker: CPU cores of each worker's input pipeline (CPU-only: all its cores). None here and
            below: what a waiting job asks for, what a running one has.
        batch_size: global batch, samples, within the job's range.
        parameter_servers: of a parameter-server job.
        cores_per_server_task: cores of each of them.
        server: where a CPU-only job's cores are.
        memory_bandwidth_cap: share of its memory bandwidth the job may use, in (0, 1].
        ram_per_worker: bytes of main memory of each worker (CPU-only: all its RAM); samples are cached there.
        reject: the waiting job leaves, blocked.

    Raises:
        PlacementError: `gpu_ids` is no list. Numbers are looked at when the allocation is carried out.
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
    reject: bool = False

    def __post_init__(self) -> None:
        if type(self.gpu_ids) is not tuple:
            object.__setattr__(self, "gpu_ids", _listed(self.gpu_ids))

    def at(self, gpu_ids: tuple[int, ...] = (), server: int | None = None) -> "Allocation":
        """The same shape on other GPUs, or on another server."""
        return replace(self, gpu_ids=gpu_ids, server=server)

    @property
    def preempts(self) -> bool:
        """Whether it takes everything from the job."""
        return not self.gpu_ids and self.server is None and not self.reject
