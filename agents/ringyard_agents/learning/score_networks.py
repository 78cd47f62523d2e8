"""Networks that score any number of jobs on any cluster, and the policy that plays their scores."""

from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ringyard.checks import checked
from ringyard.errors import CheckpointError
from ringyard_agents.learning.process_group import on


@checked("agent.network")
class ScoreNetwork(nn.Module):
    """Scores each job by its features, those of the cluster and those of the other jobs.

    The first score is the job's importance. Its mean over jobs is 0: only differences matter to an allocator,
    and a common drift would end in clipping. Further scores rate GPU types. Control flow does not depend on
    values, so that `torch.func.vmap` can run it with other weights for every cluster.

    Args:
        job_features: F, features of a job.
        cluster_features: C, features of the cluster.
        width: of the two hidden layers.
        context: what a job's scores see of the other jobs: "none", the "mean" of their first hidden layers,
            or their mean weighted by one head of "attention" (Vaswani et al. 2017). Order does not matter.
        type_scores: GPU types that each job gets a score for, see `ringyard.mdp.actions.Scores`.
    """

    def __init__(
        self,
        job_features: int,
        cluster_features: int,
        width: Annotated[int, "[1, 4096]"] = 32,
        context: Literal["none", "mean", "attention"] = "none",
        *,
        type_scores: Annotated[int, "[0, 64]"] = 0,
    ) -> None:
        super().__init__()
        self.job_features, self.cluster_features = job_features, cluster_features
        self.job = nn.Sequential(nn.Linear(job_features + cluster_features, width), nn.Tanh())
        self.others = None if context == "none" else _Mean() if context == "mean" else _Attention(width)
        self.type_scores = type_scores
        last = nn.Linear(width, 1 + type_scores, bias=False)
        nn.init.zeros_(last.weight)
        both = width if context == "none" else 2 * width
        self.score = nn.Sequential(nn.Linear(both, width), nn.Tanh(), last)

    def forward(self, jobs: Tensor, present: Tensor, cluster: Tensor) -> Tensor:
        """[..., jobs, 1 + type_scores] scores, arbitrary in slots without a job.

        Args:
            jobs: [..., jobs, F].
            present: [..., jobs] 1 where there is a job, else 0.
            cluster: [..., C].
        """
        around = cluster.unsqueeze(-2).expand(*jobs.shape[:-1], cluster.shape[-1])
        hidden = self.job(torch.cat((jobs, around), -1))
        if self.others is not None:
            hidden = torch.cat((hidden, self.others(hidden, present)), -1)
        scores = self.score(hidden)
        matters, kinds = scores[..., :1], scores[..., 1:]
        mean = (matters * present.unsqueeze(-1)).sum(-2, keepdim=True) / _count(present).unsqueeze(-1)
        return torch.cat((matters - mean, kinds), -1)


def _count(present: Tensor) -> Tensor:
    """[..., 1] jobs, at least 1."""
    return present.sum(-1, keepdim=True).clamp(min=1.0)


class _Mean(nn.Module):
    """[..., jobs, width] the mean of the present jobs, the same for each."""

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        total = (hidden * present.unsqueeze(-1)).sum(-2)
        return (total / _count(present)).unsqueeze(-2).expand(hidden.shape)


class _Attention(nn.Module):
    """[..., jobs, width] mean of the present jobs, weighted by attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.asks, self.offers, self.says = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        fits = self.asks(hidden) @ self.offers(hidden).transpose(-1, -2) / hidden.shape[-1] ** 0.5
        weights = torch.softmax(fits - 1e9 * (1.0 - present.unsqueeze(-2)), -1)
        attended: Tensor = weights @ self.says(hidden)
        return attended


Floats = NDArray[np.float32]
Masks = NDArray[np.bool_]
Ids = NDArray[np.int64]


class PolicyInput(NamedTuple):
    """Features of some clusters and their jobs; the fullest cluster fills all slots.

    Attributes:
        jobs: [clusters, slots, F].
        present: [clusters, slots] True where there is a job: the first slots.
        cluster: [clusters, C].
    """

    jobs: Floats
    present: Masks
    cluster: Floats


def filled(rows: Floats, counts: Ids) -> tuple[NDArray[Any], Masks]:
    """([decisions, slots, ...] rows in the first slots, 0 behind them; [decisions, slots] where they are).

    Args:
        rows: [samples, ...] decision after decision.
        counts: [decisions] rows of each.
    """
    present = np.arange(counts.max()) < counts[:, None]
    slots = np.zeros((*present.shape, *rows.shape[1:]), np.float32)
    slots[present] = rows
    return slots, present


def look(observations: Any, masks: Masks) -> PolicyInput:
    """Features in observations with the blocks `jobs` and `cluster`.

    Args:
        observations: {block: [clusters, ...]}.
        masks: [clusters, jobs shown] True where there is a job.

    Raises:
        CheckpointError: the blocks are missing.
    """
    if not isinstance(observations, dict) or not {"jobs", "cluster"} <= set(observations):
        raise CheckpointError(
            "a score network reads the blocks jobs and cluster of an observation; play it with"
            " action=scores observation=live_jobs, or train another agent"
        )
    num_clusters, num_jobs = masks.shape
    slots = int(masks.sum(axis=1).max(initial=1))
    jobs = observations["jobs"].reshape(num_clusters, num_jobs, -1)[:, :slots]
    return PolicyInput(jobs, masks[:, :slots], observations["cluster"])


def scores_of(network: ScoreNetwork, seen: PolicyInput) -> torch.Tensor:
    """[clusters, slots, 1 + GPU types scored] scores of a network, without clipping."""
    device = next(network.parameters()).device
    jobs, present, cluster = (on(device, part) for part in seen)
    scores: torch.Tensor = network(jobs, present.float(), cluster)
    return scores


@torch.no_grad()
def play(network: ScoreNetwork, seen: PolicyInput) -> Floats:
    """[clusters, slots, 1 + GPU types scored] scores of a network as an array."""
    scores: Floats = scores_of(network, seen).cpu().numpy()
    return scores


def as_action(scores: Floats, seen: PolicyInput, num_jobs: int) -> Floats:
    """[clusters, scores] of the action space, 0 where there is no job.

    Args:
        scores: [clusters, slots, 1 + GPU types scored], which are clipped to [-1, 1].
        seen: features of the scored jobs.
        num_jobs: N of `ringyard.mdp.actions.Scores`.
    """
    clusters, slots, kinds = scores.shape
    action = np.zeros((clusters, kinds, num_jobs), np.float32)
    shown = np.where(seen.present[..., None], np.clip(scores, -1.0, 1.0), 0.0)
    action[:, :, :slots] = shown.transpose(0, 2, 1)
    return action.reshape(clusters, -1)


class ScorePolicy:
    """Plays a network's scores without noise, on any cluster and for any number of jobs.

    Args:
        network: scores jobs.
    """

    flat = False

    def __init__(self, network: ScoreNetwork) -> None:
        torch.set_num_threads(1)
        self.network = network

    def act(self, observations: Any, masks: Masks) -> Floats:
        """[clusters, scores] from -1 to 1, 0 where there is no job.

        Raises:
            CheckpointError: the observation has other blocks or features than in training, or scores are
                not finite.
        """
        seen, network = look(observations, masks), self.network
        got, expected = seen.jobs.shape[2], network.job_features
        if (got, seen.cluster.shape[1]) != (expected, network.cluster_features):
            raise CheckpointError(
                f"the agent reads {expected} numbers of a job and {network.cluster_features} of the cluster,"
                f" got {got} and {seen.cluster.shape[1]}; play it with the observation of its training"
            )
        found = play(network, seen)
        if not np.isfinite(found[seen.present]).all():
            raise CheckpointError(
                "the agent's network gives scores that are no numbers; its weights are broken"
            )
        return as_action(found, seen, masks.shape[1])
