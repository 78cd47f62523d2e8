"""What happens during learning: evaluation, checkpoints, progress on screen."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.setting import Setting
from ringyard.sim.metrics import Metrics
from ringyard_agents.checkpoint import AGENT, LAST, save_model
from ringyard_agents.learning.agent import favourite_actions

__all__ = ["EvaluateAgent", "ShowProgress", "episode_metrics", "ratio"]


def episode_metrics(model: OnPolicyAlgorithm, setting: Setting) -> list[Metrics]:
    """[num_workloads] metrics under the policy's favourite actions, one episode each."""
    count = setting.num_workloads
    batch = ClusterBatch(setting, count)
    everyone = np.arange(count)
    batch.reset(everyone, everyone)
    model.policy.set_training_mode(False)
    active = np.flatnonzero(~(batch.done | batch.truncated))
    while len(active):
        actions = favourite_actions(model, batch, batch.masks)
        batch.valid(actions, active)
        batch.step(actions, active)
        active = np.flatnonzero(~(batch.done | batch.truncated))
    return [batch.metrics(b) for b in range(count)]


def ratio(value: float, baseline: float) -> float:
    """How many times the baseline; NaN beside a baseline of 0."""
    return value / baseline if baseline else float("nan")


class EvaluateAgent(BaseCallback):
    """Every so many decisions: the reward's metric on unseen workloads, its ratio to baselines, checkpoints.

    Writes `last.zip` at each evaluation and `agent.zip` whenever the metric is the least so far.

    Args:
        setting: with the evaluation workloads; its reward names the metric.
        baselines: {name: mean of the metric on the same workloads}.
        every: decisions between evaluations.
        folder: for the checkpoints.
        best: metric of the best agent so far, when a run goes on.
    """

    def __init__(
        self,
        setting: Setting,
        baselines: Mapping[str, float],
        every: int,
        folder: Path,
        best: float = float("inf"),
    ) -> None:
        super().__init__()
        self.setting = setting
        self.metric = setting.reward.metric
        self.baselines = baselines
        self.every = every
        self.folder = folder
        self.best = best
        #: the metric at the last evaluation
        self.latest = float("nan")
        self._next = 0

    def _on_training_start(self) -> None:
        self._next = self.num_timesteps

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self._next:
            self._next = self.num_timesteps + self.every
            self._evaluate()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._evaluate()

    def _evaluate(self) -> None:
        assert isinstance(self.model, OnPolicyAlgorithm)
        episodes = episode_metrics(self.model, self.setting)
        self.latest = float(np.mean([getattr(episode, self.metric) for episode in episodes]))
        self.logger.record(f"eval/{self.metric}", self.latest)
        for name, value in self.baselines.items():
            self.logger.record(f"eval/{self.metric}_ratio_to_{name}", ratio(self.latest, value))
        self.logger.dump(self.num_timesteps)
        save_model(self.model, self.folder / LAST)
        if self.latest < self.best:
            self.best = self.latest
            save_model(self.model, self.folder / AGENT)


class ShowProgress(BaseCallback):
    """A progress bar with the latest evaluation.

    Args:
        total: decisions to learn from.
        evaluation: whose result is shown.
        console: where.
    """

    def __init__(self, total: int, evaluation: EvaluateAgent, console: Console) -> None:
        super().__init__()
        self.total = total
        self.evaluation = evaluation
        self._bar = Progress(
            TextColumn("learning"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} decisions"),
            TextColumn("{task.fields[latest]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )

    def _on_training_start(self) -> None:
        self._bar.start()
        self._task = self._bar.add_task("learning", total=self.total, latest="")

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        found = self.evaluation
        ratios = [f"{ratio(found.latest, value):.3f} x {name}" for name, value in found.baselines.items()]
        self._bar.update(
            self._task,
            completed=min(self.num_timesteps, self.total),
            latest=f"{found.metric} " + ", ".join(ratios),
        )

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()
