"""What the decision process adds to the simulation state, per cluster of a batch."""

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled.bundles import by_reference
from ringyard.sim.engine.what_if import LOOK
from ringyard.state.records import INTEGRALS

__all__ = ["EPISODE_TYPE", "STATIC_FEATURES", "Episode", "empty_episode"]

STATIC_FEATURES = 4  # log duration, log2 GPUs, log GPU seconds, log communication intensity


@by_reference(
    numba.types.float32[:, :, ::1],
    numba.from_dtype(LOOK)[:, :, ::1],
    numba.types.float32[:, :, ::1],
    numba.types.int32[:, ::1],
    numba.types.float64[:, ::1],
    numba.types.float64[:, ::1],
)
@dataclass(frozen=True, eq=False)
class Episode:
    """Arrays beside `State`; V visible waiting jobs, T placement templates.

    Attributes:
        static: [clusters, jobs, STATIC_FEATURES] standardised features that never change.
        looks: [clusters, V, T] `LOOK`: what the visible job would find where the template puts it.
        template_slowdown: [clusters, V, T] `progress.slowdown` there, in (-1, 1).
        class_slot: [clusters, classes] first visible slot of each demand class, valid for one pass.
        reward_weights: [clusters, Integral] reward per unit of each integral's growth.
        last_integrals: [clusters, Integral] at the last reward.
    """

    static: NDArray[np.float32]
    looks: NDArray[np.void]
    template_slowdown: NDArray[np.float32]
    class_slot: NDArray[np.int32]
    reward_weights: NDArray[np.float64]
    last_integrals: NDArray[np.float64]


def empty_episode(
    num_clusters: int, num_jobs: int, num_classes: int, num_visible: int, num_templates: int
) -> Episode:
    """Zeroed arrays of the given sizes."""
    table = (num_clusters, num_visible, num_templates)
    return Episode(
        static=np.zeros((num_clusters, num_jobs, STATIC_FEATURES), np.float32),
        looks=np.zeros(table, LOOK),
        template_slowdown=np.zeros(table, np.float32),
        class_slot=np.zeros((num_clusters, num_classes), np.int32),
        reward_weights=np.zeros((num_clusters, INTEGRALS)),
        last_integrals=np.zeros((num_clusters, INTEGRALS)),
    )


EPISODE_TYPE = Episode.numba_type  # type: ignore[attr-defined]
