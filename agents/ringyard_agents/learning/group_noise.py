"""Group-relative PPO on scores, with one noise per job and episode."""

from dataclasses import dataclass

import numpy as np

from ringyard.checks import Count, Positive, checked
from ringyard_agents.learning.noisy_scores import NoisyPlayer, Samples, add_gradient, mirrored_noise
from ringyard_agents.learning.ppo import Credit, group_advantages
from ringyard_agents.learning.round_order import RoundOrder, round_order
from ringyard_agents.learning.score_learner import ScoreLearner, Spread, require_pairs

__all__ = ["GroupNoise"]


@checked("agent")
@dataclass(kw_only=True)
class GroupNoise(ScoreLearner):
    """PPO without a critic (Schulman et al. 2017; Shao et al. 2024) on the score of every single job.

    A job's score is the network's plus noise drawn once for its whole episode: what a single noisy decision
    does washes out, what an episode of them does is seen. Advantages compare clusters with the same workload,
    in which noise comes in mirrored pairs.

    Attributes:
        noise: its spread, in scores.
        credit: how decisions share the return of their episode, see `ppo.group_advantages`.
        n_epochs: times that each round is learnt from.
        batch_size: scores of single jobs in a gradient step.
        clip_range: of the ratio of each single score's probability.
        max_grad_norm: longer gradients are shortened.
    """

    noise: Spread = 0.05
    credit: Credit = "time_aligned"
    n_epochs: Count = 2
    batch_size: Count = 32768
    clip_range: Positive = 0.2
    max_grad_norm: Positive = 0.5

    def __post_init__(self) -> None:
        require_pairs(self.group_size)

    def _round(self) -> dict[str, float]:
        played, samples, peers = {}, [], self.hardware.peers
        for number, (label, world) in enumerate(self._worlds.items()):
            jobs = world.setting.workload.num_jobs
            everyone = self.workloads * self.group_size
            noise = mirrored_noise(self._rng(number, 1), everyone, jobs)[self._own_clusters]
            player = NoisyPlayer(self._network, noise, self.noise)
            one = played[label] = self._paid(label, world.play(self._entries(number), player))
            advantages = group_advantages(*one, self.group_size, self.credit)[one.valid]
            samples.append(player.samples(advantages, peers))
        joined = Samples.joined(samples)
        order = round_order(peers, [one.valid for one in played.values()], joined.counts)
        return self._count(played) | self._update(joined, order)

    def _update(self, samples: Samples, round_: RoundOrder) -> dict[str, float]:
        """Epochs of gradient steps on a round; means of what they measured."""
        measured: list[dict[str, float]] = []
        rng = self._rng(len(self._worlds))
        for _ in range(self.n_epochs):
            order = rng.permutation(len(round_.counts))
            total = np.cumsum(round_.counts[order])
            steps = max(1, round(total[-1] / self.batch_size))
            for decisions in np.split(order, np.searchsorted(total, total[-1] * np.arange(1, steps) / steps)):
                scores = int(round_.counts[decisions].sum())
                measured.append(self._step(samples.some(round_.among_own(decisions)), scores))
        return {name: float(np.mean([one[name] for one in measured])) for name in measured[0]}

    def _step(self, samples: Samples, scores: int) -> dict[str, float]:
        """A gradient step on this process's part of so many scores; what to plot."""
        self._optimizer.zero_grad()
        means = add_gradient(self._network, samples, scores, self.noise, self.clip_range)
        return self._descend(means, self.max_grad_norm)
