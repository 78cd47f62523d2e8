"""Evaluation from Python: `evaluate` and `compare`, with the workloads and columns of `ringyard compare`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import hydra
import pandas as pd
from hydra.errors import HydraException, InstantiationException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ringyard.checks import PositiveInt, require, shown, suggest
from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import require_experiment
from ringyard.mdp.user_config import hydra_initialized
from ringyard.observability import Observability
from ringyard_agents.command_line import one_line
from ringyard_agents.config import compose
from ringyard_agents.config.compose import INTERFACE_GROUPS, SchedulerEntry
from ringyard_agents.config.schema import check_groups, check_settings
from ringyard_agents.evaluation.evaluate import EvaluationTask, RunResult, build_object, run_scheduler
from ringyard_agents.evaluation.ranking import rank, schedulers_frame
from ringyard_agents.evaluation.results_frame import runs_frame
from ringyard_agents.evaluation.selection import COMPARISON_SEED_OFFSET, check_label, workload_environment
from ringyard_baselines.scheduler import Capabilities, Scheduler

#: attributes of a scheduler besides `decide`
_REQUIRED_ATTRIBUTES = ("name", "observability", "round_seconds", "reset")

#: settings of `ringyard compare` that are arguments here, or have no meaning outside of the command
_COMMAND_ONLY = (
    *("schedulers", "seeds", "reference", "experiment", "workers", "name", "overwrite", "experiments"),
    *("tuning", "rerun", "tensorboard", "plots"),
)


class _SchedulerAdapter(Scheduler):
    """Scheduler of an object with `decide(view)`, with defaults for the attributes that it lacks."""

    published = False

    def __init__(self, policy: Any) -> None:
        defaults = {"name": type(policy).__name__, "observability": Observability.SIZES}
        defaults |= {"capabilities": Capabilities.START, "reset": lambda cluster, jobs, rng: None}
        defaults |= dict.fromkeys(("round_seconds", "placement", "decide"))
        for name, value in defaults.items():
            setattr(self, name, getattr(policy, name, value))


def as_scheduler(given: Any) -> Scheduler:
    """Return an object with `decide(view)` as a scheduler, with defaults for attributes that it lacks."""
    complete = all(hasattr(given, name) for name in _REQUIRED_ATTRIBUTES)
    return given if complete else _SchedulerAdapter(given)  # type: ignore[abstract]


def _labelled_scheduler(given: Any, config: DictConfig) -> tuple[str, Scheduler]:
    """Return the label and the scheduler of a name or of an object. `config` is that of the comparison."""
    interface = compose.plain_groups(config, INTERFACE_GROUPS)
    label = None
    if isinstance(given, Mapping) and len(given) == 1 and not isinstance(next(iter(given.values())), Mapping):
        [(label, given)] = given.items()
        check_label(str(label))
        given = {label: {"scheduler": f"{label}:{given}"}} if isinstance(given, str) else given
    if isinstance(given, str | Mapping):
        entry = SchedulerEntry.read(given)
        try:
            return entry.label, build_object(
                compose.to_plain(compose.scheduler_config(entry, config.trust, interface))
            )
        except InstantiationException as error:
            raise (error.__cause__ or error) from None  # Hydra wraps our errors
    if not isinstance(given, type) and callable(getattr(given, "decide", None)):
        scheduler = as_scheduler(given)
        return str(label or scheduler.name), scheduler
    if isinstance(given, type) or not (callable(given) or hasattr(given, "predict")):
        raise ConfigurationError(
            f"scheduler is {shown(given)}; expected a name such as sjf@consolidate or zoo:sharing, a trained"
            " agent (ringyard_agents.load), an object with decide(view), a model of Stable-Baselines3, a"
            " torch module, or a function (observation, mask) -> action"
        )
    label = str(label or getattr(given, "__name__", type(given).__name__))
    actions = build_object(interface["action"])
    plain = compose.to_plain(hydra.compose("entry", ["scheduler=learned/agent"]).scheduler)
    loader = hydra.utils.instantiate({**plain, **interface, "name": label}, _partial_=True, _convert_="all")
    agent = loader(checkpoint=given)
    agent.require_spaces(build_object(compose.to_plain(config.cluster)), actions)
    return label, agent


def _compose_config(experiment: str | None, overrides: Sequence[str]) -> DictConfig:
    if isinstance(overrides, str):
        raise ConfigurationError(f"overrides is {overrides!r}; expected a list, such as [{overrides!r}]")
    for word in overrides:
        if str(word).lstrip("+~").partition("=")[0] in _COMMAND_ONLY:
            raise ConfigurationError(
                f"overrides: {word} has no effect here"
                "; use the argument of that name, or call `ringyard compare`"
            )
    try:
        config = hydra.compose("compare", [*([f"experiment={experiment}"] if experiment else []), *overrides])
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(f"overrides: {one_line(error)}") from error
    check_settings("compare", config)
    check_groups("compare", config)
    return config


def _run_all(
    schedulers: Sequence[Any], experiment: str | None, seeds: int, overrides: Sequence[str]
) -> list[RunResult]:
    """Run every scheduler on every workload, one after the other in this process."""
    require("seeds", seeds, PositiveInt)
    if experiment is not None:
        require_experiment(experiment)
    with hydra_initialized():
        config = _compose_config(experiment, overrides)
        labelled = [_labelled_scheduler(one, config) for one in schedulers]
    labels = [label for label, _ in labelled]
    if not labels or len(set(labels)) < len(labels):
        raise ConfigurationError(f"schedulers are {labels}; expected one or more with different names")
    environment = compose.plain_groups(config)
    seed, window = config.seed + COMPARISON_SEED_OFFSET, tuple(config.measured_jobs)
    results = []
    for workload in range(seeds):
        configs = workload_environment(environment, seed, workload)
        for label, scheduler in labelled:
            task = EvaluationTask(label, {}, configs, workload, seed, window)
            results.append(run_scheduler(scheduler, task))
    return results


def evaluate(
    scheduler: Any, experiment: str | None = None, seeds: int = 40, overrides: Sequence[str] = ()
) -> pd.DataFrame:
    """Run a scheduler on the workloads of `ringyard compare`, which no training draws.

    Args:
        scheduler: one of
            a name (`sjf@consolidate`, `zoo:sharing`, `mine:runs/x`, `mine:model.zip`) or an agent of `load`.
            an object with `decide(view) -> [Allocation, ...]`. Its other attributes are those of `Scheduler`.
            By default it sees `Observability.SIZES` and only starts jobs.
            a model of Stable-Baselines3 or sb3-contrib, a torch module, or a function
            `(observation, mask) -> action` (`ringyard_agents.learning.models.ModelPolicy`). Observation and
            actions are those of the experiment, or of `overrides` such as "action=scores".
            {label: one of these}.
        experiment: name of a file in conf/experiment, such as "sharing". None: the default cluster and jobs.
        seeds: number of workloads.
        overrides: further words of the command line: ("cluster.num_servers=8", "workload.load=1.2").

    Returns:
        One row per workload with the columns of `runs.csv`, which
        `ringyard_agents.evaluation.results_frame.Results` documents.

    Raises:
        ConfigurationError: an argument that is none of these.
        SchedulerError: the scheduler does what it did not declare, or never starts some jobs.
    """
    return runs_frame(_run_all([scheduler], experiment, seeds, overrides))


def compare(
    schedulers: Sequence[Any],
    experiment: str | None = None,
    seeds: int = 40,
    overrides: Sequence[str] = (),
    reference: str | None = None,
) -> pd.DataFrame:
    """Run several schedulers on the same workloads.

    Args:
        schedulers: schedulers as `evaluate` takes them, with different names.
        experiment: see `evaluate`.
        seeds: number of workloads.
        overrides: see `evaluate`.
        reference: name of the scheduler that the others are compared with. None: the best published one
            among those that only start jobs.

    Returns:
        One row per scheduler with the columns of `table.csv`, which
        `ringyard_agents.evaluation.ranking.schedulers_frame` documents. The best comes first among
        schedulers with equal capabilities.

    Raises:
        ConfigurationError: an argument that is none of these.
        SchedulerError: a scheduler does what it did not declare, or never starts some jobs.
    """
    if isinstance(schedulers, str) or not isinstance(schedulers, Iterable):
        example = schedulers if isinstance(schedulers, str) else "fifo"
        raise ConfigurationError(f"schedulers is {shown(schedulers)}; expected a list, such as [{example!r}]")
    runs = runs_frame(_run_all(schedulers, experiment, seeds, overrides))
    labels = sorted(set(runs["scheduler"]))
    if reference is not None and reference not in labels:
        expected = f"{suggest(reference, labels)}, or None"
        raise ConfigurationError(f"reference is {reference!r}; expected {expected}")
    return schedulers_frame(runs, rank(runs, reference))
