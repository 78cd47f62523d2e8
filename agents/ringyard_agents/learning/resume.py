"""Runs that begin with an earlier one: `resume=RUN` goes on with it, `init=AGENT` with an agent's weights.

A run that goes on has its own config, with the few changes that it allows. A run that begins with an agent is
made of the agent's parts (its learner, observation and actions) wherever the command line, or the experiment
that says `init`, chooses nothing else, so that it begins exactly as good as the agent is. Optimiser, counters
and random states are new.
"""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ringyard.config_folder import config_files
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.compose import to_plain
from ringyard_agents.config.safe_load import Trust, check_classes, training_groups
from ringyard_agents.config.schema import check_settings
from ringyard_agents.learning.agent_file import (
    AGENT_GROUPS,
    find_checkpoint,
    read_agent,
    validate_agent_parts,
)
from ringyard_agents.learning.learner import Learner
from ringyard_agents.learning.stored_names import update_settings
from ringyard_agents.runs.run_folder import flatten_config

#: settings that a run may change when it goes on
_CHANGEABLE = ("total_decisions", "save_minutes", "num_threads", "device", "plots", "callbacks")
_OF_THE_COMMAND = ("resume", "overwrite", "trust", *_CHANGEABLE)

#: values of settings that runs of older versions lack
_LATER: dict[str, Any] = {
    "environments": [],
    "init": None,
    "num_threads": None,
    "device": "auto",
    "plots": True,
    "callbacks": {},
    "constraint": {"metric": None, "bound": None, "multiplier_learning_rate": 1.0},
}

#: groups whose leaves change any setting, and may say `init`
_ANYTHING = ("experiment", "debug")

#: name of an agent's own parts in their groups of Hydra's
_OWN = "init"


def read_run_config(file: Path, trust: Trust) -> dict[str, Any]:
    """Plain config of a run folder, which names only Ringyard's and trusted classes.

    Args:
        file: its config.yaml.
        trust: full names of your own classes that it may name; True trusts any.

    Raises:
        CheckpointError: it is missing or damaged, or names other classes.
    """
    if not file.is_file():
        raise CheckpointError(f"cannot resume: there is no {file}; give the folder of an earlier run")
    try:
        saved: Any = OmegaConf.to_container(OmegaConf.load(file))
    except (YAMLError, OmegaConfBaseException, ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"cannot resume: {file} is damaged: {error}") from error
    if not isinstance(saved, dict) or "total_decisions" not in saved:
        raise CheckpointError(f"cannot resume: {file} is not of a training run")
    saved = update_settings(saved)
    if isinstance(saved.get("evaluate"), dict):  # runs of 0.2 have none
        saved = {**_LATER, **saved, "evaluate": {"patience": None, "prune": None, **saved["evaluate"]}}
    check_classes(saved, training_groups(), trust, str(file))
    try:
        check_settings("train", OmegaConf.create(saved))
    except ConfigurationError as error:
        raise CheckpointError(f"cannot resume: {file} is damaged: {error}") from error
    return saved


def resumed_config(config: DictConfig) -> tuple[DictConfig, int]:
    """(config of the run `config.resume` with this command's changes, its earlier total_decisions).

    Args:
        config: of this command, as Hydra composed it.

    Raises:
        CheckpointError: there is no such run, or its config names classes that are not trusted.
        ConfigurationError: an override that contradicts the run's own settings.
    """
    file = Path(config.resume).expanduser() / "config.yaml"
    saved = read_run_config(file, config.trust)
    asked, words = to_plain(config), HydraConfig.get().overrides.task
    check_agreement(words, asked, saved, file)
    named = {_key(word).partition(".")[0] for word in words}
    changed = {key: asked[key] for key in _CHANGEABLE if key in named}
    # a file never decides what is trusted
    command = {"resume": asked["resume"], "trust": asked["trust"]}
    return OmegaConf.create({**asked, **saved, **changed, **command}), saved["total_decisions"]


def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


def _key(word: str) -> str:
    """The key of an override: `agent.learning_rate` of `++agent.learning_rate=0.1`."""
    key: str = _parsed(word).key_or_group
    return key


def check_agreement(words: Sequence[str], asked: Any, saved: Any, file: Path) -> None:
    """Raise a ConfigurationError for the first override that contradicts a run's settings.

    Args:
        words: overrides of a command line.
        asked: plain config that they compose.
        saved: plain config of the run.
        file: of the saved config.
    """
    new, old = flatten_config(asked), flatten_config(saved)
    for word in sorted(words, key=lambda word: "." not in _key(word)):  # a leaf's own word before its group's
        key = _key(word)
        if key.partition(".")[0] in _OF_THE_COMMAND:
            continue
        for leaf in {**new, **old}:
            about = key in _ANYTHING or leaf == key or leaf.startswith(f"{key}.")
            if about and leaf.partition(".")[0] not in _OF_THE_COMMAND and new.get(leaf) != old.get(leaf):
                raise ConfigurationError(
                    f"{word} does not agree with the run that goes on: {leaf} would be {new.get(leaf)!r}, in"
                    f" {file} it is {old.get(leaf)!r}; leave {key} out, a run keeps its settings (only"
                    f" {', '.join(_CHANGEABLE)} may change), or train a new one"
                )


def add_inherited_parts(words: Sequence[str]) -> list[str]:
    """Add the parts of the agent `init` to the words of `ringyard train`, where these choose no others.

    Hydra then knows these parts as `agent=init`, `observation=init` and `action=init`. Other words, such as
    `agent.learning_rate=1e-4`, change them. With `resume`, the parts are the run's own.

    Args:
        words: of the command line, after `train`; the yaml of an experiment may name `init` as well.

    Raises:
        CheckpointError: no such agent or run, or it names classes that are not trusted.
        ConfigurationError: several agents, or one with a teacher, which would replace its weights.
    """
    chosen = {word.partition("=")[0].lstrip("+~"): word for word in words if not word.startswith("-")}
    if "resume" in chosen and _value(chosen["resume"]) is not None:
        return _with_parts_of_run(words, chosen)
    said = [chosen[one] for one in ("init", *_ANYTHING) if one in chosen]
    if not said:
        return list(words)
    if "init" in chosen:
        agent, chosen_by_yamls = _value(chosen["init"]), set[str]()
    else:
        agent, chosen_by_yamls = _said_by_yamls(said)
    if agent is None:
        return list(words)
    parts, _ = read_agent(find_checkpoint(str(agent)), _trust(chosen))
    if any(key.startswith("agent.teacher.") for key in chosen):
        raise _not_twice(agent)
    if parts["agent"].get("teacher") is not None:
        parts["agent"]["teacher"] = None
    left = [group for group in parts if group not in chosen and group not in chosen_by_yamls]
    return _with_parts(words, said[0], parts, left)


def _with_parts(
    words: Sequence[str], first: str, parts: Mapping[str, Any], groups: Sequence[str]
) -> list[str]:
    """Register parts with Hydra, and add words that choose some of them.

    Args:
        words: of the command line.
        first: override before which they are added, so that no option separates overrides.
        parts: {group: plain config}.
        groups: of the parts to choose.
    """
    for group, part in parts.items():
        ConfigStore.instance().store(_OWN, part, group)
    place = words.index(first)
    return [*words[:place], *(f"{group}={_OWN}" for group in groups), *words[place:]]


def _with_parts_of_run(words: Sequence[str], chosen: Mapping[str, str]) -> list[str]:
    """Words that resume a run, with its own parts where words change one."""
    changed = [
        part
        for part in AGENT_GROUPS
        if part not in chosen and any(key.startswith(f"{part}.") for key in chosen)
    ]
    if not changed or any(group in chosen for group in _ANYTHING):
        return list(words)
    trust, file = _trust(chosen), Path(str(_value(chosen["resume"]))).expanduser() / "config.yaml"
    parts = validate_agent_parts(read_run_config(file, trust), trust, file)
    return _with_parts(words, chosen["resume"], parts, changed)


def _trust(chosen: Mapping[str, str]) -> Trust:
    return _value(chosen["trust"]) if "trust" in chosen else ()


def _not_twice(agent: object) -> ConfigurationError:
    return ConfigurationError(
        f"agent.teacher would be imitated in place of what {agent} has learnt; leave agent.teacher out, or"
        " set agent.teacher=null"
    )


def _value(word: str) -> Any:
    """The value of an override: 3 of `seed=3`."""
    override = _parsed(word)
    if override.is_sweep_override():
        raise _several(word)
    return override.value()


def _several(said: str) -> ConfigurationError:
    return ConfigurationError(f"{said}: a run begins with one agent; expected one, or a command for each")


def _said_by_yamls(words: Sequence[str]) -> tuple[Any, set[str]]:
    """(`init` of the yamls that words choose, groups whose leaf these yamls choose)."""
    agents, groups = set[Any](), set[str]()
    for chosen in itertools.product(*map(_chosen_leaves, words)):
        try:  # Hydra may be on our configs already
            with nullcontext() if GlobalHydra.instance().is_initialized() else hydra_initialized():
                agents.add(hydra.compose("train", ["=".join(one) for one in chosen]).init)
        except (HydraException, OmegaConfBaseException):
            return None, set()  # the command itself meets it
        groups.update(*(_overridden(*one) for one in chosen))
    if len(agents) > 1:
        raise _several(" ".join(words))
    return agents.pop(), groups


def _chosen_leaves(word: str) -> list[tuple[str, str]]:
    """[(group, leaf)] chosen by an override; several if it sweeps."""
    override = _parsed(word)
    sweeps = override.is_sweep_override()
    names = override.sweep_string_iterator() if sweeps else [override.get_value_element_as_str()]
    return [(override.key_or_group, str(name)) for name in names]


def _overridden(group: str, leaf: str) -> set[str]:
    """Groups whose leaf a yaml chooses by its defaults, as in `- override /action: scores`."""
    file = config_files(group).get(leaf)
    content = {} if file is None else yaml.safe_load(file.read_text())
    entries = [one for one in content.get("defaults", ()) if isinstance(one, Mapping)]
    return {str(key).removeprefix("override").strip(" /") for entry in entries for key in entry}


def load_initial_weights(learner: Learner, agent: str, own: Mapping[str, Any], trust: Trust) -> None:
    """Load the weights of an agent into a learner, after its `setup`.

    Args:
        learner: new.
        agent: `init` of a run.
        own: parts of the run's agent, see `agent_file.parts_of`.
        trust: full names of your own classes that the agent may name; True trusts any.

    Raises:
        CheckpointError: there is no such agent, or its observation, actions or network differ.
        ConfigurationError: the learner has a teacher, which would replace the weights.
    """
    file = find_checkpoint(agent)
    parts, weights = read_agent(file, trust)
    same_kind = own["action"].get("_target_") == parts["action"].get("_target_")  # its figures may be others
    for part, same in (("observation", own["observation"] == parts["observation"]), ("action", same_kind)):
        if not same:
            raise CheckpointError(
                f"cannot begin with {file}: it was trained with {part} {parts[part]}, the run has"
                f" {own[part]}; leave {part}= out, a run takes it from the agent"
            )
    if own["agent"].get("teacher") is not None:
        raise _not_twice(file)
    try:
        learner.load_weights(weights)
    except (CheckpointError, KeyError, TypeError) as error:
        network = parts["agent"].get("network", parts["agent"].get("model"))
        raise CheckpointError(
            f"cannot begin with {file}: the run's agent has another network than {network}; leave agent="
            f" out, or give it that one ({error})"
        ) from error
