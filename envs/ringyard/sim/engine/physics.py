"""How fast jobs run, as kernels receive it."""

from ringyard.compiled import FloatVector, bundle
from ringyard.performance import IterationSeconds, PerformanceModel

__all__ = ["Physics", "physics_of"]


@bundle
class Physics:
    """A performance model in kernels: `physics.seconds(job, physics.parameters)`.

    Attributes:
        seconds: of one iteration of a job.
        parameters: [parameters] what it reads.
    """

    seconds: IterationSeconds
    parameters: FloatVector


def physics_of(performance: PerformanceModel) -> Physics:
    """A performance model as kernels receive it."""
    return Physics(performance.iteration_seconds, performance.parameters)
