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
    """Advantages of decisions relative to the other episodes of their group.

    Returns differ more between workloads than between policies; a group's episodes share a workload.
    `"episode"` gives every decision the return of its episode, normalised within the group (GRPO, Shao et al.
    2024). `"time_aligned"` gives a decision at time t its reward to go minus the group's mean reward to go at
    t (the input-driven baseline of Mao et al. 2019). Episodes last until all jobs have ended.

    Args:
        rewards: [steps, envs] after each decision.
        times: [steps, envs] simulated seconds at each decision.
        valid: [steps, envs] True until the episode's end.
        ends: [envs] simulated seconds at which each episode was over.
        group_size: neighbouring columns that share a workload.
        credit: "episode" or "time_aligned".

    Returns:
        [steps, envs] advantages, of unit spread within each group; 0 where not valid.
    """
    to_go = np.cumsum((rewards * valid)[::-1].astype(np.float64), axis=0)[::-1]
    advantages = np.zeros_like(to_go)
    for first in range(0, rewards.shape[1], group_size):
        group = slice(first, first + group_size)
        own, at, known = to_go[:, group], times[:, group], valid[:, group]
        if credit == "episode":
            compared = np.broadcast_to(own[0] - own[0].mean(), own.shape)
            spread = compared[0].std()
        else:
            lines = [
                np.interp(at, np.append(at[mask, b], ends[first + b]), np.append(own[mask, b], 0.0))
                for b, mask in enumerate(known.T)  # linear between an episode's decisions
            ]
            compared = own - np.mean(lines, axis=0)
            spread = compared[known].std()
        rounding = 1e-6 * np.abs(own).max()  # of float32: what is less is no difference
        advantages[:, group] = compared / (spread + rounding + 1e-12)
    return (advantages * valid).astype(np.float32)


def add_gradients(
    network: nn.Module, loss_of: Callable[[PART], tuple[Tensor, Any]], parts: Sequence[PART]
) -> NDArray[np.float64]:
    """Add the gradients of the losses of some parts to a network's gradient, in their order.

    Threads share the work; the sums are the same bits for any number of threads.

    Args:
        network: its parameters learn.
        loss_of: returns (loss, measurements) of a part. It runs in threads and must not change shared state.
        parts: of a minibatch, at least one.

    Returns:
        Sums of the measurements over parts.
    """
    parameters = [one for one in network.parameters() if one.requires_grad]

    def some(which: NDArray[np.int64]) -> list[tuple[tuple[Tensor | None, ...], Any]]:
        torch.set_num_threads(1)  # of this thread
        losses = (loss_of(parts[i]) for i in which.tolist())
        return [(torch.autograd.grad(loss, parameters, allow_unused=True), found) for loss, found in losses]

    threads = get_num_threads() if parameters[0].device.type == "cpu" else 1
    done = [one for part in run_in_parts(some, np.arange(len(parts)), threads, 1) for one in part]
    for gradients, _ in done:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return np.cumsum([found for _, found in done], axis=0)[-1]  # in their order, too


def clipped_gain(log_ratio: Tensor, advantages: Tensor, clip_range: float) -> tuple[Tensor, float, float]:
    """PPO's clipped objective (Schulman et al. 2017) of some samples.

    Args:
        log_ratio: [samples] logarithm of the new probability over the old one.
        advantages: [samples].
        clip_range: of the ratio.

    Returns:
        (objective, estimated Kullback-Leibler divergence of the new policy from the old, number of clipped
        ratios), each a sum over samples.
    """
    ratio = torch.exp(log_ratio)
    clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    gain = torch.min(advantages * ratio, advantages * clipped).sum()
    with torch.no_grad():
        moved, outside = (ratio - 1 - log_ratio).sum(), (torch.abs(ratio - 1) > clip_range).sum()
    return gain, moved.item(), outside.item()


def descend(network: nn.Module, optimizer: Optimizer, peers: ProcessGroup, max_grad_norm: float) -> None:
    """Take an optimiser step down the sum of all processes' gradients.

    Args:
        network: its parameters learn, and have this process's gradient.
        optimizer: of these parameters.
        peers: processes with the other parts of the gradient.
        max_grad_norm: maximum norm of the gradient, which is scaled down to it.
    """
    parameters = list(network.parameters())
    peers.add_up(parameters)
    torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    optimizer.step()


class RoundOrder(NamedTuple):
    """The decisions of all processes, in an order that does not depend on the number of processes.

    Attributes:
        counts: [decisions] jobs scored in each.
        own: [decisions] index among this process's decisions, or -1 for those of other processes.
    """

    counts: NDArray[np.int64]
    own: NDArray[np.int64]

    def among_own(self, decisions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices, among this process's decisions, of those of some decisions that it made."""
        here = self.own[decisions]
        return here[here >= 0]


def round_order(
    peers: ProcessGroup, valid: Sequence[NDArray[np.bool_]], counts: NDArray[np.int64] | None = None
) -> RoundOrder:
    """Order decisions by environment, step and cluster.

    Args:
        peers: all processes call this.
        valid: one [steps, clusters] of each environment, True where this process made a decision.
        counts: [decisions] jobs scored in each, in that order; None if each is one action.
    """
    total = sum(int(one.sum()) for one in valid)
    counts = np.ones(total, np.int64) if counts is None else counts
    if peers.size == 1:
        return RoundOrder(counts, np.arange(total))
    places = [
        np.column_stack((np.full(len(step), world), step, cluster + peers.rank * one.shape[1]))
        for world, one in enumerate(valid)
        for step, cluster in [np.nonzero(one)]
    ]
    rows = np.column_stack((np.concatenate(places), counts, np.full(total, peers.rank)))
    every = peers.gathered(rows)
    own = np.full(len(every), -1)
    own[every[:, 4] == peers.rank] = np.arange(total)
    order = np.lexsort((every[:, 2], every[:, 1], every[:, 0]))
    return RoundOrder(every[order, 3], own[order])
