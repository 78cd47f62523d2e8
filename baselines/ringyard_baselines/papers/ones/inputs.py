"""What ONES' evolution works with: jobs, machine, rates and work space, all legal in kernels."""

from typing import NamedTuple

import numpy as np

from ringyard.compiled import BoolMatrix, FloatMatrix, FloatVector, IntMatrix, IntVector

#: gene of a GPU that works for nobody
FREE = -1


class Jobs(NamedTuple):
    """What evolution knows of the n jobs; genes are positions 0 .. n - 1 here.

    Attributes:
        fewest: [n] GPUs a job needs at least.
        held: [n] GPUs it has now.
        present_limit: [n] most GPUs that a schedule hands on, and how far a job is padded in the first pass.
        limit: [n] R, how far in the second.
        mutable: [n] 1 if mutation may remove the job.
        left: [n] iterations left; NaN counts nothing.
        place: [n] row of each in `speed`.
        speed: [rows, sizes + 1] iterations per second on so many GPUs; 0 where the job cannot run so.
        padding: [n] new jobs first come first served, then the others by remaining time.
        sequence: [n] order of the blocks.
    """

    fewest: IntVector
    held: IntVector
    present_limit: IntVector
    limit: IntVector
    mutable: IntVector
    left: FloatVector
    place: IntVector
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

    The schedules of a generation are K parents, K children and K mutants.

    Attributes:
        genes: [2 K, GPUs] job of each GPU in the first two thirds; a mutant has its parent's.
        kept: [3 K, n] how many of them each job keeps, all or none, before a schedule is padded.
        sizes: [3 K, n] GPUs of each job afterwards.
        scores: [3 K] by rank.
        ranked: [3 K] schedule of each rank.
        cost: [GPUs + 1] of blocks placed so far, by free GPUs below, see `schedules`.
        took: [n, GPUs + 1] by block and free GPUs below: whether it ends there.
        below: [2, GPUs + 1] busy and failed GPUs below each.
    """

    genes: IntMatrix
    kept: IntMatrix
    sizes: IntMatrix
    scores: FloatVector
    ranked: IntVector
    cost: FloatVector
    took: BoolMatrix
    below: IntMatrix

    @classmethod
    def empty(cls, parents: int, num_gpus: int, num_jobs: int) -> "Workspace":
        """Room for the generations of so many parents."""
        return cls(
            genes=np.empty((2 * parents, num_gpus), dtype=np.int64),
            kept=np.empty((3 * parents, num_jobs), dtype=np.int64),
            sizes=np.empty((3 * parents, num_jobs), dtype=np.int64),
            scores=np.empty(3 * parents),
            ranked=np.empty(3 * parents, dtype=np.int64),
            cost=np.empty(num_gpus + 1),
            took=np.empty((num_jobs, num_gpus + 1), dtype=np.bool_),
            below=np.empty((2, num_gpus + 1), dtype=np.int64),
        )
