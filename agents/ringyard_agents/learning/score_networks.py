"""Networks that score jobs: any number of them, on any cluster; all scores are 0 at first."""

from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from ringyard.checks import checked

__all__ = ["ScoreNetwork"]


@checked("agent.network")
class ScoreNetwork(nn.Module):
    """Scores of each job, by what is seen of it, of its cluster and of the other jobs.

    One says how much it matters; the mean of these is 0: only their differences matter to an allocator, and
    scores that drift together end where they are cut off. The others, if any, say how it likes each GPU type.
    No path through it depends on values: `torch.func.vmap` may run it with other weights for every cluster.

    Args:
        job_features: F, numbers seen of a job.
        cluster_features: C, numbers seen of the cluster.
        width: of the two hidden layers.
        context: what a job knows of the others: nothing ("none"), the "mean" of their first hidden layers, or
            that weighted by one head of "attention" (Vaswani et al. 2017). In whatever order they stand.
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
        self.others = {"none": _Nothing, "mean": _Mean, "attention": _Attention}[context](width)
        self.type_scores = type_scores
        last = nn.Linear(width, 1 + type_scores, bias=False)
        nn.init.zeros_(last.weight)
        both = width if context == "none" else 2 * width
        self.score = nn.Sequential(nn.Linear(both, width), nn.Tanh(), last)

    def forward(self, jobs: Tensor, present: Tensor, cluster: Tensor) -> Tensor:
        """[..., jobs, 1 + type_scores] scores; those of absent jobs mean nothing.

        Args:
            jobs: [..., jobs, F].
            present: [..., jobs] 1 where there is a job, else 0.
            cluster: [..., C].
        """
        around = cluster.unsqueeze(-2).expand(*jobs.shape[:-1], cluster.shape[-1])
        hidden = self.job(torch.cat((jobs, around), -1))
        scores = self.score(torch.cat((hidden, self.others(hidden, present)), -1))
        matters, kinds = scores[..., :1], scores[..., 1:]
        mean = (matters * present.unsqueeze(-1)).sum(-2, keepdim=True) / _count(present).unsqueeze(-1)
        return torch.cat((matters - mean, kinds), -1)


def _count(present: Tensor) -> Tensor:
    """[..., 1] jobs, at least 1."""
    return present.sum(-1, keepdim=True).clamp(min=1.0)


class _Nothing(nn.Module):
    """[..., jobs, 0]."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        return hidden[..., :0]


class _Mean(nn.Module):
    """[..., jobs, width] the mean of the present jobs, the same for each."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        total = (hidden * present.unsqueeze(-1)).sum(-2)
        return (total / _count(present)).unsqueeze(-2).expand(hidden.shape)


class _Attention(nn.Module):
    """[..., jobs, width] what each job makes of the present ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.asks, self.offers, self.says = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        fits = self.asks(hidden) @ self.offers(hidden).transpose(-1, -2) / hidden.shape[-1] ** 0.5
        weights = torch.softmax(fits - 1e9 * (1.0 - present.unsqueeze(-2)), -1)
        attended: Tensor = weights @ self.says(hidden)
        return attended
