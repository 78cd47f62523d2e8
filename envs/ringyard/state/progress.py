"""Work left and service held of one job record, at any time."""

import numpy as np

from ringyard.compiled import kernel
from ringyard.state.records import Job, JobStatus


@kernel
def remaining_iterations(job: Job, now: float) -> float:
    """Iterations left at time `now`, for a job in any state."""
    if job.status != JobStatus.RUNNING:
        return job.remaining_iterations
    begin = max(job.updated_seconds, job.pause_ends_seconds)
    if now <= begin:
        return job.remaining_iterations
    return max(0.0, job.remaining_iterations - (now - begin) / job.iteration_seconds)


@kernel
def predicted_iterations(job: Job, now: float) -> float:
    """Predicted iterations left at time `now`; NaN while the job is not predictable."""
    if job.predictable == 0:
        return np.nan
    return remaining_iterations(job, now) * job.prediction_factor


@kernel
def predicted_share(job: Job) -> float:
    """Predicted iterations left / all, of a waiting job; NaN while the job is not predictable."""
    if job.predictable == 0:
        return np.nan
    left = job.remaining_iterations * job.prediction_factor
    return left / (job.total_iterations + (left - job.remaining_iterations))


@kernel
def predicted_seconds(job: Job) -> float:
    """Predicted isolated run time; NaN while the job is not predictable."""
    if job.predictable == 0:
        return np.nan
    return job.isolated_seconds * job.prediction_factor


@kernel
def attained_service(job: Job, now: float) -> float:
    """GPU seconds held until time `now`, for a job in any state."""
    if job.status != JobStatus.RUNNING:
        return job.attained_service
    return job.attained_service + job.num_gpus * (now - job.updated_seconds)


@kernel
def seconds_to_compute(job: Job) -> float:
    """GPU seconds that its GPUs compute in the iterations left, on the GPUs and with the batch it has."""
    iterations = job.remaining_iterations / job.progress_per_iteration
    return iterations * job.compute_seconds / job.gpu_speed * job.num_gpus


@kernel
def relative_slowdown(isolated_seconds: float, seconds: float) -> float:
    """1 - isolated / seconds in [0, 1), and seconds / isolated - 1 in (-1, 0) where it is faster."""
    if seconds >= isolated_seconds:
        return 1.0 - isolated_seconds / seconds
    return seconds / isolated_seconds - 1.0


@kernel
def run_seconds(job: Job, now: float) -> float:
    """Seconds with resources held until time `now`, for a job in any state."""
    if job.status != JobStatus.RUNNING:
        return job.run_seconds
    return job.run_seconds + (now - job.updated_seconds)
