"""`GraphExtractor`: a graph network on jobs' operations, for policies of Stable-Baselines3."""

from typing import Annotated, Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from ringyard.checks import require
from ringyard.errors import ConfigurationError
from ringyard.state.operations import OPERATIONS

_GRAPH = ("operations", "operations_mask", "dependencies", "dependencies_mask")
# units of PAC-ML's graph network: of each half of a message, between rounds, and of the result
_HALF, _HIDDEN, _RESULT = 16, 64, 16


def _layer(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, outputs), nn.ReLU())


class MessageRound(nn.Module):
    """One round of message passing (PAC-ML): the mean of the messages that reach an operation, and its own.

    A message joins what a network makes of the operation before, and another one of the dependency.

    Args:
        inputs: numbers of an operation.
        outputs: numbers of an operation after the round.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.operation, self.dependency = _layer(inputs, _HALF), _layer(2, _HALF)
        self.reduce = _layer(2 * _HALF, outputs)

    def forward(self, operations: Tensor, dependencies: Tensor, present: Tensor) -> Tensor:
        """Return operations [B, N, outputs].

        Args:
            operations: [B, N, inputs].
            dependencies: [B, E, 4] numbers of both ends / `OPERATIONS`, and two features.
            present: [B, E, 1] 1 where there is a dependency.
        """
        source, target = (dependencies[..., :2] * OPERATIONS).round().long().unbind(-1)
        own = self.operation(operations)
        before = own.gather(1, source.unsqueeze(-1).expand(-1, -1, _HALF))
        sent = self.reduce(torch.cat((before, self.dependency(dependencies[..., 2:])), -1)) * present
        total = self.reduce(nn.functional.pad(own, (0, _HALF)))
        count = torch.ones_like(total[..., :1]).scatter_add(1, target.unsqueeze(-1), present)
        return total.scatter_add(1, target.unsqueeze(-1).expand_as(sent), sent) / count


class GraphExtractor(BaseFeaturesExtractor):
    """Features of `operation_graph` for an MLP: all blocks but the graph, and what a graph network makes of it.

    `MaskablePPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": GraphExtractor})`.

    Args:
        observation_space: Dict space with the blocks of `ringyard.mdp.observations.operation_graph`.
        rounds: of message passing. 0: the graph is left out.

    Raises:
        ConfigurationError: another space, or rounds below 0.
    """

    def __init__(self, observation_space: spaces.Space[Any], rounds: int = 2) -> None:
        require("rounds", rounds, Annotated[int, "[0, 64]"])
        if not isinstance(observation_space, spaces.Dict) or set(_GRAPH) - set(observation_space.spaces):
            raise ConfigurationError(
                f"GraphExtractor got {observation_space}; expected a Dict with {', '.join(_GRAPH)}, as of"
                " observation=operation_graph with flat=False"
            )
        sizes = {name: spaces.flatdim(space) for name, space in observation_space.spaces.items()}
        self._others = [name for name in sizes if name not in _GRAPH]
        super().__init__(
            observation_space, sum(sizes[name] for name in self._others) + _RESULT * (rounds > 0)
        )
        widths = [sizes["operations"] // OPERATIONS, *[_HIDDEN] * (rounds - 1), _RESULT]
        self.rounds = nn.ModuleList(MessageRound(*widths[i : i + 2]) for i in range(rounds))

    def forward(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [B, features]."""
        parts = [blocks[name] for name in self._others]
        if len(self.rounds):
            mask, present = blocks["operations_mask"].unsqueeze(-1), blocks["dependencies_mask"].unsqueeze(-1)
            operations = blocks["operations"].view(*mask.shape[:2], -1)
            dependencies = blocks["dependencies"].view(*present.shape[:2], -1)
            for one in self.rounds:
                operations = one(operations, dependencies, present)
            parts.append((operations * mask).sum(1) / mask.sum(1).clamp(min=1.0))
        return torch.cat(parts, -1)
