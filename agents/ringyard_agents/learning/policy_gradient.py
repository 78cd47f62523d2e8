"""Shared parts of policy-gradient learners: advantages within groups, PPO's objective, gradient steps."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from ringyard.threads import get_num_threads, run_in_parts
from ringyard_agents.learning.process_group import ProcessGroup

Credit = Literal["episode", "time_aligned"]

PART = TypeVar("PART")


def group_advantages(
    rewards: NDArray[np.float32],
    times: NDArray[np.float64],
    valid: NDArray[np.bool_],
    ends: NDArray[np.float64],
    group_size: int,
    credit: Credit,
) -> NDArray[np.float32]:
    """Return the advantages of decisions relative to the other episodes of their group.

    Returns differ more between workloads than between policies, so the episodes of a group share a workload.

    * "episode": a decision in episode i of group G has the advantage (R_i - mean R_G) / std R_G, where R are
      undiscounted returns (GRPO with outcome supervision: Shao et al. 2024, section 4.1.2).
    * "time_aligned": a decision at time t has the advantage (Q_i(t) - mean_G Q(t)) / std, where Q(t) is the
      reward to go from t on, linear between the decisions of an episode, and std is over all decisions of the
      group. The mean is an input-dependent baseline (Mao et al. 2019).

    Episodes must last until all jobs have ended. Arrays are [steps, envs], `ends` [envs] as in
    `EpisodeBatch`. `group_size` neighbouring columns share a workload. Advantages have standard deviation 1
    within each group, and are 0 where not valid.
    """
    to_go = np.cumsum((rewards * valid)[::-1].astype(np.float64), axis=0)[::-1]
    advantages = np.zeros_like(to_go)
    for first in range(0, rewards.shape[1], group_size):
        group = slice(first, first + group_size)
        own, at, in_episode = to_go[:, group], times[:, group], valid[:, group]
        if credit == "episode":
            centered = np.broadcast_to(own[0] - own[0].mean(), own.shape)
            std = centered[0].std()
        else:
            interpolated = [
                np.interp(at, np.append(at[mask, b], ends[first + b]), np.append(own[mask, b], 0.0))
                for b, mask in enumerate(in_episode.T)
            ]
            centered = own - np.mean(interpolated, axis=0)
            std = centered[in_episode].std()
        rounding = 1e-6 * np.abs(own).max()  # rewards are float32: smaller differences are rounding errors
        advantages[:, group] = centered / (std + rounding + 1e-12)
    return (advantages * valid).astype(np.float32)


def add_gradients(
    network: nn.Module, loss_of: Callable[[PART], tuple[Tensor, Any]], parts: Sequence[PART]
) -> NDArray[np.float64]:
    """Add the gradients of the losses of several parts of a minibatch to the gradient of a network.

    `loss_of` a part returns (loss, measurements), in threads. Sums have the same bits for any number of
    these.
    """
    parameters = [one for one in network.parameters() if one.requires_grad]

    def gradients_of(indices: NDArray[np.int64]) -> list[tuple[tuple[Tensor | None, ...], Any]]:
        torch.set_num_threads(1)  # applies to the current thread
        losses = (loss_of(parts[i]) for i in indices.tolist())
        return [(torch.autograd.grad(loss, parameters, allow_unused=True), found) for loss, found in losses]

    threads = get_num_threads() if parameters[0].device.type == "cpu" else 1
    results = [one for some in run_in_parts(gradients_of, np.arange(len(parts)), threads, 1) for one in some]
    for gradients, _ in results:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return np.cumsum([measured for _, measured in results], axis=0)[-1]  # a sum in the order of the parts


def clipped_objective(
    log_ratio: Tensor, advantages: Tensor, clip_range: float
) -> tuple[Tensor, float, float]:
    """Return PPO's clipped surrogate objective, summed over samples (Schulman et al. 2017, equation 7).

    `log_ratio` [samples] is of the new probability over the old one, `clip_range` epsilon. Also returns sums
    of the estimated Kullback-Leibler divergence of the new policy from the old, and of clipped ratios.
    """
    ratio = torch.exp(log_ratio)
    clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    objective = torch.min(advantages * ratio, advantages * clipped).sum()
    with torch.no_grad():
        divergence, outside = (ratio - 1 - log_ratio).sum(), (torch.abs(ratio - 1) > clip_range).sum()
    return objective, divergence.item(), outside.item()


def clip_and_step(
    network: nn.Module, optimizer: Optimizer, process_group: ProcessGroup, max_grad_norm: float
) -> None:
    """Sum the gradients of all processes, scale them down to `max_grad_norm` and take an optimizer step."""
    parameters = list(network.parameters())
    process_group.sum_gradients(parameters)
    torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    optimizer.step()


class DecisionOrder(NamedTuple):
    """The decisions of all processes, in an order that does not depend on the number of processes."""

    counts: NDArray[np.int64]  #: [decisions] number of jobs scored in each
    #: [decisions] index among the decisions of this process, or -1 for other processes
    local: NDArray[np.int64]

    def to_local_indices(self, decisions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert indices of decisions to indices among those of this process, without those of others."""
        indices = self.local[decisions]
        return indices[indices >= 0]


def order_decisions(
    process_group: ProcessGroup, valid: Sequence[NDArray[np.bool_]], counts: NDArray[np.int64] | None = None
) -> DecisionOrder:
    """Order the decisions of all processes by environment, step and cluster. All processes must call it.

    `valid` [steps, clusters] of each environment says where this process decided, `counts` on how many jobs.
    """
    total = sum(int(one.sum()) for one in valid)
    counts = np.ones(total, np.int64) if counts is None else counts
    if process_group.size == 1:
        return DecisionOrder(counts, np.arange(total))
    places = [
        np.column_stack((np.full(len(step), environment), step, cluster + process_group.rank * one.shape[1]))
        for environment, one in enumerate(valid)
        for step, cluster in [np.nonzero(one)]
    ]
    rows = np.column_stack((np.concatenate(places), counts, np.full(total, process_group.rank)))
    gathered = process_group.gather(rows)
    local = np.full(len(gathered), -1)
    local[gathered[:, 4] == process_group.rank] = np.arange(total)
    order = np.lexsort((gathered[:, 2], gathered[:, 1], gathered[:, 0]))
    return DecisionOrder(gathered[order, 3], local[order])
