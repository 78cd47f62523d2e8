"""Learners and policies, the types that training, evaluation and comparison know, and their saved state."""

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.checkpoint import Checkpoint

#: called between rounds of learning with {curve: value} measured since the last call
Callback = Callable[[Mapping[str, float]], None]


class Policy(Protocol):
    """Chooses an action for every cluster.

    Attributes:
        flat: whether it reads one row of numbers a cluster, or the observation's blocks by name.
    """

    flat: bool

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        """[clusters] the preferred actions, in a new array; [clusters, N] float32 for `Scores`.

        Args:
            observations: [clusters, size] if flat, else {block: [clusters, length]}.
            masks: [clusters, actions] True where an action is valid; [clusters, N] where a score has a job.
        """
        ...


class Learner(Protocol):
    """Learns a policy; a leaf of conf/agent.

    Attributes:
        flat: whether its policy reads one row of numbers a cluster, or the observation's blocks by name.
        masked: whether its policy chooses valid actions only; otherwise a masked action waits.
    """

    flat: bool
    masked: bool

    @property
    def decisions(self) -> int:
        """Environment decisions learnt from so far."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy learnt so far."""
        ...

    def setup(self, worlds: Mapping[str, EnvConfig], seed: int, saved: Checkpoint | None = None) -> None:
        """Prepare to learn in one environment or several.

        Args:
            worlds: {label: environment}, each from `world_of`, with the same actions and the same form of
                observation.
            seed: of every random draw.
            saved: the `state` to go on from; None starts anew.
        """
        ...

    def load_weights(self, weights: Checkpoint) -> None:
        """Begin with the `weights` of a trained agent; called after `setup` and before `learn`.

        Raises:
            CheckpointError: the weights do not fit the network.
        """
        ...

    def learn(self, total_decisions: int, callback: Callback) -> None:
        """Learn until `decisions` reaches `total_decisions`.

        Args:
            total_decisions: decisions since the first `setup`.
            callback: called before the first round and after every round; `state` is read only then.
        """
        ...

    def state(self) -> Checkpoint:
        """Copies of weights, counters and random states, from which `setup` goes on bit for bit."""
        ...

    def weights(self) -> Checkpoint:
        """Copies of the arrays and facts that `load` needs."""
        ...

    def load(self, saved: Checkpoint) -> Policy:
        """The policy of some `weights`, without `setup`."""
        ...


def only_world(worlds: Mapping[str, EnvConfig]) -> EnvConfig:
    """The environment of a learner that supports one.

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
    """A configuration with the learner's form of observations and its treatment of masked actions.

    Args:
        learner: reads the observations and acts.
        setting: the configuration.

    Raises:
        ConfigurationError: the learner needs discrete actions, and these are scores.
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
        actions=setting.actions.with_raise_on_invalid(learner.masked),
    )


_WEIGHTS, _OPTIMISER = "network.", "optimizer."


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def _below(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    for name, array in arrays.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), torch.from_numpy(array.copy())


def weights_of(weights: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    """Arrays of a network's `state_dict`, under the names of a checkpoint."""
    return _arrays({_WEIGHTS + name: tensor for name, tensor in weights.items()})


def weights_with_spaces(network: Any) -> Checkpoint:
    """Weights and spaces of a network of Stable-Baselines3."""
    seen, actions = network.observation_space, network.action_space
    facts: dict[str, Any] = {
        "actions": int(actions.n) if isinstance(actions, spaces.Discrete) else _box(actions)
    }
    if isinstance(seen, spaces.Dict):  # a list: networks may read blocks in their order
        facts["blocks"] = [[name, _box(box)] for name, box in seen.spaces.items()]
    else:
        facts["row"] = _box(seen)
    return Checkpoint(weights_of(network.state_dict()), {"spaces": facts})


def network_state(network: nn.Module, optimizer: Optimizer) -> Checkpoint:
    """Weights of a network, and moments and settings of its optimiser."""
    state = optimizer.state_dict()
    moments: dict[str, torch.Tensor] = {}
    for parameter, tensors in state["state"].items():
        moments |= {f"{_OPTIMISER}{parameter}.{name}": tensor for name, tensor in tensors.items()}
    arrays = weights_of(network.state_dict()) | _arrays(moments)
    return Checkpoint(arrays, {"optimizer": state["param_groups"]})


def restore_network(network: nn.Module, saved: Checkpoint, optimizer: Optimizer | None = None) -> None:
    """Load saved weights into a network.

    Args:
        network: has weights of the same names, shapes and types.
        saved: of `network_state` or `weights_of`.
        optimizer: gets the saved moments and settings, if there are any.

    Raises:
        CheckpointError: the weights are of another network, incomplete or not finite.
    """
    try:
        weights = dict(_below(saved.arrays, _WEIGHTS))
        network.load_state_dict(weights)
        for name, own in network.state_dict().items():
            if own.dtype != weights[name].dtype:
                raise TypeError(f"{name} is {weights[name].dtype}, expected {own.dtype}")
            if not torch.isfinite(own).all():
                raise ValueError(f"{name} has values that are infinite or not a number")
        if optimizer is not None and "optimizer" in saved.facts:
            moments: dict[int, dict[str, torch.Tensor]] = {}
            for name, tensor in _below(saved.arrays, _OPTIMISER):
                parameter, _, moment = name.partition(".")
                moments.setdefault(int(parameter), {})[moment] = tensor
            optimizer.load_state_dict({"state": moments, "param_groups": saved.facts["optimizer"]})
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"these weights are not of this network: {error}") from error


def random_state() -> Checkpoint:
    """State of the global random generators of torch, NumPy and Python."""
    _, keys, position, has_gauss, gauss = np.random.get_state()
    version, numbers, next_gauss = random.getstate()
    arrays = {
        "random.torch": torch.get_rng_state().numpy().copy(),
        "random.numpy": np.asarray(keys).copy(),
        "random.python": np.array(numbers, np.int64),
    }
    return Checkpoint(arrays, {"numpy": [position, has_gauss, gauss], "python": [version, next_gauss]})


def restore_random(saved: Checkpoint) -> None:
    """Set the global random generators to a state that `random_state` saved."""
    arrays, (version, next_gauss) = saved.arrays, saved.facts["python"]
    torch.set_rng_state(torch.from_numpy(arrays["random.torch"].copy()))
    np.random.set_state(("MT19937", arrays["random.numpy"], *saved.facts["numpy"]))
    random.setstate((version, tuple(arrays["random.python"].tolist()), next_gauss))


def _box(space: spaces.Space[Any]) -> dict[str, Any]:
    assert isinstance(space, spaces.Box)
    return {"low": float(space.low.min()), "high": float(space.high.max()), "shape": list(space.shape)}


def restore_spaces(facts: Mapping[str, Any]) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """(observation space, action space) of `weights_with_spaces`."""

    def box(facts: Mapping[str, Any]) -> spaces.Box:
        return spaces.Box(facts["low"], facts["high"], tuple(facts["shape"]), np.float32)

    chosen = facts["actions"]
    actions = box(chosen) if isinstance(chosen, Mapping) else spaces.Discrete(chosen)
    if "row" in facts:
        return box(facts["row"]), actions
    blocks = [(name, box(one)) for name, one in facts["blocks"]]
    return spaces.Dict(OrderedDict(blocks)), actions
