"""Observations of all jobs that wait or run: `live_jobs` for `Scores`, `live_job_summary` for `Weights`."""

from typing import Annotated

import numpy as np

from ringyard.compiled import Float32Vector, FloatVector, Record, Records1, f4, implements, kernel, take_rows
from ringyard.mdp.episode import Episode
from ringyard.mdp.job_features import (
    NUM_JOB_FEATURES,
    Feature,
    JobFeatures,
    num_shown,
    squash,
    write_assumed_seconds,
    write_estimated_seconds,
    write_job_features,
    write_predicted_seconds,
)
from ringyard.mdp.observations.observation import Block, ItemAxis, Observation, Observe, Present, mark_present
from ringyard.observability import Observability
from ringyard.restart import restart_pause
from ringyard.state.arrays import State


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


@kernel
def _write_cluster(state: State, episode: Episode, b: int, shown: int, out: LiveJobTotals) -> None:
    cluster = state.clusters[b]
    live = episode.num_live[b]
    pauses = 0.0
    for i in range(live):
        job = state.jobs[b, episode.live[b, i]]
        pauses += restart_pause(job, job.asked_gpus)
    out.live = np.log1p(float(live)) / 5.0
    out.hidden = squash(float(live - shown), 16.0)
    out.waiting = cluster.num_waiting / max(float(live), 1.0)
    out.demand = squash(cluster.demanded_gpus / cluster.num_gpus, 1.0)
    out.free = cluster.free_gpus / cluster.num_gpus
    out.jobs_per_gpu = np.log2(float(cluster.jobs_per_gpu))
    out.gpus = np.log2(float(cluster.num_gpus)) / 8.0 - 0.5
    out.restart = np.log1p(pauses / max(float(live), 1.0)) / 5.0


@kernel
def _write(state: State, episode: Episode, b: int, jobs: Records1[JobFeatures], rest: Float32Vector) -> None:
    """Write the jobs' features that need no prediction, their mask and the totals of the cluster."""
    shown = num_shown(episode, b)
    mask, rest = take_rows(rest, len(episode.left[b]), Present)
    cluster, _ = take_rows(rest, 1, LiveJobTotals)
    mark_present(mask, shown)
    write_job_features(state, episode, b, jobs)
    _write_cluster(state, episode, b, shown, cluster[0])


@implements(Observe)
def _live_jobs(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    out[:] = 0.0
    jobs, rest = take_rows(out, len(episode.left[b]), JobFeatures)
    write_predicted_seconds(state, episode, b, jobs)
    _write(state, episode, b, jobs, rest)


@implements(Observe)
def _live_jobs_without_predictions(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    """Write the row, with the allocator's estimates of the time left if `parameters` says so."""
    out[:] = 0.0
    jobs, rest = take_rows(out, len(episode.left[b]), JobFeatures)
    if parameters[0] != 0.0:
        write_estimated_seconds(episode, b, jobs)
    else:
        write_assumed_seconds(state, episode, b)
    _write(state, episode, b, jobs, rest)


@implements(Observe)
def _live_job_summary(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    """Summarise `Episode.features`, which the decoder of weights has written."""
    out[:] = 0.0
    count = episode.num_live[b]
    size = NUM_JOB_FEATURES
    cluster, rest = take_rows(out, 1, LiveJobTotals)
    _write_cluster(state, episode, b, count, cluster[0])
    for i in range(count):
        for k in range(size):
            value = episode.features[b, i * size + k]
            rest[k] += value / count
            rest[size + k] += value * value / count
    for k in range(size):
        rest[size + k] = np.sqrt(max(rest[size + k] - rest[k] * rest[k], 0.0))


def live_job_summary(flat: bool = True) -> Observation:
    """Create the observation for `Weights`: cluster totals, means and deviations over live jobs.

    docs/observations.md has the table of features.

    Args:
        flat: one Box row (for an MLP) instead of a Dict of blocks.
    """
    parts = tuple(Block(name, ItemAxis.SUMMARY, JobFeatures) for name in ("mean", "deviation"))
    blocks = (Block("cluster", ItemAxis.CLUSTER, LiveJobTotals), *parts)
    return Observation(_live_job_summary, blocks, flat, _OBSERVABILITY | Observability.PREDICTIONS)


def live_jobs(flat: bool = False, predictions: bool = True, estimates: bool = False) -> Observation:
    """Create the observation for `Scores`: all jobs that get a score, in their order, and cluster totals.

    docs/observations.md has the table of features.

    Args:
        flat: one Box row (for an MLP) instead of a Dict of blocks (for a policy over sets of jobs).
        predictions: whether predictions of the jobs' remaining time are shown. Without them no job is
            predictable.
        estimates: whether the time left is the estimate of the allocator that `Scores` has, also of jobs that
            are not predictable, in place of predictions. It shows what the allocator may see.
    """
    if predictions and not estimates:
        return Observation(_live_jobs, _BLOCKS, flat, _OBSERVABILITY | Observability.PREDICTIONS)
    parts = _live_jobs_without_predictions, _BLOCKS, flat, _OBSERVABILITY
    return Observation(*parts, np.array([float(estimates)]), estimates)
