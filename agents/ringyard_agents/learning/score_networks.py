"""Networks that score any number of jobs on any cluster, and the policy that uses their scores."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ringyard.checks import checked
from ringyard.errors import CheckpointError
from ringyard_agents.learning.process_group import to_device


class _Linear(nn.Linear):
    """A linear layer, which `torch.func.functional_call` may give other weights for each row [clusters, ...].

    `torch.func.vmap` has the same bits, and takes twice as long.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of `inputs` [..., rows, inputs]."""
        if self.weight.ndim == 2:
            return super().forward(inputs)
        outputs = inputs @ self.weight.mT
        return outputs if self.bias is None else outputs + self.bias.unsqueeze(-2)


@checked("agent.network")
class ScoreNetwork(nn.Module):
    """Score each job by its features, those of the cluster and those of the other jobs.

    The first score is the priority of the job for the allocator. Its mean over jobs is 0, because only
    differences matter to an allocator and a common drift would end in clipping. Further scores rate GPU
    types. `torch.func.functional_call` evaluates it with other weights in each cluster, all of them with a
    leading axis. The initial scores are 0.

    Args:
        job_features: F, number of features of a job.
        cluster_features: C, number of features of the cluster.
        width: units of each of the two hidden layers.
        context: what the scores of a job depend on beside its own features: "none" of the other jobs, the
            "mean" of their first hidden layers, or their mean weighted by one head of "attention" (Vaswani et
            al. 2017, section 3.2.1). The order of jobs does not matter.
        type_scores: number of GPU types for which each job gets a score, see `ringyard.mdp.actions.Scores`.
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
        self.job = nn.Sequential(_Linear(job_features + cluster_features, width), nn.Tanh())
        self.others = None if context == "none" else _Mean() if context == "mean" else _Attention(width)
        self.type_scores = type_scores
        last = _Linear(width, 1 + type_scores, bias=False)
        nn.init.zeros_(last.weight)
        inputs = width if context == "none" else 2 * width
        self.score = nn.Sequential(_Linear(inputs, width), nn.Tanh(), last)

    def forward(self, jobs: Tensor, present: Tensor, cluster: Tensor) -> Tensor:
        """Return [..., jobs, 1 + type_scores] scores, arbitrary in slots without a job.

        Args:
            jobs: [..., jobs, F] features of the jobs.
            present: [..., jobs] 1 where there is a job, else 0.
            cluster: [..., C] features of the cluster.
        """
        repeated = cluster.unsqueeze(-2).expand(*jobs.shape[:-1], cluster.shape[-1])
        hidden = self.job(torch.cat((jobs, repeated), -1))
        if self.others is not None:
            hidden = torch.cat((hidden, self.others(hidden, present)), -1)
        scores = self.score(hidden)
        priority, types = scores[..., :1], scores[..., 1:]
        mean = (priority * present.unsqueeze(-1)).sum(-2, keepdim=True) / _count(present).unsqueeze(-1)
        return torch.cat((priority - mean, types), -1)


def _count(present: Tensor) -> Tensor:
    """Return [..., 1] numbers of jobs, at least 1."""
    return present.sum(-1, keepdim=True).clamp(min=1.0)


class _Mean(nn.Module):
    """Return [..., jobs, width], the mean over the present jobs, the same for each job."""

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        total = (hidden * present.unsqueeze(-1)).sum(-2)
        return (total / _count(present)).unsqueeze(-2).expand(hidden.shape)


class _Attention(nn.Module):
    """Return [..., jobs, width], the mean over the present jobs, weighted by scaled dot-product attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # queries, keys and values; agents' files name the weights so
        self.asks, self.offers, self.says = (_Linear(width, width, bias=False) for _ in range(3))

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        logits = self.asks(hidden) @ self.offers(hidden).transpose(-1, -2) / hidden.shape[-1] ** 0.5
        weights = torch.softmax(logits - 1e9 * (1.0 - present.unsqueeze(-2)), -1)
        return weights @ self.says(hidden)


Floats = NDArray[np.float32]
Masks = NDArray[np.bool_]
Ids = NDArray[np.int64]


class PolicyInput(NamedTuple):
    """Input of a `ScoreNetwork`: features of some clusters and of their jobs."""

    #: [clusters, slots, F] features of the jobs, which fill the first slots. The number of slots is the
    #: largest number of jobs in a cluster.
    jobs: Floats
    present: Masks  #: [clusters, slots] True where there is a job
    cluster: Floats  #: [clusters, C] features of the cluster


def pad_decisions(rows: Floats, counts: Ids) -> tuple[NDArray[Any], Masks]:
    """Arrange [samples, ...] rows by decision, padded with 0 to the largest of the `counts` [decisions].

    Returns ([decisions, slots, ...] rows in the first slots, [decisions, slots] True where there is a row).
    """
    present = np.arange(counts.max()) < counts[:, None]
    slots = np.zeros((*present.shape, *rows.shape[1:]), np.float32)
    slots[present] = rows
    return slots, present


def read_observations(observations: Any, masks: Masks) -> PolicyInput:
    """Make the input of a network from {block: [clusters, ...]} with the blocks `jobs` and `cluster`."""
    if not isinstance(observations, dict) or not {"jobs", "cluster"} <= set(observations):
        raise CheckpointError(
            "a score network reads the blocks jobs and cluster of an observation; use it with"
            " action=scores observation=live_jobs, or train another agent"
        )
    num_clusters, num_jobs = masks.shape
    slots = int(masks.sum(axis=1).max(initial=1))
    jobs = observations["jobs"].reshape(num_clusters, num_jobs, -1)[:, :slots]
    return PolicyInput(jobs, masks[:, :slots], observations["cluster"])


def score_tensor(network: ScoreNetwork, inputs: PolicyInput) -> torch.Tensor:
    """Return [clusters, slots, 1 + scored GPU types] scores of a `network` for `inputs`, with gradients."""
    device = next(network.parameters()).device
    jobs, present, cluster = (to_device(device, part) for part in inputs)
    return network(jobs, present.float(), cluster)


def scores_to_action(scores: Floats, inputs: PolicyInput, num_jobs: int) -> Floats:
    """Return [clusters, (1 + T) N] actions of `ringyard.mdp.actions.Scores`, 0 where there is no job.

    `scores` [clusters, slots, 1 + T] are clipped to [-1, 1].
    """
    clusters, slots, scores_per_job = scores.shape
    action = np.zeros((clusters, scores_per_job, num_jobs), np.float32)
    clipped = np.where(inputs.present[..., None], np.clip(scores, -1.0, 1.0), 0.0)
    action[:, :, :slots] = clipped.transpose(0, 2, 1)
    return action.reshape(clusters, -1)


@dataclass(eq=False)
class ScorePolicy:
    """Policy that uses a network's scores without noise, on any cluster and for any number of jobs."""

    network: ScoreNetwork  #: scores jobs
    flat = False

    def __post_init__(self) -> None:
        torch.set_num_threads(1)

    @torch.no_grad()
    def act(self, observations: Any, masks: Masks) -> Floats:
        """Return [clusters, (1 + T) N] scores from -1 to 1, 0 where there is no job.

        Args:
            observations: {block: [clusters, length]} with the blocks `jobs` and `cluster`.
            masks: [clusters, N] True where there is a job.

        Raises:
            CheckpointError: the observation has other blocks or features than in training, or a score is not
                finite.
        """
        inputs, network = read_observations(observations, masks), self.network
        got, expected = inputs.jobs.shape[2], network.job_features
        if (got, inputs.cluster.shape[1]) != (expected, network.cluster_features):
            raise CheckpointError(
                f"the agent reads {expected} features of a job and {network.cluster_features} of the cluster,"
                f" got {got} and {inputs.cluster.shape[1]}; use it with the observation of its training"
            )
        scores = score_tensor(network, inputs).cpu().numpy()
        if not np.isfinite(scores[inputs.present]).all():
            raise CheckpointError("the agent's network returns scores that are infinite or not a number")
        return scores_to_action(scores, inputs, masks.shape[1])
