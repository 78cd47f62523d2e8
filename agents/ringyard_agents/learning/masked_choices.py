"""Choices among valid actions by a network of sb3-contrib: how probable, drawn, and learnt by PPO's rule.

Without the distribution that the network keeps, so that threads may share a network. What follows from the
network's logits is compiled: it is little of few valid actions, and much of many tensors.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import Tensor

from ringyard.compiled import (
    BoolMatrix,
    BoolVector,
    Float32Matrix,
    Float32Vector,
    FloatVector,
    IntVector,
    kernel,
)
from ringyard_agents.learning.gradients import add_gradients
from ringyard_agents.learning.hardware import on
from ringyard_agents.learning.rows import take

__all__ = ["CURVES", "Choices", "add_ppo_gradient", "choose", "logits_of"]

#: decisions whose gradient one thread computes at once: few enough for its caches, enough to be worth a call
_PART = 2048

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
            self.masks.take(rows, axis=0),
            self.actions[rows],
            self.log_probs[rows],
            self.advantages[rows],
        )


def logits_of(network: MaskableActorCriticPolicy, observations: Any) -> Tensor:
    """[clusters, actions] of each action, whether valid or not, on the network's device.

    Args:
        network: with one discrete action.
        observations: [clusters, size], or {block: [clusters, length]}.
    """
    device = network.device
    seen: Any
    if isinstance(observations, dict):
        seen = {name: on(device, block) for name, block in observations.items()}
    else:
        seen = on(device, observations)
    features: Any = network.extract_features(seen, network.pi_features_extractor)
    logits: Tensor = network.action_net(network.mlp_extractor.forward_actor(features))
    return logits


@kernel
def _log_total(logits: Float32Vector, valid: BoolVector) -> float:
    """What to take from a logit for its logarithmic probability among the valid actions."""
    most = -math.inf
    for i in range(len(logits)):
        if valid[i]:
            most = max(most, float(logits[i]))
    total = 0.0
    for i in range(len(logits)):
        if valid[i]:
            total += math.exp(logits[i] - most)
    return most + math.log(total)


@kernel
def _choose(
    logits: Float32Matrix,
    masks: BoolMatrix,
    noise: Float32Matrix,
    actions: IntVector,
    log_probs: Float32Vector,
) -> None:
    """Write an action drawn in each row, and its logarithmic probability."""
    for row in range(len(logits)):
        less = _log_total(logits[row], masks[row])
        best = -1.0
        for i in range(logits.shape[1]):
            if masks[row, i]:
                log_prob = logits[row, i] - less
                drawn = math.exp(log_prob) / noise[row, i]
                if not drawn <= best:  # any valid one where the network is broken and answers NaN
                    best = drawn
                    actions[row] = i
                    log_probs[row] = log_prob


def choose(
    logits: Tensor, masks: NDArray[np.bool_], noise: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Actions drawn with their probabilities.

    Args:
        logits: [clusters, actions].
        masks: [clusters, actions] True where an action is valid.
        noise: [clusters, actions] drawn from the exponential distribution of rate 1.

    Returns:
        ([clusters] actions, [clusters] logarithms of their probabilities).
    """
    actions, log_probs = np.zeros(len(masks), np.int64), np.zeros(len(masks), np.float32)
    _choose(logits.cpu().contiguous().numpy(), masks, noise, actions, log_probs)
    return actions, log_probs


@kernel
def _ppo_gradient(
    logits: Float32Matrix,
    masks: BoolMatrix,
    actions: IntVector,
    log_probs: Float32Vector,
    advantages: Float32Vector,
    total: int,
    clip_range: float,
    ent_coef: float,
    gradient: Float32Matrix,
    means: FloatVector,
) -> None:
    """Write the gradient by each logit, and add to the means of `CURVES`; see `add_ppo_gradient`."""
    gradient[:] = 0.0
    for row in range(len(logits)):
        less = _log_total(logits[row], masks[row])
        log_ratio = logits[row, actions[row]] - less - log_probs[row]
        ratio, advantage = math.exp(log_ratio), advantages[row]
        clipped = min(max(ratio, 1.0 - clip_range), 1.0 + clip_range)
        gain = min(advantage * ratio, advantage * clipped)
        slope = advantage * ratio if advantage * ratio <= advantage * clipped else 0.0
        entropy = 0.0
        for i in range(logits.shape[1]):
            if masks[row, i]:
                log_prob = logits[row, i] - less
                entropy -= math.exp(log_prob) * log_prob
        for i in range(logits.shape[1]):
            if masks[row, i]:
                log_prob = logits[row, i] - less
                by_logit = slope + ent_coef * (log_prob + entropy)
                gradient[row, i] = math.exp(log_prob) * by_logit / total
        gradient[row, actions[row]] -= slope / total
        means[0] -= gain / total
        means[1] -= entropy / total
        means[2] -= (gain + ent_coef * entropy) / total
        means[3] += (ratio - 1.0 - log_ratio) / total
        if abs(ratio - 1.0) > clip_range:
            means[4] += 1.0 / total


def add_ppo_gradient(
    network: MaskableActorCriticPolicy,
    choices: Choices,
    rows: NDArray[np.int64],
    total: int,
    clip_range: float,
    ent_coef: float,
) -> NDArray[np.float64]:
    """Add to a network's gradient that of PPO's clipped loss with an entropy bonus (Schulman et al. 2017).

    Args:
        network: as it is now.
        choices: of a round.
        rows: which of them are of this minibatch, or a part of it, or none.
        total: decisions in the minibatch, those of other processes too.
        clip_range: of the ratio of probabilities.
        ent_coef: weight of the entropy.

    Returns:
        [5] this part of the minibatch's means of `CURVES`.
    """
    count, found = len(rows), np.zeros(len(CURVES))
    if not count:
        return found

    def loss_of(rows: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.float64]]:
        part, means = choices.some(rows), np.zeros(len(CURVES))
        logits = logits_of(network, part.observations)
        gradient = np.empty(logits.shape, np.float32)
        given = logits.detach().cpu().contiguous().numpy()
        _ppo_gradient(given, *part[1:], total, clip_range, ent_coef, gradient, means)
        # it has the loss's gradient
        return (logits * on(network.device, gradient)).sum(), means

    parts = np.array_split(rows, max(1, round(count / _PART)))
    for one in add_gradients(network, [partial(loss_of, part) for part in parts]):
        found += one
    return found
