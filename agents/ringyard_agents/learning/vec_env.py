"""Stable-Baselines3's VecEnv over the compiled batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from ringyard.checks import Count, Seed, require, shown
from ringyard.errors import CheckpointError, ConfigurationError, EpisodeError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig

__all__ = ["RingyardVecEnv", "stacked", "take"]


def take(observations: Any, rows: NDArray[np.int64]) -> Any:
    """Some rows, by number, of [clusters, size] or of {block: [clusters, ...]}."""
    if isinstance(observations, dict):
        return {name: block.take(rows, axis=0) for name, block in observations.items()}
    return observations.take(rows, axis=0)


def stacked(parts: Sequence[Any]) -> Any:
    """All rows of several observations in one."""
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


class RingyardVecEnv(VecEnv):
    """`num_envs` clusters stepped by one compiled call; resets within the step, as Stable-Baselines3 does.

    Clusters come in groups of `group_size` whose e-th episodes have the same jobs. With
    `one_episode_per_round`, a cluster that has ended its episode idles (reward 0, not done) until
    `next_round()`. Pickles and deep copies go on as the original would.

    Args:
        setting: the decision process.
        num_envs: a multiple of `group_size`.
        group_size: clusters that share each job table.
        one_episode_per_round: idle after the end instead of resetting.
        seed: of the order in which job tables are drawn.
        first_group: of these clusters, where others play the groups before it.

    Raises:
        ConfigurationError: an argument that is none of these.
    """

    def __init__(
        self,
        setting: EnvConfig,
        num_envs: int,
        group_size: int = 1,
        one_episode_per_round: bool = False,
        seed: int = 0,
        first_group: int = 0,
    ) -> None:
        require("setting", setting, EnvConfig)
        require("num_envs", num_envs, Count)
        require("group_size", group_size, Count)
        require("one_episode_per_round", one_episode_per_round, bool)
        if num_envs % group_size:
            raise ConfigurationError(
                f"num_envs is {num_envs}; expected a multiple of the group size {group_size}"
            )
        self.batch = ClusterBatch(setting, num_envs)  # says whether there is memory for all this
        space = setting.observation.space(setting.cluster, setting.actions)
        self.render_mode = None
        super().__init__(num_envs, space, setting.actions.space)
        self.setting = setting
        self.group_size = group_size
        #: [num_envs] episode over, waiting for the next round
        self.idle = np.zeros(num_envs, np.bool_)
        self._first_group = first_group
        self._one_episode_per_round = one_episode_per_round
        self._actions: NDArray[Any] | None = None
        self._masks = np.zeros_like(self.batch.masks)
        self._draw_from(seed)

    def _draw_from(self, seed: int) -> None:
        require("seed", seed, Seed)
        self._generators = [
            np.random.default_rng((seed, self._first_group + group))
            for group in range(self.num_envs // self.group_size)
        ]
        self._drawn: list[list[int]] = [[] for _ in self._generators]
        self._episodes = np.zeros(self.num_envs, np.int64)
        #: [steps][num_envs, ...] what was done since the oldest running episode began
        self._played: list[NDArray[Any]] = []
        #: [num_envs] where in `_played` the running episodes begin
        self._begun = np.zeros(self.num_envs, np.int64)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Start the order of job tables anew from `seed`, at the next reset."""
        if seed is not None:
            self._draw_from(seed)
        return [seed] * self.num_envs

    def set_options(self, options: Any = None) -> None:
        """Refused: episodes have no options.

        Raises:
            ConfigurationError: there are some.
        """
        given = options if isinstance(options, list) else [options]
        if any(one is not None and not (isinstance(one, dict) and not one) for one in given):
            raise ConfigurationError(f"options is {shown(options)}; expected none")

    def reset(self) -> VecEnvObs:
        """Begin an episode everywhere."""
        self._begin(np.arange(self.num_envs))
        self.idle[:] = False
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self._observations()

    def next_round(self) -> VecEnvObs:
        """Begin each cluster's next episode (as `reset`, for readers of a rollout loop)."""
        return self.reset()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Remember the actions.

        Raises:
            ActionError: not one action for each cluster.
        """
        self._actions = self.batch.given(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Carry them out.

        Raises:
            EpisodeError: before `reset`, without `step_async`, or after `close`.
            ActionError: outside the space, or masked (if the setting says so).
        """
        actions, self._actions = self._actions, None
        if actions is None:
            raise EpisodeError("step_wait() has no actions; call step_async(actions) first")
        stepped = np.flatnonzero(~self.idle)
        self.batch.rewards[self.idle] = 0.0
        masked = self.batch.valid(actions, stepped)
        self.batch.step(actions, stepped)
        self._played.append(actions)  # a fresh array, see `ClusterBatch.given`
        ended = np.zeros(self.num_envs, np.bool_)
        ended[stepped] = (self.batch.done | self.batch.truncated)[stepped]
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for b in stepped[masked].tolist():
            infos[b]["invalid_action"] = True
        rewards = self.batch.rewards.astype(np.float32)
        for b in np.flatnonzero(ended).tolist():
            infos[b]["episode"] = {
                "r": float(self.batch.returns[b]),
                "l": int(self.batch.lengths[b]),
                "t": 0.0,
            }
            infos[b]["episode_jct"] = self.batch.mean_jct(b)
            infos[b]["workload"] = int(self.batch.entries[b])
            infos[b]["TimeLimit.truncated"] = bool(self.batch.truncated[b])
            infos[b]["terminal_observation"] = self.batch.split(self.batch.observations[b].copy())
        if self._one_episode_per_round:
            self.idle |= ended
        elif ended.any():
            self._begin(np.flatnonzero(ended))
        return self._observations(), rewards, ended, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """[num_envs, actions] True where an action is valid or a score has a job; who idles may only wait."""
        self.batch.check_begun()
        self._masks[:] = self.batch.masks
        if self.idle.any():
            self._masks[self.idle] = self.setting.actions.idle_mask
        return self._masks

    def _begin(self, clusters: NDArray[np.int64]) -> None:
        self.batch.reset(clusters, self._entries(clusters))
        self._episodes[clusters] += 1
        self.batch.bank.needed_soon(self._entries(clusters))
        self._begun[clusters] = len(self._played)
        oldest = int(self._begun.min())
        del self._played[:oldest]
        self._begun -= oldest

    def _entries(self, clusters: NDArray[np.int64]) -> NDArray[np.int64]:
        """[clusters] job tables of their next episodes, the same for all of a group."""
        entries = np.zeros(len(clusters), np.int64)
        for i, b in enumerate(clusters.tolist()):
            group = b // self.group_size
            drawn = self._drawn[group]
            while len(drawn) <= self._episodes[b]:
                drawn.append(int(self._generators[group].integers(self.setting.num_workloads)))
            entries[i] = drawn[self._episodes[b]]
        return entries

    def position(self) -> dict[str, NDArray[Any]]:
        """Where it stands: what `restore` needs in an environment of the same setting and seed.

        Returns:
            episodes [num_envs] begun so far, played [steps, num_envs, ...] the actions since the oldest
            running episode began, begun [num_envs] at which of them each running episode began.
        """
        one = self.setting.actions.space
        played = np.array(self._played, one.dtype).reshape(-1, self.num_envs, *(one.shape or ()))
        return {"episodes": self._episodes.copy(), "begun": self._begun.copy(), "played": played}

    def restore(self, position: Mapping[str, NDArray[Any]]) -> VecEnvObs:
        """Play the running episodes of `position` again; the observations after that.

        Raises:
            CheckpointError: it is of another number of clusters, or of another setting.
        """
        episodes, begun, played = (position[name] for name in ("episodes", "begun", "played"))
        if episodes.shape != (self.num_envs,) or begun.shape != episodes.shape or episodes.min() < 1:
            raise CheckpointError(f"the saved episodes are not those of {self.num_envs} clusters")
        self._episodes[:] = episodes - 1  # `_begin` counts
        self.reset()
        over = self.batch.done | self.batch.truncated
        for step, actions in enumerate(played):
            playing = np.flatnonzero((begun <= step) & ~over)
            if not self.batch.possible(self.batch.given(actions), playing):
                raise CheckpointError("the saved actions are not possible in this world; it is another one")
            self.batch.step(actions, playing)
            over = self.batch.done | self.batch.truncated
        self._begun[:] = begun
        self._played = list(played)
        self.idle = over
        return self._observations()

    @property
    def rounds(self) -> int:
        """Rounds begun so far: episodes of each cluster, with `one_episode_per_round`."""
        return int(self._episodes.max())

    def restore_round(self, episodes: NDArray[np.int64]) -> None:
        """Stand as an environment with `one_episode_per_round` that has begun so many, before `next_round`.

        Args:
            episodes: [clusters, of whatever process] begun so far.

        Raises:
            CheckpointError: not the same number in each.
        """
        if episodes.ndim != 1 or not len(episodes) or (episodes != episodes[0]).any() or episodes[0] < 1:
            raise CheckpointError("the saved episodes are not those of clusters that play in rounds")
        self._episodes[:] = episodes[0]

    def _observations(self) -> VecEnvObs:
        observations: VecEnvObs = self.batch.split(self.batch.observations.copy())
        return observations

    def close(self) -> None:
        """Refuse steps and resets from now on."""
        self.batch.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute of this object, once per cluster."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Refused: clusters share one setting."""
        raise ConfigurationError(f"cannot set {attr_name!r} of single clusters; make a new environment")

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """`action_masks` per cluster (what sb3-contrib asks for)."""
        if not isinstance(method_name, str) or method_name != "action_masks" or method_args or method_kwargs:
            raise ConfigurationError(
                f"clusters have no method {shown(method_name)} to call with {method_args} and"
                f" {method_kwargs}; expected action_masks, without arguments"
            )
        masks = self.action_masks()
        return [masks[b] for b in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """False: clusters are not wrapped."""
        return [False for _ in self._get_indices(indices)]
