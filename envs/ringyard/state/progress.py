"""Work left, attained service and predictions of one job record at a given time.

Functions work for jobs in any state. Schedulers may call those with the name of a declared column.
"""

import numpy as np

from ringyard.compiled import kernel
from ringyard.state.records import Job, JobStatus


@kernel
def remaining_iterations(job: Job, now: float) -> float:
    """Return the iterations of the base batch that `job` has left at time `now`."""
    if job.status != JobStatus.RUNNING:
        return job.remaining_iterations
    begin = max(job.updated_seconds, job.pause_ends_seconds)
    if now <= begin:
        return job.remaining_iterations
    return max(0.0, job.remaining_iterations - (now - begin) / job.iteration_seconds)


@kernel
def predicted_iterations(job: Job, now: float) -> float:
    """Return the predicted iterations that `job` has left at time `now`, NaN if it is not predictable."""
    if job.predictable == 0:
        return np.nan
    return remaining_iterations(job, now) * job.prediction_factor


@kernel
def predicted_share(job: Job) -> float:
    """Return predicted iterations left / all, of a waiting `job`. NaN if it is not predictable."""
    if job.predictable == 0:
        return np.nan
    left = job.remaining_iterations * job.prediction_factor
    return left / (job.total_iterations + (left - job.remaining_iterations))


@kernel
def predicted_seconds(job: Job) -> float:
    """Return the predicted isolated run time of `job` in seconds, NaN if it is not predictable."""
    if job.predictable == 0:
        return np.nan
    return job.isolated_seconds * job.prediction_factor


@kernel
def attained_service(job: Job, now: float) -> float:
    """Return the GPU seconds that `job` has held until time `now`."""
    if job.status != JobStatus.RUNNING:
        return job.attained_service
    return job.attained_service + job.num_gpus * (now - job.updated_seconds)


@kernel
def seconds_to_compute(job: Job) -> float:
    """Return the GPU seconds for which the job's GPUs will compute, if it goes on as at present."""
    iterations = job.remaining_iterations / job.progress_per_iteration
    return iterations * job.compute_seconds / job.gpu_speed * job.num_gpus


@kernel
def relative_slowdown(isolated_seconds: float, seconds: float) -> float:
    """Return 1 - `isolated_seconds` / `seconds` in [0, 1), if faster the inverse - 1, in (-1, 0)."""
    if seconds >= isolated_seconds:
        return 1.0 - isolated_seconds / seconds
    return seconds / isolated_seconds - 1.0


@kernel
def run_seconds(job: Job, now: float) -> float:
    """Return the seconds for which `job` has held resources until time `now`."""
    if job.status != JobStatus.RUNNING:
        return job.run_seconds
    return job.run_seconds + (now - job.updated_seconds)
