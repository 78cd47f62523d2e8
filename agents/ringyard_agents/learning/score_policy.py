"""What a score network sees, and a network's scores as a policy."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.errors import CheckpointError
from ringyard_agents.learning.hardware import on
from ringyard_agents.learning.score_networks import ScoreNetwork

__all__ = ["ScorePolicy", "Seen", "look", "scores_of"]

#: blocks of the observation
_JOBS, _CLUSTER = "jobs", "cluster"


class Seen(NamedTuple):
    """What is seen of some clusters; as many slots as the fullest of them has jobs.

    Attributes:
        jobs: [clusters, slots, F].
        present: [clusters, slots] True where there is a job: the first slots.
        cluster: [clusters, C].
    """

    jobs: NDArray[np.float32]
    present: NDArray[np.bool_]
    cluster: NDArray[np.float32]


def look(observations: Any, masks: NDArray[np.bool_]) -> Seen:
    """What observations with the blocks `jobs` and `cluster` show.

    Args:
        observations: {block: [clusters, ...]}.
        masks: [clusters, jobs shown] True where there is a job.

    Raises:
        CheckpointError: other blocks.
    """
    if not isinstance(observations, dict) or not {_JOBS, _CLUSTER} <= set(observations):
        raise CheckpointError(
            f"a score network reads the blocks {_JOBS} and {_CLUSTER} of an observation; play it with"
            " action=scores observation=live_jobs, or train another agent"
        )
    num_clusters, num_jobs = masks.shape
    slots = int(masks.sum(axis=1).max(initial=1))
    jobs = observations[_JOBS].reshape(num_clusters, num_jobs, -1)[:, :slots]
    return Seen(jobs, masks[:, :slots], observations[_CLUSTER])


def scores_of(network: ScoreNetwork, seen: Seen) -> torch.Tensor:
    """[clusters, slots] a network's scores."""
    device = next(network.parameters()).device
    jobs, present, cluster = (on(device, part) for part in seen)
    scores: torch.Tensor = network(jobs, present.float(), cluster)
    return scores


class ScorePolicy:
    """Scores jobs as a network does, without noise; on any cluster, for any number of jobs.

    Args:
        network: of as many features as will be seen.
    """

    flat = False

    def __init__(self, network: ScoreNetwork) -> None:
        torch.set_num_threads(1)
        self.network = network

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[np.float32]:
        """[clusters, jobs shown] scores from -1 to 1, 0 where there is no job.

        Raises:
            CheckpointError: an observation of other blocks or features than those of training, or weights
                whose scores are no numbers.
        """
        seen, network = look(observations, masks), self.network
        got, expected = seen.jobs.shape[2], network.job_features
        if (got, seen.cluster.shape[1]) != (expected, network.cluster_features):
            raise CheckpointError(
                f"the agent reads {expected} numbers of a job and {network.cluster_features} of the cluster,"
                f" got {got} and {seen.cluster.shape[1]}; play it with the observation of its training"
            )
        with torch.no_grad():
            found = scores_of(network, seen).cpu().numpy()
        if not np.isfinite(found[seen.present]).all():
            raise CheckpointError(
                "the agent's network gives scores that are no numbers; its weights are broken"
            )
        scores = np.zeros(masks.shape, np.float32)
        scores[:, : found.shape[1]] = np.where(seen.present, np.clip(found, -1.0, 1.0), 0.0)
        return scores
