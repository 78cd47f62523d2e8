"""`live_jobs`, the observation for `Scores`: all jobs that wait or run, and cluster totals."""

from typing import Annotated

import numpy as np

from ringyard.compiled import (
    Float32Vector,
    FloatVector,
    Int32Vector,
    Record,
    Records1,
    f4,
    implements,
    kernel,
    take_rows,
    to_int,
)
from ringyard.mdp.episode import Episode
from ringyard.mdp.observations.observation import (
    Block,
    Feature,
    ItemAxis,
    Observation,
    Observe,
    Present,
    mark_present,
    squash,
)
from ringyard.observability import Observability
from ringyard.restart import restart_pause
from ringyard.state.arrays import State
from ringyard.state.progress import attained_service, predicted_iterations, run_seconds
from ringyard.state.records import JobKind, JobStatus


class JobFeatures(Record):
    """Features of a job that gets a score."""

    time_left: Annotated[
        f4,
        Feature(
            "(ln(1 + predicted isolated time left with what it asks for) - 6) / 2.5, 0 if not predictable",
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
    cpu_only: Annotated[f4, Feature("1 if CPU-only")]


class LiveJobTotals(Record):
    """Features of the cluster."""

    live: Annotated[f4, Feature("ln(1 + live jobs) / 5", "jobs")]
    hidden: Annotated[f4, Feature("s(live jobs without a score, 16)", "jobs")]
    waiting: Annotated[f4, Feature("waiting jobs / live jobs")]
    demand: Annotated[f4, Feature("s(GPUs asked for by live jobs / GPUs, 1)")]
    free: Annotated[f4, Feature("free GPUs / GPUs")]
    jobs_per_gpu: Annotated[f4, Feature("log2(jobs that may share a GPU)", "jobs")]
    gpus: Annotated[f4, Feature("log2(GPUs) / 8 - 0.5", "GPUs")]
    restart: Annotated[f4, Feature("ln(1 + mean pause of a restart of live jobs) / 5", "s")]


#: blocks of `live_jobs`, in the order of the row
_ITEMS = (Block("jobs", ItemAxis.LIVE, JobFeatures), Block("jobs_mask", ItemAxis.LIVE, Present))
_BLOCKS = (*_ITEMS, Block("cluster", ItemAxis.CLUSTER, LiveJobTotals))
_OBSERVABILITY = Observability.SIZES | Observability.ATTAINED_SERVICE | Observability.SPEEDS

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
    out.cpu_only = 1.0 if job.kind == JobKind.CPU_ONLY else 0.0
    if job.status == JobStatus.RUNNING:
        out.running = 1.0
        out.gpus_held = min(job.num_gpus / max(float(job.asked_gpus), 1.0), _LARGEST)
        out.speed = min(job.isolated_iteration_seconds / job.iteration_seconds, _LARGEST)


@kernel
def _write_cluster(state: State, episode: Episode, b: int, shown: int, out: LiveJobTotals) -> None:
    cluster = state.clusters[b]
    live = episode.num_live[b]
    pauses = 0.0
    for i in range(live):
        job = state.jobs[b, episode.live[b, i]]
        pauses += restart_pause(job, to_int(job.asked_gpus))
    out.live = np.log1p(float(live)) / 5.0
    out.hidden = squash(float(live - shown), 16.0)
    out.waiting = cluster.num_waiting / max(float(live), 1.0)
    out.demand = squash(cluster.demanded_gpus / cluster.num_gpus, 1.0)
    out.free = cluster.free_gpus / cluster.num_gpus
    out.jobs_per_gpu = np.log2(float(cluster.jobs_per_gpu))
    out.gpus = np.log2(float(cluster.num_gpus)) / 8.0 - 0.5
    out.restart = np.log1p(pauses / max(float(live), 1.0)) / 5.0


@kernel
def _num_shown(episode: Episode, b: int) -> int:
    return min(episode.left.shape[1], to_int(episode.num_live[b]))


@kernel
def _write_assumed_seconds(state: State, episode: Episode, b: int) -> None:
    """Set the seconds left of each job in `episode` to its run time plus a minute."""
    now = state.clusters[b].now
    for i in range(_num_shown(episode, b)):
        episode.left[b, i] = run_seconds(state.jobs[b, episode.live[b, i]], now) + _MINUTE


@kernel
def _write_predicted_seconds(state: State, episode: Episode, b: int, jobs: Records1[JobFeatures]) -> None:
    """Write the predicted isolated seconds left of predictable jobs to `episode` and `jobs`."""
    now = state.clusters[b].now
    for i in range(_num_shown(episode, b)):
        job = state.jobs[b, episode.live[b, i]]
        if job.predictable != 0:
            left = predicted_iterations(job, now) * job.isolated_iteration_seconds
            episode.left[b, i] = left
            jobs[i].time_left = (np.log1p(left) - 6.0) / 2.5
            jobs[i].predictable = 1.0


@kernel
def _write(state: State, episode: Episode, b: int, jobs: Records1[JobFeatures], rest: Float32Vector) -> None:
    """Write all features that need no prediction, and the ranks of `Episode.left`."""
    shown, left, order = _num_shown(episode, b), episode.left[b], episode.order[b]
    mask, rest = take_rows(rest, len(left), Present)
    cluster, _ = take_rows(rest, 1, LiveJobTotals)
    mark_present(mask, shown)
    for i in range(shown):
        _write_job(state, episode, b, to_int(episode.live[b, i]), left[i], jobs[i])
    _sort_by(left, order, shown)
    for rank in range(shown):
        jobs[order[rank]].time_left_rank = rank / shown
    _write_cluster(state, episode, b, shown, cluster[0])


@implements(Observe)
def _live_jobs(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    out[:] = 0.0
    jobs, rest = take_rows(out, len(episode.left[b]), JobFeatures)
    _write_assumed_seconds(state, episode, b)
    _write_predicted_seconds(state, episode, b, jobs)
    _write(state, episode, b, jobs, rest)


@implements(Observe)
def _live_jobs_without_predictions(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    out[:] = 0.0
    jobs, rest = take_rows(out, len(episode.left[b]), JobFeatures)
    _write_assumed_seconds(state, episode, b)
    _write(state, episode, b, jobs, rest)


def live_jobs(flat: bool = False, predictions: bool = True) -> Observation:
    """Create the observation for `Scores`: all jobs that get a score, in their order, and cluster totals.

    docs/observations.md has the table of features.

    Args:
        flat: one Box row (for an MLP) instead of a Dict of blocks (for a policy over sets of jobs).
        predictions: whether predictions of the jobs' remaining time are shown. Without them no job is
            predictable.
    """
    if predictions:
        return Observation(_live_jobs, _BLOCKS, flat, _OBSERVABILITY | Observability.PREDICTIONS)
    return Observation(_live_jobs_without_predictions, _BLOCKS, flat, _OBSERVABILITY)
