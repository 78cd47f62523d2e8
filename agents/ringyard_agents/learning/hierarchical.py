"""A hierarchical policy: first a group of jobs, by the GPUs that they ask for, then a job and its place."""

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ringyard.mdp.observations.queue import PlacementFeatures, WaitingFeatures
from ringyard_agents.learning.policies import PointerNetwork, PointerPolicy, items_of

#: groups of waiting jobs that ask for 1, 2, 3 to 5, 6 to 11, ... GPUs (powers of two, rounded). The last is
#: open, and the first has the CPU-only jobs.
_SIZES = 8
#: further groups: changes of running jobs, waiting, and what takes no GPUs now (rejections)
_CHANGES, _WAIT, _OTHER, _GROUPS = range(_SIZES, _SIZES + 4)

_GPUS = list(WaitingFeatures.__annotations__).index("gpus")
_FITS = list(PlacementFeatures.__annotations__).index("fits")


class HierarchicalNetwork(PointerNetwork):
    """A `PointerNetwork` that chooses a group of actions first, and then an action of the group.

    An action of group g has the probability P(g) P(action | g). P(g) is a softmax over groups, of a score
    that reads the mean of the group's jobs and the state of the cluster. P(action | g) is a softmax of the
    logits of the pointer network over the group's actions that find GPUs. Actions that are invalid for
    another reason (a job that changed at this moment) are masked afterwards.

    Source: decisions at several levels, from coarse to fine, as in HARL (Zhang, He and Zhang 2022, arXiv
    2211.11172), which schedules tensor programs. The groups of a cluster's jobs are this project's.

    Args:
        space: observation, see `PointerNetwork`.
        num_actions: size of the action space.
        width: hidden units.
    """

    def __init__(self, space: spaces.Dict, num_actions: int, width: int) -> None:
        super().__init__(space, num_actions, width)
        self.member = nn.Sequential(nn.Linear(self.job_features, width), nn.ReLU())
        self.group = nn.Linear(2 * width, 1)
        self.group_bias = nn.Parameter(torch.zeros(_GROUPS))
        nn.init.orthogonal_(self.group.weight, 0.01)

    def forward(self, blocks: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return ([B, actions] logarithms of P(g) P(action | g) up to a constant, [B, width] context)."""
        logits, context = super().forward(blocks)
        mask, rules = blocks["waiting_mask"], len(self.rule)
        waiting = items_of(blocks, "waiting", mask.shape[1])
        gpus = waiting[..., _GPUS]  # log2(GPUs) / 3 - 0.5
        sizes = (3.0 * (gpus + 0.5)).round().long().clamp(0, _SIZES - 1)
        fits = items_of(blocks, "placements", mask.shape[1] * rules)[..., _FITS]
        running = blocks["running_mask"].repeat_interleave(self.adjustments, 1)
        changes = sizes.new_full(running.shape, _CHANGES)
        wait = sizes.new_full((len(sizes), 1), _WAIT)
        groups = torch.cat((sizes.repeat_interleave(rules, 1), changes, wait), 1)
        present = torch.cat((fits, running, torch.ones_like(mask[:, :1])), 1)
        groups = torch.where(present > 0, groups, _OTHER)

        empty = logits.new_zeros(len(logits), _GROUPS)
        largest = empty.scatter_reduce(1, groups, logits.detach(), "amax", include_self=False)
        weights = torch.exp(logits - largest.gather(1, groups))
        totals = empty.scatter_add(1, groups, weights).clamp(min=1.0)  # 0 in groups without actions
        jobs = self.member(waiting) * mask[..., None]
        one_hot = nn.functional.one_hot(sizes, _GROUPS).to(jobs.dtype) * mask[..., None]
        means = one_hot.transpose(1, 2) @ jobs / one_hot.sum(1).clamp(min=1.0)[..., None]
        pairs = torch.cat((means, context[:, None].expand(-1, _GROUPS, -1)), 2)
        scores = self.group(pairs).squeeze(-1) + self.group_bias - largest - totals.log()
        return logits + scores.gather(1, groups), context


class HierarchicalPolicy(PointerPolicy):
    """A policy around `HierarchicalNetwork`. Without exploration it takes the most likely action."""

    network_class: Any = HierarchicalNetwork
