"""PPO without a critic on noisy scores of single jobs."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.checks import Positive, PositiveInt, checked
from ringyard_agents.learning.episodes import EpisodeRunner
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


@checked("agent")
@dataclass(kw_only=True)
class GroupNoise(ScoreLearner):
    """Learner of job scores by PPO without a critic, with one draw of noise per job and episode.

    The effect of noise on a whole episode is measurable where that on a single decision is not. Advantages
    compare clusters with the same workload, half of which have the opposite noise.

    Source: PPO (Schulman et al. 2017), advantages within groups (Shao et al. 2024).
    """

    noise_std: NoiseStd = 0.05  #: standard deviation of the noise, in scores
    #: how decisions share the return of their episode, see `policy_gradient.group_advantages`
    credit: Credit = "time_aligned"
    n_epochs: PositiveInt = 2  #: passes over each round
    batch_size: PositiveInt = 32768  #: scores of single jobs in a gradient step
    clip_range: Positive = 0.2  #: largest change of the ratio of the probabilities of a score from 1
    max_grad_norm: Positive = 0.5  #: maximum norm of the gradient

    def _round(self) -> dict[str, float]:
        episodes, samples = {}, []
        for i, (label, runner) in enumerate(self._runners.items()):
            policy = self._perturbed_policy(self._rng(i, 1), runner)
            episodes[label] = self._penalized(label, runner.run_episodes(self._draw_workloads(i), policy))
            valid = episodes[label].valid
            advantages = group_advantages(*episodes[label], self.group_size, self.credit)[valid]
            samples.append(policy.samples(advantages, self.hardware.process_group))
        batch, valid_steps = RolloutBatch.concatenate(samples), [one.valid for one in episodes.values()]
        order = order_decisions(self.hardware.process_group, valid_steps, batch.counts)
        measured = self._update(batch, order, self._rng(len(self._runners)))
        columns = zip(_TAGS, zip(*measured, strict=True), strict=True)
        return self._count(episodes) | {tag: float(np.mean(values)) for tag, values in columns}

    def _perturbed_policy(self, rng: np.random.Generator, runner: EpisodeRunner) -> PerturbedPolicy:
        """Make the policy with noise for the local clusters. Neighbouring clusters have opposite noise."""
        jobs = runner.config.workload.num_jobs
        num_clusters = self.workloads_per_round * self.group_size
        half = rng.standard_normal((num_clusters // 2, 1, jobs), np.float32)
        antithetic_noise = np.concatenate((half, -half), axis=1).reshape(num_clusters, jobs)
        return PerturbedPolicy(self._network, antithetic_noise[self._local_clusters], self.noise_std)

    def _update(
        self, samples: RolloutBatch, order: DecisionOrder, rng: np.random.Generator
    ) -> list[NDArray[np.float64]]:
        """Take gradient steps on this process's samples, and return [3] of each, see `add_gradient`.

        `rng` draws the same in all processes.
        """
        measured = []
        for _ in range(self.n_epochs):
            shuffled = rng.permutation(len(order.counts))
            total = np.cumsum(order.counts[shuffled])
            steps = max(1, round(total[-1] / self.batch_size))
            splits = np.searchsorted(total, total[-1] * np.arange(1, steps) / steps)
            for decisions in np.split(shuffled, splits):
                self._optimizer.zero_grad()
                local = samples.select(order.to_local_indices(decisions))
                total_scores = int(order.counts[decisions].sum())
                means = add_gradient(self._network, local, total_scores, self.noise_std, self.clip_range)
                clip_and_step(self._network, self._optimizer, self.hardware.process_group, self.max_grad_norm)
                measured.append(self.hardware.process_group.sum_values(means))
        return measured
