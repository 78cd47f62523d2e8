"""`JctCallback`: learning curves of Stable-Baselines3's own algorithms, as those of `ringyard train`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import hydra
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from ringyard.checks import PositiveInt, require
from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.learning.evaluation import EvaluationWorkloads, episode_metrics
from ringyard_agents.learning.models import ModelPolicy

_EPISODE = ("episode_jct", "episode_slowdown", "episode_preemptions")


class JctCallback(BaseCallback):
    """Logs the mean job completion time of a model while it learns, with the tags of `ringyard train`.

    `PPO("MlpPolicy", "ringyard/CpuGpu-Weights-v0", tensorboard_log="runs").learn(50_000, JctCallback())`.
    After every rollout `rollout/episode_jct` (s), `rollout/episode_slowdown` and
    `rollout/episode_preemptions` have the means of the episodes that have ended since the last. Every
    `every` decisions `eval/mean_jct` (s) has the mean over workloads that no training draws, and
    `baselines/NAME` that of each scheduler on the same workloads.

    Args:
        every: decisions between evaluations.
        workloads: number of evaluation workloads, those of `ringyard train`.
        schedulers: baselines, by name.

    Raises:
        ConfigurationError: an argument out of its range, or an environment that is not made by its id.
    """

    def __init__(
        self,
        every: int = 10_000,
        workloads: int = 32,
        schedulers: Sequence[Any] = ("fifo_backfill", "sjf@consolidate"),
    ) -> None:
        super().__init__()
        require("every", every, PositiveInt)
        require("workloads", workloads, PositiveInt)
        require("schedulers", schedulers, Sequence[str | Mapping[str, object]])
        self.every, self.workloads, self.schedulers = every, workloads, schedulers

    def _on_training_start(self) -> None:
        self._next, self._ended = self.num_timesteps, list[list[float]]()
        try:
            spec, config = (self.training_env.get_attr(name)[0] for name in ("spec", "config"))
        except AttributeError:
            spec, config = None, None
        if spec is None or not isinstance(config, EnvConfig) or "config" in spec.kwargs:
            raise ConfigurationError(
                "JctCallback: the environment was not made by its id; expected one such as"
                ' gymnasium.make("ringyard/Sharing-Weights-v0")'
            )
        given = {name: value for name, value in spec.kwargs.items() if isinstance(value, str)}
        given.pop("render_mode", None)
        with hydra_initialized():
            composed = hydra.compose("train", [f"{name}={value}" for name, value in given.items()])
            seed = composed.evaluate.workload_seed
            tested = EvaluationWorkloads({"": composed}, self.workloads, seed, ())
            self._baselines = tested.measure_baselines(self.schedulers, "mean_jct")
        config = replace(config, limit_seconds=None, num_workloads=self.workloads, workload_seed=seed)
        config = replace(config, reward=replace(config.reward, saved=False))  # rewards are not read
        self._batch = ClusterBatch(config, self.workloads)

    def _on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
            if done:
                self._ended.append([float(info[name]) for name in _EPISODE])
        return True

    def _evaluate(self) -> None:
        self._next = self.num_timesteps + self.every
        metrics = episode_metrics(ModelPolicy(self.model, flat=True, scores=True), self._batch)
        self.logger.record("eval/mean_jct", float(np.mean([one.mean_jct for one in metrics])))
        for name, value in self._baselines.items():
            self.logger.record(f"baselines/{name}", value)
        self.logger.dump(self.num_timesteps)

    def _on_rollout_end(self) -> None:
        for name, values in zip(_EPISODE, zip(*self._ended, strict=True), strict=False):
            if known := [one for one in values if not np.isnan(one)]:  # NaN: no job ended
                self.logger.record(f"rollout/{name}", float(np.mean(known)))
        self._ended.clear()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._next:
            self._evaluate()

    def _on_training_end(self) -> None:
        self._evaluate()
