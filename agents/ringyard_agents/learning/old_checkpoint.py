"""Agents as Ringyard 0.1 saved them, in pickles: read only where the user trusts them."""

from pathlib import Path

import torch

from ringyard.errors import CheckpointError
from ringyard_agents.learning.group_relative import GroupRelative
from ringyard_agents.learning.learner import Learner, Saved
from ringyard_agents.learning.stable_baselines import StableBaselines
from ringyard_agents.learning.torch_state import weights_with_spaces

__all__ = ["weights_of"]


def weights_of(learner: Learner, file: Path) -> Saved:
    """What the learner's `weights` would have been.

    Raises:
        CheckpointError: a learner of somebody else's.
    """
    if isinstance(learner, StableBaselines):
        policy = learner.model.func.load(file, device="cpu").policy  # type: ignore[attr-defined]
        return weights_with_spaces(policy.state_dict(), policy.observation_space, policy.action_space)
    if isinstance(learner, GroupRelative):
        state = torch.load(file, weights_only=False)
        return weights_with_spaces(state["network"], *state["spaces"])
    raise CheckpointError(f"{file}: agents of {type(learner).__name__} have no old format")
