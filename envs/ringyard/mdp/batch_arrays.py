"""The arrays of a batch of clusters: made empty, listed, copied."""

from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ringyard.mdp.driver import ActionDriver
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.episode import Episode
from ringyard.mdp.kernel import Outputs
from ringyard.sim.engine.setup import new_state
from ringyard.state.arrays import State, copied

__all__ = ["arrays_of", "copied_bundle", "empty_arrays"]

BUNDLE = TypeVar("BUNDLE")


def arrays_of(*bundles: Any) -> list[NDArray[Any]]:
    """All arrays of bundles, and of those inside them."""
    found: list[NDArray[Any]] = []
    for value in (getattr(bundle, field.name) for bundle in bundles for field in fields(bundle)):
        found += [value] if isinstance(value, np.ndarray) else arrays_of(value)
    return found


def copied_bundle(bundle: BUNDLE) -> BUNDLE:
    """A bundle of the same values in arrays of its own, also those of bundles inside it.

    One without a single value is given as it is: nothing of it can change, and kernels know its address.
    """
    if not any(array.size for array in arrays_of(bundle)):
        return bundle
    values = (getattr(bundle, field.name) for field in fields(bundle))  # type: ignore[arg-type]
    return type(bundle)(*(copied(v) if isinstance(v, np.ndarray) else copied_bundle(v) for v in values))


def empty_arrays(
    setting: EnvConfig, driver: ActionDriver, segment_rows: int, state: State | None, num_clusters: int
) -> tuple[State, Episode, Outputs]:
    """Arrays of so many clusters; the state may be there already."""
    cluster, actions = setting.cluster, setting.actions
    if state is None:
        jobs = setting.workload.num_jobs
        state = new_state(
            cluster,
            setting.performance,
            setting.failures,
            num_clusters,
            num_jobs=jobs,
            num_classes=jobs,
            round_seconds=actions.round_seconds,
            segment_rows=segment_rows,
        )
    size = setting.observation.size(cluster, actions)
    out = Outputs(
        observations=np.zeros((num_clusters, size), np.float32),
        masks=np.zeros((num_clusters, len(actions.idle_mask)), np.bool_),
        rewards=np.zeros(num_clusters),
        returns=np.zeros(num_clusters),
        lengths=np.zeros(num_clusters, np.int64),
        ends=np.zeros(num_clusters, np.int64),
        playing=np.zeros(num_clusters, np.bool_),
    )
    return state, driver.episode(state), out
