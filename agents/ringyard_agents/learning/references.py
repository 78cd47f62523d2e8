"""What schedulers reach on the evaluation workloads: a run's baselines, and the bounds of a constraint."""

from collections.abc import Mapping

import numpy as np
from omegaconf import DictConfig

from ringyard.errors import ConfigurationError
from ringyard_agents.configuration import WORLD, Entry, plain, scheduler_config
from ringyard_agents.evaluation.evaluate import Task, check, run_all
from ringyard_agents.learning.constraint import Constraint
from ringyard_agents.learning.evaluation import over_worlds

__all__ = ["baselines_of", "constraint_of"]


def baselines_of(config: DictConfig, worlds: Mapping[str, DictConfig], metric: str) -> dict[str, float]:
    """{label: the metric, over the worlds} of each of `evaluate.schedulers`.

    Args:
        config: of `ringyard train`.
        worlds: of the run, by label.
        metric: field of `Metrics`.

    Raises:
        RingyardError: no such scheduler, or it cannot serve the jobs of a world.
    """
    entries = [Entry.read(one, "evaluate.schedulers") for one in plain(config.evaluate.schedulers)]
    return {entry.label: over_worlds(_means(entry, config, worlds, metric).values()) for entry in entries}


def constraint_of(config: DictConfig, worlds: Mapping[str, DictConfig]) -> Constraint | None:
    """What the agent has to keep, if anything.

    Args:
        config: of `ringyard train`.
        worlds: of the run, by label.

    Raises:
        ConfigurationError: half a constraint, a scheduler whose own metric is no bound, or episodes that are
            cut off: jobs that do not end would use nothing of it.
    """
    given = config.constraint
    most = plain(given)["most"]
    if given.metric is None and most is None:
        return None
    if given.metric is None or most is None:
        raise ConfigurationError(
            f"constraint.metric is {given.metric} and constraint.most is {most}; expected both, such as"
            " constraint.metric=worst_fairness constraint.most=themis, or neither"
        )
    for label, world in worlds.items():
        if world.limit_seconds is not None:
            raise ConfigurationError(
                f"constraint: limit_seconds is {world.limit_seconds} (world {label}), and jobs that it cuts"
                " off use nothing of a bound; expected limit_seconds=null beside a constraint"
            )
    if isinstance(most, int | float):
        return Constraint(given.metric, dict.fromkeys(worlds, float(most)), given.step)
    entry = Entry.read(most, "constraint.most")
    bounds = _means(entry, config, worlds, given.metric)
    for label, bound in bounds.items():
        if not bound > 0:
            raise ConfigurationError(
                f"constraint.most is {entry.label}, whose {given.metric} is {bound:g} (world {label});"
                " expected a scheduler that has more than 0, or a number"
            )
    return Constraint(given.metric, bounds, given.step)


def _means(
    entry: Entry, config: DictConfig, worlds: Mapping[str, DictConfig], metric: str
) -> dict[str, float]:
    """{label: a scheduler's mean of a metric over the evaluation workloads} of each world."""
    scheduler, evaluate = plain(scheduler_config(entry, config.trust)), config.evaluate
    means = {}
    for label, world in worlds.items():
        parts = {name: plain(world[name]) for name in WORLD}
        numbers = range(evaluate.workloads)
        tasks = [Task(entry.label, scheduler, parts, number, evaluate.workload_seed) for number in numbers]
        check(tasks[:1])  # the scheduler
        results = run_all(tasks, 1, lambda result: None)
        means[label] = float(np.mean([getattr(one.metrics, metric) for one in results]))
    return means
