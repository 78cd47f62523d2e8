"""Types of the settings of each command. Groups are checked against the functions that they call."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf

from ringyard.checks import Positive, PositiveInt, require
from ringyard.errors import ConfigurationError, ConfigurationWarning
from ringyard.renamed import explain_renamed
from ringyard.sim.metrics import Window
from ringyard_agents.config.target_validation import check_targets

#: range of the seeds of random generators
Seed = Annotated[int, "[0, 4294967295]"]
#: a number that may be written as 1e6
Decisions = Annotated[float, "[1, 1e15]"]
#: bound of a metric, in a range that keeps penalties finite
MetricBound = Annotated[float, "[1e-6, 1e12]"]
#: fields of Metrics that are minimised
_JctMetric = Literal["mean_jct", "median_jct", "p95_jct", "p99_jct", "makespan", "mean_queueing"]
_RatioMetric = Literal["mean_slowdown", "mean_fairness", "worst_fairness", "blocking_rate"]
MinimizedMetric = Literal[_JctMetric, _RatioMetric]
TrustSetting = bool | str | Sequence[str]
Group = Mapping[str, object]

#: groups of what an agent observes, does and is rewarded for
_AGENT_GROUPS = ("action", "observation", "reward")

#: settings of conf/run.yaml and conf/env_config.yaml, without `name`, which is checked with the run's folder
_COMMON_SETTINGS = {
    "seed": Seed,
    "overwrite": bool,
    "environment_id": str | None,
    "benchmark": bool,
    "limit_seconds": Positive | None,
    **dict.fromkeys(("cluster", "workload", "performance", "restart", "failures"), Group),
    **dict.fromkeys((*_AGENT_GROUPS, "start_placement"), Group),
}

#: {command: {setting of conf/<command>.yaml: annotation}}
SETTINGS: dict[str, dict[str, Any]] = {
    "simulate": _COMMON_SETTINGS
    | {
        "scheduler": Group,
        "placement": Group,
        "round_seconds": Positive | None,
        "rounds_only": bool,
        "measured_jobs": Window,
        "output.jobs_csv": str | None,
        "output.gantt": str | None,
        "output.video": str | None,
        "output.frames": Annotated[int, "[1, 100000]"],
    },
    "compare": _COMMON_SETTINGS
    | {
        "schedulers": str | Sequence[str | Group],
        "experiments": Sequence[str] | None,
        "tuning": str | None,
        "seeds": Annotated[int, "[1, 1000000]"],
        "measured_jobs": Window,
        "reference": str | None,
        "workers": Annotated[int, "[1, 10000]"] | None,
        "rerun": bool,
        "trust": TrustSetting,
        "tensorboard": bool | None,
        "plots": bool | None,
        "wide": bool,
    },
    "watch": _COMMON_SETTINGS
    | {
        "schedulers": str | Sequence[str | Group],
        "workload_number": Annotated[int, "[0, 1000000]"],
        "out": str | None,
        "trust": TrustSetting,
    },
    "tune": _COMMON_SETTINGS
    | {
        "schedulers": str | Sequence[str],
        "rules": Annotated[Sequence[str], "not empty"],
        "rules_for_sharing": Sequence[str],
        "rules_for_types": Sequence[str],
        "options": Mapping[str, Mapping[str, Sequence[object]]],
        "seeds": Annotated[int, "[1, 1000000]"],
        "screening_seeds": Annotated[int, "[1, 1000000]"],
        "finalists": PositiveInt,
        "tolerance": Annotated[float, "[0, 1]"],
        "fast_schedulers": Sequence[str],
        "fast_seeds": Annotated[int, "[1, 1000000]"],
        "measured_jobs": Window,
        "metric": MinimizedMetric,
        "workers": Annotated[int, "[1, 10000]"] | None,
        "rerun": bool,
        "output": str | None,
    },
    "fit-hazard": _COMMON_SETTINGS
    | {
        "loads": Annotated[Sequence[Positive], "not empty"] | None,
        "windows": PositiveInt,
        "held_out": Annotated[float, "(0, 1)"],
        "source": str,
        "file": str | None,
    },
    "train": _COMMON_SETTINGS
    | {
        "agent": Group,
        "callbacks": Group,
        "total_decisions": Annotated[float, "[0, 1e15]"],
        "num_workloads": PositiveInt,
        "num_threads": PositiveInt | None,
        "device": Literal["auto", "cpu", "cuda"],
        "init": str | None,
        "resume": str | None,
        "save_minutes": Positive,
        "plots": bool,
        "trust": TrustSetting,
        "environments": Sequence[str | Group],
        "constraint.metric": MinimizedMetric | None,
        "constraint.bound": MetricBound | str | Group | None,
        "constraint.multiplier_learning_rate": Annotated[float, "(0, 1000]"],
        "evaluate.every": Decisions,
        "evaluate.workloads": PositiveInt,
        "evaluate.workload_seed": Seed,
        "evaluate.patience": PositiveInt | None,
        "evaluate.prune": Literal["median", "successive_halving"] | None,
        "evaluate.schedulers": Sequence[str | Group],
    },
}


def check_settings(command: str, config: DictConfig) -> None:
    """Check a composed config against `SETTINGS`."""
    for path in _paths(config):
        if renamed := explain_renamed("settings", path):
            raise ConfigurationError(renamed)
    # an experiment may have settings of several commands
    known = {path.partition(".")[0] for settings in SETTINGS.values() for path in settings}
    known |= {"name", "experiment", "form", "debug", "sweep", *_PER_SCHEDULER_FORMS}
    for name in map(str, config):
        if name not in known and (near := get_close_matches(name, known, 1, 0.85)):
            raise ConfigurationError(f"there is no setting {name}; expected {near[0]}")
    for name, annotation in SETTINGS[command].items():
        part, _, key = name.rpartition(".")
        around = OmegaConf.select(config, part) if part else config
        if not isinstance(around, DictConfig) or key not in around:
            raise ConfigurationError(f"{name} is missing; give {name}=...")
        value = around[key]
        is_container = OmegaConf.is_config(value)
        require(name, OmegaConf.to_container(value, resolve=True) if is_container else value, annotation)


def _paths(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Dotted paths of all keys of a config."""
    for name in config:
        path = prefix + str(name)
        yield path
        value = config._get_node(name)
        if isinstance(value, DictConfig) and not value._is_none():
            yield from _paths(value, f"{path}.")


def check_groups(command: str, config: DictConfig) -> None:
    """Check the arguments in all groups of a config before anything is called."""
    for name, group in OmegaConf.to_container(config, resolve=False).items():  # type: ignore[union-attr]
        check_targets(str(name), group)
    if "schedulers" not in SETTINGS[command]:
        return
    for group, form in _PER_SCHEDULER_FORMS.items():
        if group in config:
            raise ConfigurationError(
                f"`ringyard {command}` has no {group}, since it runs several schedulers; expected {form}"
            )


def warn_unused_settings(command: str, words: Sequence[str]) -> None:
    """Warn of overrides of action, observation and reward in a command that trains no agent."""
    has_model = any(".zip" in word for word in words)  # reads the observation and does the action
    used = ("action", "observation") if has_model else ()
    groups = {word: re.split("[.=@]", word.lstrip("+~"))[0] for word in words}
    unused = [word for word, group in groups.items() if group in _AGENT_GROUPS and group not in used]
    if command != "train" and unused:
        found = f"{' '.join(unused)} has no effect on `ringyard {command}`"
        why = "schedulers do not use it, and agents use what they were trained with"
        text = f"{found}: {why}; give it to `ringyard train`"
        warnings.warn(text, ConfigurationWarning, stacklevel=2)


#: {group of one scheduler: how `schedulers` sets it for several}
_PER_SCHEDULER_FORMS = {
    "scheduler": '"schedulers=[fifo, {mine: {scheduler: sjf@pack, options: {reserve_unplaced: true}}}]"',
    "placement": "schedulers=[fifo@pack, sjf@pack]",
}
