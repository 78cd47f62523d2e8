"""`load`: a trained agent to act with in an environment, or to be measured as a scheduler."""

from pathlib import Path
from typing import Any

import gymnasium

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.actions import ActionKind, Actions, Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations.observation import Observation
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.learning.agent import AgentScheduler, load_agent

__all__ = ["load"]


def load(
    checkpoint: str | Path | None = None,
    env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any] | EnvConfig | None = None,
    trust: Trust = (),
) -> AgentScheduler:
    """A trained agent: `.act(observation, mask)` in an environment, `.decide(view)` as a scheduler.

    Args:
        checkpoint: an agent.safetensors, its run folder, zoo:NAME, or None for the newest under runs/.
        env: in which it shall act, wrapped or not, one cluster or many, or its setting; None: not checked.
        trust: full names of classes of yours that the agent may name; True: of anybody's.

    Raises:
        CheckpointError: there is none, it cannot be read, it is not trusted, or what it reads and answers is
            not what `env` gives and takes: the sentence says what differs.
        ConfigurationError: an argument of another kind.
    """
    name = "agent" if checkpoint is None else str(checkpoint)
    agent = load_agent(None if checkpoint is None else str(checkpoint), name, trust)
    if env is not None:
        setting = (
            env if isinstance(env, EnvConfig) else getattr(getattr(env, "unwrapped", None), "setting", None)
        )
        if not isinstance(setting, EnvConfig):
            raise ConfigurationError(
                f"env is {env!r}; expected one of Ringyard's environments, or an EnvConfig"
            )
        found = [*_seen(agent.observation, setting.observation), *_done(agent.actions, setting.actions)]
        found += [] if found or not agent.observation.flat else _lengths(agent, setting)
        if found:
            raise CheckpointError(f"{name} cannot act in this environment: {'; '.join(found)}")
    return agent


def _seen(own: Observation, given: Observation) -> list[str]:
    """What differs between what an agent reads and what it would see."""
    if own.flat != given.flat:
        kinds = {True: "one row of numbers (flat=True)", False: "blocks (flat=False)"}
        return [f"it reads {kinds[own.flat]}, the observation is {kinds[given.flat]}"]
    ours, theirs = ({block.name: block.features for block in one.blocks} for one in (own, given))
    found = []
    if missing := [name for name in ours if name not in theirs]:
        found.append(f"it reads the blocks {', '.join(missing)}, which the observation lacks")
    if more := [name for name in theirs if name not in ours]:
        found.append(f"the observation has the blocks {', '.join(more)}, which it does not know")
    for name in ours.keys() & theirs.keys():
        names = [[feature.name for feature in block[name]] for block in (ours, theirs)]
        if names[0] != names[1]:
            found.append(f"of block {name} it reads {', '.join(names[0])}; given are {', '.join(names[1])}")
    return found


def _options(actions: Actions) -> dict[str, list[str]]:
    """What a number of `Actions` can mean, by name."""
    changes = [
        " ".join(
            [
                "stays" if one.placement is None else one.placement.name,
                f"gpus x{one.gpu_factor:g} batch x{one.batch_factor:g} cores x{one.core_factor:g}",
                *([] if one.bandwidth_cap is None else [f"cap {one.bandwidth_cap:g}"]),
            ]
        )
        for one in actions.adjustments
    ]
    return {
        "starts": [one.name for one in actions.starts],
        "changes": [*(["stop"] if actions.preemptive else []), *changes],
    }


def _done(own: ActionKind, given: ActionKind) -> list[str]:
    """What differs between what an agent answers and what would be taken."""
    if isinstance(own, Scores) != isinstance(given, Scores):
        kinds = {True: "scores jobs (action=scores)", False: "chooses one of several actions"}
        return [f"it {kinds[isinstance(own, Scores)]}, the environment {kinds[isinstance(given, Scores)]}"]
    if isinstance(own, Scores) and isinstance(given, Scores) and own.type_scores != given.type_scores:
        words = [", ".join(one.type_scores) or "none" for one in (own, given)]
        return [f"it scores jobs on the GPU types {words[0]}, the environment takes scores on {words[1]}"]
    if not (isinstance(own, Actions) and isinstance(given, Actions)):
        return []
    ours, theirs = _options(own), _options(given)
    return [
        f"its {what} are {', '.join(ours[what]) or 'none'}, the environment's"
        f" {', '.join(theirs[what]) or 'none'}"
        for what in ours
        if ours[what] != theirs[what]
    ]


def _lengths(agent: AgentScheduler, setting: EnvConfig) -> list[str]:
    """Of rows and answers of a network that fits one cluster only."""
    network = getattr(agent.policy, "network", None)
    spaces = getattr(network, "observation_space", None), getattr(network, "action_space", None)
    here = setting.observation.space(setting.cluster, setting.actions), setting.actions.space
    words = "observation", "action"
    return [
        f"its {word} space is {own}, the environment's {given}: it was trained on another cluster, or with"
        " other numbers of visible jobs"
        for word, own, given in zip(words, spaces, here, strict=True)
        if (own is not None and getattr(own, "shape", None) != given.shape)
        or getattr(own, "n", None) != getattr(given, "n", None)
    ]
