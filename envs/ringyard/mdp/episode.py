"""What the decision process adds to the simulation state, per cluster of a batch."""

import numpy as np

from ringyard.allocator import Plan, empty_plan
from ringyard.compiled import (
    Float32Cube,
    FloatMatrix,
    Int32Matrix,
    IntVector,
    Record,
    Records2,
    Records3,
    bundle,
    f4,
)
from ringyard.sim.engine.co_location import Surroundings
from ringyard.state.arrays import Sizes, State, empty_state
from ringyard.state.records import INTEGRALS

__all__ = ["Episode", "StaticFeatures", "empty_episode"]

_NOTHING = Sizes(jobs=0, gpus=0, servers=0, racks=0, jobs_per_gpu=1, classes=0, models=0, gpu_types=0)


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
        looks: [clusters, V, T] `Surroundings`: what the visible job would find where the template puts it.
        template_slowdown: [clusters, V, T] `progress.slowdown` there, in (-1, 1).
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
    looks: Records3[Surroundings]
    template_slowdown: Float32Cube
    class_slot: Int32Matrix
    reward_weights: FloatMatrix
    last_integrals: FloatMatrix
    live: Int32Matrix
    num_live: IntVector
    num_arrived: IntVector
    left: FloatMatrix
    order: Int32Matrix
    plan: Plan


def empty_episode(
    state: State, num_visible: int = 0, num_templates: int = 0, num_scores: int = 0, plan: Plan | None = None
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
        looks=Surroundings.zeros(*table),
        template_slowdown=np.zeros(table, np.float32),
        class_slot=np.zeros((num_clusters, num_classes), np.int32),
        reward_weights=np.zeros((num_clusters, INTEGRALS)),
        last_integrals=np.zeros((num_clusters, INTEGRALS)),
        live=np.zeros((num_clusters, num_jobs if num_scores else 0), np.int32),
        num_live=np.zeros(num_clusters, np.int64),
        num_arrived=np.zeros(num_clusters, np.int64),
        left=np.zeros((num_clusters, num_scores)),
        order=np.zeros((num_clusters, num_scores), np.int32),
        plan=empty_plan(empty_state(0, _NOTHING), 0) if plan is None else plan,
    )
