"""The one decision: give job j these GPUs."""

from dataclasses import dataclass

__all__ = ["Allocation"]


@dataclass(frozen=True)
class Allocation:
    """GPUs for one job; an empty allocation stops it.

    A waiting job starts, a running job on other GPUs migrates (it stops and starts again), a running
    job on the same GPUs is left alone.

    Attributes:
        job: row of the job in the table.
        gpu_ids: [workers] GPU of each worker; () stops the job.
    """

    job: int
    gpu_ids: tuple[int, ...]
