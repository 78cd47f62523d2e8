"""What learns and what it learns: the two types that training, evaluation and comparison know."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.checkpoint import Checkpoint

__all__ = ["Callback", "Learner", "Policy", "only_world", "world_of"]

#: called between rounds of learning with what was measured since the last call: {curve: value}
Callback = Callable[[Mapping[str, float]], None]


class Policy(Protocol):
    """Chooses an action for every cluster.

    Attributes:
        flat: it reads one row of numbers a cluster; False: the observation's blocks by name.
    """

    flat: bool

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        """[clusters] the actions it likes best, in an array of its own; [clusters, N] float32 for `Scores`.

        Args:
            observations: [clusters, size] if flat, else {block: [clusters, length]}.
            masks: [clusters, actions] True where an action is valid; [clusters, N] where a score has a job.
        """
        ...


class Learner(Protocol):
    """Learns a policy; a leaf of conf/agent.

    Attributes:
        flat: its policy reads one row of numbers a cluster; False: the observation's blocks by name.
        masked: its policy chooses valid actions only, another is an error; False: a masked one waits.
    """

    flat: bool
    masked: bool

    @property
    def decisions(self) -> int:
        """Environment decisions learnt from so far."""
        ...

    @property
    def policy(self) -> Policy:
        """What has been learnt so far."""
        ...

    def setup(self, worlds: Mapping[str, EnvConfig], seed: int, saved: Checkpoint | None = None) -> None:
        """Get ready to learn in one world or several.

        Args:
            worlds: {label: world}, each as `world_of` gives it, with the same actions and what is seen of the
                same form.
            seed: of all that is drawn.
            saved: go on from this `state` as if nothing had happened; None: start anew.
        """
        ...

    def load_weights(self, weights: Checkpoint) -> None:
        """Begin with the `weights` of an agent that has learnt elsewhere; after `setup`, before `learn`.

        Raises:
            CheckpointError: they are not of this network.
        """
        ...

    def learn(self, total_decisions: int, callback: Callback) -> None:
        """Go on until `decisions` is `total_decisions` or just more.

        Args:
            total_decisions: since `setup` without `saved`.
            callback: called before the first round and after every one; only then is `state` asked.
        """
        ...

    def state(self) -> Checkpoint:
        """All that `setup` needs to go on bit for bit, in copies: weights, counters, random states."""
        ...

    def weights(self) -> Checkpoint:
        """All that `load` needs, in copies."""
        ...

    def load(self, saved: Checkpoint) -> Policy:
        """The policy of `weights`; needs no `setup`."""
        ...


def only_world(worlds: Mapping[str, EnvConfig]) -> EnvConfig:
    """The world of a learner that has room for one.

    Raises:
        ConfigurationError: there are several.
    """
    if len(worlds) > 1:
        raise ConfigurationError(
            f"this agent learns in one world; got {', '.join(worlds)}; leave out worlds=, or take an agent"
            " that learns in several (agent=evolution, agent=group_noise)"
        )
    return next(iter(worlds.values()))


def world_of(learner: Learner, setting: EnvConfig) -> EnvConfig:
    """The setting with observations as the learner reads them and masked actions as it needs them.

    Raises:
        ConfigurationError: it chooses among valid actions, and there are none to choose among.
    """
    if learner.masked and not isinstance(setting.actions.space, spaces.Discrete):
        raise ConfigurationError(
            f"the agent chooses one of several actions, and action={type(setting.actions).__name__} is"
            f" {setting.actions.space}; expected an agent that answers with numbers (agent=ppo_mlp), or other"
            " actions (action=start_stop)"
        )
    return replace(
        setting,
        observation=replace(setting.observation, flat=learner.flat),
        actions=setting.actions.refusing(learner.masked),
    )
