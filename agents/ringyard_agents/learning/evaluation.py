"""How good an agent is while it learns: the reward's metric on workloads it does not learn from."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.setting import Setting
from ringyard.sim.metrics import Metrics
from ringyard_agents.learning.learner import Learner, Policy

__all__ = ["Evaluation", "episode_metrics", "over_worlds", "ratio"]


def episode_metrics(policy: Policy, batch: ClusterBatch) -> list[Metrics]:
    """[clusters] metrics under a policy: cluster b plays workload b from its beginning."""
    everyone = np.arange(batch.num_clusters)
    batch.reset(everyone, everyone)
    active = np.flatnonzero(~(batch.done | batch.truncated))
    while len(active):
        actions = policy.act(batch.split(batch.observations), batch.masks)
        batch.valid(actions, active)
        batch.step(actions, active)
        active = np.flatnonzero(~(batch.done | batch.truncated))
    return [batch.metrics(b) for b in everyone.tolist()]


def ratio(value: float, baseline: float) -> float:
    """How many times the baseline; NaN beside a baseline of 0."""
    return value / baseline if baseline else float("nan")


def over_worlds(values: Iterable[float]) -> float:
    """The geometric mean: a world whose jobs take longer counts no more than another."""
    every = list(values)
    return every[0] if len(every) == 1 else float(np.prod(np.power(every, 1 / len(every))))


class Evaluation:
    """Every so many decisions: the reward's metric on unseen workloads, and its ratio to baselines.

    In several worlds it is the geometric mean (`over_worlds`) of each world's mean.

    Args:
        learner: who learns.
        worlds: {label: setting with the evaluation workloads}; their reward names the metric.
        every: decisions between evaluations.

    Attributes:
        metric: its name.
        baselines: {name: the metric on the same workloads}, to be set.
        best: the least so far; infinity before the first evaluation.
        latest: at the last evaluation; NaN before the first.
        in_vain: evaluations since the best.
    """

    def __init__(self, learner: Learner, worlds: Mapping[str, Setting], every: int) -> None:
        self.learner = learner
        self.metric = next(iter(worlds.values())).reward.metric
        self.baselines: Mapping[str, float] = {}
        self.every = every
        self.best = float("inf")
        self.latest = float("nan")
        self.in_vain = 0
        self._means: dict[str, float] = {}
        self._batches = {label: ClusterBatch(one, one.num_workloads) for label, one in worlds.items()}
        self._evaluated = -1
        self._next = learner.decisions

    @property
    def due(self) -> bool:
        """It is time for one."""
        return self.learner.decisions >= self._next

    @property
    def up_to_date(self) -> bool:
        """What was learnt last has been evaluated."""
        return self._evaluated == self.learner.decisions

    def evaluate(self) -> bool:
        """Measure the agent as it is; is it the best so far?"""
        self._evaluated = self.learner.decisions
        self._next = self._evaluated + self.every
        self._means = {label: self._mean(batch) for label, batch in self._batches.items()}
        self.latest = over_worlds(self._means.values())
        better = self.latest < self.best
        self.best = self.latest if better else self.best
        self.in_vain = 0 if better else self.in_vain + 1
        return better

    def _mean(self, batch: ClusterBatch) -> float:
        episodes = episode_metrics(self.learner.policy, batch)
        return float(np.mean([getattr(episode, self.metric) for episode in episodes]))

    @property
    def curves(self) -> dict[str, float]:
        """The last evaluation, {curve: value}."""
        ratios = {
            f"eval/{self.metric}_ratio_to_{name}": ratio(self.latest, value)
            for name, value in self.baselines.items()
        }
        several = self._means if len(self._means) > 1 else {}
        by_world = {f"eval/{label}/{self.metric}": mean for label, mean in several.items()}
        return {f"eval/{self.metric}": self.latest, **ratios, **by_world}

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as plain data."""
        return {
            **{"best": self.best, "latest": self.latest, "in_vain": self.in_vain},
            **{"evaluated": self._evaluated, "next": self._next},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the evaluations of an interrupted run."""
        self.best, self.latest = float(state["best"]), float(state["latest"])
        self.in_vain = int(state.get("in_vain", 0))
        self._evaluated, self._next = int(state["evaluated"]), int(state["next"])
