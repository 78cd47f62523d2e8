"""Environments of the experiments in `conf/experiment/NAME.yaml`, and plain arguments that change them.

`gymnasium.make("ringyard/Sharing-Queue-v0")` creates the environment of the experiment,
`gymnasium.make("ringyard/Sharing-Queue-v0", reward="makespan")` one with other parts, and
`gymnasium.make("ringyard/Sharing-Queue-v0", config=replace(experiment("sharing"), ...))` one with any change.
"""

import difflib
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_type_hints

from ringyard.checks import require, suggest
from ringyard.config_folder import config_files, config_folder
from ringyard.errors import ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.user_config import hydra_initialized
from ringyard.renamed import explain_renamed

if TYPE_CHECKING:
    from omegaconf import DictConfig

#: groups that a `form` chooses
_FORM_GROUPS = ("action", "observation", "reward")
#: groups of `conf` that make up an `EnvConfig`
_GROUPS = ("cluster", "workload", "performance", "restart", "failures", *_FORM_GROUPS, "cost")


class UnexpectedArgumentError(ConfigurationError, TypeError):
    """An argument that there is not. It is a TypeError, too, after which TorchRL leaves `frameskip` out."""


class ConfigArguments(TypedDict, total=False):
    """Arguments that change the configuration of an environment: texts, numbers and booleans, as JSON has."""

    cluster: str  #: name of a yaml in `conf/cluster`, or in that folder of a folder in RINGYARD_CONF
    workload: str  #: likewise
    performance: str  #: likewise
    restart: str  #: likewise
    failures: str  #: likewise
    action: str  #: likewise
    observation: str  #: likewise
    reward: str  #: likewise
    cost: str  #: likewise
    form: str  #: name of a yaml in `conf/form`: weights, jobs or queue, which choose the three before
    flat: bool  #: whether the observation is one Box instead of a Dict of blocks
    limit_seconds: float | None  #: as in `EnvConfig`
    num_workloads: int  #: as in `EnvConfig`
    workload_seed: int  #: as in `EnvConfig`


def require_experiment(name: str) -> None:
    """Raise a ConfigurationError unless there is a `conf/experiment/NAME.yaml`."""
    require("experiment", name, str)
    names = config_files("experiment")
    if name not in names:
        raise ConfigurationError(
            f"unknown experiment {name!r}; expected {suggest(name.split('/')[-1].split('-')[0], names)};"
            f" to add one, write {name}.yaml in {config_folder() / 'experiment'}"
        )


def experiment(name: str, **arguments: Unpack[ConfigArguments]) -> EnvConfig:
    """Return the `EnvConfig` of an experiment, as `ringyard train experiment=NAME` uses it.

    `num_workloads` and `workload_seed` have their defaults.

    Args:
        name: of a yaml in `conf/experiment`, or in the folder `experiment` of a folder in RINGYARD_CONF.
        arguments: what differs from the experiment, such as `action="scores"`. See `ConfigArguments`.

    Raises:
        ConfigurationError: no such experiment, argument or choice.
    """
    require_experiment(name)
    return choose_config(None, name, arguments)


def choose_config(config: EnvConfig | None, experiment: str | None, arguments: ConfigArguments) -> EnvConfig:
    """Return `config`, or without one that of an `experiment` (None: `EnvConfig()`) with the `arguments`."""
    require("config", config, EnvConfig | None)
    others: dict[str, Any] = dict(arguments)
    for argument, value in arguments.items():
        _check_argument(argument, value)
    if config is not None:
        if experiment is not None:
            others.pop("form", None)  # an id's own, which `config` replaces as it does the experiment
        if others:
            raise ConfigurationError(
                f"config is given together with {', '.join(others)}; expected one of them: change config with"
                " dataclasses.replace, or leave it out"
            )
        return config
    flat, choices = others.pop("flat", None), [group for group in _GROUPS if group in others]
    overrides = [f"{group}={others.pop(group)}" for group in choices]
    if "form" in others:
        overrides.append(f"form={others.pop('form')}")
        choices = [*choices, *(group for group in _FORM_GROUPS if group not in choices)]
    if experiment is not None:
        require_experiment(experiment)
        overrides, choices = [f"experiment={experiment}", *overrides], list(_GROUPS)
    built = EnvConfig()
    if overrides:
        from hydra import compose
        from omegaconf.errors import MissingMandatoryValue

        with hydra_initialized():
            composed = compose("train", overrides)
        try:
            built = build_env_config(composed, built.num_workloads, built.workload_seed, choices)
        except MissingMandatoryValue as error:
            raise ConfigurationError(
                f"{error.full_key} has no value: workload={arguments.get('workload')} reads a file; expected"
                " config= with a workload such as ringyard.workloads.Replay(read_trace(FILE, NAME), models)"
            ) from error
    if flat is not None:
        others["observation"] = replace(built.observation, flat=flat)
    return replace(built, **others) if others else built


def _check_argument(name: str, value: Any) -> None:
    """Raise a ConfigurationError unless `value` can be that of a `ConfigArguments` `name`."""
    known = get_type_hints(ConfigArguments)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise UnexpectedArgumentError(
            f"got an unexpected keyword argument {name!r}; {f'did you mean {near[0]}? ' if near else ''}"
            f"expected config, experiment, {', '.join(known)}"
        )
    require(name, value, known[name])
    if name in (*_GROUPS, "form") and value not in config_files(name):
        raise ConfigurationError(
            explain_renamed("choices", f"{name}={value}")
            or f"{name} is {value!r}; expected {suggest(value, config_files(name))}"
        )


def build_env_config(
    config: "DictConfig", num_workloads: int, workload_seed: int, groups: Iterable[str] = _GROUPS
) -> EnvConfig:
    """Create the `EnvConfig` of a config that Hydra has composed, with defaults for all but its `groups`."""
    from hydra.utils import instantiate

    parts = {name: instantiate(config[name], _convert_="all") for name in groups}
    if "action" in parts:
        parts["actions"] = parts.pop("action")
    parts["limit_seconds"] = config.limit_seconds
    return EnvConfig(**parts, num_workloads=num_workloads, workload_seed=workload_seed)
