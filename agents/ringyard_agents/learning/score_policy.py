"""What a score network sees, and a network's scores as a policy."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.errors import CheckpointError
from ringyard_agents.learning.hardware import on
from ringyard_agents.learning.score_networks import ScoreNetwork

__all__ = ["ScorePolicy", "Seen", "as_action", "look", "scores_of"]

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
    """[clusters, slots, 1 + GPU types scored] a network's scores."""
    device = next(network.parameters()).device
    jobs, present, cluster = (on(device, part) for part in seen)
    scores: torch.Tensor = network(jobs, present.float(), cluster)
    return scores


def as_action(scores: NDArray[np.float32], seen: Seen, num_jobs: int) -> NDArray[np.float32]:
    """[clusters, scores] of the action space, 0 where there is no job.

    Args:
        scores: [clusters, slots, 1 + GPU types scored]; what is beyond -1 and 1 is cut off.
        seen: what they are of.
        num_jobs: N of `ringyard.mdp.actions.Scores`.
    """
    clusters, slots, kinds = scores.shape
    action = np.zeros((clusters, kinds, num_jobs), np.float32)
    shown = np.where(seen.present[..., None], np.clip(scores, -1.0, 1.0), 0.0)
    action[:, :, :slots] = shown.transpose(0, 2, 1)
    return action.reshape(clusters, -1)


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
        """[clusters, scores] from -1 to 1, 0 where there is no job.

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
        return as_action(found, seen, masks.shape[1])
