"""What ONES' evolution works with: jobs, machine, rates and work space, all legal in kernels."""

from typing import NamedTuple

import numpy as np

from ringyard.compiled import FloatMatrix, FloatVector, IntMatrix, IntVector

__all__ = ["FREE", "Jobs", "Machine", "Rates", "Workspace"]

#: gene of a GPU that works for nobody
FREE = -1


class Jobs(NamedTuple):
    """What evolution knows of the n jobs; genes are positions 0 .. n - 1 here.

    Attributes:
        fewest: [n] GPUs a job needs at least.
        held: [n] GPUs it has now.
        present_limit: [n] most GPUs that a schedule hands on, and how far a job is padded in the first pass.
        limit: [n] R, how far in the second.
        allowed: [n, sizes + 1] largest number of GPUs not above the index that the job may have.
        mutable: [n] 1 if mutation may remove the job.
        left: [n] iterations left; NaN counts nothing.
        speed: [n, sizes + 1] iterations per second on so many GPUs.
        padding: [n] new jobs first come first served, then the others by remaining time.
        sequence: [n] order of the blocks.
    """

    fewest: IntVector
    held: IntVector
    present_limit: IntVector
    limit: IntVector
    allowed: IntMatrix
    mutable: IntVector
    left: FloatVector
    speed: FloatMatrix
    padding: IntVector
    sequence: IntVector


class Machine(NamedTuple):
    """The GPUs.

    Attributes:
        present: [GPUs] job running now, -1 none.
        server: [GPUs] server of each.
        up: [GPUs] 1 if there.
        widest: GPUs of the largest server.
        switch_seconds: what a change of a running job's GPUs costs each of them in a score.
    """

    present: IntVector
    server: IntVector
    up: IntVector
    widest: int
    switch_seconds: float


class Rates(NamedTuple):
    """Probabilities: xi, that a gene is swapped; theta, that a job is removed."""

    crossover: float
    mutation: float


class Workspace(NamedTuple):
    """Room for intermediate results, its contents mean nothing between calls; K parents, n jobs.

    Attributes:
        scores: [3 K] of the population.
        sizes: [n] GPUs of each job in one genome.
        pair: [2 n] the same in two.
        cost: [GPUs + 1, n + 1] displaced GPUs, by position and blocks placed.
        took: as `cost`: 1 where a block ends.
        counts: [3, GPUs + 1] of GPUs below each, see `evolution`.
        genome: [GPUs] one schedule.
    """

    scores: FloatVector
    sizes: IntVector
    pair: IntVector
    cost: FloatMatrix
    took: IntMatrix
    counts: IntMatrix
    genome: IntVector

    @classmethod
    def empty(cls, num_schedules: int, num_gpus: int, num_jobs: int) -> "Workspace":
        """Room for a population of so many schedules."""
        blocks = (num_gpus + 1, num_jobs + 1)
        return cls(
            scores=np.zeros(num_schedules),
            sizes=np.zeros(num_jobs, dtype=np.int64),
            pair=np.zeros(2 * num_jobs, dtype=np.int64),
            cost=np.zeros(blocks),
            took=np.zeros(blocks, dtype=np.int64),
            counts=np.zeros((3, num_gpus + 1), dtype=np.int64),
            genome=np.zeros(num_gpus, dtype=np.int64),
        )
