"""The vector environment for Stable-Baselines3."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from ringyard.checks import PositiveInt, Seed, require, require_memory, shown
from ringyard.errors import CheckpointError, ConfigurationError, EpisodeError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig

#: float32 numbers stored per decision beside observation, mask and action: reward, return, episode start,
#: value, log probability, advantage
_STORED_NUMBERS = 6


def require_rollout_memory(setting: str, num_steps: int, config: EnvConfig, num_envs: int) -> None:
    """Raise a ConfigurationError unless two copies of a rollout of `num_steps` in float32 fit into memory."""
    actions = config.actions
    stored = config.observation.size(config.cluster, actions) + actions.mask_size + _STORED_NUMBERS
    stored += max(2, math.prod(actions.space.shape or ()))  # an int64 counts 2
    require_memory({f"{setting}, with agent.num_envs={num_envs:,},": (num_steps, 8 * stored * num_envs)})


class RingyardVecEnv(VecEnv):
    """`VecEnv` of Stable-Baselines3 that steps all clusters in one compiled call.

    A cluster at the end of its episode starts the next one in the same step, as in every `VecEnv`. Copies by
    pickle and deepcopy continue exactly as the original.

    Args:
        config: configuration of the environment.
        num_envs: number of clusters.
        seed: seed of the order of job tables.
        first: index of its first cluster, where several processes have some each.

    Raises:
        ConfigurationError: an argument has another type or range, or memory is too small.
    """

    def __init__(self, config: EnvConfig, num_envs: int, seed: int = 0, first: int = 0) -> None:
        require("config", config, EnvConfig)
        require("num_envs", num_envs, PositiveInt)
        self.batch = ClusterBatch(config, num_envs)  # raises an error if memory is too small
        space = config.observation.space(config.cluster, config.actions)
        self.render_mode = None
        super().__init__(num_envs, space, config.actions.space)
        self.config = config
        self._actions: NDArray[Any] | None = None
        self._first = first
        self._reset_order(seed)

    def _reset_order(self, seed: int) -> None:
        require("seed", seed, Seed)
        self._generators = [np.random.default_rng((seed, self._first + b)) for b in range(self.num_envs)]
        #: [num_envs][episodes] job tables drawn so far: those of past episodes and of the next
        self._drawn: list[list[int]] = [[] for _ in self._generators]
        self._episodes = np.zeros(self.num_envs, np.int64)
        #: [steps][num_envs, ...] actions since the oldest running episode began
        self._actions_taken: list[NDArray[Any]] = []
        #: [num_envs] index in `_actions_taken` at which the running episode began
        self._first_action = np.zeros(self.num_envs, np.int64)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Restart the order of job tables from `seed` at the next reset. None changes nothing."""
        if seed is not None:
            self._reset_order(seed)
        return [seed] * self.num_envs

    def set_options(self, options: Any = None) -> None:
        """Raise a ConfigurationError unless `options` is None, empty or a list of these: resets have none."""
        given = options if isinstance(options, list) else [options]
        if any(one is not None and not (isinstance(one, dict) and not one) for one in given):
            raise ConfigurationError(f"options is {shown(options)}; expected none")

    def reset(self) -> VecEnvObs:
        """Begin an episode in every cluster and return the observations."""
        self._begin(np.arange(self.num_envs))
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self._observations()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store [num_envs, ...] actions for `step_wait`. An ActionError if there is not one per cluster."""
        self._actions = self.batch.action_array(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Step all clusters.

        Returns:
            (observations, [num_envs] rewards, [num_envs] True where an episode ended, list of infos). The
            info of an ended episode has `episode` as Stable-Baselines3 expects it, `episode_jct` (mean JCT in
            seconds), `episode_slowdown`, `episode_preemptions`, `workload` (index of the job table),
            `TimeLimit.truncated` and `terminal_observation`, every info `cost` if the environment has one.

        Raises:
            EpisodeError: called before `reset`, without `step_async`, or after `close`.
            ActionError: an action is outside the space, or invalid while `on_invalid` is "raise".
        """
        actions, self._actions = self._actions, None
        if actions is None:
            raise EpisodeError("step_wait() has no actions; call step_async(actions) first")
        batch, clusters = self.batch, np.arange(self.num_envs)
        batch.replace_invalid(actions, clusters)
        batch.step(actions)
        self._actions_taken.append(actions)  # a new array, see `ClusterBatch.action_array`
        rewards, ended = batch.rewards.astype(np.float32), batch.done | batch.truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if "cost" in batch.infos:
            infos = [{"cost": cost} for cost in batch.infos["cost"].tolist()]
        for b in np.flatnonzero(batch.replaced).tolist():
            infos[b]["invalid_action"] = True
        finished = np.flatnonzero(ended)
        for b in finished.tolist():
            infos[b] |= {
                "episode": {"r": float(batch.returns[b]), "l": int(batch.lengths[b]), "t": 0.0},
                "episode_jct": float(batch.infos["episode_jct"][b]),
                "episode_slowdown": float(batch.infos["episode_slowdown"][b]),
                "episode_preemptions": int(batch.infos["episode_preemptions"][b]),
                "workload": int(batch.entries[b]),
                "TimeLimit.truncated": batch.truncated.item(b),
                "terminal_observation": batch.split(batch.observations[b].copy()),
            }
        if len(finished):
            self._begin(finished)
        return self._observations(), rewards, ended, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """Return [num_envs, actions], True where an action is valid. For `Scores`: where there is a job."""
        self.batch.require_episode()
        return self.batch.masks.copy()

    def _begin(self, clusters: NDArray[np.int64]) -> None:
        self.batch.reset(clusters, self._next_workloads(clusters))
        self._episodes[clusters] += 1
        self.batch.workload_cache.prefetch(self._next_workloads(clusters))
        self._first_action[clusters] = len(self._actions_taken)
        oldest = int(self._first_action.min())
        del self._actions_taken[:oldest]
        self._first_action -= oldest

    def _next_workloads(self, clusters: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [clusters] indices of the job tables of their next episodes."""
        for b in clusters.tolist():
            while len(self._drawn[b]) <= self._episodes[b]:
                self._drawn[b].append(int(self._generators[b].integers(self.config.num_workloads)))
        return np.array([self._drawn[b][self._episodes[b]] for b in clusters.tolist()], np.int64)

    def episode_state(self) -> dict[str, NDArray[Any]]:
        """Copy what `restore` needs to continue the running episodes.

        Returns:
            {"episodes": [num_envs] number of episodes begun so far, "played": [steps, num_envs, ...] actions
            since the oldest running episode began, "begun": [num_envs] index in "played" at which the running
            episode began}.
        """
        space = self.config.actions.space
        actions = np.array(self._actions_taken, space.dtype).reshape(-1, self.num_envs, *(space.shape or ()))
        return {"episodes": self._episodes.copy(), "begun": self._first_action.copy(), "played": actions}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> VecEnvObs:
        """Replay the running episodes of a `state` of an equal environment; return the last observations."""
        episodes, begun, played = (state[name] for name in ("episodes", "begun", "played"))
        if episodes.shape != (self.num_envs,) or begun.shape != episodes.shape or episodes.min() < 1:
            raise CheckpointError(f"the saved episodes are not those of {self.num_envs} clusters")
        self._episodes[:] = episodes - 1  # `_begin` adds 1
        self.reset()
        for step, actions in enumerate(played):
            active = np.flatnonzero(begun <= step)
            if not self.batch.all_valid(self.batch.action_array(actions), active):
                raise CheckpointError("a saved action is not valid: the configuration or the seed is another")
            self.batch.step(actions, active)
        self._first_action[:] = begun
        self._actions_taken = list(played)
        return self._observations()

    def _observations(self) -> VecEnvObs:
        return self.batch.split(self.batch.observations.copy())

    def close(self) -> None:
        """Close the environment. Later steps and resets raise an error."""
        self.batch.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return the attribute `attr_name` of this object, once per cluster of `indices` (None: all)."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Raise a ConfigurationError: clusters share `attr_name`. `value` and `indices` are not read."""
        raise ConfigurationError(f"cannot set {attr_name!r} of single clusters; make a new environment")

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Return the action masks of the clusters `indices`, for sb3-contrib: "action_masks" only."""
        if not isinstance(method_name, str) or method_name != "action_masks" or method_args or method_kwargs:
            raise ConfigurationError(
                f"clusters have no method {shown(method_name)} to call with {method_args} and"
                f" {method_kwargs}; expected action_masks without arguments"
            )
        masks = self.action_masks()
        return [masks[b] for b in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """Return False, once per cluster of `indices`: none has a wrapper, such as `wrapper_class`."""
        return [False for _ in self._get_indices(indices)]
