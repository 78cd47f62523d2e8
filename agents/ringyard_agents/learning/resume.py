"""Runs that build on an earlier one: `resume=RUN` continues it, `init=AGENT` starts from an agent's weights.

A resumed run has its own config, of which only some settings may change. A run that starts from an agent uses
the agent's learner, observation and actions, unless the command line chooses others, so that it starts as
good as the agent. Optimizer, counters and random states are new.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard_agents.config.compose import to_plain
from ringyard_agents.config.safe_load import Trust, check_classes, read_plain, training_groups
from ringyard_agents.config.schema import check_settings
from ringyard_agents.learning import agent_file
from ringyard_agents.learning.learner import Learner
from ringyard_agents.runs.run_folder import flatten_config

#: settings that a resumed run may change
_CHANGEABLE = ("total_decisions", "save_minutes", "num_threads", "device", "plots", "callbacks")
#: settings of the command line that need not agree with the run
_NOT_COMPARED = ("resume", "overwrite", "trust", *_CHANGEABLE)

_GLOBAL_GROUPS = ("experiment", "form", "debug")  #: groups with configs that change any setting

_INHERITED = "init"  #: name under which Hydra knows an agent's parts in their groups, as in `agent=init`


def read_run_config(file: Path, trust: Trust) -> dict[str, Any]:
    """Read the plain config of a run folder. Classes must be Ringyard's, or those in `trust`."""
    if not file.is_file():
        raise CheckpointError(f"cannot resume: there is no {file}; give the folder of a training run")
    try:
        saved = read_plain(file)
    except ConfigurationError as error:
        raise CheckpointError(f"cannot resume: {error}") from error
    if not isinstance(saved, dict) or "total_decisions" not in saved:
        raise CheckpointError(f"cannot resume: {file} is not the config of a training run")
    check_classes(saved, training_groups(), trust, str(file))
    try:
        check_settings("train", OmegaConf.create(saved))
    except ConfigurationError as error:
        raise CheckpointError(f"cannot resume: {file} is damaged: {error}") from error
    return saved


def resumed_config(config: DictConfig) -> tuple[DictConfig, int]:
    """Return (config of the run to resume, with the command line's changes, its `total_decisions` before).

    An override that contradicts the run's own settings is a ConfigurationError.
    """
    file = Path(config.resume).expanduser() / "config.yaml"
    saved = read_run_config(file, config.trust)
    composed, overrides = to_plain(config), HydraConfig.get().overrides.task
    check_agreement(overrides, composed, saved, file)
    overridden = {_key(word).partition(".")[0] for word in overrides}
    changed = {key: composed[key] for key in _CHANGEABLE if key in overridden}
    # Only the command line decides what is trusted, never a file.
    command = {"resume": composed["resume"], "trust": composed["trust"]}
    return OmegaConf.create({**composed, **saved, **changed, **command}), saved["total_decisions"]


def _parse(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


def _key(word: str) -> str:
    """Return the key of an override: `agent.learning_rate` of `++agent.learning_rate=0.1`."""
    return _parse(word).key_or_group


def check_agreement(overrides: Sequence[str], composed: Any, saved: Any, file: Path) -> None:
    """Raise a ConfigurationError for the first override that contradicts the settings of a run.

    `overrides` of the command line give the plain config `composed`. The run has `saved`, from `file`.
    """
    new, old = flatten_config(composed), flatten_config(saved)
    # An override of a single setting is checked before one of its group, to be named in the error.
    for word in sorted(overrides, key=lambda word: "." not in _key(word)):
        key = _key(word)
        if key.partition(".")[0] in _NOT_COMPARED:
            continue
        for setting in {**new, **old}:
            affected = key in _GLOBAL_GROUPS or setting == key or setting.startswith(f"{key}.")
            compared = setting.partition(".")[0] not in _NOT_COMPARED
            if affected and compared and new.get(setting) != old.get(setting):
                raise ConfigurationError(
                    f"{word} does not agree with the run to resume: {setting} would be {new.get(setting)!r},"
                    f" in {file} it is {old.get(setting)!r}; leave {key} out, because a resumed run keeps its"
                    f" settings (only {', '.join(_CHANGEABLE)} may change), or train a new one"
                )


def add_inherited_parts(words: Sequence[str]) -> list[str]:
    """Add overrides that choose the parts of the agent of `init`, where the command line chooses no others.

    Hydra then knows the parts as `agent=init`, `observation=init` and `action=init`. Further overrides, such
    as `agent.learning_rate=1e-4`, change them. With `resume`, the parts are those of the run. Several agents,
    or a teacher (which would overwrite weights), are an error.
    """
    overrides = {word.partition("=")[0].lstrip("+~"): word for word in words if not word.startswith("-")}
    if "resume" in overrides and _value(overrides["resume"]) is not None:
        return _add_parts_of_run(words, overrides)
    agent = _value(overrides["init"]) if "init" in overrides else None
    if agent is None:
        return list(words)
    parts, _ = agent_file.read_agent(agent_file.find_checkpoint(str(agent)), _trust(overrides))
    if any(key.startswith("agent.teacher.") for key in overrides):
        raise _teacher_error(agent)
    if parts["agent"].get("teacher") is not None:
        parts["agent"]["teacher"] = None
    inherited = [group for group in parts if group not in overrides]
    return _add_parts(words, overrides["init"], parts, inherited)


def _add_parts(
    words: Sequence[str], before: str, parts: Mapping[str, Any], groups: Sequence[str]
) -> list[str]:
    """Register {group: plain config} with Hydra, and choose some groups in front of the word `before`."""
    for group, part in parts.items():
        ConfigStore.instance().store(_INHERITED, part, group)
    place = words.index(before)
    return [*words[:place], *(f"{group}={_INHERITED}" for group in groups), *words[place:]]


def _add_parts_of_run(words: Sequence[str], overrides: Mapping[str, str]) -> list[str]:
    """Add overrides that choose the parts of the run to resume, where further overrides change one."""
    of_parts = {key.partition(".")[0] for key in overrides if "." in key}
    changed = [group for group in agent_file.AGENT_GROUPS if group in of_parts and group not in overrides]
    if not changed or any(group in overrides for group in _GLOBAL_GROUPS):
        return list(words)
    trust, file = _trust(overrides), Path(str(_value(overrides["resume"]))).expanduser() / "config.yaml"
    parts = agent_file.validate_agent_parts(read_run_config(file, trust), trust, file)
    return _add_parts(words, overrides["resume"], parts, changed)


def _trust(overrides: Mapping[str, str]) -> Trust:
    return _value(overrides["trust"]) if "trust" in overrides else ()


def _teacher_error(agent: object) -> ConfigurationError:
    return ConfigurationError(
        f"agent.teacher would overwrite the weights of {agent}; leave agent.teacher out, or set"
        " agent.teacher=null"
    )


def _value(word: str) -> Any:
    """Return the value of an override: 3 of `seed=3`."""
    override = _parse(word)
    if override.is_sweep_override():
        raise ConfigurationError(f"{word}: a run starts from one agent; expected one, or a command for each")
    return override.value()


def load_initial_weights(learner: Learner, agent: str, own: Mapping[str, Any], trust: Trust) -> None:
    """Load the weights of `init=AGENT` into a learner, after its `setup`.

    Observation, actions and network must be those of the run, and no teacher may overwrite the weights.
    """
    file = agent_file.find_checkpoint(agent)
    parts, weights = agent_file.read_agent(file, trust)
    # Arguments of the actions may differ, such as action.allocator.gamma.
    same_actions = own["action"].get("_target_") == parts["action"].get("_target_")
    same_observation = own["observation"] == parts["observation"]
    for group, same in (("observation", same_observation), ("action", same_actions)):
        if not same:
            raise CheckpointError(
                f"cannot start from {file}: it was trained with {group} {parts[group]}, the run has"
                f" {own[group]}; leave {group}= out, then the run takes it from the agent"
            )
    if own["agent"].get("teacher") is not None:
        raise _teacher_error(file)
    try:
        learner.load_weights(weights)
    except (CheckpointError, KeyError, TypeError) as error:
        network = parts["agent"].get("network", parts["agent"].get("model"))
        raise CheckpointError(
            f"cannot start from {file}: the run's agent has another network than {network}"
            f"; leave agent= out, or give it that network ({error})"
        ) from error
