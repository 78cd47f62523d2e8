"""Features of the jobs that get a score, for observations and for actions that weigh features."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ringyard.compiled import FloatVector, Int32Vector, Record, Records1, f4, kernel, to_int
from ringyard.mdp.episode import Episode
from ringyard.restart import restart_pause
from ringyard.state.arrays import State
from ringyard.state.progress import attained_service, predicted_iterations, run_seconds
from ringyard.state.records import JobKind, JobStatus


@dataclass(frozen=True)
class Feature:
    """Documentation of one feature, as in `gpus: Annotated[f4, Feature("log2(GPUs)", "GPUs")]`."""

    meaning: str  #: formula. s(x, c) stands for x / (x + c).
    unit: str = ""  #: of the quantity before scaling. "" for shares, ranks and flags.
    name: str = ""  #: of the field


@kernel
def squash(value: float, scale: float) -> float:
    """Return `value` / (`value` + `scale`): 0 at 0, 1/2 at `scale`, 1 at infinity."""
    return value / (value + scale)


class JobFeatures(Record):
    """Features of a job that gets a score."""

    time_left: Annotated[
        f4,
        Feature(
            "(ln(1 + predicted or estimated isolated time left with what it asks for) - 6) / 2.5, at most 10,"
            " 0 if neither",
            "s",
        ),
    ]
    time_left_rank: Annotated[
        f4, Feature("rank in [0, 1) of the time left, or of the run time + 1 min if not predictable")
    ]
    gpus: Annotated[f4, Feature("log2(GPUs asked for) / 3 - 0.5, CPU-only as an eighth of a GPU", "GPUs")]
    gpus_of_cluster: Annotated[f4, Feature("1 + log2(GPUs asked for / GPUs) / 8, CPU-only as above")]
    running: Annotated[f4, Feature("1 if it runs")]
    run_time: Annotated[f4, Feature("ln(1 + time with resources held / 1 min) / 5", "s")]
    attained_service: Annotated[f4, Feature("ln(1 + GPU time held / 1 min) / 5", "GPU s")]
    age: Annotated[f4, Feature("ln(1 + time since submission / 1 min) / 5", "s")]
    speedup: Annotated[f4, Feature("ln(largest speed on any number of GPUs / speed with what it asks for)")]
    communication: Annotated[f4, Feature("ln(1 + gradient bytes / (1 GB/s x compute seconds)) - 1")]
    predictable: Annotated[f4, Feature("1 if predictable")]
    gpus_held: Annotated[f4, Feature("GPUs held / asked for, at most 10")]
    speed: Annotated[f4, Feature("present / isolated speed with what it asks for, at most 10, 0 if it waits")]
    restart: Annotated[f4, Feature("s(pause of a restart, time left or run time + 1 min)", "s")]
    job_class: Annotated[f4, Feature("1 if CPU-only, else -1 if it has a deadline, else 0")]


#: F, the number of features
NUM_JOB_FEATURES = len(JobFeatures.__annotations__)

_MINUTE = 60.0
_LARGEST = 10.0


@kernel
def _log_minutes(seconds: float) -> float:
    return np.log1p(seconds / _MINUTE) / 5.0


@kernel
def _sort_by(keys: FloatVector, order: Int32Vector, count: int) -> None:
    """Write positions of the first `count` of `keys` into `order`, by (key, position): a shell sort."""
    for i in range(count):
        order[i] = i
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            one = order[i]
            k = i - gap
            while k >= 0 and (keys[order[k]] > keys[one] or (keys[order[k]] == keys[one] and order[k] > one)):
                order[k + gap] = order[k]
                k -= gap
            order[k + gap] = one
        gap //= 3


@kernel
def _write_job(state: State, episode: Episode, b: int, j: int, left: float, out: JobFeatures) -> None:
    cluster = state.clusters[b]
    now = cluster.now
    job = state.jobs[b, j]
    static = episode.static[b, j]
    out.gpus = static.gpus
    out.gpus_of_cluster = 1.0 + np.log2(max(float(job.asked_gpus), 0.125) / cluster.num_gpus) / 8.0
    out.run_time = _log_minutes(run_seconds(job, now))
    out.attained_service = _log_minutes(attained_service(job, now))
    out.age = _log_minutes(now - job.submit_seconds)
    out.speedup = np.log(episode.plan.max_speed[b, j])
    out.communication = static.communication
    out.restart = squash(restart_pause(job, to_int(job.asked_gpus)), left + 1.0)
    out.job_class = 1.0 if job.kind == JobKind.CPU_ONLY else -1.0 if job.deadline_seconds < np.inf else 0.0
    if job.status == JobStatus.RUNNING:
        out.running = 1.0
        out.gpus_held = min(job.num_gpus / max(float(job.asked_gpus), 1.0), _LARGEST)
        out.speed = min(job.isolated_iteration_seconds / job.iteration_seconds, _LARGEST)


@kernel
def num_shown(episode: Episode, b: int) -> int:
    """Return the number of live jobs of cluster `b` that get a score."""
    return min(episode.left.shape[1], to_int(episode.num_live[b]))


@kernel
def write_assumed_seconds(state: State, episode: Episode, b: int) -> None:
    """Set the seconds left of each job in `episode` to its run time plus a minute."""
    now = state.clusters[b].now
    for i in range(num_shown(episode, b)):
        episode.left[b, i] = run_seconds(state.jobs[b, episode.live[b, i]], now) + _MINUTE


@kernel
def _write_seconds_left(episode: Episode, b: int, i: int, seconds: float, out: JobFeatures) -> None:
    episode.left[b, i] = seconds
    out.time_left = min((np.log1p(seconds) - 6.0) / 2.5, _LARGEST)


@kernel
def write_predicted_seconds(state: State, episode: Episode, b: int, jobs: Records1[JobFeatures]) -> None:
    """Write predicted isolated seconds left to `episode` and `jobs`, assumed ones without a prediction."""
    write_assumed_seconds(state, episode, b)
    now = state.clusters[b].now
    for i in range(num_shown(episode, b)):
        job = state.jobs[b, episode.live[b, i]]
        if job.predictable != 0:
            seconds = predicted_iterations(job, now) * job.isolated_iteration_seconds
            _write_seconds_left(episode, b, i, seconds, jobs[i])
            jobs[i].predictable = 1.0


@kernel
def write_estimated_seconds(episode: Episode, b: int, jobs: Records1[JobFeatures]) -> None:
    """Write the allocator's estimates of the isolated seconds left to `episode` and `jobs`."""
    for i in range(num_shown(episode, b)):
        _write_seconds_left(episode, b, i, episode.plan.seconds_left[b, episode.live[b, i]], jobs[i])


@kernel
def write_job_features(state: State, episode: Episode, b: int, jobs: Records1[JobFeatures]) -> None:
    """Write all features that need no prediction, and the ranks of `Episode.left`, into zeroed `jobs`."""
    shown, left, order = num_shown(episode, b), episode.left[b], episode.order[b]
    for i in range(shown):
        _write_job(state, episode, b, to_int(episode.live[b, i]), left[i], jobs[i])
    _sort_by(left, order, shown)
    for rank in range(shown):
        jobs[order[rank]].time_left_rank = rank / shown
