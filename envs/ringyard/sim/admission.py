"""Admission filters: what may keep a job from starting where a placement rule has found GPUs for it."""

from dataclasses import field
from typing import Protocol

import numpy as np

from ringyard.compiled import FloatVector, Int32Vector, bundle, implements, interface
from ringyard.state.arrays import State


@interface
class AdmitStart(Protocol):
    """Whether a job may start at the places found for it. An implementation changes nothing."""

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
        """Decide for job j, which holds nothing yet.

        Args:
            state: with the jobs that have started before it.
            b: cluster.
            j: row of the job.
            places: GPU ids, or the server of a CPU-only job, in the first `count` entries.
            count: of places.
            of_jobs: [jobs] of the filter.
            parameters: [parameters] of the filter.
        """


@bundle
class AdmissionFilter:
    """A compiled function that may keep jobs from starting, and what it reads.

    Attributes:
        admit_start: implements `AdmitStart`.
        of_jobs: [jobs] a number for each job, if the function reads any. Its length is not checked. Its owner
            may change the values between decisions.
        parameters: [parameters] whatever the function reads.
    """

    admit_start: AdmitStart
    of_jobs: FloatVector = field(default_factory=lambda: np.zeros(1))
    parameters: FloatVector = field(default_factory=lambda: np.zeros(1))


@implements(AdmitStart)
def _admit_all(
    state: State,
    b: int,
    j: int,
    places: Int32Vector,
    count: int,
    of_jobs: FloatVector,
    parameters: FloatVector,
) -> bool:
    return True


#: lets every job start
ADMIT_ALL = AdmissionFilter(_admit_all)
