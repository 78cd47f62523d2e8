"""Admission filters: compiled functions that may keep a job from starting on the GPUs found for it."""

from dataclasses import field
from typing import Protocol

import numpy as np

from ringyard.compiled import FloatVector, Int32Vector, bundle, implements, interface
from ringyard.state.arrays import State


@interface
class AdmitStart(Protocol):
    """Whether a job may start on the places found for it. Implementations change nothing."""

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
        """Decide for job `j`, which holds nothing yet, in a state with the jobs started before it.

        `places` has `count` GPU ids, or the server of a CPU-only job. The rest is that of `AdmissionFilter`.
        """


@bundle
class AdmissionFilter:
    """A compiled function that may keep jobs from starting, and the numbers that it reads."""

    admit_start: AdmitStart  #: function that implements `AdmitStart`
    #: [jobs] one number per job, if the function reads any. The length is not checked. The owner may
    #: change the values between decisions.
    of_jobs: FloatVector = field(default_factory=lambda: np.zeros(1))
    #: [parameters] further numbers that the function reads
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


ADMIT_ALL = AdmissionFilter(_admit_all)  #: filter that admits every job
