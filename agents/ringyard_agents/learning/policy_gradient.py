"""Shared parts of policy-gradient learners: advantages within groups, PPO's objective, gradient steps."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from ringyard.threads import get_num_threads, in_parts
from ringyard_agents.learning.process_group import ProcessGroup

Credit = Literal["episode", "time_aligned"]

FOUND = TypeVar("FOUND")


def group_advantages(
    rewards: NDArray[np.float32],
    times: NDArray[np.float64],
    valid: NDArray[np.bool_],
    ends: NDArray[np.float64],
    group_size: int,
    credit: Credit,
) -> NDArray[np.float32]:
    """Advantages of decisions relative to the other episodes of their group.

    Run times are heavy-tailed: returns differ more between workloads than between policies, and drown a
    critic. Several episodes of each workload cancel that. `"episode"` gives every decision the return of its
    episode, normalised within the group (as GRPO does, Shao et al. 2024). `"time_aligned"` gives a decision
    at simulated time t its reward to go minus the group's mean reward to go at t (the input-driven baseline
    of Mao et al. 2019), so that a decision is not blamed for what came before it. An episode goes on after
    its last decision, until its last jobs have ended.

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


def add_gradients(network: nn.Module, losses: Sequence[Callable[[], tuple[Tensor, FOUND]]]) -> list[FOUND]:
    """Add the gradients of several losses, in their order, to a network's; what each has found besides.

    Several cores share the work. The sums are the same bits for any number of threads.

    Args:
        network: whose parameters learn.
        losses: each gives (its loss, what it has found); on a processor they are computed in threads, and
            may not change anything that they share.
    """
    parameters = [one for one in network.parameters() if one.requires_grad]

    def some(which: NDArray[np.int64]) -> list[tuple[tuple[Tensor | None, ...], FOUND]]:
        torch.set_num_threads(1)  # of this thread
        done: list[tuple[tuple[Tensor | None, ...], FOUND]] = []
        for i in which.tolist():
            loss, found = losses[i]()
            done.append((torch.autograd.grad(loss, parameters, allow_unused=True), found))
        return done

    threads = get_num_threads() if parameters[0].device.type == "cpu" else 1
    done = [one for part in in_parts(some, np.arange(len(losses)), threads, 1) for one in part]
    for gradients, _ in done:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return [found for _, found in done]


def clipped_gain(log_ratio: Tensor, advantages: Tensor, clip_range: float) -> tuple[Tensor, float, float]:
    """PPO's clipped objective (Schulman et al. 2017) of some samples.

    Args:
        log_ratio: [samples] logarithms of how much more probable each has become.
        advantages: [samples].
        clip_range: of the ratio.

    Returns:
        (the sum over samples, the sum of an estimate of the Kullback-Leibler divergence between the policy
        then and now, how many ratios are clipped).
    """
    ratio = torch.exp(log_ratio)
    clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    gain = torch.min(advantages * ratio, advantages * clipped).sum()
    with torch.no_grad():
        moved, outside = (ratio - 1 - log_ratio).sum(), (torch.abs(ratio - 1) > clip_range).sum()
    return gain, moved.item(), outside.item()


def descend(network: nn.Module, optimizer: Optimizer, peers: ProcessGroup, max_grad_norm: float) -> None:
    """Take a step down the gradient that all processes have added to a network.

    Args:
        network: whose parameters learn.
        optimizer: of these.
        peers: processes, each with a part of the gradient.
        max_grad_norm: longer gradients are shortened.
    """
    parameters = list(network.parameters())
    peers.add_up(parameters)
    torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    optimizer.step()


class RoundOrder(NamedTuple):
    """The decisions of all processes: minibatches of them are the same for any number of processes.

    Attributes:
        counts: [decisions] jobs scored in each.
        own: [decisions] where it stands among this process's own; -1: another process made it.
    """

    counts: NDArray[np.int64]
    own: NDArray[np.int64]

    def among_own(self, decisions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of some decisions that this process made, as it counts them."""
        here = self.own[decisions]
        return here[here >= 0]


def round_order(
    peers: ProcessGroup, valid: Sequence[NDArray[np.bool_]], counts: NDArray[np.int64] | None = None
) -> RoundOrder:
    """The order world by world, step by step, cluster by cluster.

    Args:
        peers: each calls this with what it has played.
        valid: {of each world} [steps, clusters] where decisions were made.
        counts: [decisions] jobs scored in each, in that order; None: one action each.
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
