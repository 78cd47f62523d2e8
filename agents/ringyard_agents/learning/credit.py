"""Advantages that compare episodes of the same workload with one another.

Run times are heavy-tailed: returns differ more between workloads than between policies, and drown a
critic. Several episodes of each workload cancel that. `credit="episode"` gives every decision its
episode's return, normalised within the group (as GRPO does, Shao et al. 2024). `credit="time_aligned"`
gives a decision at simulated time t its reward to go minus the group's mean reward to go at t (the
input-driven baseline of Mao et al. 2019), so that a decision is not blamed for what came before it. An
episode goes on after its last decision, until its last jobs have ended.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Credit", "group_advantages"]

Credit = Literal["episode", "time_aligned"]


def _returns_to_go(rewards: NDArray[np.float32], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[steps, envs] undiscounted reward from each step on."""
    return np.cumsum((rewards * valid)[::-1].astype(np.float64), axis=0)[::-1]


def group_advantages(
    rewards: NDArray[np.float32],
    times: NDArray[np.float64],
    valid: NDArray[np.bool_],
    ends: NDArray[np.float64],
    group_size: int,
    credit: Credit,
) -> NDArray[np.float32]:
    """Advantages of decisions relative to the other episodes of their group.

    Args:
        rewards: [steps, envs] after each decision.
        times: [steps, envs] simulated seconds at each decision.
        valid: [steps, envs] True until the episode's end.
        ends: [envs] simulated seconds at which each episode was over.
        group_size: neighbouring columns that share a workload.
        credit: see the module.

    Returns:
        [steps, envs] advantages, of unit spread within each group; 0 where not valid.
    """
    to_go = _returns_to_go(rewards, valid)
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
