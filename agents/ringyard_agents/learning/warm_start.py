"""`ringyard train init=AGENT`: an agent that has learnt elsewhere learns on.

What it is made of (its learner, what it sees, what it does) is the agent's own wherever the command line, or
the experiment that says `init`, chooses nothing else, so that a run begins exactly as good as the agent is.
Optimiser, counters and random states are new.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from ringyard.config_folder import config_files
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.user_config import hydra_configs
from ringyard_agents.learning.agent_file import (
    PARTS,
    checked_parts,
    find_checkpoint,
    parts_of_agent,
    read_agent,
)
from ringyard_agents.learning.learner import Learner
from ringyard_agents.learning.resume import read_run_config

__all__ = ["inherited", "load_initial_weights"]


#: what the agent's own parts are called in their groups of Hydra's
_OWN = "init"

#: groups whose yamls may say `init`
_SPEAKING = ("experiment", "debug")


def inherited(words: Sequence[str]) -> list[str]:
    """The words of `ringyard train` with the parts of the agent that `init` names, where they choose none.

    Hydra then knows these parts as `agent=init`, `observation=init` and `action=init`: other words, such as
    `agent.learning_rate=1e-4`, change them. With `resume`, words that speak of a part speak of the run's own.

    Args:
        words: of the command line, after `train`; the yaml of an experiment may say `init` as well.

    Raises:
        CheckpointError: no such agent or run, or it names classes that are not trusted.
        ConfigurationError: several agents, or one that shall imitate a teacher again.
    """
    chosen = {word.partition("=")[0].lstrip("+~"): word for word in words if not word.startswith("-")}
    if "resume" in chosen and _value(chosen["resume"]) is not None:
        return _of_run(words, chosen)
    said = [chosen[one] for one in ("init", *_SPEAKING) if one in chosen]
    if not said:
        return list(words)
    if "init" in chosen:
        agent, chosen_by_yamls = _value(chosen["init"]), set[str]()
    else:
        agent, chosen_by_yamls = _said_by_yamls(said)
    if agent is None:
        return list(words)
    trust = _value(chosen["trust"]) if "trust" in chosen else ()
    parts = parts_of_agent(find_checkpoint(str(agent)), trust)
    if _speaks_of("agent.teacher", chosen):
        raise _not_twice(agent)
    if parts["agent"].get("teacher") is not None:
        parts["agent"]["teacher"] = None
    for group, part in parts.items():
        ConfigStore.instance().store(_OWN, part, group)
    left = [group for group in parts if group not in chosen and group not in chosen_by_yamls]
    place = words.index(said[0])  # among overrides; options, which may stand around, must not come between
    return [*words[:place], *(f"{group}={_OWN}" for group in left), *words[place:]]


def _speaks_of(part: str, chosen: Collection[str]) -> bool:
    """Whether a word is about something in a part of the config."""
    return any(key.startswith(f"{part}.") for key in chosen)


def _not_twice(agent: object) -> ConfigurationError:
    return ConfigurationError(
        f"agent.teacher would be imitated in place of what {agent} has learnt; leave agent.teacher out, or"
        " set agent.teacher=null"
    )


def _of_run(words: Sequence[str], chosen: Mapping[str, str]) -> list[str]:
    """Words that go on with a run, with its parts of which they speak; a new run would have others."""
    spoken_of = [part for part in PARTS if _speaks_of(part, chosen) and part not in chosen]
    if not spoken_of or any(group in chosen for group in _SPEAKING):
        return list(words)
    trust = _value(chosen["trust"]) if "trust" in chosen else ()
    file = Path(str(_value(chosen["resume"]))).expanduser() / "config.yaml"
    parts = checked_parts(read_run_config(file, trust), trust, file)
    for part in spoken_of:
        ConfigStore.instance().store(_OWN, parts[part], part)
    place = words.index(chosen["resume"])
    return [*words[:place], *(f"{part}={_OWN}" for part in spoken_of), *words[place:]]


def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


def _value(word: str) -> Any:
    """Of an override: 3 of `seed=3`."""
    override = _parsed(word)
    if override.is_sweep_override():
        raise _several(word)
    return override.value()


def _several(said: str) -> ConfigurationError:
    return ConfigurationError(f"{said}: a run begins with one agent; expected one, or a command for each")


def _said_by_yamls(words: Sequence[str]) -> tuple[Any, set[str]]:
    """(`init` of the yamls that words choose, groups of which these yamls choose a leaf themselves)."""
    agents, groups = set[Any](), set[str]()
    for leaves in itertools.product(*map(_leaves, words)):
        try:
            with _hydra():
                agents.add(hydra.compose("train", ["=".join(one) for one in leaves]).init)
        except (HydraException, OmegaConfBaseException):
            return None, set()  # the command itself meets it
        groups.update(*(_overridden(*one) for one in leaves))
    if len(agents) > 1:
        raise _several(" ".join(words))
    return agents.pop(), groups


def _hydra() -> AbstractContextManager[Any]:
    """Hydra on our configs, if it is on none yet."""
    if GlobalHydra.instance().is_initialized():
        return nullcontext()
    return hydra_configs()


def _leaves(word: str) -> list[tuple[str, str]]:
    """[(group, leaf)] that an override chooses, one after the other if it sweeps."""
    override = _parsed(word)
    sweeps = override.is_sweep_override()
    names = override.sweep_string_iterator() if sweeps else [override.get_value_element_as_str()]
    return [(override.key_or_group, str(name)) for name in names]


def _overridden(group: str, leaf: str) -> set[str]:
    """Groups of which a yaml chooses a leaf: `- override /action: scores`."""
    file = config_files(group).get(leaf)
    content = {} if file is None else yaml.safe_load(file.read_text())
    entries = [one for one in content.get("defaults", ()) if isinstance(one, Mapping)]
    return {str(key).removeprefix("override").strip(" /") for entry in entries for key in entry}


def load_initial_weights(learner: Learner, agent: str, own: Mapping[str, Any]) -> None:
    """Give a learner that has been set up the weights of an agent.

    Args:
        learner: new.
        agent: `init` of a run.
        own: what the run's agent is made of, see `agent_file.parts_of`.

    Raises:
        CheckpointError: there is no such agent, it sees or does something else, or its network is another.
        ConfigurationError: the learner would forget it.
    """
    file = find_checkpoint(agent)
    parts, weights = read_agent(file)
    same_kind = own["action"].get("_target_") == parts["action"].get("_target_")  # its figures may be others
    same = {"observation": own["observation"] == parts["observation"], "action": same_kind}
    for part in same:
        if not same[part]:
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
