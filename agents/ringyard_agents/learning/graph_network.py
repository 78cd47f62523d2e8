"""`GraphExtractor`: a graph network on the operations of a job, for policies of Stable-Baselines3."""

from typing import Annotated, Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from ringyard.checks import require
from ringyard.errors import ConfigurationError
from ringyard.state.operations import DEPENDENCIES, OPERATIONS

_GRAPH = ("operations", "dependencies")
# numbers in PAC-ML's graph network: in each half of a message, between rounds, and in the result
_HALF, _HIDDEN, _RESULT = 16, 64, 16


def _layer(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, outputs), nn.ReLU())


class MessageRound(nn.Module):
    """One round of PAC-ML's message passing, from `inputs` to `outputs` numbers of an operation.

    An operation becomes the mean of its own message and those of the operations whose output it needs.
    Half of a message describes the sender, half the dependency.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.operation, self.dependency = _layer(inputs, _HALF), _layer(2, _HALF)
        self.reduce = _layer(2 * _HALF, outputs)

    def forward(self, operations: Tensor, dependencies: Tensor) -> Tensor:
        """Return [B, N, outputs] of `operations` [B, N, inputs] with `dependencies` [B, E, 4]."""
        present = (dependencies[..., 1:2] > 0).float()
        source, target = (dependencies[..., :2] * OPERATIONS).round().long().unbind(-1)
        own = self.operation(operations)
        sender = own.gather(1, source.unsqueeze(-1).expand(-1, -1, _HALF))
        sent = self.reduce(torch.cat((sender, self.dependency(dependencies[..., 2:])), -1)) * present
        kept = self.reduce(nn.functional.pad(own, (0, _HALF)))
        count = torch.ones_like(kept[..., :1]).scatter_add(1, target.unsqueeze(-1), present)
        return kept.scatter_add(1, target.unsqueeze(-1).expand_as(sent), sent) / count


class GraphExtractor(BaseFeaturesExtractor):
    """All blocks of `operation_graph` but the graph, and in its place what a graph network makes of it.

    `MaskablePPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": GraphExtractor})`.

    Args:
        observation_space: Dict space of `ringyard.mdp.observations.operation_graph`.
        rounds: number of rounds of message passing. 0: the graph is left out.

    Raises:
        ConfigurationError: another space, or a number out of its range.
    """

    def __init__(self, observation_space: spaces.Space[Any], rounds: int = 2) -> None:
        require("rounds", rounds, Annotated[int, "[0, 64]"])
        if not isinstance(observation_space, spaces.Dict) or set(_GRAPH) - set(observation_space.spaces):
            raise ConfigurationError(
                f"GraphExtractor got {observation_space}; expected a Dict with {', '.join(_GRAPH)}"
                " (observation=operation_graph, flat=False)"
            )
        sizes = {name: spaces.flatdim(space) for name, space in observation_space.spaces.items()}
        others = [name for name in sizes if name not in _GRAPH]
        super().__init__(observation_space, sum(sizes[name] for name in others) + (_RESULT if rounds else 0))
        widths = [sizes["operations"] // OPERATIONS, *[_HIDDEN] * (rounds - 1), _RESULT]
        self.others = others
        self.rounds = nn.ModuleList(MessageRound(*widths[i : i + 2]) for i in range(rounds))

    def forward(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [B, features] of the `blocks`."""
        parts = [blocks[name] for name in self.others]
        if self.rounds:
            operations = blocks["operations"].unflatten(-1, (OPERATIONS, -1))
            present = (operations[..., :1] > 0).float()  # other rows are 0
            for one in self.rounds:
                operations = one(operations, blocks["dependencies"].unflatten(-1, (DEPENDENCIES, -1)))
            parts.append((operations * present).sum(1) / present.sum(1).clamp(min=1.0))
        return torch.cat(parts, -1)
