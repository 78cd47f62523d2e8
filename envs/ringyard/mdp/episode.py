"""Arrays of a batch that the environment adds to the simulation state."""

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
    """Features of a job that never change, centred and scaled.

    Attributes:
        run_time: log of the predicted duration alone.
        gpus: log2 of the GPUs asked.
        work: log of the predicted GPU seconds.
        communication: log of the communication intensity.
    """

    run_time: f4
    gpus: f4
    work: f4
    communication: f4


@bundle
class Episode:
    """Arrays beside `State`; V visible waiting jobs, T placement templates, N jobs that get scores.

    Attributes:
        static: [clusters, jobs] `StaticFeatures`.
        placement_contexts: [clusters, V, T] `PlacementContext` of the visible job where the template puts it.
        template_slowdown: [clusters, V, T] `progress.relative_slowdown` there, in (-1, 1).
        class_slot: [clusters, classes] first visible slot of each demand class, valid for one pass.
        reward_weights: [clusters, Integral] reward per unit of each integral's growth.
        last_integrals: [clusters, Integral] at the last reward.
        live: [clusters, jobs] rows of the jobs that wait or run, ascending; [clusters, 0] without scores.
        num_live: [clusters] how many of them are valid.
        num_arrived: [clusters] rows that the list has seen.
        left: [clusters, N] scratch of the observation: seconds left of each job that gets a score.
        order: [clusters, N] the same: its jobs by that.
        plan: the allocator's notes; of no cluster without scores.
    """

    static: Records2[StaticFeatures]
    placement_contexts: Records3[PlacementContext]
    template_slowdown: Float32Cube
    class_slot: Int32Matrix
    reward_weights: FloatMatrix
    last_integrals: FloatMatrix
    live: Int32Matrix
    num_live: IntVector
    num_arrived: IntVector
    left: FloatMatrix
    order: Int32Matrix
    plan: AllocationPlan


@bundle
class StepOutputs:
    """Results of a step, one row per cluster, overwritten by each step.

    Attributes:
        observations: [clusters, size].
        masks: [clusters, mask] valid actions, or which scores have a job.
        rewards: [clusters] of the last step.
        returns: [clusters] undiscounted sum of the episode's rewards.
        lengths: [clusters] steps of the episode.
        ends: [clusters] ONGOING, DONE, TRUNCATED or STALLED.
        active_mask: [clusters] an episode is on, which the next step continues.
    """

    observations: Float32Matrix
    masks: BoolMatrix
    rewards: FloatVector
    returns: FloatVector
    lengths: IntVector
    ends: IntVector
    active_mask: BoolVector


@bundle
class WorkloadRows:
    """Workloads ready to be loaded.

    Attributes:
        records: [rows, jobs] `Job` at time zero.
        static: [rows, jobs] `StaticFeatures`.
        num_jobs: [rows].
        weights: [rows, Integral] of the reward.
        seeds: [rows] of failures, stragglers and whatever else of an episode is random.
    """

    records: Records2[Job]
    static: Records2[StaticFeatures]
    num_jobs: IntVector
    weights: FloatMatrix
    seeds: IntVector


def empty_episode(
    state: State,
    num_visible: int = 0,
    num_templates: int = 0,
    num_scores: int = 0,
    plan: AllocationPlan | None = None,
) -> Episode:
    """Zeroed arrays for the clusters of a state.

    Args:
        state: arrays of the simulations.
        num_visible: V.
        num_templates: T.
        num_scores: N.
        plan: of an allocator, where there are scores.
    """
    (num_clusters, num_jobs), num_classes = state.running.shape, state.class_waiting.shape[1]
    table = (num_clusters, num_visible, num_templates)
    return Episode(
        static=StaticFeatures.zeros(num_clusters, num_jobs),
        placement_contexts=PlacementContext.zeros(*table),
        template_slowdown=np.zeros(table, np.float32),
        class_slot=np.zeros((num_clusters, num_classes), np.int32),
        reward_weights=np.zeros((num_clusters, INTEGRALS)),
        last_integrals=np.zeros((num_clusters, INTEGRALS)),
        live=np.zeros((num_clusters, num_jobs if num_scores else 0), np.int32),
        num_live=np.zeros(num_clusters, np.int64),
        num_arrived=np.zeros(num_clusters, np.int64),
        left=np.zeros((num_clusters, num_scores)),
        order=np.zeros((num_clusters, num_scores), np.int32),
        plan=empty_allocation_plan(empty_state(0), 0) if plan is None else plan,
    )


def arrays_of(*bundles: Any) -> list[NDArray[Any]]:
    """All arrays of bundles, and of those inside them."""
    found: list[NDArray[Any]] = []
    for value in (getattr(one, field.name) for one in bundles for field in fields(one)):
        found += [value] if isinstance(value, np.ndarray) else arrays_of(value)
    return found


def copy_bundle(bundle: BUNDLE) -> BUNDLE:
    """A bundle of the same values in arrays of its own, also those of bundles inside it.

    One without a single value is given as it is: nothing of it can change, and kernels know its address.
    """
    if not any(array.size for array in arrays_of(bundle)):
        return bundle
    values = (getattr(bundle, field.name) for field in fields(bundle))  # type: ignore[arg-type]
    return type(bundle)(*(copy_array(v) if isinstance(v, np.ndarray) else copy_bundle(v) for v in values))


@kernel
def next_running(state: State, b: int, position: int, previous: int) -> int:
    """Row of the job in a position, given that of the one before (-1 for position 0).

    If all ends are known, position 0 ends first and the others are in heap order. Otherwise positions go by
    row, because the heap's order would reveal ends that cannot be predicted.
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
    """Row of the job in a position."""
    row = -1
    for i in range(position if state.clusters[b].perfect_predictions != 0 else 0, position + 1):
        row = next_running(state, b, i, row)
    return row
