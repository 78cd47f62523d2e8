"""Base class of learners of scores: a network, an optimiser, rounds of episodes in several environments."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.checks import Positive, PositiveInt
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.episodes import Constraint, Episodes, ScoreWorld
from ringyard_agents.learning.imitation import ImitateAllocator
from ringyard_agents.learning.learner import Callback, network_state, restore_network, weights_of
from ringyard_agents.learning.process_group import Hardware
from ringyard_agents.learning.score_networks import ScoreNetwork, ScorePolicy

#: spread of exploration; weights and scores are of the order of 1
Spread = Annotated[float, "(0, 10]"]

_AVERAGE = "average."


@dataclass(kw_only=True)
class ScoreLearner(ABC):
    """Learns in rounds: groups of clusters play workloads of every environment, then the network is updated.

    Random draws of a round depend on the seed and its number only, so that no random state is saved.

    Attributes:
        network: (F, C) -> a network for F features of a job and C of a cluster. With scores for GPU types it
            is called as (F, C, type_scores=T).
        learns_types: whether it also learns scores for GPU types.
        workloads: played in each environment and round, by all processes together.
        group_size: clusters that play each workload and are compared; even, for antithetic pairs.
        learning_rate: of Adam, decays linearly to 0 at the last decision.
        averaging: share of the old weights in the policy's weights after each round.
        teacher: imitated before learning; None: all scores are 0 at first.
        constraint: on another metric; None: there is none.
        hardware: device and processes.
    """

    network: Callable[..., ScoreNetwork]
    workloads: PositiveInt = 4
    group_size: Annotated[int, "[2, 4096]"] = 8
    learning_rate: Positive = 3e-3
    averaging: Annotated[float, "[0, 1)"] = 0.0
    teacher: ImitateAllocator | None = None
    constraint: Constraint | None = field(default=None, init=False)
    hardware: Hardware = field(default_factory=Hardware, init=False, repr=False)
    flat: bool = field(default=False, init=False)
    learns_types: ClassVar[bool] = False
    masked: bool = field(default=False, init=False)
    decisions: int = field(default=0, init=False)
    _rounds: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.group_size % 2:
            raise ConfigurationError(
                f"agent.group_size is {self.group_size}; expected an even number, for mirrored pairs"
            )

    @property
    def policy(self) -> ScorePolicy:
        """The policy learnt so far."""
        return ScorePolicy(self._average)

    def setup(self, worlds: Mapping[str, EnvConfig], seed: int, saved: Checkpoint | None = None) -> None:
        """Make the network, new or as saved, and its worlds."""
        torch.set_num_threads(1)
        own = self._own_clusters
        sizes = {_size_in(label, setting) for label, setting in worlds.items()}
        if len(sizes) > 1:
            raise ConfigurationError(
                "worlds differ in what they show of a job, of the cluster, or in action.type_scores:"
                f" {', '.join(map(str, sorted(sizes)))}; expected the same in all"
            )
        (size,) = sizes
        if size[2] and not self.learns_types:
            raise ConfigurationError(
                f"action.type_scores names {size[2]} GPU types; this agent learns one score of each"
                " job alone: expected none, or agent=evolution"
            )
        if self.teacher is not None:
            self.teacher.check(worlds)
        self._worlds = {label: ScoreWorld(one, own.stop - own.start) for label, one in worlds.items()}
        self._seed, self.decisions, self._rounds = seed, 0, 0
        torch.manual_seed(seed)
        self._network = self._new_network(*size).to(self.hardware.device)
        self._optimizer = torch.optim.Adam(self._network.parameters(), self.learning_rate)
        self._average = deepcopy(self._network)
        if saved is None:
            return
        restore_network(self._network, saved, self._optimizer)
        arrays = saved.arrays.items()
        average = {name.removeprefix(_AVERAGE): array for name, array in arrays if name.startswith(_AVERAGE)}
        restore_network(self._average, Checkpoint(average, {}))
        self.decisions, self._rounds = saved.facts["decisions"], saved.facts["rounds"]

    def state(self) -> Checkpoint:
        """Weights, their average, optimiser and counters."""
        average = {_AVERAGE + name: array for name, array in weights_of(self._average.state_dict()).items()}
        counters = {"decisions": self.decisions, "rounds": self._rounds}
        return network_state(self._network, self._optimizer).joined(Checkpoint(average, counters))

    def _new_network(self, job: int, cluster: int, type_scores: int) -> ScoreNetwork:
        # networks without type scores need not have the argument
        more = {"type_scores": type_scores} if type_scores else {}
        return self.network(job, cluster, **more)

    def load_weights(self, weights: Checkpoint) -> None:
        """Begin with these weights, and with them as their average."""
        restore_network(self._network, weights)
        restore_network(self._average, weights)

    def weights(self) -> Checkpoint:
        """Weights of the policy's network, and its numbers of features."""
        network = self._average
        features = [network.job_features, network.cluster_features]
        facts = {"features": features, "type_scores": getattr(network, "type_scores", 0)}
        return Checkpoint(weights_of(network.state_dict()), facts)

    def load(self, saved: Checkpoint) -> ScorePolicy:
        """The policy of saved weights."""
        job, cluster = saved.facts["features"]
        network = self._new_network(job, cluster, saved.facts.get("type_scores", 0))  # older agents have none
        restore_network(network, saved)
        return ScorePolicy(network)

    def learn(self, total_decisions: int, callback: Callback) -> None:
        """Imitate the teacher, if there is one and nothing was learnt yet; then play and learn in rounds."""
        measured: dict[str, float] = {}
        if self._rounds == 0 and self.teacher is not None:
            settings = {label: world.config for label, world in self._worlds.items()}
            measured = self.teacher.fit(self._network, settings, self._seed)
            self._average.load_state_dict(self._network.state_dict())
        callback(measured)
        while self.decisions < total_decisions:
            for group in self._optimizer.param_groups:
                group["lr"] = self.learning_rate * (1.0 - self.decisions / total_decisions)
            measured = self._round()
            self._rounds += 1
            for mean, newest in zip(self._average.parameters(), self._network.parameters(), strict=True):
                mean.data.lerp_(newest.data, 1.0 - self.averaging)
            callback(measured | {"train/learning_rate": group["lr"]})

    def _paid(self, label: str, played: Episodes) -> Episodes:
        """Episodes just played in an environment, with the constraint's price taken off their rewards."""
        if self.constraint is None:
            return played
        batch = self._worlds[label].batch
        metrics = [batch.metrics(b) for b in range(batch.num_clusters)]
        usual, count = self.hardware.peers.sums(np.array([np.abs(played.returns).sum(), len(metrics)]))
        return self.constraint.charge(label, played, metrics, usual / count)

    @abstractmethod
    def _round(self) -> dict[str, float]:
        """Play a round and learn from it; returns {curve: value}."""

    def _rng(self, *stream: int) -> np.random.Generator:
        """Generator of one of this round's streams of random numbers."""
        return np.random.default_rng((self._seed, self._rounds, *stream))

    @property
    def _own_clusters(self) -> slice:
        """The clusters of this process among all of a world."""
        return self.hardware.peers.part("agent.workloads", self.workloads, self.group_size)

    def _entries(self, world: int) -> NDArray[np.int64]:
        """[own clusters] job tables of this round, the same for each cluster of a group."""
        setting = list(self._worlds.values())[world].config
        drawn = self._rng(world).integers(setting.num_workloads, size=self.workloads)
        return np.repeat(drawn, self.group_size)[self._own_clusters]

    def _count(self, played: Mapping[str, Episodes]) -> dict[str, float]:
        """Count the decisions of a round; returns the means of its returns and lengths."""
        peers = self.hardware.peers
        sums = [(one.returns.sum(), one.valid.sum(), one.valid.shape[1]) for one in played.values()]
        returns, decisions, clusters = peers.sums(np.array(sums, np.float64).T.reshape(-1)).reshape(3, -1)
        self.decisions += int(decisions.sum())
        measured = {
            "rollout/ep_rew_mean": float(np.mean(returns / clusters)),
            "rollout/ep_len_mean": float(np.mean(decisions / clusters)),
        }
        if len(played) > 1:
            means = zip(played, (returns / clusters).tolist(), strict=True)
            measured |= {f"rollout/{label}/ep_rew_mean": mean for label, mean in means}
        return measured


def _size_in(label: str, setting: EnvConfig) -> tuple[int, int, int]:
    """(numbers seen of a job, numbers seen of the cluster, GPU types scored) in a world.

    Raises:
        ConfigurationError: its actions are no scores, or its observation does not show jobs by themselves.
    """
    actions, length = setting.actions, setting.observation.lengths(setting.cluster, setting.actions)
    if not isinstance(actions, Scores) or not {"jobs", "cluster"} <= set(length):
        raise ConfigurationError(
            f"{label}: this agent scores jobs and needs action=scores and an observation with the blocks jobs"
            f" and cluster (observation=live_jobs); got {type(actions).__name__} and {', '.join(length)}"
        )
    return (length["jobs"] // actions.num_jobs, length["cluster"], len(actions.type_scores))
