"""Evolution strategies on the weights of a score network."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call, vmap

from ringyard.checks import Positive, PositiveInt, checked
from ringyard_agents.learning.process_group import on
from ringyard_agents.learning.score_learner import ScoreLearner, Spread
from ringyard_agents.learning.score_networks import Floats, Ids, PolicyInput, ScoreNetwork


def _by_weight(network: ScoreNetwork, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
    """{name of a parameter: [..., its shape]} of vectors [..., all weights of a network]."""
    own = dict(network.named_parameters())
    parts = torch.split(vectors, [one.numel() for one in own.values()], -1)
    return {
        name: part.reshape(*vectors.shape[:-1], *one.shape)
        for (name, one), part in zip(own.items(), parts, strict=True)
    }


class Population:
    """Scores the jobs of each cluster with other weights of a network, all in one call.

    Args:
        network: scores jobs.
        changes: [clusters, weights] added to the network's weights.
    """

    def __init__(self, network: ScoreNetwork, changes: torch.Tensor) -> None:
        own = {name: one.detach() for name, one in network.named_parameters()}
        self._weights = {name: own[name] + change for name, change in _by_weight(network, changes).items()}
        self._device = changes.device
        self._scores = vmap(lambda weights, *seen: functional_call(network, weights, seen))

    def __call__(self, seen: PolicyInput, clusters: Ids, rows: NDArray[np.int32]) -> Floats:
        """See `ScorePlayer`."""
        own = {name: values[clusters] for name, values in self._weights.items()}
        jobs, present, cluster = (on(self._device, part) for part in seen)
        with torch.no_grad():
            scores = self._scores(own, jobs, present.float(), cluster)
        found: Floats = scores.cpu().numpy()
        return found


def _centred_ranks(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """[groups, members] ranks from -0.5 (worst of its group) to 0.5; equal returns share one."""
    below = (returns[:, None, :] < returns[:, :, None]).sum(axis=2)
    equal = (returns[:, None, :] == returns[:, :, None]).sum(axis=2)
    return np.asarray((below + (equal - 1) / 2) / (returns.shape[1] - 1) - 0.5)


@checked("agent")
@dataclass(kw_only=True)
class EvolutionStrategies(ScoreLearner):
    """Evolution strategies: antithetic changes of all weights, ranked by the returns of their episodes.

    Each cluster plays with its own changes, the same in every environment. Returns are ranked within groups
    that play the same workload. Environments count the same.

    Source: Salimans et al. 2017.

    Attributes:
        spread: of the changes, in weights.
    """

    workloads: PositiveInt = 2
    group_size: Annotated[int, "[2, 4096]"] = 16
    learning_rate: Positive = 3e-2
    averaging: Annotated[float, "[0, 1)"] = 0.8
    spread: Spread = 0.1
    learns_types = True

    def _round(self) -> dict[str, float]:
        half = self.workloads * self.group_size // 2
        size = sum(one.numel() for one in self._network.parameters())
        drawn = self._rng(len(self._worlds)).standard_normal((half, size), np.float32)
        both = np.stack((drawn, -drawn), axis=1).reshape(2 * half, size)[self._own_clusters]
        changes = torch.as_tensor(both, device=self.hardware.device)
        player = Population(self._network, self.spread * changes)
        played = {
            label: self._paid(label, world.play(self._entries(number), player))
            for number, (label, world) in enumerate(self._worlds.items())
        }
        places = [_centred_ranks(one.returns.reshape(-1, self.group_size)) for one in played.values()]
        shares = torch.as_tensor(np.mean(places, axis=0).reshape(-1), dtype=torch.float32)
        total = self.hardware.peers.total(shares.to(changes.device) @ changes)
        up = _by_weight(self._network, total / (2 * half * self.spread))
        for name, own in self._network.named_parameters():
            own.grad = -up[name]
        self._optimizer.step()
        return self._count(played)
