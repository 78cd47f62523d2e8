"""Models of other libraries, torch modules and functions as policies."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import nn

from ringyard.checks import shown
from ringyard.errors import CheckpointError
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.learning.episodes import index_rows


class ModelPolicy:
    """Policy of a model that learnt elsewhere, or of a function.

    Args:
        model: one of
            a model of Stable-Baselines3, sb3-contrib or SBX. It gets masks if its `predict` takes them.
            a torch module, from a batch of observations to [clusters, actions] logits, of which the highest
            valid one is taken, or to [clusters, (1 + T) N] scores.
            a function `(observation, mask) -> action` of one cluster.
        flat: True if a module or function reads one row of numbers, False if it reads blocks by name. The
            observation space of a model says which.
        scores: True if an action is an array of scores.
    """

    def __init__(self, model: Any, flat: bool, scores: bool) -> None:
        if isinstance(model, type) or not (callable(model) or hasattr(model, "predict")):
            raise CheckpointError(
                f"the model is {shown(model)}; expected a model of Stable-Baselines3, a torch module or a"
                " function (observation, mask) -> action"
            )
        self.network = model
        space = getattr(model, "observation_space", None)
        self.flat = flat if space is None else not isinstance(space, spaces.Dict)
        self._scores = scores
        self._state: Any = None  # of a recurrent model
        self._choose: Callable[[Any, NDArray[np.bool_]], Any] = self._call
        #: what a model that learns under a `VecNormalize` does to observations
        self._normalizer = getattr(model, "get_vec_normalize_env", lambda: None)()
        if hasattr(model, "predict"):
            self._masked = "action_masks" in inspect.signature(model.predict).parameters
            self._choose = self._predict
        elif isinstance(model, nn.Module):
            model.eval()
            self._choose = self._forward

    def reset(self) -> None:
        """Forget the state of a recurrent model, because an episode begins."""
        self._state = None

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the action of each cluster. See `Policy.act`."""
        return np.asarray(self._choose(observations, masks))

    def _predict(self, observations: Any, masks: NDArray[np.bool_]) -> Any:
        options = {"action_masks": masks} if self._masked else {}
        if self._normalizer is not None:
            observations = self._normalizer.normalize_obs(observations)
        answer = self.network.predict(observations, state=self._state, deterministic=True, **options)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise CheckpointError(
                f"predict returned {shown(answer)}; expected the pair (actions, state), as of a model of"
                " Stable-Baselines3"
            )
        actions, self._state = answer
        return actions

    def _forward(self, observations: Any, masks: NDArray[np.bool_]) -> Any:
        def tensor(values: NDArray[Any]) -> torch.Tensor:
            return torch.tensor(values, device=device)

        device = next((weights.device for weights in self.network.parameters()), None)
        blocks = None if self.flat else {name: tensor(block) for name, block in observations.items()}
        with torch.no_grad():
            found = self.network(tensor(observations) if blocks is None else blocks)
        values = found.cpu().numpy() if isinstance(found, torch.Tensor) else None
        if values is None or (not self._scores and (values.shape != masks.shape or np.isnan(values).any())):
            shape = f" of shape {values.shape}" if values is not None else ""
            problem = f"{type(self.network).__name__} returned {shown(found)}{shape}"
            raise CheckpointError(f"{problem}; expected a logit per action, a tensor of shape {masks.shape}")
        return values if self._scores else np.where(masks, values, -np.inf).argmax(-1)

    def _call(self, observations: Any, masks: NDArray[np.bool_]) -> Any:
        rows = [index_rows(observations, np.array([i])) for i in range(len(masks))]
        one = [row[0] if self.flat else {name: block[0] for name, block in row.items()} for row in rows]
        return [self.network(row, mask.astype(np.int8)) for row, mask in zip(one, masks, strict=True)]


def read_model(file: Path, trust: Trust) -> Any:
    """Read the policy of a trusted model.zip of Stable-Baselines3 or sb3-contrib, which may run code."""
    if trust is not True:
        raise CheckpointError(
            f"{file} is read by Stable-Baselines3, which runs any code in it; if you trust it whole, add"
            " trust=true (in Python overrides=['trust=true'], or load(..., trust=True))"
        )
    from stable_baselines3.common.save_util import load_from_zip_file

    torch.set_num_threads(1)
    try:
        data, weights, _ = load_from_zip_file(file, device="cpu")
        assert data is not None
        make = data["policy_class"]
        options: dict[str, Any] = {"use_sde": True} if data.get("use_sde") else {}
        if "lr_schedule" in inspect.signature(make).parameters:
            options["lr_schedule"] = lambda progress: 0.0
        options |= data["policy_kwargs"]
        network = make(data["observation_space"], data["action_space"], **options)
        network.load_state_dict(weights["policy"])
    except Exception as error:  # a damaged file can raise anything
        why = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{file} is not a model of Stable-Baselines3 or sb3-contrib: {why}") from error
    return network
