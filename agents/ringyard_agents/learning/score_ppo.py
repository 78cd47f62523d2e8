"""PPO without a critic on noisy scores of single jobs."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.checks import Positive, PositiveInt, checked
from ringyard_agents.learning.episodes import Episodes, ScorePlayer, ScoreWorld
from ringyard_agents.learning.policy_gradient import (
    Credit,
    RoundOrder,
    add_gradients,
    clipped_gain,
    descend,
    group_advantages,
    round_order,
)
from ringyard_agents.learning.process_group import ProcessGroup, on
from ringyard_agents.learning.score_learner import ScoreLearner, Spread
from ringyard_agents.learning.score_networks import (
    Floats,
    Ids,
    Masks,
    PolicyInput,
    ScoreNetwork,
    filled,
    play,
    scores_of,
)

#: parts of a minibatch, each padded to its fullest cluster: more of them compute less padding
_PARTS = 8


class RolloutBatch(NamedTuple):
    """Decisions to learn from, with a sample for each job scored.

    Attributes:
        jobs: [samples, F] features of the jobs, decision after decision.
        scores: [samples] scores, noise included.
        noise: [samples] noise in the scores, in units of its spread.
        advantages: [samples] of the noise.
        counts: [decisions] jobs scored in each.
        cluster: [decisions, C] features of the cluster.
    """

    jobs: Floats
    scores: Floats
    noise: Floats
    advantages: Floats
    counts: Ids
    cluster: Floats

    def some(self, decisions: Ids) -> "RolloutBatch":
        """The samples of some decisions."""
        counts = self.counts[decisions]
        ends = np.cumsum(counts)
        first = (np.cumsum(self.counts) - self.counts)[decisions]
        rows = np.repeat(first - (ends - counts), counts) + np.arange(int(counts.sum()))
        jobs, scores, noise, advantages = (part[rows] for part in self[:4])
        return RolloutBatch(jobs, scores, noise, advantages, counts, self.cluster[decisions])

    def seen(self) -> PolicyInput:
        """The features, as networks read them."""
        return PolicyInput(*filled(self.jobs, self.counts), self.cluster)

    @staticmethod
    def joined(parts: list["RolloutBatch"]) -> "RolloutBatch":
        """All samples of several batches."""
        return RolloutBatch(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def deterministic(network: ScoreNetwork) -> ScorePlayer:
    """A player of a network's scores without noise."""
    return lambda seen, clusters, rows: play(network, seen)


class PerturbedPolicy:
    """Plays a network's scores plus noise that each job keeps, and records its decisions.

    Args:
        network: scores jobs.
        noise: [clusters, jobs] of unit spread.
        spread: of the noise, in scores.
    """

    def __init__(self, network: ScoreNetwork, noise: Floats, spread: float) -> None:
        self._network, self._noise, self._spread = network, noise, np.float32(spread)
        #: [clusters x jobs] decision in which the job was first scored
        self._first = np.full(noise.size, -1)
        self._decisions = 0
        self._noted: list[tuple[NDArray[Any], ...]] = []

    def __call__(self, seen: PolicyInput, clusters: Ids, rows: NDArray[np.int32]) -> Floats:
        """See `ScorePlayer`."""
        noise, here = self._noise[clusters[:, None], rows], seen.present
        scores = play(self._network, seen)[..., 0] + self._spread * noise
        which, slots = np.nonzero(here)
        jobs = clusters[which] * self._noise.shape[1] + rows[which, slots]
        known = self._first[jobs]
        self._first[jobs] = np.where(known < 0, self._decisions + which, known)
        self._decisions += len(clusters)
        self._noted.append((seen.jobs[here], scores[here], noise[here], jobs, here.sum(axis=1), seen.cluster))
        return scores[..., None]

    def samples(self, advantages: Floats, peers: ProcessGroup) -> RolloutBatch:
        """Samples of all decisions, in order.

        A job's noise acts from its first decision on, so that its samples share the advantage of that
        decision. Without sharing, jobs that the noise delays would count more, and the gradient be biased.

        Args:
            advantages: [decisions].
            peers: processes that play other clusters of the same environment.
        """
        columns = zip(*self._noted, strict=True)
        seen, scores, noise, jobs, counts, cluster = (np.concatenate(column) for column in columns)
        often = np.bincount(jobs)
        scored, different = peers.sums(np.array([len(jobs), np.count_nonzero(often)], np.float64))
        share = scored / different / often[jobs]  # 1 on average
        of_jobs = (share * advantages[self._first[jobs]]).astype(np.float32)
        return RolloutBatch(seen, scores, noise, of_jobs, counts, cluster)


def add_gradient(
    network: ScoreNetwork, samples: RolloutBatch, total: int, spread: float, clip_range: float
) -> NDArray[np.float64]:
    """Add the gradient of PPO's clipped loss to a network's gradient, score by score.

    Args:
        network: learns.
        samples: this process's part of a minibatch, which may be empty.
        total: scores in the minibatch, in all processes.
        spread: of the noise.
        clip_range: of the ratio of probabilities.

    Returns:
        [3] this part's share of the minibatch's means: loss, estimated Kullback-Leibler divergence from the
        policy that played, share of ratios that are clipped.
    """
    if not len(samples.counts):
        return np.zeros(3)

    def loss_of(decisions: Ids) -> tuple[torch.Tensor, tuple[float, ...]]:
        part, device = samples.some(decisions), next(network.parameters()).device
        seen = part.seen()
        means = scores_of(network, seen)[..., 0][on(device, seen.present)]
        noise = (on(device, part.scores) - means) / spread
        log_ratio = (on(device, part.noise) ** 2 - noise**2) / 2  # of normal densities
        gain, moved, outside = clipped_gain(log_ratio, on(device, part.advantages), clip_range)
        loss = -gain / total
        return loss, (loss.item(), moved / total, outside / total)

    by_size = np.argsort(samples.counts, kind="stable")
    parts = np.array_split(by_size, min(_PARTS, len(by_size)))
    return add_gradients(network, loss_of, parts)


#: TensorBoard tags of the measurements of `add_gradient`
_CURVES = ("train/policy_gradient_loss", "train/approx_kl", "train/clip_fraction")


#: (episodes, samples of decisions with noise, [steps, clusters] where these were made)
_Explored = tuple[Episodes, RolloutBatch, Masks]
#: [gradient steps] measurements of `add_gradient`
_Steps = list[NDArray[np.float64]]


@dataclass(kw_only=True)
class _ScorePPO(ScoreLearner):
    """Explores by noisy scores in every environment, then updates the network."""

    noise: Spread
    batch_size: PositiveInt
    max_grad_norm: Positive = 0.5

    def _round(self) -> dict[str, float]:
        played, samples, valid = {}, [], []
        for number, (label, world) in enumerate(self._worlds.items()):
            played[label], noted, noisy = self._explore(number, label, world)
            samples.append(noted)
            valid.append(noisy)
        joined = RolloutBatch.joined(samples)
        order = round_order(self.hardware.peers, valid, joined.counts)
        measured = self._update(joined, order, self._rng(len(self._worlds)))
        columns = zip(_CURVES, zip(*measured, strict=True), strict=True)
        return self._count(played) | {curve: float(np.mean(values)) for curve, values in columns}

    @abstractmethod
    def _explore(self, number: int, label: str, world: ScoreWorld) -> _Explored:
        """Play an environment in this process's clusters, with noise."""

    @abstractmethod
    def _update(self, samples: RolloutBatch, order: RoundOrder, rng: np.random.Generator) -> _Steps:
        """Take gradient steps on a round."""

    def _perturbed(self, rng: np.random.Generator, world: ScoreWorld) -> PerturbedPolicy:
        """The network with noise for this process's clusters, neighbouring ones of opposite sign."""
        jobs, everyone = world.config.workload.num_jobs, self.workloads * self.group_size
        drawn = rng.standard_normal((everyone // 2, 1, jobs), np.float32)
        noise = np.concatenate((drawn, -drawn), axis=1).reshape(everyone, jobs)
        return PerturbedPolicy(self._network, noise[self._own_clusters], self.noise)

    def _step(
        self, samples: RolloutBatch, order: RoundOrder, decisions: Ids, clip_range: float
    ) -> NDArray[np.float64]:
        """A gradient step on some decisions of all processes; [3] as `add_gradient` measures."""
        self._optimizer.zero_grad()
        own, scores = samples.some(order.among_own(decisions)), int(order.counts[decisions].sum())
        means = add_gradient(self._network, own, scores, self.noise, clip_range)
        descend(self._network, self._optimizer, self.hardware.peers, self.max_grad_norm)
        return self.hardware.peers.sums(means)


@checked("agent")
@dataclass(kw_only=True)
class GroupNoise(_ScorePPO):
    """PPO without a critic on the score of every single job, with noise drawn once a job and episode.

    The effect of noise on a whole episode is visible where that on a single decision is not. Advantages
    compare clusters with the same workload, half of which have the opposite noise.

    Source: Schulman et al. 2017 (PPO), Shao et al. 2024 (advantages within groups).

    Attributes:
        noise: its spread, in scores.
        credit: how decisions share the return of their episode, see `policy_gradient.group_advantages`.
        n_epochs: passes over each round.
        batch_size: scores of single jobs in a gradient step.
        clip_range: of the ratio of each single score's probability.
        max_grad_norm: maximum norm of the gradient.
    """

    noise: Spread = 0.05
    credit: Credit = "time_aligned"
    n_epochs: PositiveInt = 2
    batch_size: PositiveInt = 32768
    clip_range: Positive = 0.2

    def _explore(self, number: int, label: str, world: ScoreWorld) -> _Explored:
        player = self._perturbed(self._rng(number, 1), world)
        played = self._paid(label, world.play(self._entries(number), player))
        advantages = group_advantages(*played, self.group_size, self.credit)[played.valid]
        return played, player.samples(advantages, self.hardware.peers), played.valid

    def _update(self, samples: RolloutBatch, order: RoundOrder, rng: np.random.Generator) -> _Steps:
        measured = []
        for _ in range(self.n_epochs):
            every = rng.permutation(len(order.counts))
            total = np.cumsum(order.counts[every])
            steps = max(1, round(total[-1] / self.batch_size))
            for decisions in np.split(every, np.searchsorted(total, total[-1] * np.arange(1, steps) / steps)):
                measured.append(self._step(samples, order, decisions, self.clip_range))
        return measured


#: usual spread of a group's returns, as a share of their mean; maximum weight of a group with a larger one
_USUAL_SPREAD, _MOST_WEIGHT = 0.01, 5.0


@checked("agent")
@dataclass(kw_only=True)
class ForkAndCompare(_ScorePPO):
    """PPO without a critic, in groups of copies of a cluster at some moment of an episode.

    All copies have the same jobs and the same future. Each plays some decisions with noise drawn once a job,
    in antithetic pairs, and then goes on without noise until the next arrivals are done. Episodes may be
    long, because the effect of late noise is not hidden by that of early noise.

    Attributes:
        workloads: moments in each environment and round.
        group_size: copies of each, even.
        noise: its spread, in scores.
        events: decisions with noise.
        arrivals: jobs that still arrive after the moment.
        batch_size: scores of single jobs in a round's only gradient step.
        max_grad_norm: maximum norm of the gradient.
    """

    workloads: PositiveInt = 6
    learning_rate: Positive = 2e-3
    averaging: Annotated[float, "[0, 1)"] = 0.99
    noise: Spread = 0.1
    events: PositiveInt = 48
    arrivals: PositiveInt = 400
    batch_size: PositiveInt = 16384

    def _explore(self, number: int, label: str, world: ScoreWorld) -> _Explored:
        calm, own = deterministic(self._network), self.hardware.peers.part("agent.workloads", self.workloads)
        rng, num_jobs = self._rng(number, 1), world.config.workload.num_jobs
        world.reset(self._entries(number)[:: self.group_size])
        world.go_on(calm, arrivals=rng.uniform(0, num_jobs, self.workloads)[own])
        world.fork(np.repeat(np.arange(own.stop - own.start), self.group_size), self.arrivals)
        player = self._perturbed(rng, world)
        noisy = world.go_on(player, events=self.events)
        played = self._paid(label, noisy.then(world.go_on(calm)))
        better = _advantages(played.returns, self.group_size)
        advantages = np.broadcast_to(better, noisy.valid.shape)[noisy.valid]
        return played, player.samples(advantages, self.hardware.peers), noisy.valid

    def _update(self, samples: RolloutBatch, order: RoundOrder, rng: np.random.Generator) -> _Steps:
        every = rng.permutation(len(order.counts))
        some = every[: np.searchsorted(np.cumsum(order.counts[every]), self.batch_size) + 1]
        # the network has not changed since it played, so that every ratio is 1 and nothing is clipped
        return [self._step(samples, order, some, np.inf)]


def _advantages(returns: NDArray[np.float64], group_size: int) -> Floats:
    """[clusters] advantages of unit spread in each group, weighted by how much its returns spread."""
    groups = returns.reshape(-1, group_size)
    mean, spread = groups.mean(axis=1, keepdims=True), groups.std(axis=1, keepdims=True)
    weight = np.minimum(np.sqrt(spread / (np.abs(mean) + 1e-12) / _USUAL_SPREAD), _MOST_WEIGHT)
    return ((groups - mean) / (spread + 1e-12) * weight).astype(np.float32).reshape(-1)
