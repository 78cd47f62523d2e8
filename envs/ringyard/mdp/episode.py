"""What the decision process adds to the simulation state, per cluster of a batch."""

import numpy as np

from ringyard.compiled import Float32Cube, FloatMatrix, Int32Matrix, Records3, bundle
from ringyard.sim.engine.surroundings import Surroundings
from ringyard.state.records import INTEGRALS

__all__ = ["STATIC_FEATURES", "Episode", "empty_episode"]

STATIC_FEATURES = 4  # log predicted duration, log2 GPUs, log GPU seconds, log communication intensity


@bundle
class Episode:
    """Arrays beside `State`; V visible waiting jobs, T placement templates.

    Attributes:
        static: [clusters, jobs, STATIC_FEATURES] standardised features that never change.
        looks: [clusters, V, T] `Surroundings`: what the visible job would find where the template puts it.
        template_slowdown: [clusters, V, T] `progress.slowdown` there, in (-1, 1).
        class_slot: [clusters, classes] first visible slot of each demand class, valid for one pass.
        reward_weights: [clusters, Integral] reward per unit of each integral's growth.
        last_integrals: [clusters, Integral] at the last reward.
    """

    static: Float32Cube
    looks: Records3[Surroundings]
    template_slowdown: Float32Cube
    class_slot: Int32Matrix
    reward_weights: FloatMatrix
    last_integrals: FloatMatrix


def empty_episode(
    num_clusters: int, num_jobs: int, num_classes: int, num_visible: int, num_templates: int
) -> Episode:
    """Zeroed arrays of the given sizes."""
    table = (num_clusters, num_visible, num_templates)
    return Episode(
        static=np.zeros((num_clusters, num_jobs, STATIC_FEATURES), np.float32),
        looks=Surroundings.zeros(*table),
        template_slowdown=np.zeros(table, np.float32),
        class_slot=np.zeros((num_clusters, num_classes), np.int32),
        reward_weights=np.zeros((num_clusters, INTEGRALS)),
        last_integrals=np.zeros((num_clusters, INTEGRALS)),
    )
