"""How fast jobs run, as kernels receive it."""

from ringyard.compiled import FloatVector, address_of, bundle, complain, complaint, kernel
from ringyard.performance import IterationSeconds, PerformanceModel
from ringyard.state.records import Job

__all__ = ["Physics", "check_seconds", "iteration_seconds", "physics_of"]

_NO_TIME = complaint(
    "performance model {function} gave job {job}, with {expected:.0f} GPUs on {there:.0f} servers, {got}"
    " seconds an iteration; expected a finite number above 0 (1e-100 to 1e100)"
)


@bundle
class Physics:
    """A performance model in kernels, which ask it by `iteration_seconds`.

    Attributes:
        seconds: of one iteration of a job.
        parameters: [parameters] what it reads.
    """

    seconds: IterationSeconds
    parameters: FloatVector


@kernel
def check_seconds(seconds: float, job: Job, j: int, physics: Physics) -> None:
    """Complain unless a performance model's answer about job j is a time that can be counted with."""
    if not 1e-100 < seconds < 1e100:
        complain(_NO_TIME, address_of(physics.seconds), j, seconds, job.num_gpus, job.num_servers)


@kernel
def iteration_seconds(job: Job, j: int, physics: Physics) -> float:
    """Seconds of one iteration of job j at its present batch, as the performance model says."""
    seconds = physics.seconds(job, physics.parameters)
    check_seconds(seconds, job, j, physics)
    return seconds


def physics_of(performance: PerformanceModel) -> Physics:
    """A performance model as kernels receive it."""
    return Physics(performance.iteration_seconds, performance.parameters)
