"""Choices among valid actions by a network of sb3-contrib: how probable, drawn, and learnt by PPO's rule.

Without the distribution that the network keeps, so that threads may share a network.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import Tensor

from ringyard_agents.learning.gradients import add_gradients
from ringyard_agents.learning.hardware import on
from ringyard_agents.learning.rows import take

__all__ = ["CURVES", "Choices", "add_ppo_gradient", "draw", "log_probabilities"]

#: of an action that is not valid, as in sb3-contrib
_NEVER = -1e8

#: decisions whose gradient one thread computes at once: few enough for its caches, enough to be worth a call
_PART = 1024

#: what `add_ppo_gradient` measures, in its order, as TensorBoard calls it
CURVES = (
    "train/policy_gradient_loss",
    "train/entropy_loss",
    "train/loss",
    "train/approx_kl",
    "train/clip_fraction",
)


class Choices(NamedTuple):
    """Decisions to learn from.

    Attributes:
        observations: [decisions, size], or {block: [decisions, length]}.
        masks: [decisions, actions] True where an action was valid.
        actions: [decisions] what was chosen.
        log_probs: [decisions] how probable that was then.
        advantages: [decisions].
    """

    observations: Any
    masks: NDArray[np.bool_]
    actions: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    advantages: NDArray[np.float32]

    def some(self, rows: NDArray[np.int64]) -> "Choices":
        """Some of them."""
        return Choices(
            take(self.observations, rows),
            self.masks[rows],
            self.actions[rows],
            self.log_probs[rows],
            self.advantages[rows],
        )


def log_probabilities(
    network: MaskableActorCriticPolicy, observations: Any, masks: NDArray[np.bool_]
) -> Tensor:
    """[clusters, actions] of each action, on the network's device; about -1e8 where it is not valid.

    Args:
        network: with one discrete action.
        observations: [clusters, size], or {block: [clusters, length]}.
        masks: [clusters, actions] True where an action is valid.
    """
    device = network.device
    seen: Any
    if isinstance(observations, dict):
        seen = {name: on(device, block) for name, block in observations.items()}
    else:
        seen = on(device, observations)
    features: Any = network.extract_features(seen, network.pi_features_extractor)
    logits = network.action_net(network.mlp_extractor.forward_actor(features))
    return torch.log_softmax(logits.masked_fill(~on(device, masks), _NEVER), 1)


def draw(log_probs: Tensor, noise: Tensor) -> Tensor:
    """[clusters] actions drawn with their probabilities.

    Args:
        log_probs: [clusters, actions].
        noise: [clusters, actions] drawn from the exponential distribution of rate 1.
    """
    return (log_probs.exp() / noise).argmax(1)


def add_ppo_gradient(
    network: MaskableActorCriticPolicy, choices: Choices, total: int, clip_range: float, ent_coef: float
) -> NDArray[np.float64]:
    """Add to a network's gradient that of PPO's clipped loss with an entropy bonus (Schulman et al. 2017).

    Args:
        network: as it is now.
        choices: of a minibatch, or a part of one, or none.
        total: decisions in the minibatch, those of other processes too.
        clip_range: of the ratio of probabilities.
        ent_coef: weight of the entropy.

    Returns:
        [5] this part of the minibatch's means of `CURVES`.
    """
    count, found = len(choices.actions), np.zeros(len(CURVES))
    if not count:
        return found

    def loss_of(rows: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.float64]]:
        part, device = choices.some(rows), network.device
        possible = log_probabilities(network, part.observations, part.masks)
        entropy = -(possible.exp() * possible).sum()
        log_ratio = possible.gather(1, on(device, part.actions)[:, None])[:, 0] - on(device, part.log_probs)
        ratio, advantages = torch.exp(log_ratio), on(device, part.advantages)
        clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
        gain = torch.min(advantages * ratio, advantages * clipped).sum()
        loss = (-gain - ent_coef * entropy) / total
        with torch.no_grad():
            moved, outside = (ratio - 1 - log_ratio).sum(), (torch.abs(ratio - 1) > clip_range).sum()
        sums = [-gain.item(), -entropy.item(), loss.item() * total, moved.item(), float(outside)]
        return loss, np.array(sums) / total

    parts = np.array_split(np.arange(count), max(1, round(count / _PART)))
    for one in add_gradients(network, [partial(loss_of, part) for part in parts]):
        found += one
    return found
