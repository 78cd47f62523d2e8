"""Policy gradients on scores, by comparing what becomes of copies of one moment."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Count, Positive, checked
from ringyard_agents.learning.episodes import Episodes, World
from ringyard_agents.learning.noisy_scores import NoisyPlayer, Samples, add_gradient, mirrored_noise, steady
from ringyard_agents.learning.round_order import RoundOrder, round_order
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
        played, samples, valid = {}, [], []
        for number, (label, world) in enumerate(self._worlds.items()):
            played[label], noted, noisy = self._compare(number, label, world)
            samples.append(noted)
            valid.append(noisy)
        joined = Samples.joined(samples)
        order = round_order(self.hardware.peers, valid, joined.counts)
        return self._count(played) | self._step(joined, order)

    def _compare(self, number: int, label: str, world: World) -> tuple[Episodes, Samples, NDArray[np.bool_]]:
        """Copies of moments of a world, samples of their decisions with noise, and where these were made."""
        calm, own = steady(self._network), self._own_workloads
        rng, num_jobs = self._rng(number, 1), world.setting.workload.num_jobs
        world.begin(self._entries(number)[:: self.group_size])
        world.go_on(calm, arrivals=rng.uniform(0, num_jobs, self.workloads)[own])
        world.fork(np.repeat(np.arange(own.stop - own.start), self.group_size), self.arrivals)
        noise = mirrored_noise(rng, self.workloads * self.group_size, num_jobs)[self._own_clusters]
        player = NoisyPlayer(self._network, noise, self.noise)
        noisy = world.go_on(player, events=self.events)
        played = self._paid(label, noisy.then(world.go_on(calm)))
        better = _advantages(played.returns, self.group_size)
        advantages = np.broadcast_to(better, noisy.valid.shape)[noisy.valid]
        return played, player.samples(advantages, self.hardware.peers), noisy.valid

    def _step(self, samples: Samples, round_: RoundOrder) -> dict[str, float]:
        """One gradient step on some of the decisions; what to plot."""
        order = self._rng(len(self._worlds)).permutation(len(round_.counts))
        some = order[: np.searchsorted(np.cumsum(round_.counts[order]), self.batch_size) + 1]
        self._optimizer.zero_grad()
        own, scores = samples.some(round_.among_own(some)), int(round_.counts[some].sum())
        # from where the noise was drawn: every ratio is 1, nothing is clipped
        means = add_gradient(self._network, own, scores, self.noise, np.inf)
        return self._descend(means, self.max_grad_norm)


def _advantages(returns: NDArray[np.float64], group_size: int) -> NDArray[np.float32]:
    """[clusters] of unit spread in each group, times a weight that grows with what noise changed there."""
    groups = returns.reshape(-1, group_size)
    mean, spread = groups.mean(axis=1, keepdims=True), groups.std(axis=1, keepdims=True)
    weight = np.minimum(np.sqrt(spread / (np.abs(mean) + 1e-12) / _USUAL_SPREAD), _MOST_WEIGHT)
    return ((groups - mean) / (spread + 1e-12) * weight).astype(np.float32).reshape(-1)
