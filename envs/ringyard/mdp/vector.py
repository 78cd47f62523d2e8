"""`ClusterVectorEnv`: many clusters behind Gymnasium's VectorEnv interface, one compiled call a step."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.setting import Setting

__all__ = ["ClusterVectorEnv"]


class ClusterVectorEnv(VectorEnv[Any, NDArray[np.int64], NDArray[Any]]):
    """`num_envs` copies of `ClusterEnv`; equal seeds give equal episodes.

    `info["action_mask"]` is [num_envs, actions]. In the step that ends an episode, `info` also holds
    `episode_jct` [num_envs] with `_episode_jct` marking the ended ones, and, in same-step mode,
    `final_obs`.

    Args:
        num_envs: number of clusters.
        setting: shared by all.
        autoreset_mode: NEXT_STEP (Gymnasium's default: the step after the end resets) or SAME_STEP.
        copy: give fresh arrays each step; False gives windows on buffers that the next step overwrites.
        render_mode: must be None; render a `ClusterEnv`.
    """

    metadata: dict[str, Any] = {**ClusterEnv.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        setting: Setting | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        render_mode: str | None = None,
    ) -> None:
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            raise ConfigurationError("autoreset_mode is DISABLED; expected NEXT_STEP or SAME_STEP")
        if render_mode is not None:
            raise ConfigurationError("a vector environment does not render; render one ClusterEnv")
        self.setting = setting or Setting()
        self.num_envs = num_envs
        self.render_mode = None
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.batch = ClusterBatch(self.setting, num_envs)
        self.single_observation_space = self.setting.observation.space(
            self.setting.cluster, self.setting.actions
        )
        self.single_action_space = spaces.Discrete(self.setting.actions.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._copy = copy
        self._generators: list[np.random.Generator] = []
        self._ended = np.zeros(num_envs, np.bool_)

    def action_masks(self) -> NDArray[np.bool_]:
        """[num_envs, actions] True where an action is valid."""
        return self.batch.masks.copy() if self._copy else self.batch.masks

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every cluster; cluster i of an integer seed has seed + i."""
        if seed is not None or not self._generators:
            seeds = (
                list(seed)
                if isinstance(seed, list)
                else [None if seed is None else seed + i for i in range(self.num_envs)]
            )
            self._generators = [np.random.Generator(np.random.PCG64(one)) for one in seeds]
        self._begin(np.arange(self.num_envs))
        self._ended[:] = False
        return self._observations(), {"action_mask": self.action_masks()}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One action in every cluster; clusters in their reset step ignore theirs."""
        actions = np.array(actions, dtype=np.int64)
        resetting = np.flatnonzero(self._ended)
        stepping = np.flatnonzero(~self._ended) if len(resetting) else np.arange(self.num_envs)
        self.batch.rewards[resetting] = 0.0
        if len(stepping):
            masked = self.batch.valid(actions, stepping)
            self.batch.step(actions, stepping)
        if len(resetting):
            self._begin(resetting)
        done, truncated = self.batch.done, self.batch.truncated
        ended = done | truncated
        rewards = self.batch.rewards.copy()
        info: dict[str, Any] = {}
        if len(stepping) and masked.any():
            info["invalid_action"] = np.isin(np.arange(self.num_envs), stepping[masked])
        if ended.any():
            self._describe_end(info, ended)
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            self._begin(np.flatnonzero(ended))
            self._ended[:] = False
        else:
            self._ended = ended.copy()
        info["action_mask"] = self.action_masks()
        return self._observations(), rewards, done, truncated, info

    def _begin(self, clusters: NDArray[np.int64]) -> None:
        size = self.setting.num_workloads
        entries = np.array([int(self._generators[b].integers(size)) for b in clusters])
        self.batch.reset(clusters, entries)

    def _describe_end(self, info: dict[str, Any], ended: NDArray[np.bool_]) -> None:
        jct = np.zeros(self.num_envs)
        for b in np.flatnonzero(ended):
            jct[b] = self.batch.mean_jct(int(b))
        info["episode_jct"] = jct
        info["_episode_jct"] = ended.copy()
        info["workload"] = self.batch.entries.copy()
        info["_workload"] = ended.copy()
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            final = np.empty(self.num_envs, dtype=object)
            for b in np.flatnonzero(ended):
                final[b] = self.batch.split(self.batch.observations[b].copy())
            info["final_obs"] = final
            info["_final_obs"] = ended.copy()

    def _observations(self) -> Any:
        rows = self.batch.observations
        return self.batch.split(rows.copy() if self._copy else rows)
