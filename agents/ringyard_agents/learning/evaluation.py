"""How good an agent is while it learns: its metric on unseen workloads, beside that of baselines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.sim.metrics import Metrics
from ringyard_agents.config.compose import WORLD, Entry, plain, scheduler_config
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.evaluation.evaluate import Task, check, run_all
from ringyard_agents.learning.episodes import Constraint
from ringyard_agents.learning.learner import Learner, Policy


def episode_metrics(policy: Policy, batch: ClusterBatch) -> list[Metrics]:
    """[clusters] metrics under a policy: cluster b plays workload b from its beginning."""
    everyone = np.arange(batch.num_clusters)
    batch.reset(everyone, everyone)
    while len(active := np.flatnonzero(~(batch.done | batch.truncated))):
        actions = policy.act(batch.split(batch.observations), batch.masks)
        batch.valid(actions, active)
        batch.step(actions, active)
    return [batch.metrics(b) for b in everyone.tolist()]


def ratio(value: float, baseline: float) -> float:
    """The value over the baseline; NaN beside a baseline of 0."""
    return value / baseline if baseline else float("nan")


def _over_worlds(values: Iterable[float]) -> float:
    """The geometric mean: worlds of longer jobs count no more than others."""
    every = list(values)
    return every[0] if len(every) == 1 else float(np.prod(np.power(every, 1 / len(every))))


def _mean(episodes: Iterable[Metrics], metric: str) -> float:
    return float(np.mean([getattr(episode, metric) for episode in episodes]))


def rank(used: float | None, value: float) -> tuple[float, float]:
    """How good an agent is; less is better: keeping a constraint comes first, then using less of its bound.

    Args:
        used: share of the constraint's bound that it uses; NaN or None: there is no constraint.
        value: of the metric.
    """
    if used is None or np.isnan(used):
        return 1.0, value
    return max(used, 1.0), value


class Evaluation:
    """Every so many decisions: the reward's metric on unseen workloads, and its ratio to baselines.

    Episodes end when every job has ended, whatever their `limit_seconds`, as those of the baselines do: means
    of the jobs that happen to end before a limit are of other jobs under each scheduler.

    In several worlds it is the geometric mean of each world's mean; so is the share of a constraint's bound
    that is used. `rank` orders agents.

    Args:
        learner: that is evaluated.
        worlds: {label: setting with the evaluation workloads}; their reward names the metric.
        every: decisions between evaluations.
        constraint: whose price it sets; None: there is none.

    Attributes:
        metric: its name.
        baselines: {name: the metric on the same workloads}, to be set.
        best: of the best so far; infinity before the first evaluation.
        latest: at the last evaluation; NaN before the first.
        best_used: share of the constraint's bound that the best so far uses; infinity before the first
            evaluation, NaN without a constraint.
        used: the same at the last evaluation; NaN before the first, or without a constraint.
        in_vain: evaluations since the best.
        worlds: as they are played.
    """

    def __init__(
        self,
        learner: Learner,
        worlds: Mapping[str, EnvConfig],
        every: int,
        constraint: Constraint | None = None,
    ) -> None:
        self.learner = learner
        self.metric = next(iter(worlds.values())).reward.metric
        self.constraint = constraint
        self.baselines: Mapping[str, float] = {}
        self.every = every
        self.best, self.best_used = float("inf"), float("inf")
        self.latest, self.used = float("nan"), float("nan")
        self.in_vain = 0
        self._means: dict[str, float] = {}
        self.worlds = {label: replace(one, limit_seconds=None) for label, one in worlds.items()}
        self._batches = {label: ClusterBatch(one, one.num_workloads) for label, one in self.worlds.items()}
        self._evaluated = -1
        self._next = learner.decisions

    @property
    def due(self) -> bool:
        """It is time for one."""
        return self.learner.decisions >= self._next

    @property
    def up_to_date(self) -> bool:
        """The agent as it is has been evaluated."""
        return self._evaluated == self.learner.decisions

    @property
    def number(self) -> int:
        """Number of the last evaluation, by the decisions learnt from; the first is 0."""
        return round(self._evaluated / self.every)

    def evaluate(self) -> bool:
        """Measure the agent as it is, and set the constraint's price; True: it is the best so far."""
        self._evaluated = self.learner.decisions
        self._next = self._evaluated + self.every
        episodes = {
            label: episode_metrics(self.learner.policy, batch) for label, batch in self._batches.items()
        }
        self._means = {label: _mean(of_world, self.metric) for label, of_world in episodes.items()}
        self.latest = _over_worlds(self._means.values())
        if self.constraint is not None:
            used = self.constraint.used
            self.used = _over_worlds(float(used(label, one).mean()) for label, one in episodes.items())
            self.constraint.adjust(self.used)
        better = rank(self.used, self.latest) < rank(self.best_used, self.best)
        if better:
            self.best, self.best_used = self.latest, self.used
        self.in_vain = 0 if better else self.in_vain + 1
        return better

    @property
    def curves(self) -> dict[str, float]:
        """The last evaluation, {curve: value}."""
        found = {f"eval/{self.metric}": self.latest}
        found |= {f"baselines/{name}": value for name, value in self.baselines.items()}
        for name, value in self.baselines.items():
            found[f"eval/{self.metric}_ratio_to_{name}"] = ratio(self.latest, value)
        if len(self._means) > 1:
            found |= {f"eval/{label}/{self.metric}": mean for label, mean in self._means.items()}
        if self.constraint is not None:
            found[f"eval/{self.constraint.metric}_over_bound"] = self.used
            found["eval/price"] = self.constraint.price
        return found

    def state(self) -> dict[str, Any]:
        """Plain data for `restore`."""
        return {
            "best": self.best,
            "latest": self.latest,
            "in_vain": self.in_vain,
            "evaluated": self._evaluated,
            "next": self._next,
            "best_used": self.best_used,
            "used": self.used,
            "price": 0.0 if self.constraint is None else self.constraint.price,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the evaluations of an interrupted run."""
        self.best, self.latest = float(state["best"]), float(state["latest"])
        self.in_vain = int(state.get("in_vain", 0))
        self._evaluated, self._next = int(state["evaluated"]), int(state["next"])
        self.best_used = float(state.get("best_used", self.best_used))
        self.used = float(state.get("used", self.used))
        if self.constraint is not None:
            self.constraint.price = float(state["price"])


class Unseen(NamedTuple):
    """The evaluation workloads of a run, for schedulers to be measured on.

    Attributes:
        environments: {label: config} of the run.
        workloads: job tables in each.
        seed: of these.
        trust: classes that the checkpoints of schedulers may name.
    """

    environments: Mapping[str, DictConfig]
    workloads: int
    seed: int
    trust: Trust

    def means(self, entry: Entry, metric: str) -> dict[str, float]:
        """{label: a scheduler's mean of a metric} of each environment.

        Raises:
            RingyardError: no such scheduler, or it cannot serve the jobs of an environment.
        """
        scheduler = plain(scheduler_config(entry, self.trust))
        means = {}
        for label, environment in self.environments.items():
            parts = {name: plain(environment[name]) for name in WORLD}
            tasks = [Task(entry.label, scheduler, parts, i, self.seed) for i in range(self.workloads)]
            check(tasks[:1])  # the scheduler
            means[label] = _mean((one.metrics for one in run_all(tasks, 1, lambda result: None)), metric)
        return means


def baselines_of(schedulers: Sequence[Any], unseen: Unseen, metric: str) -> dict[str, float]:
    """{label: the metric, over the environments} of each scheduler.

    Args:
        schedulers: entries of `evaluate.schedulers`.
        unseen: workloads to measure them on.
        metric: field of `Metrics`.

    Raises:
        RingyardError: no such scheduler, or it cannot serve the jobs of an environment.
    """
    entries = [Entry.read(one, "evaluate.schedulers") for one in schedulers]
    return {entry.label: _over_worlds(unseen.means(entry, metric).values()) for entry in entries}


def constraint_of(metric: str | None, most: Any, step: float, unseen: Unseen) -> Constraint | None:
    """The constraint of a run; None: there is none.

    Args:
        metric: field of `Metrics`.
        most: a number, or the entry of a scheduler whose own metric is the bound.
        step: see `Constraint`.
        unseen: workloads to measure a scheduler on.

    Raises:
        ConfigurationError: half a constraint, a scheduler whose own metric is no bound, or episodes that are
            cut off: jobs that do not end would use nothing of it.
    """
    if metric is None and most is None:
        return None
    if metric is None or most is None:
        raise ConfigurationError(
            f"constraint.metric is {metric} and constraint.most is {most}; expected both, such as"
            " constraint.metric=worst_fairness constraint.most=themis, or neither"
        )
    for label, environment in unseen.environments.items():
        if environment.limit_seconds is not None:
            raise ConfigurationError(
                f"constraint: limit_seconds is {environment.limit_seconds} (world {label}), and jobs that it"
                " cuts off use nothing of a bound; expected limit_seconds=null beside a constraint"
            )
    if isinstance(most, int | float):
        return Constraint(metric, dict.fromkeys(unseen.environments, float(most)), step)
    entry = Entry.read(most, "constraint.most")
    bounds = unseen.means(entry, metric)
    for label, bound in bounds.items():
        if not bound > 0:
            raise ConfigurationError(
                f"constraint.most is {entry.label}, whose {metric} is {bound:g} (world {label});"
                " expected a scheduler that has more than 0, or a number"
            )
    return Constraint(metric, bounds, step)
