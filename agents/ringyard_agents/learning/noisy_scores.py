"""Scores with noise: who plays with it, what is remembered, and PPO's gradient for each job's score."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard_agents.learning.episodes import ScorePlayer
from ringyard_agents.learning.hardware import on
from ringyard_agents.learning.peers import Peers
from ringyard_agents.learning.ppo import add_gradients, clipped_gain
from ringyard_agents.learning.score_networks import ScoreNetwork
from ringyard_agents.learning.score_policy import Seen, scores_of

__all__ = ["NoisyPlayer", "Samples", "add_gradient", "curves_of", "mirrored_noise", "steady"]

#: parts of a minibatch that are filled up to the fullest cluster of each, so that little is computed in vain
_PARTS = 8


class Samples(NamedTuple):
    """Decisions, each about as many jobs as it has scored.

    Attributes:
        jobs: [samples, F] what was seen of the jobs, decision after decision.
        scores: [samples] what they got.
        noise: [samples] how much of it was noise, in units of its spread.
        advantages: [samples] what came of that noise.
        counts: [decisions] jobs of each.
        cluster: [decisions, C] what was seen of the clusters.
    """

    jobs: NDArray[np.float32]
    scores: NDArray[np.float32]
    noise: NDArray[np.float32]
    advantages: NDArray[np.float32]
    counts: NDArray[np.int64]
    cluster: NDArray[np.float32]

    def some(self, decisions: NDArray[np.int64]) -> "Samples":
        """Those of some decisions."""
        counts = self.counts[decisions]
        ends = np.cumsum(counts)
        first = (np.cumsum(self.counts) - self.counts)[decisions]
        rows = np.repeat(first - (ends - counts), counts) + np.arange(int(counts.sum()))
        jobs, scores, noise, advantages = (part[rows] for part in self[:4])
        return Samples(jobs, scores, noise, advantages, counts, self.cluster[decisions])

    def seen(self) -> Seen:
        """As networks read them."""
        present = np.arange(self.counts.max()) < self.counts[:, None]
        jobs = np.zeros((*present.shape, self.jobs.shape[1]), np.float32)
        jobs[present] = self.jobs
        return Seen(jobs, present, self.cluster)

    @staticmethod
    def joined(parts: list["Samples"]) -> "Samples":
        """All of several."""
        return Samples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def steady(network: ScoreNetwork) -> ScorePlayer:
    """Plays a network's scores."""

    def player(seen: Seen, clusters: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.float32]:
        with torch.no_grad():
            scores: NDArray[np.float32] = scores_of(network, seen).cpu().numpy()
        return scores

    return player


def mirrored_noise(rng: np.random.Generator, clusters: int, jobs: int) -> NDArray[np.float32]:
    """[clusters, jobs] of unit spread; each odd cluster has that of the one before it with the other sign."""
    drawn = rng.standard_normal((clusters // 2, 1, jobs), np.float32)
    return np.concatenate((drawn, -drawn), axis=1).reshape(clusters, jobs)


class NoisyPlayer:
    """A network's scores plus noise that a job keeps; remembers what it did.

    Args:
        network: scores jobs.
        noise: [clusters, jobs] of unit spread.
        spread: of the noise, in scores.
    """

    def __init__(self, network: ScoreNetwork, noise: NDArray[np.float32], spread: float) -> None:
        self._network, self._noise, self._spread = network, noise, np.float32(spread)
        #: [clusters x jobs] decision in which the job was first scored
        self._first = np.full(noise.size, -1)
        self._decisions = 0
        self._noted: list[tuple[NDArray[Any], ...]] = []

    def __call__(
        self, seen: Seen, clusters: NDArray[np.int64], rows: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """See `ScorePlayer`."""
        noise, here = self._noise[clusters[:, None], rows], seen.present
        with torch.no_grad():
            found: NDArray[np.float32] = scores_of(self._network, seen).cpu().numpy()
        scores = found[..., 0] + self._spread * noise
        which, slots = np.nonzero(here)
        jobs = clusters[which] * self._noise.shape[1] + rows[which, slots]
        known = self._first[jobs]
        self._first[jobs] = np.where(known < 0, self._decisions + which, known)
        self._decisions += len(clusters)
        self._noted.append((seen.jobs[here], scores[here], noise[here], jobs, here.sum(axis=1), seen.cluster))
        return scores[..., None]

    def samples(self, advantages: NDArray[np.float32], peers: Peers) -> Samples:
        """Of all decisions, in order.

        A job's noise acts from its first decision on: what came of it is that decision's advantage, a share
        for each of its decisions. Noise decides how many these are: unshared, those of jobs that it delays
        would count more, and learning would go astray.

        Args:
            advantages: [decisions].
            peers: who play other clusters of the same world.
        """
        columns = zip(*self._noted, strict=True)
        seen, scores, noise, jobs, counts, cluster = (np.concatenate(column) for column in columns)
        often = np.bincount(jobs)
        scored, different = peers.sums(np.array([len(jobs), np.count_nonzero(often)], np.float64))
        share = scored / different / often[jobs]  # 1 on average
        of_jobs = (share * advantages[self._first[jobs]]).astype(np.float32)
        return Samples(seen, scores, noise, of_jobs, counts, cluster)


def add_gradient(
    network: ScoreNetwork, samples: Samples, total: int, spread: float, clip_range: float
) -> NDArray[np.float64]:
    """Add to a network's gradient that of PPO's clipped loss, score by score.

    Args:
        network: as it is now.
        samples: of some decisions, or of none.
        total: scores in the minibatch, those of other processes' decisions too.
        spread: of the noise.
        clip_range: of the ratio of probabilities.

    Returns:
        [3] this part of the minibatch's means: the loss, how far the policy has moved (an estimate of the
        Kullback-Leibler divergence), the share of ratios that are clipped.
    """
    if not len(samples.counts):
        return np.zeros(3)

    def loss_of(part: Samples) -> tuple[torch.Tensor, tuple[float, ...]]:
        seen, device = part.seen(), next(network.parameters()).device
        means = scores_of(network, seen)[..., 0][on(device, seen.present)]
        noise = (on(device, part.scores) - means) / spread
        log_ratio = (on(device, part.noise) ** 2 - noise**2) / 2  # of normal densities
        gain, moved, outside = clipped_gain(log_ratio, on(device, part.advantages), clip_range)
        loss = -gain / total
        return loss, (loss.item(), moved / total, outside / total)

    by_size = np.argsort(samples.counts, kind="stable")
    parts = np.array_split(by_size, min(_PARTS, len(by_size)))
    losses = [partial(lambda decisions: loss_of(samples.some(decisions)), decisions) for decisions in parts]
    found = np.zeros(3)
    for one in add_gradients(network, losses):
        found += one
    return found


def curves_of(means: NDArray[np.float64]) -> dict[str, float]:
    """What to plot of `add_gradient`'s means, of the whole minibatch."""
    names = ("train/policy_gradient_loss", "train/approx_kl", "train/clip_fraction")
    return dict(zip(names, means.tolist(), strict=True))
