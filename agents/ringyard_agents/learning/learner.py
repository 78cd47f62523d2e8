"""Protocols of learners and policies, and functions that save and restore their state."""

import math
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

EnvConfigs = Mapping[str, EnvConfig]  #: {label of an environment: its configuration}

#: called between two rounds of learning with {TensorBoard tag: value} measured since the last call
Callback = Callable[[Mapping[str, float]], None]


class Policy(Protocol):
    """Chooses an action for each of several clusters.

    Attributes:
        flat: True if it reads one row of numbers per cluster, False if it reads blocks by name.
    """

    flat: bool

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        """Choose the preferred action of each cluster, without exploration.

        Args:
            observations: [clusters, size] if flat, else {block: [clusters, length]}.
            masks: [clusters, actions] True where an action is valid. With the actions `Scores`: [clusters, N]
                True where there is a job to score.

        Returns:
            A new array: [clusters] actions, or [clusters, (1 + T) N] float32 scores with `Scores`.
        """


class Learner(Protocol):
    """A learning algorithm, which conf/agent configures.

    Order of calls: `setup`, then `load_weights` if the run begins with a trained agent, then `learn`. During
    `learn`, its callback reads `decisions`, `policy`, `state` and `weights`. `load` needs no `setup`: it
    makes the policy of a saved agent. `tests/toy_learner.py` is a minimal example.

    Attributes:
        flat: True if its policy reads one row of numbers per cluster, False if it reads blocks by name.
        masked: True if its policy chooses valid actions only. Otherwise an invalid action counts as waiting.
    """

    flat: bool
    masked: bool

    @property
    def decisions(self) -> int:
        """Environment steps learnt from so far, summed over clusters and over resumed runs."""

    @property
    def policy(self) -> Policy:
        """The current policy."""

    def setup(self, environments: EnvConfigs, seed: int, saved: Checkpoint | None = None) -> None:
        """Prepare to learn in one or several environments.

        Args:
            environments: {label: environment}, each from `adapt_env_config`. All have the same actions and
                the same form of observation.
            seed: seed of every random draw.
            saved: the `state` of an earlier run to continue. None: start a new run.
        """

    def load_weights(self, weights: Checkpoint) -> None:
        """Start from the `weights` of a trained agent. Called after `setup` and before `learn`.

        Raises:
            CheckpointError: the weights do not fit the network.
        """

    def learn(self, total_decisions: int, callback: Callback) -> None:
        """Learn until `decisions` reaches `total_decisions`. The last round is played to its end.

        Args:
            total_decisions: decisions since the first `setup`, those of resumed runs included.
            callback: called before the first round and after every round, with {TensorBoard tag: value}. It
                may read `state` and `weights`, and may raise an error to end learning.
        """

    def state(self) -> Checkpoint:
        """Copy everything that `setup` needs to continue bit for bit: weights, counters, random states."""

    def weights(self) -> Checkpoint:
        """Copy the arrays and the metadata that `load` needs to make the current policy."""

    def load(self, saved: Checkpoint) -> Policy:
        """Make the policy of `weights` that a learner with the same settings saved."""


def single_environment(environments: EnvConfigs) -> EnvConfig:
    """Return the only environment, for learners that support just one, or raise a ConfigurationError."""
    if len(environments) > 1:
        raise ConfigurationError(
            f"this agent learns in one environment; got {', '.join(environments)}; leave out environments=,"
            " or choose an agent that learns in several (agent=evolution)"
        )
    return next(iter(environments.values()))


def adapt_env_config(learner: Learner, config: EnvConfig) -> EnvConfig:
    """Return a configuration as a learner needs it, by its `flat` and `masked` (only discrete actions)."""
    if learner.masked and not isinstance(config.actions.space, spaces.Discrete):
        raise ConfigurationError(
            f"the agent chooses one of several actions, and action={type(config.actions).__name__} has the"
            f" space {config.actions.space}; expected agent=ppo_weights (form=weights), agent=ppo_jobs or"
            " agent=evolution (form=jobs), or discrete actions (form=queue, action=start_stop)"
        )
    actions = config.actions.with_raise_on_invalid(learner.masked)
    return replace(config, observation=replace(config.observation, flat=learner.flat), actions=actions)


_WEIGHTS = "network."

MAX_SPACE_SIZE = 1 << 20  #: largest number of values in the spaces of a saved agent


def _to_arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def _with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    for name, array in arrays.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), torch.from_numpy(array.copy())


def weight_arrays(weights: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    """Copy the tensors of a network's `state_dict` to arrays, under the names of a checkpoint."""
    return _to_arrays({_WEIGHTS + name: tensor for name, tensor in weights.items()})


def weights_with_spaces(network: Any) -> Checkpoint:
    """Copy the weights and the spaces of a network of Stable-Baselines3."""
    observation_space, action_space = network.observation_space, network.action_space
    discrete = isinstance(action_space, spaces.Discrete)
    described: dict[str, Any] = {"actions": int(action_space.n) if discrete else _describe_box(action_space)}
    if isinstance(observation_space, spaces.Dict):  # a list, because networks may read blocks in their order
        described["blocks"] = [[name, _describe_box(box)] for name, box in observation_space.spaces.items()]
    else:
        described["row"] = _describe_box(observation_space)
    return Checkpoint(weight_arrays(network.state_dict()), {"spaces": described})


def network_state(network: nn.Module, **optimizers: Optimizer) -> Checkpoint:
    """Copy the weights of a network, and the moments and settings of its optimizers."""
    states = {name: optimizer.state_dict() for name, optimizer in optimizers.items()}
    moments: dict[str, torch.Tensor] = {}
    for optimizer, state in states.items():
        for parameter, tensors in state["state"].items():
            moments |= {f"{optimizer}.{parameter}.{name}": tensor for name, tensor in tensors.items()}
    arrays = weight_arrays(network.state_dict()) | _to_arrays(moments)
    return Checkpoint(arrays, {name: state["param_groups"] for name, state in states.items()})


def restore_network(network: nn.Module, saved: Checkpoint, **optimizers: Optimizer) -> None:
    """Load saved weights, and moments if there are any, into a network and its optimizers.

    `saved` is of `network_state`, or has `weight_arrays`. Names, shapes and types must be equal and values
    finite.
    """
    try:
        weights = dict(_with_prefix(saved.arrays, _WEIGHTS))
        network.load_state_dict(weights)
        for name, loaded in network.state_dict().items():
            if loaded.dtype != weights[name].dtype:
                raise TypeError(f"{name} is {weights[name].dtype}, expected {loaded.dtype}")
            if not torch.isfinite(loaded).all():
                raise ValueError(f"{name} has values that are infinite or not a number")
        for label, optimizer in optimizers.items():
            if label in saved.metadata:
                moments: dict[int, dict[str, torch.Tensor]] = {}
                for name, tensor in _with_prefix(saved.arrays, f"{label}."):
                    parameter, _, moment = name.partition(".")
                    moments.setdefault(int(parameter), {})[moment] = tensor
                optimizer.load_state_dict({"state": moments, "param_groups": saved.metadata[label]})
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"these weights are not of this network: {error}") from error


def random_state() -> Checkpoint:
    """Copy the states of the global random generators of torch, NumPy and Python."""
    _, keys, position, has_gauss, gauss = np.random.get_state()
    version, numbers, next_gauss = random.getstate()
    arrays = {"random.torch": torch.get_rng_state().numpy().copy(), "random.numpy": np.asarray(keys).copy()}
    arrays["random.python"] = np.array(numbers, np.int64)
    return Checkpoint(arrays, {"numpy": [position, has_gauss, gauss], "python": [version, next_gauss]})


def restore_random_state(saved: Checkpoint) -> None:
    """Set the global random generators of torch, NumPy and Python to the result of `random_state`."""
    arrays, (version, next_gauss) = saved.arrays, saved.metadata["python"]
    torch.set_rng_state(torch.from_numpy(arrays["random.torch"].copy()))
    np.random.set_state(("MT19937", arrays["random.numpy"], *saved.metadata["numpy"]))
    random.setstate((version, tuple(arrays["random.python"].tolist()), next_gauss))


def _describe_box(space: spaces.Space[Any]) -> dict[str, Any]:
    assert isinstance(space, spaces.Box)
    return {"low": float(space.low.min()), "high": float(space.high.max()), "shape": list(space.shape)}


def restore_spaces(described: Mapping[str, Any]) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return (observation space, action space) from the metadata of `weights_with_spaces`."""
    left = MAX_SPACE_SIZE

    def box(described: Mapping[str, Any]) -> spaces.Box:
        nonlocal left
        shape = tuple(described["shape"])
        left -= math.prod(shape)
        if math.prod(shape) <= 0 or left < 0:
            raise CheckpointError(
                f"a space has the shape {shape}; expected up to {MAX_SPACE_SIZE:,} numbers in all spaces"
            )
        return spaces.Box(described["low"], described["high"], shape, np.float32)

    actions = described["actions"]
    action_space = box(actions) if isinstance(actions, Mapping) else spaces.Discrete(actions)
    if "row" in described:
        return box(described["row"]), action_space
    blocks = [(name, box(block)) for name, block in described["blocks"]]
    return spaces.Dict(OrderedDict(blocks)), action_space
