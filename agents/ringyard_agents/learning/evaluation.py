"""Evaluation during training: an agent's metric on unseen workloads, compared with baselines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.sim.metrics import Metrics
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, SchedulerEntry, scheduler_config, to_plain
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.evaluation.evaluate import EvaluationTask, check_tasks, run_tasks
from ringyard_agents.learning.episodes import Constraint
from ringyard_agents.learning.learner import Learner, Policy


def episode_metrics(policy: Policy, batch: ClusterBatch) -> list[Metrics]:
    """[clusters] metrics of whole episodes under a policy; cluster b plays workload b."""
    everyone = np.arange(batch.num_clusters)
    batch.reset(everyone, everyone)
    while len(active := np.flatnonzero(~(batch.done | batch.truncated))):
        actions = policy.act(batch.split(batch.observations), batch.masks)
        batch.replace_invalid(actions, active)
        batch.step(actions, active)
    return [batch.metrics(b) for b in everyone.tolist()]


def ratio(value: float, baseline: float) -> float:
    """The value over the baseline, NaN if the baseline is 0."""
    return value / baseline if baseline else float("nan")


def _over_worlds(values: Iterable[float]) -> float:
    """Geometric mean, so that environments with longer jobs count no more than others."""
    every = list(values)
    return every[0] if len(every) == 1 else float(np.prod(np.power(every, 1 / len(every))))


def _mean(episodes: Iterable[Metrics], metric: str) -> float:
    return float(np.mean([getattr(episode, metric) for episode in episodes]))


def rank(used: float | None, value: float) -> tuple[float, float]:
    """Sort key of agents, less is better: first by how far they exceed a constraint's bound, then by metric.

    Args:
        used: share of the bound that the agent uses; NaN or None without a constraint.
        value: of the metric.
    """
    if used is None or np.isnan(used):
        return 1.0, value
    return max(used, 1.0), value


#: attributes of an `Evaluation` that are saved
_STATE = ("best", "latest", "in_vain", "evaluated", "next", "best_used", "used")


class Evaluation:
    """Evaluations of a learner: the reward's metric on unseen workloads, and its ratio to baselines.

    Episodes ignore `limit_seconds` and end when every job has ended, as those of the baselines do. Otherwise
    each scheduler would be measured on other jobs. With several environments, the metric and the share used
    of a constraint's bound are geometric means of the environments' means. `rank` orders agents.

    Args:
        learner: is evaluated.
        worlds: {label: environment with the evaluation workloads}; their reward names the metric.
        every: decisions between evaluations.
        constraint: its price is set by each evaluation; None: there is none.

    Attributes:
        metric: its name.
        baselines: {name: metric on the same workloads}, to be set.
        best: best metric so far; infinity before the first evaluation.
        latest: metric at the last evaluation; NaN before the first.
        best_used: share of the constraint's bound that the best agent uses; infinity before the first
            evaluation, NaN without a constraint.
        used: the same at the last evaluation; NaN before the first, or without a constraint.
        in_vain: evaluations since the best.
        evaluated, next: decisions at the last evaluation, -1 before the first, and at the next.
        worlds: {label: environment} as it is played.
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
        self.evaluated = -1
        self.next = learner.decisions

    def evaluate(self) -> bool:
        """Evaluate the current agent and set the constraint's price; True if it is the best so far."""
        self.evaluated = self.learner.decisions
        self.next = self.evaluated + self.every
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
        """{curve: value} of the last evaluation."""
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
        price = 0.0 if self.constraint is None else self.constraint.price
        return {name: getattr(self, name) for name in _STATE} | {"price": price}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue the evaluations of an interrupted run; `state` may lack entries of later versions."""
        for name in set(_STATE) & set(state):
            setattr(self, name, state[name])
        if self.constraint is not None:
            self.constraint.price = float(state["price"])


class Unseen(NamedTuple):
    """The evaluation workloads of a run, on which schedulers are measured.

    Attributes:
        environments: {label: config} of the run.
        workloads: job tables in each.
        seed: of these.
        trust: full names of your own classes that agents may name; True trusts any.
    """

    environments: Mapping[str, DictConfig]
    workloads: int
    seed: int
    trust: Trust

    def means(self, entry: SchedulerEntry, metric: str) -> dict[str, float]:
        """{label of an environment: mean of a metric} of a scheduler.

        Raises:
            RingyardError: no such scheduler, or it cannot serve the jobs of an environment.
        """
        scheduler = to_plain(scheduler_config(entry, self.trust))
        means = {}
        for label, environment in self.environments.items():
            parts = {name: to_plain(environment[name]) for name in ENVIRONMENT_GROUPS}
            tasks = [
                EvaluationTask(entry.label, scheduler, parts, i, self.seed) for i in range(self.workloads)
            ]
            check_tasks(tasks[:1])  # the scheduler
            means[label] = _mean((one.metrics for one in run_tasks(tasks, 1, lambda result: None)), metric)
        return means


def baselines_of(schedulers: Sequence[Any], unseen: Unseen, metric: str) -> dict[str, float]:
    """{label of a scheduler: metric, as a geometric mean over environments}.

    Args:
        schedulers: entries of `evaluate.schedulers`.
        unseen: workloads to measure them on.
        metric: field of `Metrics`.

    Raises:
        RingyardError: no such scheduler, or it cannot serve the jobs of an environment.
    """
    entries = [SchedulerEntry.read(one, "evaluate.schedulers") for one in schedulers]
    return {entry.label: _over_worlds(unseen.means(entry, metric).values()) for entry in entries}


def constraint_of(
    learner: object, metric: str | None, most: Any, step: float, unseen: Unseen
) -> Constraint | None:
    """The constraint of a run, or None.

    Args:
        learner: supports a constraint if it has the attribute.
        metric: field of `Metrics`.
        most: a number, or the entry of a scheduler whose own metric is the bound.
        step: see `Constraint`.
        unseen: workloads to measure a scheduler on.

    Raises:
        ConfigurationError: a learner without support, only one of `metric` and `most`, a scheduler with a
            metric of 0, or episodes that are cut off, whose unfinished jobs would use nothing of the bound.
    """
    if metric is None and most is None:
        return None
    if not hasattr(learner, "constraint"):
        raise ConfigurationError(
            "constraint: this agent can keep none; expected one that scores jobs (agent=evolution, with"
            " action=scores observation=live_jobs), or no constraint.metric and constraint.most"
        )
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
    entry = SchedulerEntry.read(most, "constraint.most")
    bounds = unseen.means(entry, metric)
    for label, bound in bounds.items():
        if not bound > 0:
            raise ConfigurationError(
                f"constraint.most is {entry.label}, whose {metric} is {bound:g} (world {label});"
                " expected a scheduler that has more than 0, or a number"
            )
    return Constraint(metric, bounds, step)
