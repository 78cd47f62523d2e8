"""Networks, optimisers, random states and spaces as arrays and plain data, and back."""

import random
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from ringyard.errors import CheckpointError
from ringyard_agents.learning.checkpoint import Checkpoint

__all__ = [
    "network_state",
    "random_state",
    "restore_network",
    "restore_random",
    "restore_spaces",
    "weights_of",
    "weights_with_spaces",
]

_WEIGHTS, _OPTIMISER = "network.", "optimizer."


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def _below(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    for name, array in arrays.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), torch.from_numpy(array.copy())


def weights_of(weights: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    """A network's `state_dict` as it is saved."""
    return _arrays({_WEIGHTS + name: tensor for name, tensor in weights.items()})


def weights_with_spaces(
    weights: Mapping[str, torch.Tensor], seen: spaces.Space[Any], actions: spaces.Space[Any]
) -> Checkpoint:
    """A network to be played: its `state_dict`, and the spaces to build it for."""
    return Checkpoint(weights_of(weights), {"spaces": _spaces(seen, actions)})


def network_state(network: nn.Module, optimizer: Optimizer) -> Checkpoint:
    """A network to learn on: weights, the optimiser's moments and settings."""
    state = optimizer.state_dict()
    moments: dict[str, torch.Tensor] = {}
    for parameter, tensors in state["state"].items():
        moments |= {f"{_OPTIMISER}{parameter}.{name}": tensor for name, tensor in tensors.items()}
    arrays = weights_of(network.state_dict()) | _arrays(moments)
    return Checkpoint(arrays, {"optimizer": state["param_groups"]})


def restore_network(network: nn.Module, saved: Checkpoint, optimizer: Optimizer | None = None) -> None:
    """Give a network of the same shapes the saved weights, and its optimiser the saved state if there is one.

    Raises:
        CheckpointError: other shapes or types, not all there, or weights that are no finite numbers.
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
    """Of torch, NumPy and Python, from which learners draw."""
    _, keys, position, has_gauss, gauss = np.random.get_state()
    version, numbers, next_gauss = random.getstate()
    arrays = {
        "random.torch": torch.get_rng_state().numpy().copy(),
        "random.numpy": np.asarray(keys).copy(),
        "random.python": np.array(numbers, np.int64),
    }
    return Checkpoint(arrays, {"numpy": [position, has_gauss, gauss], "python": [version, next_gauss]})


def restore_random(saved: Checkpoint) -> None:
    """Draw on from there; `saved` may hold more than `random_state` gave."""
    arrays, (version, next_gauss) = saved.arrays, saved.facts["python"]
    torch.set_rng_state(torch.from_numpy(arrays["random.torch"].copy()))
    np.random.set_state(("MT19937", arrays["random.numpy"], *saved.facts["numpy"]))
    random.setstate((version, tuple(arrays["random.python"].tolist()), next_gauss))


def _box(space: spaces.Space[Any]) -> dict[str, Any]:
    assert isinstance(space, spaces.Box)
    return {"low": float(space.low.min()), "high": float(space.high.max()), "shape": list(space.shape)}


def _spaces(seen: spaces.Space[Any], actions: spaces.Space[Any]) -> dict[str, Any]:
    chosen = int(actions.n) if isinstance(actions, spaces.Discrete) else _box(actions)
    if isinstance(seen, spaces.Dict):  # a list: networks may read blocks in their order
        return {"blocks": [[name, _box(box)] for name, box in seen.spaces.items()], "actions": chosen}
    return {"row": _box(seen), "actions": chosen}


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
