"""Advantages that compare episodes of the same workload with one another.

Run times are heavy-tailed: returns differ more between workloads than between policies, and drown a
critic. Several episodes of each workload cancel that. `credit="episode"` gives every decision its
episode's return, normalised within the group (as GRPO does, Shao et al. 2024). `credit="time_aligned"`
gives a decision at simulated time t its reward to go minus the group's mean reward to go at t (the
input-driven baseline of Mao et al. 2019), so that a decision is not blamed for what came before it.
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
    group_size: int,
    credit: Credit,
) -> NDArray[np.float32]:
    """Advantages of decisions relative to the other episodes of their group.

    Args:
        rewards: [steps, envs] after each decision.
        times: [steps, envs] simulated seconds at each decision.
        valid: [steps, envs] True until the episode's end.
        group_size: neighbouring columns that share a workload.
        credit: see the module.

    Returns:
        [steps, envs] advantages, of unit spread within each group; 0 where not valid.
    """
    to_go = _returns_to_go(rewards, valid)
    advantages = np.zeros_like(to_go)
    for first in range(0, rewards.shape[1], group_size):
        members = range(first, first + group_size)
        returns = to_go[0, first : first + group_size]
        if credit == "episode":
            advantages[:, first : first + group_size] = returns - returns.mean()
            spread = returns.std()
        else:
            baselines = np.zeros((rewards.shape[0], group_size))
            for other in members:
                known = valid[:, other]
                at = np.append(times[known, other], np.inf)
                value = np.append(to_go[known, other], 0.0)
                # linear between decisions; after its last one an episode counts as over, though its
                # last jobs still run
                at[-1] = at[-2] + 1.0 if len(at) > 1 else 0.0
                baselines += np.interp(times[:, first : first + group_size], at, value)
            advantages[:, first : first + group_size] = (
                to_go[:, first : first + group_size] - baselines / group_size
            )
            spread = advantages[:, first : first + group_size][valid[:, first : first + group_size]].std()
        advantages[:, first : first + group_size] /= spread + 1e-8
    return (advantages * valid).astype(np.float32)
