"""`JctCallback`: learning curves of Stable-Baselines3's own algorithms, as those of `ringyard train`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hydra
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from ringyard.checks import PositiveInt, require
from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.learning.evaluation import EvaluationWorkloads, episode_metrics, measure_baselines
from ringyard_agents.learning.models import ModelPolicy

_EPISODE = ("episode_jct", "episode_slowdown", "episode_preemptions")
#: `evaluate.workload_seed` of `ringyard train`
_WORKLOAD_SEED = 1_000_000


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
        self.every, self.workloads, self.schedulers = every, workloads, schedulers
        self._next = 0
        self._ended: list[list[float]] = []

    def _on_training_start(self) -> None:
        spec = self.training_env.get_attr("spec")[0]
        if spec is None or "config" in spec.kwargs:
            raise ConfigurationError(
                "JctCallback: the environment was not made by its id; expected one such as"
                ' gymnasium.make("ringyard/Sharing-Weights-v0")'
            )
        words = [f"{name}={value}" for name, value in spec.kwargs.items() if isinstance(value, str)]
        config = replace(self.training_env.get_attr("config")[0], limit_seconds=None)
        with hydra_initialized():
            environments = {"": hydra.compose("train", [one for one in words if "render_mode" not in one])}
            tested = EvaluationWorkloads(environments, self.workloads, _WORKLOAD_SEED, ())
            self._baselines = measure_baselines(self.schedulers, tested, "mean_jct")
        config = replace(config, num_workloads=self.workloads, workload_seed=_WORKLOAD_SEED)
        self._batch = ClusterBatch(config, self.workloads)

    def _on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
            if done:
                self._ended.append([float(info[name]) for name in _EPISODE])
        return True

    def _evaluate(self) -> None:
        self._next = self.num_timesteps + self.every
        policy = ModelPolicy(self.model, flat=True, scores=True)
        metrics = episode_metrics(policy, self._batch)
        self.logger.record("eval/mean_jct", float(np.mean([one.mean_jct for one in metrics])))
        for name, value in self._baselines.items():
            self.logger.record(f"baselines/{name}", value)
        self.logger.dump(self.num_timesteps)

    def _on_rollout_end(self) -> None:
        if self._ended:
            for name, mean in zip(_EPISODE, np.mean(self._ended, 0), strict=True):
                self.logger.record(f"rollout/{name}", float(mean))
            self._ended.clear()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._next:
            self._evaluate()

    def _on_training_end(self) -> None:
        self._evaluate()
