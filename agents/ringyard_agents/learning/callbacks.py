"""What happens during learning: evaluation, checkpoints, curves, progress on screen."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from stable_baselines3.common.logger import configure

from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.setting import Setting
from ringyard.sim.metrics import Metrics
from ringyard_agents.learning.checkpoint import AGENT, LAST, save_learner
from ringyard_agents.learning.learner import Learner, Policy

__all__ = ["Evaluation", "ProgressBar", "episode_metrics", "ratio"]


def episode_metrics(policy: Policy, setting: Setting) -> list[Metrics]:
    """[num_workloads] metrics under a policy, one episode each."""
    count = setting.num_workloads
    batch = ClusterBatch(setting, count)
    everyone = np.arange(count)
    batch.reset(everyone, everyone)
    active = np.flatnonzero(~(batch.done | batch.truncated))
    while len(active):
        actions = policy.act(batch.split(batch.observations), batch.masks)
        batch.valid(actions, active)
        batch.step(actions, active)
        active = np.flatnonzero(~(batch.done | batch.truncated))
    return [batch.metrics(b) for b in range(count)]


def ratio(value: float, baseline: float) -> float:
    """How many times the baseline; NaN beside a baseline of 0."""
    return value / baseline if baseline else float("nan")


class Evaluation:
    """Every so many decisions: the reward's metric on unseen workloads, its ratio to baselines, checkpoints.

    Writes curves between rounds of learning, `last.zip` at each evaluation, and `agent.zip` whenever the
    metric is the least so far.

    Args:
        learner: who learns.
        setting: with the evaluation workloads; its reward names the metric.
        baselines: {name: mean of the metric on the same workloads}.
        every: decisions between evaluations.
        folder: for the checkpoints and, in its `tensorboard`, the curves.
        best: metric of the best agent so far, when a run goes on.
    """

    def __init__(
        self,
        learner: Learner,
        setting: Setting,
        baselines: Mapping[str, float],
        every: int,
        folder: Path,
        best: float = float("inf"),
    ) -> None:
        self.learner = learner
        self.setting = setting
        self.metric = setting.reward.metric
        self.baselines = baselines
        self.every = every
        self.folder = folder
        self.best = best
        #: the metric at the last evaluation
        self.latest = float("nan")
        self._evaluated = -1
        self._next = learner.decisions
        self._curves = configure(str(folder / "tensorboard"), ["tensorboard", "csv"])

    def watch(self, measured: Mapping[str, float]) -> None:
        """Evaluate if it is time, and write the curves."""
        for name, value in measured.items():
            self._curves.record(name, value)
        if self.learner.decisions >= self._next:
            self._next = self.learner.decisions + self.every
            self._evaluate()
        self._curves.dump(self.learner.decisions)

    def finish(self) -> None:
        """Evaluate what has been learnt in the end."""
        if self._evaluated < self.learner.decisions:
            self._evaluate()
            self._curves.dump(self.learner.decisions)
        self._curves.close()

    def _evaluate(self) -> None:
        self._evaluated = self.learner.decisions
        episodes = episode_metrics(self.learner.policy, self.setting)
        self.latest = float(np.mean([getattr(episode, self.metric) for episode in episodes]))
        self._curves.record(f"eval/{self.metric}", self.latest)
        for name, value in self.baselines.items():
            self._curves.record(f"eval/{self.metric}_ratio_to_{name}", ratio(self.latest, value))
        save_learner(self.learner, self.folder / LAST)
        if self.latest < self.best:
            self.best = self.latest
            save_learner(self.learner, self.folder / AGENT)


class ProgressBar:
    """A progress bar with the latest evaluation; use it in a `with` block.

    Args:
        total: decisions to learn from.
        evaluation: whose result is shown.
        console: where.
    """

    def __init__(self, total: int, evaluation: Evaluation, console: Console) -> None:
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
        self._total = total
        self._task = self._bar.add_task("learning", total=total, latest="")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.stop()

    def show(self) -> None:
        """Show how far learning is."""
        found = self.evaluation
        ratios = [f"{ratio(found.latest, value):.3f} x {name}" for name, value in found.baselines.items()]
        self._bar.update(
            self._task,
            completed=min(found.learner.decisions, self._total),
            latest=f"{found.metric} " + ", ".join(ratios),
        )
