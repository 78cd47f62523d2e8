"""`GraphExtractor`: a graph network on the operations of a job, for policies of Stable-Baselines3."""

import itertools
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


class GraphExtractor(BaseFeaturesExtractor):
    """All blocks of `operation_graph` but the graph, and in its place the output of PAC-ML's graph network.

    In each round an operation becomes the mean of its own message and those of the operations that it needs.
    Half of a message is about the sender, half about the dependency. The result is a mean, too.

    Args:
        observation_space: Dict space of `ringyard.mdp.observations.operation_graph`.
        rounds: number of rounds. 0: the graph is left out.

    Raises:
        ConfigurationError: another space, or a number out of its range.
    """

    def __init__(self, observation_space: spaces.Space[Any], rounds: int = 2) -> None:
        require("rounds", rounds, Annotated[int, "[0, 64]"])
        if not isinstance(observation_space, spaces.Dict) or set(_GRAPH) - set(observation_space.spaces):
            raise ConfigurationError(
                f"GraphExtractor got {observation_space}; expected a Dict with {' and '.join(_GRAPH)}"
                " (observation=operation_graph, flat=False)"
            )
        sizes = {name: spaces.flatdim(one) for name, one in observation_space.items() if name not in _GRAPH}
        super().__init__(observation_space, sum(sizes.values()) + (_RESULT if rounds else 0))
        self.others = list(sizes)
        features = spaces.flatdim(observation_space["operations"]) // OPERATIONS
        widths = [features, *[_HIDDEN] * (rounds - 1), _RESULT]
        self.rounds = nn.ModuleList(
            nn.ModuleList((_layer(inputs, _HALF), _layer(2, _HALF), _layer(2 * _HALF, outputs)))
            for inputs, outputs in itertools.islice(itertools.pairwise(widths), rounds)
        )

    def forward(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [B, features] of the `blocks`."""
        operations = blocks["operations"].view(len(blocks["operations"]), OPERATIONS, -1)
        dependencies = blocks["dependencies"].view(-1, DEPENDENCIES, 4)
        there, used = (operations[..., :1] > 0).float(), (dependencies[..., 1:2] > 0).float()  # else all is 0
        source, target = (dependencies[..., :2] * OPERATIONS).round().long().chunk(2, -1)
        one: Any
        for one in self.rounds:
            of_operation, of_dependency, reduce = one
            own = of_operation(operations)
            sent = torch.cat(
                (own.gather(1, source.expand(-1, -1, _HALF)), of_dependency(dependencies[..., 2:])), -1
            )
            messages, kept = reduce(sent) * used, reduce(nn.functional.pad(own, (0, _HALF)))
            total = kept.scatter_add(1, target.expand_as(messages), messages)
            operations = total / torch.ones_like(there).scatter_add(1, target, used)
        result = [(operations * there).sum(1) / there.sum(1).clamp(min=1.0)] if len(self.rounds) else []
        return torch.cat([*(blocks[name] for name in self.others), *result], -1)
