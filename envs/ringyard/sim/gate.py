"""What may still keep a job from starting where it has found a place."""

from dataclasses import field
from typing import Protocol

import numpy as np

from ringyard.compiled import FloatVector, Int32Vector, bundle, fills, slot
from ringyard.state.arrays import State

__all__ = ["OPEN", "Gate", "MayStart"]


@slot
class MayStart(Protocol):
    """Whether a job may start at the places that it has found. It promises to change nothing."""

    def __call__(
        self,
        state: State,
        b: int,
        j: int,
        places: Int32Vector,
        count: int,
        of_jobs: FloatVector,
        parameters: FloatVector,
    ) -> bool:
        """Of job j, which holds nothing yet.

        Args:
            state: with those that have started before it.
            b: cluster.
            j: row of the job.
            places: GPU ids, or the server of a CPU-only job; `count` of them count.
            count: of places.
            of_jobs: [jobs] of the gate.
            parameters: [parameters] of the gate.
        """


@bundle
class Gate:
    """A compiled function that may keep jobs from starting, and what it reads.

    Attributes:
        may_start: fills `MayStart`.
        of_jobs: [jobs] a number of each job, if the function reads any: it is not looked at how many there
            are. Its owner may write others into it between decisions.
        parameters: [parameters] whatever the function reads.
    """

    may_start: MayStart
    of_jobs: FloatVector = field(default_factory=lambda: np.zeros(1))
    parameters: FloatVector = field(default_factory=lambda: np.zeros(1))


@fills(MayStart)
def _everyone(
    state: State,
    b: int,
    j: int,
    places: Int32Vector,
    count: int,
    of_jobs: FloatVector,
    parameters: FloatVector,
) -> bool:
    return True


#: who finds a place may start
OPEN = Gate(_everyone)
