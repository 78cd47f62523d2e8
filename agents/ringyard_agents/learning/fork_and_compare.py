"""Policy gradients on scores, by comparing what becomes of copies of one moment."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.checks import Count, Positive, checked
from ringyard_agents.learning.episodes import Episodes, World
from ringyard_agents.learning.noisy_scores import NoisyPlayer, Samples, add_gradient, mirrored_noise, steady
from ringyard_agents.learning.score_learner import ScoreLearner, Spread, require_pairs

__all__ = ["ForkAndCompare"]

#: how far one group outweighs a usual one, whose returns differ by this share of their mean
_USUAL_SPREAD, _MOST_WEIGHT = 0.01, 5.0


@checked("agent")
@dataclass(kw_only=True)
class ForkAndCompare(ScoreLearner):
    """PPO without a critic, whose groups are copies of a cluster at some moment of an episode.

    The copies see the same jobs and the same future. Each plays some decisions with noise drawn once per job,
    in mirrored pairs, and then goes on without noise, with no more than the next arrivals, until all is done.
    What noise does late in an episode is not drowned by what it did early; episodes may be long.

    Attributes:
        workloads: moments in each world and round.
        group_size: copies of each, even.
        noise: its spread, in scores.
        events: decisions with noise.
        arrivals: jobs that still come, after the moment.
        batch_size: scores of single jobs in a round's only gradient step.
        max_grad_norm: longer gradients are shortened.
    """

    workloads: Count = 6
    learning_rate: Positive = 2e-3
    averaging: Annotated[float, "[0, 1)"] = 0.99
    noise: Spread = 0.1
    events: Count = 48
    arrivals: Count = 400
    batch_size: Count = 16384
    max_grad_norm: Positive = 0.5

    def __post_init__(self) -> None:
        require_pairs(self.group_size)

    def _round(self) -> dict[str, float]:
        played, samples = {}, []
        for number, (label, world) in enumerate(self._worlds.items()):
            played[label], noted = self._compare(number, label, world)
            samples.append(noted)
        return self._count(played) | self._step(Samples.joined(samples))

    def _compare(self, number: int, label: str, world: World) -> tuple[Episodes, Samples]:
        """Copies of moments of a world, and samples of their decisions with noise."""
        calm, clusters = steady(self._network), world.batch.num_clusters
        rng, num_jobs = self._rng(number, 1), world.setting.workload.num_jobs
        world.begin(self._entries(number)[:: self.group_size])
        world.go_on(calm, arrivals=rng.uniform(0, num_jobs, self.workloads))
        world.fork(np.repeat(np.arange(self.workloads), self.group_size), self.arrivals)
        player = NoisyPlayer(self._network, mirrored_noise(rng, clusters, num_jobs), self.noise)
        noisy = world.go_on(player, events=self.events)
        played = self._paid(label, noisy.then(world.go_on(calm)))
        better = _advantages(played.returns, self.group_size)
        return played, player.samples(np.broadcast_to(better, noisy.valid.shape)[noisy.valid])

    def _step(self, samples: Samples) -> dict[str, float]:
        """One gradient step on some of the decisions; what to plot."""
        order = self._rng(len(self._worlds)).permutation(len(samples.counts))
        some = order[: np.searchsorted(np.cumsum(samples.counts[order]), self.batch_size) + 1]
        self._optimizer.zero_grad()
        # from where the noise was drawn: every ratio is 1, nothing is clipped
        measured = add_gradient(self._network, samples.some(some), self.noise, np.inf)
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), self.max_grad_norm)
        self._optimizer.step()
        return measured


def _advantages(returns: NDArray[np.float64], group_size: int) -> NDArray[np.float32]:
    """[clusters] of unit spread in each group, times a weight that grows with what noise changed there."""
    groups = returns.reshape(-1, group_size)
    mean, spread = groups.mean(axis=1, keepdims=True), groups.std(axis=1, keepdims=True)
    weight = np.minimum(np.sqrt(spread / (np.abs(mean) + 1e-12) / _USUAL_SPREAD), _MOST_WEIGHT)
    return ((groups - mean) / (spread + 1e-12) * weight).astype(np.float32).reshape(-1)
