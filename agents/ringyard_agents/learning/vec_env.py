"""Stable-Baselines3's VecEnv over the compiled batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from ringyard.checks import PositiveInt, Seed, require, shown
from ringyard.errors import CheckpointError, ConfigurationError, EpisodeError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig


class RingyardVecEnv(VecEnv):
    """A vector environment for Stable-Baselines3, stepped by one compiled call; episodes restart in `step`.

    Pickles and deep copies continue exactly as the original.

    Args:
        setting: configuration of the environment.
        num_envs: number of clusters.
        seed: of the order of job tables.

    Raises:
        ConfigurationError: an argument of another kind.
    """

    def __init__(self, setting: EnvConfig, num_envs: int, seed: int = 0) -> None:
        require("setting", setting, EnvConfig)
        require("num_envs", num_envs, PositiveInt)
        self.batch = ClusterBatch(setting, num_envs)  # raises an error if memory is short
        space = setting.observation.space(setting.cluster, setting.actions)
        self.render_mode = None
        super().__init__(num_envs, space, setting.actions.space)
        self.config = setting
        self._actions: NDArray[Any] | None = None
        self._draw_from(seed)

    def _draw_from(self, seed: int) -> None:
        require("seed", seed, Seed)
        self._generators = [np.random.default_rng((seed, b)) for b in range(self.num_envs)]
        #: [num_envs][episodes] job tables drawn so far, one beyond those that have begun
        self._drawn: list[list[int]] = [[] for _ in self._generators]
        self._episodes = np.zeros(self.num_envs, np.int64)
        #: [steps][num_envs, ...] actions since the oldest running episode began
        self._played: list[NDArray[Any]] = []
        #: [num_envs] where in `_played` the running episodes begin
        self._begun = np.zeros(self.num_envs, np.int64)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Restart the order of job tables from `seed` at the next reset."""
        if seed is not None:
            self._draw_from(seed)
        return [seed] * self.num_envs

    def set_options(self, options: Any = None) -> None:
        """Accept no options.

        Raises:
            ConfigurationError: there are some.
        """
        given = options if isinstance(options, list) else [options]
        if any(one is not None and not (isinstance(one, dict) and not one) for one in given):
            raise ConfigurationError(f"options is {shown(options)}; expected none")

    def reset(self) -> VecEnvObs:
        """Begin an episode everywhere."""
        self._begin(np.arange(self.num_envs))
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self._observations()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the actions of the next `step_wait`.

        Raises:
            ActionError: not one action for each cluster.
        """
        self._actions = self.batch.action_array(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Step all clusters.

        Raises:
            EpisodeError: before `reset`, without `step_async`, or after `close`.
            ActionError: outside the space, or masked if `on_invalid` is "raise".
        """
        actions, self._actions = self._actions, None
        if actions is None:
            raise EpisodeError("step_wait() has no actions; call step_async(actions) first")
        batch, everyone = self.batch, np.arange(self.num_envs)
        masked = batch.replace_invalid(actions, everyone)
        batch.step(actions)
        self._played.append(actions)  # a fresh array, see `ClusterBatch.action_array`
        rewards, ended = batch.rewards.astype(np.float32), batch.done | batch.truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for b in everyone[masked].tolist():
            infos[b]["invalid_action"] = True
        over = np.flatnonzero(ended)
        for b in over.tolist():
            infos[b] |= {
                "episode": {"r": float(batch.returns[b]), "l": int(batch.lengths[b]), "t": 0.0},
                "episode_jct": batch.mean_jct(b),
                "workload": int(batch.entries[b]),
                "TimeLimit.truncated": bool(batch.truncated[b]),
                "terminal_observation": batch.split(batch.observations[b].copy()),
            }
        if len(over):
            self._begin(over)
        return self._observations(), rewards, ended, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """[num_envs, actions] True where an action is valid or a score has a job."""
        self.batch.require_episode()
        return self.batch.masks.copy()

    def _begin(self, clusters: NDArray[np.int64]) -> None:
        self.batch.reset(clusters, self._entries(clusters))
        self._episodes[clusters] += 1
        self.batch.workload_cache.prefetch(self._entries(clusters))
        self._begun[clusters] = len(self._played)
        oldest = int(self._begun.min())
        del self._played[:oldest]
        self._begun -= oldest

    def _entries(self, clusters: NDArray[np.int64]) -> NDArray[np.int64]:
        """[clusters] job tables of their next episodes."""
        for b in clusters.tolist():
            while len(self._drawn[b]) <= self._episodes[b]:
                self._drawn[b].append(int(self._generators[b].integers(self.config.num_workloads)))
        return np.array([self._drawn[b][self._episodes[b]] for b in clusters.tolist()], np.int64)

    def position(self) -> dict[str, NDArray[Any]]:
        """The state of the running episodes, for `restore` with the same configuration and seed.

        Returns:
            episodes [num_envs] begun so far, played [steps, num_envs, ...] the actions since the oldest
            running episode began, begun [num_envs] at which of them each running episode began.
        """
        one = self.config.actions.space
        played = np.array(self._played, one.dtype).reshape(-1, self.num_envs, *(one.shape or ()))
        return {"episodes": self._episodes.copy(), "begun": self._begun.copy(), "played": played}

    def restore(self, position: Mapping[str, NDArray[Any]]) -> VecEnvObs:
        """Replay the running episodes of `position` and return their last observations.

        Args:
            position: from an environment with the same configuration and seed.

        Raises:
            CheckpointError: the episodes are of another configuration or number of clusters.
        """
        episodes, begun, played = (position[name] for name in ("episodes", "begun", "played"))
        if episodes.shape != (self.num_envs,) or begun.shape != episodes.shape or episodes.min() < 1:
            raise CheckpointError(f"the saved episodes are not those of {self.num_envs} clusters")
        self._episodes[:] = episodes - 1  # `_begin` counts
        self.reset()
        for step, actions in enumerate(played):
            playing = np.flatnonzero(begun <= step)
            if not self.batch.all_valid(self.batch.action_array(actions), playing):
                raise CheckpointError("the saved actions are not possible in this world; it is another one")
            self.batch.step(actions, playing)
        self._begun[:] = begun
        self._played = list(played)
        return self._observations()

    def _observations(self) -> VecEnvObs:
        observations: VecEnvObs = self.batch.split(self.batch.observations.copy())
        return observations

    def close(self) -> None:
        """Close the environment; later steps and resets raise an error."""
        self.batch.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute of this object, once per cluster."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Raise an error: clusters share one configuration."""
        raise ConfigurationError(f"cannot set {attr_name!r} of single clusters; make a new environment")

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """[clusters] action masks, which sb3-contrib asks for by this method."""
        if not isinstance(method_name, str) or method_name != "action_masks" or method_args or method_kwargs:
            raise ConfigurationError(
                f"clusters have no method {shown(method_name)} to call with {method_args} and"
                f" {method_kwargs}; expected action_masks, without arguments"
            )
        masks = self.action_masks()
        return [masks[b] for b in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """[clusters] False, because clusters are not wrapped."""
        return [False for _ in self._get_indices(indices)]
