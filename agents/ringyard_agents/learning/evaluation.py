"""Evaluation during training: the metric of an agent on unseen workloads, and that of baselines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.sim.metrics import Metrics
from ringyard_agents.config.compose import SchedulerEntry, plain_groups, scheduler_config, to_plain
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.evaluation.evaluate import EvaluationTask, check_tasks, run_tasks
from ringyard_agents.learning.episodes import Constraint
from ringyard_agents.learning.learner import Learner, Policy
from ringyard_agents.report.tables import SECONDS, change_text


def episode_metrics(policy: Policy, batch: ClusterBatch) -> list[Metrics]:
    """Run a `policy` for one episode in each cluster b of a `batch`, with workload b. Returns the metrics."""
    clusters = np.arange(batch.num_clusters)
    batch.reset(clusters, clusters)
    while len(active := np.flatnonzero(~(batch.done | batch.truncated))):
        actions = policy.act(batch.split(batch.observations), batch.masks)
        batch.replace_invalid(actions, active)
        batch.step(actions, active)
    return [batch.metrics(b) for b in clusters.tolist()]


def _geometric_mean(values: Iterable[float]) -> float:
    """Average over environments, so that those with longer jobs do not count more."""
    terms = list(values)
    return terms[0] if len(terms) == 1 else float(np.prod(np.power(terms, 1 / len(terms))))


def _mean(episodes: Iterable[Metrics], metric: str) -> float:
    return float(np.mean([getattr(episode, metric) for episode in episodes]))


def agent_sort_key(bound_ratio: float | None, value: float) -> tuple[float, float]:
    """Sort key of agents: how far they exceed a constraint's bound (NaN, None: none), then `value`."""
    if bound_ratio is None or np.isnan(bound_ratio):
        return 1.0, value
    return max(bound_ratio, 1.0), value


#: {key in a saved run: attribute of `Evaluation`}
_STATE = {"best": "best", "best_used": "best_bound_ratio", "latest": "latest", "used": "bound_ratio"}
_STATE |= {"in_vain": "evaluations_since_best", "evaluated": "last_evaluation", "next": "next_evaluation"}


@dataclass(eq=False)
class Evaluation:
    """Evaluates a learner: the metric of its reward on unseen workloads, and the ratio to baselines.

    Episodes ignore `limit_seconds` and end when every job has ended, as those of the baselines do. Otherwise
    each scheduler would be measured on other jobs. With several environments, the metric and the ratio to a
    constraint's bound are geometric means of the environments' means. `agent_sort_key` defines the best. Each
    evaluation updates the multiplier of the constraint.
    """

    learner: Learner
    environments: Mapping[str, EnvConfig]  #: {label: environment}, later without a time limit
    eval_freq: int  #: decisions between evaluations
    constraint: Constraint | None = None
    #: {name: metric on the same workloads}, to be set by the caller
    baselines: Mapping[str, float] = field(default_factory=dict, init=False)
    #: metric at the first evaluation, before learning. None before it, and in a run that continues
    first: float | None = field(default=None, init=False)
    best: float = field(default=np.inf, init=False)  #: best metric so far
    latest: float = field(default=np.nan, init=False)  #: metric at the last evaluation
    #: ratio of the constrained metric to its bound for the best agent. NaN without a constraint
    best_bound_ratio: float = field(default=np.inf, init=False)
    bound_ratio: float = field(default=np.nan, init=False)  #: the same at the last evaluation
    evaluations_since_best: int = field(default=0, init=False)  #: number of evaluations after the best
    last_evaluation: int = field(default=-1, init=False)  #: decisions at it. -1 before the first

    def __post_init__(self) -> None:
        #: name of the metric, a field of `Metrics`. Less is better
        self.metric = next(iter(self.environments.values())).reward.metric
        # rewards are not read, so no episodes with equal scores are played for them
        configs = {
            label: replace(one, limit_seconds=None, reward=replace(one.reward, saved=False))
            for label, one in self.environments.items()
        }
        self._batches = {label: ClusterBatch(one, one.num_workloads) for label, one in configs.items()}
        self.environments, self._means = configs, dict[str, float]()
        self.next_evaluation = self.learner.decisions  #: decisions from which the next is due

    def evaluate(self) -> bool:
        """Evaluate the current policy and update the multiplier. Returns True if it is the best so far."""
        self.last_evaluation = self.learner.decisions
        self.next_evaluation = self.last_evaluation + self.eval_freq
        policy = self.learner.policy
        episodes = {label: episode_metrics(policy, batch) for label, batch in self._batches.items()}
        self._means = {label: _mean(metrics, self.metric) for label, metrics in episodes.items()}
        self.latest = _geometric_mean(self._means.values())
        if self.last_evaluation == 0:
            self.first = self.latest
        if self.constraint is not None:
            ratios = self.constraint.ratios_to_bound
            self.bound_ratio = _geometric_mean(float(ratios(*one).mean()) for one in self._batches.items())
            self.constraint.update_multiplier(self.bound_ratio)
        best_key = agent_sort_key(self.best_bound_ratio, self.best)
        better = agent_sort_key(self.bound_ratio, self.latest) < best_key
        if better:
            self.best, self.best_bound_ratio = self.latest, self.bound_ratio
        self.evaluations_since_best = 0 if better else self.evaluations_since_best + 1
        return better

    @property
    def scalars(self) -> dict[str, float]:
        """{TensorBoard tag: value} of the last evaluation."""
        scalars = {f"eval/{self.metric}": self.latest}
        scalars |= {f"baselines/{name}": value for name, value in self.baselines.items()}
        for name, value in self.baselines.items():
            scalars[f"eval/{self.metric}_ratio_to_{name}"] = self.latest / value if value else np.nan
        if len(self._means) > 1:
            scalars |= {f"eval/{label}/{self.metric}": mean for label, mean in self._means.items()}
        if self.constraint is not None:
            scalars[f"eval/{self.constraint.metric}_ratio_to_bound"] = self.bound_ratio
            scalars["eval/lagrange_multiplier"] = self.constraint.multiplier
        return scalars

    @property
    def rows(self) -> list[dict[str, str]]:
        """Rows of a table: the metric of baselines, before learning and of the best agent, changes to it."""
        metric = self.metric + (" (s)" if self.metric.startswith(SECONDS) else "")
        before = {} if self.first is None else {"before learning": self.first}
        others = {**self.baselines, **before}
        changes = {name: change_text(self.best / value) for name, value in others.items() if value}
        found = {**others, "best agent": self.best}.items()
        texts = {name: f"{value:,.0f}" if value >= 100 else f"{value:.3f}" for name, value in found}
        return [{"": name, metric: text, "change": changes.get(name, "")} for name, text in texts.items()]

    def state(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        multiplier = 0.0 if self.constraint is None else self.constraint.multiplier
        return {key: getattr(self, name) for key, name in _STATE.items()} | {"price": multiplier}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`. Entries that an earlier version did not have may be missing."""
        for key in set(_STATE) & set(state):
            setattr(self, _STATE[key], state[key])
        if self.constraint is not None:
            self.constraint.multiplier = float(state["price"])


class EvaluationWorkloads(NamedTuple):
    """The evaluation workloads of a run, on which baselines are measured."""

    environments: Mapping[str, DictConfig]  #: {label: config} of the run
    num_workloads: int  #: number of job tables in each environment
    seed: int  #: seed of the job tables
    trust: Trust  #: full names of your own classes that agents may name. True trusts any class.

    def mean_metrics(self, entry: SchedulerEntry, metric: str) -> dict[str, float]:
        """Return {label of an environment: mean of a `metric`} of the scheduler of an `entry`."""
        scheduler = to_plain(scheduler_config(entry, self.trust))
        means = {}
        for label, environment in self.environments.items():
            parts = plain_groups(environment)
            indices = range(self.num_workloads)
            tasks = [EvaluationTask(entry.label, scheduler, parts, i, self.seed) for i in indices]
            check_tasks(tasks[:1])  # raises an error early if the scheduler does not support the jobs
            means[label] = _mean((one.metrics for one in run_tasks(tasks, 1, lambda result: None)), metric)
        return means

    def measure_baselines(self, schedulers: Sequence[Any], metric: str) -> dict[str, float]:
        """Return {label: geometric mean over environments of the mean metric} of `evaluate.schedulers`."""
        entries = [SchedulerEntry.read(one, "evaluate.schedulers") for one in schedulers]
        return {entry.label: _geometric_mean(self.mean_metrics(entry, metric).values()) for entry in entries}

    def build_constraint(
        self, learner: Any, metric: str | None, bound: Any, multiplier_learning_rate: float
    ) -> Constraint | None:
        """Build the constraint of a run from the settings `constraint.*` (None: there is none).

        The `learner` must have the attribute `constraint`. A `bound` is a number, or the metric of the entry
        of a scheduler: not 0, and with all jobs, none cut off by a time limit.
        """
        if metric is None and bound is None:
            return None
        if not hasattr(learner, "constraint"):
            raise ConfigurationError(
                "constraint: this agent does not support constraints; expected one that scores jobs"
                " (agent=evolution, with action=scores observation=live_jobs), or no constraint.metric and"
                " constraint.bound"
            )
        if metric is None or bound is None:
            raise ConfigurationError(
                f"constraint.metric is {metric} and constraint.bound is {bound}; expected both, such as"
                " constraint.metric=worst_fairness constraint.bound=themis, or neither"
            )
        is_number = isinstance(bound, int | float)
        for label, environment in self.environments.items():
            if environment.reward._target_.endswith(".saved_job_completion_time"):
                raise ConfigurationError(
                    "constraint: penalties are scaled by returns, which are near 0 with reward=saved_jct;"
                    " expected reward=total_jct"
                )
            if metric == "cost" and (environment.cost._target_.endswith(".no_cost") or not is_number):
                raise ConfigurationError(
                    'constraint: constraint.metric=cost is the sum of info["cost"], which schedulers do not'
                    " have; expected a number as constraint.bound, and a cost such as"
                    " cost=slowdown_violations"
                )
            if environment.limit_seconds is not None:
                raise ConfigurationError(
                    f"constraint: limit_seconds is {environment.limit_seconds} (environment {label}), and"
                    " jobs that it cuts off do not count towards the bound; expected limit_seconds=null"
                )
        if is_number:
            bounds = dict.fromkeys(self.environments, float(bound))
            return Constraint(metric, bounds, multiplier_learning_rate)
        entry = SchedulerEntry.read(bound, "constraint.bound")
        bounds = self.mean_metrics(entry, metric)
        for label, value in bounds.items():
            if not value > 0:
                raise ConfigurationError(
                    f"constraint.bound is {entry.label}, and its {metric} is {value:g} (environment {label})"
                    "; expected a scheduler with more than 0, or a number"
                )
        return Constraint(metric, bounds, multiplier_learning_rate)
