"""`ringyard train init=AGENT`: an agent that has learnt elsewhere learns on.

What it is made of (its learner, what it sees, what it does) is the agent's own wherever the command line
chooses nothing else, so that a run begins exactly as good as the agent is. Optimiser, counters and random
states are new.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard_agents.configuration import plain
from ringyard_agents.learning.checkpoint import find_checkpoint, parts_of_agent, read_agent
from ringyard_agents.learning.learner import Learner

__all__ = ["adopt_initial", "inherited"]

#: what the agent's own parts are called in their groups of Hydra's
_OWN = "init"


def inherited(words: Sequence[str]) -> list[str]:
    """The words of `ringyard train` with the parts of the agent that `init=` names, where they choose none.

    Hydra then knows these parts as `agent=init`, `observation=init` and `action=init`: other words, such as
    `agent.learning_rate=1e-4`, change them.

    Args:
        words: of the command line, after `train`.

    Raises:
        CheckpointError: no such agent, or it names classes that are not trusted.
        ConfigurationError: several agents.
    """
    chosen = {word.partition("=")[0].lstrip("+~"): word for word in words if not word.startswith("-")}
    given = _value(chosen["init"]) if "init" in chosen else None
    if given is None or "resume" in chosen:  # a run that goes on has its own parts
        return list(words)
    trust = _value(chosen["trust"]) if "trust" in chosen else ()
    parts = parts_of_agent(find_checkpoint(str(given)), trust)
    if parts["agent"].get("teacher") is not None:
        parts["agent"]["teacher"] = None  # it would be imitated in place of what has been learnt
    for group, part in parts.items():
        ConfigStore.instance().store(_OWN, part, group)
    return [*(f"{group}={_OWN}" for group in parts if group not in chosen), *words]


def _value(word: str) -> Any:
    """Of an override: 3 of `seed=3`."""
    override = OverridesParser.create().parse_override(word)
    if override.is_sweep_override():
        raise ConfigurationError(f"{word}: a run begins with one agent; expected one, or a command for each")
    return override.value()


def adopt_initial(learner: Learner, config: DictConfig) -> None:
    """Give a learner that has begun the weights of the agent `config.init`.

    Args:
        learner: new.
        config: of `ringyard train`.

    Raises:
        CheckpointError: there is no such agent, it sees or does something else, or its network is another.
        ConfigurationError: the learner would forget it.
    """
    file = find_checkpoint(config.init)
    parts, weights = read_agent(file)
    _require_same(parts, config, file)
    if config.agent.get("teacher") is not None:
        raise ConfigurationError(
            f"agent.teacher would be imitated in place of what {file} has learnt; set agent.teacher=null"
        )
    try:
        learner.adopt(weights)
    except (CheckpointError, KeyError, TypeError) as error:
        network = parts["agent"].get("network", parts["agent"].get("model"))
        raise CheckpointError(
            f"cannot begin with {file}: the run's agent has another network than {network}; leave agent="
            f" out, or give it that one ({error})"
        ) from error


def _require_same(parts: Mapping[str, Any], config: DictConfig, file: Path) -> None:
    """Raise a CheckpointError unless a run sees what an agent sees, and does something of the same kind."""
    observation, action = plain(config.observation), plain(config.action)
    same_kind = action.get("_target_") == parts["action"].get("_target_")  # its figures may be others
    same = {"observation": observation == parts["observation"], "action": same_kind}
    for part, own in (("observation", observation), ("action", action)):
        if not same[part]:
            raise CheckpointError(
                f"cannot begin with {file}: it was trained with {part} {parts[part]}, the run has {own};"
                f" leave {part}= out, a run takes it from the agent"
            )
