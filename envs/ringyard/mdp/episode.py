"""Arrays that the environments add to the simulation state, and helpers for bundles of arrays."""

from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import AllocationPlan, empty_allocation_plan
from ringyard.compiled import (
    BoolMatrix,
    BoolVector,
    Float32Cube,
    Float32Matrix,
    FloatCube,
    FloatMatrix,
    FloatVector,
    Int32Matrix,
    IntVector,
    Record,
    Records2,
    Records3,
    bundle,
    f4,
    kernel,
    to_int,
)
from ringyard.sim.engine.co_location import PlacementContext
from ringyard.state.arrays import State, copy_array, empty_state
from ringyard.state.records import INTEGRALS, Job

BUNDLE = TypeVar("BUNDLE")


class StaticFeatures(Record):
    """Constant features of a job, centred and scaled."""

    run_time: f4  #: log of the predicted isolated run time
    gpus: f4  #: log2 of the GPUs asked for
    work: f4  #: log of the predicted GPU seconds
    communication: f4  #: log of the communication intensity


@bundle
class Episode:
    """Arrays beside `State`. V visible waiting jobs, T start templates, N jobs that get scores."""

    static: Records2[StaticFeatures]  #: [clusters, jobs] `StaticFeatures`
    #: [clusters, V, T] `PlacementContext` of the visible job with the template's GPUs
    placement_contexts: Records3[PlacementContext]
    template_slowdown: Float32Cube  #: [clusters, V, T] `progress.relative_slowdown` there, in (-1, 1)
    class_slot: Int32Matrix  #: [clusters, classes] scratch: first visible slot of each demand class
    weights: FloatCube  #: [clusters, signals, Integral + 1], see `WorkloadRows`
    due_seconds: FloatMatrix  #: [clusters, jobs] or [clusters, 0], see `WorkloadRows`
    num_late: FloatVector  #: [clusters] late jobs at the last reward
    last_integrals: FloatMatrix  #: [clusters, Integral] values at the last reward
    potential: FloatVector  #: [clusters] `Reward.shaping`'s Phi at the last reward
    #: [clusters, jobs] rows of the jobs that wait or run, ascending. [clusters, 0] without scores.
    live: Int32Matrix
    num_live: IntVector  #: [clusters] number of valid entries in `live`
    num_arrived: IntVector  #: [clusters] number of rows that `live` has taken in
    left: FloatMatrix  #: [clusters, N] scratch of the observation: seconds left of each job that gets a score
    #: [clusters, N] scratch of the observation: positions of these jobs, ascending in `left`
    order: Int32Matrix
    #: [clusters, N x F] `JobFeatures` of the jobs that get a score, [clusters, 0] unless actions weigh them
    features: Float32Matrix
    scores: Float32Matrix  #: [clusters, N] scores from weights, [clusters, 0] without weights
    plan: AllocationPlan  #: arrays of the allocator, empty without scores


@bundle
class StepOutputs:
    """Results of a step, one row per cluster, overwritten by each step."""

    observations: Float32Matrix  #: [clusters, size]
    masks: BoolMatrix  #: [clusters, mask] valid actions, or scores with a job
    rewards: FloatVector  #: [clusters] of the last step
    parts: FloatMatrix  #: [clusters, parts] of a vector reward, of the last step
    costs: FloatVector  #: [clusters] of the last step, 0 without a cost
    returns: FloatVector  #: [clusters] undiscounted sum of the episode's rewards
    lengths: IntVector  #: [clusters] steps of the episode
    replaced: BoolVector  #: [clusters] True where a masked action was replaced
    ends: IntVector  #: [clusters] ONGOING, DONE, TRUNCATED or STALLED
    done: BoolVector  #: [clusters] True where every job has ended
    truncated: BoolVector  #: [clusters] True where `limit_seconds` was reached before that
    #: [clusters] mean JCT of ended jobs that were not blocked, 0 while there is none, NaN if none at the end
    episode_jct: FloatVector
    #: [clusters] at the end of an episode the mean of JCT / isolated run time of ended jobs, 0 before
    episode_slowdown: FloatVector
    episode_preemptions: IntVector  #: [clusters] preemptions so far
    num_finished: IntVector  #: [clusters] number of ended jobs
    entries: IntVector  #: [clusters] number of the job table of the episode
    active_mask: BoolVector  #: [clusters] True if the next step continues an episode


@bundle
class WorkloadRows:
    """Prepared job tables."""

    records: Records2[Job]  #: [rows, jobs] `Job` at time zero
    static: Records2[StaticFeatures]  #: [rows, jobs] `StaticFeatures`
    num_jobs: IntVector  #: [rows] number of jobs
    #: [rows, signals, Integral + 1] reward, parts of it and cost, per unit and last per late job
    weights: FloatCube
    due_seconds: FloatMatrix  #: [rows, jobs] time after which a job is late, [rows, 0] if none can be
    seeds: IntVector  #: [rows] seed of failures, stragglers and all else that is random in an episode


def empty_episode(
    state: State,
    num_visible: int = 0,
    num_templates: int = 0,
    num_scores: int = 0,
    num_features: int = 0,
    plan: AllocationPlan | None = None,
) -> Episode:
    """Create zeroed arrays for a state: V visible jobs, T templates, N scores of F features, and a plan."""
    (num_clusters, num_jobs), num_classes = state.running.shape, state.class_waiting.shape[1]
    table = (num_clusters, num_visible, num_templates)
    return Episode(
        static=StaticFeatures.zeros(num_clusters, num_jobs),
        placement_contexts=PlacementContext.zeros(*table),
        template_slowdown=np.zeros(table, np.float32),
        class_slot=np.zeros((num_clusters, num_classes), np.int32),
        weights=np.zeros((num_clusters, 1, INTEGRALS + 1)),
        last_integrals=np.zeros((num_clusters, INTEGRALS)),
        potential=np.zeros(num_clusters),
        due_seconds=np.zeros((num_clusters, 0)),
        num_late=np.zeros(num_clusters),
        live=np.zeros((num_clusters, num_jobs if num_scores else 0), np.int32),
        num_live=np.zeros(num_clusters, np.int64),
        num_arrived=np.zeros(num_clusters, np.int64),
        left=np.zeros((num_clusters, num_scores)),
        order=np.zeros((num_clusters, num_scores), np.int32),
        features=np.zeros((num_clusters, num_scores * num_features), np.float32),
        scores=np.zeros((num_clusters, num_scores if num_features else 0), np.float32),
        plan=empty_allocation_plan(empty_state(0), 0) if plan is None else plan,
    )


def arrays_of(*bundles: Any) -> list[NDArray[Any]]:
    """Return all arrays of `bundles`, including nested ones."""
    found: list[NDArray[Any]] = []
    for value in (getattr(one, field.name) for one in bundles for field in fields(one)):
        found += [value] if isinstance(value, np.ndarray) else arrays_of(value)
    return found


def copy_bundle(bundle: BUNDLE) -> BUNDLE:
    """Return a copy of a bundle with its own arrays, including nested ones.

    An empty bundle is returned itself: it cannot change, and kernels rely on its address.
    """
    if not any(array.size for array in arrays_of(bundle)):
        return bundle
    values = (getattr(bundle, field.name) for field in fields(bundle))  # type: ignore[arg-type]
    return type(bundle)(*(copy_array(v) if isinstance(v, np.ndarray) else copy_bundle(v) for v in values))


@kernel
def next_running(state: State, b: int, position: int, previous: int) -> int:
    """Return the row of the running job at a position, behind the row `previous` (-1: none).

    If all ends are predictable, position 0 ends first and the others are in heap order. Otherwise positions
    go by row, because heap order would reveal ends that cannot be predicted.
    """
    cluster = state.clusters[b]
    if cluster.perfect_predictions != 0:
        return to_int(state.running[b, position])
    row = to_int(cluster.num_jobs)
    for i in range(cluster.num_running):
        other = to_int(state.running[b, i])
        if previous < other < row:
            row = other
    return row


@kernel
def running_at(state: State, b: int, position: int) -> int:
    """Return the row of the running job of cluster `b` in `state` at a `position` of `next_running`."""
    row = -1
    for i in range(position if state.clusters[b].perfect_predictions != 0 else 0, position + 1):
        row = next_running(state, b, i, row)
    return row
