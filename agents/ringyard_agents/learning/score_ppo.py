"""PPO without a critic on noisy scores of single jobs."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.checks import Positive, PositiveInt, checked
from ringyard_agents.learning.episodes import EpisodeBatch, ScoreEpisodeRunner, ScoreFunction
from ringyard_agents.learning.policy_gradient import (
    Credit,
    DecisionOrder,
    add_gradients,
    clip_and_step,
    clipped_objective,
    group_advantages,
    order_decisions,
)
from ringyard_agents.learning.process_group import ProcessGroup, to_device
from ringyard_agents.learning.score_learner import NoiseStd, ScoreLearner
from ringyard_agents.learning.score_networks import (
    Floats,
    Ids,
    Masks,
    PolicyInput,
    ScoreNetwork,
    pad_decisions,
    score_array,
    score_tensor,
)

#: parts of a minibatch, each padded to its decision with most jobs: with more parts there is less padding
_NUM_PARTS = 8


class RolloutBatch(NamedTuple):
    """Decisions to learn from, with one sample for each scored job."""

    jobs: Floats  #: [samples, F] features of the jobs, one decision after the other
    scores: Floats  #: [samples] scores, noise included
    noise: Floats  #: [samples] noise of the scores, in standard deviations
    advantages: Floats  #: [samples] advantages of the noise
    counts: Ids  #: [decisions] number of jobs scored in each decision
    cluster: Floats  #: [decisions, C] features of the cluster

    def select(self, decisions: Ids) -> "RolloutBatch":
        """Return the samples of some decisions, by index."""
        counts = self.counts[decisions]
        ends = np.cumsum(counts)
        first = (np.cumsum(self.counts) - self.counts)[decisions]
        rows = np.repeat(first - (ends - counts), counts) + np.arange(int(counts.sum()))
        jobs, scores, noise, advantages = (part[rows] for part in self[:4])
        return RolloutBatch(jobs, scores, noise, advantages, counts, self.cluster[decisions])

    def policy_input(self) -> PolicyInput:
        """Return the features as input of a network."""
        return PolicyInput(*pad_decisions(self.jobs, self.counts), self.cluster)

    @staticmethod
    def concatenate(batches: list["RolloutBatch"]) -> "RolloutBatch":
        """Return all samples of several batches."""
        return RolloutBatch(*(np.concatenate(column) for column in zip(*batches, strict=True)))


def deterministic(network: ScoreNetwork) -> ScoreFunction:
    """Return a function that scores jobs by a network without noise."""
    return lambda inputs, clusters, rows: score_array(network, inputs)


class PerturbedPolicy:
    """A `ScoreFunction` that adds noise to a network's scores and records its decisions.

    The [clusters, jobs] noise of a job is the same in all its decisions. Its standard deviation is 1, times
    `noise_std` in scores.
    """

    def __init__(self, network: ScoreNetwork, noise: Floats, noise_std: float) -> None:
        self._network, self._noise, self._noise_std = network, noise, np.float32(noise_std)
        #: [clusters x jobs] decision in which the job was first scored, -1 before
        self._first = np.full(noise.size, -1)
        self._num_decisions = 0
        self._records: list[tuple[NDArray[Any], ...]] = []

    def __call__(self, inputs: PolicyInput, clusters: Ids, rows: NDArray[np.int32]) -> Floats:
        """Return scores, see `ScoreFunction`."""
        noise, present = self._noise[clusters[:, None], rows], inputs.present
        scores = score_array(self._network, inputs)[..., 0] + self._noise_std * noise
        decisions, slots = np.nonzero(present)
        jobs = clusters[decisions] * self._noise.shape[1] + rows[decisions, slots]
        first = self._first[jobs]
        self._first[jobs] = np.where(first < 0, self._num_decisions + decisions, first)
        self._num_decisions += len(clusters)
        samples = inputs.jobs[present], scores[present], noise[present]
        self._records.append((*samples, jobs, present.sum(axis=1), inputs.cluster))
        return scores[..., None]

    def samples(self, advantages: Floats, process_group: ProcessGroup) -> RolloutBatch:
        """Return the samples of all decisions, in order, with [decisions] advantages.

        The noise of a job acts from its first decision on, so the samples of the job share the advantage of
        that decision. Without sharing, jobs that the noise delays would count more, and the gradient would be
        biased.
        """
        columns = zip(*self._records, strict=True)
        features, scores, noise, jobs, counts, cluster = (np.concatenate(column) for column in columns)
        repeats = np.bincount(jobs)
        sums = np.array([len(jobs), np.count_nonzero(repeats)], np.float64)
        num_samples, num_jobs = process_group.sum_values(sums)
        share = num_samples / num_jobs / repeats[jobs]  # 1 on average
        job_advantages = (share * advantages[self._first[jobs]]).astype(np.float32)
        return RolloutBatch(features, scores, noise, job_advantages, counts, cluster)


def add_gradient(
    network: ScoreNetwork, samples: RolloutBatch, total: int, noise_std: float, clip_range: float
) -> NDArray[np.float64]:
    """Add the gradient of PPO's clipped loss to the gradient of a network. Each score is an action.

    A score has the density Normal(network's score, noise_std^2). `samples` are this process's part of a
    minibatch, which may be empty, of `total` scores in all processes.

    Returns:
        [3] this part's share of the minibatch's means: loss, estimated Kullback-Leibler divergence from the
        policy that made the decisions, fraction of clipped ratios.
    """
    if not len(samples.counts):
        return np.zeros(3)

    def loss_of(decisions: Ids) -> tuple[torch.Tensor, tuple[float, ...]]:
        part, device = samples.select(decisions), next(network.parameters()).device
        inputs = part.policy_input()
        means = score_tensor(network, inputs)[..., 0][to_device(device, inputs.present)]
        noise = (to_device(device, part.scores) - means) / noise_std
        log_ratio = (to_device(device, part.noise) ** 2 - noise**2) / 2  # of normal densities
        advantages = to_device(device, part.advantages)
        objective, divergence, outside = clipped_objective(log_ratio, advantages, clip_range)
        loss = -objective / total
        return loss, (loss.item(), divergence / total, outside / total)

    by_size = np.argsort(samples.counts, kind="stable")
    parts = np.array_split(by_size, min(_NUM_PARTS, len(by_size)))
    return add_gradients(network, loss_of, parts)


#: TensorBoard tags of the measurements of `add_gradient`
_TAGS = ("train/policy_gradient_loss", "train/approx_kl", "train/clip_fraction")

#: (episodes, samples of the decisions with noise, [steps, clusters] True where these were made)
_Exploration = tuple[EpisodeBatch, RolloutBatch, Masks]
#: [gradient steps] measurements of `add_gradient`
_Steps = list[NDArray[np.float64]]


@dataclass(kw_only=True)
class _ScorePPO(ScoreLearner):
    """Base class of learners that explore with noisy scores in every environment and update by PPO."""

    noise_std: NoiseStd  #: standard deviation of the noise, in scores
    batch_size: PositiveInt  #: scores of single jobs in a gradient step
    max_grad_norm: Positive = 0.5  #: maximum norm of the gradient

    def _round(self) -> dict[str, float]:
        episodes, samples, valid = {}, [], []
        for i, (label, runner) in enumerate(self._runners.items()):
            episodes[label], noisy_samples, noisy = self._explore(i, label, runner)
            samples.append(noisy_samples)
            valid.append(noisy)
        batch = RolloutBatch.concatenate(samples)
        order = order_decisions(self.hardware.process_group, valid, batch.counts)
        measured = self._update(batch, order, self._rng(len(self._runners)))
        columns = zip(_TAGS, zip(*measured, strict=True), strict=True)
        return self._count(episodes) | {tag: float(np.mean(values)) for tag, values in columns}

    @abstractmethod
    def _explore(self, environment: int, label: str, runner: ScoreEpisodeRunner) -> _Exploration:
        """Run episodes with noise in this process's clusters of an environment, given by index and label."""

    @abstractmethod
    def _update(self, samples: RolloutBatch, order: DecisionOrder, rng: np.random.Generator) -> _Steps:
        """Take gradient steps on the samples of this process. `rng` draws the same in all processes."""

    def _perturbed_policy(self, rng: np.random.Generator, runner: ScoreEpisodeRunner) -> PerturbedPolicy:
        """Make the policy with noise for the local clusters. Neighbouring clusters have opposite noise."""
        jobs = runner.config.workload.num_jobs
        num_clusters = self.workloads_per_round * self.group_size
        half = rng.standard_normal((num_clusters // 2, 1, jobs), np.float32)
        antithetic_noise = np.concatenate((half, -half), axis=1).reshape(num_clusters, jobs)
        return PerturbedPolicy(self._network, antithetic_noise[self._local_clusters], self.noise_std)

    def _step(
        self, samples: RolloutBatch, order: DecisionOrder, decisions: Ids, clip_range: float
    ) -> NDArray[np.float64]:
        """Take a gradient step on some decisions of all processes. Returns [3], see `add_gradient`."""
        self._optimizer.zero_grad()
        local, total = samples.select(order.to_local_indices(decisions)), int(order.counts[decisions].sum())
        means = add_gradient(self._network, local, total, self.noise_std, clip_range)
        clip_and_step(self._network, self._optimizer, self.hardware.process_group, self.max_grad_norm)
        return self.hardware.process_group.sum_values(means)


@checked("agent")
@dataclass(kw_only=True)
class GroupNoise(_ScorePPO):
    """Learner of job scores by PPO without a critic, with one draw of noise per job and episode.

    The effect of noise on a whole episode is measurable where that on a single decision is not. Advantages
    compare clusters with the same workload, half of which have the opposite noise.

    Source: PPO (Schulman et al. 2017), advantages within groups (Shao et al. 2024).
    """

    noise_std: NoiseStd = 0.05
    #: how decisions share the return of their episode, see `policy_gradient.group_advantages`
    credit: Credit = "time_aligned"
    n_epochs: PositiveInt = 2  #: passes over each round
    batch_size: PositiveInt = 32768
    clip_range: Positive = 0.2  #: largest change of the ratio of the probabilities of a score from 1

    def _explore(self, environment: int, label: str, runner: ScoreEpisodeRunner) -> _Exploration:
        policy = self._perturbed_policy(self._rng(environment, 1), runner)
        episodes = self._penalized(label, runner.run_episodes(self._draw_workloads(environment), policy))
        advantages = group_advantages(*episodes, self.group_size, self.credit)[episodes.valid]
        return episodes, policy.samples(advantages, self.hardware.process_group), episodes.valid

    def _update(self, samples: RolloutBatch, order: DecisionOrder, rng: np.random.Generator) -> _Steps:
        measured = []
        for _ in range(self.n_epochs):
            shuffled = rng.permutation(len(order.counts))
            total = np.cumsum(order.counts[shuffled])
            steps = max(1, round(total[-1] / self.batch_size))
            splits = np.searchsorted(total, total[-1] * np.arange(1, steps) / steps)
            for decisions in np.split(shuffled, splits):
                measured.append(self._step(samples, order, decisions, self.clip_range))
        return measured


#: typical standard deviation of a group's returns, as a fraction of their mean
_TYPICAL_STD = 0.01

#: maximum weight of a group, for groups with a larger standard deviation
_MAX_WEIGHT = 5.0


@checked("agent")
@dataclass(kw_only=True)
class ForkAndCompare(_ScorePPO):
    """Learner of job scores by PPO without a critic, in groups of copies of a cluster in mid-episode.

    All copies have the same jobs and the same future. Each copy makes some decisions with one draw of noise
    per job, in antithetic pairs, and then continues without noise until the remaining jobs have ended. So
    episodes may be long: the effect of late noise is not hidden by that of early noise.
    """

    workloads_per_round: PositiveInt = 6  #: forked clusters in each environment and round
    learning_rate: Positive = 2e-3
    ema_decay: Annotated[float, "[0, 1)"] = 0.99
    noise_std: NoiseStd = 0.1
    noisy_decisions: PositiveInt = 48  #: decisions with noise after the fork
    remaining_arrivals: PositiveInt = 400  #: maximum number of jobs that still arrive after the fork
    batch_size: PositiveInt = 16384  #: scores of single jobs in the only gradient step of a round

    def _explore(self, environment: int, label: str, runner: ScoreEpisodeRunner) -> _Exploration:
        exploit = deterministic(self._network)
        local = self.hardware.process_group.local_slice("agent.workloads_per_round", self.workloads_per_round)
        rng, num_jobs = self._rng(environment, 1), runner.config.workload.num_jobs
        runner.reset(self._draw_workloads(environment)[:: self.group_size])
        forked_after = rng.uniform(0, num_jobs, self.workloads_per_round)[local]
        runner.continue_episodes(exploit, arrivals=forked_after)
        sources = np.repeat(np.arange(local.stop - local.start), self.group_size)
        runner.fork(sources, self.remaining_arrivals)
        policy = self._perturbed_policy(rng, runner)
        noisy = runner.continue_episodes(policy, max_decisions=self.noisy_decisions)
        episodes = self._penalized(label, noisy.append(runner.continue_episodes(exploit)))
        # [clusters] normalised returns x sqrt(std / mean / `_TYPICAL_STD`), at most `_MAX_WEIGHT`
        groups = episodes.returns.reshape(-1, self.group_size)
        mean, std = groups.mean(axis=1, keepdims=True), groups.std(axis=1, keepdims=True)
        weight = np.minimum(np.sqrt(std / (np.abs(mean) + 1e-12) / _TYPICAL_STD), _MAX_WEIGHT)
        by_cluster = ((groups - mean) / (std + 1e-12) * weight).astype(np.float32).reshape(-1)
        advantages = np.broadcast_to(by_cluster, noisy.valid.shape)[noisy.valid]
        return episodes, policy.samples(advantages, self.hardware.process_group), noisy.valid

    def _update(self, samples: RolloutBatch, order: DecisionOrder, rng: np.random.Generator) -> _Steps:
        shuffled = rng.permutation(len(order.counts))
        batch = shuffled[: np.searchsorted(np.cumsum(order.counts[shuffled]), self.batch_size) + 1]
        # The network has not changed since the decisions, so every ratio is 1 and nothing is clipped.
        return [self._step(samples, order, batch, np.inf)]
