"""`ActionMaskObservation`: a wrapper that adds the action mask to the observation."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from ringyard.checks import require, shown
from ringyard.errors import ConfigurationError


class ActionMaskObservation(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Turn observations into `{"observation": observation of env, "action_mask": [actions]}`.

    The default keys are PettingZoo's. RLlib's example of action masking reads "observations" and
    "action_mask", Tianshou's policies "obs" and "mask". TorchRL's `ActionMask` reads "action_mask" in
    booleans.

    Args:
        env: environment with `info["action_mask"]`, such as `ClusterEnv`.
        observation_key: key of the observation of `env`.
        mask_key: key of the mask.
        dtype: of the mask, such as "int8", "bool" or "float32".

    Raises:
        ConfigurationError: the keys are not two different texts, or `dtype` is not of numbers or booleans.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        observation_key: str = "observation",
        mask_key: str = "action_mask",
        dtype: Any = "int8",
    ) -> None:
        require("observation_key", observation_key, str)
        require("mask_key", mask_key, str)
        if observation_key == mask_key:
            raise ConfigurationError(
                f"observation_key and mask_key are both {mask_key!r}; expected different keys"
            )
        try:
            self._dtype = np.dtype(object if dtype is None else dtype)
        except TypeError:
            self._dtype = np.dtype(object)
        if self._dtype.kind not in "biuf":
            raise ConfigurationError(f"dtype is {shown(dtype)}; expected 'int8', 'bool', 'float32' or such")
        RecordConstructorArgs.__init__(
            self, observation_key=observation_key, mask_key=mask_key, dtype=self._dtype.name
        )
        super().__init__(env)
        self._keys = observation_key, mask_key
        one = env.action_space
        shape = (int(one.n),) if isinstance(one, spaces.Discrete) else one.shape
        masks = spaces.Box(0, 1, shape, self._dtype.type)
        self.observation_space = spaces.Dict({observation_key: env.observation_space, mask_key: masks})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. `seed` and `options` are those of the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Carry out `action`. The mask of the returned observation is that of the next action."""
        observation, reward, done, truncated, info = self.env.step(action)
        return self._with_mask(observation, info), reward, done, truncated, info

    def _with_mask(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        mask = info["action_mask"].astype(self._dtype)
        return dict(zip(self._keys, (observation, mask), strict=True))
