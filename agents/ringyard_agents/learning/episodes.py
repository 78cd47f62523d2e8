"""Whole episodes of many clusters at once, and a constraint that adds a price to their rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.sim.metrics import Metrics
from ringyard_agents.learning.score_networks import Floats, Ids, Masks, PolicyInput, as_action, look

#: assumed share of a bound that an episode uses which served no job and so has no metric
_UNSERVED = 2.0


def take(observations: Any, rows: Ids) -> Any:
    """Some rows, by number, of [clusters, size] or of {block: [clusters, ...]}."""
    if isinstance(observations, dict):
        return {name: block.take(rows, axis=0) for name, block in observations.items()}
    return observations.take(rows, axis=0)


def stacked(parts: Sequence[Any]) -> Any:
    """All rows of several observations, masks or actions in one."""
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


class ScorePlayer(Protocol):
    """Scores the jobs of some clusters."""

    def __call__(self, seen: PolicyInput, clusters: Ids, rows: NDArray[np.int32]) -> Floats:
        """[clusters, slots, 1 + GPU types scored] scores, which are clipped to [-1, 1].

        Args:
            seen: of the clusters.
            clusters: their indices, ascending.
            rows: [clusters, slots] each job's row in its job table; any row where there is no job.
        """
        ...


class Episodes(NamedTuple):
    """Rewards and times of one episode in each cluster.

    Attributes:
        rewards: [steps, clusters] after each decision.
        times: [steps, clusters] simulated seconds at each decision.
        valid: [steps, clusters] True until the episode's end.
        ends: [clusters] simulated seconds at which each was over.
    """

    rewards: Floats
    times: NDArray[np.float64]
    valid: Masks
    ends: NDArray[np.float64]

    @property
    def returns(self) -> NDArray[np.float64]:
        """[clusters] undiscounted sums of rewards."""
        return np.asarray((self.rewards * self.valid).sum(axis=0, dtype=np.float64))

    def then(self, later: "Episodes") -> "Episodes":
        """These steps and those of the same clusters afterwards."""
        return Episodes(
            np.concatenate((self.rewards, later.rewards)),
            np.concatenate((self.times, later.times)),
            np.concatenate((self.valid, later.valid)),
            later.ends,
        )


class World:
    """Clusters of one environment, which play their episodes together.

    Args:
        setting: configuration of the environment.
        num_clusters: clusters played at once.
    """

    def __init__(self, setting: EnvConfig, num_clusters: int) -> None:
        self.config = setting
        self.batch = ClusterBatch(setting, num_clusters)
        self._space: Any = setting.actions.space

    def play(self, entries: Ids, player: Any) -> Episodes:
        """Play one episode of job table `entries[b]` in each cluster b, see `go_on`."""
        self.reset(entries)
        return self.go_on(player)

    def reset(self, entries: Ids) -> None:
        """Begin job table `entries[b]` in each of the first clusters b."""
        self.batch.reset(np.arange(len(entries)), entries)

    def go_on(
        self, player: Any, arrivals: NDArray[np.float64] | None = None, events: float = np.inf
    ) -> Episodes:
        """Play on until all episodes are over, or earlier.

        Args:
            player: (observations, masks, clusters) -> [clusters, ...] actions, where clusters are indices; a
                `ScorePlayer` for a `ScoreWorld`.
            arrivals: [clusters] plays only the first clusters, each until so many of its jobs have arrived.
            events: maximum number of decisions.
        """
        batch = self.batch
        until = np.full(batch.num_clusters, np.inf if arrivals is None else -np.inf)
        if arrivals is not None:
            until[: len(arrivals)] = arrivals
        rewards: list[Floats] = []
        times: list[NDArray[np.float64]] = []
        valid: list[Masks] = []
        while len(times) < events:
            playing = (batch.state.clusters["next_arrival"] < until) & ~(batch.done | batch.truncated)
            clusters = np.flatnonzero(playing)
            if not len(clusters):
                break
            times.append(batch.state.clusters["now"].copy())
            valid.append(playing)
            actions = np.zeros((len(playing), *self._space.shape), self._space.dtype)
            seen = take(batch.split(batch.observations), clusters)
            actions[clusters] = self._choose(player, seen, batch.masks[clusters], clusters)
            batch.replace_invalid(actions, clusters)
            batch.step(actions, clusters)
            rewards.append(batch.rewards.astype(np.float32))
        shape = (len(times), batch.num_clusters)
        return Episodes(
            np.array(rewards, np.float32).reshape(shape),
            np.array(times).reshape(shape),
            np.array(valid, np.bool_).reshape(shape),
            batch.state.clusters["now"].copy(),
        )

    def _choose(self, player: Any, observations: Any, masks: Masks, clusters: Ids) -> Any:
        return player(observations, masks, clusters)


class ScoreWorld(World):
    """Clusters of an environment with the actions `Scores`, played by a `ScorePlayer`."""

    def fork(self, sources: Ids, arrivals: int) -> None:
        """Make each cluster b a copy of cluster `sources[b]`, to which at most `arrivals` jobs still come."""
        self.batch.copy_clusters(sources)
        clusters = self.batch.state.clusters
        clusters["num_jobs"] = np.minimum(clusters["num_jobs"], clusters["next_arrival"] + arrivals)

    def _choose(self, player: Any, observations: Any, masks: Masks, clusters: Ids) -> Any:
        seen = look(observations, masks)
        rows = self.batch.episode.live[clusters, : seen.present.shape[1]]
        return as_action(player(seen, clusters, rows), seen, masks.shape[1])


@dataclass
class Constraint:
    """An upper bound on the mean of a metric, enforced by a Lagrangian price that rises while it is broken.

    The share of the bound that an episode uses is its metric over the bound, or 2 if no job was served.

    Attributes:
        metric: field of `Metrics`, less is better.
        most: {label of an environment: bound}.
        step: change of the price at each evaluation, times (share used - 1).
        price: of using the bound once, 0 or more, in mean absolute returns of a round.
    """

    metric: str
    most: Mapping[str, float]
    step: float
    price: float = 0.0

    def adjust(self, used: float) -> None:
        """Set the price by the share of the bound that an evaluation used."""
        self.price = max(0.0, self.price + self.step * (used - 1.0))

    def used(self, label: str, metrics: Sequence[Metrics]) -> NDArray[np.float64]:
        """[episodes] share of an environment's bound that each used.

        Args:
            label: of the environment.
            metrics: [episodes] of episodes that have ended.
        """
        shares = np.array([float(getattr(one, self.metric)) for one in metrics]) / self.most[label]
        return np.where(np.isnan(shares), _UNSERVED, shares)

    def charge(self, label: str, played: Episodes, metrics: Sequence[Metrics], usual: float) -> Episodes:
        """Subtract the price of the bound that episodes used from their last rewards.

        Args:
            label: of the environment.
            played: episodes in it.
            metrics: [clusters] of the episodes.
            usual: mean absolute return of the round in that environment.

        Returns:
            The episodes with other rewards.
        """
        used = self.used(label, metrics)
        rewards = played.rewards.copy()
        last = len(rewards) - 1 - np.argmax(played.valid[::-1], axis=0)
        rewards[last, np.arange(len(used))] -= self.price * usual * used
        return played._replace(rewards=rewards)
