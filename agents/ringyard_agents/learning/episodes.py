"""Whole episodes of many clusters at once, and a constraint that penalises their rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.score_networks import Floats, Ids, Masks

#: assumed ratio of metric to bound of an episode that served no job and so has no metric
_RATIO_WITHOUT_JOBS = 2.0


def index_rows(observations: Any, rows: Ids) -> Any:
    """Return the `rows`, by index, of `observations` [clusters, ...] or {block: [clusters, ...]}."""
    if isinstance(observations, dict):
        return {name: block.take(rows, axis=0) for name, block in observations.items()}
    return observations.take(rows, axis=0)


def concatenate_rows(parts: Sequence[Any]) -> Any:
    """Concatenate the rows of observations, masks or actions; dicts of blocks are concatenated by block."""
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


class EpisodeBatch(NamedTuple):
    """Rewards and times of one episode in each cluster."""

    rewards: Floats  #: [steps, clusters] reward after each decision
    times: NDArray[np.float64]  #: [steps, clusters] simulated seconds at each decision
    valid: Masks  #: [steps, clusters] True until the end of the episode
    ends: NDArray[np.float64]  #: [clusters] simulated seconds at the end of each episode

    @property
    def returns(self) -> NDArray[np.float64]:
        """[clusters] undiscounted sums of rewards."""
        return np.asarray((self.rewards * self.valid).sum(axis=0, dtype=np.float64))


class EpisodeRunner:
    """Runs one episode in each of many clusters of an environment."""

    def __init__(self, config: EnvConfig, num_clusters: int) -> None:
        self.config = config
        self.batch = ClusterBatch(config, num_clusters)
        self._space: Any = config.actions.space

    def run_episodes(self, workloads: Ids, act: Any) -> EpisodeBatch:
        """Run an episode with job table `workloads[b]` in each cluster b. `act` as in `continue_episodes`."""
        self.reset(workloads)
        return self.continue_episodes(act)

    def reset(self, workloads: Ids) -> None:
        """Begin an episode with job table `workloads[b]` in each of the first clusters b."""
        self.batch.reset(np.arange(len(workloads)), workloads)

    def continue_episodes(
        self, act: Any, num_clusters: int | None = None, max_decisions: float = np.inf
    ) -> EpisodeBatch:
        """Continue all episodes to their end, or for a part, and return the decisions made.

        `act` turns (observations, masks, indices of clusters) into actions. Only the first `num_clusters` are
        continued. None: all.
        """
        batch = self.batch
        rewards, times, valid = list[Floats](), list[NDArray[np.float64]](), list[Masks]()
        while len(times) < max_decisions:
            active = ~(batch.done | batch.truncated)
            active[num_clusters:] &= num_clusters is None
            clusters = np.flatnonzero(active)
            if not len(clusters):
                break
            times.append(batch.state.clusters["now"].copy())
            valid.append(active)
            actions = np.zeros((len(active), *self._space.shape), self._space.dtype)
            observations = index_rows(batch.split(batch.observations), clusters)
            actions[clusters] = act(observations, batch.masks[clusters], clusters)
            batch.replace_invalid(actions, clusters)
            batch.step(actions, clusters)
            rewards.append(batch.rewards.astype(np.float32))
        shape = (len(times), batch.num_clusters)
        valid_steps = np.array(valid, np.bool_).reshape(shape)
        given, seconds = np.array(rewards, np.float32).reshape(shape), np.array(times).reshape(shape)
        return EpisodeBatch(given, seconds, valid_steps, batch.state.clusters["now"].copy())


@dataclass
class Constraint:
    """An upper bound on the mean of a metric, enforced by a Lagrange multiplier.

    Training maximises return - multiplier x scale x (metric / bound), where the scale is the mean absolute
    return of a round. Each evaluation moves the multiplier by gradient ascent (Lagrangian relaxation of a
    constrained MDP, Altman 1999). `metric / bound` of an episode that served no job is taken as 2.
    """

    #: field of `Metrics`, less is better, or "cost": the sum of `info["cost"]` over an episode
    metric: str
    bounds: Mapping[str, float]  #: {environment's label: upper bound on the mean, in the unit of the metric}
    learning_rate: float  #: change of the multiplier at an evaluation, per unit of (metric / bound - 1)
    multiplier: float = 0.0  #: the Lagrange multiplier, at least 0

    def update_multiplier(self, ratio: float) -> None:
        """Update the multiplier after an evaluation with this ratio of metric to bound."""
        self.multiplier = max(0.0, self.multiplier + self.learning_rate * (ratio - 1.0))

    def ratios_to_bound(self, label: str, batch: ClusterBatch) -> NDArray[np.float64]:
        """Return [clusters] ratios of the metric of the episodes of `batch` to the bound of `label`."""
        if self.metric == "cost":
            return batch.episode_costs() / self.bounds[label]
        episodes = [batch.metrics(b) for b in range(batch.num_clusters)]
        ratios = np.array([float(getattr(one, self.metric)) for one in episodes]) / self.bounds[label]
        return np.where(np.isnan(ratios), _RATIO_WITHOUT_JOBS, ratios)

    def penalize(self, label: str, episodes: EpisodeBatch, batch: ClusterBatch, scale: float) -> EpisodeBatch:
        """Subtract the penalty of each episode from its last reward, by the mean absolute return, `scale`."""
        ratios = self.ratios_to_bound(label, batch)
        rewards = episodes.rewards.copy()
        last = len(rewards) - 1 - np.argmax(episodes.valid[::-1], axis=0)
        rewards[last, np.arange(len(ratios))] -= self.multiplier * scale * ratios
        return episodes._replace(rewards=rewards)
