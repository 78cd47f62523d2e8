"""Whole episodes played with scores, many clusters of a world at once."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.score_networks import PolicyInput, as_action, look

__all__ = ["Episodes", "ScorePlayer", "World"]


class ScorePlayer(Protocol):
    """Scores the jobs of some clusters."""

    def __call__(
        self, seen: PolicyInput, clusters: NDArray[np.int64], rows: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """[clusters, slots, 1 + GPU types scored] scores; what is beyond -1 and 1 is cut off.

        Args:
            seen: of the clusters.
            clusters: their indices, ascending.
            rows: [clusters, slots] each job's row in its job table; any row where there is no job.
        """
        ...


class Episodes(NamedTuple):
    """What came of one episode in each cluster.

    Attributes:
        rewards: [steps, clusters] after each decision.
        times: [steps, clusters] simulated seconds at each decision.
        valid: [steps, clusters] True until the episode's end.
        ends: [clusters] simulated seconds at which each was over.
    """

    rewards: NDArray[np.float32]
    times: NDArray[np.float64]
    valid: NDArray[np.bool_]
    ends: NDArray[np.float64]

    @property
    def returns(self) -> NDArray[np.float64]:
        """[clusters] undiscounted sums of rewards."""
        return np.asarray((self.rewards * self.valid).sum(axis=0, dtype=np.float64))

    def then(self, later: "Episodes") -> "Episodes":
        """These and what came of the same clusters afterwards."""
        return Episodes(
            np.concatenate((self.rewards, later.rewards)),
            np.concatenate((self.times, later.times)),
            np.concatenate((self.valid, later.valid)),
            later.ends,
        )


class World:
    """Clusters of a setting whose actions are scores.

    Args:
        setting: the decision process.
        num_clusters: played at once.
    """

    def __init__(self, setting: EnvConfig, num_clusters: int) -> None:
        self.setting = setting
        self.batch = ClusterBatch(setting, num_clusters)

    def play(self, entries: NDArray[np.int64], player: ScorePlayer) -> Episodes:
        """One episode of job table `entries[b]` in each cluster b."""
        self.reset(entries)
        return self.go_on(player)

    def reset(self, entries: NDArray[np.int64]) -> None:
        """Begin job table `entries[b]` in each of the first clusters b."""
        self.batch.reset(np.arange(len(entries)), entries)

    def go_on(
        self, player: ScorePlayer, arrivals: NDArray[np.float64] | None = None, events: float = np.inf
    ) -> Episodes:
        """Play from where the clusters are until all of their episodes are over, or earlier.

        Args:
            player: scores jobs.
            arrivals: go on with the first clusters only, and until so many of their jobs have come.
            events: at most so many decisions.
        """
        batch = self.batch
        until = np.full(batch.num_clusters, np.inf if arrivals is None else -np.inf)
        if arrivals is not None:
            until[: len(arrivals)] = arrivals
        rewards: list[NDArray[np.float32]] = []
        times: list[NDArray[np.float64]] = []
        valid: list[NDArray[np.bool_]] = []
        while len(times) < events:
            playing = (batch.state.clusters["next_arrival"] < until) & ~(batch.done | batch.truncated)
            clusters = np.flatnonzero(playing)
            if not len(clusters):
                break
            times.append(batch.state.clusters["now"].copy())
            valid.append(playing)
            scores = self._scores(player, clusters)
            batch.valid(scores, clusters)
            batch.step(scores, clusters)
            rewards.append(batch.rewards.astype(np.float32))
        shape = (len(times), batch.num_clusters)
        return Episodes(
            np.array(rewards, np.float32).reshape(shape),
            np.array(times).reshape(shape),
            np.array(valid, np.bool_).reshape(shape),
            batch.state.clusters["now"].copy(),
        )

    def fork(self, sources: NDArray[np.int64], arrivals: int) -> None:
        """Make each cluster b a copy of cluster `sources[b]`, to which at most so many more jobs come."""
        self.batch.copy_clusters(sources)
        clusters = self.batch.state.clusters
        clusters["num_jobs"] = np.minimum(clusters["num_jobs"], clusters["next_arrival"] + arrivals)

    def _scores(self, player: ScorePlayer, clusters: NDArray[np.int64]) -> NDArray[np.float32]:
        """[all clusters, scores] a player's for some clusters."""
        batch = self.batch
        observations = {name: block[clusters] for name, block in batch.split(batch.observations).items()}
        seen = look(observations, batch.masks[clusters])
        rows = batch.episode.live[clusters, : seen.present.shape[1]]
        chosen = as_action(player(seen, clusters, rows), seen, batch.masks.shape[1])
        scores = np.zeros((len(batch.masks), chosen.shape[1]), np.float32)
        scores[clusters] = chosen
        return scores
