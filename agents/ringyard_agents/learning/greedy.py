"""A network's most likely actions: the policy that is evaluated and played."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.utils import obs_as_tensor

from ringyard.errors import CheckpointError

__all__ = ["GreedyPolicy"]


class GreedyPolicy:
    """Plays a network's most likely actions.

    A pointer policy runs on any cluster, one that reads flat rows only where they are as long as in training.

    Args:
        network: of Stable-Baselines3, or a maskable one of sb3-contrib.
        flat: it reads one row of numbers a cluster; False: blocks.
        masked: it chooses among valid actions only; needs a maskable network.
    """

    def __init__(self, network: BasePolicy, flat: bool, masked: bool) -> None:
        torch.set_num_threads(1)
        network.set_training_mode(False)
        self.network = network
        self.flat = flat
        self.masked = masked

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        """[clusters] actions where masks are [clusters, actions]; [clusters, scores] where they are of jobs.

        Raises:
            CheckpointError: rows or actions of other lengths than those of training, or a network whose
                answers are no numbers.
        """
        if self.flat and observations.shape[1:] != self.network.observation_space.shape:
            raise CheckpointError(
                f"the agent reads rows of {spaces.flatdim(self.network.observation_space)} numbers and got"
                f" {observations.shape[1]}; play it on a cluster of as many servers and the same actions"
                " as in training, or train an agent with a pointer policy"
            )
        space = self.network.action_space
        slots = masks.shape[1]
        fits = space.n == slots if isinstance(space, spaces.Discrete) else spaces.flatdim(space) % slots == 0
        if not fits:  # there may be several scores to a job
            raise CheckpointError(
                f"the agent answers with {space} and there are {slots} actions or scores; its"
                " weights and its actions are not of the same training"
            )
        seen = obs_as_tensor(observations, self.network.device)
        network: Any = self.network
        with torch.no_grad():
            options = {"action_masks": masks} if self.masked else {}
            try:
                chosen = network.get_distribution(seen, **options).mode()
            except (RuntimeError, ValueError) as error:  # other blocks than it learnt from; weights too large
                raise CheckpointError(f"the agent's network cannot choose an action: {error}") from error
        answer = chosen.cpu().numpy().astype(space.dtype)
        return np.clip(answer, space.low, space.high) if isinstance(space, spaces.Box) else answer
